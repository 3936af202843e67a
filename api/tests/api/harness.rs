//! A control plane to call, and people to call it as.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tarn_api::clock::ManualClock;
use tarn_api::config::{Config, PasswordCost, Rates};
use tarn_api::entropy::SeededEntropy;
use tarn_api::serve::{self, Ambient, Server};
use tarn_protocol::ids::UserId;
use tarn_protocol::units::Timestamp;
use tempfile::TempDir;

use crate::database::Fresh;

/// Declares each scenario as a test on SQLite and one on PostgreSQL.
macro_rules! on_both {
    ($($scenario:ident;)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario(crate::harness::Api::start().await).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario(crate::harness::Api::start_on_postgres().await).await;
            })*
        }
    };
}

pub const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
pub const PASSWORD: &str = "correct horse battery";

pub struct Api {
    pub server: Server,
    pub clock: Arc<ManualClock>,
    http: reqwest::Client,
    people: AtomicU64,
    _data: TempDir,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Got {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Got {
    #[track_caller]
    pub fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    #[track_caller]
    pub fn fails(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.header("content-type"), "application/problem+json");
        self.body
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Someone who signed up.
#[derive(Debug, Clone)]
pub struct Person {
    pub email: String,
    pub access: String,
    pub refresh: String,
    pub user_id: String,
    pub tenant_id: String,
}

impl Person {
    pub fn from_session(email: &str, session: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            email: email.to_owned(),
            access: text(&session["access_token"]),
            refresh: text(&session["refresh_token"]),
            user_id: text(&session["me"]["user_id"]),
            tenant_id: text(&session["me"]["tenant_id"]),
        }
    }
}

/// Limits that no test meets by accident, and passwords hashed fast.
pub fn config(data: &TempDir) -> Config {
    let often = 10_000_000;
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        local_payments: true,
        // Tests that need them tick them, in their own time.
        workers: false,
        password_cost: PasswordCost { memory_kib: 64, passes: 1, concurrent_max: 4 },
        rates: Rates { per_address: often, per_credential: often, per_tenant: often, sign_in: often },
        ..Config::local(data.path().to_owned())
    }
}

impl Api {
    pub async fn start() -> Self {
        Self::start_with(|config| config).await
    }

    /// On a database of its own in the tests' PostgreSQL server, which goes with the test process.
    pub async fn start_on_postgres() -> Self {
        let url = Fresh::empty_postgres().await;
        Self::start_with(|config| Config { database_url: Some(url), ..config }).await
    }

    pub async fn start_with(change: impl FnOnce(Config) -> Config) -> Self {
        Self::start_at(&Self::clock(), change).await
    }

    pub fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::at(START))
    }

    /// In a time that something else shares.
    pub async fn start_at(clock: &Arc<ManualClock>, change: impl FnOnce(Config) -> Config) -> Self {
        let data = TempDir::new().unwrap();
        let clock = Arc::clone(clock);
        let ambient = Ambient { clock: clock.clone(), entropy: Arc::new(SeededEntropy::new(7)) };
        let server = serve::serve_with(change(config(&data)), ambient).await.unwrap();
        Self { server, clock, http: reqwest::Client::new(), people: AtomicU64::new(0), _data: data }
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        self.http.request(method, format!("{}{path}", self.server.url()))
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Got {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Got { status, headers, body }
    }

    pub async fn get(&self, credential: &str, path: &str) -> Got {
        self.send(self.request("GET", path).bearer_auth(credential)).await
    }

    pub async fn delete(&self, credential: &str, path: &str) -> Got {
        self.send(self.request("DELETE", path).bearer_auth(credential)).await
    }

    pub async fn post(&self, credential: &str, path: &str, body: Value) -> Got {
        self.send(self.request("POST", path).bearer_auth(credential).json(&body)).await
    }

    /// Previews a price and appends it on that preview.
    pub async fn change_price(&self, operator: &Person, price: Value) -> Got {
        let preview =
            self.post(&operator.access, "/v1/admin/price-book/preview", price.clone()).await.is(200);
        let mut edit = price;
        edit["fingerprint"] = preview["fingerprint"].clone();
        self.post(&operator.access, "/v1/admin/price-book", edit).await
    }

    pub async fn put(&self, credential: &str, path: &str, body: Value) -> Got {
        self.send(self.request("PUT", path).bearer_auth(credential).json(&body)).await
    }

    pub async fn patch(&self, credential: &str, path: &str, body: Value) -> Got {
        self.send(self.request("PATCH", path).bearer_auth(credential).json(&body)).await
    }

    pub async fn post_once(&self, credential: &str, path: &str, key: &str, body: Value) -> Got {
        let request = self.request("POST", path).bearer_auth(credential).header("idempotency-key", key);
        self.send(request.json(&body)).await
    }

    pub async fn post_openly(&self, path: &str, body: Value) -> Got {
        self.send(self.request("POST", path).json(&body)).await
    }

    /// Someone new, who owns a new tenant.
    pub async fn person(&self) -> Person {
        let email = format!("person{}@example.com", self.people.fetch_add(1, Ordering::Relaxed));
        let session =
            self.post_openly("/v1/auth/signup", json!({"email": email, "password": PASSWORD})).await.is(201);
        Person::from_session(&email, &session)
    }

    /// Someone new who may use `/v1/admin`.
    pub async fn operator(&self) -> Person {
        let person = self.person().await;
        let id: UserId = person.user_id.parse().unwrap();
        let made = self.server.state().store.write(move |tx| {
            let id = id.clone();
            Box::pin(async move { tx.set_operator(&id, true).await })
        });
        assert!(made.await.unwrap());
        person
    }

    pub async fn log_in(&self, email: &str) -> Person {
        let session =
            self.post_openly("/v1/auth/login", json!({"email": email, "password": PASSWORD})).await.is(200);
        Person::from_session(email, &session)
    }

    /// A key of `person`'s tenant with these scopes.
    pub async fn key(&self, person: &Person, scopes: &[&str]) -> String {
        let body = json!({"name": "test", "scopes": scopes});
        let key = self.post(&person.access, "/v1/api-keys", body).await.is(201);
        key["secret"].as_str().unwrap().to_owned()
    }
}
