//! Between a typed value and what a column holds.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_billing::account::AccountKind;
use tarn_billing::grant::GrantKind;
use tarn_billing::invoice::InvoiceKind;
use tarn_billing::money::{Currency, Micros};
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::CloseReason;
use tarn_billing::transfer::TransferKind;
use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{
    AccountId, ApiKeyId, CertificateId, CreditRequestId, EventId, GpuUuid, GrantId, HoldId, HostId,
    IncidentId, InstanceId, InvoiceId, JoinTokenId, LeaseId, NoticeId, OfferId, RefreshTokenId, RefundId,
    SegmentId, SessionId, SpendCapId, SshKeyId, TenantId, TopUpId, TransferId, UserId,
};
use tarn_protocol::units::{BootId, Bytes, Generation, MonoMillis, Sequence, Timestamp};
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode, State};

/// A value that its column cannot hold, or that its type refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{row}.{field}: {reason}")]
pub struct BadValue {
    pub row: &'static str,
    pub field: &'static str,
    pub reason: String,
}

impl BadValue {
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { row: "value", field: "", reason: reason.to_string() }
    }

    /// The same, with the innermost row and field named.
    pub fn within(self, row: &'static str, field: &'static str) -> Self {
        if self.field.is_empty() { Self { row, field, ..self } } else { self }
    }
}

/// A value with a form in the database.
pub trait Stored: Sized {
    /// `String`, `i64`, `bool`, or a struct of those: what both engines know.
    type Raw;
    fn to_raw(&self) -> Result<Self::Raw, BadValue>;
    fn from_raw(raw: Self::Raw) -> Result<Self, BadValue>;
}

impl<T: Stored> Stored for Option<T> {
    type Raw = Option<T::Raw>;
    fn to_raw(&self) -> Result<Self::Raw, BadValue> {
        self.as_ref().map(T::to_raw).transpose()
    }
    fn from_raw(raw: Self::Raw) -> Result<Self, BadValue> {
        raw.map(T::from_raw).transpose()
    }
}

macro_rules! stored_as_is {
    ($($ty:ty),*) => {$(
        impl Stored for $ty {
            type Raw = $ty;
            fn to_raw(&self) -> Result<$ty, BadValue> {
                Ok(self.clone())
            }
            fn from_raw(raw: $ty) -> Result<Self, BadValue> {
                Ok(raw)
            }
        }
    )*};
}
stored_as_is!(String, i64, bool);

/// Types whose text is the same in SQL, JSON and Rust.
macro_rules! stored_text {
    ($($ty:ty),* $(,)?) => {$(
        impl crate::stored::Stored for $ty {
            type Raw = String;
            fn to_raw(&self) -> Result<String, crate::stored::BadValue> {
                Ok(self.as_str().to_owned())
            }
            fn from_raw(raw: String) -> Result<Self, crate::stored::BadValue> {
                raw.parse().map_err(crate::stored::BadValue::new)
            }
        }
    )*};
}
pub(crate) use stored_text;
stored_text!(
    AccountId,
    ApiKeyId,
    CertificateId,
    CreditRequestId,
    EventId,
    GpuUuid,
    GrantId,
    HoldId,
    HostId,
    IncidentId,
    InstanceId,
    InvoiceId,
    JoinTokenId,
    LeaseId,
    NoticeId,
    OfferId,
    RefreshTokenId,
    RefundId,
    SegmentId,
    SessionId,
    SpendCapId,
    SshKeyId,
    TenantId,
    TopUpId,
    TransferId,
    UserId,
);
stored_text!(AccountKind, GrantKind, TransferKind, Currency, CloseReason, InvoiceKind);
stored_text!(State, DesiredState, ReasonCode);

impl Stored for BootId {
    type Raw = String;
    fn to_raw(&self) -> Result<String, BadValue> {
        Ok(self.as_str().to_owned())
    }
    fn from_raw(raw: String) -> Result<Self, BadValue> {
        Ok(Self::new(raw))
    }
}

/// Enums that are a word in JSON, and the same word in SQL.
macro_rules! stored_word {
    ($($ty:ty),*) => {$(
        impl Stored for $ty {
            type Raw = String;
            fn to_raw(&self) -> Result<String, BadValue> {
                Ok(self.as_str().to_owned())
            }
            fn from_raw(raw: String) -> Result<Self, BadValue> {
                serde_json::from_value(serde_json::Value::String(raw)).map_err(BadValue::new)
            }
        }
    )*};
}
stored_word!(LinkClass, LinkGrade);

