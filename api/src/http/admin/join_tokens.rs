//! `/v1/admin/join-tokens`: lets one host join.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tarn_protocol::ids::JoinTokenId;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::operators::join_tokens::{self, InvalidRegion, Region};
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(create_join_token))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"region": "cn-east"}))]
struct CreateJoinTokenRequest {
    /// Where the host stands.
    region: String,
}

/// A token for one host, shown this once.
#[derive(Serialize, ToSchema)]
struct JoinTokenDocument {
    #[schema(value_type = String, example = "jtk_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: JoinTokenId,
    /// For `tarn-agent`; a secret.
    token: String,
    region: String,
    expires_at: Instant,
}

/// Make a token with which one host joins, within a day
#[utoipa::path(post, path = "/v1/admin/join-tokens", tag = "admin", operation_id = "create_join_token",
    security(("bearer" = []), ("api_key" = ["admin"])), request_body = CreateJoinTokenRequest,
    responses((status = CREATED, description = "Made", body = JoinTokenDocument)))]
async fn create_join_token(
    State(state): State<AppState>,
    operator: Operator,
    Json(request): Json<CreateJoinTokenRequest>,
) -> ApiResult<(StatusCode, Json<JoinTokenDocument>)> {
    let region: Region = request
        .region
        .parse()
        .map_err(|error: InvalidRegion| ApiError::invalid("/region", error.to_string()))?;
    let made = join_tokens::create(&state, region, operator.by()).await?;
    let document = JoinTokenDocument {
        id: made.id,
        token: made.token,
        region: made.region,
        expires_at: made.expires_at.into(),
    };
    Ok((StatusCode::CREATED, Json(document)))
}
