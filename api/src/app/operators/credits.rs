//! Credit that operators give, and the second pair of eyes that much of it takes.
//!
//! With a limit configured, what one operator gives alone to anybody within a day stays at or below it; what goes beyond waits until
//! another operator approves or rejects it, or expires. The decision is one guarded update, and the schema itself refuses an approval
//! by the operator who asked, so neither a race nor a mistake here puts unseen credit into a wallet.

use serde_json::json;
use tarn_billing::grant::{Grant, GrantKind, GrantTerms, InvalidGrant};
use tarn_billing::money::{Micros, OutOfRange};
use tarn_protocol::ids::{CreditRequestId, GrantId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::operators::{CreditRequestRow, CreditState};
use tarn_store::{StoreError, Tx};

use super::log::{self, By, Deed};
use crate::app::act::Act;
use crate::app::money::top_up::{self, TopUpError};

/// The rule of a service.
#[derive(Debug, Clone, Copy)]
pub struct CreditRules {
    /// What one operator may give alone within [`ALONE_SECONDS`]; `None`: any amount.
    pub alone_max: Option<Micros>,
    /// How long a request waits for another operator.
    pub request_seconds: i64,
}

/// The time over which what one operator gives alone is summed, so that many small credits are one large one.
pub const ALONE_SECONDS: i64 = 24 * 3600;
/// Requests that expire in one tick.
const EXPIRED_MAX: u32 = 100;
/// After cash-like priorities of trial credit: given credit is drawn in its turn.
const PRIORITY: i64 = 10;

#[derive(Debug, Clone)]
pub struct CreditOrder {
    pub tenant_id: TenantId,
    pub kind: GrantKind,
    pub amount: Micros,
    /// Of the credit.
    pub expires_at: Option<Timestamp>,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CreditError {
    #[error("no such tenant")]
    UnknownTenant,
    #[error("no such request")]
    UnknownRequest,
    #[error("another operator than the one who asked must approve this")]
    OwnRequest,
    #[error("this request is {} already", .0.as_str())]
    Decided(CreditState),
    #[error("this request expired before anyone decided")]
    TooLate,
    #[error(transparent)]
    Grant(#[from] InvalidGrant),
    #[error(transparent)]
    Amount(#[from] OutOfRange),
    #[error(transparent)]
    TopUp(#[from] TopUpError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Gives credit, or asks for it where the rule wants another operator.
pub async fn order(
    tx: &mut Tx,
    act: &mut Act,
    rules: CreditRules,
    (by, operator): (&By, &UserId),
    order: &CreditOrder,
) -> Result<CreditRequestRow, CreditError> {
    let scope = TenantScope::proven(order.tenant_id.clone());
    tx.tenant(&scope).await?.ok_or(CreditError::UnknownTenant)?;
    let alone = fits_alone(tx, act.now, rules, operator, order.amount).await?;
    let mut row = CreditRequestRow {
        id: CreditRequestId::new(act.now, act.bits()),
        tenant_id: order.tenant_id.clone(),
        kind: order.kind,
        amount_micros: order.amount,
        grant_expires_at: order.expires_at,
        reason: order.reason.clone(),
        state: CreditState::Pending,
        four_eyes: !alone,
        requested_by: operator.clone(),
        decided_by: None,
        decision: None,
        grant_id: None,
        created_at: act.now,
        expires_at: waits_until(act.now, rules, order.expires_at),
        decided_at: None,
    };
    // Wrong terms are refused now, not by whoever is asked to approve them.
    let grant = grant_of(act, &row)?;
    if alone {
        top_up::put(tx, act, &scope, &grant, None, &row.reason).await?;
        row = given(row, operator, &grant, act.now);
    }
    tx.insert_credit_request(&row).await?;
    let deed = if alone { Deed::GiveCredit } else { Deed::RequestCredit };
    log::record(tx, by, act.now, deed, (&row.id, told(&row))).await?;
    Ok(row)
}

/// Whether the operator may give this much more alone. Their row is locked, so that two at once count each other.
async fn fits_alone(
    tx: &mut Tx,
    now: Timestamp,
    rules: CreditRules,
    operator: &UserId,
    amount: Micros,
) -> Result<bool, CreditError> {
    let Some(limit) = rules.alone_max else { return Ok(true) };
    tx.lock_user(operator).await?;
    let given = tx.credit_given_alone(operator, now.plus_seconds(-ALONE_SECONDS)).await?;
    Ok(given.checked_add(amount)? <= limit)
}

/// A request waits no longer than the credit would last.
fn waits_until(now: Timestamp, rules: CreditRules, credit_expires_at: Option<Timestamp>) -> Timestamp {
    let waits = now.plus_seconds(rules.request_seconds);
    credit_expires_at.map_or(waits, |expires_at| expires_at.min(waits))
}

fn grant_of(act: &Act, row: &CreditRequestRow) -> Result<Grant, InvalidGrant> {
    Grant::new(GrantTerms {
        id: GrantId::new(act.now, act.bits()),
        tenant_id: row.tenant_id.clone(),
        kind: row.kind,
        priority: PRIORITY,
        amount: row.amount_micros,
        granted_at: act.now,
        expires_at: row.grant_expires_at,
    })
}

fn given(row: CreditRequestRow, by: &UserId, grant: &Grant, now: Timestamp) -> CreditRequestRow {
    CreditRequestRow {
        state: CreditState::Given,
        decided_by: Some(by.clone()),
        grant_id: Some(grant.id().clone()),
        decided_at: Some(now),
        ..row
    }
}

/// Puts requested credit into the wallet, on the word of another operator.
pub async fn approve(
    tx: &mut Tx,
    act: &mut Act,
    (by, operator): (&By, &UserId),
    id: &CreditRequestId,
) -> Result<CreditRequestRow, CreditError> {
    let row = pending(tx, act.now, id).await?;
    if row.requested_by == *operator {
        return Err(CreditError::OwnRequest);
    }
    let grant = grant_of(act, &row)?;
    let scope = TenantScope::proven(row.tenant_id.clone());
    top_up::put(tx, act, &scope, &grant, None, &row.reason).await?;
    let row = given(row, operator, &grant, act.now);
    decide(tx, row, by, Deed::ApproveCredit, act.now).await
}

/// Ends a request for credit; whoever asked may take it back so.
pub async fn reject(
    tx: &mut Tx,
    now: Timestamp,
    (by, operator): (&By, &UserId),
    id: &CreditRequestId,
    why: &str,
) -> Result<CreditRequestRow, CreditError> {
    let row = CreditRequestRow {
        state: CreditState::Rejected,
        decided_by: Some(operator.clone()),
        decision: Some(why.to_owned()),
        decided_at: Some(now),
        ..pending(tx, now, id).await?
    };
    decide(tx, row, by, Deed::RejectCredit, now).await
}

/// Ends requests that nobody decided in time; how many.
pub async fn expire(tx: &mut Tx, now: Timestamp) -> Result<u32, StoreError> {
    let mut ended = 0;
    for row in tx.credit_requests_expired(now, EXPIRED_MAX).await? {
        let row = CreditRequestRow { state: CreditState::Expired, decided_at: Some(now), ..row };
        if tx.decide_credit_request(&row).await? {
            log::record(tx, &By::worker(), now, Deed::ExpireCredit, (&row.id, told(&row))).await?;
            ended += 1;
        }
    }
    Ok(ended)
}

async fn pending(tx: &mut Tx, now: Timestamp, id: &CreditRequestId) -> Result<CreditRequestRow, CreditError> {
    let row = tx.credit_request(id).await?.ok_or(CreditError::UnknownRequest)?;
    match row.state {
        CreditState::Pending if row.expires_at <= now => Err(CreditError::TooLate),
        CreditState::Pending => Ok(row),
        state => Err(CreditError::Decided(state)),
    }
}

/// A decision that came second changes nothing: the whole transaction is tried again, and then finds the first.
async fn decide(
    tx: &mut Tx,
    row: CreditRequestRow,
    by: &By,
    deed: Deed,
    now: Timestamp,
) -> Result<CreditRequestRow, CreditError> {
    if !tx.decide_credit_request(&row).await? {
        return Err(tx.stale().into());
    }
    log::record(tx, by, now, deed, (&row.id, told(&row))).await?;
    Ok(row)
}

/// What the log says of a request.
fn told(row: &CreditRequestRow) -> serde_json::Value {
    json!({
        "tenant_id": row.tenant_id, "kind": row.kind, "amount": row.amount_micros, "reason": row.reason,
        "four_eyes": row.four_eyes, "requested_by": row.requested_by, "decision": row.decision, "grant_id": row.grant_id,
    })
}
