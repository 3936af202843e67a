//! Opening wallets and putting money into them: a grant and the transfer that fills it, together.

use tarn_billing::account::Account;
use tarn_billing::grant::Grant;
use tarn_billing::money::Currency;
use tarn_billing::transfer::{InvalidTransfer, Transfer};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::ledger::{AccountRow, Posting, TransferRow};
use tarn_rows::wallet::GrantRow;
use tarn_store::{StoreError, Tx};

#[derive(Debug, thiserror::Error)]
pub enum FundingError {
    #[error(transparent)]
    Transfer(#[from] InvalidTransfer),
    #[error("the ledger refused to fill a grant: {0:?}")]
    Refused(Posting),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A payment outside Tarn that a transfer stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    pub provider: String,
    pub id: String,
}

/// The accounts that belong to nobody; there from the first start on.
pub async fn open_system_accounts(tx: &mut Tx, at: Timestamp) -> Result<(), StoreError> {
    for account in Account::all_of_system() {
        tx.ensure_account(&account_row(&account, at)).await?;
    }
    Ok(())
}

/// A tenant's accounts, empty.
pub async fn open(tx: &mut Tx, scope: &TenantScope, at: Timestamp) -> Result<(), StoreError> {
    for account in Account::all_of(scope.tenant_id()) {
        tx.ensure_account(&account_row(&account, at)).await?;
    }
    Ok(())
}

fn account_row(account: &Account, at: Timestamp) -> AccountRow {
    AccountRow {
        id: account.id().clone(),
        tenant_id: account.tenant_id().cloned(),
        kind: account.kind(),
        currency: Currency::Cny,
        created_at: at,
    }
}

/// Gives `grant`; `false` if it was given before.
pub async fn fund(
    tx: &mut Tx,
    scope: &TenantScope,
    grant: &Grant,
    external: Option<External>,
    memo: &str,
) -> Result<bool, FundingError> {
    let transfer = transfer_row(&grant.funding()?, scope, external, memo);
    if !tx.insert_grant(scope, &grant_row(grant)).await? {
        return Ok(false);
    }
    match tx.post_transfer(&transfer).await? {
        Posting::Posted | Posting::Replayed => Ok(true),
        refused @ (Posting::Insufficient | Posting::Conflicting) => Err(FundingError::Refused(refused)),
    }
}

fn transfer_row(
    transfer: &Transfer,
    scope: &TenantScope,
    external: Option<External>,
    memo: &str,
) -> TransferRow {
    let (external_provider, external_id) = external.map(|external| (external.provider, external.id)).unzip();
    TransferRow {
        id: transfer.id().clone(),
        kind: transfer.kind(),
        debit_account_id: transfer.debit().id().clone(),
        credit_account_id: transfer.credit().id().clone(),
        amount_micros: transfer.amount(),
        tenant_id: Some(scope.tenant_id().clone()),
        segment_id: transfer.subject().segment_id.clone(),
        grant_id: transfer.subject().grant_id.clone(),
        reverses: transfer.subject().reverses.clone(),
        external_provider,
        external_id,
        memo: memo.to_owned(),
        created_at: transfer.at(),
    }
}

fn grant_row(grant: &Grant) -> GrantRow {
    let terms = grant.terms();
    GrantRow {
        id: terms.id.clone(),
        tenant_id: terms.tenant_id.clone(),
        kind: terms.kind,
        priority: terms.priority,
        granted_micros: terms.amount,
        remaining_micros: grant.remaining(),
        expires_at: terms.expires_at,
        created_at: terms.granted_at,
    }
}
