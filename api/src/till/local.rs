//! Says "paid" to everything, at once: for a machine of one's own, behind a configuration flag.

use axum::http::HeaderMap;
use tarn_protocol::units::Timestamp;

use super::{
    Asked, CallbackAbout, CallbackRefused, Checkout, Outcome, Paid, PaymentError, PaymentProvider,
    RefundOrder, RefundOutcome, RefundTold, SavedCharge, SavedMethod, Told,
};

#[derive(Debug, Default)]
pub struct LocalPayments;

fn now<'a, T: Send + 'a>(answer: Result<T, PaymentError>) -> Asked<'a, T> {
    Box::pin(std::future::ready(answer))
}

fn paid(reference: &str, amount: tarn_billing::money::Micros, method: Option<SavedMethod>) -> Told {
    Told {
        external_id: reference.to_owned(),
        reference: Some(reference.to_owned()),
        pay_url: None,
        outcome: Outcome::Paid(Paid { amount, payment_ref: reference.to_owned(), method }),
    }
}

impl PaymentProvider for LocalPayments {
    fn name(&self) -> &'static str {
        "local"
    }

    fn answers(&self) -> Asked<'_, ()> {
        now(Ok(()))
    }

    fn open<'a>(&'a self, checkout: &'a Checkout) -> Asked<'a, Told> {
        let method = checkout.save_method.then(|| SavedMethod {
            customer_ref: "local".to_owned(),
            method_ref: "local".to_owned(),
            label: "pretended money".to_owned(),
        });
        now(Ok(paid(&checkout.reference, checkout.amount, method)))
    }

    fn charge<'a>(&'a self, charge: &'a SavedCharge) -> Asked<'a, Told> {
        now(Ok(paid(&charge.reference, charge.amount, None)))
    }

    /// Payments are over as soon as they are opened, so there is nothing to remember and nothing to ask.
    fn ask<'a>(&'a self, _external_id: &'a str) -> Asked<'a, Told> {
        now(Err(PaymentError::Unknown))
    }

    fn find<'a>(&'a self, _reference: &'a str) -> Asked<'a, Option<Told>> {
        now(Ok(None))
    }

    fn refund<'a>(&'a self, order: &'a RefundOrder) -> Asked<'a, RefundTold> {
        let told = RefundTold {
            external_id: order.reference.clone(),
            amount: order.amount,
            outcome: RefundOutcome::Done,
        };
        now(Ok(told))
    }

    fn find_refund<'a>(&'a self, _order: &'a RefundOrder) -> Asked<'a, Option<RefundTold>> {
        now(Ok(None))
    }

    /// Refunds are over as soon as they are ordered.
    fn ask_refund<'a>(&'a self, _external_id: &'a str) -> Asked<'a, RefundTold> {
        now(Err(PaymentError::Unknown))
    }

    fn callback(
        &self,
        _headers: &HeaderMap,
        _body: &[u8],
        _now: Timestamp,
    ) -> Result<CallbackAbout, CallbackRefused> {
        Err(CallbackRefused::NotExpected)
    }
}
