//! Usage evidence as hosts sent it, each piece once. For agents' calls and audits.

use sqlx::{query, query_as};
use tarn_protocol::ids::{InstanceId, SegmentId};
use tarn_protocol::units::{BootId, Generation, MonoMillis};
use tarn_rows::segments::{MeterEventRaw, MeterEventRow};

use super::{Conn, Result, put, take_all};

/// `false`: this piece is known already.
pub async fn insert_meter_event(conn: &mut Conn, event: &MeterEventRow) -> Result<bool> {
    let row = put(event)?;
    let done = query!(
        "INSERT INTO meter_events (host_id, boot_id, seq, instance_id, generation, gpu_uuid, from_mono_ms,
             to_mono_ms, excused_ms, segment_id, received_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (host_id, boot_id, seq) DO NOTHING",
        row.host_id,
        row.boot_id,
        row.seq,
        row.instance_id,
        row.generation,
        row.gpu_uuid,
        row.from_mono_ms,
        row.to_mono_ms,
        row.excused_ms,
        row.segment_id,
        row.received_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Evidence of one run that touches `[from, to)` of one boot's clock, in order of that clock.
pub async fn meter_events_between(
    conn: &mut Conn,
    (instance, generation): (&InstanceId, Generation),
    boot: &BootId,
    from: MonoMillis,
    to: MonoMillis,
) -> Result<Vec<MeterEventRow>> {
    let (from, to) = (put(&from)?, put(&to)?);
    let raws = query_as!(
        MeterEventRaw,
        "SELECT host_id, boot_id, seq, instance_id, generation, gpu_uuid, from_mono_ms, to_mono_ms, excused_ms,
             segment_id, received_at
         FROM meter_events
         WHERE instance_id = $1 AND generation = $2 AND boot_id = $3 AND from_mono_ms < $5 AND to_mono_ms > $4
         ORDER BY from_mono_ms, seq",
        instance.as_str(),
        generation.get(),
        boot.as_str(),
        from,
        to
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Evidence of one run that excuses time, in order of the host's clock.
pub async fn meter_events_excusing(
    conn: &mut Conn,
    instance: &InstanceId,
    generation: Generation,
) -> Result<Vec<MeterEventRow>> {
    let raws = query_as!(
        MeterEventRaw,
        "SELECT host_id, boot_id, seq, instance_id, generation, gpu_uuid, from_mono_ms, to_mono_ms, excused_ms,
             segment_id, received_at
         FROM meter_events WHERE instance_id = $1 AND generation = $2 AND excused_ms > 0 ORDER BY boot_id, from_mono_ms, seq",
        instance.as_str(),
        generation.get()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn meter_events_of_segment(conn: &mut Conn, segment: &SegmentId) -> Result<Vec<MeterEventRow>> {
    let raws = query_as!(
        MeterEventRaw,
        "SELECT host_id, boot_id, seq, instance_id, generation, gpu_uuid, from_mono_ms, to_mono_ms, excused_ms,
             segment_id, received_at
         FROM meter_events WHERE segment_id = $1 ORDER BY boot_id, from_mono_ms, seq",
        segment.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}
