//! Promises of ours that were not kept, with what proves it.

use serde_json::Value;
use tarn_billing::money::Micros;
use tarn_billing::rate::Rate;
use tarn_billing::sla::IncidentKind;
use tarn_protocol::ids::{EventId, GrantId, HostId, IncidentId, InstanceId, TenantId};
use tarn_protocol::units::{Generation, Timestamp};

use crate::stored::{Json, rows, stored_text};

stored_text!(IncidentKind);

rows! {
    IncidentRow / IncidentRaw {
        id: IncidentId,
        tenant_id: TenantId,
        instance_id: InstanceId,
        host_id: Option<HostId>,
        kind: IncidentKind,
        generation: Generation,
        from_at: Timestamp,
        to_at: Timestamp,
        micros_per_hour: Rate,
        share_percent: u32,
        amount_micros: Micros,
        /// `None`: nothing was due.
        grant_id: Option<GrantId>,
        evidence: Json<Value>,
        created_at: Timestamp,
    }
    /// A time in which a host was silent.
    SilenceRow / SilenceRaw {
        alert_id: EventId,
        host_id: HostId,
        from_at: Timestamp,
        to_at: Timestamp,
    }
}
