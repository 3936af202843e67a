//! Ids: typed, prefixed, ordered by creation time.
//!
//! An id is `<prefix>_<26 characters>`: 48 bits of milliseconds and 80 random bits in Crockford's base 32, lower case. Sorting ids
//! of one type sorts by creation time (to the millisecond), which is what cursors use. Time and entropy are parameters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const BODY_LEN: usize = 26;

/// A string that is not an id of the wanted type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind} id: expected {prefix}_ and {BODY_LEN} characters of 0-9a-z")]
pub struct InvalidId {
    pub kind: &'static str,
    pub prefix: &'static str,
}

/// The body of an id made at `at` from 80 bits of `entropy` (the low bits are used).
fn body(at: Timestamp, entropy: u128) -> String {
    let millis = u128::try_from(at.as_micros().max(0) / 1000).unwrap_or(0) & ((1 << 48) - 1);
    let value = (millis << 80) | (entropy & ((1 << 80) - 1));
    (0..BODY_LEN)
        .map(|place| {
            let shift = 5 * (BODY_LEN - 1 - place);
            char::from(ALPHABET[usize::try_from((value >> shift) & 31).unwrap_or(0)])
        })
        .collect()
}

/// When the id with this (valid) body was made, cut to the millisecond: its first ten characters.
fn made_at(body: &str) -> Timestamp {
    let digit = |byte: u8| ALPHABET.iter().position(|letter| *letter == byte).unwrap_or(0);
    let millis = body
        .bytes()
        .take(10)
        .fold(0_i64, |millis, byte| (millis << 5) | i64::try_from(digit(byte)).unwrap_or(0));
    Timestamp::from_micros(millis.saturating_mul(1000))
}

fn valid_body(body: &str) -> bool {
    body.len() == BODY_LEN && body.bytes().all(|byte| ALPHABET.contains(&byte))
}

/// Declares id types: `TypeName "prefix" "what it names"`.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// An id for something created at `at`, made unique by 80 random bits.
            pub fn new(at: Timestamp, entropy: u128) -> Self {
                Self(format!("{}_{}", $prefix, body(at, entropy)))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// When it was made, cut to the millisecond.
            pub fn created_at(&self) -> Timestamp {
                made_at(&self.0[$prefix.len() + 1..])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                match text.split_once('_') {
                    Some(($prefix, rest)) if valid_body(rest) => Ok(Self(text.to_owned())),
                    _ => Err(InvalidId { kind: stringify!($name), prefix: $prefix }),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    )*};
}

ids! {
    /// Who pays.
    TenantId "ten";
    /// Who signs in.
    UserId "usr";
    /// A machine with an agent.
    HostId "hst";
    /// What a tenant rents.
    InstanceId "ins";
    /// An instance's claim on GPUs.
    LeaseId "lse";
    /// Dated proof by data that a link works.
    CertificateId "crt";
    /// One billable interval on a primary's UUID.
    SegmentId "seg";
    /// A ledger account.
    AccountId "acc";
    /// A double-entry movement.
    TransferId "trf";
    /// A reservation of money.
    HoldId "hld";
    /// A grant of credit: trial, promo or cash.
    GrantId "grn";
    /// Credit that an operator asked for.
    CreditRequestId "crq";
    /// An invoice or a credit note.
    InvoiceId "inv";
    /// An API key.
    ApiKeyId "key";
    /// An SSH public key of a tenant.
    SshKeyId "ssh";
    /// One line of an instance's history.
    EventId "evt";
    /// A single-use token with which a host joins.
    JoinTokenId "jtk";
    /// One refresh token; a family is a chain of rotations of one login.
    RefreshTokenId "rft";
    /// The chain of rotations of one login.
    SessionId "ses";
    /// One request, for tracing.
    RequestId "req";
    /// Cash on its way into a wallet, through a payment provider.
    TopUpId "top";
    /// Money given back to a customer.
    RefundId "rfd";
    /// Something that a tenant was told about its money.
    NoticeId "ntc";
    /// A limit of what a tenant spends in a period.
    SpendCapId "cap";
    /// A promise of ours that was not kept for one instance.
    IncidentId "inc";
}

/// A sellable shape, for example `pool-96`: lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OfferId(String);

impl OfferId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for OfferId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=40).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId { kind: "OfferId", prefix: "offer" })
        }
    }
}

impl TryFrom<String> for OfferId {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<OfferId> for String {
    fn from(id: OfferId) -> String {
        id.0
    }
}

/// A physical card, by the UUID that driver and NVML agree on: `GPU-` and a lower-case hyphenated UUID. Never an index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GpuUuid(String);

impl GpuUuid {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// From the 16 bytes that `cuDeviceGetUuid` returns.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let part = |range: std::ops::Range<usize>| hex[range].concat();
        Self(format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16)))
    }

    /// The 16 bytes that `cuDeviceGetUuid` returns for this card.
    pub fn to_bytes(&self) -> [u8; 16] {
        let digits: Vec<u8> = self.0.bytes().skip(4).filter(u8::is_ascii_hexdigit).collect();
        let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        std::array::from_fn(|at| (nibble(digits[2 * at]) << 4) | nibble(digits[2 * at + 1]))
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GpuUuid {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refused = InvalidId { kind: "GpuUuid", prefix: "GPU" };
        let rest = text.strip_prefix("GPU-").ok_or(refused.clone())?;
        let groups: Vec<&str> = rest.split('-').collect();
        let lower_hex = |group: &str| group.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        if lengths == [8, 4, 4, 4, 12] && groups.iter().all(|group| lower_hex(group)) {
            Ok(Self(text.to_owned()))
        } else {
            Err(refused)
        }
    }
}

impl TryFrom<String> for GpuUuid {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.to_ascii_lowercase().replacen("gpu-", "GPU-", 1).parse()
    }
}

impl From<GpuUuid> for String {
    fn from(id: GpuUuid) -> String {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_round_trip_and_sort_by_time(early in 0i64..4_000_000_000_000_000, gap in 1_000i64..1_000_000_000, a: u128, b: u128) {
            let first = HostId::new(Timestamp::from_micros(early), a);
            let second = HostId::new(Timestamp::from_micros(early + gap), b);
            prop_assert!(first < second);
            prop_assert_eq!(first.created_at(), Timestamp::from_micros(early / 1000 * 1000));
            prop_assert_eq!(first.to_string().parse::<HostId>().unwrap(), first);
        }

        #[test]
        fn gpu_uuid_bytes_round_trip(bytes: [u8; 16]) {
            prop_assert_eq!(GpuUuid::from_bytes(bytes).to_bytes(), bytes);
            prop_assert!(GpuUuid::from_bytes(bytes).to_string().parse::<GpuUuid>().is_ok());
        }
    }

    #[test]
    fn ids_of_another_type_are_refused() {
        let host = HostId::new(Timestamp::from_micros(0), 7);
        assert!(host.as_str().parse::<InstanceId>().is_err());
        for text in
            ["", "hst", "hst_", "hst_xyz", "hst_0000000000000000000000000U", "hst_../../../../etc/passwd0"]
        {
            assert!(text.parse::<HostId>().is_err(), "{text}");
        }
    }
}
