//! Statements: `/v1/statement` for a tenant, `/v1/admin/tenants/{tenant_id}/statement` for operators. The same ledger, the same words.

use std::fmt;
use std::str::FromStr;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tarn_billing::money::Micros;
use tarn_protocol::ids::{GrantId, InstanceId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::reports::LedgerPlace;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::reports::Period;
use crate::app::reports::statement::{self, Balances, FINAL_SECONDS, Frame, Movement, StatementError};
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{Operator, TenantCaller, may};
use crate::http::extract::page::{PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::extract::query::Query;
use crate::http::instant::Instant;
use crate::http::period::{PeriodParams, ReportFormat, cell, csv, table};
use crate::state::AppState;

const MONTH_SECONDS: i64 = 30 * 24 * 3600;
/// Movements read at once for a table.
const MOVEMENTS_PER_READ: u32 = 500;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_statement)).routes(routes!(get_statement_of_tenant))
}

/// A balance at both ends: `opening + credited - debited = closing`.
#[derive(Debug, Serialize, ToSchema)]
struct BalancesDocument {
    opening: Amount,
    credited: Amount,
    debited: Amount,
    closing: Amount,
}

impl From<Balances> for BalancesDocument {
    fn from(balances: Balances) -> Self {
        Self {
            opening: balances.opening.into(),
            credited: balances.credited.into(),
            debited: balances.debited.into(),
            closing: balances.closing.into(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct AccountBalancesDocument {
    #[schema(example = "wallet_cash")]
    account: &'static str,
    #[serde(flatten)]
    balances: BalancesDocument,
}

#[derive(Debug, Serialize, ToSchema)]
struct MovementEntryDocument {
    #[schema(example = "wallet_promo")]
    account: &'static str,
    /// Negative when it left the account.
    amount: Amount,
}

/// One transfer, from the side of the tenant.
#[derive(Debug, Serialize, ToSchema)]
struct MovementDocument {
    at: Instant,
    #[schema(value_type = String, example = "trf_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    transfer_id: TransferId,
    #[schema(example = "usage")]
    kind: &'static str,
    /// On the tenant's accounts; two, if it moved between them.
    entries: Vec<MovementEntryDocument>,
    /// The sum of its entries; negative is out.
    amount: Amount,
    /// Of all accounts together, right after it.
    balance: Amount,
    #[schema(value_type = Option<String>)]
    segment_id: Option<SegmentId>,
    #[schema(value_type = Option<String>)]
    instance_id: Option<InstanceId>,
    #[schema(value_type = Option<String>)]
    grant_id: Option<GrantId>,
    /// The transfer that it corrects.
    #[schema(value_type = Option<String>)]
    reverses: Option<TransferId>,
    memo: String,
}

impl From<Movement> for MovementDocument {
    fn from(movement: Movement) -> Self {
        let entry = |(account, amount): (tarn_billing::account::AccountKind, Micros)| MovementEntryDocument {
            account: account.as_str(),
            amount: amount.into(),
        };
        Self {
            at: movement.at.into(),
            transfer_id: movement.transfer_id,
            kind: movement.kind.as_str(),
            entries: movement.entries.into_iter().map(entry).collect(),
            amount: movement.amount.into(),
            balance: movement.balance.into(),
            segment_id: movement.segment_id,
            instance_id: movement.instance_id,
            grant_id: movement.grant_id,
            reverses: movement.reverses,
            memo: movement.memo,
        }
    }
}

/// A tenant's money over a period, half-open. The closing balance of one period is the opening balance of the next.
#[derive(Debug, Serialize, ToSchema)]
struct StatementDocument {
    #[schema(value_type = String)]
    tenant_id: TenantId,
    from: Instant,
    to: Instant,
    /// Nothing can be added to the period any more.
    #[serde(rename = "final")]
    is_final: bool,
    /// All accounts together.
    total: BalancesDocument,
    accounts: Vec<AccountBalancesDocument>,
    /// Oldest first, one page.
    items: Vec<MovementDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<StatementError> for ApiError {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Store(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

/// A place in a statement, as its cursor carries it.
#[derive(Debug, Clone)]
struct Place(LedgerPlace);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.at.as_micros(), self.0.transfer_id)
    }
}

impl FromStr for Place {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (micros, transfer_id) = text.split_once(' ').ok_or(())?;
        let at = Timestamp::from_micros(micros.parse().map_err(|_| ())?);
        Ok(Self(LedgerPlace { at, transfer_id: transfer_id.to_owned() }))
    }
}

/// Your statement: opening balance, every movement, closing balance
///
/// Of the last 30 days, if no period is given. As one table with `format=csv`.
#[utoipa::path(get, path = "/v1/statement", tag = "money", operation_id = "get_statement",
    params(PeriodParams, PageParams), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page of movements, or the whole as a table",
        content((StatementDocument = "application/json"), (String = "text/csv")))))]
async fn get_statement(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    Query(asked): Query<PeriodParams>,
    page: PageWanted,
) -> ApiResult<Response> {
    answer(&state, caller.scope().clone(), asked, page).await
}

/// A tenant's statement: opening balance, every movement, closing balance
///
/// Of the last 30 days, if no period is given. As one table with `format=csv`.
#[utoipa::path(get, path = "/v1/admin/tenants/{tenant_id}/statement", tag = "admin",
    operation_id = "get_statement_of_tenant", params(("tenant_id" = String, Path), PeriodParams, PageParams),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page of movements, or the whole as a table",
        content((StatementDocument = "application/json"), (String = "text/csv")))))]
