//! Proofs that were read a moment ago, so that a client which asks often costs one read of the database in [`LIFETIME`], not one
//! per request.
//!
//! Everything is forgotten every [`LIFETIME`], by a task that only counts real time, and at once when this process changes who may
//! do what; so a change acts at once here, and within [`LIFETIME`] when another replica made it. What is remembered are rows, never
//! verdicts: a token's signature and every expiry are checked at each request. A row read before a change is not remembered after it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tarn_protocol::ids::{SessionId, TenantId, UserId};
use tarn_rows::api_keys::ApiKeyRow;
use tarn_rows::secrets::SecretDigest;
use tarn_rows::sessions::SessionProofRow;

/// How stale another replica's change may be. Revocation is promised within a second.
pub const LIFETIME: Duration = Duration::from_millis(250);
/// Rows kept at once; more clients than this in one lifetime are read from the database.
const ROWS_MAX: usize = 20_000;

/// What a session's proof is about.
pub type SessionKey = (UserId, TenantId, SessionId);

/// An API key and whether its maker is an operator.
#[derive(Debug, Clone)]
pub struct KeyProof {
    pub row: ApiKeyRow,
    pub by_operator: bool,
}

#[derive(Debug, Default)]
pub struct Proofs {
    /// Grows with every forgetting.
    age: AtomicU64,
    sessions: Remembered<SessionKey, SessionProofRow>,
    keys: Remembered<SecretDigest, KeyProof>,
}

/// The age before a read: what was read is remembered only if nothing was forgotten since.
#[derive(Debug, Clone, Copy)]
pub struct Age(u64);

#[derive(Debug)]
struct Remembered<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Hash + Eq, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// `current` is asked under the lock, so that no forgetting falls between.
    fn put(&self, key: K, value: V, current: impl FnOnce() -> bool) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if current() && rows.len() < ROWS_MAX {
            rows.insert(key, value);
        }
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Proofs {
    pub fn age(&self) -> Age {
        Age(self.age.load(Ordering::Acquire))
    }

    /// Someone's rights changed, or the rows are old enough.
    pub fn forget(&self) {
        self.age.fetch_add(1, Ordering::AcqRel);
        self.sessions.clear();
        self.keys.clear();
    }

    pub fn session(&self, key: &SessionKey) -> Option<SessionProofRow> {
        self.sessions.get(key)
    }

    pub fn key(&self, digest: &SecretDigest) -> Option<KeyProof> {
        self.keys.get(digest)
    }

    pub fn remember_session(&self, read_at: Age, key: SessionKey, proof: SessionProofRow) {
        self.sessions.put(key, proof, || self.age.load(Ordering::Acquire) == read_at.0);
    }

    pub fn remember_key(&self, read_at: Age, digest: SecretDigest, proof: KeyProof) {
        self.keys.put(digest, proof, || self.age.load(Ordering::Acquire) == read_at.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_protocol::units::Timestamp;
    use tarn_rows::accounts::Role;

    fn key() -> SessionKey {
        let at = Timestamp::from_micros(0);
        (UserId::new(at, 1), TenantId::new(at, 2), SessionId::new(at, 3))
    }

    fn proof() -> SessionProofRow {
        SessionProofRow { operator: false, token_epoch: 0, role: Role::Owner, live: true }
    }

    #[test]
    fn a_row_read_before_a_change_is_not_remembered_after_it() {
        let proofs = Proofs::default();
        let before = proofs.age();
        proofs.forget();
        proofs.remember_session(before, key(), proof());
        assert_eq!(proofs.session(&key()), None);
        proofs.remember_session(proofs.age(), key(), proof());
        assert_eq!(proofs.session(&key()), Some(proof()));
        proofs.forget();
        assert_eq!(proofs.session(&key()), None);
    }
}
