//! The API as a customer's program uses it: JSON over HTTP, problem documents as errors.

use reqwest::{Method, StatusCode};
use serde_json::Value;
use tarn_billing::money::Micros;

use super::DemoError;

/// A client of one control plane, signed in or not.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
}

/// One answer, with the call that it answers for messages.
#[derive(Debug)]
pub(super) struct Answer {
    pub call: String,
    pub body: Value,
}

impl Client {
    pub fn new(url: &str) -> Self {
        Self { http: reqwest::Client::new(), url: url.to_owned(), token: None }
    }

    pub fn with_token(&self, token: String) -> Self {
        Self { token: Some(token), ..self.clone() }
    }

    pub async fn get(&self, path: &str) -> Result<Answer, DemoError> {
        self.send(Method::GET, path, None, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Answer, DemoError> {
        self.send(Method::POST, path, Some(body), None).await
    }

    /// A POST that spends or allocates: `key` makes a retry harmless.
    pub async fn post_once(&self, path: &str, body: Value, key: &str) -> Result<Answer, DemoError> {
        self.send(Method::POST, path, Some(body), Some(key)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer, DemoError> {
        self.send(Method::DELETE, path, None, None).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        key: Option<&str>,
    ) -> Result<Answer, DemoError> {
        let call = format!("{method} {path}");
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        let unreachable = |source| DemoError::Unreachable { call: call.clone(), source };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let text = response.text().await.map_err(unreachable)?;
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if status.is_success() { Ok(Answer { call, body }) } else { Err(refused(call, status, &body)) }
    }
}

fn refused(call: String, status: StatusCode, body: &Value) -> DemoError {
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    DemoError::Refused { call, status: status.as_u16(), code: text("code"), detail: text("detail") }
}

impl Answer {
    fn lacks(&self, field: &'static str) -> DemoError {
        DemoError::Shape { call: self.call.clone(), field }
    }

    /// The field at a JSON pointer.
    pub fn at(&self, pointer: &'static str) -> Result<&Value, DemoError> {
        self.body.pointer(pointer).ok_or_else(|| self.lacks(pointer))
    }

    pub fn text(&self, pointer: &'static str) -> Result<&str, DemoError> {
        self.at(pointer)?.as_str().ok_or_else(|| self.lacks(pointer))
    }

    pub fn list(&self, pointer: &'static str) -> Result<&[Value], DemoError> {
        self.at(pointer)?.as_array().map(Vec::as_slice).ok_or_else(|| self.lacks(pointer))
    }

    /// A whole number, zero or more.
    pub fn whole(&self, pointer: &'static str) -> Result<u64, DemoError> {
        self.at(pointer)?.as_u64().ok_or_else(|| self.lacks(pointer))
    }

    /// An amount of money as people write it.
    pub fn amount(&self, pointer: &'static str) -> Result<String, DemoError> {
        let part = |name: &str| self.at(pointer).map(|amount| amount.get(name).and_then(Value::as_str));
        match (part("amount")?, part("currency")?) {
            (Some(amount), Some(currency)) => Ok(format!("{amount} {currency}")),
            _ => Err(self.lacks(pointer)),
        }
    }

    /// An amount of money in whole micro-units of its currency.
    pub fn micros(&self, pointer: &'static str) -> Result<i64, DemoError> {
        let text = self.at(pointer)?.get("amount").and_then(Value::as_str);
        let micros = text.and_then(|text| text.parse::<Micros>().ok());
        micros.map(Micros::get).ok_or_else(|| self.lacks(pointer))
    }
}
