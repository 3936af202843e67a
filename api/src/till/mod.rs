//! Where cash comes from: the seam behind which a payment provider sits.
//!
//! A provider collects, tells and gives back; it is asked, never believed on its word alone. A callback proves who sent it and names
//! what to look at; what became of a payment is then asked of the provider itself ([`PaymentProvider::ask`]), and the database
//! decides whether that is news. Every call that moves money carries a name of ours that stays the same for ever, so a call whose
//! answer was lost is made again without moving anything twice, as long as the provider remembers the name ([`REPEATABLE_SECONDS`]).
//! After that the provider's own record is looked at ([`PaymentProvider::find`], [`PaymentProvider::find_refund`]) before anything moves.
//!
//! * [`stripe`]: the real one, over Stripe's Checkout, PaymentIntents and Refunds.
//! * [`local`]: says "paid" to everything, for a machine of one's own.
//! * [`sandbox`]: a server that speaks Stripe's language over pretended money and misbehaves as real ones do.

pub mod local;
pub mod sandbox;
pub mod stripe;

use std::fmt::Debug;

use axum::http::HeaderMap;
use futures_util::future::BoxFuture;
use tarn_billing::money::Micros;
use tarn_protocol::units::Timestamp;

/// Micros in one fen, the smallest amount that a provider moves.
pub const MICROS_PER_FEN: i64 = 10_000;

/// For so long after its name was made a call may be repeated under it: providers forget names, Stripe after a day.
pub const REPEATABLE_SECONDS: i64 = 23 * 3600;
/// After so long a call that arrived is in whatever the provider's record is searched by.
pub const FINDABLE_SECONDS: i64 = 3600;

/// A payment that the customer makes on the provider's page. `reference` names it for ever: opened twice, it is one payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    pub reference: String,
    pub amount: Micros,
    /// Keep the method for later payments without the customer.
    pub save_method: bool,
    /// The provider's name of the customer, if it has one already.
    pub customer_ref: Option<String>,
}

/// A payment without the customer, by a method that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCharge {
    pub reference: String,
    pub amount: Micros,
    pub customer_ref: String,
    pub method_ref: String,
}

/// What the provider says of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The provider's name of it.
    pub external_id: String,
    /// Our name of it, as the provider knows it.
    pub reference: Option<String>,
    /// Where the customer pays.
    pub pay_url: Option<String>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is decided yet.
    Open,
    Paid(Paid),
    /// Declined; words for the customer.
    Failed(String),
    Expired,
}

/// Money that the provider has collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paid {
    pub amount: Micros,
    /// What a refund names.
    pub payment_ref: String,
    pub method: Option<SavedMethod>,
}

/// A method of payment kept at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedMethod {
    pub customer_ref: String,
    pub method_ref: String,
    /// For people: `visa ending in 4242`.
    pub label: String,
}

/// Cash to give back by the way on which it came. `reference` names it for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundOrder {
    pub reference: String,
    pub payment_ref: String,
    pub amount: Micros,
}

/// What the provider says of a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundTold {
    pub external_id: String,
    /// What the provider gives back, or would.
    pub amount: Micros,
    pub outcome: RefundOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundOutcome {
    Pending,
    Done,
    Failed(String),
}

/// What a callback is about, once its sender is proven. Nothing else of it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackAbout {
    /// A payment: the provider's name of it and, if it carries one, ours. `by_page`: it is the name of a payment page, else of a
    /// payment without one (or of the one that a page made).
    Payment {
        external_id: String,
        reference: Option<String>,
        by_page: bool,
    },
    Refund {
        external_id: String,
    },
    /// An event of no interest here.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaymentError {
    #[error("no payment provider is configured")]
    Closed,
    /// It did not answer, or not now: the same call is worth trying again.
    #[error("the payment provider does not answer: {0}")]
    Unavailable(String),
    /// It answered no: a fault of configuration, or of ours.
    #[error("the payment provider refuses the call: {0}")]
    Refused(String),
    #[error("the payment provider knows no such payment")]
    Unknown,
    /// An answer that does not make sense: another currency, an amount that is none.
    #[error("the payment provider's answer makes no sense: {0}")]
    Nonsense(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackRefused {
    #[error("this provider sends no callbacks")]
    NotExpected,
    #[error("no signature")]
    Unsigned,
    #[error("the signature does not match")]
    WrongSignature,
    #[error("the signature is too old, or from the future")]
    OutOfTime,
    #[error("the callback cannot be read")]
    Malformed,
}

impl CallbackRefused {
    /// One word for it.
    pub const fn why(self) -> &'static str {
        match self {
            Self::NotExpected => "not_expected",
            Self::Unsigned => "unsigned",
            Self::WrongSignature => "wrong_signature",
            Self::OutOfTime => "out_of_time",
            Self::Malformed => "malformed",
        }
    }
}

