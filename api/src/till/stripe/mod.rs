//! Stripe: Checkout sessions for payments by hand, PaymentIntents for those without the customer, Refunds.
//!
//! Every call that moves money carries our name of it as `Idempotency-Key`, so asking again after a lost answer moves nothing twice.
//! Stripe forgets keys after a day; the name is also noted on what the call makes, and found there (payments by Stripe's search, which
//! lags by minutes; refunds in the list of their payment, which does not).
//! The key is sent in a header only; URLs carry nothing but Stripe's own ids. Redirects are not followed.
//!
//! A decline comes as status 402 with the PaymentIntent inside: that is an outcome, not an error. Anything that may be over in a
//! moment (no connection, 5xx, 409, 429) is [`PaymentError::Unavailable`]; the rest is [`PaymentError::Refused`] and needs a person.

pub mod signature;
pub mod wire;

use std::time::Duration;

use axum::http::HeaderMap;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tarn_billing::money::Micros;
use tarn_protocol::units::Timestamp;

use super::{
    Asked, CallbackAbout, CallbackRefused, Checkout, PaymentError, PaymentProvider, RefundOrder, RefundTold,
    SavedCharge, Told, whole_fen,
};
use wire::{Balance, CURRENCY, Event, Fault, Intent, List, Refund, Refusal, Session, VERSION};

pub const NAME: &str = "stripe";
pub const SIGNATURE: &str = "stripe-signature";
/// Where Stripe is.
pub const ADDRESS: &str = "https://api.stripe.com";
/// A call that takes longer counts as unanswered; it is made again with the same key.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What of a session is told with it: the payment, and the method that paid.
const EXPAND: &str = "expand%5B%5D=payment_intent.payment_method";

/// Refunds of one payment in one page, Stripe's most, and pages looked at: nobody orders more refunds of one payment.
const REFUNDS_A_PAGE: &str = "100";
const PAGES_MAX: usize = 50;

/// How to reach an account. Secrets print nothing of themselves.
#[derive(Debug, Clone)]
pub struct StripeConfig {
    /// [`ADDRESS`], or a server that speaks like it.
    pub address: String,
    pub key: SecretString,
    /// Of the webhook endpoint; two while one is rotated.
    pub webhook_secrets: Vec<SecretString>,
    /// Where the customer's browser goes after paying or giving up.
    pub return_url: String,
}

#[derive(Debug)]
pub struct Stripe {
    config: StripeConfig,
    http: reqwest::Client,
}

/// One call's form.
type Form = Vec<(&'static str, String)>;

impl Stripe {
    pub fn new(config: StripeConfig) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { config, http })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        form: &Form,
    ) -> Result<T, Failed> {
        let url = format!("{}/v1/{path}", self.config.address.trim_end_matches('/'));
        let mut request = self
            .http
            .request(method.clone(), url)
            .bearer_auth(self.config.key.expose_secret())
            .header("stripe-version", VERSION);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if method == Method::POST {
            request = request.form(form);
        }
        let lost = |error: reqwest::Error| PaymentError::Unavailable(error.without_url().to_string());
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        let body = response.bytes().await.map_err(lost)?;
        if status.is_success() {
            let read = serde_json::from_slice(&body);
            return Ok(read.map_err(|error| PaymentError::Nonsense(error.to_string()))?);
        }
        let fault = serde_json::from_slice::<Refusal>(&body).ok().map(|refusal| refusal.error);
        Err(Failed::of(status, fault))
    }
}

/// An answer that is no success.
enum Failed {
    Error(PaymentError),
    /// A card said no.
    Declined(Fault),
}

impl From<PaymentError> for Failed {
    fn from(error: PaymentError) -> Self {
        Self::Error(error)
    }
}

impl Failed {
    fn of(status: StatusCode, fault: Option<Fault>) -> Self {
        let words = || fault.as_ref().map_or_else(|| "no reason given".to_owned(), Fault::words);
        match status {
            StatusCode::PAYMENT_REQUIRED => {
                let words = words();
                fault.map_or(Self::Error(PaymentError::Refused(words)), Self::Declined)
            }
            StatusCode::NOT_FOUND => Self::Error(PaymentError::Unknown),
            StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => {
                Self::Error(PaymentError::Unavailable(format!("status {status}: {}", words())))
            }
            status if status.is_server_error() => {
                Self::Error(PaymentError::Unavailable(format!("status {status}")))
            }
            status => Self::Error(PaymentError::Refused(format!("status {status}: {}", words()))),
        }
    }

