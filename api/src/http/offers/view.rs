//! An offer as a customer reads it. Availability is a hint of the moment, not a reservation.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OfferView {
    #[schema(example = "pool-96")]
    pub id: String,
    pub title: String,
    /// Cards behind the offer: one primary and its donors.
    pub cards: u32,
    /// Cards on the bill.
    pub metered_cards: u32,
    /// Nominal memory of one card.
    pub card_memory_bytes: u64,
    /// What a pool placed now surely has; absent while none can be placed.
    pub pool_size_bytes: Option<u64>,
    pub link_class_min: String,
    /// Measured on the sets that are free now; absent for single cards and while no set is certified.
    pub links: Option<LinksView>,
    pub price: OfferPrice,
    pub availability: AvailabilityView,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OfferPrice {
    /// Decimal string; for the whole instance, however many cards.
    #[schema(example = "2.40")]
    pub per_hour: String,
    #[schema(example = "CNY")]
    pub currency: String,
    pub version: i64,
    /// Billing starts with the first proof that the instance is ready.
    #[schema(example = "first_ready_evidence")]
    pub billing_starts: String,
    #[schema(example = "0.00")]
    pub stopped_per_hour: String,
}

/// From the weakest to the strongest link between a primary and a donor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LinksView {
    pub class_min: String,
    pub class_max: String,
    pub read_mb_per_second_min: u64,
    pub read_mb_per_second_max: u64,
    pub write_mb_per_second_min: u64,
    pub write_mb_per_second_max: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AvailabilityView {
    /// How many could start now, were nothing else started.
    pub count: u32,
    /// `high` (more than 4), `low` or `none`.
    pub level: String,
    /// Why hosts cannot serve it, with the number of hosts; empty while `count` is above 0.
    pub reasons: BTreeMap<String, usize>,
    /// The same in words.
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OfferList {
    pub items: Vec<OfferView>,
}

/// What a start would get now; nothing was rented.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DryRunView {
    pub offer_id: String,
    pub placeable: bool,
    pub pool_size_bytes: Option<u64>,
    pub links: Option<LinksView>,
    pub price: OfferPrice,
    /// What the wallet must hold to start: an hour of all that would run.
    pub required_to_start: Option<String>,
    pub available: Option<String>,
    /// What the start takes out of the quota.
    pub quota: QuotaChargeView,
    pub reasons: BTreeMap<String, usize>,
    pub detail: Option<String>,
    pub alternatives: Vec<AlternativeView>,
}

/// Every card of a pool counts in the quota; the bill counts `metered_cards`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QuotaChargeView {
    pub cards: u32,
    pub memory_bytes: u64,
    pub metered_cards: u32,
}

/// Another offer that could start now.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AlternativeView {
    pub offer_id: String,
    pub per_hour: String,
    pub currency: String,
    pub link_class: String,
    pub count: u32,
}
