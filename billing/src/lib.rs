//! Money, ledger rules, pricing, metering, settlement and exhaustion, without I/O.
//!
//! The question this crate answers is "what does this tenant owe, from which bucket, and until when is it paid?". Every function
//! takes values and returns values: no socket, no clock, no randomness, no float. The store commits what is planned here, guarded
//! by the values the plan was made from; a stale plan changes no row and is simply made again.
//!
//! * [`money`], [`rate`]: micro-CNY, prices per hour, and the cumulative floor that makes settlement instants irrelevant.
//! * [`account`], [`transfer`], [`wallet`]: double entry; every transfer has one debit, one credit and sums to zero.
//! * [`grant`], [`funds`]: the buckets of a wallet and the order in which they are drawn. [`hold`], [`gate`]: what a start reserves.
//! * [`price`]: append-only price versions. [`meter`]: a card or a disk. [`coverage`], [`segment`], [`evidence`]: which milliseconds of
//!   it are proven.
//! * [`settlement`], [`exhaustion`]: what to post now, and the instant at which the money ends. [`catch_up`]: both, with prices and
//!   expiries, in the order of their instants.
//! * [`audit`]: whether every stored balance and charge follows from the facts.
//! * [`cap`]: the instant at which a limit of spending is reached. [`sla`]: what a broken promise is worth.
//! * [`refund`]: which reversals give back part of a charge.
//! * [`states`]: which states bill. [`charge`], [`invoice`]: what a customer reads.
//!
//! The life of a yuan: a grant enters a wallet by a transfer; a segment collects evidence; `settle` plans transfers from grants to
//! revenue for seconds not yet settled; `forecast` says when the grants end; the segment closes at that instant.

#![deny(clippy::float_arithmetic)]

pub mod account;
pub mod audit;
pub mod cap;
pub mod catch_up;
pub mod charge;
pub mod coverage;
mod derived;
pub mod evidence;
pub mod exhaustion;
pub mod funds;
pub mod gate;
pub mod grant;
pub mod hold;
pub mod invoice;
pub mod leased;
pub mod meter;
pub mod money;
pub mod price;
pub mod price_change;
pub mod rate;
pub mod refund;
pub mod segment;
pub mod settlement;
pub mod sla;
pub mod states;
pub mod transfer;
pub mod wallet;
