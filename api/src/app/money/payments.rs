//! Where cash comes from: the seam behind which a payment provider sits.

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use tarn_billing::money::Micros;

use crate::app::money::wallet::External;

/// A payment to collect. `reference` names it for ever: asked for twice, it is collected once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentRequest {
    pub reference: String,
    pub amount: Micros,
}

/// A payment that the provider confirms, with the amount it collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    pub external: External,
    pub amount: Micros,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaymentError {
    #[error("no payment provider is configured")]
    Closed,
}

pub trait PaymentProvider: Send + Sync + Debug {
    fn collect<'a>(&'a self, request: &'a PaymentRequest) -> BoxFuture<'a, Result<Payment, PaymentError>>;
}

/// Says "paid" to everything: for a machine of one's own, behind a configuration flag.
#[derive(Debug, Default)]
pub struct LocalPayments;

impl PaymentProvider for LocalPayments {
    fn collect<'a>(&'a self, request: &'a PaymentRequest) -> BoxFuture<'a, Result<Payment, PaymentError>> {
        let external = External { provider: "local".to_owned(), id: request.reference.clone() };
        Box::pin(std::future::ready(Ok(Payment { external, amount: request.amount })))
    }
}

/// Takes nothing: the default.
#[derive(Debug, Default)]
pub struct NoPayments;

impl PaymentProvider for NoPayments {
    fn collect<'a>(&'a self, _request: &'a PaymentRequest) -> BoxFuture<'a, Result<Payment, PaymentError>> {
        Box::pin(std::future::ready(Err(PaymentError::Closed)))
    }
}
