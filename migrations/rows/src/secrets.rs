//! What is stored in place of secrets. Neither prints itself.

use std::fmt;
use std::str::FromStr;

use crate::stored::{BadValue, Stored, stored_text};

/// SHA-256 of a secret with at least 160 random bits, as 64 lower-case hex digits. Found by equality on a unique index.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretDigest(String);

/// Text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 64 lower-case hex digits")]
pub struct InvalidDigest;

impl SecretDigest {
    /// From the 32 bytes of the hash.
    pub fn from_bytes(hash: [u8; 32]) -> Self {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is a hex digit");
        Self(hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretDigest {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 64 && text.bytes().all(hex) { Ok(Self(text.to_owned())) } else { Err(InvalidDigest) }
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

stored_text!(SecretDigest);

/// An argon2id hash in PHC form.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

impl PasswordHash {
    pub fn from_phc(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

impl Stored for PasswordHash {
    type Raw = String;
    fn to_raw(&self) -> Result<String, BadValue> {
        Ok(self.0.clone())
    }
    fn from_raw(raw: String) -> Result<Self, BadValue> {
        Ok(Self(raw))
    }
}
