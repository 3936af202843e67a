//! Money as people touch it: wallets, top-ups, credits, the price book.

pub mod charges;
pub mod notices;
pub mod payments;
pub mod price_book;
pub mod refunds;
pub mod sla;
pub mod top_up;
pub mod wallet;
