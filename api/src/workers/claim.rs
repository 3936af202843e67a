//! The claim under which a tick works.

use tarn_protocol::ids::EventId;
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::Json;
use tarn_rows::alerts::AlertRow;
use tarn_store::{StoreError, Tx};

use super::{WorkError, Worker};
use crate::app::act::Act;
use crate::state::AppState;

/// How long a claim lasts without renewal: what a replica that died costs.
const CLAIM_SECONDS: i64 = 15;
/// The alert for a write that came too late.
pub const STALE_WRITE: &str = "stale_write";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub worker: Worker,
    pub fence: Generation,
}

impl Claim {
    /// Takes or renews the worker's claim for `holder`; `None` while another replica has it.
    pub async fn take(
        state: &AppState,
        worker: Worker,
        holder: &str,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let holder = holder.to_owned();
        let row = state
            .store
            .write(move |tx| {
                let holder = holder.clone();
                Box::pin(async move {
                    tx.claim_worker(worker.name(), &holder, now, now.plus_seconds(CLAIM_SECONDS)).await
                })
            })
            .await?;
        Ok(row.map(|row| Self { worker, fence: row.fence }))
    }

    /// First in every transaction: from here to its end no newer holder can have begun.
    pub async fn prove(self, tx: &mut Tx) -> Result<(), WorkError> {
        let worker = self.worker.name();
        if tx.holds_claim(worker, self.fence).await? {
            Ok(())
        } else {
            Err(WorkError::Fenced { worker, fence: self.fence.get() })
        }
    }

    /// Tells operators of a write that came too late and changed nothing.
    pub async fn report_stale(self, state: &AppState, now: Timestamp) -> Result<(), StoreError> {
        tracing::warn!(worker = self.worker.name(), fence = self.fence.get(), "a late write changed nothing");
        let act = Act::at(state, now);
        let alert = AlertRow {
            id: EventId::new(now, act.bits()),
            kind: STALE_WRITE.to_owned(),
            subject: self.worker.name().to_owned(),
            detail: Json(serde_json::json!({"fence": self.fence.get()})),
            created_at: now,
            cleared_at: None,
        };
        let opened = state.store.write(move |tx| {
            let alert = alert.clone();
            Box::pin(async move { tx.open_alert(&alert).await })
        });
        opened.await.map(drop)
    }
}
