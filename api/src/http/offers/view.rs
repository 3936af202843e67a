//! An offer as a customer reads it. Availability is a hint of the moment, not a reservation.

use std::collections::BTreeMap;

use serde::Serialize;
use tarn_protocol::hardware::LinkClass;
use tarn_protocol::ids::OfferId;
use utoipa::ToSchema;

use crate::http::amount::Amount;

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OfferDocument {
    #[schema(value_type = String, example = "pool-96")]
    pub id: OfferId,
    pub title: String,
    /// Cards behind the offer: one primary and its donors.
    pub cards: u32,
    /// Cards on the bill.
    pub metered_cards: u32,
    /// Nominal memory of one card.
    pub card_memory_bytes: u64,
    /// What a pool placed now surely has; absent while none can be placed.
    pub pool_size_bytes: Option<u64>,
    #[schema(value_type = String, example = "pcie_p2p")]
    pub link_class_min: LinkClass,
    /// Of the certified links of sets that are free now; absent for single cards and while no set is certified.
    pub links: Option<LinksDocument>,
    pub price: OfferPrice,
    pub availability: AvailabilityDocument,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OfferPrice {
    /// For the whole instance, however many cards.
    pub per_hour: Amount,
    pub version: i64,
    /// Charging starts with the first proof that the instance is ready.
    #[schema(example = "first_ready_evidence")]
    pub billing_starts: &'static str,
    pub stopped_per_hour: Amount,
}

/// From the weakest to the strongest link between a primary and a donor, as measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LinksDocument {
    #[schema(value_type = String, example = "pcie_p2p")]
    pub class_min: LinkClass,
    #[schema(value_type = String, example = "nvlink")]
    pub class_max: LinkClass,
    /// Decimal megabytes per second, as all below.
    pub read_mb_per_second_min: u64,
    pub read_mb_per_second_max: u64,
    pub write_mb_per_second_min: u64,
    pub write_mb_per_second_max: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AvailabilityDocument {
    /// How many could start now, were nothing else started.
    pub count: u32,
    /// `high` (more than 4), `low` or `none`.
    #[schema(example = "low")]
    pub level: &'static str,
    /// Why hosts cannot serve it, with the number of hosts; empty while `count` is above 0.
    #[schema(example = json!({"links_not_certified": 1}))]
    pub reasons: BTreeMap<&'static str, usize>,
    /// The same in words.
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OfferList {
    pub items: Vec<OfferDocument>,
}

/// What a start would get now; nothing was rented.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DryRunDocument {
    #[schema(value_type = String)]
    pub offer_id: OfferId,
    /// Whether cards would be found.
    pub placeable: bool,
    /// Whether the wallet covers an hour of everything that would run.
    pub affordable: bool,
    pub pool_size_bytes: Option<u64>,
    pub links: Option<LinksDocument>,
    pub price: OfferPrice,
    pub available: Amount,
    pub quota_charge: QuotaCharge,
    #[schema(example = json!({"in_use": 1}))]
    pub reasons: BTreeMap<&'static str, usize>,
    pub detail: Option<String>,
    pub alternatives: Vec<AlternativeDocument>,
}

/// Every card of a pool counts in the quota; the bill counts `metered_cards`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QuotaCharge {
    pub cards: u32,
    pub memory_bytes: u64,
    pub metered_cards: u32,
}

/// Another offer that could start now.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AlternativeDocument {
    #[schema(value_type = String)]
    pub offer_id: OfferId,
    pub per_hour: Amount,
    /// Weakest link it may get; absent for single cards.
    #[schema(value_type = Option<String>)]
    pub link_class: Option<LinkClass>,
    pub count: u32,
}
