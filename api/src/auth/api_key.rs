//! API keys: `tarn_`, 30 base62 characters (178 random bits) and the CRC32 of all before it in 6 more, so that a scanner
//! recognises a leak and a client a typing error without asking us. Stored as SHA-256, shown once.

use std::fmt;

use tarn_rows::secrets::SecretDigest;

use crate::auth::secret;
use crate::entropy::Entropy;

pub const PREFIX: &str = "tarn_";
const RANDOM_CHARACTERS: usize = 30;
const CHECK_CHARACTERS: usize = 6;

/// A well-formed key. Printed only on purpose, by [`Self::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeySecret(String);

impl ApiKeySecret {
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let body = format!("{PREFIX}{}", secret::base62(entropy, RANDOM_CHARACTERS));
        Self(format!("{body}{}", check_of(&body)))
    }

    /// `None` for anything that never was a key: the checksum decides before the database is asked.
    pub fn parse(text: &str) -> Option<Self> {
        let length = PREFIX.len() + RANDOM_CHARACTERS + CHECK_CHARACTERS;
        let well_formed = text.len() == length && text.is_ascii() && text.starts_with(PREFIX);
        let (body, check) = well_formed.then(|| text.split_at(length - CHECK_CHARACTERS))?;
        (check == check_of(body)).then(|| Self(text.to_owned()))
    }

    pub fn digest(&self) -> SecretDigest {
        secret::digest(&self.0)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeySecret(…)")
    }
}

fn check_of(body: &str) -> String {
    secret::six_digits(crc32fast::hash(body.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SeededEntropy;

    #[test]
    fn keys_have_the_published_shape() {
        let key = ApiKeySecret::generate(&SeededEntropy::new(1));
        let text = key.reveal().to_owned();
        assert_eq!(text.len(), 41);
        assert!(text.strip_prefix("tarn_").unwrap().bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(ApiKeySecret::parse(&text), Some(key.clone()));
        assert_eq!(format!("{key:?}"), "ApiKeySecret(…)");
    }

    #[test]
    fn a_typing_error_is_seen_offline() {
        let text = ApiKeySecret::generate(&SeededEntropy::new(2)).reveal().to_owned();
        for place in PREFIX.len()..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[place] = if wrong[place] == b'a' { b'b' } else { b'a' };
            assert_eq!(ApiKeySecret::parse(std::str::from_utf8(&wrong).unwrap()), None);
        }
        for text in ["", "tarn_", "tarn_é", "TARN_000000000000000000000000000000000000"] {
            assert_eq!(ApiKeySecret::parse(text), None, "{text}");
        }
    }
}
