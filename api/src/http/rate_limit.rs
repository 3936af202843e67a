//! How often a client may ask: per address, per credential, per tenant, and much less often for sign-in.
//!
//! Buckets (GCRA) live in this process: with several replicas a client gets the limit once per replica. They guard the service,
//! not money; what must be exact (quotas, balances) is in the database.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use tarn_protocol::ids::TenantId;

use crate::config::Rates;
use crate::http::error::{ApiError, Code};

const WINDOW_SECONDS: u64 = 60;

/// What a client has left, for the `RateLimit` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub policy: &'static str,
    pub quota: u32,
    pub remaining: u32,
}

impl Allowance {
    /// `"credential";q=1200;w=60`
    pub fn policy_header(self) -> String {
        format!("\"{}\";q={};w={WINDOW_SECONDS}", self.policy, self.quota)
    }

    /// `"credential";r=1199;t=1`, with `t` the seconds until the bucket is full again.
    pub fn state_header(self) -> String {
        let used = u64::from(self.quota - self.remaining.min(self.quota));
        let full_in = (used * WINDOW_SECONDS).div_ceil(u64::from(self.quota.max(1)));
        format!("\"{}\";r={};t={full_in}", self.policy, self.remaining)
    }
}

#[derive(Debug)]
struct Limit<K: Hash + Eq + Clone> {
    policy: &'static str,
    quota: NonZeroU32,
    buckets: RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock, StateInformationMiddleware>,
}

impl<K: Hash + Eq + Clone> Limit<K> {
    fn new(policy: &'static str, per_minute: u32) -> Self {
        let quota = NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN);
        let buckets = RateLimiter::dashmap(Quota::per_minute(quota)).with_middleware();
        Self { policy, quota, buckets }
    }

    fn take(&self, key: &K) -> Result<Allowance, ApiError> {
        let quota = self.quota.get();
        match self.buckets.check_key(key) {
            Ok(state) => {
                Ok(Allowance { policy: self.policy, quota, remaining: state.remaining_burst_capacity() })
            }
            Err(until) => {
                let wait = until.wait_time_from(DefaultClock::default().now());
                let detail = format!("more than {quota} requests per minute for this {}", self.policy);
                Err(ApiError::new(Code::RateLimited, detail).retry_after_seconds(wait.as_secs() + 1))
            }
        }
    }

    fn exhausted(&self) -> Allowance {
        Allowance { policy: self.policy, quota: self.quota.get(), remaining: 0 }
    }
}

#[derive(Debug)]
pub struct RateLimits {
    addresses: Limit<IpAddr>,
    credentials: Limit<String>,
    tenants: Limit<TenantId>,
    sign_ins: Limit<IpAddr>,
}

/// Refused, with what to tell in the headers.
#[derive(Debug)]
pub struct Refused {
    pub error: ApiError,
    pub allowance: Allowance,
}

impl RateLimits {
    pub fn new(rates: Rates) -> Self {
        Self {
            addresses: Limit::new("address", rates.per_address),
            credentials: Limit::new("credential", rates.per_credential),
            tenants: Limit::new("tenant", rates.per_tenant),
            sign_ins: Limit::new("sign-in", rates.sign_in),
        }
    }

    pub fn address(&self, address: IpAddr) -> Result<Allowance, Refused> {
        take(&self.addresses, &network_of(address))
    }

    pub fn sign_in(&self, address: IpAddr) -> Result<Allowance, Refused> {
        take(&self.sign_ins, &network_of(address))
    }

    /// The scarcer of what the credential and its tenant have left.
    pub fn credential(&self, credential: &str, tenant: &TenantId) -> Result<Allowance, Refused> {
        let own = take(&self.credentials, &credential.to_owned())?;
        let shared = take(&self.tenants, tenant)?;
        Ok(if shared.remaining < own.remaining { shared } else { own })
    }

    /// Forgets clients whose buckets are full again.
    pub fn forget_idle(&self) {
        self.addresses.buckets.retain_recent();
        self.credentials.buckets.retain_recent();
        self.tenants.buckets.retain_recent();
        self.sign_ins.buckets.retain_recent();
    }
}

fn take<K: Hash + Eq + Clone>(limit: &Limit<K>, key: &K) -> Result<Allowance, Refused> {
    limit.take(key).map_err(|error| Refused { error, allowance: limit.exhausted() })
}

/// One IPv6 customer holds a /64, so that is what counts as an address.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_empties_and_says_when_to_return() {
        let limits = RateLimits::new(Rates { per_address: 3, per_credential: 1, per_tenant: 1, sign_in: 1 });
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let same_network: IpAddr = "2001:db8::ffff".parse().unwrap();
        let left: Vec<u32> = (0..3).map(|_| limits.address(one).unwrap().remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        let refused = limits.address(same_network).unwrap_err();
        assert_eq!(refused.error.code(), Code::RateLimited);
        assert!(refused.error.retry_after().unwrap() >= 1);
        assert!(limits.address("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }

    #[test]
    fn headers_follow_the_structured_field_form() {
        let allowance = Allowance { policy: "tenant", quota: 120, remaining: 90 };
        assert_eq!(allowance.policy_header(), "\"tenant\";q=120;w=60");
        assert_eq!(allowance.state_header(), "\"tenant\";r=90;t=15");
    }
}
