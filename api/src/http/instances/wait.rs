//! Waiting for a state, instead of polling for it.

use std::time::Duration;

use axum::extract::State;
use serde::Deserialize;
use tarn_protocol::ids::InstanceId;
use tarn_provisioner::lifecycle;
use utoipa::IntoParams;

use super::read::document;
use super::view::InstanceDocument;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::path::Path;
use crate::http::extract::query::Query;
use crate::state::AppState;
use crate::wakeups::Topic;

const TIMEOUT_SECONDS_DEFAULT: u64 = 30;
const TIMEOUT_SECONDS_MAX: u64 = 60;
/// How often the record is read again without being woken: another replica's change is seen only so.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// The state to wait for.
    #[param(example = "running", required = true, value_type = String)]
    state: Option<String>,
    /// Seconds, at most 60.
    #[param(minimum = 0, maximum = 60, default = 30)]
    timeout: Option<u64>,
}

/// Wait until an instance is in a state
///
/// Answers as soon as it is; 409 when it ended so that it cannot get there by itself, 408 when the time is over.
#[utoipa::path(get, path = "/v1/instances/{instance_id}/wait", tag = "instances", operation_id = "wait_instance",
    params(("instance_id" = String, Path), Wanted), security(("bearer" = []), ("api_key" = ["instances:read"])),
    responses((status = OK, description = "The instance, in that state", body = InstanceDocument)))]
pub(super) async fn wait_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesRead>,
    Path(id): Path<InstanceId>,
    Query(wanted): Query<Wanted>,
) -> ApiResult<Json<InstanceDocument>> {
    document(&state, caller.scope(), id.clone()).await?;
    let unknown = || ApiError::invalid("?state", "name a state to wait for");
    let goal: lifecycle::State =
        wanted.state.as_deref().and_then(|name| name.parse().ok()).ok_or_else(unknown)?;
    let seconds = wanted.timeout.unwrap_or(TIMEOUT_SECONDS_DEFAULT).min(TIMEOUT_SECONDS_MAX);
    let reached = reach(&state, &caller, &id, goal);
    if let Ok(done) = tokio::time::timeout(Duration::from_secs(seconds), reached).await {
        return done.map(Json);
    }
    let now = document(&state, caller.scope(), id).await?;
    Err(ApiError::new(Code::WaitTimedOut, format!("it is {} after {seconds} s", now.state)))
}

async fn reach(
    state: &AppState,
    caller: &TenantCaller<may::InstancesRead>,
    id: &InstanceId,
    goal: lifecycle::State,
) -> ApiResult<InstanceDocument> {
    loop {
        let mut woken = state.wakeups.subscribe(Topic::Instance(id.clone()));
        let found = document(state, caller.scope(), id.clone()).await?;
        if found.state == goal.as_str() {
            return Ok(found);
        }
        if out_of_reach(found.state, goal) {
            let detail = format!("it is {} and will not become {goal} by itself", found.state);
            return Err(ApiError::new(Code::WrongState, detail));
        }
        tokio::select! {
            () = woken.woken() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Ended states do not move on without being asked.
fn out_of_reach(state: &str, goal: lifecycle::State) -> bool {
    use lifecycle::State as S;
    let ended = |ends: &[S]| ends.iter().any(|end| end.as_str() == state);
    match goal {
        S::Terminated | S::Terminating => false,
        S::Stopped => ended(&[S::Failed, S::Terminating, S::Terminated]),
        _ => ended(&[S::Failed, S::Stopped, S::Terminating, S::Terminated]),
    }
}
