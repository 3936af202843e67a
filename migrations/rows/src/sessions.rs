//! Refresh tokens: rotated at each use; the second use of one revokes its whole session.

use tarn_protocol::ids::{RefreshTokenId, SessionId, TenantId, UserId};
use tarn_protocol::units::Timestamp;

use crate::accounts::Role;
use crate::secrets::SecretDigest;
use crate::stored::rows;

rows! {
    RefreshTokenRow / RefreshTokenRaw {
        id: RefreshTokenId,
        session_id: SessionId,
        user_id: UserId,
        tenant_id: TenantId,
        secret_sha256: SecretDigest,
        created_at: Timestamp,
        expires_at: Timestamp,
        rotated_at: Option<Timestamp>,
        revoked_at: Option<Timestamp>,
    }
    /// Whether an access token's claims still hold, in one reading.
    SessionProofRow / SessionProofRaw {
        operator: bool,
        token_epoch: i64,
        /// In the token's tenant.
        role: Role,
        /// The login was not ended.
        live: bool,
    }
}
