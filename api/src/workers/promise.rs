//! Looks for broken promises and credits them, each in a commit of its own.

use tarn_protocol::units::Timestamp;

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::metering::exhaustion;
use crate::app::money::sla::{self, Found};
use crate::state::AppState;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let found = state.store.read(move |tx| Box::pin(async move { sla::find(tx, now).await })).await?;
    let mut report = Report::default();
    for incident in found {
        report.seen += 1;
        match credit(state, claim, &incident, now).await {
            Ok(news) => report.changed += u32::from(news),
            Err(fenced @ WorkError::Fenced { .. }) => return Err(fenced),
            Err(error) => {
                let (instance, kind) = sla::named(&incident);
                tracing::error!(%error, instance_id = %instance, %kind, "an incident could not be credited");
                report.failed += 1;
            }
        }
    }
    Ok(report)
}

async fn credit(state: &AppState, claim: Claim, found: &Found, now: Timestamp) -> Result<bool, WorkError> {
    let (act, found) = (Act::at(state, now), found.clone());
    let (news, act) = state
        .store
        .write(move |tx| {
            let (mut act, found) = (act.clone(), found.clone());
            Box::pin(async move {
                claim.prove(tx).await?;
                let news = sla::credit(tx, &mut act, &found).await?;
                exhaustion::rearm_changed(tx, &mut act).await?;
                Ok::<_, WorkError>((news, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(news)
}
