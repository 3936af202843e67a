//! Reminds tenants once a day of what keeps costing while it does not run: its disk.

use serde_json::json;
use tarn_billing::cap::Period;
use tarn_billing::money::Micros;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::notices::StoppedCostRow;

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::money::notices::{self, NoticeKind};
use crate::state::AppState;

/// Every instance that has not run since before this UTC day began, those of one tenant in one notice.
pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let today = Period::Day.window(now).from;
    let crossing = format!("{} {}", NoticeKind::StoppedStillCosts.as_str(), today.as_micros());
    let costing = state.store.reader().await?.stopped_still_costing(&crossing, today).await?;
    let mut report = Report::default();
    for of_tenant in costing.chunk_by(|one, next| one.tenant_id == next.tenant_id) {
        report.seen += 1;
        report.changed += u32::from(remind(state, claim, of_tenant, &crossing, now).await?);
    }
    Ok(report)
}

async fn remind(
    state: &AppState,
    claim: Claim,
    costing: &[StoppedCostRow],
    crossing: &str,
    now: Timestamp,
) -> Result<bool, WorkError> {
    let Some(first) = costing.first() else { return Ok(false) };
    let scope = TenantScope::proven(first.tenant_id.clone());
    let sum: i64 = costing.iter().map(|row| row.micros_per_hour.get()).sum();
    let one = |row: &StoppedCostRow| json!({"instance_id": row.instance_id, "label": row.label, "per_hour": row.micros_per_hour});
    let detail = json!({
        "per_hour": Micros::new(sum), "instances": costing.iter().map(one).collect::<Vec<_>>(),
        "then": "a disk is charged until its instance is deleted",
    });
    let (act, crossing) = (Act::at(state, now), crossing.to_owned());
    let told = state.store.write(move |tx| {
        let (act, scope, crossing, detail) = (act.clone(), scope.clone(), crossing.clone(), detail.clone());
        Box::pin(async move {
            claim.prove(tx).await?;
            let kind = NoticeKind::StoppedStillCosts;
            Ok::<_, WorkError>(notices::tell(tx, &act, &scope, kind, &crossing, detail).await?)
        })
    });
    told.await
}
