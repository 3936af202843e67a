//! A control plane with scripted hosts, moved step by step.

use serde_json::{Value, json};
use tarn_api::clock::Clock;
use tarn_api::workers;
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Timestamp;

use super::agent::FakeAgent;
use super::hardware::Wiring;
use crate::harness::{Api, Got, Person};

pub struct World {
    pub api: Api,
    pub operator: Person,
    pub agents: Vec<FakeAgent>,
    keys: u64,
}

impl World {
    /// A control plane whose workers tick only when told to.
    pub async fn on(api: Api) -> Self {
        let operator = api.operator().await;
        let access = api.key(&operator, &["admin"]).await;
        let operator = Person { access, ..operator };
        Self { api, operator, agents: Vec::new(), keys: 0 }
    }

    /// The same with one host of `cards` bridged cards, inventoried and certified.
    pub async fn with_host(api: Api, cards: u32) -> Self {
        let mut world = Self::on(api).await;
        world.add_host(cards, Wiring::BridgedPairs).await;
        world
    }

    pub async fn add_host(&mut self, cards: u32, wiring: Wiring) -> usize {
        let order = json!({"region": "local"});
        let made = self.api.post(&self.operator.access, "/v1/admin/join-tokens", order).await.is(201);
        let number = u32::try_from(self.agents.len() + 1).unwrap();
        let token = made["token"].as_str().unwrap();
        let agent = FakeAgent::join(&self.api, token, number, cards, wiring, self.now()).await;
        self.agents.push(agent);
        self.report(self.agents.len() - 1).await;
        self.agents.len() - 1
    }

    /// Someone new whose credential lives as long as the test's time runs.
    pub async fn person(&self) -> Person {
        let person = self.api.person().await;
        let scopes = ["offers:read", "instances:read", "instances:write", "wallet:read"];
        let access = self.api.key(&person, &scopes).await;
        Person { access, ..person }
    }

    /// The same, who also handles money.
    pub async fn spender(&self) -> Person {
        self.spender_and_key().await.0
    }

    /// The same with the id of the key that is the credential.
    pub async fn spender_and_key(&self) -> (Person, String) {
        let person = self.api.person().await;
        let scopes = ["offers:read", "instances:read", "instances:write", "wallet:read", "wallet:write"];
        let body = json!({"name": "spender", "scopes": scopes});
        let key = self.api.post(&person.access, "/v1/api-keys", body).await.is(201);
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        (Person { access: text("secret"), ..person }, text("id"))
    }

    pub fn now(&self) -> Timestamp {
        self.api.clock.now()
    }

    pub async fn tick(&self) {
        workers::tick_all(self.api.server.state(), self.now()).await.unwrap();
    }

    /// One report of one agent at this instant, nothing pulled before.
    pub async fn report(&mut self, place: usize) {
        let now = self.now();
        self.agents[place].set_now(now);
        self.agents[place].report(&self.api).await;
    }

    /// A second or more passes; then workers, agents and workers again do their round.
    pub async fn pass(&mut self, seconds: i64) {
        self.api.clock.advance_seconds(seconds);
        self.round().await;
    }

    pub async fn round(&mut self) {
        self.tick().await;
        for place in 0..self.agents.len() {
            let now = self.now();
            self.agents[place].step(&self.api, now).await;
        }
        self.tick().await;
    }

    pub async fn try_create(&mut self, person: &Person, body: Value) -> Got {
        self.keys += 1;
        let key = format!("create-{}", self.keys);
        self.api.post_once(&person.access, "/v1/instances", &key, body).await
    }

    pub async fn create(&mut self, person: &Person, offer: &str) -> InstanceId {
        let made = self.try_create(person, json!({"offer_id": offer})).await.is(201);
        made["id"].as_str().unwrap().parse().unwrap()
    }

    pub async fn instance(&self, person: &Person, id: &InstanceId) -> Value {
        self.api.get(&person.access, &format!("/v1/instances/{id}")).await.is(200)
    }

    pub async fn state(&self, person: &Person, id: &InstanceId) -> String {
        self.instance(person, id).await["state"].as_str().unwrap().to_owned()
    }

    pub async fn stop(&self, person: &Person, id: &InstanceId) -> Value {
        let path = format!("/v1/instances/{id}/actions/stop");
        self.api.post(&person.access, &path, json!({})).await.is(202)
    }

    pub async fn terminate(&self, person: &Person, id: &InstanceId) -> Value {
        self.api.delete(&person.access, &format!("/v1/instances/{id}")).await.is(202)
    }

    pub async fn wallet(&self, person: &Person) -> Value {
        self.api.get(&person.access, "/v1/wallet").await.is(200)
    }

    /// The lines of cards.
    pub async fn charges(&self, person: &Person) -> Vec<Value> {
        let page = self.api.get(&person.access, "/v1/charges?item=gpu").await.is(200);
        page["items"].as_array().unwrap().clone()
    }

    pub async fn cards_held(&self) -> u64 {
        let store = self.api.server.state().store.clone();
        store.read(move |tx| Box::pin(async move { tx.fleet_counts().await })).await.unwrap().gpus_held
    }

    /// Kinds of open alerts.
    pub async fn alerts(&self) -> Vec<String> {
        let page = self.api.get(&self.operator.access, "/v1/admin/alerts").await.is(200);
        let open = page["items"].as_array().unwrap().iter().filter(|alert| alert["cleared_at"].is_null());
        open.map(|alert| alert["kind"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn host(&self, place: usize) -> Value {
        let path = format!("/v1/admin/hosts/{}", self.agents[place].host_id);
        self.api.get(&self.operator.access, &path).await.is(200)
    }

    /// The ledger's own invariants.
    pub async fn audit(&self) {
        let store = self.api.server.state().store.clone();
        let audit = store.read(move |tx| Box::pin(async move { tx.ledger_audit().await })).await.unwrap();
        assert_eq!(
            (audit.unbalanced_transfers, audit.wrong_wallets, audit.wrong_holds),
            (0, 0, 0),
            "{audit:?}"
        );
    }
}
