//! Ends what the money no longer pays for, at the instant at which it ended.

use std::collections::BTreeSet;

use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_store::{StoreError, Tx};

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::metering::{exhaustion, settle};
use crate::state::AppState;

/// Segments looked at in one tick.
const SEGMENTS_MAX: u32 = 500;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let due = state.store.read(move |tx| Box::pin(async move { due(tx, now).await }));
    let tenants = due.await?;
    let mut report = Report::default();
    for tenant in tenants {
        report.seen += 1;
        match close(state, claim, &tenant, now).await {
            Ok(stopped) => report.changed += stopped,
            Err(fenced @ WorkError::Fenced { .. }) => return Err(fenced),
            Err(error) => {
                tracing::error!(%error, tenant_id = %tenant, "an exhausted tenant could not be stopped");
                report.failed += 1;
            }
        }
    }
    Ok(report)
}

/// Tenants with a card or a disk that is not paid any more.
async fn due(tx: &mut Tx, now: Timestamp) -> Result<BTreeSet<TenantId>, StoreError> {
    let cards = tx.segments_exhausted(now, SEGMENTS_MAX).await?;
    let disks = tx.tenants_with_exhausted_disks(now, SEGMENTS_MAX).await?;
    Ok(cards.into_iter().map(|segment| segment.tenant_id).chain(disks).collect())
}

async fn close(state: &AppState, claim: Claim, tenant: &TenantId, now: Timestamp) -> Result<u32, WorkError> {
    let act = Act::at(state, now);
    let scope = TenantScope::proven(tenant.clone());
    let (stopped, act) = state
        .store
        .write(move |tx| {
            let (mut act, scope) = (act.clone(), scope.clone());
            Box::pin(async move {
                claim.prove(tx).await?;
                let stopped = settle::settle(tx, &mut act, &scope).await?.stopped;
                act.rearm.insert(scope.tenant_id().clone());
                exhaustion::rearm_changed(tx, &mut act).await?;
                Ok::<_, WorkError>((stopped, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(stopped)
}
