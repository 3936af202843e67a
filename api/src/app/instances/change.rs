//! What a tenant may change of a living instance: its wish, its label, its time to live.

use std::collections::BTreeMap;

use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::{Action, DesiredState, ReasonCode, State, actions};
use tarn_provisioner::reconcile::HostView;
use tarn_rows::instances::InstanceRow;
use tarn_rows::{Json, TenantScope};
use tarn_store::{StoreError, Tx};

use super::apply;
use super::dossier::Dossier;
use crate::app::act::{Act, RECONCILE};
use crate::app::metering::settle::{self, SettleFailed};
use crate::app::metering::stored::corrupt;

/// Why a change was refused. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    #[error("no such instance")]
    NotFound,
    #[error("an instance that is {state} cannot {action}")]
    WrongState { state: State, action: Action },
}

/// What a patch sets; `None` keeps.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    pub label: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub ttl_at: Option<Timestamp>,
}

type Changed = Result<Result<InstanceRow, ChangeRefused>, StoreError>;

/// Stops an instance. Charging ends with this acceptance, whatever the host does.
pub async fn stop(tx: &mut Tx, act: &mut Act, scope: &TenantScope, id: &InstanceId) -> Changed {
    let Some(row) = tx.instance(scope, id).await? else { return Ok(Err(ChangeRefused::NotFound)) };
    if let Some(refused) = refuses(row.state, Action::Stop) {
        return Ok(Err(refused));
    }
    let mut dossier = Dossier::load(tx, row).await?;
    wish(tx, act, &mut dossier, DesiredState::Stopped, ReasonCode::UserRequest).await?;
    Ok(Ok(dossier.row))
}

/// Terminates an instance, in whatever state it is; again is the same.
pub async fn delete(tx: &mut Tx, act: &mut Act, scope: &TenantScope, id: &InstanceId) -> Changed {
    let Some(row) = tx.instance(scope, id).await? else { return Ok(Err(ChangeRefused::NotFound)) };
    let mut dossier = Dossier::load(tx, row).await?;
    terminate(tx, act, &mut dossier, ReasonCode::UserRequest).await?;
    Ok(Ok(dossier.row))
}

/// Wishes an instance away for `reason`, unless that was wished before.
pub async fn terminate(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    reason: ReasonCode,
) -> Result<(), StoreError> {
    if dossier.row.desired_state == DesiredState::Terminated {
        return Ok(());
    }
    wish(tx, act, dossier, DesiredState::Terminated, reason).await
}

pub async fn wish(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    state: DesiredState,
    reason: ReasonCode,
) -> Result<(), StoreError> {
    dossier.row.desired_state = state;
    dossier.row.desired_reason = reason;
    dossier.row.desired_since = act.now;
    apply::converge(tx, act, dossier, &HostView::default(), None).await?;
    act.changed_instance(&dossier.row.id);
    act.woke(RECONCILE);
    Ok(())
}

pub async fn patch(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    id: &InstanceId,
    patch: &Patch,
) -> Changed {
    if patch.label.is_some() {
        // A spend cap may look at labels: what it was until now is carried out first, and what it is from now on is told to the host.
        settle::settle(tx, act, scope).await.map_err(|error| match error {
            SettleFailed::Store(error) => error,
            other => corrupt(other),
        })?;
        act.rearm.insert(scope.tenant_id().clone());
    }
    let Some(mut row) = tx.instance(scope, id).await? else { return Ok(Err(ChangeRefused::NotFound)) };
    row.label = patch.label.clone().unwrap_or(row.label);
    row.tags = patch.tags.clone().map_or(row.tags, Json);
    row.ttl_at = patch.ttl_at.or(row.ttl_at);
    if !tx.update_instance(scope, &row).await? {
        return Err(tx.stale());
    }
    act.changed_instance(id);
    Ok(Ok(row))
}

pub fn refuses(state: State, action: Action) -> Option<ChangeRefused> {
    let legal = actions(state).contains(&action);
    (!legal).then_some(ChangeRefused::WrongState { state, action })
}
