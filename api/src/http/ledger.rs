//! `/v1/ledger`: every movement on this tenant's accounts.

use axum::extract::State;
use serde::Serialize;
use tarn_protocol::ids::{GrantId, SegmentId, TransferId};
use tarn_rows::ledger::LedgerLineRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::amount::Amount;
use crate::http::error::ApiResult;
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_ledger))
}

/// One movement, from the side of this tenant's account.
#[derive(Debug, Serialize, ToSchema)]
struct LedgerLineDocument {
    #[schema(value_type = String, example = "trf_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    transfer_id: TransferId,
    #[schema(example = "usage")]
    kind: &'static str,
    #[schema(example = "wallet_promo")]
    account: &'static str,
    /// Negative when it left the account.
    amount: Amount,
    /// Of a wallet, right after this movement.
    balance_after: Option<Amount>,
    /// The charge it belongs to.
    #[schema(value_type = Option<String>)]
    segment_id: Option<SegmentId>,
    /// The bucket it filled or drew on.
    #[schema(value_type = Option<String>)]
    grant_id: Option<GrantId>,
    memo: String,
    created_at: Instant,
}

impl From<LedgerLineRow> for LedgerLineDocument {
    fn from(row: LedgerLineRow) -> Self {
        Self {
            transfer_id: row.transfer_id,
            kind: row.transfer_kind.as_str(),
            account: row.account_kind.as_str(),
            amount: row.amount_micros.into(),
            balance_after: row.balance_after_micros.map(Amount::from),
            segment_id: row.segment_id,
            grant_id: row.grant_id,
            memo: row.memo,
            created_at: row.created_at.into(),
        }
    }
}

/// Every movement of this tenant's money, newest first
#[utoipa::path(get, path = "/v1/ledger", tag = "money", operation_id = "list_ledger", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<LedgerLineDocument>)))]
async fn list_ledger(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<LedgerLineDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<TransferId>()?;
    let rows = state.store.reader().await?.ledger_lines(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.transfer_id.to_string(), LedgerLineDocument::from)))
}
