//! `/v1/admin/reports`: what was earned, and what was leased and not paid.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tarn_billing::leased::Unbilled;
use tarn_protocol::ids::{HostId, InstanceId, LeaseId, OfferId, TenantId};
use tarn_rows::reports::LeasedRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::reports::leased::{self, LeasedError, LeasedTime};
use crate::app::reports::revenue::{self, Earned, Revenue, RevenueError, Source};
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::page::{PageParams, PageWanted};
use crate::http::extract::query::Query;
use crate::http::instant::Instant;
use crate::http::period::{PeriodParams, ReportFormat, cell, csv, table};
use crate::state::AppState;

const MONTH_SECONDS: i64 = 30 * 24 * 3600;
const DAY_SECONDS: i64 = 24 * 3600;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_revenue)).routes(routes!(get_unbilled_time))
}

/// `net = earned - given_back = of_cash + of_credit + of_debt`.
#[derive(Debug, Serialize, ToSchema)]
struct EarnedDocument {
    earned: Amount,
    /// Reversed charges.
    given_back: Amount,
    net: Amount,
    /// Of money paid in.
    of_cash: Amount,
    /// Of trial, promotional and SLA credit.
    of_credit: Amount,
    /// Owed, not paid.
    of_debt: Amount,
    entries: u64,
}

