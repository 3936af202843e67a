//! Credit that has expired goes back to where it came from, once everything proven before its expiry has drawn on it.

use tarn_billing::grant::Grant;
use tarn_billing::money::Micros;
use tarn_billing::transfer::Transfer;
use tarn_rows::TenantScope;
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_store::{StoreError, Tx};

use super::stored;

/// Takes back what is left of an expired grant. `false`: a pending hold keeps it on the account until the hold is resolved.
pub async fn take_back(
    tx: &mut Tx,
    scope: &TenantScope,
    before: &Grant,
    transfer: &Transfer,
) -> Result<bool, StoreError> {
    let row = TransferRow { memo: "credit expired".to_owned(), ..stored::transfer(transfer) };
    match tx.post_transfer(&row).await? {
        Posting::Posted => {}
        Posting::Insufficient => return Ok(false),
        // Taken back once already: nothing that a tenant's settlement should wait for.
        refused @ (Posting::Replayed | Posting::Conflicting) => {
            tracing::error!(grant_id = %before.id(), ?refused, "expired credit was taken back before and is here again");
            return Ok(false);
        }
    }
    if tx.set_grant_remaining(scope, before.id(), before.remaining(), Micros::ZERO).await? {
        Ok(true)
    } else {
        Err(tx.stale())
    }
}
