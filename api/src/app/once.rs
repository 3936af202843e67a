//! Doing a call once: the key of a mutating call, its effect and its answer are one commit.
//!
//! The key is claimed by inserting its row before the effect, in the effect's own transaction: a second call with the key waits
//! for the first to commit (or takes its place when it rolled back) and then finds the answer. Nothing is claimed before the write
//! that could be lost between, and no answer is stored without its effect. A call that is refused has no effect to commit with;
//! its refusal is stored afterwards, unless the key was answered meanwhile. Answers are kept for ever.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::idempotency::IdempotencyRow;
use tarn_rows::secrets::SecretDigest;
use tarn_store::{StoreError, Tx};

/// What names one call of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceKey {
    pub key: String,
    /// Method and path.
    pub route: String,
    pub body_sha256: SecretDigest,
}

/// A stored answer: what the first call got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// This call is the first: do the effect, then [`finish`].
    Mine,
    /// Answered before.
    Answered(Answer),
    /// The key belongs to a call with another route or body.
    OtherCall,
}

/// An answer that no call can have: the claim of a transaction that has not finished.
const UNFINISHED: u16 = 0;

/// Claims the key for this transaction.
pub async fn claim(
    tx: &mut Tx,
    scope: &TenantScope,
    key: &OnceKey,
    now: Timestamp,
) -> Result<Claim, StoreError> {
    let unfinished = Answer { status: UNFINISHED, body: String::new() };
    if tx.insert_idempotent_answer(scope, &row(scope, key, &unfinished, now)).await? {
        return Ok(Claim::Mine);
    }
    Ok(answered(tx, scope, key).await?.unwrap_or(Claim::OtherCall))
}

/// Stores the answer beside the effect.
pub async fn finish(
    tx: &mut Tx,
    scope: &TenantScope,
    key: &OnceKey,
    answer: &Answer,
    now: Timestamp,
) -> Result<(), StoreError> {
    let finished = tx.finish_idempotent_answer(scope, &row(scope, key, answer, now)).await?;
    debug_assert!(finished, "finished by the transaction that claimed");
    Ok(())
}

/// What is known of a key, without claiming it. `None`: nothing.
pub async fn answered(tx: &mut Tx, scope: &TenantScope, key: &OnceKey) -> Result<Option<Claim>, StoreError> {
    let Some(stored) = tx.idempotent_answer(scope, &key.key).await? else { return Ok(None) };
    if stored.route != key.route || stored.body_sha256 != key.body_sha256 {
        return Ok(Some(Claim::OtherCall));
    }
    let status = u16::try_from(stored.status).unwrap_or(UNFINISHED);
    Ok(Some(Claim::Answered(Answer { status, body: stored.response })))
}

fn row(scope: &TenantScope, key: &OnceKey, answer: &Answer, now: Timestamp) -> IdempotencyRow {
    IdempotencyRow {
        tenant_id: scope.tenant_id().clone(),
        key: key.key.clone(),
        route: key.route.clone(),
        body_sha256: key.body_sha256.clone(),
        status: u32::from(answer.status),
        response: answer.body.clone(),
        created_at: now,
    }
}

/// The keys whose first call is running in this process, so that a second is told to wait instead of holding a connection. Another
/// replica's first call is waited for in the database.
#[derive(Debug, Default)]
pub struct InFlight {
    keys: Mutex<HashSet<(TenantId, String)>>,
}

/// Held by the running call, in the task that outlives a client which hangs up.
#[derive(Debug)]
pub struct Flight {
    flights: Arc<InFlight>,
    key: (TenantId, String),
}

impl InFlight {
    /// `None`: another call with this key is running.
    pub fn enter(self: &Arc<Self>, scope: &TenantScope, key: &OnceKey) -> Option<Flight> {
        let key = (scope.tenant_id().clone(), key.key.clone());
        let entered = self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        entered.then(|| Flight { flights: Arc::clone(self), key })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
