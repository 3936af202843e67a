//! SSH public keys as people paste them: checked, stripped of options and comment, fingerprinted.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

/// Types worth accepting today; no DSA, and RSA only from 2048 bits.
const TYPES: [&str; 6] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
];
const RSA_BITS_MIN: usize = 2048;
const BLOB_BYTES_MAX: usize = 8192;

/// `<type> <base64>`, which is all that `authorized_keys` needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshPublicKey {
    text: String,
    fingerprint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSshKey {
    #[error("this is a private key; send the .pub file")]
    Private,
    #[error("expected one line: a key type, then base64")]
    Shape,
    #[error("unsupported key type")]
    Type,
    #[error("the base64 does not hold a key of that type")]
    Blob,
    #[error("RSA keys need {RSA_BITS_MIN} bits at least")]
    Weak,
}

impl SshPublicKey {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `SHA256:…`, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl FromStr for SshPublicKey {
    type Err = InvalidSshKey;

    fn from_str(text: &str) -> Result<Self, InvalidSshKey> {
        if text.contains("PRIVATE KEY") {
            return Err(InvalidSshKey::Private);
        }
        let line = text.trim();
        if line.contains(['\n', '\r', '\0']) {
            return Err(InvalidSshKey::Shape);
        }
        let mut words = line.split_ascii_whitespace();
        let (kind, base64) = words.next().zip(words.next()).ok_or(InvalidSshKey::Shape)?;
        if !TYPES.contains(&kind) {
            return Err(InvalidSshKey::Type);
        }
        let blob = STANDARD.decode(base64).map_err(|_| InvalidSshKey::Blob)?;
        let fields = fields_of(&blob).ok_or(InvalidSshKey::Blob)?;
        let matches_kind = fields.first().is_some_and(|name| *name == kind.as_bytes());
        let sound = match (kind, fields.as_slice()) {
            ("ssh-ed25519", [_, point]) => point.len() == 32,
            ("ssh-rsa", [_, _exponent, modulus]) if bits_of(modulus) < RSA_BITS_MIN => {
                return Err(InvalidSshKey::Weak);
            }
            ("ssh-rsa", [_, exponent, _modulus]) => !exponent.is_empty(),
            (_, [_, _, last]) => !last.is_empty(),
            _ => false,
        };
        if !(matches_kind && sound) {
            return Err(InvalidSshKey::Blob);
        }
        let fingerprint = format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&blob)));
        Ok(Self { text: format!("{kind} {base64}"), fingerprint })
    }
}

/// The length-prefixed strings of an RFC 4253 blob, if it is nothing else.
fn fields_of(blob: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = (blob.len() <= BLOB_BYTES_MAX).then_some(blob)?;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (field, after) = after.split_at_checked(length)?;
        fields.push(field);
        rest = after;
    }
    Some(fields)
}

/// Of a big-endian integer with leading zeros.
fn bits_of(number: &[u8]) -> usize {
    let significant = number.iter().position(|byte| *byte != 0).map_or(&[][..], |first| &number[first..]);
    significant.first().map_or(0, |first| significant.len() * 8 - first.leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1z0gLEWK4jSNDnQGuKtUvuS8nJ6SMdbkWLKxkCLdKC";

    fn blob(fields: &[&[u8]]) -> String {
        let bytes: Vec<u8> = fields
            .iter()
            .flat_map(|field| [&u32::try_from(field.len()).unwrap().to_be_bytes()[..], field].concat())
            .collect();
        STANDARD.encode(bytes)
    }

    #[test]
    fn a_comment_is_dropped_and_the_fingerprint_is_stable() {
        let bare: SshPublicKey = ED25519.parse().unwrap();
        let with_comment: SshPublicKey = format!("  {ED25519} ada@laptop \n").parse().unwrap();
        assert_eq!(bare, with_comment);
        assert_eq!(bare.as_str(), ED25519);
        assert!(bare.fingerprint().starts_with("SHA256:") && bare.fingerprint().len() == 50);
    }

    #[test]
    fn what_is_not_a_sound_public_key_is_refused() {
        let rsa = |bits: usize| {
            let modulus = [&[0][..], &vec![0xff; bits / 8]].concat();
            format!("ssh-rsa {}", blob(&[b"ssh-rsa", &[1, 0, 1], &modulus]))
        };
        assert!(rsa(2048).parse::<SshPublicKey>().is_ok());
        let cases = [
            (rsa(1024), InvalidSshKey::Weak),
            ("-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(), InvalidSshKey::Private),
            (String::new(), InvalidSshKey::Shape),
            (format!("{ED25519}\ncommand=\"sh\" {ED25519}"), InvalidSshKey::Shape),
            (format!("command=\"sh\" {ED25519}"), InvalidSshKey::Type),
            ("ssh-dss AAAA".to_owned(), InvalidSshKey::Type),
            ("ssh-ed25519 %%%".to_owned(), InvalidSshKey::Blob),
            (format!("ssh-ed25519 {}", blob(&[b"ssh-rsa", &[0; 32]])), InvalidSshKey::Blob),
            (format!("ssh-ed25519 {}", blob(&[b"ssh-ed25519", &[0; 31]])), InvalidSshKey::Blob),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<SshPublicKey>(), Err(error), "{text}");
        }
    }
}
