//! Access tokens: JWT, HS256 with one key, 15 minutes.
//!
//! The algorithm and the key are ours, never the header's; a token that names another key is refused. Every claim is required and
//! typed (a string `exp` is an error, not an absent one), and time is checked here against the control plane's own clock, so that
//! virtual time works and no ambient clock decides. A token says who signed in and for which tenant; whether that still holds
//! is read from the database by [`super::caller`].

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{SessionId, TenantId, UserId};
use tarn_protocol::units::Timestamp;

use crate::auth::signing_key::SigningKey;

const ISSUER: &str = "tarn";
const AUDIENCE: &str = "tarn-api";
const LEEWAY_SECONDS: i64 = 30;
const MICROS: i64 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub aud: String,
    pub sub: UserId,
    /// Unique per token.
    pub jti: String,
    pub iat: i64,
    pub nbf: i64,
    pub exp: i64,
    pub tenant: TenantId,
    pub session: SessionId,
    /// The user's token epoch at issue; a higher one in the database revokes the token.
    pub epoch: i64,
}

/// Who a token is issued to.
#[derive(Debug, Clone)]
pub struct Subject {
    pub user_id: UserId,
    pub tenant_id: TenantId,
    pub session_id: SessionId,
    pub epoch: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("not a token of ours")]
    Signature(#[from] jsonwebtoken::errors::Error),
    #[error("signed by an unknown key")]
    UnknownKey,
    #[error("not valid at this time")]
    Time,
    #[error("lives longer than any token of ours")]
    TooLong,
}

pub struct AccessTokens {
    encoding: EncodingKey,
    decoding: DecodingKey,
    header: Header,
    validation: Validation,
    lifetime_seconds: i64,
}

impl std::fmt::Debug for AccessTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessTokens").field("kid", &self.header.kid).finish_non_exhaustive()
    }
}

impl AccessTokens {
    pub fn new(key: &SigningKey, lifetime_seconds: i64) -> Result<Self, TokenError> {
        let secret = key.derive("access tokens");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "nbf", "iss", "aud", "sub"]);
        // Checked below, against our clock.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        Ok(Self {
            encoding: EncodingKey::from_secret(&secret)?,
            decoding: DecodingKey::from_secret(&secret)?,
            header: Header { kid: Some(key.name()), ..Header::new(Algorithm::HS256) },
            validation,
            lifetime_seconds,
        })
    }

    pub fn issue(&self, subject: Subject, jti: String, now: Timestamp) -> Result<String, TokenError> {
        let iat = now.as_micros().div_euclid(MICROS);
        let claims = Claims {
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.to_owned(),
            sub: subject.user_id,
            jti,
            iat,
            nbf: iat,
            exp: iat + self.lifetime_seconds,
            tenant: subject.tenant_id,
            session: subject.session_id,
            epoch: subject.epoch,
        };
        Ok(jsonwebtoken::encode(&self.header, &claims, &self.encoding)?)
    }

    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        let decoded = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation)?;
        if decoded.header.kid != self.header.kid {
            return Err(TokenError::UnknownKey);
        }
        let (claims, now) = (decoded.claims, now.as_micros().div_euclid(MICROS));
        if claims.exp.saturating_sub(claims.nbf) > self.lifetime_seconds {
            return Err(TokenError::TooLong);
        }
        let valid = claims.nbf.saturating_sub(LEEWAY_SECONDS)..claims.exp.saturating_add(LEEWAY_SECONDS);
        if valid.contains(&now) { Ok(claims) } else { Err(TokenError::Time) }
    }

    pub const fn lifetime_seconds(&self) -> i64 {
        self.lifetime_seconds
    }
}

#[cfg(test)]
mod tests;
