//! What a tenant owes: seconds that were proven after its money had ended.
//!
//! A host may prove late what ran before a segment ended, when nothing is left to pay for it. Up to [`OWED_SECONDS_MAX`] of each
//! segment go onto the tenant's receivable, so that what one can owe never passes burn × the longest stop (M3); what is proven beyond
//! that was our delay and is charged to nobody, for good. The wallet itself never falls below zero. The next cash or credit pays the
//! debt before anything else.

use serde_json::json;
use tarn_billing::account::{Account, AccountKind};
use tarn_billing::catch_up::CatchUpError;
use tarn_billing::money::Micros;
use tarn_billing::rate::Seconds;
use tarn_billing::segment::Segment;
use tarn_billing::settlement::{self, OWED_SECONDS_MAX};
use tarn_billing::transfer::{Subject, Transfer, TransferKind, debt_payment_id};
use tarn_rows::TenantScope;
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_rows::segments::{SegmentRow, WaivedRow};
use tarn_store::{StoreError, Tx};

use super::purse::{CorruptMoney, Purse};
use super::segments;
use super::settle::SettleFailed;
use super::stored::{self, CorruptRow, corrupt};
use crate::app::act::Act;
use crate::app::money::notices::{self, NoticeKind};

/// Ends `unpaid` seconds of an ended segment: owed up to the bound, the rest waived. How many transfers that took.
pub async fn incur(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    (row, segment): (SegmentRow, Segment),
    unpaid: Seconds,
    before: Option<&WaivedRow>,
) -> Result<u32, SettleFailed> {
    let owed_before = before.map_or(Seconds::ZERO, |before| before.owed_seconds);
    let beyond = settlement::beyond(&segment, unpaid, owed_before, act.now).map_err(CatchUpError::from)?;
    let sum = |one: Seconds, other: Seconds| Seconds::new(one.get() + other.get()).unwrap_or(Seconds::MAX);
    let waived = WaivedRow {
        segment_id: row.id.clone(),
        seconds: sum(before.map_or(Seconds::ZERO, |before| before.seconds), beyond.waived),
        owed_seconds: sum(owed_before, beyond.owed),
    };
    tx.put_waived_seconds(scope, &waived, act.now).await?;
    if beyond.owed > Seconds::ZERO {
        let moved = segment
            .settle_to(beyond.before, beyond.after)
            .map_err(|error| CorruptMoney::Row(CorruptRow::Segment(error)))?;
        segments::save(tx, scope, stored::changed(row.clone(), &moved, act.now)).await?;
    }
    tracing::info!(
        segment_id = %row.id, owed_seconds = beyond.owed.get(), waived_seconds = beyond.waived.get(),
        "seconds were proven after the money had ended"
    );
    let Some(debt) = beyond.debt else { return Ok(0) };
    if !tx.add_debt(scope, debt.amount()).await? {
        return Err(tx.stale().into());
    }
    let memo = "usage proven after the money had ended".to_owned();
    post(tx, &TransferRow { memo, ..stored::transfer(&debt) }).await?;
    let detail = json!({
        "amount": debt.amount(), "segment_id": row.id, "instance_id": row.instance_id, "seconds": beyond.owed,
        "seconds_most": OWED_SECONDS_MAX, "then": "the next top-up or credit pays it first",
    });
    let crossing = format!("{} {}", NoticeKind::DebtIncurred.as_str(), debt.id());
    notices::tell(tx, act, scope, NoticeKind::DebtIncurred, &crossing, detail).await?;
    Ok(1)
}

async fn post(tx: &mut Tx, row: &TransferRow) -> Result<(), StoreError> {
    match tx.post_transfer(row).await? {
        Posting::Posted => Ok(()),
        Posting::Replayed | Posting::Insufficient | Posting::Conflicting => Err(tx.stale()),
    }
}

/// Pays what is owed from what there is, in draw order. The tenant is locked.
pub async fn pay(tx: &mut Tx, act: &Act, scope: &TenantScope) -> Result<(), CorruptMoney> {
    let owed = tx.owed(scope).await?;
    if owed == Micros::ZERO {
        return Ok(());
    }
    let purse = Purse::load(tx, scope, act.now).await?;
    let amount = owed.min(purse.funds.available(act.now));
    let (draws, _) = purse.funds.draw(amount, act.now)?;
    for draw in draws {
        let accounts = (
            draw.before.wallet(),
            Account::new(AccountKind::Receivable, Some(scope.tenant_id())).map_err(corrupt)?,
        );
        let subject = Subject { grant_id: Some(draw.grant_id().clone()), ..Subject::default() };
        let id = debt_payment_id(draw.grant_id(), act.now);
        let transfer = Transfer::new(id, TransferKind::DebtPayment, accounts, draw.amount, subject, act.now);
        let transfer = transfer.map_err(CorruptRow::Transfer)?;
        if !tx
            .set_grant_remaining(scope, draw.grant_id(), draw.before.remaining(), draw.remaining_after)
            .await?
        {
            return Err(tx.stale().into());
        }
        post(tx, &TransferRow { memo: "what was owed".to_owned(), ..stored::transfer(&transfer) }).await?;
        let less = draw.amount.checked_neg()?;
        if !tx.add_debt(scope, less).await? {
            return Err(tx.stale().into());
        }
    }
    Ok(())
}
