//! The attacks that token libraries have fallen for, each refused.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_900_000_000_000_000);

fn key() -> SigningKey {
    SigningKey::new([7; 32])
}

fn tokens() -> AccessTokens {
    AccessTokens::new(&key(), 900).unwrap()
}

fn subject() -> Subject {
    Subject {
        user_id: UserId::new(NOW, 1),
        tenant_id: TenantId::new(NOW, 2),
        session_id: SessionId::new(NOW, 3),
        epoch: 4,
    }
}

/// A token with our own key and any header and claims: what a signing mistake, or a stolen key used clumsily, would make.
fn forged(header: &Value, change: impl FnOnce(&mut Value)) -> String {
    let genuine = tokens().issue(subject(), "jti".to_owned(), NOW).unwrap();
    let payload = genuine.split('.').nth(1).unwrap();
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    change(&mut claims);
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(&claims));
    let signing = EncodingKey::from_secret(&key().derive("access tokens")).unwrap();
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &signing, Algorithm::HS256).unwrap();
    format!("{message}.{signature}")
}

fn our_header() -> Value {
    json!({ "alg": "HS256", "typ": "JWT", "kid": key().name() })
}

#[test]
fn a_genuine_token_round_trips_until_it_expires() {
    let token = tokens().issue(subject(), "jti".to_owned(), NOW).unwrap();
    assert_eq!(tokens().verify(&token, NOW.plus_seconds(899)).unwrap().sub, subject().user_id);
    assert!(tokens().verify(&token, NOW.plus_seconds(929)).is_ok());
    assert_eq!(tokens().verify(&token, NOW.plus_seconds(930)), Err(TokenError::Time));
    assert_eq!(tokens().verify(&token, NOW.plus_seconds(-31)), Err(TokenError::Time));
    assert!(tokens().verify(&forged(&our_header(), |_| ()), NOW).is_ok(), "the forge itself is sound");
}

#[test]
fn no_header_chooses_algorithm_or_key() {
    let kid = key().name();
    let headers = [
        json!({ "alg": "none", "kid": kid }),
        json!({ "alg": "RS256", "kid": kid }),
        json!({ "alg": "HS384", "kid": kid }),
        json!({ "alg": "HS256" }),
        json!({ "alg": "HS256", "kid": "../../../../dev/null" }),
        json!({ "alg": "HS256", "kid": "" }),
        json!({ "alg": "HS256", "kid": ["a", "b"] }),
    ];
    for header in headers {
        let token = forged(&header, |_| ());
        assert!(tokens().verify(&token, NOW).is_err(), "{header}");
        let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert!(tokens().verify(&unsigned, NOW).is_err(), "{header}, no signature");
    }
}

#[test]
fn every_claim_is_required_and_typed() {
    for claim in ["iss", "aud", "sub", "jti", "iat", "nbf", "exp", "tenant", "session", "epoch"] {
        let without = forged(&our_header(), |claims| drop(claims.as_object_mut().unwrap().remove(claim)));
        assert!(tokens().verify(&without, NOW).is_err(), "without {claim}");
        let null = forged(&our_header(), |claims| claims[claim] = Value::Null);
        assert!(tokens().verify(&null, NOW).is_err(), "null {claim}");
    }
    let wrong = [
        ("exp", json!("1900000900")),
        ("exp", json!(1e300)),
        ("exp", json!(i64::MAX)),
        ("exp", json!(u64::MAX)),
        ("exp", json!(1_900_000_901)),
        ("exp", json!(-1)),
        ("nbf", json!("0")),
        ("nbf", json!(1_900_000_031)),
        ("nbf", json!(i64::MIN)),
        ("iss", json!("someone")),
        ("aud", json!("another-api")),
        ("aud", json!([])),
        ("sub", json!("usr_1")),
        ("tenant", json!("ten_../../x")),
    ];
    for (claim, value) in wrong {
        let token = forged(&our_header(), |claims| claims[claim] = value.clone());
        assert!(tokens().verify(&token, NOW).is_err(), "{claim} = {value}");
    }
}

#[test]
fn another_key_signs_nothing_here() {
    let token = AccessTokens::new(&SigningKey::new([8; 32]), 900).unwrap();
    let token = token.issue(subject(), "jti".to_owned(), NOW).unwrap();
    assert!(tokens().verify(&token, NOW).is_err());
}
