//! `/v1/wallet/spend-caps`: the most that may be spent in a day or a month.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tarn_billing::cap::Period;
use tarn_protocol::ids::{ApiKeyId, SpendCapId};
use tarn_rows::caps::{CapSubject, SpendCapRow};
use tarn_store::{StoreError, Tx};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::{Act, Announcement};
use crate::app::metering::caps::{CAPS_MAX, Limit, Limits};
use crate::app::metering::exhaustion;
use crate::app::metering::purse::{CorruptMoney, Purse};
use crate::app::metering::settle::{self, SettleFailed};
use crate::app::money::top_up::TOP_UP_MAX;
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::path::Path;
use crate::http::instant::Instant;
use crate::http::tenants;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_spend_caps, put_spend_cap)).routes(routes!(delete_spend_cap))
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum CapPeriod {
    /// A calendar day of UTC.
    Day,
    /// A calendar month of UTC.
    Month,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"period": "day", "limit": {"amount": "20.00", "currency": "CNY"}}))]
struct SpendCapRequest {
    period: CapPeriod,
    limit: Amount,
    /// Only what instances made with this API key spend.
    #[schema(value_type = Option<String>)]
    api_key_id: Option<ApiKeyId>,
    /// Only what instances with this label spend. With neither, all of the tenant's.
    label: Option<String>,
}

/// A limit, and how far it is.
#[derive(Debug, Serialize, ToSchema)]
struct SpendCapDocument {
    #[schema(value_type = String, example = "cap_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: SpendCapId,
    period: CapPeriod,
    limit: Amount,
    api_key_id: Option<String>,
    label: Option<String>,
    /// Proven in the current period.
    spent: Amount,
    period_started_at: Instant,
    period_ends_at: Instant,
    /// When what runs reaches the limit if nothing changes; then it stops.
    reached_at: Option<Instant>,
}

/// Every cap.
#[derive(Debug, Serialize, ToSchema)]
struct SpendCapsDocument {
    items: Vec<SpendCapDocument>,
}

impl From<&Limit> for SpendCapDocument {
    fn from(limit: &Limit) -> Self {
        let row = &limit.row;
        let named = |kind| (row.subject_kind == kind).then(|| row.subject.clone());
        Self {
            id: row.id.clone(),
            period: match row.period {
                Period::Day => CapPeriod::Day,
                Period::Month => CapPeriod::Month,
            },
            limit: row.limit_micros.into(),
            api_key_id: named(CapSubject::ApiKey),
            label: named(CapSubject::Label),
            spent: limit.spent.into(),
            period_started_at: limit.window.from.into(),
            period_ends_at: limit.window.to.into(),
            reached_at: limit.reached_at.map(Instant),
        }
    }
}

enum PutCapError {
    NoSuchKey,
    TooMany,
    Money(CorruptMoney),
    Settle(SettleFailed),
}

impl From<SettleFailed> for PutCapError {
    fn from(error: SettleFailed) -> Self {
        Self::Settle(error)
    }
}

impl From<StoreError> for PutCapError {
    fn from(error: StoreError) -> Self {
        Self::Money(error.into())
    }
}

impl From<CorruptMoney> for PutCapError {
    fn from(error: CorruptMoney) -> Self {
        Self::Money(error)
    }
}

impl From<PutCapError> for ApiError {
    fn from(error: PutCapError) -> Self {
        match error {
            PutCapError::NoSuchKey => Self::not_found(),
            PutCapError::TooMany => Self::invalid("/", format!("at most {CAPS_MAX} caps")),
            PutCapError::Money(error) => error.into(),
            PutCapError::Settle(error) => error.into(),
        }
    }
}

async fn limits(tx: &mut Tx, act: &Act, scope: &tarn_rows::TenantScope) -> Result<Limits, CorruptMoney> {
    let purse = Purse::load(tx, scope, act.now).await?;
    Limits::load(tx, scope, &purse, act.now).await
}

/// What may be spent at most, and what is
#[utoipa::path(get, path = "/v1/wallet/spend-caps", tag = "money", operation_id = "list_spend_caps",
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "Every cap", body = SpendCapsDocument)))]
async fn list_spend_caps(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
) -> ApiResult<Json<SpendCapsDocument>> {
    let act = Act::at(&state, state.clock.now());
    let limits = limits(&mut state.store.reader().await?, &act, caller.scope()).await?;
    Ok(Json(SpendCapsDocument { items: limits.caps.iter().map(SpendCapDocument::from).collect() }))
}

