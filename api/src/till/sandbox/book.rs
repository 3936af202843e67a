//! What the sandbox keeps: pages, payments, refunds, answers by idempotency key. No I/O.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tarn_protocol::units::Timestamp;

use super::events::Event;

/// How the sandbox misbehaves, until told otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Answers 503 to everything.
    pub down: bool,
    /// Does what it is asked and then loses the answer: a client sees a 500.
    pub loses_answers: bool,
    /// Payments without the customer are declined.
    pub declines: bool,
    /// Refunds stay pending until they are decided.
    pub slow_refunds: bool,
    /// Refunds are refused, as for an account without money.
    pub refuses_refunds: bool,
    /// A refund gives back so many fen more than was ordered.
    pub refunds_more: i64,
}

/// What a customer does at the payment page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paying {
    Pays,
    /// A voucher, a surcharge: the provider collects so many fen instead.
    PaysAnother(i64),
    /// The bank says no, and the customer gives up.
    Fails,
    /// Never comes back.
    LetsExpire,
}

#[derive(Debug, Clone)]
struct Session {
    reference: Option<String>,
    fen: i64,
    saves: bool,
    customer: Option<String>,
    status: &'static str,
    payment_status: &'static str,
    intent: Option<String>,
}

#[derive(Debug, Clone)]
struct Intent {
    fen: i64,
    status: &'static str,
    customer: Option<String>,
    saves: bool,
    reference: Option<String>,
    refunded: i64,
    by_page: bool,
}

#[derive(Debug, Clone)]
struct Refund {
    intent: String,
    fen: i64,
    status: &'static str,
    reference: Option<String>,
}

#[derive(Debug, Default)]
pub struct Book {
    pub faults: Faults,
    pub(super) events: Vec<Event>,
    sessions: BTreeMap<String, Session>,
    intents: BTreeMap<String, Intent>,
    refunds: BTreeMap<String, Refund>,
    answers: BTreeMap<String, Kept>,
    made: usize,
    pub(super) refunds_asked: usize,
}

/// What was answered to a key, when and to what.
#[derive(Debug, Clone)]
struct Kept {
    at: Timestamp,
    form: Form,
    answer: Answer,
}

/// Until a key is forgotten, and names something new.
const KEYS_KEPT_SECONDS: i64 = 24 * 3600;

/// A status and a document.
pub(super) type Answer = (u16, Value);
/// The members of a posted form.
pub(super) type Form = BTreeMap<String, String>;

fn refusal(status: u16, kind: &str, code: &str) -> Answer {
    (status, json!({"error": {"type": kind, "code": code, "message": format!("sandbox: {code}")}}))
}

impl Book {
    fn number(&mut self) -> usize {
        self.made += 1;
        self.made
    }

    /// The answer to a call that was made before with this key, not too long ago; a refusal if it was another call.
    pub(super) fn answered(&self, key: &str, form: &Form, now: Timestamp) -> Option<Answer> {
        let fresh = |kept: &&Kept| now.micros_since(kept.at) < KEYS_KEPT_SECONDS * 1_000_000;
        let kept = self.answers.get(key).filter(fresh)?;
        if kept.form == *form {
            Some(kept.answer.clone())
        } else {
            Some(refusal(400, "idempotency_error", "idempotency_key_reused"))
        }
    }

    pub(super) fn remember(&mut self, key: String, form: &Form, answer: &Answer, now: Timestamp) {
        self.answers.insert(key, Kept { at: now, form: form.clone(), answer: answer.clone() });
    }

    pub(super) fn open_session(&mut self, form: &Form, base: &str) -> Answer {
        let amount = form.get("line_items[0][price_data][unit_amount]").and_then(|fen| fen.parse().ok());
        let currency = form.get("line_items[0][price_data][currency]").map(String::as_str);
        let (Some(fen), Some("cny")) = (amount.filter(|fen| *fen > 0), currency) else {
            return refusal(400, "invalid_request_error", "parameter_invalid_integer");
        };
        let number = self.number();
        let saves = form.contains_key("payment_intent_data[setup_future_usage]");
        let customer = form.get("customer").cloned().or_else(|| saves.then(|| format!("cus_{number}")));
        let session = Session {
            reference: form.get("client_reference_id").cloned(),
            fen,
            saves,
            customer,
            status: "open",
            payment_status: "unpaid",
            intent: None,
        };
        let id = format!("cs_test_{number}");
        self.sessions.insert(id.clone(), session);
        (200, self.session_document(&id, base, false))
    }

    pub(super) fn session(&self, id: &str, base: &str) -> Answer {
        if self.sessions.contains_key(id) {
            (200, self.session_document(id, base, true))
        } else {
            refusal(404, "invalid_request_error", "resource_missing")
        }
    }

