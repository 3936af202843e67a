//! Delivers events as a real provider's webhooks arrive: late, repeated, out of order, now and then not at all.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use super::{Event, Sandbox};
use crate::clock::Clock;
use crate::entropy::Entropy;

/// How often new events are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The latest that a delivery begins.
const DELAY_MS_MAX: u64 = 8_000;
/// Deliveries of one event: 0 to this, so one in five is never delivered and only asking finds it.
const TIMES_MAX: u64 = 4;
/// Tries of one delivery that gets no success.
const TRIES_MAX: u32 = 5;

/// Where events go, and how they are signed.
#[derive(Debug, Clone)]
pub struct Courier {
    pub url: String,
    pub secret: SecretString,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
}

impl Courier {
    /// Delivers what happens in `sandbox`, until it is dropped.
    pub async fn run(self, sandbox: &Sandbox) {
        let http = reqwest::Client::new();
        loop {
            for event in sandbox.take_events() {
                let drawn = u64::try_from(self.entropy.bits() & u128::from(u32::MAX)).unwrap_or(0);
                for place in 0..drawn % (TIMES_MAX + 1) {
                    let delay = Duration::from_millis((drawn >> (place * 4)) % DELAY_MS_MAX);
                    tokio::spawn(self.clone().deliver(http.clone(), event.clone(), delay));
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn deliver(self, http: reqwest::Client, event: Event, delay: Duration) {
        tokio::time::sleep(delay).await;
        for tries in 0..TRIES_MAX {
            match event.deliver(&http, &self.url, &self.secret, self.clock.now()).await {
                Ok(status) if status < 300 => return tracing::info!(kind = event.kind, "delivered"),
                Ok(status) => tracing::warn!(kind = event.kind, status, "not taken"),
                Err(error) => tracing::warn!(kind = event.kind, %error, "not delivered"),
            }
            tokio::time::sleep(Duration::from_secs(1) * 2u32.pow(tries)).await;
        }
    }
}
