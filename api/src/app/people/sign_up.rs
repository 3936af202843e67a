//! Signing up: a person, their tenant, its wallet and the trial credit, in one commit.

use tarn_billing::grant::{Grant, GrantKind, GrantTerms, InvalidGrant};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{GrantId, TenantId, UserId};
use tarn_protocol::units::{Bytes, Timestamp};
use tarn_rows::TenantScope;
use tarn_rows::accounts::{MemberRow, MembershipRow, Role, TenantRow, UserRow};
use tarn_rows::secrets::PasswordHash;
use tarn_store::{Constraint, StoreError};

use crate::app::money::wallet::{self, FundingError};
use crate::app::people::email::{Email, NewPassword};
use crate::app::people::sessions::{self, NewRefreshToken, Session, SessionError};
use crate::auth::password::PasswordError;
use crate::state::AppState;

pub const TRIAL: Micros = Micros::new(10_000_000);
/// Cards that a new tenant may hold at once: two pools of four.
const QUOTA_CARDS: u32 = 8;
const QUOTA_BYTES: Bytes = Bytes::gib(24 * 8);

#[derive(Debug, Clone)]
pub struct SignUp {
    pub email: Email,
    pub password: NewPassword,
    pub tenant_name: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SignUpError {
    #[error("the email has an account")]
    EmailTaken,
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Grant(#[from] InvalidGrant),
    #[error(transparent)]
    Funding(#[from] FundingError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for SignUpError {
    fn from(error: StoreError) -> Self {
        // Another sign-up with this email committed after this one had looked.
        if error.breaks(Constraint::UserEmail) { Self::EmailTaken } else { Self::Store(error) }
    }
}

/// Everything a sign-up writes, decided before the transaction so that a retry writes the same.
#[derive(Debug, Clone)]
pub(crate) struct NewAccount {
    pub user: UserRow,
    pub tenant: TenantRow,
    pub trial: Grant,
}

impl NewAccount {
    pub(crate) fn draw(
        state: &AppState,
        email: &Email,
        password_hash: String,
        tenant_name: String,
    ) -> Result<Self, InvalidGrant> {
        let at = state.clock.now();
        let tenant = new_tenant(state, tenant_name, at);
        let user = UserRow {
            id: UserId::new(at, state.entropy.bits()),
            email: email.as_str().to_owned(),
            password_hash: PasswordHash::from_phc(password_hash),
            operator: false,
            token_epoch: 0,
            created_at: at,
        };
        let trial = Grant::new(GrantTerms {
            id: GrantId::new(at, state.entropy.bits()),
            tenant_id: tenant.id.clone(),
            kind: GrantKind::Trial,
            priority: 0,
            amount: TRIAL,
            granted_at: at,
            expires_at: None,
        })?;
        Ok(Self { user, tenant, trial })
    }

    fn member(&self) -> MemberRow {
        MemberRow {
            tenant_id: self.tenant.id.clone(),
            tenant_name: self.tenant.name.clone(),
            user_id: self.user.id.clone(),
            email: self.user.email.clone(),
            role: Role::Owner,
            created_at: self.tenant.created_at,
        }
    }
}

pub(crate) fn new_tenant(state: &AppState, name: String, at: Timestamp) -> TenantRow {
    TenantRow {
        id: TenantId::new(at, state.entropy.bits()),
        name,
        quota_cards: QUOTA_CARDS,
        quota_bytes: QUOTA_BYTES,
        created_at: at,
    }
}

pub(crate) fn owner(tenant: &TenantRow, user_id: UserId) -> MembershipRow {
    MembershipRow { tenant_id: tenant.id.clone(), user_id, role: Role::Owner, created_at: tenant.created_at }
}

pub async fn sign_up(state: &AppState, wish: SignUp) -> Result<Session, SignUpError> {
    let hash = state.auth.passwords.hash(wish.password.into_inner(), state.entropy.as_ref()).await?;
    let account = NewAccount::draw(state, &wish.email, hash, wish.tenant_name)?;
    let refresh = NewRefreshToken::draw(state);
    let session_id = refresh.new_session(state);
    let scope = TenantScope::proven(account.tenant.id.clone());
    let token = refresh.row(session_id.clone(), account.user.id.clone(), account.tenant.id.clone());

    let writing = account.clone();
    let written = state.store.write(move |tx| {
        Box::pin(async move {
            if tx.user_by_email(&writing.user.email).await?.is_some() {
                return Err(SignUpError::EmailTaken);
            }
            tx.insert_user(&writing.user).await?;
            tx.insert_tenant(&writing.tenant).await?;
            tx.insert_membership(&scope, &owner(&writing.tenant, writing.user.id.clone())).await?;
            wallet::open(tx, &scope, writing.tenant.created_at).await?;
            wallet::fund(tx, &scope, &writing.trial, None, "trial credit").await?;
            tx.insert_refresh_token(&token).await?;
            Ok(())
        })
    });
    written.await?;
    Ok(sessions::opened(state, &account.user, account.member(), session_id, refresh)?)
}
