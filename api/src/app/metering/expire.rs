//! Credit that has expired goes back to where it came from, once everything proven by now has drawn on it.

use tarn_billing::transfer::InvalidTransfer;
use tarn_rows::TenantScope;
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_store::{StoreError, Tx};

use super::purse::CorruptMoney;
use super::stored;
use crate::app::act::Act;

#[derive(Debug, thiserror::Error)]
pub enum ExpireFailed {
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error("an expired grant cannot be taken back")]
    Transfer(#[from] InvalidTransfer),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes back what is left of a tenant's expired grants; how many there were. The caller has settled the tenant in this
/// transaction. What a pending hold keeps on the same account stays until the hold is resolved.
pub async fn take_back(tx: &mut Tx, act: &mut Act, scope: &TenantScope) -> Result<u32, ExpireFailed> {
    let mut taken = 0;
    for row in tx.grants_left(scope).await? {
        let grant = stored::grant(&row).map_err(CorruptMoney::Row)?;
        let Some((transfer, spent)) = grant.expiry(act.now)? else { continue };
        let transfer = TransferRow { memo: "credit expired".to_owned(), ..stored::transfer(&transfer) };
        match tx.post_transfer(&transfer).await? {
            Posting::Posted => {}
            Posting::Insufficient => continue,
            // Taken back once already: nothing that a tenant's settlement should wait for.
            refused @ (Posting::Replayed | Posting::Conflicting) => {
                tracing::error!(grant_id = %row.id, ?refused, "expired credit was taken back before and is here again");
                continue;
            }
        }
        if !tx.set_grant_remaining(scope, &row.id, row.remaining_micros, spent.remaining()).await? {
            return Err(tx.stale().into());
        }
        taken += 1;
    }
    Ok(taken)
}
