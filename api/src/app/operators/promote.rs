//! Making an operator: of someone who has signed up, or of someone new.

use serde_json::json;
use tarn_store::StoreError;

use super::log::{self, By, Deed};
use crate::app::people::email::{Email, NewPassword};
use crate::app::people::sign_up::{self, SignUp, SignUpError};
use crate::state::AppState;

#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    #[error("nobody has signed up with this email; give a password to sign them up")]
    UnknownEmail,
    #[error(transparent)]
    SignUp(#[from] SignUpError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Promotes `email`; signs them up first if they are new and there is a password to give them.
pub async fn promote(
    state: &AppState,
    email: Email,
    password: Option<NewPassword>,
) -> Result<(), PromoteError> {
    let known = state.store.reader().await?.user_by_email(email.as_str()).await?;
    let user_id = match (known, password) {
        (Some(user), _) => user.id,
        (None, Some(password)) => {
            let tenant_name = email.as_str().to_owned();
            sign_up::sign_up(state, SignUp { email, password, tenant_name }).await?.member.user_id
        }
        (None, None) => return Err(PromoteError::UnknownEmail),
    };
    let now = state.clock.now();
    let promoted = state.store.write(move |tx| {
        Box::pin(async move {
            tx.set_operator(&user_id, true).await?;
            log::record(tx, &By::command_line(), now, Deed::PromoteOperator, (&user_id, json!({}))).await
        })
    });
    promoted.await?;
    state.auth.proofs.forget();
    Ok(())
}
