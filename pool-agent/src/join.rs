//! How a host gets its identity: once, with a single-use token, and never again.
//!
//! The nonce is chosen and stored before the first try, so a join whose answer was lost gives the same host when it is tried
//! again. The credential lies in a file of its own, mode 0600, and no error or log line shows it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tarn_protocol::control::{JoinRequest, JoinResponse};
use tarn_protocol::ids::HostId;

use crate::backoff::{Backoff, entropy};
use crate::clock::HostClock;
use crate::control_plane::{CallError, ControlPlane};
use crate::durable_file::{self, DurableError};
use crate::rejoin;
use crate::state_dir::StateDir;

/// A secret that does not print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    pub host_id: HostId,
    pub credential: Secret,
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("this host has not joined yet and no join token was given")]
    NoToken,
    #[error("the control plane refused the join token with status {status}: {detail}")]
    Refused { status: u16, detail: String },
    #[error("no randomness for the join nonce")]
    Entropy,
    #[error(transparent)]
    Durable(#[from] DurableError),
}

/// The stored identity, or a new one. Waits for the control plane as long as it takes.
pub async fn identity(
    state: &StateDir,
    clock: &HostClock,
    control_plane: &ControlPlane,
    token: Option<Secret>,
    name: &str,
) -> Result<Identity, JoinError> {
    let path = state.file("identity.json");
    if let Some(identity) = durable_file::read_json_twice(&path, rejoin::REMEDY)? {
        return Ok(identity);
    }
    let request = JoinRequest {
        token: token.ok_or(JoinError::NoToken)?.expose().to_owned(),
        name: name.to_owned(),
        boot_id: clock.boot_id().clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        nonce: nonce(state)?,
    };
    let response = call(control_plane, &request).await?;
    let identity = Identity { host_id: response.host_id, credential: Secret(response.credential) };
    durable_file::replace_json_twice(&path, &identity)?;
    tracing::info!(host = %identity.host_id, "joined");
    Ok(identity)
}

async fn call(control_plane: &ControlPlane, request: &JoinRequest) -> Result<JoinResponse, JoinError> {
    let mut backoff = Backoff::new(200, 10_000);
    loop {
        match control_plane.join(request).await {
            Ok(response) => return Ok(response),
            Err(CallError::Refused { status, detail }) if status < 500 && status != 429 => {
                return Err(JoinError::Refused { status, detail });
            }
            Err(CallError::Unauthorized) => {
                return Err(JoinError::Refused { status: 401, detail: "unknown or used token".to_owned() });
            }
            Err(error) => {
                let wait = backoff.failed(entropy());
                tracing::warn!(%error, wait_ms = wait.as_millis(), "cannot join yet");
                tokio::time::sleep(wait).await;
            }
        }
    }
}

fn nonce(state: &StateDir) -> Result<String, JoinError> {
    let path = state.file("join_nonce.json");
    match durable_file::read_json(&path) {
        Ok(Some(nonce)) => return Ok(nonce),
        // Not joined yet: a nonce that cannot be read was at most used for an answer that was lost.
        Ok(None) | Err(DurableError::Parse { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| JoinError::Entropy)?;
    let nonce = format!("{:032x}", u128::from_ne_bytes(bytes));
    durable_file::replace_json(&path, &nonce)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nonce_is_kept_and_secrets_do_not_print() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let first = nonce(&state).unwrap();
        assert_eq!(nonce(&state).unwrap(), first);
        assert_eq!(first.len(), 32);
        assert!(!format!("{:?}", Secret::new("canary")).contains("canary"));
    }
}
