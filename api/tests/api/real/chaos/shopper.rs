//! A customer who does not know whether anybody is there: sends until answered, with the same key, and remembers every answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};
use tarn_billing::money::Micros;

use super::super::every_item;
use super::Dice;
use crate::harness::{Got, PASSWORD};

pub struct Shopper {
    http: reqwest::Client,
    url: String,
    dice: Dice,
    keys: u32,
    access: String,
    pub memory: Memory,
}

/// What was answered.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pub tenant_id: String,
    /// Id and amount of each top-up.
    pub top_ups: Vec<(String, Micros)>,
    pub instances: Vec<String>,
    /// How often one was started again.
    pub starts: BTreeMap<String, usize>,
    /// Runs that were seen running: instance and generation.
    pub ran: BTreeSet<(String, i64)>,
}

impl Shopper {
    pub async fn sign_up(url: &str, number: u8, seed: u64) -> Self {
        // Each from an address of its own: limits are not what is tried here.
        let address = Ipv4Addr::new(127, 0, 1, number);
        let http = reqwest::Client::builder().local_address(Some(address.into())).build().unwrap();
        let (url, dice, access) = (url.to_owned(), Dice::new(seed), String::new());
        let shopper = Self { http, url, dice, keys: 0, access, memory: Memory::default() };
        let email = format!("shopper{number}@example.com");
        let body = json!({"email": email, "password": PASSWORD});
        let signed = shopper.certainly("POST", "/v1/auth/signup", Some(&body), None).await;
        // Signed up already, by the attempt whose answer was lost.
        let session = match signed.status {
            409 => shopper.certainly("POST", "/v1/auth/login", Some(&body), None).await.is(200),
            _ => signed.is(201),
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let memory = Memory { tenant_id: text(&session["me"]["tenant_id"]), ..Memory::default() };
        Self { access: text(&session["access_token"]), memory, ..shopper }
    }

    /// The answer to one call, sent as often as it takes; only what is nobody's answer (no connection, not ready, too often, still
    /// running) is sent again.
    pub async fn certainly(&self, method: &str, path: &str, body: Option<&Value>, key: Option<&str>) -> Got {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        loop {
            let mut request = self.http.request(method.clone(), format!("{}{path}", self.url));
            if !self.access.is_empty() {
                request = request.bearer_auth(&self.access);
            }
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            if let Ok(response) = request.timeout(Duration::from_secs(20)).send().await {
                let (status, headers) = (response.status().as_u16(), response.headers().clone());
                if let Ok(text) = response.text().await {
                    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
                    let again = status == 429 || status >= 500 || body["code"] == "idempotency_key_in_flight";
                    if !again {
                        return Got { status, headers, body };
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn get(&self, path: &str) -> Value {
        self.certainly("GET", path, None, None).await.is(200)
    }

    /// Every item of a list.
    pub async fn all(&self, path: &str) -> Vec<Value> {
        every_item(path, async |page| self.get(&page).await).await
    }

    fn key(&mut self) -> String {
        self.keys += 1;
        format!("{}-{}", self.memory.tenant_id, self.keys)
    }

    async fn act(&mut self, path: &str, body: &Value) -> Got {
        let key = self.key();
        self.certainly("POST", path, Some(body), Some(&key)).await
    }

    pub async fn top_up(&mut self) {
        // A payment moves whole fen.
        let amount = Micros::new(1_000_000 + 10_000 * i64::try_from(self.dice.between(0, 500)).unwrap());
        let body = json!({"amount": {"amount": amount.to_string(), "currency": "CNY"}});
        let mut top_up = self.act("/v1/wallet/topups", &body).await.is(201);
        // It is in the ledger when the provider has said so, not when it was asked.
        while top_up["state"] == "pending" {
            tokio::time::sleep(Duration::from_millis(60)).await;
            top_up = self.get(&format!("/v1/wallet/topups/{}", top_up["id"].as_str().unwrap())).await;
        }
        assert_eq!(top_up["state"], "settled", "{top_up}");
        self.memory.top_ups.push((top_up["transfer_id"].as_str().unwrap().to_owned(), amount));
    }

    /// Rents one card, if there is one.
    pub async fn rent(&mut self) -> Option<String> {
        let made = self.act("/v1/instances", &json!({"offer_id": "card-24", "command": ["work"]})).await;
        if made.status != 201 {
            assert!(matches!(made.status, 402 | 403 | 409), "{made:?}");
            return None;
        }
        let id = made.body["id"].as_str().unwrap().to_owned();
        assert!(!self.memory.instances.contains(&id), "one key, one instance");
        self.memory.instances.push(id.clone());
        Some(id)
    }

    /// Looks until it runs, for a while; remembers if it did.
    pub async fn runs(&mut self, id: &str, looks: u32) -> bool {
        for _ in 0..looks {
            let seen = self.get(&format!("/v1/instances/{id}")).await;
            if seen["state"] == "running" {
                let generation = seen["generation"].as_i64().unwrap();
                self.memory.ran.insert((id.to_owned(), generation));
                return true;
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        false
    }

    pub async fn stop(&mut self, id: &str) {
        let answered = self.act(&format!("/v1/instances/{id}/actions/stop"), &json!({})).await;
        assert!(matches!(answered.status, 202 | 409), "{answered:?}");
    }

    pub async fn start(&mut self, id: &str) {
        let answered = self.act(&format!("/v1/instances/{id}/actions/start"), &json!({})).await;
        assert!(matches!(answered.status, 202 | 402 | 403 | 409), "{answered:?}");
        if answered.status == 202 {
            *self.memory.starts.entry(id.to_owned()).or_default() += 1;
        }
    }

    pub async fn end(&mut self, id: &str) {
        let answered = self.certainly("DELETE", &format!("/v1/instances/{id}"), None, None).await;
        assert!(matches!(answered.status, 202 | 409), "{answered:?}");
        loop {
            let seen = self.get(&format!("/v1/instances/{id}")).await;
            if seen["state"] == "terminated" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
    }

    /// Shops until told that it is over, and leaves nothing behind.
    pub async fn shop(mut self, over: tokio::sync::watch::Receiver<bool>) -> Self {
        while !*over.borrow() {
            if self.dice.roll().is_multiple_of(3) {
                self.top_up().await;
                continue;
            }
            let Some(id) = self.rent().await else {
                self.top_up().await;
                continue;
            };
            let looks = u32::try_from(self.dice.between(0, 30)).unwrap();
            self.runs(&id, looks).await;
            tokio::time::sleep(self.dice.millis(0, 1_500)).await;
            if self.dice.roll().is_multiple_of(2) {
                self.stop(&id).await;
                tokio::time::sleep(self.dice.millis(0, 600)).await;
                self.start(&id).await;
                self.runs(&id, 20).await;
                tokio::time::sleep(self.dice.millis(0, 800)).await;
            }
            self.end(&id).await;
        }
        self
    }
}
