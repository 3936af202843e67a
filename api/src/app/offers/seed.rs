//! The first offers and version 1 of the price book, stored when the database has none.

use serde::Deserialize;
use tarn_billing::money::Micros;
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::{InvalidRate, Rate};
use tarn_protocol::hardware::LinkClass;
use tarn_protocol::ids::{InvalidId, OfferId};
use tarn_protocol::units::{Bytes, Timestamp};
use tarn_rows::offers::{OfferRow, PriceRow};
use tarn_store::{Store, StoreError};

use crate::app::metering::storage;

const SEED: &str = include_str!("seed.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeededOffer {
    id: OfferId,
    title: String,
    cards: u32,
    card_memory_bytes: Bytes,
    model_contains: Option<String>,
    link_class_min: LinkClass,
    price_per_hour: Micros,
}

#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    #[error("the built-in offers are not readable")]
    Document(#[from] serde_json::Error),
    #[error(transparent)]
    Rate(#[from] InvalidRate),
    #[error(transparent)]
    Sku(#[from] InvalidId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Adds what is missing; an offer that is there, and its price, stay as they are.
pub async fn seed(store: &Store, now: Timestamp) -> Result<(), SeedError> {
    let seeded: Vec<SeededOffer> = serde_json::from_str(SEED)?;
    let mut disks = Vec::new();
    for (sku, micros) in storage::FIRST_PRICES {
        disks.push(first_price(sku.parse()?, Rate::per_hour(micros)?, now));
    }
    let rows = seeded.into_iter().map(|offer| rows(offer, now)).collect::<Result<Vec<_>, _>>()?;
    store
        .write(move |tx| {
            Box::pin(async move {
                for (offer, price) in &rows {
                    if tx.insert_offer(offer).await? {
                        tx.append_price(price).await?;
                    }
                }
                for price in &disks {
                    if tx.prices_of(&price.sku).await?.is_empty() {
                        tx.append_price(price).await?;
                    }
                }
                Ok::<_, StoreError>(())
            })
        })
        .await?;
    Ok(())
}

fn first_price(sku: OfferId, rate: Rate, now: Timestamp) -> PriceRow {
    PriceRow {
        version: PriceVersion::FIRST,
        sku,
        micros_per_hour: rate,
        effective_from: now,
        created_by: None,
        created_at: now,
    }
}

fn rows(offer: SeededOffer, now: Timestamp) -> Result<(OfferRow, PriceRow), InvalidRate> {
    let price = first_price(offer.id.clone(), Rate::per_hour(offer.price_per_hour)?, now);
    let row = OfferRow {
        id: offer.id,
        title: offer.title,
        cards: offer.cards,
        metered_cards: 1,
        card_memory_bytes: offer.card_memory_bytes,
        model_contains: offer.model_contains,
        link_class_min: offer.link_class_min,
        listed: true,
        created_at: now,
    };
    Ok((row, price))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_offers_are_readable_and_priced() {
        let seeded: Vec<SeededOffer> = serde_json::from_str(SEED).unwrap();
        let prices: Vec<(&str, i64)> =
            seeded.iter().map(|offer| (offer.id.as_str(), offer.price_per_hour.get())).collect();
        assert_eq!(prices, [("pool-96", 2_400_000), ("pool-48", 1_400_000), ("card-24", 900_000)]);
    }
}
