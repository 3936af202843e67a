//! The tenant whose rows a query may touch.
//!
//! SQLite has no row security, so the compiler is the wall: a query about a tenant's rows takes a [`TenantScope`] and puts it into
//! its `WHERE`. A foreign id and an absent id then give the same answer, because to the query they are the same.

use tarn_protocol::ids::TenantId;

/// Proof that the caller may act for one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantScope {
    tenant_id: TenantId,
}

impl TenantScope {
    /// Call this in two places only: the auth extractor, after it proved a membership or an API key of `tenant_id`; and a worker
    /// that read `tenant_id` from a row of its own (an open segment, a live instance), never from a request.
    pub const fn proven(tenant_id: TenantId) -> Self {
        Self { tenant_id }
    }

    pub const fn tenant_id(&self) -> &TenantId {
        &self.tenant_id
    }

    pub fn as_str(&self) -> &str {
        self.tenant_id.as_str()
    }
}
