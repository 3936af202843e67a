//! Automatic top-ups: below a threshold, by a method that the customer left with the provider; so many a day, and never on after
//! declines.

use serde_json::json;
use tarn_protocol::ids::{TenantId, TopUpId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::payments::{TopUpCause, TopUpRow, TopUpState};
use tarn_store::{StoreError, Tx};

use super::{PaymentFailed, next_ask};
use crate::app::act::Act;
use crate::app::money::notices::{self, NoticeKind};
use crate::state::AppState;
use crate::till::{Outcome, SavedCharge, Told};

/// Declines in a row after which a rule rests until the customer sets it again.
pub const DECLINES_MAX: u32 = 2;
/// Why a rule rests.
pub const DECLINED: &str = "declined";
const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;

/// The start of the UTC day of `at`.
pub fn day_of(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_micros() - at.as_micros().rem_euclid(DAY_MICROS))
}

/// Begins a tenant's automatic top-up if its rule wants one now. The caller charges it after the commit.
pub async fn begin(
    tx: &mut Tx,
    act: &Act,
    provider: &str,
    tenant: &TenantId,
) -> Result<Option<TopUpRow>, StoreError> {
    let scope = TenantScope::proven(tenant.clone());
    tx.lock_tenant(&scope).await?;
    let Some(rule) = tx.auto_top_up(&scope).await?.filter(|rule| rule.stopped_reason.is_none()) else {
        return Ok(None);
    };
    let method = tx.payment_method(&scope).await?.filter(|method| method.provider == provider);
    if method.is_none() || tx.wallet_available(&scope).await? >= rule.threshold_micros {
        return Ok(None);
    }
    let today = day_of(act.now);
    let had = tx.auto_top_ups_since(&scope, today).await?;
    if had >= u64::from(rule.per_day_max) {
        let crossing = format!("auto_top_up_limit {}", today.as_micros());
        let detail = json!({"per_day_max": rule.per_day_max});
        notices::tell(tx, act, &scope, NoticeKind::AutoTopUpLimit, &crossing, detail).await?;
        return Ok(None);
    }
    let id = TopUpId::new(act.now, act.bits());
    let row = TopUpRow {
        reference: format!("auto {id}"),
        id,
        tenant_id: tenant.clone(),
        provider: provider.to_owned(),
        external_id: None,
        payment_ref: None,
        amount_micros: rule.amount_micros,
        cause: TopUpCause::Auto,
        save_method: false,
        state: TopUpState::Pending,
        failure: None,
        pay_url: None,
        transfer_id: None,
        grant_id: None,
        created_by: None,
        created_at: act.now,
        asks: 0,
        ask_at: next_ask(act.now, 0),
        resolved_at: None,
    };
    Ok(tx.insert_top_up(&scope, &row).await?.then_some(row))
}

/// Charges the saved method, under the top-up's own name: a charge whose answer was lost is not made twice.
pub async fn charge(state: &AppState, row: &TopUpRow) -> Result<Option<Told>, PaymentFailed> {
    let scope = TenantScope::proven(row.tenant_id.clone());
    let method = state.store.reader().await?.payment_method(&scope).await?;
    let Some(method) = method.filter(|method| method.provider == row.provider) else {
        // Taken away meanwhile. Whether an earlier try was charged is still to be asked, if its name is known.
        return Ok((row.asks == 0).then(|| Told {
            external_id: row.id.to_string(),
            reference: Some(row.id.to_string()),
            pay_url: None,
            outcome: Outcome::Failed("the saved method of payment was removed".to_owned()),
        }));
    };
    let charge = SavedCharge {
        reference: row.id.to_string(),
        amount: row.amount_micros,
        customer_ref: method.customer_ref,
        method_ref: method.method_ref,
    };
    Ok(Some(state.payments.charge(&charge).await?))
}

/// An automatic top-up has ended: counts declines, and tells the customer when the rule rests.
pub(super) async fn ended(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    row: &TopUpRow,
) -> Result<(), StoreError> {
    let Some(rule) = tx.auto_top_up(scope).await? else { return Ok(()) };
    if row.state == TopUpState::Settled {
        tx.set_auto_top_up_declines(scope, 0, rule.stopped_reason.as_deref(), act.now).await?;
        return Ok(());
    }
    let declines = rule.declines.saturating_add(1);
    let stopped = (declines >= DECLINES_MAX).then_some(DECLINED);
    tx.set_auto_top_up_declines(scope, declines, stopped, act.now).await?;
    let detail = json!({
        "top_up_id": row.id, "amount": row.amount_micros, "failure": row.failure, "declines": declines,
        "stopped": stopped.is_some(),
    });
    let crossing = format!("auto_top_up_declined {}", row.id);
    notices::tell(tx, act, scope, NoticeKind::AutoTopUpDeclined, &crossing, detail).await.map(drop)
}
