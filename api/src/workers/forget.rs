//! Deletes what nobody can use any more: refresh tokens that have expired.
//!
//! An expired token refreshes nothing, and the newest token of a session is what its access tokens are checked against; so a token
//! goes only when every access token that was issued beside it has ended too. What was found out by a used token's reuse (that its
//! session was stolen) needs the token within its own life, which it keeps.

use tarn_protocol::units::Timestamp;

use super::claim::Claim;
use super::{Report, WorkError};
use crate::state::AppState;

/// Rows deleted in one tick: what one commit holds the database for.
const TOKENS_MAX: u32 = 1000;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let before = now.plus_seconds(-state.config.sessions.access_token_seconds);
    let deleted = state.store.write(move |tx| {
        Box::pin(async move {
            claim.prove(tx).await?;
            let deleted = tx.delete_expired_refresh_tokens(before, TOKENS_MAX).await?;
            Ok::<_, WorkError>(u32::try_from(deleted).unwrap_or(u32::MAX))
        })
    });
    let deleted = deleted.await?;
    Ok(Report { seen: deleted, changed: deleted, ..Report::default() })
}
