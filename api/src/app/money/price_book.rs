//! Editing the price book: what a new price would do, said before anything is written, and the edit itself.
//!
//! A preview carries a fingerprint of the picture that it shows: the offer's prices, the wanted one, and every segment that runs at
//! the offer. The edit takes that fingerprint and is refused if the picture is another one by then, so nobody edits on what they did
//! not see. How long each tenant's money lasts is not in it: that moves with every second.

use std::collections::BTreeMap;

use serde_json::json;
use tarn_billing::price::{InvalidPrice, Price, PriceBook, PriceVersion};
use tarn_billing::price_change::{Impact, impact};
use tarn_billing::rate::Rate;
use tarn_billing::segment::Segment;
use tarn_protocol::ids::{OfferId, SegmentId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::offers::PriceRow;
use tarn_rows::segments::SegmentRow;
use tarn_rows::storage::StorageSegmentRow;
use tarn_rows::{Page, TenantScope};
use tarn_store::{StoreError, Tx};

use crate::app::metering::purse::{self, CorruptMoney, Purse};
use crate::app::metering::storage;
use crate::app::operators::log::{self, By, Deed};
use crate::auth::secret;
use crate::state::AppState;

const SEGMENTS_PER_READ: u32 = 1000;

#[derive(Debug, thiserror::Error)]
pub enum AppendPriceError {
    #[error("no such offer")]
    UnknownOffer,
    #[error("the prices, or what runs at them, are not what the preview showed")]
    Stale,
    #[error(transparent)]
    Price(#[from] InvalidPrice),
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A price that an operator wants.
#[derive(Debug, Clone)]
pub struct NewPrice {
    pub offer_id: OfferId,
    pub rate: Rate,
    /// `None`: at once.
    pub effective_from: Option<Timestamp>,
}

/// What a new price would do.
#[derive(Debug)]
pub struct Preview {
    /// In force just before the new one.
    pub before: Option<Price>,
    pub price: Price,
    pub fingerprint: String,
    pub tenants: BTreeMap<TenantId, Impact>,
    pub now: Timestamp,
}

/// The offer's book before and after the wanted price, and what runs at the offer now.
struct Picture {
    book: PriceBook,
    changed: PriceBook,
    price: Price,
    running: Vec<Running>,
    fingerprint: String,
}

/// An open segment, of a card or of a disk.
struct Running {
    id: SegmentId,
    tenant_id: TenantId,
    version: PriceVersion,
    /// Of the whole thing.
    rate: Rate,
}

impl Picture {
    async fn read(tx: &mut Tx, wanted: &NewPrice, now: Timestamp) -> Result<Self, AppendPriceError> {
        if !storage::sku(&wanted.offer_id) {
            tx.offer(&wanted.offer_id).await?.ok_or(AppendPriceError::UnknownOffer)?;
        }
        let book = PriceBook::from_stored(tx.prices().await?.into_iter().map(purse::price))?;
        let mut changed = book.clone();
        let from = wanted.effective_from.unwrap_or(now);
        let price = changed.append(&wanted.offer_id, wanted.rate, from, now)?;
        let running = running_at(tx, &wanted.offer_id).await?;
        let fingerprint = fingerprint(book.versions(&wanted.offer_id), wanted, &running);
        Ok(Self { book, changed, price, running, fingerprint })
    }
}

async fn running_at(tx: &mut Tx, offer_id: &OfferId) -> Result<Vec<Running>, StoreError> {
    let mut running: Vec<Running> = Vec::new();
    loop {
        let page = Page { after: running.last().map(|segment| &segment.id), limit: SEGMENTS_PER_READ };
        let rows: Vec<Running> = if storage::sku(offer_id) {
            tx.open_storage_of_sku(offer_id, page).await?.into_iter().map(Running::from).collect()
        } else {
            tx.open_segments_of_sku(offer_id, page).await?.into_iter().map(Running::from).collect()
        };
        if rows.is_empty() {
            return Ok(running);
        }
        running.extend(rows);
    }
}

impl From<SegmentRow> for Running {
    fn from(row: SegmentRow) -> Self {
        Self { id: row.id, tenant_id: row.tenant_id, version: row.price_version, rate: row.micros_per_hour }
    }
}

impl From<StorageSegmentRow> for Running {
    fn from(row: StorageSegmentRow) -> Self {
        Self { id: row.id, tenant_id: row.tenant_id, version: row.price_version, rate: row.micros_per_hour }
    }
}

fn fingerprint(prices: &[Price], wanted: &NewPrice, running: &[Running]) -> String {
    let running: Vec<_> =
        running.iter().map(|segment| (&segment.id, segment.version, segment.rate)).collect();
    let from = wanted.effective_from.map(Timestamp::as_micros);
    let picture = json!([prices, wanted.offer_id, wanted.rate, from, running]);
    secret::digest(picture.to_string()).as_str().to_owned()
}

/// What `wanted` would do to everything that runs now. Nothing is written.
pub async fn preview(tx: &mut Tx, wanted: &NewPrice, now: Timestamp) -> Result<Preview, AppendPriceError> {
    let Picture { book, changed, price, running, fingerprint } = Picture::read(tx, wanted, now).await?;
    let mut tenants = BTreeMap::new();
    for tenant_id in running.into_iter().map(|row| row.tenant_id) {
        if tenants.contains_key(&tenant_id) {
            continue;
        }
        let purse = Purse::load(tx, &TenantScope::proven(tenant_id.clone()), now).await?;
        let segments: Vec<Segment> = purse.costing().cloned().collect();
        let impact = impact(&segments, (&book, &changed), &price, &purse.funds, now);
        tenants.insert(tenant_id, impact.map_err(CorruptMoney::from)?);
    }
    let before = book.at(&price.offer_id, price.effective_from).cloned();
    Ok(Preview { before, price, fingerprint, tenants, now })
}

/// Appends the price whose preview showed `fingerprint`. Open segments are split there by settlement.
pub async fn append(
    state: &AppState,
    wanted: NewPrice,
    fingerprint: String,
    (by, operator): (By, UserId),
) -> Result<PriceRow, AppendPriceError> {
    let now = state.clock.now();
    let appended = state.store.write(move |tx| {
        Box::pin(async move {
            let picture = Picture::read(tx, &wanted, now).await?;
            if picture.fingerprint != fingerprint {
                return Err(AppendPriceError::Stale);
            }
            let row = PriceRow {
                version: picture.price.version,
                sku: picture.price.offer_id,
                micros_per_hour: picture.price.rate,
                effective_from: picture.price.effective_from,
                created_by: Some(operator),
                created_at: now,
            };
            tx.append_price(&row).await?;
            let before = picture.book.at(&row.sku, row.effective_from);
            let detail = json!({
                "version": row.version, "price_per_hour": row.micros_per_hour, "effective_from": row.effective_from.as_micros(),
                "price_before": before.map(|price| price.rate), "segments": picture.running.len(), "fingerprint": fingerprint,
            });
            log::record(tx, &by, now, Deed::AppendPrice, (&row.sku, detail)).await?;
            Ok(row)
        })
    });
    appended.await
}
