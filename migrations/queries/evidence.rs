//! Usage evidence as hosts sent it, each piece once. For agents' calls and audits.

use sqlx::{query, query_as};
use tarn_protocol::ids::SegmentId;
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
