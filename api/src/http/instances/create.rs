//! `POST /v1/instances`.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use tarn_protocol::hardware::LinkClass;
use tarn_protocol::units::Timestamp;
use tarn_rows::instances::{DISK_GIB_DEFAULT, LaunchSpec};

use super::render::Renderer;
use super::request::CreateInstance;
use super::view::InstanceDocument;
use crate::app::act::{Act, Announcement};
use crate::app::instances::create::{Order, create};
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult, Problem};
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::once::OnceJson;
use crate::http::once::{self, Call};
use crate::state::AppState;

/// Rent an instance
///
/// Cards are leased before the answer, or it is 409 `no_capacity` with what could be had instead. The instance is `requested`; poll
/// it, or call `wait`. Nothing is charged before it is ready.
#[utoipa::path(post, path = "/v1/instances", tag = "instances", operation_id = "create_instance",
    params(("Idempotency-Key" = String, Header, description = "A fresh UUID for each instance, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["instances:write"])), request_body = CreateInstance,
    responses((status = CREATED, description = "Requested", body = InstanceDocument),
        (status = FORBIDDEN, content_type = "application/problem+json", body = Problem,
            description = "`quota_exceeded`; `quota.exceeded` says which limit: `cards` or `memory`, beside it `limit`, `used` and `charge`")))]
pub(super) async fn create_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesWrite>,
    Extension(context): Extension<Arc<RequestContext>>,
    OnceJson { key, body }: OnceJson<CreateInstance>,
) -> ApiResult<Response> {
    body.check()?;
    let act = Act::at(&state, state.clock.now());
    let order = order(body, act.now, caller.actor_id().to_owned());
    let call = Call { scope: caller.scope().clone(), key, status: StatusCode::CREATED };
    let (scope, announcement) = (caller.scope().clone(), Announcement::default());
    let announcing = announcement.clone();
    let turn = state.placing.lock().await;
    let done = once::answer(&state, &context, call, move |tx| {
        let (mut act, scope, order, announcing) =
            (act.clone(), scope.clone(), order.clone(), announcing.clone());
        Box::pin(async move {
            for key in &order.spec.ssh_keys {
                if tx.ssh_key(&scope, key).await?.is_none() {
                    return Err(ApiError::invalid("/ssh_key_ids", "no such key"));
                }
            }
            let row = create(tx, &mut act, &scope, &order).await??;
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

fn order(body: CreateInstance, now: Timestamp, created_by: String) -> Order {
    let policy = body.policy();
    let spec = LaunchSpec {
        command: body.command,
        env: body.env.into_iter().collect(),
        policy,
        link_class_min: body.constraints.link_class_min.unwrap_or(LinkClass::None),
        region: body.constraints.region,
        host_id: body.constraints.host_id,
        ssh_keys: body.ssh_key_ids,
        disk_gib: body.disk_gb.unwrap_or(DISK_GIB_DEFAULT),
    };
    Order {
        label: body.label.unwrap_or_else(|| body.offer_id.to_string()),
        offer_id: body.offer_id,
        tags: body.tags,
        spec,
        ttl_at: body.ttl_seconds.and_then(|ttl| i64::try_from(ttl).ok()).map(|ttl| now.plus_seconds(ttl)),
        created_by,
    }
}
