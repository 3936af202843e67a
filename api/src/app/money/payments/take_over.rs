//! What the provider says of a payment becomes the record, once.

use serde_json::json;
use tarn_billing::grant::{self, Grant, GrantKind, GrantTerms};
use tarn_protocol::ids::TopUpId;
use tarn_rows::TenantScope;
use tarn_rows::payments::{PaymentMethodRow, TopUpCause, TopUpRow, TopUpState};
use tarn_store::{StoreError, Tx};

use super::watch::{self, PAYMENT_STUCK};
use super::{PaymentFailed, auto, next_ask};
use crate::app::act::Act;
use crate::app::money::top_up;
use crate::app::money::wallet::External;
use crate::till::{Outcome, Paid, Told};

/// Money came for a top-up that had failed or expired: a person must look.
pub const PAID_TOO_LATE: &str = "payment_after_the_end";
/// The provider collected another amount than was asked for; what it collected was credited.
pub const AMOUNT_DIFFERS: &str = "payment_amount_differs";

/// Takes over what the provider said of top-up `id`; the row as it is then. Told twice, the second changes nothing.
pub async fn take_over(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    id: &TopUpId,
    told: &Told,
) -> Result<TopUpRow, PaymentFailed> {
    tx.lock_tenant(scope).await?;
    let row = tx.top_up(scope, id).await?.ok_or_else(|| PaymentFailed::NoSuchTopUp(id.clone()))?;
    if let Some(named) = told.reference.as_ref().filter(|named| named.as_str() != id.as_str()) {
        return Err(PaymentFailed::OtherReference { top_up: id.clone(), named: named.clone() });
    }
    if row.state != TopUpState::Pending {
        if matches!(told.outcome, Outcome::Paid(_)) && row.state != TopUpState::Settled {
            raise(tx, act, PAID_TOO_LATE, &row, told).await?;
        }
        return Ok(row);
    }
    let asked = TopUpRow {
        external_id: Some(told.external_id.clone()),
        pay_url: told.pay_url.clone().or_else(|| row.pay_url.clone()),
        asks: row.asks.saturating_add(1),
        ask_at: next_ask(act.now, row.asks),
        ..row
    };
    let ended = |state, failure| TopUpRow {
        state,
        failure,
        pay_url: None,
        resolved_at: Some(act.now),
        ..asked.clone()
    };
    let next = match &told.outcome {
        Outcome::Open => asked,
        Outcome::Failed(words) => ended(TopUpState::Failed, Some(words.clone())),
        Outcome::Expired => ended(TopUpState::Expired, None),
        Outcome::Paid(paid) => {
            let settled = ended(TopUpState::Settled, None);
            credit(tx, act, scope, settled, paid, told).await?
        }
    };
    if !tx.update_top_up(scope, &next).await? {
        return Err(tx.stale().into());
    }
    if next.state != TopUpState::Pending {
        tx.clear_alert(PAYMENT_STUCK, id.as_str(), act.now).await?;
    }
    if next.cause == TopUpCause::Auto && next.state != TopUpState::Pending {
        auto::ended(tx, act, scope, &next).await?;
    }
    Ok(next)
}

/// Puts what was collected into the wallet.
async fn credit(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    row: TopUpRow,
    paid: &Paid,
    told: &Told,
) -> Result<TopUpRow, PaymentFailed> {
    if paid.amount != row.amount_micros {
        raise(tx, act, AMOUNT_DIFFERS, &row, told).await?;
    }
    let grant = Grant::new(GrantTerms {
        id: grant::cash_id(row.id.as_str(), row.created_at),
        tenant_id: scope.tenant_id().clone(),
        kind: GrantKind::Cash,
        priority: 0,
        amount: paid.amount,
        granted_at: act.now,
        expires_at: None,
    })?;
    let external = External { provider: row.provider.clone(), id: told.external_id.clone() };
    let memo = if row.cause == TopUpCause::Auto { "automatic top-up" } else { "top-up" };
    top_up::put(tx, act, scope, &grant, Some(external), memo).await?;
    if let Some(method) = paid.method.as_ref().filter(|_| row.save_method) {
        let method = PaymentMethodRow {
            tenant_id: scope.tenant_id().clone(),
            provider: row.provider.clone(),
            customer_ref: method.customer_ref.clone(),
            method_ref: method.method_ref.clone(),
            label: method.label.clone(),
            created_at: act.now,
        };
        tx.put_payment_method(scope, &method).await?;
    }
    let transfer = grant.funding().map_err(|error| PaymentFailed::TopUp(error.into()))?;
    Ok(TopUpRow {
        amount_micros: row.amount_micros,
        payment_ref: Some(paid.payment_ref.clone()),
        grant_id: Some(grant.id().clone()),
        transfer_id: Some(transfer.id().clone()),
        ..row
    })
}

async fn raise(tx: &mut Tx, act: &Act, kind: &str, row: &TopUpRow, told: &Told) -> Result<(), StoreError> {
    let collected = match &told.outcome {
        Outcome::Paid(paid) => paid.amount.to_string(),
        _ => String::new(),
    };
    let detail = json!({
        "tenant_id": row.tenant_id, "state": row.state, "wanted": row.amount_micros, "collected": collected,
        "provider": row.provider, "external_id": told.external_id,
    });
    watch::open(tx, act, kind, row.id.as_str(), detail).await
}
