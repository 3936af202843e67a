//! A control plane whose payments go to a sandbox, with a second replica on the same data where the engine allows one.

use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Value, json};
use tarn_api::clock::Clock;
use tarn_api::config::Config;
use tarn_api::entropy::SeededEntropy;
use tarn_api::serve::{self, Ambient, Server};
use tarn_api::till::sandbox::{Event, Paying, Sandbox};
use tarn_api::workers;
use tarn_billing::account::AccountKind;
use tempfile::TempDir;

use crate::database::Fresh;
use crate::harness::{Api, Got, Person, config};

pub const TOPUPS: &str = "/v1/wallet/topups";
pub const CALLBACKS: &str = "/v1/payments/callbacks/stripe";

pub fn secret() -> SecretString {
    SecretString::from("whsec_of_the_tests")
}

pub fn yuan(amount: &str) -> Value {
    json!({"amount": {"amount": amount, "currency": "CNY"}})
}

pub struct Till {
    pub api: Api,
    pub sandbox: Sandbox,
    /// A second replica on the same database.
    pub second: Server,
    pub http: reqwest::Client,
    _data: TempDir,
}

impl Till {
    pub async fn start(engine: &str) -> Self {
        let clock = Api::clock();
        let key = SecretString::from("sk_test_of_the_tests");
        let listen = "127.0.0.1:0".parse().unwrap();
        let sandbox = Sandbox::start(listen, key, clock.clone()).await.unwrap();
        let stripe = Some(sandbox.config(secret()));
        // Two replicas share a PostgreSQL database, and on SQLite the one file (as an operator's command beside a server does).
        let data = TempDir::new().unwrap();
        let url = match engine {
            "postgres" => Fresh::empty_postgres().await,
            _ => data.path().join("shared.db").display().to_string(),
        };
        let of = |own: Config| Config { database_url: Some(url.clone()), stripe: stripe.clone(), ..own };
        let api = Api::start_at(&clock, of).await;
        let ambient = Ambient { clock, entropy: Arc::new(SeededEntropy::new(8)) };
        let second = serve::serve_with(of(config(&data)), ambient).await.unwrap();
        Self { api, sandbox, second, http: reqwest::Client::new(), _data: data }
    }

    /// Someone new whose credential lives as long as the test's time runs.
    pub async fn person(&self) -> Person {
        let person = self.api.person().await;
        let access = self.api.key(&person, &["wallet:read", "wallet:write"]).await;
        Person { access, ..person }
    }

    pub async fn operator(&self) -> Person {
        let operator = self.api.operator().await;
        let access = self.api.key(&operator, &["admin"]).await;
        Person { access, ..operator }
    }

    /// A top-up that is paid and credited.
    pub async fn paid(&self, person: &Person, key: &str, body: Value) -> Value {
        let made = self.top_up(person, key, body).await;
        for event in self.pay(&made, Paying::Pays) {
            assert_eq!(self.deliver(&event, 0).await, 204);
        }
        assert_eq!(self.state_of(person, &made).await, "settled");
        made
    }

    pub async fn top_up(&self, person: &Person, key: &str, body: Value) -> Value {
        self.api.post_once(&person.access, TOPUPS, key, body).await.is(201)
    }

    pub async fn get(&self, person: &Person, path: &str) -> Got {
        self.api.get(&person.access, path).await
    }

    pub async fn cash(&self, person: &Person) -> String {
        self.get(person, "/v1/wallet").await.is(200)["cash"]["amount"].as_str().unwrap().to_owned()
    }

    pub async fn state_of(&self, person: &Person, top_up: &Value) -> String {
        let path = format!("{TOPUPS}/{}", top_up["id"].as_str().unwrap());
        self.get(person, &path).await.is(200)["state"].as_str().unwrap().to_owned()
    }

    /// The customer does something at the page of this top-up.
    pub fn pay(&self, top_up: &Value, how: Paying) -> Vec<Event> {
        self.sandbox.pay(top_up["external_id"].as_str().unwrap(), how).unwrap();
        self.sandbox.take_events()
    }

    /// Sends an event to one of the two replicas; the status that came back.
    pub async fn deliver(&self, event: &Event, replica: usize) -> u16 {
        let server = if replica.is_multiple_of(2) { &self.api.server } else { &self.second };
        let url = format!("{}{CALLBACKS}", server.url());
        event.deliver(&self.http, &url, &secret(), self.api.clock.now()).await.unwrap()
    }

    /// Time passes, and the workers of the first replica do a round.
    pub async fn pass(&self, seconds: i64) {
        self.api.clock.advance_seconds(seconds);
        workers::tick_all(self.api.server.state(), self.api.clock.now()).await.unwrap();
    }

    /// The books are consistent.
    pub async fn audit(&self) {
        consistent(&self.api).await;
    }
}

/// The whole audit finds no difference, and every debt is what its receivable says.
pub async fn consistent(api: &Api) {
    let store = &api.server.state().store;
    let audited = tarn_api::app::books::audit::audit(store, None).await;
    let audited = audited.unwrap_or_else(|difference| panic!("{difference}"));
    let owed = store.read(move |tx| Box::pin(async move { tx.owed_by_all().await })).await.unwrap();
    let receivable = audited.totals.get(&AccountKind::Receivable).copied().unwrap_or_default();
    assert_eq!(receivable, -i128::from(owed.get()));
}

/// Declares each scenario as a test on SQLite and one on PostgreSQL.
macro_rules! with_till {
    ($($scenario:ident;)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario(crate::payments::till::Till::start("sqlite").await).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario(crate::payments::till::Till::start("postgres").await).await;
            })*
        }
    };
}
pub(crate) use with_till;
