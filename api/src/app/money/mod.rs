//! Money as people touch it: wallets, top-ups, credits, the price book.

pub mod charges;
pub mod payments;
pub mod price_book;
pub mod top_up;
pub mod wallet;
