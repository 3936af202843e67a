//! Offers, prices, instances and their leases.

use tarn_protocol::ids::{EventId, HostId, InstanceId, LeaseId, OfferId};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::brake::{AutomaticStepRow, FleetHealth};
use tarn_rows::counts::QuotaUse;
use tarn_rows::instances::{InstanceEventRow, InstanceFilter, InstanceRow, ObservationRow};
use tarn_rows::leases::{LeaseGpuRow, LeaseRow};
use tarn_rows::offers::{OfferRow, PriceRow};
use tarn_rows::plans::{EvictionRow, InstancePlanRow, OrphanRow};
use tarn_rows::{Page, TenantScope};

use super::calls;

calls! { offers {
    insert_offer(offer: &OfferRow) -> bool;
    offer(id: &OfferId) -> Option<OfferRow>;
    offers() -> Vec<OfferRow>;
    set_offer_listed(id: &OfferId, listed: bool) -> bool;
} }

calls! { prices {
    append_price(price: &PriceRow) -> ();
    price_at(sku: &OfferId, at: Timestamp) -> Option<PriceRow>;
    prices() -> Vec<PriceRow>;
    prices_of(sku: &OfferId) -> Vec<PriceRow>;
} }

calls! { instances {
    insert_instance(scope: &TenantScope, instance: &InstanceRow) -> ();
    update_instance(scope: &TenantScope, instance: &InstanceRow) -> bool;
    instance(scope: &TenantScope, id: &InstanceId) -> Option<InstanceRow>;
    instances(scope: &TenantScope, filter: &InstanceFilter, page: Page<'_, InstanceId>) -> Vec<InstanceRow>;
    instance_of_any_tenant(id: &InstanceId) -> Option<InstanceRow>;
    instances_on_host(host: &HostId) -> Vec<InstanceRow>;
    instances_live(page: Page<'_, InstanceId>) -> Vec<InstanceRow>;
    instances_in_motion(limit: u32) -> Vec<InstanceId>;
    instances_past_ttl(now: Timestamp) -> Vec<InstanceRow>;
    observe_instance(host: &HostId, observation: &ObservationRow) -> bool;
    forget_observation(scope: &TenantScope, id: &InstanceId) -> bool;
} }

calls! { instance_events {
    insert_instance_event(scope: &TenantScope, event: &InstanceEventRow) -> ();
    instance_events(scope: &TenantScope, instance: &InstanceId, page: Page<'_, EventId>) -> Vec<InstanceEventRow>;
} }

calls! { leases {
    insert_lease(scope: &TenantScope, lease: &LeaseRow, gpus: &[LeaseGpuRow]) -> ();
    release_lease(scope: &TenantScope, id: &LeaseId, decided: Generation, now: Timestamp) -> bool;
    live_lease(scope: &TenantScope, instance: &InstanceId) -> Option<LeaseRow>;
    newest_lease(scope: &TenantScope, instance: &InstanceId) -> Option<LeaseRow>;
    lease_of_generation(instance: &InstanceId, generation: Generation) -> Option<LeaseRow>;
    lease_gpus(lease: &LeaseId) -> Vec<LeaseGpuRow>;
    leases_on_host(host: &HostId) -> Vec<LeaseRow>;
    lease_gpus_on_host(host: &HostId) -> Vec<LeaseGpuRow>;
    quota_use(scope: &TenantScope) -> QuotaUse;
} }

calls! { plans {
    instance_plan(id: &InstanceId) -> Option<InstancePlanRow>;
    instance_plans_of_host(host: &HostId) -> Vec<InstancePlanRow>;
    upsert_instance_plan(plan: &InstancePlanRow) -> ();
    evictions(host: &HostId) -> Vec<EvictionRow>;
    order_eviction(eviction: &EvictionRow) -> bool;
    finish_eviction(host: &HostId, instance: &InstanceId) -> bool;
    orphan(host: &HostId, instance: &InstanceId) -> Option<OrphanRow>;
    orphans_of_host(host: &HostId) -> Vec<OrphanRow>;
    orphans_kept_since(before: Timestamp, limit: u32) -> Vec<OrphanRow>;
    see_orphan(orphan: &OrphanRow) -> ();
    order_removal(host: &HostId, instance: &InstanceId, now: Timestamp) -> bool;
    forget_orphan(host: &HostId, instance: &InstanceId) -> bool;
    take_placement_turn() -> ();
} }

calls! { brake {
    fleet_health(window_at: Timestamp) -> FleetHealth;
    take_automatic_step(step: &AutomaticStepRow) -> bool;
} }
