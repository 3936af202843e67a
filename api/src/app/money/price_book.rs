//! Appending to the price book.

use tarn_billing::price::{InvalidPrice, Price, PriceBook};
use tarn_billing::rate::Rate;
use tarn_protocol::ids::{OfferId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::offers::PriceRow;
use tarn_store::StoreError;

use crate::state::AppState;

#[derive(Debug, thiserror::Error)]
pub enum AppendPriceError {
    #[error("no such offer")]
    UnknownOffer,
    #[error(transparent)]
    Price(#[from] InvalidPrice),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A price from `effective_from` on; at once if `None`. Open segments are split there by settlement.
pub async fn append(
    state: &AppState,
    offer_id: OfferId,
    rate: Rate,
    effective_from: Option<Timestamp>,
    by: UserId,
) -> Result<PriceRow, AppendPriceError> {
    let now = state.clock.now();
    let from = effective_from.unwrap_or(now);
    let appended = state.store.write(move |tx| {
        Box::pin(async move {
            tx.offer(&offer_id).await?.ok_or(AppendPriceError::UnknownOffer)?;
            let mut book = PriceBook::from_stored(tx.prices_of(&offer_id).await?.into_iter().map(price))?;
            let price = book.append(&offer_id, rate, from, now)?;
            let row = PriceRow {
                version: price.version,
                sku: price.offer_id,
                micros_per_hour: price.rate,
                effective_from: price.effective_from,
                created_by: Some(by),
                created_at: now,
            };
            tx.append_price(&row).await?;
            Ok(row)
        })
    });
    appended.await
}

fn price(row: PriceRow) -> Price {
    Price {
        offer_id: row.sku,
        version: row.version,
        rate: row.micros_per_hour,
        effective_from: row.effective_from,
    }
}
