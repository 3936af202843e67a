//! People and what they hold: accounts, keys, sessions, stored answers.

use tarn_protocol::ids::{ApiKeyId, RefreshTokenId, SessionId, SshKeyId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::accounts::{MemberRow, MembershipRow, Role, SshKeyRow, TenantRow, UserRow};
use tarn_rows::api_keys::ApiKeyRow;
use tarn_rows::idempotency::IdempotencyRow;
use tarn_rows::secrets::SecretDigest;
use tarn_rows::sessions::{RefreshTokenRow, SessionProofRow};
use tarn_rows::{Page, TenantScope};

use super::calls;

calls! { accounts {
    insert_tenant(tenant: &TenantRow) -> ();
    tenant(scope: &TenantScope) -> Option<TenantRow>;
    tenants(page: Page<'_, TenantId>) -> Vec<TenantRow>;
    lock_tenant(scope: &TenantScope) -> bool;
    set_tenant_quota(tenant: &TenantRow) -> bool;
    insert_user(user: &UserRow) -> ();
    lock_user(id: &UserId) -> bool;
    user(id: &UserId) -> Option<UserRow>;
    user_by_email(email: &str) -> Option<UserRow>;
    bump_token_epoch(id: &UserId) -> Option<i64>;
    set_password(user: &UserRow) -> bool;
    set_operator(id: &UserId, operator: bool) -> bool;
    insert_membership(scope: &TenantScope, membership: &MembershipRow) -> ();
    membership(user: &UserId, tenant: &TenantId) -> Option<MemberRow>;
    memberships_of_user(user: &UserId) -> Vec<MemberRow>;
    members(scope: &TenantScope, page: Page<'_, UserId>) -> Vec<MemberRow>;
    set_role(scope: &TenantScope, user: &UserId, role: Role) -> bool;
    delete_membership(scope: &TenantScope, user: &UserId) -> bool;
} }

calls! { ssh_keys {
    insert_ssh_key(scope: &TenantScope, key: &SshKeyRow) -> ();
    ssh_key(scope: &TenantScope, id: &SshKeyId) -> Option<SshKeyRow>;
    ssh_keys(scope: &TenantScope, page: Page<'_, SshKeyId>) -> Vec<SshKeyRow>;
    delete_ssh_key(scope: &TenantScope, id: &SshKeyId) -> bool;
} }

calls! { sessions {
    insert_refresh_token(token: &RefreshTokenRow) -> ();
    refresh_token(secret: &SecretDigest) -> Option<RefreshTokenRow>;
    rotate_refresh_token(id: &RefreshTokenId, now: Timestamp) -> bool;
    session_proof(user: &UserId, tenant: &TenantId, session: &SessionId) -> Option<SessionProofRow>;
    revoke_session(session: &SessionId, now: Timestamp) -> u64;
    revoke_sessions_of_user(user: &UserId, now: Timestamp) -> u64;
    delete_expired_refresh_tokens(before: Timestamp, limit: u32) -> u64;
} }

calls! { api_keys {
    insert_api_key(scope: &TenantScope, key: &ApiKeyRow) -> ();
    api_key_by_secret(secret: &SecretDigest) -> Option<ApiKeyRow>;
    api_key(scope: &TenantScope, id: &ApiKeyId) -> Option<ApiKeyRow>;
    api_keys(scope: &TenantScope, page: Page<'_, ApiKeyId>) -> Vec<ApiKeyRow>;
    revoke_api_key(scope: &TenantScope, id: &ApiKeyId, now: Timestamp) -> bool;
    touch_api_key(scope: &TenantScope, id: &ApiKeyId, now: Timestamp, unless_since: Timestamp) -> bool;
} }

calls! { idempotency {
    idempotent_answer(scope: &TenantScope, key: &str) -> Option<IdempotencyRow>;
    insert_idempotent_answer(scope: &TenantScope, answer: &IdempotencyRow) -> bool;
    finish_idempotent_answer(scope: &TenantScope, answer: &IdempotencyRow) -> bool;
} }
