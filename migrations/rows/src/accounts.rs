//! People and who pays: tenants, users, memberships, SSH keys.

use tarn_protocol::ids::{SshKeyId, TenantId, UserId};
use tarn_protocol::units::{Bytes, Timestamp};

use crate::secrets::PasswordHash;
use crate::stored::{rows, words};

words! {
    /// What a user may do in a tenant. Declared from most to least.
    Role {
        Owner = "owner",
        Admin = "admin",
        Member = "member",
        Viewer = "viewer",
    }
}

rows! {
    TenantRow / TenantRaw {
        id: TenantId,
        name: String,
        /// Cards in live leases at once.
        quota_cards: u32,
        /// Nominal bytes of those cards.
        quota_bytes: Bytes,
        created_at: Timestamp,
    }
    UserRow / UserRaw {
        id: UserId,
        /// Lower case.
        email: String,
        password_hash: PasswordHash,
        operator: bool,
        /// Grows to revoke every access token at once.
        token_epoch: i64,
        created_at: Timestamp,
    }
    MembershipRow / MembershipRaw {
        tenant_id: TenantId,
        user_id: UserId,
        role: Role,
        created_at: Timestamp,
    }
    /// A membership with what a person reads beside it.
    MemberRow / MemberRaw {
        tenant_id: TenantId,
        tenant_name: String,
        user_id: UserId,
        email: String,
        role: Role,
        created_at: Timestamp,
    }
    SshKeyRow / SshKeyRaw {
        id: SshKeyId,
        tenant_id: TenantId,
        name: String,
        public_key: String,
        fingerprint: String,
        created_at: Timestamp,
    }
}
