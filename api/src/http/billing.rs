//! `/v1/billing`: what was charged, cut at the boundaries of UTC's hours, days, weeks, months or years.
//!
//! Buckets are made of the same settled seconds as the lines of `/v1/charges`, each the difference of two cumulative floors, so over
//! any range that holds them whole they sum to the lines, to the micro. Instances that are gone are in them like any other.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tarn_billing::charge::{self, Bucket, BucketWidth, InvalidBuckets};
use tarn_billing::meter::Item;
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::segment::Segment;
use tarn_protocol::ids::{InstanceId, OfferId};
use tarn_rows::Page as Rows;
use tarn_rows::segments::ChargeFilter;
use tarn_store::StoreError;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::money::charges;
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::query::Query;
use crate::http::format::Format;
use crate::http::instant::Instant;
use crate::http::table::Table;
use crate::state::AppState;

/// Most segments in one answer.
const SEGMENTS_MAX: u32 = 20_000;
/// Most segments times buckets that one answer looks at.
const WORK_MAX: usize = 20_000_000;
/// How far back the default range goes.
const DAYS_DEFAULT: i64 = 30;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get_billing))
        .routes(routes!(get_billing_of_instances))
        .routes(routes!(get_billing_of_volumes))
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BillingQuery {
    /// `hour`, `day`, `week` (from Monday), `month` or `year`, in UTC.
    #[param(example = "day")]
    bucket: Option<String>,
    /// Default: 30 days before `to`.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Instant>,
    /// Default: now.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Instant>,
    /// `none`, `item`, `sku`, `instance` or `label`.
    #[param(example = "label")]
    group_by: Option<String>,
    /// Only this instance.
    #[param(value_type = Option<String>)]
    instance_id: Option<InstanceId>,
    /// Only instances that have this label now.
    label: Option<String>,
    /// `json` or `csv`; otherwise `Accept` decides.
    format: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupBy {
    None,
    Item,
    Sku,
    Instance,
    Label,
}

impl GroupBy {
    const ALL: [(&'static str, Self); 5] = [
        ("none", Self::None),
        ("item", Self::Item),
        ("sku", Self::Sku),
        ("instance", Self::Instance),
        ("label", Self::Label),
    ];
}

/// What all groups have in common is left out of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
struct GroupKey {
    /// `gpu` or `disk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    item: Option<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    sku: Option<OfferId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    instance_id: Option<InstanceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

/// What half-open `[starts_at, ends_at)` cost.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct BucketDocument {
    starts_at: Instant,
    ends_at: Instant,
    /// Over all items of the group.
    seconds: i64,
    amount: Amount,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct GroupDocument {
    #[serde(flatten)]
    key: GroupKey,
    seconds: i64,
    amount: Amount,
    /// In order of time; those without a charge are left out.
    buckets: Vec<BucketDocument>,
}

/// Settled charges of a range.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct BillingDocument {
    #[schema(example = "day")]
    bucket: &'static str,
    from: Instant,
    to: Instant,
    seconds: i64,
    /// The sum of all groups, and of all their buckets.
    amount: Amount,
    groups: Vec<GroupDocument>,
}

/// A question, checked.
#[derive(Debug)]
struct Asked {
    width: BucketWidth,
    group_by: GroupBy,
    filter: ChargeFilter,
    format: Format,
}

impl Asked {
    fn of(
        query: BillingQuery,
        headers: &HeaderMap,
        state: &AppState,
        (item, by): (Option<Item>, GroupBy),
    ) -> ApiResult<Self> {
        let width = query.bucket.as_deref().unwrap_or("day").parse::<BucketWidth>();
        let width = width.map_err(|error| ApiError::invalid("?bucket", error.to_string()))?;
        let to = query.to.map_or_else(|| state.clock.now(), |Instant(at)| at);
        let from = query.from.map_or_else(|| to.plus_seconds(-DAYS_DEFAULT * 86_400), |Instant(at)| at);
        let group_by = match query.group_by.as_deref() {
            None => by,
            Some(name) => GroupBy::ALL
                .into_iter()
                .find_map(|(known, by)| (known == name).then_some(by))
                .ok_or_else(|| ApiError::invalid("?group_by", "one of none, item, sku, instance, label"))?,
        };
        let filter = ChargeFilter { item, instance_id: query.instance_id, label: query.label, from, to };
        let format = Format::wanted(query.format.as_deref(), headers, &[Format::Json, Format::Csv])?;
        Ok(Self { width, group_by, filter, format })
    }

    fn key(&self, segment: &Segment, labels: &HashMap<InstanceId, String>) -> GroupKey {
        let terms = segment.terms();
        let label = || labels.get(&terms.instance_id).cloned().unwrap_or_default();
        let none = GroupKey::default();
        match self.group_by {
            GroupBy::None => none,
            GroupBy::Item => GroupKey { item: Some(terms.meter.item()), ..none },
            GroupBy::Sku => GroupKey { sku: Some(terms.offer_id.clone()), ..none },
            GroupBy::Label => GroupKey { label: Some(label()), ..none },
            GroupBy::Instance => {
                GroupKey { instance_id: Some(terms.instance_id.clone()), label: Some(label()), ..none }
            }
        }
    }
}

/// What was charged, by item
///
/// In buckets of UTC, of cards and disks together. `group_by=label` gives cost centres. As CSV for `Accept: text/csv` or `format=csv`.
#[utoipa::path(get, path = "/v1/billing", tag = "money", operation_id = "get_billing", params(BillingQuery),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The buckets", body = BillingDocument)))]
async fn get_billing(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    headers: HeaderMap,
    Query(query): Query<BillingQuery>,
) -> ApiResult<Response> {
    let asked = Asked::of(query, &headers, &state, (None, GroupBy::Item))?;
    answer(&state, &caller, asked).await
}

/// What cards were charged, by instance
#[utoipa::path(get, path = "/v1/billing/instances", tag = "money", operation_id = "get_billing_of_instances",
    params(BillingQuery), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The buckets", body = BillingDocument)))]
async fn get_billing_of_instances(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    headers: HeaderMap,
    Query(query): Query<BillingQuery>,
) -> ApiResult<Response> {
    let asked = Asked::of(query, &headers, &state, (Some(Item::Gpu), GroupBy::Instance))?;
    answer(&state, &caller, asked).await
}

/// What disks were charged, by instance
#[utoipa::path(get, path = "/v1/billing/volumes", tag = "money", operation_id = "get_billing_of_volumes",
    params(BillingQuery), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The buckets", body = BillingDocument)))]
async fn get_billing_of_volumes(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    headers: HeaderMap,
    Query(query): Query<BillingQuery>,
) -> ApiResult<Response> {
    let asked = Asked::of(query, &headers, &state, (Some(Item::Disk), GroupBy::Instance))?;
    answer(&state, &caller, asked).await
}

async fn answer(
    state: &AppState,
    caller: &TenantCaller<may::WalletRead>,
    asked: Asked,
) -> ApiResult<Response> {
    let (scope, filter) = (caller.scope().clone(), asked.filter.clone());
    let (segments, labels) = state
        .store
        .read(move |tx| {
            Box::pin(async move {
                let segments = charges::segments(tx, &scope, &filter, Rows::first(SEGMENTS_MAX + 1)).await?;
                let labels = charges::labels(tx, &scope, filter.from, filter.to).await?;
                Ok::<_, StoreError>((segments, labels))
            })
        })
        .await?;
    if segments.len() > SEGMENTS_MAX as usize {
        return Err(too_much());
    }
    let mut groups: BTreeMap<GroupKey, Vec<Segment>> = BTreeMap::new();
    for segment in segments {
        groups.entry(asked.key(&segment, &labels)).or_default().push(segment);
    }
    let document = document(&asked, groups)?;
    Ok(match asked.format {
        Format::Csv => Format::Csv.file("billing", table(&document).csv().map_err(ApiError::internal)?),
        Format::Json | Format::Pdf => Json(document).into_response(),
    })
}

fn too_much() -> ApiError {
    ApiError::invalid(
        "?from",
        "too much for one answer: ask for a shorter range, wider buckets or one instance",
    )
}

fn document(asked: &Asked, groups: BTreeMap<GroupKey, Vec<Segment>>) -> ApiResult<BillingDocument> {
    let ChargeFilter { from, to, .. } = asked.filter;
    let mut work = 0;
    let mut cut = Vec::with_capacity(groups.len());
    for (key, segments) in groups {
        let buckets = charge::buckets(&segments, asked.width, from, to).map_err(refused)?;
        work += segments.len().saturating_mul(buckets.len());
        if work > WORK_MAX {
            return Err(too_much());
        }
        let charged: Vec<Bucket> = buckets.into_iter().filter(|bucket| bucket.seconds.get() > 0).collect();
        cut.push((key, charged));
    }
    if cut.is_empty() {
        charge::buckets(&[], asked.width, from, to).map_err(refused)?;
    }
    let sum = |buckets: &[Bucket]| -> Result<(i64, Micros), OutOfRange> {
        let amount = Micros::checked_sum(buckets.iter().map(|bucket| bucket.amount))?;
        Ok((buckets.iter().map(|bucket| bucket.seconds.get()).sum(), amount))
    };
    let mut document = BillingDocument {
        bucket: asked.width.as_str(),
        from: from.into(),
        to: to.into(),
        seconds: 0,
        amount: Micros::ZERO.into(),
        groups: Vec::with_capacity(cut.len()),
    };
    for (key, buckets) in cut {
        let (seconds, amount) = sum(&buckets).map_err(ApiError::internal)?;
        document.seconds += seconds;
        document.amount = document.amount.amount.checked_add(amount).map_err(ApiError::internal)?.into();
        let buckets = buckets.into_iter().map(bucket).collect();
        document.groups.push(GroupDocument { key, seconds, amount: amount.into(), buckets });
    }
    Ok(document)
}

fn bucket(bucket: Bucket) -> BucketDocument {
    BucketDocument {
        starts_at: bucket.starts_at.into(),
        ends_at: bucket.ends_at.into(),
        seconds: bucket.seconds.get(),
        amount: bucket.amount.into(),
    }
}

fn refused(error: InvalidBuckets) -> ApiError {
    match error {
        InvalidBuckets::Empty => ApiError::invalid("?to", "must be after from"),
        InvalidBuckets::TooMany => too_much(),
        InvalidBuckets::OutOfRange(error) => ApiError::internal(error),
    }
}

fn table(document: &BillingDocument) -> Table {
    let mut table = Table::new(&[
        "starts_at",
        "ends_at",
        "item",
        "sku",
        "instance_id",
        "label",
        "seconds",
        "amount",
        "currency",
    ]);
    for group in &document.groups {
        let key = &group.key;
        for bucket in &group.buckets {
            table.row([
                bucket.starts_at.to_string(),
                bucket.ends_at.to_string(),
                key.item.map(|item| item.to_string()).unwrap_or_default(),
                key.sku.as_ref().map(OfferId::to_string).unwrap_or_default(),
                key.instance_id.as_ref().map(InstanceId::to_string).unwrap_or_default(),
                key.label.clone().unwrap_or_default(),
                bucket.seconds.to_string(),
                bucket.amount.amount.to_string(),
                bucket.amount.currency.to_string(),
            ]);
        }
    }
    table
}
