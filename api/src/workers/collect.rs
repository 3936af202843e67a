//! Asks the payment provider about payments and refunds that brought no news, and begins automatic top-ups.
//!
//! The provider is never asked inside a transaction: each answer is taken over in one that first proves this tick's claim.

use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::payments::{RefundRow, RefundState, TopUpRow, TopUpState};

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::money::payments::{PaymentFailed, auto, confirm, watch};
use crate::app::money::refunds::{self, RefundFailed};
use crate::state::AppState;

/// Payments and refunds asked about in one tick.
const ASKED_MAX: u32 = 50;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let mut report = Report::default();
    if !state.payments.takes_payments() {
        return Ok(report);
    }
    if watch::probe_due(state, now).await? {
        probe(state, claim, now).await?;
    }
    let due = state.store.reader().await?.top_ups_due(now, ASKED_MAX).await?;
    for row in due {
        count(&mut report, ask(state, claim, row, now).await)?;
    }
    let due = state.store.reader().await?.refunds_due(now, ASKED_MAX).await?;
    for row in due {
        count(&mut report, pay_back(state, claim, row, now).await)?;
    }
    let due = state.store.reader().await?.refunds_paid_due(now, ASKED_MAX).await?;
    for row in due {
        count(&mut report, pay_back(state, claim, row, now).await)?;
    }
    let wanted = state.store.reader().await?.auto_top_ups_wanted().await?;
    for tenant in wanted {
        count(&mut report, top_up(state, claim, &tenant, now).await)?;
    }
    Ok(report)
}

/// Asks whether the provider answers at all, and closes what is over.
async fn probe(state: &AppState, claim: Claim, now: Timestamp) -> Result<(), WorkError> {
    let found = state.payments.answers().await;
    let (act, provider) = (Act::at(state, now), state.payments.name());
    let written = state.store.write(move |tx| {
        let (act, found) = (act.clone(), found.clone());
        Box::pin(async move {
            claim.prove(tx).await?;
            watch::probed(tx, &act, provider, &found).await?;
            watch::quiet(tx, &act, provider).await?;
            Ok::<_, WorkError>(())
        })
    });
    written.await
}

fn count(report: &mut Report, done: Result<bool, WorkError>) -> Result<(), WorkError> {
    report.seen += 1;
    match done {
        Ok(changed) => report.changed += u32::from(changed),
        Err(fenced @ WorkError::Fenced { .. }) => return Err(fenced),
        Err(error) => {
            tracing::warn!(%error, "a payment could not be followed up");
            report.failed += 1;
        }
    }
    Ok(())
}

/// One pending top-up; whether it is decided now.
async fn ask(state: &AppState, claim: Claim, row: TopUpRow, now: Timestamp) -> Result<bool, WorkError> {
    let asked = if row.provider == state.payments.name() {
        confirm::confirm(state, &row, Some((claim.worker.name(), claim.fence))).await
    } else {
        // Of a provider that is not in use any more: nobody here can ask.
        Err(PaymentFailed::OtherProvider(row.provider.clone()))
    };
    let error = match asked {
        Ok(row) => return Ok(row.state != TopUpState::Pending),
        Err(PaymentFailed::Fenced) => return Err(fenced(claim)),
        Err(error) => error,
    };
    let (act, why) = (Act::at(state, now), error.to_string());
    let postponed = state.store.write(move |tx| {
        let (act, row, why) = (act.clone(), row.clone(), why.clone());
        Box::pin(async move {
            claim.prove(tx).await?;
            confirm::postpone(tx, &act, &row, &why).await?;
            Ok::<_, WorkError>(())
        })
    });
    postponed.await?;
    Err(error.into())
}

fn fenced(claim: Claim) -> WorkError {
    WorkError::Fenced { worker: claim.worker.name(), fence: claim.fence.get() }
}

/// One refund that is pending, or was paid out and may have come back; whether it is decided now.
async fn pay_back(state: &AppState, claim: Claim, row: RefundRow, now: Timestamp) -> Result<bool, WorkError> {
    let told = refunds::order(state, &row).await;
    match &told {
        Err(error) if row.state == RefundState::Pending => {
            tracing::warn!(%error, refund_id = %row.id, "a refund could not be ordered yet");
        }
        Err(error) => {
            tracing::debug!(%error, refund_id = %row.id, "a refund that is paid out could not be asked about");
        }
        Ok(_) => {}
    }
    let (told, act) = (told.map_err(|error| error.to_string()), Act::at(state, now));
    let (decided, act) = state
        .store
        .write(move |tx| {
            let (mut act, row, told) = (act.clone(), row.clone(), told.clone());
            Box::pin(async move {
                claim.prove(tx).await?;
                let told = match told {
                    Ok(told) => told,
                    Err(why) => {
                        refunds::postpone(tx, &act, &row, &why).await?;
                        return Ok::<_, WorkError>((false, act));
                    }
                };
                let scope = TenantScope::proven(row.tenant_id.clone());
                let now = refunds::take_over(tx, &mut act, &scope, &row.id, &told).await?;
                Ok((now.state != row.state, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(decided)
}

/// Begins and charges a tenant's automatic top-up, if its rule still wants one.
async fn top_up(
    state: &AppState,
    claim: Claim,
    tenant: &TenantId,
    now: Timestamp,
) -> Result<bool, WorkError> {
    let act = Act::at(state, now);
    let (tenant, provider) = (tenant.clone(), state.payments.name());
    let begun = state.store.write(move |tx| {
        let (act, tenant) = (act.clone(), tenant.clone());
        Box::pin(async move {
            claim.prove(tx).await?;
            Ok::<_, WorkError>(auto::begin(tx, &act, provider, &tenant).await?)
        })
    });
    match begun.await? {
        Some(row) => ask(state, claim, row, now).await,
        None => Ok(false),
    }
}

impl From<RefundFailed> for WorkError {
    fn from(error: RefundFailed) -> Self {
        match error {
            RefundFailed::Store(error) => error.into(),
            error => Self::Refund(Box::new(error)),
        }
    }
}
