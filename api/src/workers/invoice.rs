//! Issues the invoices of a month once it has ended, and credit notes for what was given back.

use tarn_protocol::units::Timestamp;

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::invoices::{credit, monthly};
use crate::state::AppState;

/// Commits of one tick; a long run goes on at the next.
const STEPS_MAX: u32 = 10;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let mut report = Report::default();
    let waiting =
        state.store.read(move |tx| Box::pin(async move { monthly::waiting(tx, now).await })).await?;
    if waiting {
        for _ in 0..STEPS_MAX {
            let step = month(state, claim, now).await?;
            report.seen += step.tenants;
            report.changed += step.invoices;
            if step.idle {
                break;
            }
        }
    }
    let due = state.store.read(|tx| Box::pin(async move { tx.reversals_to_credit(1).await })).await?;
    if !due.is_empty() {
        let notes = notes(state, claim, now).await?;
        report.seen += notes;
        report.changed += notes;
    }
    Ok(report)
}

async fn month(state: &AppState, claim: Claim, now: Timestamp) -> Result<monthly::Step, WorkError> {
    let (act, config) = (Act::at(state, now), state.config.clone());
    let step = state.store.write(move |tx| {
        Box::pin(async move {
            claim.prove(tx).await?;
            Ok::<_, WorkError>(monthly::step(tx, &act, &config.seller).await?)
        })
    });
    step.await
}

async fn notes(state: &AppState, claim: Claim, now: Timestamp) -> Result<u32, WorkError> {
    let (act, config) = (Act::at(state, now), state.config.clone());
    let issued = state.store.write(move |tx| {
        Box::pin(async move {
            claim.prove(tx).await?;
            Ok::<_, WorkError>(credit::issue_due(tx, &act, &config.seller).await?)
        })
    });
    issued.await
}
