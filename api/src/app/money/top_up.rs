//! Cash and credit into a wallet.

use tarn_billing::grant::{Grant, GrantKind, GrantTerms, InvalidGrant};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{GrantId, TenantId};
use tarn_rows::TenantScope;
use tarn_store::{StoreError, Tx};

use crate::app::act::Act;
use crate::app::metering::exhaustion;
use crate::app::metering::purse::CorruptMoney;
use crate::app::money::payments::Payment;
use crate::app::money::wallet::{self, FundingError};
use crate::state::AppState;

pub const TOP_UP_MIN: Micros = Micros::new(1_000_000);
pub const TOP_UP_MAX: Micros = Micros::new(100_000_000_000);

#[derive(Debug, thiserror::Error)]
pub enum TopUpError {
    #[error(transparent)]
    Funding(#[from] FundingError),
    #[error(transparent)]
    Runway(#[from] CorruptMoney),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The grant of a confirmed payment.
pub fn cash(state: &AppState, tenant_id: TenantId, payment: &Payment) -> Result<Grant, InvalidGrant> {
    let now = state.clock.now();
    Grant::new(GrantTerms {
        id: GrantId::new(now, state.entropy.bits()),
        tenant_id,
        kind: GrantKind::Cash,
        priority: 0,
        amount: payment.amount,
        granted_at: now,
        expires_at: None,
    })
}

/// Puts `grant` into the wallet, and tells the hosts that what runs is paid for longer.
pub async fn put(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    grant: &Grant,
    payment: Option<Payment>,
    memo: &str,
) -> Result<(), TopUpError> {
    tx.lock_tenant(scope).await?;
    wallet::fund(tx, scope, grant, payment.map(|payment| payment.external), memo).await?;
    act.hit("fund.granted");
    exhaustion::rearm(tx, act, scope).await?;
    Ok(())
}