async fn get_statement_of_tenant(
    State(state): State<AppState>,
    operator: Operator,
    Path(tenant_id): Path<TenantId>,
    Query(asked): Query<PeriodParams>,
    page: PageWanted,
) -> ApiResult<Response> {
    let scope = operator.scope_of(tenant_id);
    if state.store.reader().await?.tenant(&scope).await?.is_none() {
        return Err(ApiError::not_found());
    }
    answer(&state, scope, asked, page).await
}

async fn answer(
    state: &AppState,
    scope: TenantScope,
    asked: PeriodParams,
    page: PageWanted,
) -> ApiResult<Response> {
    let now = state.clock.now();
    let period = asked.period(now, MONTH_SECONDS)?;
    if asked.format == ReportFormat::Csv {
        return as_table(state.clone(), scope, period).await;
    }
    // Bound to the start: a page further on is of the same statement even when `to` follows the clock.
    let page = page.of(scope.as_str());
    let place = page.after::<Place>()?.map_or_else(|| LedgerPlace::before(period.from), |Place(place)| place);
    let (limit, tenant_id) = (page.limit + 1, scope.tenant_id().clone());
    let read = state.store.snapshot(move |tx| {
        Box::pin(async move {
            let frame = statement::frame(tx, &scope, period).await?;
            let movements = statement::movements(tx, &scope, (&place, period.to), limit).await?;
            Ok::<_, StatementError>((frame, movements))
        })
    });
    let (frame, movements) = read.await?;
    let listed = page.page(movements, |movement| Place(movement.place()).to_string(), MovementDocument::from);
    let accounts = frame.accounts.into_iter().map(|(account, balances)| AccountBalancesDocument {
        account: account.as_str(),
        balances: balances.into(),
    });
    let document = StatementDocument {
        tenant_id,
        from: period.from.into(),
        to: period.to.into(),
        is_final: period.to <= now.plus_seconds(-FINAL_SECONDS),
        total: frame.total.into(),
        accounts: accounts.collect(),
        items: listed.items,
        next_cursor: listed.next_cursor,
    };
    Ok(Json(document).into_response())
}

const COLUMNS: [&str; 11] = [
    "at",
    "transfer_id",
    "kind",
    "account",
    "amount",
    "balance",
    "segment_id",
    "instance_id",
    "grant_id",
    "reverses",
    "memo",
];

/// A line that is a balance and no movement.
fn balance(at: Timestamp, kind: &str, balance: Micros) -> Vec<String> {
    let mut line = vec![String::new(); COLUMNS.len()];
    (line[0], line[2], line[5]) = (cell(at), kind.to_owned(), balance.to_string());
    line
}

/// One line for each entry; the balance of all accounts together stands at the last one of a transfer.
fn lines(movement: &Movement) -> Vec<Vec<String>> {
    let text = |id: Option<&dyn fmt::Display>| id.map(ToString::to_string).unwrap_or_default();
    let last = movement.entries.len() - 1;
    let line = |(place, (account, amount)): (usize, &(tarn_billing::account::AccountKind, Micros))| {
        vec![
            cell(movement.at),
            movement.transfer_id.to_string(),
            movement.kind.as_str().to_owned(),
            account.as_str().to_owned(),
            amount.to_string(),
            if place == last { movement.balance.to_string() } else { String::new() },
            text(movement.segment_id.as_ref().map(|id| id as _)),
            text(movement.instance_id.as_ref().map(|id| id as _)),
            text(movement.grant_id.as_ref().map(|id| id as _)),
            text(movement.reverses.as_ref().map(|id| id as _)),
            movement.memo.clone(),
        ]
    };
    movement.entries.iter().enumerate().map(line).collect()
}

/// The whole statement, read and sent part by part: a busy tenant has a line for every settlement.
async fn as_table(state: AppState, scope: TenantScope, period: Period) -> ApiResult<Response> {
    let (reading, tenant) = (scope.clone(), scope.as_str().to_owned());
    let frame =
        state.store.snapshot(move |tx| Box::pin(async move { statement::frame(tx, &reading, period).await }));
    let Frame { total, .. } = frame.await?;
    let head = csv([COLUMNS.map(str::to_owned).to_vec(), balance(period.from, "opening", total.opening)])?;
    let begin =
        Part { state, scope, period, place: Some(LedgerPlace::before(period.from)), balance: total.opening };
    let parts = stream::try_unfold(begin, |part| async move { part.next().await });
    let body = Body::from_stream(prefixed(Bytes::from(head), parts));
    Ok(table(&format!("statement-{tenant}-{}", cell(period.from)), body))
}

fn prefixed(
    head: Bytes,
    parts: impl Stream<Item = Result<Bytes, ApiError>> + Send,
) -> impl Stream<Item = Result<Bytes, ApiError>> + Send {
    use futures_util::StreamExt as _;
    stream::once(std::future::ready(Ok(head))).chain(parts)
}

/// What of a table is still to be sent.
struct Part {
    state: AppState,
    scope: TenantScope,
    period: Period,
    /// `None`: all of it is.
    place: Option<LedgerPlace>,
    balance: Micros,
}

impl Part {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, ApiError> {
        let Some(place) = self.place.take() else { return Ok(None) };
        let (scope, until) = (self.scope.clone(), self.period.to);
        let read = self.state.store.snapshot(move |tx| {
            Box::pin(
                async move { statement::movements(tx, &scope, (&place, until), MOVEMENTS_PER_READ).await },
            )
        });
        let movements = read.await?;
        let mut records: Vec<Vec<String>> = movements.iter().flat_map(lines).collect();
        if let Some(last) = movements.last() {
            (self.balance, self.place) = (last.balance, Some(last.place()));
        }
        if movements.len() < MOVEMENTS_PER_READ as usize {
            self.place = None;
            records.push(balance(self.period.to, "closing", self.balance));
        }
        Ok(Some((Bytes::from(csv(records)?), self)))
    }
}
