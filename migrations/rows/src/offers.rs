//! Sellable shapes and their prices.

use tarn_billing::price::PriceVersion;
use tarn_billing::rate::Rate;
use tarn_protocol::hardware::LinkClass;
use tarn_protocol::ids::{OfferId, UserId};
use tarn_protocol::units::{Bytes, Timestamp};

use crate::stored::rows;

rows! {
    OfferRow / OfferRaw {
        id: OfferId,
        title: String,
        cards: u32,
        metered_cards: u32,
        /// Nominal memory of one card of this shape.
        card_memory_bytes: Bytes,
        /// `None`: any model of that memory.
        model_contains: Option<String>,
        link_class_min: LinkClass,
        listed: bool,
        created_at: Timestamp,
    }
    /// One line of one version of the price book.
    PriceRow / PriceRaw {
        /// 1, 2, 3 … for each offer.
        version: PriceVersion,
        sku: OfferId,
        micros_per_hour: Rate,
        effective_from: Timestamp,
        created_by: Option<UserId>,
        created_at: Timestamp,
    }
}
