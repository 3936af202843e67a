//! Hosts, cards, links, and what operators and workers keep of them.

use tarn_protocol::ids::{CertificateId, EventId, GpuUuid, HostId, JoinTokenId};
use tarn_protocol::units::{BootId, Generation, Timestamp};
use tarn_rows::Page;
use tarn_rows::alerts::AlertRow;
use tarn_rows::boots::HostBootRow;
use tarn_rows::claims::ClaimRow;
use tarn_rows::counts::FleetCounts;
use tarn_rows::gpus::{GpuEventRow, GpuRow};
use tarn_rows::hosts::{HostReport, HostRow, JoinTokenRow};
use tarn_rows::leases::HeldGpuRow;
use tarn_rows::links::{CertificateRow, FleetLinkRow, ProbeOrderRow};
use tarn_rows::secrets::SecretDigest;

use super::calls;

calls! { hosts {
    insert_host(host: &HostRow) -> ();
    host(id: &HostId) -> Option<HostRow>;
    host_by_credential(credential: &SecretDigest) -> Option<HostRow>;
    hosts(page: Page<'_, HostId>) -> Vec<HostRow>;
    hosts_silent_since(before: Timestamp) -> Vec<HostRow>;
    accept_report(report: &HostReport) -> bool;
    set_host_inventory(host: &HostRow) -> bool;
    set_unreachable(id: &HostId, silent_before: Timestamp, now: Timestamp) -> bool;
    set_cordoned(id: &HostId, cordoned: bool) -> bool;
    set_host_quarantine(id: &HostId, reason: Option<&str>) -> bool;
    bump_desired_revision(id: &HostId) -> Option<i64>;
    desired_revision(id: &HostId) -> Option<i64>;
    bump_epoch(id: &HostId) -> Option<Generation>;
    rejoin_host(host: &HostRow) -> bool;
} }

calls! { join_tokens {
    insert_join_token(token: &JoinTokenRow) -> ();
    join_token(secret: &SecretDigest) -> Option<JoinTokenRow>;
    join_tokens(page: Page<'_, JoinTokenId>) -> Vec<JoinTokenRow>;
    consume_join_token(id: &JoinTokenId, host: &HostId, nonce: &str, now: Timestamp) -> bool;
} }

calls! { gpus {
    upsert_gpu(gpu: &GpuRow) -> bool;
    set_gpus_absent(host: &HostId, now: Timestamp) -> u64;
    set_gpu_health(gpu: &GpuRow) -> bool;
    set_gpu_telemetry(host: &HostId, telemetry: &tarn_protocol::control::GpuTelemetry, now: Timestamp) -> bool;
    gpu(uuid: &GpuUuid) -> Option<GpuRow>;
    gpus(page: Page<'_, GpuUuid>) -> Vec<GpuRow>;
    gpus_of_host(host: &HostId) -> Vec<GpuRow>;
    set_gpu_quarantined(uuid: &GpuUuid, quarantined: bool, now: Timestamp) -> bool;
    insert_gpu_event(event: &GpuEventRow) -> bool;
    gpu_events(page: Page<'_, EventId>) -> Vec<GpuEventRow>;
} }

calls! { links {
    insert_certificate(certificate: &CertificateRow) -> ();
    certificate(id: &CertificateId) -> Option<CertificateRow>;
    certificates(page: Page<'_, CertificateId>) -> Vec<CertificateRow>;
    certificates_of_host(host: &HostId) -> Vec<CertificateRow>;
    revoke_certificates_of_gpu(gpu: &GpuUuid, reason: &str, now: Timestamp) -> u64;
    revoke_certificate(id: &CertificateId, reason: &str, now: Timestamp) -> bool;
    insert_probe_order(order: &ProbeOrderRow) -> bool;
    probe_orders_of_host(host: &HostId) -> Vec<ProbeOrderRow>;
    delete_probe_order(from: &GpuUuid, to: &GpuUuid) -> bool;
} }

calls! { fleet {
    fleet_hosts() -> Vec<HostRow>;
    fleet_gpus() -> Vec<GpuRow>;
    fleet_links() -> Vec<FleetLinkRow>;
    fleet_held_gpus() -> Vec<HeldGpuRow>;
} }

calls! { alerts {
    open_alert(alert: &AlertRow) -> bool;
    clear_alert(kind: &str, subject: &str, now: Timestamp) -> bool;
    alerts_open(page: Page<'_, EventId>) -> Vec<AlertRow>;
    alerts(page: Page<'_, EventId>) -> Vec<AlertRow>;
} }

calls! { claims {
    claim_worker(worker: &str, holder: &str, now: Timestamp, expires_at: Timestamp) -> Option<ClaimRow>;
    holds_claim(worker: &str, fence: Generation) -> bool;
    release_claim(worker: &str, fence: Generation, now: Timestamp) -> bool;
} }

calls! { counts {
    fleet_counts() -> FleetCounts;
} }

calls! { boots {
    host_boots(host: &HostId) -> Vec<HostBootRow>;
    boot_is_of_another_host(boot: &BootId, host: &HostId) -> bool;
    upsert_host_boot(boot: &HostBootRow) -> ();
} }
