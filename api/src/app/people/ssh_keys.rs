//! SSH keys of a tenant.

use tarn_protocol::ids::SshKeyId;
use tarn_rows::accounts::SshKeyRow;
use tarn_rows::{Page, TenantScope};
use tarn_store::StoreError;

use crate::app::people::ssh_key::SshPublicKey;
use crate::state::AppState;

pub const SSH_KEYS_MAX: u32 = 100;

#[derive(Debug, thiserror::Error)]
pub enum SshKeyError {
    #[error("this tenant has this key")]
    Known,
    #[error("a tenant has {SSH_KEYS_MAX} SSH keys at most")]
    TooMany,
    #[error("no such key")]
    Unknown,
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub async fn add(
    state: &AppState,
    scope: &TenantScope,
    name: String,
    key: &SshPublicKey,
) -> Result<SshKeyRow, SshKeyError> {
    let now = state.clock.now();
    let row = SshKeyRow {
        id: SshKeyId::new(now, state.entropy.bits()),
        tenant_id: scope.tenant_id().clone(),
        name,
        public_key: key.as_str().to_owned(),
        fingerprint: key.fingerprint().to_owned(),
        created_at: now,
    };
    let (scope, writing) = (scope.clone(), row.clone());
    let written = state.store.write(move |tx| {
        Box::pin(async move {
            tx.lock_tenant(&scope).await?;
            let keys = tx.ssh_keys(&scope, Page::first(SSH_KEYS_MAX)).await?;
            if keys.iter().any(|key| key.fingerprint == writing.fingerprint) {
                return Err(SshKeyError::Known);
            }
            if keys.len() >= SSH_KEYS_MAX as usize {
                return Err(SshKeyError::TooMany);
            }
            tx.insert_ssh_key(&scope, &writing).await?;
            Ok(())
        })
    });
    written.await?;
    Ok(row)
}

pub async fn delete(state: &AppState, scope: &TenantScope, id: SshKeyId) -> Result<(), SshKeyError> {
    let scope = scope.clone();
    let deleted = state.store.write(move |tx| Box::pin(async move { tx.delete_ssh_key(&scope, &id).await }));
    if deleted.await? { Ok(()) } else { Err(SshKeyError::Unknown) }
}
