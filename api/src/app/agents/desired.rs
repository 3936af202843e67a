//! What should be on a host, computed from instances, leases, evictions, orphans and probe orders whenever it is asked for.

use tarn_protocol::control::{
    Desired, DesiredDonor, DesiredInstance, Goal, InstanceSpec, ProbeOrder, RunUntil,
};
use tarn_protocol::ids::HostId;
use tarn_protocol::units::Generation;
use tarn_rows::TenantScope;
use tarn_rows::instances::InstanceRow;
use tarn_rows::leases::LeaseGpuRow;
use tarn_store::{StoreError, Tx};

use super::orphans;

/// How often an agent reports when nothing changes.
pub const REPORT_SECONDS: u32 = 5;

/// `None`: no such host.
pub async fn document(tx: &mut Tx, host_id: &HostId) -> Result<Option<Desired>, StoreError> {
    let Some(host) = tx.host(host_id).await? else { return Ok(None) };
    let mut instances = Vec::new();
    let plans = tx.instance_plans_of_host(host_id).await?;
    for row in tx.instances_on_host(host_id).await? {
        let told = plans.iter().find(|plan| plan.instance_id == row.id);
        let told = told.and_then(|plan| Some((plan.published_generation?, plan.published_goal?.0)));
        // A generation that was never published is not there yet.
        if let Some((generation, goal)) = told.filter(|(generation, _)| *generation == row.generation) {
            instances.extend(wanted(tx, &row, generation, goal).await?);
        }
    }
    for eviction in tx.evictions(host_id).await? {
        if let Some(row) = tx.instance_of_any_tenant(&eviction.instance_id).await? {
            instances.extend(wanted(tx, &row, eviction.generation, Goal::Absent).await?);
        }
    }
    instances.extend(orphans::wanted(tx, host_id).await?);
    let probes = tx.probe_orders_of_host(host_id).await?;
    let probes = probes.into_iter().map(|order| ProbeOrder { from: order.from_uuid, to: order.to_uuid });
    Ok(Some(Desired {
        revision: host.desired_revision,
        host_epoch: host.epoch,
        report_seconds: REPORT_SECONDS,
        instances,
        probes: probes.collect(),
    }))
}

async fn wanted(
    tx: &mut Tx,
    row: &InstanceRow,
    generation: Generation,
    goal: Goal,
) -> Result<Option<DesiredInstance>, StoreError> {
    let scope = TenantScope::proven(row.tenant_id.clone());
    let Some(lease) = tx.lease_of_generation(&row.id, generation).await? else { return Ok(None) };
    let cards = tx.lease_gpus(&lease.id).await?;
    let Some((primary, donors)) = cards.split_first() else { return Ok(None) };
    let segment = tx.open_segment_of_instance(&scope, &row.id).await?;
    let run_until = segment
        .and_then(|segment| Some(RunUntil { boot_id: segment.boot_id, mono_ms: segment.run_until_mono_ms? }));
    let spec = InstanceSpec {
        command: row.spec.0.command.clone(),
        env: row.spec.0.env.clone(),
        ssh_public_keys: ssh_public_keys(tx, &scope, row).await?,
        primary: primary.gpu_uuid.clone(),
        donors: donors.iter().map(donor).collect(),
        policy: row.spec.0.policy.clone(),
        cap_bytes: None,
    };
    let (instance_id, lease_id) = (row.id.clone(), lease.id);
    Ok(Some(DesiredInstance { instance_id, lease_id, generation, goal, spec, run_until }))
}

fn donor(card: &LeaseGpuRow) -> DesiredDonor {
    DesiredDonor {
        uuid: card.gpu_uuid.clone(),
        link_class: card.link_class,
        grade: card.grade,
        read_mb_per_second: card.read_mb_per_second,
        certificate_id: card.certificate_id.clone(),
    }
}

/// Keys that were deleted since are left out.
async fn ssh_public_keys(
    tx: &mut Tx,
    scope: &TenantScope,
    row: &InstanceRow,
) -> Result<Vec<String>, StoreError> {
    let mut keys = Vec::new();
    for id in &row.spec.0.ssh_keys {
        keys.extend(tx.ssh_key(scope, id).await?.map(|key| key.public_key));
    }
    Ok(keys)
}
