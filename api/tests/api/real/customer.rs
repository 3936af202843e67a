//! Someone with a tenant of their own, who knows nothing but the API.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::eventually;
use crate::harness::{Got, PASSWORD};

#[derive(Debug, Clone)]
pub struct Customer {
    http: reqwest::Client,
    url: String,
    pub access: String,
    pub user_id: String,
    pub tenant_id: String,
}

/// A key that no other call has.
pub fn fresh_key() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("real-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A Pool-96 that runs `command`, its memory spread over all cards.
pub fn pool_of(command: &[&str]) -> Value {
    json!({"offer_id": "pool-96", "command": command, "policy": {"placement": "interleave"}})
}

impl Customer {
    pub async fn sign_up(url: &str, name: &str) -> Self {
        let mut customer = Self {
            http: reqwest::Client::new(),
            url: url.to_owned(),
            access: String::new(),
            user_id: String::new(),
            tenant_id: String::new(),
        };
        let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD});
        let session = customer.post("/v1/auth/signup", body).await.is(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        customer.access = text(&session["access_token"]);
        customer.user_id = text(&session["me"]["user_id"]);
        customer.tenant_id = text(&session["me"]["tenant_id"]);
        customer
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.http.request(method, format!("{}{path}", self.url));
        if self.access.is_empty() { request } else { request.bearer_auth(&self.access) }
    }

    /// `None`: nobody answered.
    pub async fn try_send(&self, request: reqwest::RequestBuilder) -> Option<Got> {
        let response = request.send().await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.ok()?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Some(Got { status, headers, body })
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Got {
        self.try_send(request).await.expect("an answer")
    }

    pub async fn get(&self, path: &str) -> Value {
        self.send(self.request("GET", path)).await.is(200)
    }

    pub async fn post(&self, path: &str, body: Value) -> Got {
        self.send(self.request("POST", path).header("idempotency-key", fresh_key()).json(&body)).await
    }

    pub fn create_request(&self, key: &str, order: &Value) -> reqwest::RequestBuilder {
        self.request("POST", "/v1/instances").header("idempotency-key", key).json(order)
    }

    pub async fn create(&self, order: &Value) -> Got {
        self.send(self.create_request(&fresh_key(), order)).await
    }

    /// Rents and waits until it runs.
    pub async fn rent(&self, order: &Value) -> String {
        let made = self.create(order).await.is(201);
        let id = made["id"].as_str().unwrap().to_owned();
        self.reaches(&id, "running").await;
        id
    }

    /// Waits for a state that the instance comes to by itself.
    pub async fn reaches(&self, id: &str, state: &str) -> Value {
        let path = format!("/v1/instances/{id}/wait?state={state}&timeout=60");
        self.get(&path).await
    }

    /// Waits for a state, whatever comes before it and whether or not anybody answers meanwhile.
    pub async fn at_last(&self, id: &str, state: &str) -> Value {
        let path = format!("/v1/instances/{id}");
        eventually(&format!("{id} to be {state}"), 40, async || {
            let got = self.try_send(self.request("GET", &path)).await?;
            (got.status == 200 && got.body["state"] == state).then_some(got.body)
        })
        .await
    }

    pub async fn instance(&self, id: &str) -> Value {
        self.get(&format!("/v1/instances/{id}")).await
    }

    pub async fn stop(&self, id: &str) -> Value {
        self.post(&format!("/v1/instances/{id}/actions/stop"), json!({})).await.is(202)
    }

    pub async fn start(&self, id: &str) -> Value {
        self.post(&format!("/v1/instances/{id}/actions/start"), json!({})).await.is(202)
    }

    pub async fn delete(&self, id: &str) -> Value {
        self.send(self.request("DELETE", &format!("/v1/instances/{id}"))).await.is(202)
    }

    /// The last line of JSON that the program inside wrote, once there is one.
    pub async fn witness(&self, id: &str) -> Value {
        let path = format!("/v1/instances/{id}/logs");
        eventually("the program's report", 60, async || {
            let logs = self.get(&path).await;
            let tail = logs["tail"].as_str()?;
            let mut lines = tail.lines().rev().filter(|line| line.starts_with('{'));
            lines.find_map(|line| serde_json::from_str(line).ok())
        })
        .await
    }
}
