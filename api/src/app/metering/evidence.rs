//! Usage evidence enters once, whatever is resent, and counts on the segments of its run.

use tarn_billing::evidence;
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::HostId;
use tarn_rows::TenantScope;
use tarn_rows::segments::MeterEventRow;
use tarn_store::{StoreError, Tx};

use super::{segments, stored};
use crate::app::act::Act;
use crate::app::metering::stored::corrupt;

/// Stores one piece of evidence and adds it to what its segments prove. A repeat changes nothing.
pub async fn accept(tx: &mut Tx, act: &Act, host: &HostId, usage: &UsageEvidence) -> Result<(), StoreError> {
    // A host proves what ran on it, never what ran on another.
    let lease = tx.lease_of_generation(&usage.instance_id, usage.generation).await?;
    let here = lease.is_some_and(|lease| lease.host_id == *host);
    let mut rows = Vec::new();
    for row in tx.segments_of_run(&usage.instance_id, usage.generation).await? {
        let segment = stored::segment(&row).map_err(corrupt)?;
        if here && evidence::names(usage, &segment) {
            rows.push((row, segment));
        }
    }
    let event = MeterEventRow {
        host_id: host.clone(),
        boot_id: usage.boot_id.clone(),
        seq: usage.seq,
        instance_id: usage.instance_id.clone(),
        generation: usage.generation,
        gpu_uuid: usage.primary.clone(),
        from_mono_ms: usage.from_mono_ms,
        to_mono_ms: usage.to_mono_ms,
        excused_ms: usage.excused_ms,
        segment_id: rows.first().map(|(row, _)| row.id.clone()),
        received_at: act.now,
    };
    if !tx.insert_meter_event(&event).await? {
        return Ok(());
    }
    if rows.is_empty() {
        let (instance, generation) = (&usage.instance_id, usage.generation);
        tracing::warn!(
            instance_id = %instance, %generation, seq = %usage.seq, leased_here = here,
            "usage evidence that no segment counts: its seconds are not billed"
        );
    }
    act.hit("evidence.stored");
    for (row, mut segment) in rows {
        match segment.apply(usage, act.now) {
            Ok(applied) if applied.added_ms == 0 => {}
            Ok(_) => {
                let scope = TenantScope::proven(row.tenant_id.clone());
                segments::save(tx, &scope, stored::changed(row, &segment, act.now)).await?;
            }
            Err(refused) => tracing::warn!(%refused, segment_id = %row.id, "usage evidence refused"),
        }
    }
    Ok(())
}
