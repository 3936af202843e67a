//! Lists: `limit`, `cursor`, `next_cursor`, in a stable order.
//!
//! A cursor is the id after which the next page starts, with a code that binds it to this list of this tenant: opaque to clients,
//! useless elsewhere, and 422 when altered. Ids sort by creation, so rows that appear while a client pages are not skipped.

use std::str::FromStr;

use axum::RequestPartsExt;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use utoipa::{IntoParams, ToSchema};

use crate::auth::signing_key::SigningKey;
use crate::http::error::{ApiError, Code};
use crate::http::extract::query::Query;
use crate::state::AppState;

pub const LIMIT_DEFAULT: u32 = 20;
pub const LIMIT_MAX: u32 = 100;
const CODE_BYTES: usize = 16;

/// Query parameters of every list.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Rows per page.
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Present when there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Signs and checks cursors.
#[derive(Debug, Clone)]
pub struct Cursors {
    key: [u8; 32],
}

impl Cursors {
    pub fn new(key: &SigningKey) -> Self {
        Self { key: key.derive("cursors") }
    }

    fn mac(&self, list: &str, last: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        mac.update(list.as_bytes());
        mac.update(&[0]);
        mac.update(last.as_bytes());
        mac
    }

    fn seal(&self, list: &str, last: &str) -> String {
        let code = self.mac(list, last).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([&code[..CODE_BYTES], last.as_bytes()].concat())
    }

    fn open(&self, list: &str, cursor: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (code, last) = bytes.split_at_checked(CODE_BYTES)?;
        let last = std::str::from_utf8(last).ok()?;
        self.mac(list, last).verify_truncated_left(code).ok()?;
        Some(last.to_owned())
    }
}

/// Which page of a list the client wants.
#[derive(Debug, Clone)]
pub struct PageWanted {
    pub limit: u32,
    list: String,
    cursor: Option<String>,
    cursors: Cursors,
}

impl FromRequestParts<AppState> for PageWanted {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Query(PageParams { limit, cursor }) = parts.extract().await?;
        let limit = limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(ApiError::invalid("?limit", format!("must be between 1 and {LIMIT_MAX}")));
        }
        let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        Ok(Self { limit, list: route.to_owned(), cursor, cursors: state.auth.cursors.clone() })
    }
}

impl PageWanted {
    /// Binds the cursor to whose list it is (a tenant, an instance, the operator).
    pub fn of(mut self, owner: &str) -> Self {
        self.list = format!("{} {owner}", self.list);
        self
    }

    /// The id after which the page starts.
    pub fn after<Id: FromStr>(&self) -> Result<Option<Id>, ApiError> {
        let refused = || ApiError::new(Code::InvalidCursor, "start again without a cursor");
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let last = self.cursors.open(&self.list, cursor).ok_or_else(refused)?;
        last.parse().map(Some).map_err(|_| refused())
    }

    /// Rows to ask the store for: one more than the page, to see whether there is another.
    pub fn rows<'id, Id: std::fmt::Display>(&self, after: Option<&'id Id>) -> tarn_rows::Page<'id, Id> {
        tarn_rows::Page { after, limit: self.limit + 1 }
    }

    /// The page from up to [`Self::rows`] rows in list order.
    pub fn page<R, T>(
        &self,
        mut rows: Vec<R>,
        id_of: impl Fn(&R) -> String,
        document: impl Fn(R) -> T,
    ) -> Page<T> {
        let limit = self.limit as usize;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more).map(id_of);
        let next_cursor = last.map(|last| self.cursors.seal(&self.list, &last));
        Page { items: rows.into_iter().map(document).collect(), next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_opens_only_its_own_list_and_unaltered() {
        let cursors = Cursors::new(&SigningKey::new([1; 32]));
        let cursor = cursors.seal("/v1/api-keys ten_a", "key_1");
        assert_eq!(cursors.open("/v1/api-keys ten_a", &cursor).as_deref(), Some("key_1"));
        assert_eq!(cursors.open("/v1/api-keys ten_b", &cursor), None);
        for place in 0..cursor.len() {
            let mut altered = cursor.clone().into_bytes();
            altered[place] = if altered[place] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(altered).unwrap();
            if altered != cursor {
                assert_eq!(cursors.open("/v1/api-keys ten_a", &altered), None, "{altered}");
            }
        }
        assert_eq!(cursors.open("/v1/api-keys ten_a", ""), None);
    }
}
