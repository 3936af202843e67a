//! API keys of a tenant.

use tarn_protocol::ids::{ApiKeyId, TenantId, UserId};
use tarn_protocol::units::Timestamp;

use crate::secrets::SecretDigest;
use crate::stored::{Json, rows};

rows! {
    ApiKeyRow / ApiKeyRaw {
        id: ApiKeyId,
        tenant_id: TenantId,
        created_by: UserId,
        name: String,
        scopes: Json<Vec<String>>,
        secret_sha256: SecretDigest,
        created_at: Timestamp,
        expires_at: Option<Timestamp>,
        last_used_at: Option<Timestamp>,
        revoked_at: Option<Timestamp>,
    }
}
