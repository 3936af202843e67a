//! Events as a webhook brings them, genuine and forged.

use secrecy::SecretString;
use serde_json::{Value, json};
use tarn_protocol::units::Timestamp;

use crate::till::stripe::{SIGNATURE, signature};

/// One thing that happened, in Stripe's form.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: String,
    pub body: Value,
}

impl Event {
    pub(super) fn new(number: usize, kind: &str, object: &Value, at: Timestamp) -> Self {
        let body = json!({
            "id": format!("evt_{number}"), "object": "event", "type": kind,
            "created": at.as_micros() / 1_000_000, "data": {"object": object},
        });
        Self { kind: kind.to_owned(), body }
    }

    /// The same event saying another amount: signed, and still not to be believed.
    pub fn with_amount(&self, fen: i64) -> Self {
        let mut body = self.body.clone();
        for name in ["amount_total", "amount_received", "amount"] {
            if body["data"]["object"].get(name).is_some() {
                body["data"]["object"][name] = json!(fen);
            }
        }
        Self { body, ..self.clone() }
    }

    /// The same object under another kind of event: "paid" of a payment that is not.
    pub fn claiming(&self, kind: &str) -> Self {
        let mut body = self.body.clone();
        body["type"] = json!(kind);
        if kind == "checkout.session.completed" {
            body["data"]["object"]["payment_status"] = json!("paid");
            body["data"]["object"]["status"] = json!("complete");
        }
        Self { kind: kind.to_owned(), body }
    }

    /// Sends it to `url`, signed with `secret` at `at`; the status that came back.
    pub async fn deliver(
        &self,
        http: &reqwest::Client,
        url: &str,
        secret: &SecretString,
        at: Timestamp,
    ) -> reqwest::Result<u16> {
        let body = self.body.to_string();
        let signed = signature::sign(secret, body.as_bytes(), at);
        let request = http.post(url).header("content-type", "application/json").header(SIGNATURE, signed);
        Ok(request.body(body).send().await?.status().as_u16())
    }
}
