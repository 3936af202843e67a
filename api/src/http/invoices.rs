//! `/v1/invoices`: immutable, self-contained, numbered without a gap; as JSON, CSV and PDF.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tarn_protocol::ids::InvoiceId;
use tarn_rows::invoices::InvoiceHeadRow;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::view::{InvoiceDocument, InvoiceSummary};
use crate::app::act::Act;
use crate::app::invoices::issue::{self, IssueError};
use crate::app::invoices::pdf;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::once::OnceJson;
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::extract::query::Query;
use crate::http::format::Format;
use crate::http::instant::Instant;
use crate::http::once::{self, Call};
use crate::state::AppState;

mod view;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_invoices, create_invoice)).routes(routes!(get_invoice))
}

impl From<IssueError> for ApiError {
    fn from(error: IssueError) -> Self {
        let detail = error.to_string();
        match error {
            IssueError::PeriodOpen => Self::invalid(
                "/period_to",
                "must not be in the future: only a period that has ended is invoiced",
            ),
            IssueError::PeriodCovered => Self::invalid(
                "/period_to",
                "an invoice up to that instant or a later one exists: see GET /v1/invoices",
            ),
            IssueError::Nothing => Self::new(Code::NothingToInvoice, detail),
            IssueError::Invalid(error) => Self::internal(error),
            IssueError::Store(error) => error.into(),
        }
    }
}

/// Invoices and credit notes of this tenant, newest first
#[utoipa::path(get, path = "/v1/invoices", tag = "money", operation_id = "list_invoices", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<InvoiceSummary>)))]
async fn list_invoices(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<InvoiceSummary>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<InvoiceId>()?;
    let rows = state.store.reader().await?.invoices(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row: &InvoiceHeadRow| row.id.to_string(), InvoiceSummary::from)))
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"period_to": "2027-01-01T00:00:00Z"}))]
struct CreateInvoice {
    /// The end of the period, not in the future. It begins where the last invoice ended, or with the month.
    period_to: Instant,
}

/// Invoice a period that has ended, without waiting for the end of the month
///
/// Everything settled before `period_to` that is on no invoice yet. 409 `nothing_to_invoice` if there is none. Months are invoiced by
/// themselves, an hour after their end in UTC.
#[utoipa::path(post, path = "/v1/invoices", tag = "money", operation_id = "create_invoice",
    params(("Idempotency-Key" = String, Header, description = "A fresh UUID for each invoice, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["wallet:write"])), request_body = CreateInvoice,
    responses((status = CREATED, description = "Issued", body = InvoiceDocument)))]
async fn create_invoice(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
    Extension(context): Extension<Arc<RequestContext>>,
    OnceJson { key, body }: OnceJson<CreateInvoice>,
) -> ApiResult<Response> {
    let (act, config) = (Act::at(&state, state.clock.now()), state.config.clone());
    let (scope, Instant(period_to)) = (caller.scope().clone(), body.period_to);
    let call = Call { scope: scope.clone(), key, status: StatusCode::CREATED };
    let done = once::answer(&state, &context, call, move |tx| {
        Box::pin(async move {
            let invoice = issue::issue(tx, &act, &config.seller, &scope, period_to).await?;
            Ok::<_, IssueError>(InvoiceDocument::from(invoice))
        })
    });
    Ok(done.await?.response)
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FormatQuery {
    /// `json`, `csv` or `pdf`; otherwise the end of the path or `Accept` decides.
    format: Option<String>,
}

/// An invoice or credit note
///
/// As JSON; as CSV or PDF for `Accept: text/csv` or `application/pdf`, for `.csv` or `.pdf` after the id, or for `format=`. The same
/// invoice is the same bytes for ever.
#[utoipa::path(get, path = "/v1/invoices/{invoice_id}", tag = "money", operation_id = "get_invoice",
    params(("invoice_id" = String, Path), FormatQuery), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The invoice", content(
        (InvoiceDocument = "application/json"), (String = "text/csv"), (Vec<u8> = "application/pdf")))))]
async fn get_invoice(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    headers: HeaderMap,
    Path(asked): Path<String>,
    Query(query): Query<FormatQuery>,
) -> ApiResult<Response> {
    let (id, suffix) =
        asked.split_once('.').map_or((asked.as_str(), None), |(id, suffix)| (id, Some(suffix)));
    let id: InvoiceId = id.parse().map_err(|_| ApiError::not_found())?;
    let name = suffix.or(query.format.as_deref());
    let format = Format::wanted(name, &headers, &[Format::Json, Format::Csv, Format::Pdf])?;
    let row = state.store.reader().await?.invoice(caller.scope(), &id).await?;
    let invoice = row.ok_or_else(ApiError::not_found)?.document.0;
    let number = invoice.number.to_string();
    Ok(match format {
        Format::Json => Json(InvoiceDocument::from(invoice)).into_response(),
        Format::Csv => format.file(&number, view::table(&invoice).csv().map_err(ApiError::internal)?),
        Format::Pdf => {
            // Shaping and subsetting take a core for a while.
            let drawn = tokio::task::spawn_blocking(move || pdf::render(&invoice));
            format.file(&number, drawn.await.map_err(ApiError::internal)?.map_err(ApiError::internal)?)
        }
    })
}
