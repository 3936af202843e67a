//! Creating an instance: checked, stored, leased and held in one transaction; publishing is the reconcile worker's.

use std::collections::BTreeMap;

use serde_json::json;
use tarn_protocol::ids::{InstanceId, OfferId, TenantId};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode, State};
use tarn_rows::instances::{InstanceRow, LaunchSpec};
use tarn_rows::{Json, TenantScope};
use tarn_store::Tx;

use super::claim::{self, ClaimError, StartRefused};
use super::dossier::Dossier;
use super::{apply, wanted};
use crate::app::act::{Act, RECONCILE};

/// What a tenant ordered, already checked for form.
#[derive(Debug, Clone)]
pub struct Order {
    pub offer_id: OfferId,
    pub label: String,
    pub tags: BTreeMap<String, String>,
    pub spec: LaunchSpec,
    pub ttl_at: Option<Timestamp>,
    pub created_by: String,
}

pub async fn create(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    order: &Order,
) -> Result<Result<InstanceRow, StartRefused>, ClaimError> {
    let id = InstanceId::new(act.now, act.bits());
    let mut dossier = Dossier::new(row(id, scope.tenant_id().clone(), order, act.now));
    let sought = wanted(&order.spec, Vec::new());
    let admission = match claim::check(tx, act, &dossier, &sought).await? {
        Ok(admission) => admission,
        Err(refused) => return Ok(Err(refused)),
    };
    dossier.row.host_id = Some(admission.placed.host_id.clone());
    tx.insert_instance(scope, &dossier.row).await?;
    tx.upsert_instance_plan(&dossier.plan).await?;
    claim::take(tx, act, &mut dossier, &admission).await?;
    let detail = json!({"offer_id": dossier.row.offer_id, "cards": dossier.lease.as_ref().map(|(_, cards)| cards.len())});
    apply::record(tx, act, &dossier, "instance.requested", detail).await?;
    act.changed_instance(&dossier.row.id);
    act.woke(RECONCILE);
    Ok(Ok(dossier.row))
}

fn row(id: InstanceId, tenant_id: TenantId, order: &Order, now: Timestamp) -> InstanceRow {
    InstanceRow {
        id,
        tenant_id,
        created_by: Some(order.created_by.clone()),
        label: order.label.clone(),
        tags: Json(order.tags.clone()),
        offer_id: order.offer_id.clone(),
        spec: Json(order.spec.clone()),
        desired_state: DesiredState::Running,
        desired_reason: ReasonCode::UserRequest,
        desired_since: now,
        state: State::Requested,
        state_since: now,
        phase: None,
        reason_code: None,
        reason_detail: None,
        generation: Generation::new(1),
        row_version: 1,
        placement_attempts: 1,
        host_id: None,
        pool_bytes: None,
        residency: None,
        observed_phase: None,
        observed_at: None,
        log_tail: String::new(),
        ttl_at: order.ttl_at,
        created_at: now,
        terminated_at: None,
    }
}
