//! Sessions: a login, the chain of its refresh tokens, and its end.
//!
//! A refresh token works once. A second use of one means that two parties hold it, and nothing tells which is the thief: the whole
//! session ends and every access token of the user is refused. The outcome that ends a session is committed, so it is a value
//! here and not an error that would roll back.

use std::fmt;

use tarn_protocol::ids::{RefreshTokenId, SessionId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::accounts::{MemberRow, UserRow};
use tarn_rows::sessions::RefreshTokenRow;
use tarn_store::{StoreError, Tx};

use crate::auth::access_token::{Subject, TokenError};
use crate::auth::password::PasswordError;
use crate::auth::secret;
use crate::state::AppState;

/// 238 random bits.
const REFRESH_CHARACTERS: usize = 40;
const REFRESH_PREFIX: &str = "tarn_refresh_";

/// What a client gets to keep a session going. Both tokens are secrets.
#[derive(Clone)]
pub struct Session {
    pub access_token: String,
    pub refresh_token: String,
    pub member: MemberRow,
    pub operator: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("member", &self.member).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Unknown email, wrong password and a tenant that is not theirs look alike.
    #[error("wrong email or password")]
    WrongLogin,
    /// Unknown, used, expired and revoked refresh tokens look alike.
    #[error("the session has ended")]
    Ended,
    #[error("not a tenant of this person")]
    OtherTenant,
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A refresh token before it is stored.
#[derive(Debug, Clone)]
pub(crate) struct NewRefreshToken {
    secret: String,
    id: RefreshTokenId,
    at: Timestamp,
    expires_at: Timestamp,
}

impl NewRefreshToken {
    pub(crate) fn draw(state: &AppState) -> Self {
        let at = state.clock.now();
        let entropy = state.entropy.as_ref();
        Self {
            secret: format!("{REFRESH_PREFIX}{}", secret::base62(entropy, REFRESH_CHARACTERS)),
            id: RefreshTokenId::new(at, entropy.bits()),
            at,
            expires_at: at.plus_seconds(state.config.sessions.refresh_token_seconds),
        }
    }

    pub(crate) fn row(&self, session_id: SessionId, user_id: UserId, tenant_id: TenantId) -> RefreshTokenRow {
        RefreshTokenRow {
            id: self.id.clone(),
            session_id,
            user_id,
            tenant_id,
            secret_sha256: secret::digest(&self.secret),
            created_at: self.at,
            expires_at: self.expires_at,
            rotated_at: None,
            revoked_at: None,
        }
    }

    pub(crate) fn new_session(&self, state: &AppState) -> SessionId {
        SessionId::new(self.at, state.entropy.bits())
    }
}

/// The session as its client sees it, with a fresh access token.
pub(crate) fn opened(
    state: &AppState,
    user: &UserRow,
    member: MemberRow,
    session_id: SessionId,
    refresh: NewRefreshToken,
) -> Result<Session, SessionError> {
    let subject = Subject {
        user_id: user.id.clone(),
        tenant_id: member.tenant_id.clone(),
        session_id,
        epoch: user.token_epoch,
    };
    let access_token =
        state.auth.tokens.issue(subject, format!("{:032x}", state.entropy.bits()), state.clock.now())?;
    Ok(Session { access_token, refresh_token: refresh.secret, member, operator: user.operator })
}

/// Signs in for `tenant`, or for the tenant joined first.
pub async fn log_in(
    state: &AppState,
    email: String,
    password: String,
    tenant: Option<TenantId>,
) -> Result<Session, SessionError> {
    let user = state.store.reader().await?.user_by_email(&email).await?;
    let stored = user.as_ref().map(|user| user.password_hash.as_str().to_owned());
    let right = state.auth.passwords.verify(password, stored).await?;
    let user = user.filter(|_| right).ok_or(SessionError::WrongLogin)?;
    start(state, user, tenant).await?.ok_or(SessionError::WrongLogin)
}

/// A new session of a proven person; `None` if the tenant is not theirs.
async fn start(
    state: &AppState,
    user: UserRow,
    tenant: Option<TenantId>,
) -> Result<Option<Session>, SessionError> {
    let refresh = NewRefreshToken::draw(state);
    let session_id = refresh.new_session(state);
    let (user_id, new, session) = (user.id.clone(), refresh.clone(), session_id.clone());
    let member = state.store.write(move |tx| {
        Box::pin(async move {
            let Some(member) = member_of(tx, &user_id, tenant.as_ref()).await? else { return Ok(None) };
            tx.insert_refresh_token(&new.row(session, user_id, member.tenant_id.clone())).await?;
            Ok::<_, StoreError>(Some(member))
        })
    });
    let Some(member) = member.await? else { return Ok(None) };
    opened(state, &user, member, session_id, refresh).map(Some)
}

async fn member_of(
    tx: &mut Tx,
    user: &UserId,
    tenant: Option<&TenantId>,
) -> Result<Option<MemberRow>, StoreError> {
    match tenant {
        Some(tenant) => tx.membership(user, tenant).await,
        None => Ok(tx.memberships_of_user(user).await?.into_iter().next()),
    }
}

enum Refreshed {
    Next(Box<(UserRow, MemberRow)>, SessionId),
    Ended,
}

/// Trades a refresh token for the next one.
pub async fn refresh(state: &AppState, refresh_token: &str) -> Result<Session, SessionError> {
    let digest = secret::digest(refresh_token);
    let next = NewRefreshToken::draw(state);
    let (now, new) = (next.at, next.clone());
    let outcome = state.store.write(move |tx| {
        Box::pin(async move {
            let Some(used) = tx.refresh_token(&digest).await? else { return Ok(Refreshed::Ended) };
            if !tx.rotate_refresh_token(&used.id, now).await? {
                if used.rotated_at.is_some() && used.revoked_at.is_none() {
                    tx.revoke_session(&used.session_id, now).await?;
                    tx.bump_token_epoch(&used.user_id).await?;
                }
                return Ok(Refreshed::Ended);
            }
            let user = tx.user(&used.user_id).await?;
            let member = tx.membership(&used.user_id, &used.tenant_id).await?;
            let Some((user, member)) = user.zip(member) else { return Ok(Refreshed::Ended) };
            tx.insert_refresh_token(&new.row(used.session_id.clone(), used.user_id, used.tenant_id)).await?;
            Ok::<_, StoreError>(Refreshed::Next(Box::new((user, member)), used.session_id))
        })
    });
    match outcome.await? {
        Refreshed::Next(found, session_id) => {
            let (user, member) = *found;
            opened(state, &user, member, session_id, next)
        }

        Refreshed::Ended => {
            state.auth.proofs.forget();
            Err(SessionError::Ended)
        }
    }
}

/// The same person, for another of their tenants: a session of its own.
pub async fn switch(state: &AppState, user_id: UserId, tenant: TenantId) -> Result<Session, SessionError> {
    let user = state.store.reader().await?.user(&user_id).await?;
    let user = user.ok_or(SessionError::Ended)?;
    start(state, user, Some(tenant)).await?.ok_or(SessionError::OtherTenant)
}

/// Ends a session: its refresh tokens and its access tokens are refused from here on.
pub async fn log_out(state: &AppState, session_id: SessionId) -> Result<(), SessionError> {
    let now = state.clock.now();
    let ended =
        state.store.write(move |tx| Box::pin(async move { tx.revoke_session(&session_id, now).await }));
    ended.await?;
    state.auth.proofs.forget();
    Ok(())
}
