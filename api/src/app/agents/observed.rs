//! What a fresh report says of instances, brought together with wish and record.
//!
//! Instances that run come first, because their first ready evidence opens the segment that the report's usage counts on; all others
//! come after the usage, because they may end at their last evidence.

use std::collections::HashMap;

use tarn_protocol::control::{ObservedInstance, Phase, Report};
use tarn_protocol::ids::{HostId, InstanceId};
use tarn_provisioner::lifecycle::State;
use tarn_provisioner::reconcile::{Brakes, HostView, OrphanRecord, Remedy, Sighting, orphan_remedy};
use tarn_rows::Json;
use tarn_rows::instances::{InstanceRow, ObservationRow};
use tarn_rows::plans::EvictionRow;
use tarn_store::{StoreError, Tx};

use super::orphans;
use crate::app::act::Act;
use crate::app::brake;
use crate::app::instances::apply::{self, ReportTime};
use crate::app::instances::dossier::Dossier;
use crate::app::metering;

/// Takes over every observation and all usage of a fresh report.
pub async fn take_over(tx: &mut Tx, act: &mut Act, host: &HostId, report: &Report) -> Result<(), StoreError> {
    for seen in &report.instances {
        tx.observe_instance(host, &observation(act, seen)).await?;
    }
    let seen: HashMap<&InstanceId, &ObservedInstance> =
        report.instances.iter().map(|seen| (&seen.instance_id, seen)).collect();
    let here = tx.instances_on_host(host).await?;
    let (running, others): (Vec<_>, Vec<_>) = here
        .into_iter()
        .partition(|row| seen.get(&row.id).is_some_and(|seen| Sighting::from(*seen).precedes_usage()));
    let known: Vec<InstanceId> = running.iter().chain(&others).map(|row| row.id.clone()).collect();
    for row in running {
        converge(tx, act, row, &seen, report).await?;
    }
    for usage in &report.usage {
        metering::evidence::accept(tx, act, host, usage).await?;
    }
    for row in others {
        converge(tx, act, row, &seen, report).await?;
    }
    for stranger in report.instances.iter().filter(|seen| !known.contains(&seen.instance_id)) {
        see_to_stranger(tx, act, host, stranger).await?;
    }
    for eviction in tx.evictions(host).await? {
        if !seen.contains_key(&eviction.instance_id) {
            tx.finish_eviction(host, &eviction.instance_id).await?;
        }
    }
    orphans::forget_gone(tx, act, host, |id| seen.contains_key(id)).await
}

fn observation(act: &Act, seen: &ObservedInstance) -> ObservationRow {
    ObservationRow {
        instance_id: seen.instance_id.clone(),
        generation: seen.generation,
        pool_bytes: seen.pool_bytes,
        residency: Json(seen.residency.clone()),
        observed_phase: Json(seen.phase.clone()),
        observed_at: act.now,
        log_tail: seen.log_tail.clone(),
    }
}

async fn converge(
    tx: &mut Tx,
    act: &mut Act,
    row: InstanceRow,
    seen: &HashMap<&InstanceId, &ObservedInstance>,
    report: &Report,
) -> Result<(), StoreError> {
    let sighting = seen.get(&row.id).copied();
    let mut dossier = Dossier::load(tx, row).await?;
    if let Some(Phase::Preparing { step }) = sighting.map(|seen| &seen.phase) {
        note_progress(act, &mut dossier, step);
    }
    let view = HostView {
        unreachable_since: None,
        boot_id: Some(report.boot_id.clone()),
        desired_revision: report.desired_revision,
        sighting: sighting.map(Sighting::from),
    };
    let time = ReportTime { received_at: act.now, boot_id: report.boot_id.clone(), mono_ms: report.mono_ms };
    apply::converge(tx, act, &mut dossier, &view, Some(&time)).await
}

/// A new step is a sign of life; the same step again is not.
fn note_progress(act: &mut Act, dossier: &mut Dossier, step: &str) {
    let preparing = matches!(dossier.row.state, State::Provisioning | State::Starting);
    if preparing && dossier.row.phase.as_deref() != Some(step) {
        dossier.row.phase = Some(step.to_owned());
        dossier.plan.progress_at = act.now;
        act.changed_instance(&dossier.row.id);
    }
}

/// An instance that the host shows and that is not placed there. What is no instance at all is only noted here, from its first sight;
/// removing it is for [`orphans`].
async fn see_to_stranger(
    tx: &mut Tx,
    act: &mut Act,
    host: &HostId,
    seen: &ObservedInstance,
) -> Result<(), StoreError> {
    let Some(row) = tx.instance_of_any_tenant(&seen.instance_id).await? else {
        return orphans::note(tx, act, host, seen).await;
    };
    tx.forget_orphan(host, &seen.instance_id).await?;
    let record = OrphanRecord::Known { state: row.state, host_id: row.host_id, generation: row.generation };
    match orphan_remedy(&record, host, seen.generation, Brakes::Free, act.now) {
        Remedy::Adopt => Ok(()),
        Remedy::Quarantine => orphans::call_an_operator(tx, act, host, seen).await,
        Remedy::Remove => remove_copy(tx, act, host, seen).await,
    }
}

async fn remove_copy(
    tx: &mut Tx,
    act: &mut Act,
    host: &HostId,
    seen: &ObservedInstance,
) -> Result<(), StoreError> {
    let ordered = tx.evictions(host).await?;
    let known = |row: &EvictionRow| row.instance_id == seen.instance_id && row.generation >= seen.generation;
    if ordered.iter().any(known) {
        return Ok(());
    }
    match brake::ask(tx, act.now, brake::Step::RemoveCopy, (Some(host), &seen.instance_id)).await? {
        Brakes::Frozen => orphans::call_an_operator(tx, act, host, seen).await,
        Brakes::Free => {
            let eviction = EvictionRow {
                host_id: host.clone(),
                instance_id: seen.instance_id.clone(),
                generation: seen.generation,
                created_at: act.now,
            };
            tx.order_eviction(&eviction).await?;
            tx.bump_desired_revision(host).await?;
            act.changed_desired(host);
            Ok(())
        }
    }
}
