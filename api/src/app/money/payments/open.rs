//! Asking for a payment: the intent is stored, then the provider opens it under the intent's own name.

use tarn_billing::money::Micros;
use tarn_protocol::ids::TopUpId;
use tarn_rows::TenantScope;
use tarn_rows::payments::{TopUpCause, TopUpRow, TopUpState};
use tarn_store::StoreError;

use super::{PaymentFailed, next_ask};
use crate::state::AppState;
use crate::till::{Checkout, Told};

/// A customer's wish to pay. `reference` follows from the call, so that a retry finds the same top-up.
#[derive(Debug, Clone)]
pub struct Order {
    pub reference: String,
    pub amount: Micros,
    pub save_method: bool,
    pub by: String,
}

/// The top-up of this order, new or from an earlier try, and what the provider says of it.
pub async fn open(
    state: &AppState,
    scope: &TenantScope,
    order: Order,
) -> Result<(TopUpRow, Option<Told>), PaymentFailed> {
    let (row, customer_ref) = intend(state, scope, order).await?;
    if row.state != TopUpState::Pending {
        return Ok((row, None));
    }
    let checkout = Checkout {
        reference: row.id.to_string(),
        amount: row.amount_micros,
        save_method: row.save_method,
        customer_ref,
    };
    let told = state.payments.open(&checkout).await?;
    Ok((row, Some(told)))
}

async fn intend(
    state: &AppState,
    scope: &TenantScope,
    order: Order,
) -> Result<(TopUpRow, Option<String>), StoreError> {
    let now = state.clock.now();
    let provider = state.payments.name().to_owned();
    let row = TopUpRow {
        id: TopUpId::new(now, state.entropy.bits()),
        tenant_id: scope.tenant_id().clone(),
        reference: order.reference,
        provider: provider.clone(),
        external_id: None,
        payment_ref: None,
        amount_micros: order.amount,
        cause: TopUpCause::Customer,
        save_method: order.save_method,
        state: TopUpState::Pending,
        failure: None,
        pay_url: None,
        transfer_id: None,
        grant_id: None,
        created_by: Some(order.by),
        created_at: now,
        asks: 0,
        ask_at: next_ask(now, 0),
        resolved_at: None,
    };
    let scope = scope.clone();
    let stored = state.store.write(move |tx| {
        Box::pin(async move {
            let method = tx.payment_method(&scope).await?.filter(|method| method.provider == provider);
            let customer_ref = method.map(|method| method.customer_ref);
            if tx.insert_top_up(&scope, &row).await? {
                return Ok((row, customer_ref));
            }
            match tx.top_up_by_reference(&scope, &row.reference).await? {
                Some(earlier) => Ok((earlier, customer_ref)),
                None => Err(tx.stale()),
            }
        })
    });
    stored.await
}
