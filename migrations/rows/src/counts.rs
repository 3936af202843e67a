//! Sums for quotas and admin pages.

use tarn_protocol::units::Bytes;

use crate::stored::rows;

rows! {
    /// What a tenant's live leases hold.
    QuotaUse / QuotaUseRaw {
        cards: u64,
        bytes: Bytes,
    }
    FleetCounts / FleetCountsRaw {
        hosts: u64,
        hosts_cordoned: u64,
        hosts_unreachable: u64,
        gpus: u64,
        gpus_held: u64,
        gpus_quarantined: u64,
        instances_live: u64,
        segments_open: u64,
        alerts_open: u64,
        tenants: u64,
    }
}