    fn error(self) -> PaymentError {
        match self {
            Self::Error(error) => error,
            Self::Declined(fault) => PaymentError::Refused(fault.words()),
        }
    }
}

fn fen(amount: Micros) -> Result<String, PaymentError> {
    let fen = whole_fen(amount).ok_or_else(|| PaymentError::Refused(format!("{amount} is not whole fen")))?;
    Ok(fen.to_string())
}

fn checkout_form(checkout: &Checkout, return_url: &str) -> Result<Form, PaymentError> {
    let mut form = vec![
        ("mode", "payment".to_owned()),
        ("client_reference_id", checkout.reference.clone()),
        ("line_items[0][quantity]", "1".to_owned()),
        ("line_items[0][price_data][currency]", CURRENCY.to_owned()),
        ("line_items[0][price_data][unit_amount]", fen(checkout.amount)?),
        ("line_items[0][price_data][product_data][name]", "Wallet top-up".to_owned()),
        ("payment_intent_data[metadata][reference]", checkout.reference.clone()),
        ("success_url", format!("{return_url}?topup={}", checkout.reference)),
        ("cancel_url", format!("{return_url}?topup={}", checkout.reference)),
    ];
    if checkout.save_method {
        form.push(("payment_intent_data[setup_future_usage]", "off_session".to_owned()));
    }
    match &checkout.customer_ref {
        Some(customer) => form.push(("customer", customer.clone())),
        None if checkout.save_method => form.push(("customer_creation", "always".to_owned())),
        None => {}
    }
    Ok(form)
}

