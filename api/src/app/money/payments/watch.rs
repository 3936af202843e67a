//! What an operator must see of payments: one alert for each thing, open as long as it lasts.
//!
//! Whether a provider answers is asked by a call that moves nothing, once a minute, so that an outage shows even when nobody pays and
//! every replica sees the same. Callbacks that prove nothing are counted in memory: anybody can send them, and a write for each would
//! be a gift. What needs a person to look and is over only when one has looked stays open.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tarn_protocol::ids::EventId;
use tarn_protocol::units::Timestamp;
use tarn_rows::Json;
use tarn_rows::alerts::AlertRow;
use tarn_store::{StoreError, Tx};

use crate::app::act::Act;
use crate::state::AppState;
use crate::till::PaymentError;

/// The provider has not answered, or has refused us, for [`FAILING_SECONDS`].
pub const PROVIDER_FAILING: &str = "payment_provider_failing";
/// Callbacks that prove nothing come in number: a wrong secret here, or somebody who tries.
pub const CALLBACKS_REFUSED: &str = "payment_callbacks_refused";
/// What the provider says of a payment cannot be taken over, for longer than a payment takes.
pub const PAYMENT_STUCK: &str = "payment_stuck";
/// A refund could not be ordered, or was ordered and does not end.
pub const REFUND_STUCK: &str = "refund_stuck";
/// The provider paid back another amount than left the wallet.
pub const REFUND_AMOUNT_DIFFERS: &str = "refund_amount_differs";

const PROBE_EVERY_SECONDS: i64 = 60;
pub const FAILING_SECONDS: i64 = 15 * 60;
/// Refused callbacks within [`REFUSED_WITHIN_SECONDS`], at one replica, that are many; and how long it must be quiet afterwards.
pub const REFUSED_MANY: usize = 10;
const REFUSED_WITHIN_SECONDS: i64 = 3600;
/// While they are many, they are written down so often.
const REFUSED_WRITTEN_SECONDS: i64 = 60;
/// Payment pages live for a day; what is asked about for longer is stuck.
const PAYMENT_SECONDS_MAX: i64 = 25 * 3600;
/// A refund that was never taken by the provider, and one that it took and does not pay: banks take up to ten days.
const ORDER_SECONDS_MAX: i64 = 6 * 3600;
const PAY_OUT_SECONDS_MAX: i64 = 14 * 24 * 3600;

/// Opens an alert, unless one of this kind and subject is open.
pub async fn open(
    tx: &mut Tx,
    act: &Act,
    kind: &str,
    subject: &str,
    detail: Value,
) -> Result<(), StoreError> {
    let alert = AlertRow {
        id: EventId::new(act.now, act.bits()),
        kind: kind.to_owned(),
        subject: subject.to_owned(),
        detail: Json(detail),
        created_at: act.now,
        cleared_at: None,
    };
    if tx.open_alert(&alert).await? {
        tracing::warn!(kind, subject, "an alert was opened");
    }
    Ok(())
}

/// Whether a probe of the provider is due.
pub async fn probe_due(state: &AppState, now: Timestamp) -> Result<bool, StoreError> {
    let row = state.store.reader().await?.payment_provider(state.payments.name()).await?;
    Ok(row.is_none_or(|row| row.probe_at <= now))
}

/// Takes over what a probe found.
pub async fn probed(
    tx: &mut Tx,
    act: &Act,
    provider: &str,
    found: &Result<(), PaymentError>,
) -> Result<(), StoreError> {
    let row = tx.payment_provider(provider).await?;
    let next = act.now.plus_seconds(PROBE_EVERY_SECONDS);
    let Err(error) = found else {
        tx.payment_provider_probed(provider, next, None).await?;
        return tx.clear_alert(PROVIDER_FAILING, provider, act.now).await.map(drop);
    };
    let since = row.and_then(|row| row.failing_since).unwrap_or(act.now);
    tx.payment_provider_probed(provider, next, Some(since)).await?;
    if act.now.micros_since(since) >= FAILING_SECONDS * 1_000_000 {
        let detail = json!({"since_micros": since.as_micros(), "error": error.to_string()});
        open(tx, act, PROVIDER_FAILING, provider, detail).await?;
    }
    Ok(())
}