    fn session_document(&self, id: &str, base: &str, expand: bool) -> Value {
        let session = &self.sessions[id];
        let intent =
            session.intent.as_ref().map(|id| if expand { self.intent_document(id) } else { json!(id) });
        json!({
            "id": id, "object": "checkout.session", "status": session.status, "payment_status": session.payment_status,
            "amount_total": session.intent.as_ref().map_or(session.fen, |id| self.intents[id].fen), "currency": "cny",
            "client_reference_id": session.reference, "customer": session.customer, "payment_intent": intent,
            "url": (session.status == "open").then(|| format!("{base}/pay/{id}")), "metadata": {},
        })
    }

    pub(super) fn charge(&mut self, form: &Form) -> Answer {
        let fen = form.get("amount").and_then(|fen| fen.parse::<i64>().ok()).filter(|fen| *fen > 0);
        let saved = form.get("customer").zip(form.get("payment_method"));
        let (Some(fen), Some((customer, _))) = (fen, saved) else {
            return refusal(400, "invalid_request_error", "parameter_missing");
        };
        let declined = self.faults.declines;
        let intent = Intent {
            fen,
            status: if declined { "requires_payment_method" } else { "succeeded" },
            customer: Some(customer.clone()),
            saves: false,
            reference: form.get("metadata[reference]").cloned(),
            refunded: 0,
            by_page: false,
        };
        let id = format!("pi_test_{}", self.number());
        self.intents.insert(id.clone(), intent);
        let document = self.intent_document(&id);
        self.happened(
            if declined { "payment_intent.payment_failed" } else { "payment_intent.succeeded" },
            &document,
        );
        if declined {
            let (_, mut body) = refusal(402, "card_error", "card_declined");
            body["error"]["decline_code"] = json!("insufficient_funds");
            body["error"]["payment_intent"] = document;
            return (402, body);
        }
        (200, document)
    }

    pub(super) fn intent(&self, id: &str) -> Answer {
        if self.intents.contains_key(id) {
            (200, self.intent_document(id))
        } else {
            refusal(404, "invalid_request_error", "resource_missing")
        }
    }

    fn intent_document(&self, id: &str) -> Value {
        let intent = &self.intents[id];
        let paid = intent.status == "succeeded";
        let fault = (intent.status == "requires_payment_method")
            .then(|| json!({"code": "card_declined", "decline_code": "insufficient_funds", "message": "sandbox: declined"}));
        json!({
            "id": id, "object": "payment_intent", "status": intent.status, "amount": intent.fen,
            "amount_received": if paid { intent.fen } else { 0 }, "currency": "cny", "customer": intent.customer,
            "metadata": intent.reference.as_ref().map_or(json!({}), |reference| json!({"reference": reference})),
            "setup_future_usage": intent.saves.then_some("off_session"), "last_payment_error": fault,
            "payment_method": paid.then(|| json!({
                "id": "pm_test_visa", "type": "card", "card": {"brand": "visa", "last4": "4242"},
            })),
        })
    }

    /// Payments by what was noted on them: `metadata['reference']:'…'`, the only search that is understood.
    pub(super) fn search(&self, query: &str) -> Answer {
        let wanted = query.strip_prefix("metadata['reference']:'").and_then(|rest| rest.strip_suffix('\''));
        let Some(wanted) = wanted else {
            return refusal(400, "invalid_request_error", "search_not_understood");
        };
        let found = self.intents.iter().filter(|(_, intent)| intent.reference.as_deref() == Some(wanted));
        let data: Vec<Value> = found.map(|(id, _)| self.intent_document(id)).collect();
        (200, json!({"object": "search_result", "data": data, "has_more": false}))
    }

    /// The refunds of one payment, newest first.
    pub(super) fn refunds_of(&self, intent: &str) -> Answer {
        let mut found: Vec<&String> =
            self.refunds.iter().filter(|(_, refund)| refund.intent == intent).map(|(id, _)| id).collect();
        found.reverse();
        let data: Vec<Value> = found.into_iter().map(|id| self.refund_document(id)).collect();
        (200, json!({"object": "list", "data": data, "has_more": false}))
    }

    pub(super) fn refund(&mut self, form: &Form) -> Answer {
        let fen = form.get("amount").and_then(|fen| fen.parse::<i64>().ok()).filter(|fen| *fen > 0);
        let intent = form.get("payment_intent").filter(|id| self.intents.contains_key(*id)).cloned();
        let (Some(fen), Some(intent)) = (fen, intent) else {
            return refusal(404, "invalid_request_error", "resource_missing");
        };
        if self.faults.refuses_refunds {
            return refusal(400, "invalid_request_error", "insufficient_funds");
        }
        let fen = fen + self.faults.refunds_more;
        let paid = &self.intents[&intent];
        if paid.status != "succeeded" || paid.refunded + fen > paid.fen {
            return refusal(400, "invalid_request_error", "charge_already_refunded");
        }
        let status = if self.faults.slow_refunds { "pending" } else { "succeeded" };
        let id = format!("re_test_{}", self.number());
        if let Some(paid) = self.intents.get_mut(&intent) {
            paid.refunded += fen;
        }
        let reference = form.get("metadata[reference]").cloned();
        self.refunds.insert(id.clone(), Refund { intent, fen, status, reference });
        (200, self.refund_document(&id))
    }

