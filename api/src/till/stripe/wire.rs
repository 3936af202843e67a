//! The documents of Stripe's API, as far as they are read here (version [`VERSION`]). Unknown members are ignored, unknown words
//! count as "nothing is decided yet".

use serde::Deserialize;
use tarn_billing::money::Micros;

use crate::till::{Outcome, Paid, PaymentError, RefundOutcome, RefundTold, SavedMethod, Told, of_fen};

/// The version that every call asks for, so that an account's own default changes nothing.
pub const VERSION: &str = "2024-06-20";
/// The only currency here; an answer in another is nonsense.
pub const CURRENCY: &str = "cny";

/// A member that is an id, or the object itself when it was asked for.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Expandable<T> {
    Id(String),
    Object(Box<T>),
}

#[derive(Debug, Clone, Deserialize)]
pub struct Session {
    pub id: String,
    pub url: Option<String>,
    pub status: Option<String>,
    pub payment_status: String,
    pub amount_total: Option<i64>,
    pub currency: Option<String>,
    pub client_reference_id: Option<String>,
    pub customer: Option<Expandable<Named>>,
    pub payment_intent: Option<Expandable<Intent>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Named {
    pub id: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Intent {
    pub id: String,
    pub status: String,
    pub amount_received: Option<i64>,
    pub currency: Option<String>,
    pub customer: Option<Expandable<Named>>,
    pub payment_method: Option<Expandable<Method>>,
    pub last_payment_error: Option<Fault>,
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default)]
    pub setup_future_usage: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Metadata {
    pub reference: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Method {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub card: Option<Card>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Card {
    pub brand: String,
    pub last4: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Refund {
    pub id: String,
    pub amount: Option<i64>,
    pub currency: Option<String>,
    pub status: Option<String>,
    pub failure_reason: Option<String>,
    #[serde(default)]
    pub metadata: Option<Metadata>,
}

/// What the account holds: read to see whether there is an answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Balance {}

/// Several objects, a page of them.
#[derive(Debug, Clone, Deserialize)]
pub struct List<T> {
    pub data: Vec<T>,
    #[serde(default)]
    pub has_more: bool,
}

/// What an error answer carries.
#[derive(Debug, Clone, Deserialize)]
pub struct Refusal {
    pub error: Fault,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Fault {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub code: Option<String>,
    pub decline_code: Option<String>,
    pub message: Option<String>,
    pub payment_intent: Option<Box<Intent>>,
}

/// An event as a webhook brings it: only which object it is about.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    #[serde(rename = "type")]
    pub kind: String,
    pub data: EventData,
}

#[derive(Debug, Clone, Deserialize)]
pub struct EventData {
    pub object: EventObject,
}

#[derive(Debug, Clone, Deserialize)]
pub struct EventObject {
    pub id: String,
    pub client_reference_id: Option<String>,
    #[serde(default)]
    pub metadata: Option<Metadata>,
}

impl<T> Expandable<T> {
    fn id_or<'a>(&'a self, of_object: impl FnOnce(&'a T) -> &'a String) -> &'a String {
        match self {
            Self::Id(id) => id,
            Self::Object(object) => of_object(object),
        }
    }
}

impl Fault {
    /// For the customer: the provider's words for a declined card, or its code.
    pub fn words(&self) -> String {
        let code = self.decline_code.as_ref().or(self.code.as_ref()).or(self.kind.as_ref());
        let code = code.map_or("declined", String::as_str);
        self.message.as_ref().map_or_else(|| code.to_owned(), |message| format!("{message} ({code})"))
    }
}

fn amount(fen: Option<i64>, currency: Option<&String>) -> Result<Micros, PaymentError> {
    if !currency.is_some_and(|currency| currency.eq_ignore_ascii_case(CURRENCY)) {
        return Err(PaymentError::Nonsense(format!("an amount in {currency:?}, not in {CURRENCY}")));
    }
    fen.and_then(of_fen).ok_or_else(|| PaymentError::Nonsense(format!("an amount of {fen:?}")))
}

impl Session {
    pub fn told(self) -> Result<Told, PaymentError> {
        let outcome = self.outcome()?;
        Ok(Told { external_id: self.id, reference: self.client_reference_id, pay_url: self.url, outcome })
    }

    fn outcome(&self) -> Result<Outcome, PaymentError> {
        let intent = self.payment_intent.as_ref().and_then(|intent| match intent {
            Expandable::Object(intent) => Some(&**intent),
            Expandable::Id(_) => None,
        });
        Ok(match (self.payment_status.as_str(), self.status.as_deref()) {
            ("paid", _) => {
                let intent_id = self.payment_intent.as_ref().map(|intent| intent.id_or(|intent| &intent.id));
                let payment_ref = intent_id
                    .ok_or_else(|| PaymentError::Nonsense("paid without a payment".to_owned()))?
                    .clone();
                let customer = self.customer.as_ref().map(|customer| customer.id_or(|named| &named.id));
                let method = intent.and_then(|intent| intent.saved(customer));
                let amount = amount(self.amount_total, self.currency.as_ref())?;
                Outcome::Paid(Paid { amount, payment_ref, method })
            }
            (_, Some("expired")) => Outcome::Expired,
            // A method that takes its time: the session is over, its payment decides.
            (_, Some("complete")) => match intent.map(|intent| intent.status.as_str()) {
                Some("requires_payment_method" | "canceled") => Outcome::Failed(
                    intent
                        .and_then(|intent| intent.last_payment_error.as_ref())
                        .map_or_else(|| "the payment did not arrive".to_owned(), Fault::words),
                ),
                _ => Outcome::Open,
            },
            _ => Outcome::Open,
        })
    }
}

impl Intent {
    pub fn told(self) -> Result<Told, PaymentError> {
        let outcome = match self.status.as_str() {
            "succeeded" => {
                let amount = amount(self.amount_received, self.currency.as_ref())?;
                Outcome::Paid(Paid { amount, payment_ref: self.id.clone(), method: None })
            }
            "requires_action" => {
                Outcome::Failed("the bank wants the customer to confirm this payment".to_owned())
            }
            "requires_payment_method" | "canceled" => {
                let words = self.last_payment_error.as_ref().map(Fault::words);
                Outcome::Failed(words.unwrap_or_else(|| "declined".to_owned()))
            }
            _ => Outcome::Open,
        };
        Ok(Told { external_id: self.id, reference: self.metadata.reference, pay_url: None, outcome })
    }

    /// The method, if it was kept for later and is known whole.
    fn saved(&self, customer: Option<&String>) -> Option<SavedMethod> {
        self.setup_future_usage.as_ref()?;
        let own = self.customer.as_ref().map(|customer| customer.id_or(|named| &named.id));
        let customer_ref = customer.or(own)?.clone();
        let (method_ref, label) = match self.payment_method.as_ref()? {
            Expandable::Id(id) => (id.clone(), "saved method".to_owned()),
            Expandable::Object(method) => {
                let card =
                    method.card.as_ref().map(|card| format!("{} ending in {}", card.brand, card.last4));
                (method.id.clone(), card.unwrap_or_else(|| method.kind.clone()))
            }
        };
        Some(SavedMethod { customer_ref, method_ref, label })
    }
}

impl Refund {
    pub fn told(self) -> Result<RefundTold, PaymentError> {
        let amount = amount(self.amount, self.currency.as_ref())?;
        let outcome = match self.status.as_deref() {
            Some("succeeded") => RefundOutcome::Done,
            Some("failed" | "canceled") => RefundOutcome::Failed(
                self.failure_reason.unwrap_or_else(|| "the provider could not pay it out".to_owned()),
            ),
            _ => RefundOutcome::Pending,
        };
        Ok(RefundTold { external_id: self.id, amount, outcome })
    }
}
