//! Join tokens: a host joins once with one, within a day. Shown once, stored as SHA-256.

use std::fmt;
use std::str::FromStr;

use serde_json::json;
use tarn_protocol::ids::JoinTokenId;
use tarn_protocol::units::Timestamp;
use tarn_rows::hosts::JoinTokenRow;
use tarn_store::StoreError;

use super::log::{self, By, Deed};
use crate::auth::secret;
use crate::state::AppState;

pub const PREFIX: &str = "tarn_join_";
/// 178 random bits.
const SECRET_CHARACTERS: usize = 30;
const LIFETIME_SECONDS: i64 = 24 * 3600;

/// Where hosts stand, as people write it; trimmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region(String);

const REGION_CHARACTERS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a region has 1 to {REGION_CHARACTERS_MAX} printable characters")]
pub struct InvalidRegion;

impl FromStr for Region {
    type Err = InvalidRegion;

    fn from_str(text: &str) -> Result<Self, InvalidRegion> {
        let region = text.trim();
        let printable = !region.chars().any(char::is_control);
        let length = region.chars().count();
        if printable && (1..=REGION_CHARACTERS_MAX).contains(&length) {
            Ok(Self(region.to_owned()))
        } else {
            Err(InvalidRegion)
        }
    }
}

#[derive(Clone)]
pub struct NewJoinToken {
    pub id: JoinTokenId,
    /// A secret: whoever has it makes a host of this fleet.
    pub token: String,
    pub region: String,
    pub expires_at: Timestamp,
}

impl fmt::Debug for NewJoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewJoinToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A token for one host of `region`.
pub async fn create(state: &AppState, Region(region): Region, by: By) -> Result<NewJoinToken, StoreError> {
    let now = state.clock.now();
    let token = format!("{PREFIX}{}", secret::base62(state.entropy.as_ref(), SECRET_CHARACTERS));
    let id = JoinTokenId::new(now, state.entropy.bits());
    let row = JoinTokenRow {
        id: id.clone(),
        secret_sha256: secret::digest(&token),
        region: region.clone(),
        created_at: now,
        expires_at: now.plus_seconds(LIFETIME_SECONDS),
        used_at: None,
        used_by_host: None,
        used_nonce: None,
    };
    let expires_at = row.expires_at;
    let written = state.store.write(move |tx| {
        Box::pin(async move {
            tx.insert_join_token(&row).await?;
            let detail = json!({"region": row.region, "expires_at": row.expires_at.as_micros()});
            log::record(tx, &by, now, Deed::CreateJoinToken, (&row.id, detail)).await
        })
    });
    written.await?;
    Ok(NewJoinToken { id, token, region, expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_a_short_printable_word() {
        assert_eq!(" cn-east ".parse(), Ok(Region("cn-east".to_owned())));
        for text in ["", "   ", "cn\neast", "\u{1b}[2J", &"x".repeat(REGION_CHARACTERS_MAX + 1)] {
            assert_eq!(text.parse::<Region>(), Err(InvalidRegion), "{text:?}");
        }
    }
}