/// Spend no more than this in a day or month
///
/// Reached, the cap stops what runs under it at the very second, and nothing under it starts until it is raised or the period has
/// ended. One cap for each period and subject: setting it again changes it.
#[utoipa::path(put, path = "/v1/wallet/spend-caps", tag = "money", operation_id = "put_spend_cap",
    security(("bearer" = []), ("api_key" = ["wallet:write"])), request_body = SpendCapRequest,
    responses((status = OK, description = "The cap, in force", body = SpendCapDocument)))]
async fn put_spend_cap(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
    Json(body): Json<SpendCapRequest>,
) -> ApiResult<Json<SpendCapDocument>> {
    if body.limit.amount.get() < 0 || body.limit.amount > TOP_UP_MAX {
        return Err(ApiError::invalid("/limit/amount", format!("between 0.00 and {TOP_UP_MAX}")));
    }
    let (subject_kind, subject) = match (&body.api_key_id, &body.label) {
        (None, None) => (CapSubject::Tenant, String::new()),
        (Some(key), None) => (CapSubject::ApiKey, key.to_string()),
        (None, Some(label)) => (CapSubject::Label, tenants::name(label, "/label")?),
        (Some(_), Some(_)) => return Err(ApiError::invalid("/label", "name a key or a label, not both")),
    };
    let (now, scope) = (state.clock.now(), caller.scope().clone());
    let row = SpendCapRow {
        id: SpendCapId::new(now, state.entropy.bits()),
        tenant_id: scope.tenant_id().clone(),
        period: match body.period {
            CapPeriod::Day => Period::Day,
            CapPeriod::Month => Period::Month,
        },
        subject_kind,
        subject,
        limit_micros: body.limit.amount,
        created_at: now,
        updated_at: now,
    };
    let (act, key) = (Act::at(&state, now), body.api_key_id);
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let document = state.store.write(move |tx| {
        let mut act = act;
        Box::pin(async move {
            // What the caps were until now is carried out first.
            settle::settle(tx, &mut act, &scope).await?;
            if let Some(key) = &key {
                tx.api_key(&scope, key).await?.ok_or(PutCapError::NoSuchKey)?;
            }
            let row = tx.put_spend_cap(&scope, &row).await?;
            exhaustion::rearm(tx, &mut act, &scope).await?;
            let limits = limits(tx, &act, &scope).await?;
            if limits.caps.len() > CAPS_MAX as usize {
                return Err(PutCapError::TooMany);
            }
            let limit = limits.caps.iter().find(|limit| limit.row.id == row.id);
            let document = limit.map(SpendCapDocument::from).ok_or_else(|| tx.stale())?;
            announcement.put(act);
            Ok::<_, PutCapError>(document)
        })
    });
    let document = document.await?;
    committed.announce(&state.wakeups);
    Ok(Json(document))
}

/// Lift a cap
#[utoipa::path(delete, path = "/v1/wallet/spend-caps/{cap_id}", tag = "money", operation_id = "delete_spend_cap",
    params(("cap_id" = String, Path)), security(("bearer" = []), ("api_key" = ["wallet:write"])),
    responses((status = NO_CONTENT, description = "It is gone")))]
async fn delete_spend_cap(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
    Path(id): Path<SpendCapId>,
) -> ApiResult<StatusCode> {
    let (act, scope) = (Act::at(&state, state.clock.now()), caller.scope().clone());
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let gone = state.store.write(move |tx| {
        let mut act = act;
        Box::pin(async move {
            settle::settle(tx, &mut act, &scope).await?;
            let gone = tx.delete_spend_cap(&scope, &id).await?;
            exhaustion::rearm(tx, &mut act, &scope).await?;
            announcement.put(act);
            Ok::<_, SettleFailed>(gone)
        })
    });
    if !gone.await? {
        return Err(ApiError::not_found());
    }
    committed.announce(&state.wakeups);
    Ok(StatusCode::NO_CONTENT)
}