pub type Asked<'a, T> = BoxFuture<'a, Result<T, PaymentError>>;

pub trait PaymentProvider: Send + Sync + Debug {
    /// Stored with every payment: one provider's names mean nothing to another.
    fn name(&self) -> &'static str;
    /// `false`: there is no provider, every call is [`PaymentError::Closed`].
    fn takes_payments(&self) -> bool {
        true
    }
    /// Whether it answers and takes us for who we are: moves nothing.
    fn answers(&self) -> Asked<'_, ()>;
    fn open<'a>(&'a self, checkout: &'a Checkout) -> Asked<'a, Told>;
    fn charge<'a>(&'a self, charge: &'a SavedCharge) -> Asked<'a, Told>;
    fn ask<'a>(&'a self, external_id: &'a str) -> Asked<'a, Told>;
    /// The payment without the customer that was made under our name `reference`, if one was: moves nothing.
    fn find<'a>(&'a self, reference: &'a str) -> Asked<'a, Option<Told>>;
    fn refund<'a>(&'a self, order: &'a RefundOrder) -> Asked<'a, RefundTold>;
    /// The refund that was ordered under this order's name, if one was: moves nothing.
    fn find_refund<'a>(&'a self, order: &'a RefundOrder) -> Asked<'a, Option<RefundTold>>;
    fn ask_refund<'a>(&'a self, external_id: &'a str) -> Asked<'a, RefundTold>;
    /// Proves who sent a callback and reads what it is about.
    fn callback(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<CallbackAbout, CallbackRefused>;
}

/// Takes nothing: the default.
#[derive(Debug, Default)]
pub struct NoPayments;

fn closed<'a, T: Send + 'a>() -> Asked<'a, T> {
    Box::pin(std::future::ready(Err(PaymentError::Closed)))
}

impl PaymentProvider for NoPayments {
    fn name(&self) -> &'static str {
        "none"
    }

    fn takes_payments(&self) -> bool {
        false
    }

    fn answers(&self) -> Asked<'_, ()> {
        closed()
    }

    fn open<'a>(&'a self, _checkout: &'a Checkout) -> Asked<'a, Told> {
        closed()
    }

    fn charge<'a>(&'a self, _charge: &'a SavedCharge) -> Asked<'a, Told> {
        closed()
    }

    fn ask<'a>(&'a self, _external_id: &'a str) -> Asked<'a, Told> {
        closed()
    }

    fn find<'a>(&'a self, _reference: &'a str) -> Asked<'a, Option<Told>> {
        closed()
    }

    fn refund<'a>(&'a self, _order: &'a RefundOrder) -> Asked<'a, RefundTold> {
        closed()
    }

    fn find_refund<'a>(&'a self, _order: &'a RefundOrder) -> Asked<'a, Option<RefundTold>> {
        closed()
    }

    fn ask_refund<'a>(&'a self, _external_id: &'a str) -> Asked<'a, RefundTold> {
        closed()
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

/// `amount` in whole fen, or `None` if it is not whole.
pub fn whole_fen(amount: Micros) -> Option<i64> {
    (amount.get() > 0 && amount.get() % MICROS_PER_FEN == 0).then(|| amount.get() / MICROS_PER_FEN)
}

/// What a provider says it moved.
pub fn of_fen(fen: i64) -> Option<Micros> {
    fen.checked_mul(MICROS_PER_FEN).map(Micros::new).filter(|amount| *amount > Micros::ZERO)
}