impl PaymentProvider for Stripe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn answers(&self) -> Asked<'_, ()> {
        Box::pin(async move {
            let balance = self.call::<Balance>(Method::GET, "balance", None, &Form::new()).await;
            balance.map(drop).map_err(Failed::error)
        })
    }

    fn open<'a>(&'a self, checkout: &'a Checkout) -> Asked<'a, Told> {
        Box::pin(async move {
            let form = checkout_form(checkout, &self.config.return_url)?;
            let key = Some(checkout.reference.as_str());
            let session: Session =
                self.call(Method::POST, "checkout/sessions", key, &form).await.map_err(Failed::error)?;
            session.told()
        })
    }

    fn charge<'a>(&'a self, charge: &'a SavedCharge) -> Asked<'a, Told> {
        Box::pin(async move {
            let form = vec![
                ("amount", fen(charge.amount)?),
                ("currency", CURRENCY.to_owned()),
                ("customer", charge.customer_ref.clone()),
                ("payment_method", charge.method_ref.clone()),
                ("off_session", "true".to_owned()),
                ("confirm", "true".to_owned()),
                ("metadata[reference]", charge.reference.clone()),
            ];
            let key = Some(charge.reference.as_str());
            match self.call::<Intent>(Method::POST, "payment_intents", key, &form).await {
                Ok(intent) => intent.told(),
                Err(Failed::Declined(fault)) => {
                    let words = fault.words();
                    let intent = fault.payment_intent.ok_or(PaymentError::Refused(words))?;
                    intent.told()
                }
                Err(Failed::Error(error)) => Err(error),
            }
        })
    }

    fn ask<'a>(&'a self, external_id: &'a str) -> Asked<'a, Told> {
        Box::pin(async move {
            if external_id.starts_with("pi_") {
                let path = format!("payment_intents/{external_id}");
                let intent: Intent =
                    self.call(Method::GET, &path, None, &Form::new()).await.map_err(Failed::error)?;
                return intent.told();
            }
            let path = format!("checkout/sessions/{external_id}?{EXPAND}");
            let session: Session =
                self.call(Method::GET, &path, None, &Form::new()).await.map_err(Failed::error)?;
            session.told()
        })
    }

    fn find<'a>(&'a self, reference: &'a str) -> Asked<'a, Option<Told>> {
        Box::pin(async move {
            if !external(reference) {
                return Err(PaymentError::Refused(format!("{reference:?} is no name of ours")));
            }
            // metadata['reference']:'…'
            let path =
                format!("payment_intents/search?query=metadata%5B%27reference%27%5D%3A%27{reference}%27");
            let found: List<Intent> =
                self.call(Method::GET, &path, None, &Form::new()).await.map_err(Failed::error)?;
            // The search is another's: what it gives is checked. Of several, one that paid says what became of the money.
            let ours = found
                .data
                .into_iter()
                .filter(|intent| intent.metadata.reference.as_deref() == Some(reference));
            ours.max_by_key(|intent| intent.status == "succeeded").map(Intent::told).transpose()
        })
    }

    fn refund<'a>(&'a self, order: &'a RefundOrder) -> Asked<'a, RefundTold> {
        Box::pin(async move {
            let form = vec![
                ("payment_intent", order.payment_ref.clone()),
                ("amount", fen(order.amount)?),
                ("metadata[reference]", order.reference.clone()),
            ];
            let key = Some(order.reference.as_str());
            let refund: Refund =
                self.call(Method::POST, "refunds", key, &form).await.map_err(Failed::error)?;
            refund.told()
        })
    }

    fn find_refund<'a>(&'a self, order: &'a RefundOrder) -> Asked<'a, Option<RefundTold>> {
        Box::pin(async move {
            let list = format!("refunds?payment_intent={}&limit={REFUNDS_A_PAGE}", order.payment_ref);
            let mut path = list.clone();
            for _ in 0..PAGES_MAX {
                let page: List<Refund> =
                    self.call(Method::GET, &path, None, &Form::new()).await.map_err(Failed::error)?;
                let last = page.data.last().map(|refund| refund.id.clone());
                let ours = page.data.iter().find(|refund| {
                    let named = refund.metadata.as_ref().and_then(|data| data.reference.as_deref());
                    named == Some(order.reference.as_str())
                });
                match (ours, last) {
                    (Some(refund), _) => return refund.clone().told().map(Some),
                    (None, Some(last)) if page.has_more && external(&last) => {
                        path = format!("{list}&starting_after={last}");
                    }
                    (None, _) => return Ok(None),
                }
            }
            Err(PaymentError::Nonsense(format!("{} has refunds without end", order.payment_ref)))
        })
    }

    fn ask_refund<'a>(&'a self, external_id: &'a str) -> Asked<'a, RefundTold> {
        Box::pin(async move {
            let path = format!("refunds/{external_id}");
            let refund: Refund =
                self.call(Method::GET, &path, None, &Form::new()).await.map_err(Failed::error)?;
            refund.told()
        })
    }

    fn callback(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<CallbackAbout, CallbackRefused> {
        let header = headers.get(SIGNATURE).ok_or(CallbackRefused::Unsigned)?;
        let header = header.to_str().map_err(|_| CallbackRefused::Malformed)?;
        signature::verify(&self.config.webhook_secrets, header, body, now)?;
        let event: Event = serde_json::from_slice(body).map_err(|_| CallbackRefused::Malformed)?;
        let object = event.data.object;
        if !external(&object.id) {
            return Err(CallbackRefused::Malformed);
        }
        let reference = object.client_reference_id.or(object.metadata.and_then(|data| data.reference));
        Ok(match event.kind.split_once('.') {
            Some(("checkout", _)) => {
                CallbackAbout::Payment { external_id: object.id, reference, by_page: true }
            }
            Some(("payment_intent", _)) => {
                CallbackAbout::Payment { external_id: object.id, reference, by_page: false }
            }
            Some(("refund", _)) => CallbackAbout::Refund { external_id: object.id },
            _ => CallbackAbout::Nothing,
        })
    }
}

/// Ids go into paths of calls: letters, digits and underscores only.
fn external(id: &str) -> bool {
    (1..=255).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let config = StripeConfig {
            address: ADDRESS.to_owned(),
            key: SecretString::from("sk_test_hunter2"),
            webhook_secrets: vec![SecretString::from("whsec_hunter2")],
            return_url: "http://127.0.0.1/".to_owned(),
        };
        let printed = format!("{config:?} {:?}", Stripe::new(config.clone()).unwrap());
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn ids_that_would_leave_their_place_in_a_path_are_none() {
        assert!(external("cs_test_a1"));
        for id in ["", "cs_1/../../refunds", "cs_1?x", "cs 1", "ü"] {
            assert!(!external(id), "{id:?}");
        }
    }
}
