//! What a tenant wants to spend at most.

use tarn_billing::cap::Period;
use tarn_billing::money::Micros;
use tarn_protocol::ids::{SegmentId, SpendCapId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::stored::{rows, stored_text, words};

words! {
    /// Whose spending a cap limits.
    CapSubject {
        /// All of the tenant's.
        Tenant = "tenant",
        /// Of instances that one API key made.
        ApiKey = "api_key",
        /// Of instances with one label.
        Label = "label",
    }
}

stored_text!(Period);

rows! {
    SpendCapRow / SpendCapRaw {
        id: SpendCapId,
        tenant_id: TenantId,
        period: Period,
        subject_kind: CapSubject,
        /// A key's id, a label, or nothing.
        subject: String,
        limit_micros: Micros,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
    /// Whose instance a segment bills.
    SegmentOwnerRow / SegmentOwnerRaw {
        segment_id: SegmentId,
        created_by: Option<String>,
        label: String,
    }
}
