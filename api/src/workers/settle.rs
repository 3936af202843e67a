//! Brings the ledger up to what segments have proven, many tenants in one commit.

use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::metering::purse::SETTLED_LATE_MICROS;
use crate::app::metering::{exhaustion, settle};
use crate::state::AppState;

/// Tenants settled in one commit.
const TENANTS_PER_COMMIT: usize = 50;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let since = now.plus_micros(-SETTLED_LATE_MICROS);
    let tenants =
        state.store.read(move |tx| Box::pin(async move { tx.tenants_that_cost(since).await })).await?;
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
                    changed += settle::settle(tx, &mut act, &scope).await?.segments;
                    exhaustion::rearm(tx, &mut act, &scope).await?;
                }
                act.rearm.clear();
                Ok::<_, WorkError>((changed, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(changed)
}
