//! Tenants of a person: a new one, and its name.

use tarn_protocol::ids::UserId;
use tarn_rows::TenantScope;
use tarn_rows::accounts::TenantRow;
use tarn_store::StoreError;

use crate::app::money::wallet::{self, FundingError};
use crate::app::people::sign_up::{new_tenant, owner};
use crate::state::AppState;

/// Tenants that one person may belong to; keeps one login from opening wallets without end.
pub const TENANTS_PER_PERSON_MAX: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum CreateTenantError {
    #[error("this person belongs to {TENANTS_PER_PERSON_MAX} tenants already")]
    TooMany,
    #[error(transparent)]
    Funding(#[from] FundingError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A further tenant, owned by `user_id`. The trial was given at sign-up; this wallet starts empty.
pub async fn create_tenant(
    state: &AppState,
    user_id: UserId,
    name: String,
) -> Result<TenantRow, CreateTenantError> {
    let tenant = new_tenant(state, name, state.clock.now());
    let scope = TenantScope::proven(tenant.id.clone());
    let made = tenant.clone();
    let written = state.store.write(move |tx| {
        Box::pin(async move {
            if tx.memberships_of_user(&user_id).await?.len() >= TENANTS_PER_PERSON_MAX {
                return Err(CreateTenantError::TooMany);
            }
            tx.insert_tenant(&tenant).await?;
            tx.insert_membership(&scope, &owner(&tenant, user_id)).await?;
            wallet::open(tx, &scope, tenant.created_at).await?;
            Ok(())
        })
    });
    written.await?;
    Ok(made)
}
