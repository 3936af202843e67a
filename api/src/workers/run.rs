//! Runs workers: one tick, a round of all for tests, or for ever.

use std::sync::Arc;

use tarn_protocol::units::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::claim::Claim;
use super::{
    Report, WorkError, Worker, collect, exhaust, forget, invoice, promise, reconcile, remind, settle, sweep,
};
use crate::state::AppState;
use crate::wakeups::Topic;

/// One tick of the claim's worker at `now`.
pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let done = match claim.worker {
        Worker::Sweep => sweep::tick(state, claim, now).await,
        Worker::Reconcile => reconcile::tick(state, claim, now).await,
        Worker::Settle => settle::tick(state, claim, now).await,
        Worker::Exhaust => exhaust::tick(state, claim, now).await,
        Worker::Collect => collect::tick(state, claim, now).await,
        Worker::Remind => remind::tick(state, claim, now).await,
        Worker::Promise => promise::tick(state, claim, now).await,
        Worker::Forget => forget::tick(state, claim, now).await,
        Worker::Invoice => invoice::tick(state, claim, now).await,
    };
    match done {
        Err(WorkError::Fenced { .. }) => {
            claim.report_stale(state, now).await?;
            Ok(Report { fenced: true, ..Report::default() })
        }
        other => other,
    }
}

/// One tick of every worker, for tests with a clock of their own.
pub async fn tick_all(state: &AppState, now: Timestamp) -> Result<Vec<(Worker, Report)>, WorkError> {
    let mut reports = Vec::new();
    for worker in Worker::ALL {
        if let Some(claim) = Claim::take(state, worker, "round", now).await? {
            reports.push((worker, tick(state, claim, now).await?));
        }
    }
    Ok(reports)
}

/// Starts every worker; each ends by itself once `stopping` turns true.
pub fn spawn_workers(state: &AppState, stopping: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    let holder: Arc<str> = format!("replica-{:032x}", state.entropy.bits()).into();
    Worker::ALL
        .into_iter()
        .map(|worker| tokio::spawn(run(state.clone(), worker, Arc::clone(&holder), stopping.clone())))
        .collect()
}

async fn run(state: AppState, worker: Worker, holder: Arc<str>, mut stopping: watch::Receiver<bool>) {
    loop {
        // Subscribed before the tick reads, so that no change falls between reading and waiting.
        let mut woken = state.wakeups.subscribe(Topic::Worker(worker.name()));
        turn(&state, worker, &holder).await;
        tokio::select! {
            () = woken.woken() => {}
            () = tokio::time::sleep(worker.interval()) => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

async fn turn(state: &AppState, worker: Worker, holder: &str) {
    let now = state.clock.now();
    let done = match Claim::take(state, worker, holder, now).await {
        Ok(Some(claim)) => tick(state, claim, now).await,
        Ok(None) => return,
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(report) if report.failed > 0 => {
            tracing::warn!(worker = worker.name(), ?report, "tick left work undone");
        }
        Ok(report) => tracing::debug!(worker = worker.name(), ?report, "tick"),
        Err(error) => tracing::error!(worker = worker.name(), %error, "tick failed"),
    }
}
