//! Asking the provider what became of a payment: after a callback, and when none came.

use serde_json::json;
use tarn_protocol::ids::TopUpId;
use tarn_protocol::units::Generation;
use tarn_rows::TenantScope;
use tarn_rows::payments::{TopUpCause, TopUpRow, TopUpState};
use tarn_store::{StoreError, Tx};

use super::watch::{self, PAYMENT_STUCK};
use super::{PaymentFailed, auto, next_ask, take_over};
use crate::app::act::Act;
use crate::state::AppState;
use crate::till::PaymentError;

/// How long a payment page that was never shown to anyone is kept open: as long as the provider remembers our name of it.
const UNOPENED_SECONDS: i64 = 24 * 3600;

/// The claim under which a worker follows payments up: its name and its fence.
pub type Fence = (&'static str, Generation);

/// The top-up after the provider was asked. A worker proves its `fence` in the transaction that takes the answer over.
pub async fn confirm(
    state: &AppState,
    row: &TopUpRow,
    fence: Option<Fence>,
) -> Result<TopUpRow, PaymentFailed> {
    let scope = TenantScope::proven(row.tenant_id.clone());
    let told = match (&row.external_id, row.cause) {
        (Some(external_id), _) => Some(state.payments.ask(external_id).await?),
        (None, TopUpCause::Auto) => auto::charge(state, row).await?,
        (None, TopUpCause::Customer) => None,
    };
    let act = Act::at(state, state.clock.now());
    let id = row.id.clone();
    let (row, act) = state
        .store
        .write(move |tx| {
            let (mut act, scope, id, told) = (act.clone(), scope.clone(), id.clone(), told.clone());
            Box::pin(async move {
                if let Some((worker, fence)) = fence
                    && !tx.holds_claim(worker, fence).await?
                {
                    return Err(PaymentFailed::Fenced);
                }
                let row = match told {
                    Some(told) => take_over::take_over(tx, &mut act, &scope, &id, &told).await?,
                    None => unopened(tx, &act, &scope, &id).await?,
                };
                Ok::<_, PaymentFailed>((row, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(row)
}

/// A payment page that the provider may have opened, and nobody ever saw: nobody can pay there.
async fn unopened(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    id: &TopUpId,
) -> Result<TopUpRow, PaymentFailed> {
    let row = tx.top_up(scope, id).await?.ok_or_else(|| PaymentFailed::NoSuchTopUp(id.clone()))?;
    if row.state != TopUpState::Pending || row.external_id.is_some() {
        return Ok(row);
    }
    let over = act.now.micros_since(row.created_at) > UNOPENED_SECONDS * 1_000_000;
    let next = TopUpRow {
        state: if over { TopUpState::Expired } else { TopUpState::Pending },
        resolved_at: over.then_some(act.now),
        asks: row.asks.saturating_add(1),
        ask_at: next_ask(act.now, row.asks),
        ..row
    };
    if !tx.update_top_up(scope, &next).await? {
        return Err(tx.stale().into());
    }
    if over {
        tx.clear_alert(PAYMENT_STUCK, id.as_str(), act.now).await?;
    }
    Ok(next)
}

/// The provider did not answer, or said what cannot be: asks again later, and has a person look if that goes on.
pub async fn postpone(tx: &mut Tx, act: &Act, row: &TopUpRow, why: &str) -> Result<(), StoreError> {
    let scope = TenantScope::proven(row.tenant_id.clone());
    if watch::payment_stuck(act.now, row.created_at) {
        let detail = json!({
            "tenant_id": row.tenant_id, "amount": row.amount_micros, "provider": row.provider,
            "external_id": row.external_id, "why": why,
        });
        watch::open(tx, act, PAYMENT_STUCK, row.id.as_str(), detail).await?;
    }
    let next =
        TopUpRow { asks: row.asks.saturating_add(1), ask_at: next_ask(act.now, row.asks), ..row.clone() };
    tx.update_top_up(&scope, &next).await.map(drop)
}

/// What a proven callback is about: by the provider's name, or by ours when the answer that brought theirs was lost.
pub async fn named(
    state: &AppState,
    external_id: &str,
    reference: Option<&str>,
    by_page: bool,
) -> Result<Option<TopUpRow>, StoreError> {
    let provider = state.payments.name();
    let mut tx = state.store.reader().await?;
    if let Some(row) = tx.top_up_by_external(provider, external_id).await? {
        return Ok(Some(row));
    }
    let Some(id) = reference.and_then(|reference| reference.parse().ok()) else { return Ok(None) };
    let row = tx.top_up_of_any_tenant(&id).await?.filter(|row| row.provider == provider);
    // A payment page's own payment has another name than the page; the page's name is the top-up's.
    let fits = |row: &TopUpRow| by_page == (row.cause == TopUpCause::Customer);
    let adopted = |row: TopUpRow| TopUpRow {
        external_id: row.external_id.clone().or_else(|| fits(&row).then(|| external_id.to_owned())),
        ..row
    };
    Ok(row.map(adopted))
}

/// Whether the same call may fare better later.
pub const fn passing(error: &PaymentFailed) -> bool {
    matches!(
        error,
        PaymentFailed::Provider(PaymentError::Unavailable(_))
            | PaymentFailed::Store(_)
            | PaymentFailed::Money(_)
    )
}
