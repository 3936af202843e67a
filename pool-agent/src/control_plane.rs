//! The calls to the control plane. The agent only dials out.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tarn_protocol::control::{Desired, JoinRequest, JoinResponse, Report, ReportAccepted};

use crate::join::Secret;

#[derive(Debug, Clone)]
pub struct ControlPlane {
    client: reqwest::Client,
    base: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot set up an HTTP client: {detail}")]
    Client { detail: String },
    #[error("{address:?} is no address of a control plane: expected http://<host>:<port>")]
    Address { address: String },
    #[error("the control plane cannot be reached: {detail}")]
    Unreachable { detail: String },
    #[error("the control plane does not accept this host's credential")]
    Unauthorized,
    #[error("the control plane answered {status}: {detail}")]
    Refused { status: u16, detail: String },
    #[error("the control plane's answer cannot be read: {detail}")]
    Malformed { detail: String },
}

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Beyond the wait that a long poll asks for.
const POLL_SLACK: Duration = Duration::from_secs(10);
const DETAIL_CHARS: usize = 300;

impl ControlPlane {
    pub fn new(base: &str) -> Result<Self, CallError> {
        let whole =
            reqwest::Url::parse(base).is_ok_and(|url| url.has_host() && url.scheme().starts_with("http"));
        if !whole {
            return Err(CallError::Address { address: base.to_owned() });
        }
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .build()
            .map_err(|error| CallError::Client { detail: error.without_url().to_string() })?;
        Ok(Self { client, base: base.trim_end_matches('/').to_owned() })
    }

    pub async fn join(&self, request: &JoinRequest) -> Result<JoinResponse, CallError> {
        let url = format!("{}/agent/v1/join", self.base);
        answer(self.client.post(url).timeout(CALL_TIMEOUT).json(request)).await
    }

    pub async fn report(&self, credential: &Secret, report: &Report) -> Result<ReportAccepted, CallError> {
        let url = format!("{}/agent/v1/report", self.base);
        let request = self.client.post(url).timeout(CALL_TIMEOUT).bearer_auth(credential.expose());
        answer(request.json(report)).await
    }

    /// Returns once the revision is above `after`, or with whatever it is after `wait`.
    pub async fn desired(
        &self,
        credential: &Secret,
        after: i64,
        wait: Duration,
    ) -> Result<Desired, CallError> {
        let url = format!("{}/agent/v1/desired?after={after}&wait_seconds={}", self.base, wait.as_secs());
        answer(self.client.get(url).timeout(wait + POLL_SLACK).bearer_auth(credential.expose())).await
    }
}

async fn answer<T: DeserializeOwned>(request: reqwest::RequestBuilder) -> Result<T, CallError> {
    let unreachable = |error: reqwest::Error| CallError::Unreachable { detail: chain(&error.without_url()) };
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = response.bytes().await.map_err(unreachable)?;
    if status == reqwest::StatusCode::UNAUTHORIZED {
        return Err(CallError::Unauthorized);
    }
    if !status.is_success() {
        let detail = String::from_utf8_lossy(&body).chars().take(DETAIL_CHARS).collect();
        return Err(CallError::Refused { status: status.as_u16(), detail });
    }
    serde_json::from_slice(&body).map_err(|error| CallError::Malformed { detail: error.to_string() })
}

/// An HTTP client's own message says "error sending request"; the cause below it says why.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
