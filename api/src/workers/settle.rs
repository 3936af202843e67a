//! Brings the ledger up to what segments have proven and takes back credit that has expired, many tenants in one commit.

use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_store::{StoreError, Tx};

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::metering::purse::SETTLED_LATE_MICROS;
use crate::app::metering::settle;
use crate::state::AppState;

/// Tenants settled in one commit.
const TENANTS_PER_COMMIT: usize = 50;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let since = now.plus_micros(-SETTLED_LATE_MICROS);
    let tenants = state.store.read(move |tx| Box::pin(async move { due(tx, since, now).await })).await?;
    let mut report = Report::default();
    for batch in tenants.chunks(TENANTS_PER_COMMIT) {
        match commit(state, claim, batch, now).await {
            Ok(changed) => report.changed += changed,
            Err(fenced @ WorkError::Fenced { .. }) => return Err(fenced),
            Err(error) if batch.len() == 1 => {
                tracing::error!(%error, tenant_id = %batch[0], "a tenant could not be settled");
                report.failed += 1;
            }
            // One tenant's trouble is not the others': each on its own.
            Err(_) => {
                for tenant in batch {
                    match commit(state, claim, std::slice::from_ref(tenant), now).await {
                        Ok(changed) => report.changed += changed,
                        Err(fenced @ WorkError::Fenced { .. }) => return Err(fenced),
                        Err(error) => {
                            tracing::error!(%error, tenant_id = %tenant, "a tenant could not be settled");
                            report.failed += 1;
                        }
                    }
                }
            }
        }
        report.seen += u32::try_from(batch.len()).unwrap_or(u32::MAX);
    }
    Ok(report)
}

/// Tenants with something to settle, or with credit that is over.
async fn due(tx: &mut Tx, since: Timestamp, now: Timestamp) -> Result<Vec<TenantId>, StoreError> {
    let mut tenants = tx.tenants_that_cost(since).await?;
    tenants.extend(tx.tenants_with_disks_that_cost(since).await?);
    tenants.extend(tx.grants_expired(now).await?.into_iter().map(|grant| grant.tenant_id));
    tenants.sort();
    tenants.dedup();
    Ok(tenants)
}

async fn commit(
    state: &AppState,
    claim: Claim,
    tenants: &[TenantId],
    now: Timestamp,
) -> Result<u32, WorkError> {
    let act = Act::at(state, now);
    let tenants = tenants.to_vec();
    let (changed, act) = state
        .store
        .write(move |tx| {
            let (mut act, tenants) = (act.clone(), tenants.clone());
            Box::pin(async move {
                claim.prove(tx).await?;
                let mut changed = 0;
                for tenant in tenants {
                    let scope = TenantScope::proven(tenant);
                    let done = settle::settle_and_rearm(tx, &mut act, &scope).await?;
                    changed += done.segments + done.expired + done.stopped;
                }
                act.rearm.clear();
                act.hit("settle.before_commit");
                Ok::<_, WorkError>((changed, act))
            })
        })
        .await?;
    if changed > 0 {
        act.hit("settle.committed");
    }
    act.announce(&state.wakeups);
    Ok(changed)
}
