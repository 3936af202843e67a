//! Disks as items of the bill.
//!
//! An instance's disk is its home directory, of the size chosen when it was created. It is charged from the first proof that it is
//! usable (the first ready evidence) until its deletion is accepted, also while the instance is stopped or its host is silent; a start
//! that never became ready leaves nothing to charge, and a disk that is lost with its host ends there. When the money ends, so does
//! the charge: the disk is kept for [`KEPT_SECONDS`] and charged again once there is money for an hour, or else goes with its instance.
//!
//! The price book has two SKUs, per GiB-hour: the first [`INCLUDED_GIB`] are `disk-included`, the rest is `disk`. Each is a segment of
//! its own in `storage_segments`, with its own price version, settled by the same writer and the same cumulative floor as cards. To
//! derive a charge again, take `floor(micros_per_hour x whole seconds from started_at to ended_at / 3600)`: no evidence is needed,
//! because the control plane itself witnessed both instants.
//!
//! The size is charged as chosen, not as used, and hosts do not enforce it yet: the API says so (`disk.enforced`).

use tarn_billing::meter::Meter;
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::price::PriceBook;
use tarn_billing::rate::{Rate, hourly_burn};
use tarn_billing::segment::{Anchor, CloseReason, Segment, SegmentState, SegmentTerms};
use tarn_protocol::ids::{OfferId, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::instances::InstanceRow;
use tarn_rows::storage::StorageSegmentRow;
use tarn_store::{StoreError, Tx};

use super::purse::{CorruptMoney, Purse};
use super::stored::{self, corrupt};
use crate::app::act::Act;

/// The SKU of the first gibibytes of every disk, and how many they are.
pub const INCLUDED: &str = "disk-included";
pub const INCLUDED_GIB: u32 = 20;
/// The SKU of what is above.
pub const ADDITIONAL: &str = "disk";
pub const GIB_MAX: u32 = 16_384;
/// How long a disk that nobody pays for is kept: seven days.
pub const KEPT_SECONDS: i64 = 7 * 86_400;

/// What the price book has for disks at first, per GiB-hour: nothing for what is included, 0.0005 CNY (0.365 a month) for the rest.
pub const FIRST_PRICES: [(&str, Micros); 2] = [(INCLUDED, Micros::ZERO), (ADDITIONAL, Micros::new(500))];

/// Whether the price book prices disks under this name.
pub fn sku(id: &OfferId) -> bool {
    [INCLUDED, ADDITIONAL].contains(&id.as_str())
}

/// The SKUs of a disk with the GiB of each.
fn parts(gib: u32) -> Vec<(OfferId, u32)> {
    let name = |text: &str| text.parse().expect("the names of disks are legal");
    let included = gib.min(INCLUDED_GIB);
    let parts = [(name(INCLUDED), included), (name(ADDITIONAL), gib - included)];
    parts.into_iter().filter(|(_, gib)| *gib > 0).collect()
}

/// What an hour of a disk of this size costs at `at`.
pub fn hourly(book: &PriceBook, gib: u32, at: Timestamp) -> Result<Micros, OutOfRange> {
    let rate = |(sku, gib): (OfferId, u32)| {
        let price = book.at(&sku, at).map_or(Rate::ZERO, |price| price.rate);
        price.times(gib).map_err(|_| OutOfRange)
    };
    hourly_burn(parts(gib).into_iter().map(rate).collect::<Result<Vec<_>, _>>()?)
}

/// What a start would add to the burn for its disk: nothing if that is charged already.
pub async fn starting(
    tx: &mut Tx,
    book: &PriceBook,
    instance: &InstanceRow,
    at: Timestamp,
) -> Result<Micros, CorruptMoney> {
    let scope = TenantScope::proven(instance.tenant_id.clone());
    if tx.open_storage_segments_of_instance(&scope, &instance.id).await?.is_empty() {
        Ok(hourly(book, instance.spec.0.disk_gib, at)?)
    } else {
        Ok(Micros::ZERO)
    }
}

/// Whether something is charged for the disk of an instance now.
pub async fn charged(tx: &mut Tx, scope: &TenantScope, instance: &InstanceRow) -> Result<bool, StoreError> {
    let open = tx.open_storage_segments_of_instance(scope, &instance.id).await?;
    Ok(open.iter().any(|row| row.micros_per_hour > Rate::ZERO))
}

/// Charges an instance's disk from `at` on, unless it is charged already.
pub async fn open(
    tx: &mut Tx,
    act: &mut Act,
    instance: &InstanceRow,
    at: Timestamp,
) -> Result<(), StoreError> {
    let scope = TenantScope::proven(instance.tenant_id.clone());
    let open = tx.open_storage_segments_of_instance(&scope, &instance.id).await?;
    let newest = tx.newest_storage_segment_of_instance(&scope, &instance.id).await?;
    let at = newest.and_then(|row| row.ended_at).map_or(at, |ended| ended.max(at));
    for (sku, gib) in parts(instance.spec.0.disk_gib) {
        if open.iter().any(|row| row.sku == sku) {
            continue;
        }
        let Some(price) = tx.price_at(&sku, at).await? else {
            tracing::error!(instance_id = %instance.id, %sku, "a disk without a price, unbilled");
            continue;
        };
        let meter = Meter::Disk { gib };
        let segment = Segment::open(SegmentTerms {
            id: SegmentId::new(at, act.bits()),
            tenant_id: instance.tenant_id.clone(),
            instance_id: instance.id.clone(),
            generation: instance.generation,
            offer_id: sku,
            rate: meter.rate_at(price.micros_per_hour).map_err(corrupt)?,
            meter,
            price_version: price.version,
            anchor: Anchor::of_control_plane(at),
        });
        tx.insert_storage_segment(&scope, &stored::storage_row(&segment, act.now).map_err(corrupt)?).await?;
        act.rearm.insert(instance.tenant_id.clone());
    }
    Ok(())
}

/// Ends what is charged for an instance's disk at `at`.
pub async fn close(
    tx: &mut Tx,
    act: &mut Act,
    instance: &InstanceRow,
    at: Timestamp,
    reason: CloseReason,
) -> Result<(), StoreError> {
    let scope = TenantScope::proven(instance.tenant_id.clone());
    for row in tx.open_storage_segments_of_instance(&scope, &instance.id).await? {
        let segment = stored::storage_segment(&row).map_err(corrupt)?;
        end(tx, &scope, row, segment, (at, reason), act.now).await?;
        act.rearm.insert(instance.tenant_id.clone());
    }
    Ok(())
}

async fn end(
    tx: &mut Tx,
    scope: &TenantScope,
    row: StorageSegmentRow,
    segment: Segment,
    (at, reason): (Timestamp, CloseReason),
    now: Timestamp,
) -> Result<(), StoreError> {
    let closed = segment.end(Some(at), None, reason, now).map_err(corrupt)?;
    save(tx, scope, stored::storage_changed(row, &closed, now)).await
}

/// Ends every charge for a disk of a tenant whose money ended at `until`; how many there were. What is free goes on.
pub async fn close_exhausted(
    tx: &mut Tx,
    scope: &TenantScope,
    purse: &Purse,
    until: Timestamp,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let mut closed = 0;
    for (row, segment) in &purse.disks {
        if segment.state() == SegmentState::Open && segment.terms().rate > Rate::ZERO {
            let ending = (until, CloseReason::BalanceExhausted);
            end(tx, scope, row.clone(), segment.clone(), ending, now).await?;
            closed += 1;
        }
    }
    Ok(closed)
}

/// Charges kept disks again, once there is money for an hour of everything; whether there were any.
pub async fn resume(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    purse: &Purse,
) -> Result<bool, CorruptMoney> {
    let mut resumed = false;
    for id in tx.unpaid_disks(scope).await? {
        let Some(instance) = tx.instance(scope, &id).await? else { continue };
        let wanted = hourly(&purse.book, instance.spec.0.disk_gib, act.now)?;
        let burning = hourly_burn(purse.burning())?;
        let available = purse.funds.available(act.now).checked_sub(purse.accrued)?;
        if available >= burning.checked_add(wanted)? {
            open(tx, act, &instance, act.now).await?;
            resumed = true;
        }
    }
    Ok(resumed)
}

/// Writes a changed segment, or makes the whole transaction try again when someone else changed it meanwhile.
pub async fn save(tx: &mut Tx, scope: &TenantScope, row: StorageSegmentRow) -> Result<(), StoreError> {
    if tx.update_storage_segment(scope, &row).await? { Ok(()) } else { Err(tx.stale()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_billing::price::PriceBook;

    #[test]
    fn the_first_gibibytes_are_included_and_the_rest_is_charged() {
        let at = Timestamp::from_micros(0);
        let mut book = PriceBook::default();
        for (sku, micros) in FIRST_PRICES {
            book.append(&sku.parse().unwrap(), Rate::per_hour(micros).unwrap(), at, at).unwrap();
        }
        for (gib, micros) in [(1, 0), (20, 0), (21, 500), (50, 15_000), (GIB_MAX, 8_182_000)] {
            assert_eq!(hourly(&book, gib, at), Ok(Micros::new(micros)), "{gib}");
        }
        let named: Vec<(String, u32)> =
            parts(50).into_iter().map(|(sku, gib)| (sku.to_string(), gib)).collect();
        assert_eq!(named, [("disk-included".to_owned(), 20), ("disk".to_owned(), 30)]);
        assert_eq!(parts(5).len(), 1);
    }
}
