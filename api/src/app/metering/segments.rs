//! Segments open with the first ready evidence and end with the instance's right to run.

use tarn_billing::meter::Meter;
use tarn_billing::segment::{Anchor, CloseReason, Heard, Segment, SegmentTerms};
use tarn_protocol::ids::{GpuUuid, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::instances::InstanceRow;
use tarn_rows::segments::SegmentRow;
use tarn_store::{StoreError, Tx};

use super::stored;
use crate::app::act::Act;
use crate::app::metering::stored::corrupt;

/// Opens the one segment of an instance's run, on the primary's UUID, at the price in force then.
pub async fn open(
    tx: &mut Tx,
    act: &mut Act,
    instance: &InstanceRow,
    primary: GpuUuid,
    anchor: Anchor,
) -> Result<(), StoreError> {
    let scope = TenantScope::proven(instance.tenant_id.clone());
    let Some(price) = tx.price_at(&instance.offer_id, anchor.at).await? else {
        tracing::error!(instance_id = %instance.id, offer_id = %instance.offer_id, "runs without a price, unbilled");
        return Ok(());
    };
    let segment = Segment::open(SegmentTerms {
        id: SegmentId::new(anchor.at, act.bits()),
        tenant_id: instance.tenant_id.clone(),
        instance_id: instance.id.clone(),
        generation: instance.generation,
        offer_id: instance.offer_id.clone(),
        meter: Meter::Card(primary),
        price_version: price.version,
        rate: price.micros_per_hour,
        anchor,
    });
    act.hit("open.before_insert");
    tx.insert_segment(&scope, &stored::row(&segment, act.now).map_err(corrupt)?).await?;
    act.hit("open.inserted");
    act.rearm.insert(instance.tenant_id.clone());
    Ok(())
}

/// Ends the instance's open segment at `at`, or at its last good evidence. Evidence for what lies before may still arrive.
pub async fn close(
    tx: &mut Tx,
    act: &mut Act,
    instance: &InstanceRow,
    at: Option<Timestamp>,
    reason: CloseReason,
) -> Result<(), StoreError> {
    let scope = TenantScope::proven(instance.tenant_id.clone());
    let Some(row) = tx.open_segment_of_instance(&scope, &instance.id).await? else { return Ok(()) };
    let heard = heard(tx, instance, &row).await?;
    let segment = stored::segment(&row).map_err(corrupt)?;
    let closed = segment.end(at, heard, reason, act.now).map_err(corrupt)?;
    act.hit("close.before_save");
    save(tx, &scope, stored::changed(row, &closed, act.now)).await?;
    act.hit("close.saved");
    act.rearm.insert(instance.tenant_id.clone());
    Ok(())
}

/// What the segment's boot last said of its clock.
async fn heard(tx: &mut Tx, instance: &InstanceRow, row: &SegmentRow) -> Result<Option<Heard>, StoreError> {
    let Some(host_id) = &instance.host_id else { return Ok(None) };
    let boots = tx.host_boots(host_id).await?;
    let boot = boots.into_iter().find(|boot| boot.boot_id == row.boot_id);
    Ok(boot.map(|boot| Heard { at: boot.last_at, mono_ms: boot.last_mono_ms }))
}

/// Writes a changed segment, or makes the whole transaction try again when someone else changed it meanwhile.
pub async fn save(tx: &mut Tx, scope: &TenantScope, row: SegmentRow) -> Result<(), StoreError> {
    if tx.update_segment(scope, &row).await? { Ok(()) } else { Err(tx.stale()) }
}
