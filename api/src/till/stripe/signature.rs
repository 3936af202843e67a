//! Stripe's signature of a webhook: `Stripe-Signature: t=<unix seconds>,v1=<hex HMAC-SHA256 over "t.body">`.
//!
//! Several `v1` stand there while a secret is rotated, and several secrets may be configured for the same reason. Every candidate is
//! compared in constant time. A time outside the tolerance is refused, so that a callback once overheard cannot be sent again later.

use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use tarn_protocol::units::Timestamp;

use crate::till::CallbackRefused;

/// How far the time of a signature may be from now: Stripe's own default.
pub const TOLERANCE_SECONDS: i64 = 300;
/// Signatures looked at in one header; a rotation has two.
const SIGNATURES_MAX: usize = 8;

fn mac(secret: &SecretString, seconds: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(seconds.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac
}

/// The header's text for `body`, as the sender makes it.
pub fn sign(secret: &SecretString, body: &[u8], at: Timestamp) -> String {
    let seconds = (at.as_micros() / 1_000_000).to_string();
    let code = mac(secret, &seconds, body).finalize().into_bytes();
    format!("t={seconds},v1={}", hex(&code))
}

/// Whether one of `secrets` signed `body`, recently.
pub fn verify(
    secrets: &[SecretString],
    header: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<(), CallbackRefused> {
    let parts = || header.split(',').filter_map(|part| part.trim().split_once('='));
    let seconds = parts().find(|(name, _)| *name == "t").map(|(_, value)| value);
    let seconds = seconds.ok_or(CallbackRefused::Unsigned)?;
    let signatures: Vec<Vec<u8>> = parts()
        .filter(|(name, _)| *name == "v1")
        .take(SIGNATURES_MAX)
        .filter_map(|(_, hex)| unhex(hex))
        .collect();
    if signatures.is_empty() {
        return Err(CallbackRefused::Unsigned);
    }
    let matches = |secret: &SecretString| {
        let mac = mac(secret, seconds, body);
        // `verify_slice` compares in constant time.
        signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
    };
    if !secrets.iter().any(matches) {
        return Err(CallbackRefused::WrongSignature);
    }
    let signed_at: i64 = seconds.parse().map_err(|_| CallbackRefused::Malformed)?;
    let away = (now.as_micros() / 1_000_000).saturating_sub(signed_at).saturating_abs();
    if away <= TOLERANCE_SECONDS { Ok(()) } else { Err(CallbackRefused::OutOfTime) }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is a hex digit");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    #[test]
    fn a_signature_is_bound_to_its_secret_its_time_and_its_body() {
        let (secret, other) = (SecretString::from("whsec_one"), SecretString::from("whsec_two"));
        let header = sign(&secret, b"{}", NOW);
        let check =
            |secrets: &[SecretString], header: &str, body: &[u8], now| verify(secrets, header, body, now);
        let one = std::slice::from_ref(&secret);
        assert_eq!(check(one, &header, b"{}", NOW), Ok(()));
        assert_eq!(
            check(&[other.clone(), secret.clone()], &header, b"{}", NOW),
            Ok(()),
            "while it is rotated"
        );
        assert_eq!(check(&[other], &header, b"{}", NOW), Err(CallbackRefused::WrongSignature));
        assert_eq!(check(one, &header, b"{ }", NOW), Err(CallbackRefused::WrongSignature));
        let later = NOW.plus_seconds(TOLERANCE_SECONDS);
        assert_eq!(check(one, &header, b"{}", later), Ok(()));
        assert_eq!(check(one, &header, b"{}", later.plus_seconds(1)), Err(CallbackRefused::OutOfTime));
        assert_eq!(check(one, &header, b"{}", NOW.plus_seconds(-301)), Err(CallbackRefused::OutOfTime));
        // The time is signed too: a fresh one cannot be put in front of an old signature.
        let moved = header.replace("t=1800000000", "t=1800000300");
        assert_ne!(moved, header);
        assert_eq!(check(one, &moved, b"{}", later), Err(CallbackRefused::WrongSignature));
        for text in ["", "t=1", "v1=00", "t=1800000000,v0=00", "t=1800000000,v1=0", "t=1800000000,v1=zz"] {
            assert_eq!(check(one, text, b"{}", NOW), Err(CallbackRefused::Unsigned), "{text:?}");
        }
        assert_eq!(check(one, "t=1800000000,v1=00", b"{}", NOW), Err(CallbackRefused::WrongSignature));
        assert_eq!(check(&[], &header, b"{}", NOW), Err(CallbackRefused::WrongSignature));
    }

    /// Made apart from this code: `printf '1614556800.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_test`.
    #[test]
    fn the_form_is_the_published_one() {
        let at = Timestamp::from_micros(1_614_556_800_000_000);
        let header = sign(&SecretString::from("whsec_test"), br#"{"id":"evt_1"}"#, at);
        assert_eq!(
            header,
            "t=1614556800,v1=e326b9127f526dab808bd39e79a44ab61b0dc0517386b06a7abf563ce203409b"
        );
    }
}
