//! What an operator can choose. Read once, in `main`; everything below gets values.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tarn_billing::invoice::Party;

use crate::app::operators::credits::CreditRules;
use crate::till::stripe::StripeConfig;

/// Configuration of one `tarn serve` process.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Holds the SQLite file and the signing key.
    pub data_dir: PathBuf,
    /// `postgres://…`, or `None` for the SQLite file in `data_dir`.
    pub database_url: Option<String>,
    /// Answers `POST /v1/wallet/topups` with a provider that always says "paid". Never on a public service.
    pub local_payments: bool,
    /// Dies at this named place; for tests.
    pub failpoint: Option<String>,
    /// Takes payments through this account; over `local_payments`.
    pub stripe: Option<StripeConfig>,
    /// False: this replica only answers requests, and leaves the background work to others.
    pub workers: bool,
    pub sessions: SessionLimits,
    pub password_cost: PasswordCost,
    pub rates: Rates,
    pub requests: RequestLimits,
    /// When credit takes two operators.
    pub credits: CreditRules,
    pub seller: Seller,
}

/// Who issues invoices.
#[derive(Debug, Clone)]
pub struct Seller {
    /// Begins every number: `TARN-2027-000001`. Another code is another row of numbers.
    pub code: String,
    pub party: Party,
}

/// How long credentials live.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    pub access_token_seconds: i64,
    pub refresh_token_seconds: i64,
}

/// argon2id parameters.
#[derive(Debug, Clone, Copy)]
pub struct PasswordCost {
    pub memory_kib: u32,
    pub passes: u32,
    /// Passwords hashed at once; each takes `memory_kib` and a core.
    pub concurrent_max: usize,
}

/// Requests per minute; a burst of the same size may come at once.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    pub per_address: u32,
    pub per_credential: u32,
    pub per_tenant: u32,
    /// Sign-up, login and token refresh, per address.
    pub sign_in: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    pub body_bytes: usize,
    /// Longer than the longest long-poll.
    pub seconds: u64,
}

impl Config {
    /// Everything in `data_dir`, on a loopback port: `tarn serve` with no configuration.
    pub fn local(data_dir: PathBuf) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            data_dir,
            database_url: None,
            local_payments: false,
            failpoint: None,
            stripe: None,
            workers: true,
            sessions: SessionLimits { access_token_seconds: 15 * 60, refresh_token_seconds: 30 * 24 * 3600 },
            password_cost: PasswordCost { memory_kib: 19 * 1024, passes: 2, concurrent_max: 2 },
            rates: Rates { per_address: 3000, per_credential: 1200, per_tenant: 2400, sign_in: 20 },
            requests: RequestLimits { body_bytes: 1024 * 1024, seconds: 90 },
            credits: CreditRules { alone_max: None, request_seconds: 72 * 3600 },
            seller: Seller {
                code: "TARN".to_owned(),
                party: Party { name: "Tarn".to_owned(), ..Party::default() },
            },
        }
    }

    /// Where the store connects to.
    pub fn database(&self) -> String {
        self.database_url.clone().unwrap_or_else(|| self.data_dir.join("tarn.db").display().to_string())
    }
}
