//! A host joins: a single-use token becomes a host and a credential.
//!
//! A join whose answer was lost is tried again with the same nonce and must not make a second host. Only the credential's digest is
//! stored, so the repeat gets a new credential for the same host; the old one ends with it.

use tarn_protocol::control::{JoinRequest, JoinResponse};
use tarn_protocol::ids::HostId;
use tarn_protocol::units::{Generation, Sequence, Timestamp};
use tarn_rows::hosts::{HostRow, JoinTokenRow};
use tarn_rows::secrets::SecretDigest;
use tarn_store::{StoreError, Tx};

use crate::auth::secret;
use crate::state::AppState;

const CREDENTIAL_PREFIX: &str = "tarn_host_";
/// 30 base62 characters: 178 bits.
const SECRET_CHARS: usize = 30;
const NAME_CHARS_MAX: usize = 100;

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Unknown, expired or used: one answer for all.
    #[error("the join token is not valid")]
    InvalidToken,
    #[error("a host's name has 1 to {NAME_CHARS_MAX} characters, a nonce and a boot id at least one")]
    Malformed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub async fn join(state: &AppState, request: JoinRequest) -> Result<JoinResponse, JoinError> {
    let named = (1..=NAME_CHARS_MAX).contains(&request.name.chars().count());
    if !named || request.nonce.is_empty() || request.boot_id.as_str().is_empty() {
        return Err(JoinError::Malformed);
    }
    let now = state.clock.now();
    let credential = format!("{CREDENTIAL_PREFIX}{}", secret::base62(state.entropy.as_ref(), SECRET_CHARS));
    let host = HostRow {
        id: HostId::new(now, state.entropy.bits()),
        name: request.name,
        region: String::new(),
        credential_sha256: secret::digest(&credential),
        epoch: Generation::new(1),
        boot_id: None,
        report_seq: Sequence::new(0),
        reported_at: None,
        reported_mono_ms: None,
        agent_version: request.agent_version,
        driver_version: None,
        inventory: None,
        cordoned: false,
        unreachable_since: None,
        quarantine_reason: None,
        desired_revision: 0,
        created_at: now,
    };
    let digest: SecretDigest = secret::digest(&request.token);
    let nonce = request.nonce;
    let joined = state
        .store
        .write(move |tx| {
            let (host, digest, nonce) = (host.clone(), digest.clone(), nonce.clone());
            Box::pin(async move {
                let Some(token) = tx.join_token(&digest).await? else { return Ok(None) };
                redeem(tx, &token, host, &nonce, now).await
            })
        })
        .await?;
    let host_id = joined.ok_or(JoinError::InvalidToken)?;
    Ok(JoinResponse { host_id, credential })
}

/// The host of this token, made now or by an earlier try with the same nonce.
async fn redeem(
    tx: &mut Tx,
    token: &JoinTokenRow,
    host: HostRow,
    nonce: &str,
    now: Timestamp,
) -> Result<Option<HostId>, StoreError> {
    match (&token.used_by_host, &token.used_nonce) {
        (Some(earlier), Some(used)) if used == nonce => {
            let again = HostRow { id: earlier.clone(), ..host };
            tx.rejoin_host(&again).await?;
            Ok(Some(again.id))
        }
        (Some(_), _) => Ok(None),
        (None, _) if token.expires_at <= now => Ok(None),
        (None, _) => {
            let host = HostRow { region: token.region.clone(), ..host };
            tx.insert_host(&host).await?;
            // Lost to a racing join of the same token: what was inserted must go.
            if !tx.consume_join_token(&token.id, &host.id, nonce, now).await? {
                return Err(tx.stale());
            }
            Ok(Some(host.id))
        }
    }
}
