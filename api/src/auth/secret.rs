//! Random secrets and their fingerprints. A secret has at least 160 random bits, so that a plain SHA-256 is all a database needs.

use sha2::{Digest, Sha256};
use tarn_rows::secrets::SecretDigest;

use crate::entropy::Entropy;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// `length` base62 characters, 5.95 bits each, unbiased.
pub fn base62(entropy: &dyn Entropy, length: usize) -> String {
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut bytes = [0; 64];
        entropy.fill(&mut bytes);
        // 248 = 4 × 62: larger bytes would favour the first characters.
        let fair = bytes.iter().filter(|byte| **byte < 248);
        text.extend(fair.map(|byte| char::from(BASE62[usize::from(byte % 62)])).take(length - text.len()));
    }
    text
}

/// `value` as exactly six base62 digits; enough for 32 bits.
pub fn six_digits(mut value: u32) -> String {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(value % 62) as usize];
        value /= 62;
    }
    digits.iter().copied().map(char::from).collect()
}

/// What is stored of a secret.
pub fn digest(secret: impl AsRef<[u8]>) -> SecretDigest {
    SecretDigest::from_bytes(Sha256::digest(secret.as_ref()).into())
}