    pub(super) fn refund_of(&mut self, id: &str) -> Answer {
        self.refunds_asked += 1;
        if self.refunds.contains_key(id) {
            (200, self.refund_document(id))
        } else {
            refusal(404, "invalid_request_error", "resource_missing")
        }
    }

    fn refund_document(&self, id: &str) -> Value {
        let refund = &self.refunds[id];
        let why = (refund.status == "failed").then_some("expired_or_canceled_card");
        json!({
            "id": id, "object": "refund", "status": refund.status, "amount": refund.fen, "currency": "cny",
            "payment_intent": refund.intent, "failure_reason": why,
            "metadata": refund.reference.as_ref().map_or(json!({}), |reference| json!({"reference": reference})),
        })
    }

    pub(super) fn decide_refunds(&mut self, done: bool, now: Timestamp) {
        self.turn_refunds("pending", done, now);
    }

    /// What was paid out comes back from the bank.
    pub(super) fn bounce_refunds(&mut self, now: Timestamp) {
        self.turn_refunds("succeeded", false, now);
    }

    fn turn_refunds(&mut self, from: &str, done: bool, now: Timestamp) {
        let turned: Vec<String> = self
            .refunds
            .iter()
            .filter(|(_, refund)| refund.status == from)
            .map(|(id, _)| id.clone())
            .collect();
        for id in turned {
            let Some(refund) = self.refunds.get_mut(&id) else { continue };
            refund.status = if done { "succeeded" } else { "failed" };
            let (intent, fen) = (refund.intent.clone(), refund.fen);
            if let Some(paid) = self.intents.get_mut(&intent).filter(|_| !done) {
                paid.refunded -= fen;
            }
            let document = self.refund_document(&id);
            self.happened_at(if done { "refund.updated" } else { "refund.failed" }, &document, now);
        }
    }

    pub(super) fn pay(&mut self, id: &str, how: Paying, now: Timestamp) -> Option<()> {
        let number = self.number();
        let session = self.sessions.get_mut(id).filter(|session| session.status == "open")?;
        let fen = match how {
            Paying::PaysAnother(fen) => fen,
            _ => session.fen,
        };
        (session.status, session.payment_status) = match how {
            Paying::Pays | Paying::PaysAnother(_) => ("complete", "paid"),
            Paying::Fails => ("complete", "unpaid"),
            Paying::LetsExpire => ("expired", "unpaid"),
        };
        if how != Paying::LetsExpire {
            let status = if how == Paying::Fails { "requires_payment_method" } else { "succeeded" };
            let intent = Intent {
                fen,
                status,
                customer: session.customer.clone(),
                saves: session.saves,
                reference: session.reference.clone(),
                refunded: 0,
                by_page: true,
            };
            let intent_id = format!("pi_test_{number}");
            session.intent = Some(intent_id.clone());
            self.intents.insert(intent_id.clone(), intent);
            let kind = if how == Paying::Fails {
                "payment_intent.payment_failed"
            } else {
                "payment_intent.succeeded"
            };
            let document = self.intent_document(&intent_id);
            self.happened_at(kind, &document, now);
        }
        let kind = match how {
            Paying::Pays | Paying::PaysAnother(_) => "checkout.session.completed",
            Paying::Fails => "checkout.session.async_payment_failed",
            Paying::LetsExpire => "checkout.session.expired",
        };
        let document = self.session_document(id, "", false);
        self.happened_at(kind, &document, now);
        Some(())
    }

    fn happened(&mut self, kind: &str, object: &Value) {
        self.happened_at(kind, object, Timestamp::from_micros(0));
    }

    fn happened_at(&mut self, kind: &str, object: &Value, at: Timestamp) {
        let number = self.number();
        self.events.push(Event::new(number, kind, object, at));
    }

    pub(super) fn open_sessions(&self) -> Vec<String> {
        let open = self.sessions.iter().filter(|(_, session)| session.status == "open");
        open.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn page(&self, id: &str) -> Option<(i64, &'static str)> {
        self.sessions.get(id).map(|session| (session.fen, session.status))
    }

    pub(super) fn collected_fen(&self) -> i64 {
        let paid = self.intents.values().filter(|intent| intent.status == "succeeded");
        paid.map(|intent| intent.fen - intent.refunded).sum()
    }

    pub(super) fn intents_made(&self) -> usize {
        self.intents.values().filter(|intent| !intent.by_page).count()
    }
}
