//! The stored answer of a mutating call.

use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Timestamp;

use crate::secrets::SecretDigest;
use crate::stored::rows;

rows! {
    IdempotencyRow / IdempotencyRaw {
        tenant_id: TenantId,
        key: String,
        /// Method and route template.
        route: String,
        body_sha256: SecretDigest,
        status: u32,
        /// JSON; never holds a secret that is shown once.
        response: String,
        created_at: Timestamp,
    }
}
