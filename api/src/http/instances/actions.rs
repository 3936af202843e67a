//! Changing instances: patch, delete, start, stop, restart.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::BoxFuture;
use tarn_protocol::ids::InstanceId;
use tarn_rows::TenantScope;
use tarn_rows::instances::InstanceRow;
use tarn_store::Tx;

use super::render::Renderer;
use super::request::PatchInstance;
use super::view::InstanceDocument;
use crate::app::act::Act;
use crate::app::act::Announcement;
use crate::app::instances::{change, start};
use crate::app::metering::exhaustion;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::once::OnceEmpty;
use crate::http::extract::path::Path;
use crate::http::once::{self, Call};
use crate::state::AppState;

/// Change label, tags or time to live
#[utoipa::path(patch, path = "/v1/instances/{instance_id}", tag = "instances", operation_id = "patch_instance",
    params(("instance_id" = String, Path)), security(("bearer" = []), ("api_key" = ["instances:write"])),
    request_body = PatchInstance, responses((status = OK, description = "Changed", body = InstanceDocument)))]
pub(super) async fn patch_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesWrite>,
    Path(id): Path<InstanceId>,
    Json(body): Json<PatchInstance>,
) -> ApiResult<Json<InstanceDocument>> {
    body.check()?;
    let ttl = body.ttl_seconds.and_then(|ttl| i64::try_from(ttl).ok());
    let wanted = change::Patch {
        label: body.label,
        tags: body.tags,
        ttl_at: ttl.map(|ttl| state.clock.now().plus_seconds(ttl)),
    };
    let document = written(&state, caller.scope(), move |tx, act, scope| {
        Box::pin(async move { Ok(change::patch(tx, act, scope, &id, &wanted).await??) })
    });
    document.await.map(Json)
}

/// Terminate an instance
///
/// Charging ends with this answer. The instance stays `terminating` until its host has proven that nothing of it is left. Again is
/// the same.
#[utoipa::path(delete, path = "/v1/instances/{instance_id}", tag = "instances", operation_id = "delete_instance",
    params(("instance_id" = String, Path)), security(("bearer" = []), ("api_key" = ["instances:write"])),
    responses((status = ACCEPTED, description = "Accepted", body = InstanceDocument)))]
pub(super) async fn delete_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesWrite>,
    Path(id): Path<InstanceId>,
) -> ApiResult<(StatusCode, Json<InstanceDocument>)> {
    let document = written(&state, caller.scope(), move |tx, act, scope| {
        Box::pin(async move { Ok(change::delete(tx, act, scope, &id).await??) })
    });
    Ok((StatusCode::ACCEPTED, Json(document.await?)))
}

/// Stop an instance
///
/// Charging for cards ends with this answer, and they are given back once the host has proven that nothing runs: they are not
/// reserved. The disk is kept; `keeps_costing` says what it costs and what would end that.
#[utoipa::path(post, path = "/v1/instances/{instance_id}/actions/stop", tag = "instances", operation_id = "stop_instance",
    params(("instance_id" = String, Path)), security(("bearer" = []), ("api_key" = ["instances:write"])),
    responses((status = ACCEPTED, description = "Accepted", body = InstanceDocument)))]
pub(super) async fn stop_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesWrite>,
    Path(id): Path<InstanceId>,
) -> ApiResult<(StatusCode, Json<InstanceDocument>)> {
    let document = written(&state, caller.scope(), move |tx, act, scope| {
        Box::pin(async move { Ok(change::stop(tx, act, scope, &id).await??) })
    });
    Ok((StatusCode::ACCEPTED, Json(document.await?)))
}

/// Start a stopped or failed instance
///
/// Its constraints are checked again, and cards are leased before the answer: 409 `no_capacity` if there are none.
#[utoipa::path(post, path = "/v1/instances/{instance_id}/actions/start", tag = "instances", operation_id = "start_instance",
    params(("instance_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A fresh UUID for each start, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["instances:write"])),
    responses((status = ACCEPTED, description = "Accepted", body = InstanceDocument)))]
pub(super) async fn start_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesWrite>,
    Extension(context): Extension<Arc<RequestContext>>,
    Path(id): Path<InstanceId>,
    OnceEmpty(key): OnceEmpty,
) -> ApiResult<Response> {
    let call = Call { scope: caller.scope().clone(), key, status: StatusCode::ACCEPTED };
    once_written(&state, &context, call, move |tx, act, scope| {
        let id = id.clone();
        Box::pin(async move { Ok(start::start(tx, act, scope, &id).await??) })
    })
    .await
}

/// Restart a running instance on the same cards
#[utoipa::path(post, path = "/v1/instances/{instance_id}/actions/restart", tag = "instances",
    operation_id = "restart_instance", params(("instance_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A fresh UUID for each restart, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["instances:write"])),
    responses((status = ACCEPTED, description = "Accepted", body = InstanceDocument)))]
pub(super) async fn restart_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesWrite>,
    Extension(context): Extension<Arc<RequestContext>>,
    Path(id): Path<InstanceId>,
    OnceEmpty(key): OnceEmpty,
) -> ApiResult<Response> {
    let call = Call { scope: caller.scope().clone(), key, status: StatusCode::ACCEPTED };
    once_written(&state, &context, call, move |tx, act, scope| {
        let id = id.clone();
        Box::pin(async move { Ok(start::restart(tx, act, scope, &id).await??) })
    })
    .await
}

type Changing<'tx> = BoxFuture<'tx, ApiResult<InstanceRow>>;

/// Runs a change as one transaction, re-arms what it changed of the tenant's burn, and announces it once committed.
async fn written<F>(state: &AppState, scope: &TenantScope, change: F) -> ApiResult<InstanceDocument>
where
    F: for<'tx> FnOnce(&'tx mut Tx, &'tx mut Act, &'tx TenantScope) -> Changing<'tx> + Clone + Send + 'static,
{
    let (mut act, scope) = (Act::at(state, state.clock.now()), scope.clone());
    let (document, act) = state
        .store
        .write(move |tx| {
            Box::pin(async move {
                let row = change(tx, &mut act, &scope).await?;
                exhaustion::rearm_changed(tx, &mut act).await?;
                let document = Renderer::at(act.now).instance(tx, &scope, row).await?;
                Ok::<_, ApiError>((document, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(document)
}

/// The same, once for each Idempotency-Key.
async fn once_written<F>(
    state: &AppState,
    context: &RequestContext,
    call: Call,
    change: F,
) -> ApiResult<Response>
where
    F: for<'tx> Fn(&'tx mut Tx, &'tx mut Act, &'tx TenantScope) -> Changing<'tx>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let (act, scope, announcement) =
        (Act::at(state, state.clock.now()), call.scope.clone(), Announcement::default());
    let announcing = announcement.clone();
    let turn = state.placing.lock().await;
    let done = once::answer(state, context, call, move |tx| {
        let (mut act, scope, announcing) = (act.clone(), scope.clone(), announcing.clone());
        let change = change.clone();
        Box::pin(async move {
            let row = change(tx, &mut act, &scope).await?;
            exhaustion::rearm_changed(tx, &mut act).await?;
            let document = Renderer::at(act.now).instance(tx, &scope, row).await?;
            announcing.put(act);
            Ok::<_, ApiError>(document)
        })
    });
    let done = done.await?;
    drop(turn);
    announcement.announce(&state.wakeups);
    Ok(done.response)
}
