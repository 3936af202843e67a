//! What every handler and worker is given.

use std::sync::Arc;

use tarn_store::Store;

use crate::app::money::payments::watch::RefusedCallbacks;
use crate::app::once::InFlight;
use crate::auth::access_token::{AccessTokens, TokenError};
use crate::auth::password::{PasswordError, Passwords};
use crate::auth::proofs::Proofs;
use crate::auth::signing_key::{SigningKey, SigningKeyError};
use crate::clock::Clock;
use crate::config::Config;
use crate::entropy::Entropy;
use crate::failpoint::Failpoints;
use crate::http::extract::page::Cursors;
use crate::http::rate_limit::RateLimits;
use crate::metrics::Metrics;
use crate::till::PaymentProvider;
use crate::wakeups::Wakeups;

/// Cheap to clone: everything in it is shared.
#[derive(Debug, Clone)]
pub struct AppState {
    pub store: Store,
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub wakeups: Arc<Wakeups>,
    pub auth: Arc<Auth>,
    pub payments: Arc<dyn PaymentProvider>,
    /// Payment callbacks that this replica refused lately.
    pub refused_callbacks: Arc<RefusedCallbacks>,
    pub in_flight: Arc<InFlight>,
    /// Starts of this replica queue here in order, so that the many that wait for a placement hold no connection.
    pub placing: Arc<tokio::sync::Mutex<()>>,
    /// One audit at a time for each replica.
    pub auditing: Arc<tokio::sync::Mutex<()>>,
    pub limits: Arc<RateLimits>,
    pub metrics: Arc<Metrics>,
    pub failpoints: Failpoints,
}

/// What proves callers and seals what clients carry for us.
#[derive(Debug)]
pub struct Auth {
    pub tokens: AccessTokens,
    pub passwords: Passwords,
    pub cursors: Cursors,
    pub proofs: Proofs,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("no signing key")]
    SigningKey(#[from] SigningKeyError),
    #[error("access tokens cannot be signed")]
    Tokens(#[from] TokenError),
    #[error("passwords cannot be hashed")]
    Passwords(#[from] PasswordError),
}

impl Auth {
    pub fn new(config: &Config, entropy: &dyn Entropy) -> Result<Self, AuthError> {
        let key = SigningKey::load_or_create(&config.data_dir, entropy)?;
        Ok(Self {
            tokens: AccessTokens::new(&key, config.sessions.access_token_seconds)?,
            passwords: Passwords::new(config.password_cost, entropy)?,
            cursors: Cursors::new(&key),
            proofs: Proofs::default(),
        })
    }
}
