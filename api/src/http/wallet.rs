//! `/v1/wallet`

use axum::extract::State;
use serde::Serialize;
use tarn_billing::account::AccountKind;
use tarn_billing::exhaustion::HORIZON_SECONDS;
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::rate::{self, Rate};
use tarn_protocol::ids::GrantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::wallet::{GrantRow, WalletRow};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::money::wallet::FundingError;
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_wallet))
}

/// What a tenant has. Prepaid: it never falls below zero.
#[derive(Debug, Serialize, ToSchema)]
struct WalletDocument {
    /// Cash and credit, less what is held.
    available: Amount,
    cash: Amount,
    /// Trial, promotional and service credit; drawn before cash.
    credit: Amount,
    /// Reserved for instances that are starting.
    held: Amount,
    /// Owed for seconds that were proven after the money had ended; the next cash or credit pays it first.
    owed: Amount,
    /// What cards and disks cost together.
    burn_per_hour: Amount,
    /// When the first thing that costs stops if nothing changes: the wallet is empty then, or a spend cap is reached. Absent: nothing
    /// costs, or the money outlasts years.
    exhausts_at: Option<Instant>,
    /// From now to `exhausts_at`.
    #[schema(example = 15_000)]
    seconds_left: Option<i64>,
    /// The credit that expires next, if any of it is left.
    next_expiry: Option<NextExpiryDocument>,
    grants: Vec<GrantDocument>,
}

/// Credit that is lost unless it is used before.
#[derive(Debug, Serialize, ToSchema)]
struct NextExpiryDocument {
    #[schema(value_type = String, example = "grn_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    grant_id: GrantId,
    remaining: Amount,
    expires_at: Instant,
}

/// One bucket of the wallet, in the order in which they were given.
#[derive(Debug, Serialize, ToSchema)]
struct GrantDocument {
    #[schema(value_type = String, example = "grn_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: GrantId,
    #[schema(example = "trial")]
    kind: &'static str,
    granted: Amount,
    remaining: Amount,
    expires_at: Option<Instant>,
    created_at: Instant,
}

impl From<GrantRow> for GrantDocument {
    fn from(row: GrantRow) -> Self {
        Self {
            id: row.id,
            kind: row.kind.as_str(),
            granted: row.granted_micros.into(),
            remaining: row.remaining_micros.into(),
            expires_at: row.expires_at.map(Instant),
            created_at: row.created_at.into(),
        }
    }
}

impl From<FundingError> for ApiError {
    fn from(error: FundingError) -> Self {
        match error {
            FundingError::Store(error) => error.into(),
            error @ (FundingError::Transfer(_) | FundingError::Refused(_)) => Self::internal(error),
        }
    }
}

fn document(wallet: WalletRow, now: Timestamp) -> Result<WalletDocument, OutOfRange> {
    let of = |kind: AccountKind| {
        let rows = wallet.balances.iter().filter(move |row| row.kind == kind);
        Micros::checked_sum(rows.map(|row| row.posted_micros))
    };
    let (cash, credit) = (of(AccountKind::WalletCash)?, of(AccountKind::WalletPromo)?);
    let held = Micros::checked_sum(wallet.balances.iter().map(|row| row.held_micros))?;
    // Computed when the burn last changed; what is further away than anyone forecasts has no end.
    let endless = now.plus_seconds(HORIZON_SECONDS / 2);
    let ends = wallet.burning.iter().filter(|row| row.micros_per_hour > Rate::ZERO);
    let exhausts_at = ends.filter_map(|row| row.exhausts_at.filter(|until| *until < endless)).min();
    let left = wallet.grants.iter().filter(|grant| grant.remaining_micros > Micros::ZERO);
    let expiring = left.filter_map(|grant| Some((grant.expires_at.filter(|at| *at > now)?, grant)));
    let next_expiry =
        expiring.min_by_key(|(at, grant)| (*at, &grant.id)).map(|(at, grant)| NextExpiryDocument {
            grant_id: grant.id.clone(),
            remaining: grant.remaining_micros.into(),
            expires_at: at.into(),
        });
    Ok(WalletDocument {
        available: cash.checked_add(credit)?.checked_sub(held)?.into(),
        cash: cash.into(),
        credit: credit.into(),
        held: held.into(),
        owed: wallet.owed_micros.into(),
        burn_per_hour: rate::hourly_burn(wallet.burning.iter().map(|row| row.micros_per_hour))?.into(),
        exhausts_at: exhausts_at.map(Instant),
        seconds_left: exhausts_at.map(|until| (until.micros_since(now) / 1_000_000).max(0)),
        next_expiry,
        grants: wallet.grants.into_iter().map(GrantDocument::from).collect(),
    })
}

/// What this tenant has
#[utoipa::path(get, path = "/v1/wallet", tag = "money", operation_id = "get_wallet",
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The wallet", body = WalletDocument)))]
async fn get_wallet(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
) -> ApiResult<Json<WalletDocument>> {
    let wallet = state.store.reader().await?.wallet(caller.scope()).await?;
    Ok(Json(document(wallet, state.clock.now()).map_err(ApiError::internal)?))
}
