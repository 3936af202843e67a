//! Cash through a payment provider, from the intent to the wallet.
//!
//! A top-up is a row before the provider hears of it, so nothing that happens after is lost. Whatever brings news of it (the answer
//! to the call that opened it, a callback, a worker's question) ends in [`take_over::take_over`] with what the provider itself said,
//! under the tenant's lock: the row leaves `pending` once, the bucket and the transfer have ids that follow from the top-up, and the
//! provider's name of a payment is unique in the ledger. Any order and number of callbacks credits at most once.

pub mod auto;
pub mod confirm;
pub mod open;
pub mod take_over;
pub mod watch;

use tarn_billing::grant::InvalidGrant;
use tarn_protocol::ids::TopUpId;
use tarn_protocol::units::Timestamp;
use tarn_store::StoreError;

use crate::app::metering::purse::CorruptMoney;
use crate::app::money::top_up::TopUpError;
use crate::till::PaymentError;

/// Before the provider is first asked about a payment that it sent no callback for.
pub const FIRST_ASK_SECONDS: i64 = 60;
const ASK_SECONDS_MAX: i64 = 3600;

#[derive(Debug, thiserror::Error)]
pub enum PaymentFailed {
    #[error(transparent)]
    Provider(#[from] PaymentError),
    #[error("top-up {0} is not there")]
    NoSuchTopUp(TopUpId),
    #[error("a payment for {named:?} cannot settle top-up {top_up}")]
    OtherReference { top_up: TopUpId, named: String },
    #[error("the payment was begun at {0}, which is not in use here any more")]
    OtherProvider(String),
    /// Another replica follows payments up now.
    #[error("the claim was lost meanwhile")]
    Fenced,
    #[error(transparent)]
    Grant(#[from] InvalidGrant),
    #[error(transparent)]
    TopUp(#[from] TopUpError),
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// When to ask again after `asks` questions: a minute, then twice as long each time, at most an hour.
pub fn next_ask(now: Timestamp, asks: u32) -> Timestamp {
    let seconds = FIRST_ASK_SECONDS.checked_shl(asks).unwrap_or(ASK_SECONDS_MAX);
    now.plus_seconds(seconds.clamp(FIRST_ASK_SECONDS, ASK_SECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_become_rarer_and_never_stop() {
        let now = Timestamp::from_micros(0);
        let seconds = |asks| next_ask(now, asks).as_micros() / 1_000_000;
        assert_eq!([0, 1, 2, 6, 40, 70, u32::MAX].map(seconds), [60, 120, 240, 3600, 3600, 3600, 3600]);
    }
}