/// Signed integers behind a newtype.
macro_rules! stored_signed {
    ($($ty:ty, $from:ident, $get:ident;)*) => {$(
        impl Stored for $ty {
            type Raw = i64;
            fn to_raw(&self) -> Result<i64, BadValue> {
                Ok(self.$get())
            }
            fn from_raw(raw: i64) -> Result<Self, BadValue> {
                Ok(Self::$from(raw))
            }
        }
    )*};
}
stored_signed! {
    Timestamp, from_micros, as_micros;
    Generation, new, get;
    Micros, new, get;
    PriceVersion, new, get;
}

/// Unsigned integers: what does not fit 63 bits is refused.
macro_rules! stored_unsigned {
    ($($ty:ty, $from:expr, $get:expr;)*) => {$(
        impl Stored for $ty {
            type Raw = i64;
            fn to_raw(&self) -> Result<i64, BadValue> {
                i64::try_from(($get)(self)).map_err(BadValue::new)
            }
            fn from_raw(raw: i64) -> Result<Self, BadValue> {
                raw.try_into().map($from).map_err(|_| BadValue::new(format_args!("{raw} is out of range")))
            }
        }
    )*};
}
stored_unsigned! {
    Bytes, Bytes::new, |value: &Bytes| value.get();
    MonoMillis, MonoMillis::new, |value: &MonoMillis| value.get();
    Sequence, Sequence::new, |value: &Sequence| value.get();
    u64, |value: u64| value, |value: &u64| *value;
    u32, |value: u32| value, |value: &u32| *value;
}

impl Stored for Rate {
    type Raw = i64;
    fn to_raw(&self) -> Result<i64, BadValue> {
        Ok(self.hourly().get())
    }
    fn from_raw(raw: i64) -> Result<Self, BadValue> {
        Self::per_hour(Micros::new(raw)).map_err(BadValue::new)
    }
}

impl Stored for Seconds {
    type Raw = i64;
    fn to_raw(&self) -> Result<i64, BadValue> {
        Ok(self.get())
    }
    fn from_raw(raw: i64) -> Result<Self, BadValue> {
        Self::new(raw).map_err(BadValue::new)
    }
}

/// A document in a TEXT column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned> Stored for Json<T> {
    type Raw = String;
    fn to_raw(&self) -> Result<String, BadValue> {
        serde_json::to_string(&self.0).map_err(BadValue::new)
    }
    fn from_raw(raw: String) -> Result<Self, BadValue> {
        serde_json::from_str(&raw).map(Self).map_err(BadValue::new)
    }
}

/// An id, amount or enum as the text of a `FromStr` type; for types declared beside their table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind}")]
pub struct UnknownWord {
    pub kind: &'static str,
}

/// Declares an enum of words that live in one column.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::stored::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
                    .ok_or(crate::stored::UnknownWord { kind: stringify!($name) })
            }
        }

        crate::stored::stored_text!($name);
    };
}
pub(crate) use words;

/// Declares a row and its raw twin.
macro_rules! rows {
    ($($(#[$doc:meta])* $Row:ident / $Raw:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $Row {
            $($(#[$fdoc])* pub $field: $ty,)*
        }

        #[doc = concat!("[`", stringify!($Row), "`] as its columns hold it.")]
        #[derive(Debug, Clone)]
        pub struct $Raw {
            $(pub $field: <$ty as crate::stored::Stored>::Raw,)*
        }

        impl crate::stored::Stored for $Row {
            type Raw = $Raw;
            fn to_raw(&self) -> Result<$Raw, crate::stored::BadValue> {
                Ok($Raw {
                    $($field: crate::stored::Stored::to_raw(&self.$field)
                        .map_err(|bad: crate::stored::BadValue| bad.within(stringify!($Row), stringify!($field)))?,)*
                })
            }
            fn from_raw(raw: $Raw) -> Result<Self, crate::stored::BadValue> {
                Ok(Self {
                    $($field: crate::stored::Stored::from_raw(raw.$field)
                        .map_err(|bad: crate::stored::BadValue| bad.within(stringify!($Row), stringify!($field)))?,)*
                })
            }
        }
    )*};
}
pub(crate) use rows;
