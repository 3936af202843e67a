//! Segments of disks.

use tarn_billing::money::Micros;
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::CloseReason;
use tarn_protocol::ids::{InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::{Generation, Timestamp};

use crate::stored::rows;

rows! {
    StorageSegmentRow / StorageSegmentRaw {
        id: SegmentId,
        tenant_id: TenantId,
        instance_id: InstanceId,
        /// The run that first showed it.
        generation: Generation,
        sku: OfferId,
        gib: u32,
        price_version: PriceVersion,
        /// Of all of it.
        micros_per_hour: Rate,
        started_at: Timestamp,
        /// `None`: open.
        ended_at: Option<Timestamp>,
        close_reason: Option<CloseReason>,
        /// What of it is in the ledger.
        settled_seconds: Seconds,
        settled_micros: Micros,
        /// Guard of every update.
        row_version: i64,
        exhausts_at: Option<Timestamp>,
        updated_at: Timestamp,
    }
}
