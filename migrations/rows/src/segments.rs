//! Billable intervals and the evidence for them.

use tarn_billing::coverage::Coverage;
use tarn_billing::meter::Item;
use tarn_billing::money::Micros;
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::CloseReason;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};

use crate::stored::{Json, rows};

rows! {
    SegmentRow / SegmentRaw {
        id: SegmentId,
        tenant_id: TenantId,
        instance_id: InstanceId,
        generation: Generation,
        sku: OfferId,
        /// Always the primary.
        meter_gpu_uuid: GpuUuid,
        price_version: PriceVersion,
        micros_per_hour: Rate,
        boot_id: BootId,
        /// The host's clock at `started_at`.
        anchor_mono_ms: MonoMillis,
        started_at: Timestamp,
        /// `None`: open.
        ended_at: Option<Timestamp>,
        close_reason: Option<CloseReason>,
        covered: Json<Coverage>,
        /// What of it is in the ledger.
        settled_seconds: Seconds,
        settled_micros: Micros,
        /// Guard of every update.
        row_version: i64,
        /// The paid-until instant last published to the host.
        run_until_mono_ms: Option<MonoMillis>,
        exhausts_at: Option<Timestamp>,
        updated_at: Timestamp,
    }
    MeterEventRow / MeterEventRaw {
        host_id: HostId,
        boot_id: BootId,
        seq: Sequence,
        instance_id: InstanceId,
        generation: Generation,
        gpu_uuid: GpuUuid,
        from_mono_ms: MonoMillis,
        to_mono_ms: MonoMillis,
        excused_ms: u64,
        segment_id: Option<SegmentId>,
        received_at: Timestamp,
    }
    /// Proven seconds of an ended segment that money did not reach.
    WaivedRow / WaivedRaw {
        segment_id: SegmentId,
        /// Charged to nobody.
        seconds: Seconds,
        /// Charged to the receivable.
        owed_seconds: Seconds,
    }
}

/// Which segments a bill shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeFilter {
    pub item: Option<Item>,
    pub instance_id: Option<InstanceId>,
    /// Of the instance, as it is now.
    pub label: Option<String>,
    /// Segments with a moment in half-open `[from, to)`.
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Default for ChargeFilter {
    /// Everything.
    fn default() -> Self {
        let (from, to) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));
        Self { item: None, instance_id: None, label: None, from, to }
    }
}
