//! Members of a tenant: who may add, change and remove whom.
//!
//! Only an owner makes or unmakes an owner, and the last owner stays: a tenant that nobody owns could pay for ever. The tenant's row
//! is locked while this is decided, so that two owners cannot remove each other at once.

use tarn_protocol::ids::UserId;
use tarn_rows::accounts::{MemberRow, MembershipRow, Role};
use tarn_rows::{Page, TenantScope};
use tarn_store::{StoreError, Tx};

use crate::app::people::email::Email;
use crate::state::AppState;

/// Members of one tenant; also the bound of reading them all.
pub const MEMBERS_MAX: u32 = 200;

#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// No such person, or no member of this tenant.
    #[error("no such member")]
    Unknown,
    #[error("already a member")]
    AlreadyMember,
    #[error("only an owner does that")]
    OwnersOnly,
    #[error("a tenant keeps one owner at least")]
    LastOwner,
    #[error("a tenant has {MEMBERS_MAX} members at most")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who changes the members: their role at this moment, `None` for an API key (which never touches owners).
pub type Changer = Option<Role>;

/// Adds a person who has signed up.
pub async fn add(
    state: &AppState,
    scope: &TenantScope,
    changer: Changer,
    email: Email,
    role: Role,
) -> Result<MemberRow, MemberError> {
    may_touch(changer, role)?;
    let (scope, at) = (scope.clone(), state.clock.now());
    let added = state.store.write(move |tx| {
        Box::pin(async move {
            let members = locked_members(tx, &scope).await?;
            let user = tx.user_by_email(email.as_str()).await?.ok_or(MemberError::Unknown)?;
            if members.iter().any(|member| member.user_id == user.id) {
                return Err(MemberError::AlreadyMember);
            }
            if members.len() >= MEMBERS_MAX as usize {
                return Err(MemberError::TooMany);
            }
            let tenant_id = scope.tenant_id().clone();
            let membership = MembershipRow { tenant_id, user_id: user.id.clone(), role, created_at: at };
            tx.insert_membership(&scope, &membership).await?;
            tx.membership(&user.id, scope.tenant_id()).await?.ok_or(MemberError::Unknown)
        })
    });
    added.await
}

pub async fn set_role(
    state: &AppState,
    scope: &TenantScope,
    changer: Changer,
    user_id: UserId,
    role: Role,
) -> Result<MemberRow, MemberError> {
    let scope = scope.clone();
    let changed = state.store.write(move |tx| {
        Box::pin(async move {
            let before = changeable(tx, &scope, changer, &user_id, Some(role)).await?;
            tx.set_role(&scope, &user_id, role).await?;
            Ok::<_, MemberError>(MemberRow { role, ..before })
        })
    });
    let member = changed.await?;
    state.auth.proofs.forget();
    Ok(member)
}

pub async fn remove(
    state: &AppState,
    scope: &TenantScope,
    changer: Changer,
    user_id: UserId,
) -> Result<(), MemberError> {
    let scope = scope.clone();
    let removed = state.store.write(move |tx| {
        Box::pin(async move {
            changeable(tx, &scope, changer, &user_id, None).await?;
            tx.delete_membership(&scope, &user_id).await?;
            Ok::<_, MemberError>(())
        })
    });
    removed.await?;
    state.auth.proofs.forget();
    Ok(())
}

/// The member, if `changer` may give them `role` (or none at all).
async fn changeable(
    tx: &mut Tx,
    scope: &TenantScope,
    changer: Changer,
    user_id: &UserId,
    role: Option<Role>,
) -> Result<MemberRow, MemberError> {
    let members = locked_members(tx, scope).await?;
    let member = members.iter().find(|member| member.user_id == *user_id).ok_or(MemberError::Unknown)?;
    may_touch(changer, member.role)?;
    if let Some(role) = role {
        may_touch(changer, role)?;
    }
    let owners = members.iter().filter(|member| member.role == Role::Owner).count();
    if member.role == Role::Owner && role != Some(Role::Owner) && owners == 1 {
        return Err(MemberError::LastOwner);
    }
    Ok(member.clone())
}

async fn locked_members(tx: &mut Tx, scope: &TenantScope) -> Result<Vec<MemberRow>, StoreError> {
    tx.lock_tenant(scope).await?;
    tx.members(scope, Page::first(MEMBERS_MAX)).await
}

fn may_touch(changer: Changer, role: Role) -> Result<(), MemberError> {
    if role == Role::Owner && changer != Some(Role::Owner) { Err(MemberError::OwnersOnly) } else { Ok(()) }
}