impl From<Earned> for EarnedDocument {
    fn from(earned: Earned) -> Self {
        Self {
            earned: earned.earned.into(),
            given_back: earned.given_back.into(),
            net: earned.net.into(),
            of_cash: earned.of_cash.into(),
            of_credit: earned.of_credit.into(),
            of_debt: earned.of_debt.into(),
            entries: earned.entries,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct RevenueLineDocument {
    #[schema(example = "revenue_gpu")]
    account: &'static str,
    /// Of the primary card; absent for what no card earned.
    #[schema(example = "NVIDIA GeForce RTX 3090")]
    model: Option<String>,
    /// Absent for what no segment earned.
    #[schema(example = "pool-96")]
    offer_id: Option<String>,
    #[serde(flatten)]
    earned: EarnedDocument,
}

/// What was earned in a half-open period. `total` is the sum of the revenue accounts' entries of that period.
#[derive(Debug, Serialize, ToSchema)]
struct RevenueDocument {
    from: Instant,
    to: Instant,
    total: EarnedDocument,
    items: Vec<RevenueLineDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<RevenueError> for ApiError {
    fn from(error: RevenueError) -> Self {
        match error {
            RevenueError::Store(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

impl From<LeasedError> for ApiError {
    fn from(error: LeasedError) -> Self {
        match error {
            LeasedError::TooMany => Self::invalid("?from", error.to_string()),
            LeasedError::Store(error) => error.into(),
        }
    }
}

fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The place of a source in the report, for its cursor.
fn key(source: &Source) -> String {
    [source.account.as_str(), &source.model, &source.offer].join("\u{1f}")
}

/// Revenue by model of the primary card and by offer
///
/// Exact to the micro: the lines sum to the entries of the revenue accounts. Of the last 30 days, if no period is given. As one table
/// with `format=csv`.
#[utoipa::path(get, path = "/v1/admin/reports/revenue", tag = "admin", operation_id = "get_revenue",
    params(PeriodParams, PageParams), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page of lines, or the whole as a table",
        content((RevenueDocument = "application/json"), (String = "text/csv")))))]
async fn get_revenue(
    State(state): State<AppState>,
    _operator: Operator,
    Query(asked): Query<PeriodParams>,
    page: PageWanted,
) -> ApiResult<Response> {
    let period = asked.period(state.clock.now(), MONTH_SECONDS)?;
    let page = page.of("operator");
    let after = page.after::<String>()?;
    let read = state.store.snapshot(move |tx| Box::pin(async move { revenue::revenue(tx, period).await }));
    let revenue = read.await?;
    if asked.format == ReportFormat::Csv {
        return Ok(table(&format!("revenue-{}", cell(period.from)), csv(lines(&revenue))?));
    }
    let mut rows: Vec<(String, Source, Earned)> =
        revenue.sources.into_iter().map(|(source, earned)| (key(&source), source, earned)).collect();
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    rows.retain(|(key, ..)| after.as_ref().is_none_or(|after| key > after));
    rows.truncate(page.limit as usize + 1);
    let listed = page.page(
        rows,
        |(key, ..)| key.clone(),
        |(_, source, earned)| RevenueLineDocument {
            account: source.account.as_str(),
            model: named(&source.model),
            offer_id: named(&source.offer),
            earned: earned.into(),
        },
    );
    let document = RevenueDocument {
        from: period.from.into(),
        to: period.to.into(),
        total: revenue.total.into(),
        items: listed.items,
        next_cursor: listed.next_cursor,
    };
    Ok(Json(document).into_response())
}

fn lines(revenue: &Revenue) -> Vec<Vec<String>> {
    let head = [
        "account",
        "model",
        "offer_id",
        "earned",
        "given_back",
        "net",
        "of_cash",
        "of_credit",
        "of_debt",
        "entries",
    ];
    let line = |names: [&str; 3], earned: &Earned| {
        let amounts =
            [earned.earned, earned.given_back, earned.net, earned.of_cash, earned.of_credit, earned.of_debt];
        let mut line: Vec<String> = names.map(str::to_owned).to_vec();
        line.extend(amounts.iter().map(ToString::to_string));
        line.push(earned.entries.to_string());
        line
    };
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (source, earned) in &revenue.sources {
        lines.push(line([source.account.as_str(), &source.model, &source.offer], earned));
    }
    lines.push(line(["total", "", ""], &revenue.total));
    lines
}

/// Milliseconds: `leased_ms = billed_ms +` the sum of `unbilled_ms`.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "units last, as everywhere")]
struct LeasedTimeDocument {
    leased_ms: i64,
    billed_ms: i64,
    /// By reason: `starting`, `degraded_by_us`, `unreachable`, `host_fault`, `stop_latency`, `operator`; and what is no leak:
    /// `pending` (proven or settled soon), `rounding` (below a second of each charge), `unpaid` (beyond the tenant's money).
    #[schema(value_type = Object, example = json!({"starting": 4210, "stop_latency": 830}))]
    unbilled_ms: BTreeMap<Unbilled, i64>,
}

impl From<LeasedTime> for LeasedTimeDocument {
    fn from(time: LeasedTime) -> Self {
        Self { leased_ms: time.leased_ms, billed_ms: time.billed_ms, unbilled_ms: time.unbilled_ms }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct LeaseTimeDocument {
    #[schema(value_type = String)]
    lease_id: LeaseId,
    #[schema(value_type = String)]
    instance_id: InstanceId,
    #[schema(value_type = String)]
    tenant_id: TenantId,
    #[schema(value_type = String)]
    host_id: HostId,
    #[schema(value_type = String, example = "pool-96")]
    offer_id: OfferId,
    /// Of the primary card.
    model: String,
    /// Held by the lease; one of them is billed.
    cards: u32,
    leased_at: Instant,
    released_at: Option<Instant>,
    #[serde(flatten)]
    time: LeasedTimeDocument,
}

/// Where leased time of a half-open period went.
#[derive(Debug, Serialize, ToSchema)]
struct UnbilledTimeDocument {
    from: Instant,
    to: Instant,
    leases: usize,
    total: LeasedTimeDocument,
    items: Vec<LeaseTimeDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

fn lease(row: LeasedRow, time: LeasedTime) -> LeaseTimeDocument {
    LeaseTimeDocument {
        lease_id: row.lease_id,
        instance_id: row.instance_id,
        tenant_id: row.tenant_id,
        host_id: row.host_id,
        offer_id: row.offer_id,
        model: row.model,
        cards: row.cards,
        leased_at: row.created_at.into(),
        released_at: row.released_at.map(Instant),
        time: time.into(),
    }
}

/// Leased time that nobody paid for, by reason
///
/// Billed and unbilled time sum to the leased time, of each lease and of all, to the millisecond. Of the last day, if no period is
/// given.
#[utoipa::path(get, path = "/v1/admin/reports/unbilled-time", tag = "admin", operation_id = "get_unbilled_time",
    params(PeriodParams, PageParams), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "The sum, and one page of leases by id", body = UnbilledTimeDocument)))]
async fn get_unbilled_time(
    State(state): State<AppState>,
    _operator: Operator,
    Query(asked): Query<PeriodParams>,
    page: PageWanted,
) -> ApiResult<Json<UnbilledTimeDocument>> {
    let now = state.clock.now();
    let period = asked.period(now, DAY_SECONDS)?;
    let page = page.of("operator");
    let after = page.after::<LeaseId>()?;
    let read = state.store.snapshot(move |tx| Box::pin(async move { leased::report(tx, period, now).await }));
    let (leases, total) = read.await?;
    let (all, most) = (leases.len(), page.limit as usize + 1);
    let rows: Vec<_> = leases
        .into_iter()
        .filter(|(id, _)| after.as_ref().is_none_or(|after| id > after))
        .take(most)
        .collect();
    let listed = page.page(rows, |(id, _)| id.to_string(), |(_, (row, time))| lease(row, time));
    Ok(Json(UnbilledTimeDocument {
        from: period.from.into(),
        to: period.to.into(),
        leases: all,
        total: total.into(),
        items: listed.items,
        next_cursor: listed.next_cursor,
    }))
}
