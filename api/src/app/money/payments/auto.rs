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
use crate::till::{FINDABLE_SECONDS, Outcome, PaymentError, REPEATABLE_SECONDS, SavedCharge, Told};

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

/// Charges the saved method under the top-up's own name, or finds what became of an earlier try. `None`: that is not known yet.
///
/// The provider remembers the name for a day ([`REPEATABLE_SECONDS`]) and only with the method that was charged first. Outside of that,
/// and once the rule is lifted or wants less, nothing is charged any more: the provider's record says whether a try arrived, and if none
/// did the top-up is over. Its rule then begins another, under another name.
pub async fn charge(state: &AppState, row: &TopUpRow) -> Result<Option<Told>, PaymentFailed> {
    let scope = TenantScope::proven(row.tenant_id.clone());
    let age = state.clock.now().micros_since(row.created_at);
    let method = state.store.reader().await?.payment_method(&scope).await?;
    let method = method.filter(|method| method.provider == row.provider);
    // What the customer has taken back meanwhile is not charged on the strength of an older wish.
    let rule = state.store.reader().await?.auto_top_up(&scope).await?;
    let wanted = rule.is_some_and(|rule| rule.amount_micros >= row.amount_micros);
    if let Some(method) = method.as_ref().filter(|_| wanted && age < REPEATABLE_SECONDS * 1_000_000) {
        let charge = SavedCharge {
            reference: row.id.to_string(),
            amount: row.amount_micros,
            customer_ref: method.customer_ref.clone(),
            method_ref: method.method_ref.clone(),
        };
        return match state.payments.charge(&charge).await {
            Ok(told) => Ok(Some(told)),
            // Also said when an earlier try was made with another method: then that one counts.
            Err(refused @ PaymentError::Refused(_)) => match state.payments.find(&charge.reference).await? {
                Some(told) => Ok(Some(told)),
                None => Err(refused.into()),
            },
            Err(error) => Err(error.into()),
        };
    }
    let found = state.payments.find(row.id.as_str()).await?;
    // The last try may have been made up to the last moment, and the record lags.
    if found.is_some() || age < (REPEATABLE_SECONDS + FINDABLE_SECONDS) * 1_000_000 {
        return Ok(found);
    }
    let outcome = match method {
        Some(_) => Outcome::Expired,
        None => Outcome::Failed("the saved method of payment was removed".to_owned()),
    };
    let name = row.id.to_string();
    Ok(Some(Told { external_id: name.clone(), reference: Some(name), pay_url: None, outcome }))
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
    // It never arrived: nobody has declined anything.
    if row.state == TopUpState::Expired {
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
