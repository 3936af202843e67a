//! Who is asking, and what they may do.
//!
//! Two kinds of credential, both sent as `Authorization: Bearer …` (a key also as `X-API-Key`):
//!
//! * a **session** of a person: a 15-minute access token ([`access_token`]) renewed by a refresh token that changes with every
//!   use ([`refresh`]); its user's role in the token's tenant decides the scopes;
//! * an **API key** ([`api_key`]) of a tenant, with the scopes it was made with.
//!
//! Every request stands on a row of the database that is at most [`proofs::LIFETIME`] old and never older than the last change made
//! by this process, so that revoking, a changed role or a raised token epoch act at once. The extractors in [`crate::http::extract`] are the only way from a request to a
//! [`caller::Identity`], and so to a tenant's rows.

pub mod access_token;
pub mod api_key;
pub mod caller;
pub mod password;
pub mod proofs;
pub mod role;
pub mod scope;
pub mod secret;
pub mod signing_key;
