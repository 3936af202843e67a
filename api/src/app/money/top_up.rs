//! Cash and credit into a wallet.

use tarn_billing::grant::Grant;
use tarn_billing::money::Micros;
use tarn_billing::transfer::InvalidTransfer;
use tarn_rows::TenantScope;
use tarn_store::{StoreError, Tx};

use crate::app::act::Act;
use crate::app::metering::purse::CorruptMoney;
use crate::app::metering::settle::{self, SettleFailed};
use crate::app::metering::{debts, exhaustion};
use crate::app::money::notices;
use crate::app::money::wallet::{self, External, FundingError};

pub const TOP_UP_MIN: Micros = Micros::new(1_000_000);
pub const TOP_UP_MAX: Micros = Micros::new(100_000_000_000);

#[derive(Debug, thiserror::Error)]
pub enum TopUpError {
    #[error(transparent)]
    Funding(#[from] FundingError),
    #[error(transparent)]
    Transfer(#[from] InvalidTransfer),
    #[error(transparent)]
    Runway(#[from] CorruptMoney),
    #[error(transparent)]
    Settle(#[from] SettleFailed),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Puts `grant` into the wallet, and tells the hosts that what runs is paid for longer. What happened to the money before is carried
/// out first: what has expired or ended stays so, and no second draws on money that came after it.
pub async fn put(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    grant: &Grant,
    external: Option<External>,
    memo: &str,
) -> Result<(), TopUpError> {
    settle::settle(tx, act, scope).await?;
    wallet::fund(tx, scope, grant, external, memo).await?;
    act.hit("fund.granted");
    debts::pay(tx, act, scope).await?;
    exhaustion::rearm(tx, act, scope).await?;
    if tx.open_segments_of_tenant(scope).await?.is_empty() {
        notices::arm(tx, scope).await?;
    }
    Ok(())
}
