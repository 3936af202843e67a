//! `/v1/billing/details`: who the tenant is on its invoices.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tarn_billing::invoice::Party;
use tarn_rows::Json as Stored;
use tarn_rows::invoices::BillingDetailsRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::invoices::issue;
use crate::app::people::email::Email;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::state::AppState;

const LINE_CHARACTERS_MAX: usize = 120;
const ADDRESS_LINES_MAX: usize = 6;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_billing_details, put_billing_details))
}

/// Printed on every invoice from now on; those that were issued keep what they say.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "杭州分析机科技有限公司", "address": ["文三路 1 号", "310012 杭州"], "tax_id": "91330100MA00000000", "email": "billing@example.com",
}))]
pub(crate) struct PartyDocument {
    pub name: String,
    /// Line by line, at most six.
    #[serde(default)]
    pub address: Vec<String>,
    #[serde(default)]
    pub tax_id: Option<String>,
    #[serde(default)]
    pub email: Option<String>,
}

impl From<Party> for PartyDocument {
    fn from(Party { name, address, tax_id, email }: Party) -> Self {
        Self { name, address, tax_id, email }
    }
}

fn line(text: &str, pointer: &str) -> ApiResult<String> {
    let line = text.trim();
    let fits =
        (1..=LINE_CHARACTERS_MAX).contains(&line.chars().count()) && !line.chars().any(char::is_control);
    let refused = || ApiError::invalid(pointer, format!("1 to {LINE_CHARACTERS_MAX} printable characters"));
    if fits { Ok(line.to_owned()) } else { Err(refused()) }
}

impl PartyDocument {
    fn party(self) -> ApiResult<Party> {
        if self.address.len() > ADDRESS_LINES_MAX {
            return Err(ApiError::invalid("/address", format!("at most {ADDRESS_LINES_MAX} lines")));
        }
        if let Some(email) = &self.email {
            email.parse::<Email>().map_err(|error| ApiError::invalid("/email", error.to_string()))?;
        }
        Ok(Party {
            name: line(&self.name, "/name")?,
            address: self.address.iter().map(|text| line(text, "/address")).collect::<Result<_, _>>()?,
            tax_id: self.tax_id.as_deref().map(|text| line(text, "/tax_id")).transpose()?,
            email: self.email,
        })
    }
}

/// Who this tenant is on its invoices
///
/// Until it is set, the tenant's name.
#[utoipa::path(get, path = "/v1/billing/details", tag = "money", operation_id = "get_billing_details",
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The details", body = PartyDocument)))]
async fn get_billing_details(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
) -> ApiResult<Json<PartyDocument>> {
    let mut tx = state.store.reader().await?;
    Ok(Json(issue::buyer(&mut tx, caller.scope()).await?.into()))
}

/// Say who this tenant is on its invoices
#[utoipa::path(put, path = "/v1/billing/details", tag = "money", operation_id = "put_billing_details",
    security(("bearer" = []), ("api_key" = ["wallet:write"])), request_body = PartyDocument,
    responses((status = OK, description = "From now on", body = PartyDocument)))]
async fn put_billing_details(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
    Json(body): Json<PartyDocument>,
) -> ApiResult<Json<PartyDocument>> {
    let party = body.party()?;
    let row = BillingDetailsRow {
        tenant_id: caller.tenant_id().clone(),
        party: Stored(party.clone()),
        updated_at: state.clock.now(),
    };
    let scope = caller.scope().clone();
    let put =
        state.store.write(move |tx| Box::pin(async move { tx.put_billing_details(&scope, &row).await }));
    put.await?;
    Ok(Json(party.into()))
}
