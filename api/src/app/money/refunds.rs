//! Money given back: a charge into the buckets that paid it, cash by the way on which it came.
//!
//! A refund of a charge is done when it is accepted: reversals of the charge's own transfers, newest first. A refund of cash takes
//! the unspent part of one top-up out of the wallet first and then orders it from the provider under its own name, again and again
//! until the provider has answered; if it cannot pay, the money goes back into the bucket. What was paid out may come back from the
//! customer's bank for weeks; so it is asked about now and then, and goes back into the bucket too. Whoever races: what of a transfer is
//! reversed is one row with a check, and the tenant is locked.

use std::collections::BTreeMap;

use serde_json::json;
use tarn_billing::account::AccountKind;
use tarn_billing::grant::{self, Grant, GrantTerms};
use tarn_billing::money::Micros;
use tarn_billing::refund::{self, Charged, InvalidRefund};
use tarn_billing::transfer::{InvalidTransfer, Transfer, TransferKind, expiry_again_id, payout_id};
use tarn_protocol::ids::{GrantId, RefundId, SegmentId, TopUpId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_rows::payments::{RefundRow, RefundState, TopUpRow, TopUpState};
use tarn_rows::wallet::GrantRow;
use tarn_store::{StoreError, Tx};

use super::payments::next_ask;
use super::payments::watch::{self, REFUND_AMOUNT_DIFFERS, REFUND_STUCK};
use super::wallet::{self, FundingError};
use crate::app::act::{Act, COLLECT};
use crate::app::metering::exhaustion;
use crate::app::metering::purse::{CorruptMoney, Purse};
use crate::app::metering::settle::{self, SettleFailed};
use crate::app::metering::stored::{self, CorruptRow};
use crate::state::AppState;
use crate::till::{MICROS_PER_FEN, PaymentError, REPEATABLE_SECONDS, RefundOrder, RefundOutcome, RefundTold};

/// How long credit lives that is given back to a bucket which had expired.
const RENEWED_SECONDS: i64 = 30 * 24 * 3600;

/// How often a refund that was paid out is asked about, without a callback.
const PAID_ASK_SECONDS: i64 = 24 * 3600;
/// For so long after it was begun: banks send back within 30 days.
const PAID_ASK_SECONDS_MAX: i64 = 35 * 24 * 3600;
/// When nothing more is expected.
const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

#[derive(Debug, thiserror::Error)]
pub enum RefundFailed {
    #[error("there is no such charge or top-up")]
    NoSuchThing,
    #[error("the top-up is {}, only a settled one can be paid back", state.as_str())]
    NotSettled { state: TopUpState },
    #[error("{wanted} wanted, {refundable} of this top-up is unspent, unreserved and in whole fen")]
    NotLeft { wanted: Micros, refundable: Micros },
    #[error("the payment was made through {provider}, which is not in use here any more")]
    OtherProvider { provider: String },
    #[error(transparent)]
    Refund(#[from] InvalidRefund),
    #[error(transparent)]
    Transfer(#[from] InvalidTransfer),
    #[error(transparent)]
    Funding(#[from] FundingError),
    #[error(transparent)]
    Settle(#[from] SettleFailed),
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error(transparent)]
    Provider(#[from] PaymentError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<CorruptRow> for RefundFailed {
    fn from(error: CorruptRow) -> Self {
        Self::Money(error.into())
    }
}

/// Who wants what back, and why. `id` is chosen before the first attempt.
#[derive(Debug, Clone)]
pub struct Order {
    pub id: RefundId,
    /// All that is left, if `None`.
    pub amount: Option<Micros>,
    pub reason: String,
    pub by: String,
}

/// Gives back (part of) what a segment was charged.
pub async fn of_charge(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    segment: &SegmentId,
    order: &Order,
) -> Result<RefundRow, RefundFailed> {
    settle::settle(tx, act, scope).await?;
    if tx.segment(scope, segment).await?.is_none() {
        tx.storage_segment(scope, segment).await?.ok_or(RefundFailed::NoSuchThing)?;
    }
    let mut charges = Vec::new();
    for row in tx.transfers_of_segment(scope, segment).await? {
        if row.kind == TransferKind::Usage {
            let reversed = tx.reversed_of_transfer(&row.id).await?;
            charges.push(Charged { transfer: stored::transfer_of(&row)?, reversed });
        }
    }
    let owed = tx.owed(scope).await?;
    let reversals = refund::plan(&charges, order.amount, owed, order.id.as_str(), act.now)?;
    let mut returned = BTreeMap::<GrantId, Micros>::new();
    for reversal in &reversals {
        let original =
            charges.iter().find(|charge| Some(charge.transfer.id()) == reversal.subject().reverses.as_ref());
        let original = original.map(|charge| charge.transfer.clone()).ok_or_else(|| tx.stale())?;
        reverse(tx, scope, &original, reversal, order).await?;
        if let Some(grant_id) = reversal.subject().grant_id.clone() {
            let sum = returned.entry(grant_id).or_insert(Micros::ZERO);
            *sum = sum.checked_add(reversal.amount()).map_err(CorruptMoney::Amount)?;
        }
    }
    for (grant_id, amount) in returned {
        renew(tx, act, scope, &grant_id, amount, order).await?;
    }
    let amount = Micros::checked_sum(reversals.iter().map(Transfer::amount)).map_err(CorruptMoney::Amount)?;
    let row = RefundRow {
        segment_id: Some(segment.clone()),
        resolved_at: Some(act.now),
        ..blank(act, scope, order, amount)
    };
    let row = RefundRow { state: RefundState::Settled, ..row };
    tx.insert_refund(scope, &row).await?;
    exhaustion::rearm(tx, act, scope).await?;
    Ok(row)
}

fn blank(act: &Act, scope: &TenantScope, order: &Order, amount: Micros) -> RefundRow {
    RefundRow {
        id: order.id.clone(),
        tenant_id: scope.tenant_id().clone(),
        segment_id: None,
        top_up_id: None,
        amount_micros: amount,
        state: RefundState::Pending,
        failure: None,
        external_id: None,
        reason: order.reason.clone(),
        requested_by: order.by.clone(),
        created_at: act.now,
        asks: 0,
        ask_at: act.now,
        resolved_at: None,
    }
}

/// Posts one reversal of a charge and fills the bucket that the charge drew on.
async fn reverse(
    tx: &mut Tx,
    scope: &TenantScope,
    original: &Transfer,
    reversal: &Transfer,
    order: &Order,
) -> Result<(), RefundFailed> {
    let amount = reversal.amount();
    if !tx.reverse_transfer(original.id(), original.amount(), amount).await? {
        return Err(tx.stale().into());
    }
    let row = TransferRow { memo: format!("refund: {}", order.reason), ..stored::transfer(reversal) };
    if original.debit().kind() == AccountKind::Receivable {
        let less = amount.checked_neg().map_err(CorruptMoney::Amount)?;
        if !tx.add_debt(scope, less).await? {
            return Err(tx.stale().into());
        }
    } else if let Some(grant_id) = &original.subject().grant_id {
        fill(tx, scope, grant_id, amount).await?;
    }
    post(tx, &row).await
}

/// Puts money back into the bucket that it was drawn from. One that has expired only passes it on: see [`renew`].
async fn fill(
    tx: &mut Tx,
    scope: &TenantScope,
    grant_id: &GrantId,
    amount: Micros,
) -> Result<(), RefundFailed> {
    let row = tx.grant(scope, grant_id).await?.ok_or(RefundFailed::NoSuchThing)?;
    let filled = stored::grant(&row)?.put_back(amount).map_err(CorruptRow::Grant)?;
    if tx.set_grant_remaining(scope, grant_id, row.remaining_micros, filled.remaining()).await? {
        Ok(())
    } else {
        Err(tx.stale().into())
    }
}

/// What came back to a bucket that has expired would be gone again at once: it is given anew, for a month.
async fn renew(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    grant_id: &GrantId,
    amount: Micros,
    order: &Order,
) -> Result<(), RefundFailed> {
    let row = tx.grant(scope, grant_id).await?.ok_or(RefundFailed::NoSuchThing)?;
    let expired = stored::grant(&row)?;
    let id = expiry_again_id(grant_id, order.id.as_str(), act.now);
    let Some((transfer, left)) = expired.expire_again(id, amount, act.now)? else { return Ok(()) };
    if !tx.set_grant_remaining(scope, grant_id, row.remaining_micros, left.remaining()).await? {
        return Err(tx.stale().into());
    }
    post(tx, &TransferRow { memo: "credit expired".to_owned(), ..stored::transfer(&transfer) }).await?;
    let renewed = Grant::new(GrantTerms {
        id: grant::renewed_id(grant_id, order.id.as_str(), act.now),
        amount,
        granted_at: act.now,
        expires_at: Some(act.now.plus_seconds(RENEWED_SECONDS)),
        ..expired.terms().clone()
    });
    let renewed = renewed.map_err(CorruptRow::Grant)?;
    wallet::fund(tx, scope, &renewed, None, &format!("refund of expired credit: {}", order.reason)).await?;
    Ok(())
}

async fn post(tx: &mut Tx, row: &TransferRow) -> Result<(), RefundFailed> {
    match tx.post_transfer(row).await? {
        Posting::Posted => Ok(()),
        Posting::Replayed | Posting::Insufficient | Posting::Conflicting => Err(tx.stale().into()),
    }
}

/// Takes the unspent part of a top-up (or `amount` of it) out of the wallet; the worker orders it from the provider.
pub async fn of_top_up(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    provider: &str,
    top_up: &TopUpId,
    order: &Order,
) -> Result<RefundRow, RefundFailed> {
    // What is proven is charged first: it is not the customer's any more.
    settle::settle(tx, act, scope).await?;
    tx.lock_wallets(scope).await?;
    let top_up = tx.top_up(scope, top_up).await?.ok_or(RefundFailed::NoSuchThing)?;
    if top_up.state != TopUpState::Settled {
        return Err(RefundFailed::NotSettled { state: top_up.state });
    }
    if top_up.provider != provider {
        return Err(RefundFailed::OtherProvider { provider: top_up.provider });
    }
    let (bucket, original) = bucket(tx, scope, &top_up).await?;
    let refundable = refundable(tx, act, scope, &bucket).await?;
    let amount = order.amount.unwrap_or(refundable);
    let whole = amount.get() % MICROS_PER_FEN == 0;
    if amount <= Micros::ZERO || amount > refundable || !whole {
        return Err(RefundFailed::NotLeft { wanted: amount, refundable });
    }
    let reversed = tx.reversed_of_transfer(original.id()).await?;
    let id = payout_id(order.id.as_str(), false, act.now);
    let payout = original.payout(id, amount, reversed, act.now)?;
    if !tx.reverse_transfer(original.id(), original.amount(), amount).await? {
        return Err(tx.stale().into());
    }
    let left = bucket.remaining_micros.checked_sub(amount).map_err(CorruptMoney::Amount)?;
    if !tx.set_grant_remaining(scope, &bucket.id, bucket.remaining_micros, left).await? {
        return Err(tx.stale().into());
    }
    post(tx, &TransferRow { memo: format!("paid back: {}", order.reason), ..stored::transfer(&payout) })
        .await?;
    let row = RefundRow { top_up_id: Some(top_up.id), ..blank(act, scope, order, amount) };
    tx.insert_refund(scope, &row).await?;
    exhaustion::rearm(tx, act, scope).await?;
    act.woke(COLLECT);
    Ok(row)
}

/// The bucket that a settled top-up filled, and the transfer that filled it.
async fn bucket(
    tx: &mut Tx,
    scope: &TenantScope,
    top_up: &TopUpRow,
) -> Result<(GrantRow, Transfer), RefundFailed> {
    let (Some(grant_id), Some(transfer_id)) = (&top_up.grant_id, &top_up.transfer_id) else {
        return Err(RefundFailed::NoSuchThing);
    };
    let grant = tx.grant(scope, grant_id).await?.ok_or(RefundFailed::NoSuchThing)?;
    let transfer = tx.transfer(transfer_id).await?.ok_or(RefundFailed::NoSuchThing)?;
    Ok((grant, stored::transfer_of(&transfer)?))
}

/// What of a bucket is unspent, not kept back for a start, and can be paid out: whole fen.
async fn refundable(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    bucket: &GrantRow,
) -> Result<Micros, RefundFailed> {
    let purse = Purse::load(tx, scope, act.now).await?;
    let free = purse.funds.available(act.now).checked_sub(purse.accrued).map_err(CorruptMoney::Amount)?;
    let cash = tx.balances(scope).await?.into_iter().find(|balance| balance.kind == AccountKind::WalletCash);
    let cash = cash.map_or(0, |cash| cash.posted_micros.get() - cash.held_micros.get());
    let most = bucket.remaining_micros.get().min(free.get()).min(cash).max(0);
    Ok(Micros::new(most - most % MICROS_PER_FEN))
}

/// When to ask next about a refund that is in this state now.
fn ask_again(row: &RefundRow, state: RefundState, now: Timestamp) -> Timestamp {
    match state {
        RefundState::Pending => next_ask(now, row.asks),
        RefundState::Settled if now.micros_since(row.created_at) < PAID_ASK_SECONDS_MAX * 1_000_000 => {
            now.plus_seconds(PAID_ASK_SECONDS)
        }
        RefundState::Settled | RefundState::Failed => NEVER,
    }
}

/// Orders a refund from the provider, or asks what became of it.
pub async fn order(state: &AppState, row: &RefundRow) -> Result<RefundTold, RefundFailed> {
    let scope = TenantScope::proven(row.tenant_id.clone());
    let top_up = match &row.top_up_id {
        Some(id) => state.store.reader().await?.top_up(&scope, id).await?,
        None => None,
    };
    let top_up = top_up.ok_or(RefundFailed::NoSuchThing)?;
    if top_up.provider != state.payments.name() {
        return Err(RefundFailed::OtherProvider { provider: top_up.provider });
    }
    if let Some(external_id) = &row.external_id {
        return Ok(state.payments.ask_refund(external_id).await?);
    }
    let payment_ref = top_up.payment_ref.ok_or(RefundFailed::NoSuchThing)?;
    let order = RefundOrder { reference: row.id.to_string(), payment_ref, amount: row.amount_micros };
    // The provider may have forgotten our name of it: ordered again, it would be paid again.
    let age = state.clock.now().micros_since(row.created_at);
    if age >= REPEATABLE_SECONDS * 1_000_000
        && let Some(told) = state.payments.find_refund(&order).await?
    {
        return Ok(told);
    }
    Ok(state.payments.refund(&order).await?)
}

/// What the provider said of a refund becomes the record, once; paid out, it can still come back.
pub async fn take_over(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    id: &RefundId,
    told: &RefundTold,
) -> Result<RefundRow, RefundFailed> {
    tx.lock_tenant(scope).await?;
    let row = tx.refund(scope, id).await?.ok_or(RefundFailed::NoSuchThing)?;
    let paid_out = row.state == RefundState::Settled && row.top_up_id.is_some();
    if row.state != RefundState::Pending && !paid_out {
        return Ok(row);
    }
    let (state, failure) = match &told.outcome {
        RefundOutcome::Pending => (row.state, None),
        RefundOutcome::Done => (RefundState::Settled, None),
        RefundOutcome::Failed(words) => (RefundState::Failed, Some(words.clone())),
    };
    let next = RefundRow {
        state,
        failure,
        external_id: Some(told.external_id.clone()),
        asks: row.asks.saturating_add(1),
        ask_at: ask_again(&row, state, act.now),
        resolved_at: if state == row.state { row.resolved_at } else { Some(act.now) },
        ..row
    };
    if state == RefundState::Failed {
        put_back(tx, act, scope, &next).await?;
    }
    if !tx.update_refund(scope, &next).await? {
        return Err(tx.stale().into());
    }
    watch_over(tx, act, &next, told).await?;
    Ok(next)
}

/// The provider could not pay it out: the cash is the customer's again, in the bucket that it came from.
async fn put_back(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    row: &RefundRow,
) -> Result<(), RefundFailed> {
    settle::settle(tx, act, scope).await?;
    let top_up = match &row.top_up_id {
        Some(id) => tx.top_up(scope, id).await?,
        None => None,
    };
    let (bucket, original) = bucket(tx, scope, &top_up.ok_or(RefundFailed::NoSuchThing)?).await?;
    let payout = tx.transfer(&payout_id(row.id.as_str(), false, row.created_at)).await?;
    let payout = stored::transfer_of(&payout.ok_or(RefundFailed::NoSuchThing)?)?;
    let id = payout_id(row.id.as_str(), true, act.now);
    let back = payout.reversal(id, row.amount_micros, Micros::ZERO, act.now)?;
    if !tx.reverse_transfer(payout.id(), payout.amount(), row.amount_micros).await? {
        return Err(tx.stale().into());
    }
    // The top-up stands again by so much.
    let less = row.amount_micros.checked_neg().map_err(CorruptMoney::Amount)?;
    if !tx.reverse_transfer(original.id(), original.amount(), less).await? {
        return Err(tx.stale().into());
    }
    let filled = stored::grant(&bucket)?.put_back(row.amount_micros).map_err(CorruptRow::Grant)?;
    if !tx.set_grant_remaining(scope, &bucket.id, bucket.remaining_micros, filled.remaining()).await? {
        return Err(tx.stale().into());
    }
    post(tx, &TransferRow { memo: "could not be paid back".to_owned(), ..stored::transfer(&back) }).await?;
    exhaustion::rearm(tx, act, scope).await?;
    Ok(())
}

/// The provider did not answer, or refused: orders or asks again later, and has a person look if that goes on.
pub async fn postpone(tx: &mut Tx, act: &Act, row: &RefundRow, why: &str) -> Result<(), StoreError> {
    let scope = TenantScope::proven(row.tenant_id.clone());
    if row.state == RefundState::Pending
        && watch::refund_stuck(act.now, row.created_at, row.external_id.is_some())
    {
        stuck(tx, act, row, why).await?;
    }
    let ask_at = ask_again(row, row.state, act.now);
    let next = RefundRow { asks: row.asks.saturating_add(1), ask_at, ..row.clone() };
    tx.update_refund(&scope, &next).await.map(drop)
}

async fn stuck(tx: &mut Tx, act: &Act, row: &RefundRow, why: &str) -> Result<(), StoreError> {
    let detail = json!({
        "tenant_id": row.tenant_id, "top_up_id": row.top_up_id, "amount": row.amount_micros,
        "external_id": row.external_id, "why": why,
    });
    watch::open(tx, act, REFUND_STUCK, row.id.as_str(), detail).await
}

/// What an operator must see of what the provider said of a refund.
async fn watch_over(tx: &mut Tx, act: &Act, row: &RefundRow, told: &RefundTold) -> Result<(), StoreError> {
    if told.amount != row.amount_micros && row.state != RefundState::Failed {
        let detail = json!({
            "tenant_id": row.tenant_id, "top_up_id": row.top_up_id, "left_the_wallet": row.amount_micros,
            "paid_back": told.amount, "external_id": told.external_id,
        });
        watch::open(tx, act, REFUND_AMOUNT_DIFFERS, row.id.as_str(), detail).await?;
    }
    if row.state == RefundState::Pending && watch::refund_stuck(act.now, row.created_at, true) {
        return stuck(tx, act, row, "the provider took the order and has not paid it out").await;
    }
    tx.clear_alert(REFUND_STUCK, row.id.as_str(), act.now).await.map(drop)
}