/// Closes the alert about refused callbacks once it has been quiet.
pub async fn quiet(tx: &mut Tx, act: &Act, provider: &str) -> Result<(), StoreError> {
    let refused_at = tx.payment_provider(provider).await?.and_then(|row| row.refused_at);
    if refused_at.is_some_and(|at| act.now.micros_since(at) > REFUSED_WITHIN_SECONDS * 1_000_000) {
        tx.payment_callbacks_refused(provider, None).await?;
        tx.clear_alert(CALLBACKS_REFUSED, provider, act.now).await?;
    }
    Ok(())
}

/// Callbacks that this replica refused lately.
#[derive(Debug, Default)]
pub struct RefusedCallbacks(Mutex<Refused>);

#[derive(Debug, Default)]
struct Refused {
    /// The last ones, at most [`REFUSED_MANY`].
    at: VecDeque<Timestamp>,
    written_at: Option<Timestamp>,
}

impl RefusedCallbacks {
    /// One more; whether they are many now and that is to be written down.
    fn count(&self, now: Timestamp) -> bool {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.at.push_back(now);
        if refused.at.len() > REFUSED_MANY {
            refused.at.pop_front();
        }
        let within = |at: &Timestamp| now.micros_since(*at) <= REFUSED_WITHIN_SECONDS * 1_000_000;
        let many = refused.at.len() == REFUSED_MANY && refused.at.front().is_some_and(within);
        let fresh = |at: Timestamp| now.micros_since(at) < REFUSED_WRITTEN_SECONDS * 1_000_000;
        let write = many && !refused.written_at.is_some_and(fresh);
        if write {
            refused.written_at = Some(now);
        }
        write
    }
}

/// A callback was refused: `why` is ours, nothing of what came is written down.
pub async fn refused(state: &AppState, why: &'static str) -> Result<(), StoreError> {
    let now = state.clock.now();
    if !state.refused_callbacks.count(now) {
        return Ok(());
    }
    let (act, provider) = (Act::at(state, now), state.payments.name());
    let written = state.store.write(move |tx| {
        let act = act.clone();
        Box::pin(async move {
            tx.payment_callbacks_refused(provider, Some(act.now)).await?;
            let detail =
                json!({"why": why, "at_least": REFUSED_MANY, "within_seconds": REFUSED_WITHIN_SECONDS});
            open(tx, &act, CALLBACKS_REFUSED, provider, detail).await
        })
    });
    written.await
}

/// Whether a payment that was begun at `since` and cannot be decided should be looked at.
pub const fn payment_stuck(now: Timestamp, since: Timestamp) -> bool {
    now.micros_since(since) > PAYMENT_SECONDS_MAX * 1_000_000
}

/// Whether a refund that was begun at `since` and is not over should be looked at. `ordered`: the provider has taken it.
pub const fn refund_stuck(now: Timestamp, since: Timestamp, ordered: bool) -> bool {
    let most = if ordered { PAY_OUT_SECONDS_MAX } else { ORDER_SECONDS_MAX };
    now.micros_since(since) > most * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_callbacks_are_told_when_they_are_many_and_then_once_a_minute() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let refused = RefusedCallbacks::default();
        assert!((0..9).all(|second| !refused.count(at(second))));
        assert!(refused.count(at(9)));
        assert!(!refused.count(at(10)) && !refused.count(at(68)));
        assert!(refused.count(at(69)));
        let slow = RefusedCallbacks::default();
        assert!((0..100).all(|number| !slow.count(at(number * 401))), "nine an hour are not many");
    }
}
