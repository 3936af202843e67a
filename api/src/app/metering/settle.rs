//! Settlement of one tenant: brings the ledger up to what its segments have proven, in one commit.

use tarn_billing::segment::Segment;
use tarn_billing::settlement::{self, Charge, SettleError, Settlement, due_price};
use tarn_rows::TenantScope;
use tarn_rows::ledger::Posting;
use tarn_rows::segments::SegmentRow;
use tarn_store::{StoreError, Tx};

use super::purse::{CorruptMoney, Purse};
use super::stored::CorruptRow;
use super::{segments, stored};
use crate::app::act::Act;

#[derive(Debug, thiserror::Error)]
pub enum SettleFailed {
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error(transparent)]
    Plan(#[from] SettleError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What one settlement did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    pub segments: u32,
    pub transfers: u32,
}

pub async fn settle(tx: &mut Tx, act: &mut Act, scope: &TenantScope) -> Result<Settled, SettleFailed> {
    tx.lock_tenant(scope).await?;
    let mut purse = Purse::load(tx, scope, act.now).await?;
    split_at_new_prices(tx, act, scope, &mut purse).await?;
    let plans = settlement::settle_all(
        purse.segments.iter().map(|(_, segment)| segment),
        &purse.book,
        &purse.funds,
        act.now,
    )?;
    let mut done = Settled::default();
    for ((row, segment), plan) in purse.segments.into_iter().zip(plans) {
        if plan.changes() {
            done.segments += 1;
            done.transfers += commit(tx, act, scope, (row, segment), plan).await?;
        }
    }
    Ok(done)
}

/// Where a new price is in force inside a segment, the segment ends and another begins at that instant.
async fn split_at_new_prices(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    purse: &mut Purse,
) -> Result<(), SettleFailed> {
    let mut place = 0;
    while place < purse.segments.len() {
        let (row, segment) = purse.segments[place].clone();
        if let Some(price) = due_price(&segment, &purse.book, act.now) {
            let (before, after) =
                segment.split(price).map_err(|error| CorruptMoney::Row(CorruptRow::Segment(error)))?;
            let ended = stored::changed(row, &before, act.now);
            segments::save(tx, scope, ended.clone()).await?;
            act.hit("split.ended");
            let begun = stored::row(&after, act.now);
            tx.insert_segment(scope, &begun).await?;
            let ended = SegmentRow { row_version: ended.row_version + 1, ..ended };
            purse.segments[place] = (ended, before);
            purse.segments.push((begun, after));
            act.rearm.insert(scope.tenant_id().clone());
        }
        place += 1;
    }
    Ok(())
}

/// Posts the transfers of one plan, draws its grants and moves its segment on: all of it or, on any lost race, none.
async fn commit(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    (row, segment): (SegmentRow, Segment),
    plan: Settlement,
) -> Result<u32, SettleFailed> {
    let moved = segment
        .settle_to(plan.before, plan.after)
        .map_err(|error| CorruptMoney::Row(CorruptRow::Segment(error)))?;
    segments::save(tx, scope, stored::changed(row, &moved, act.now)).await?;
    act.hit("settle.segment_saved");
    let mut transfers = 0;
    for charge in &plan.charges {
        post(tx, act, scope, charge).await?;
        act.hit("settle.posted");
        transfers += 1;
    }
    Ok(transfers)
}

/// Draws one grant and posts the transfer that pays for it. A lost race makes the whole transaction try again.
async fn post(tx: &mut Tx, act: &Act, scope: &TenantScope, charge: &Charge) -> Result<(), StoreError> {
    let draw = &charge.draw;
    if !tx.set_grant_remaining(scope, draw.grant_id(), draw.before.remaining(), draw.remaining_after).await? {
        return Err(tx.stale());
    }
    act.hit("settle.drawn");
    match tx.post_transfer(&stored::transfer(&charge.transfer)).await? {
        Posting::Posted => Ok(()),
        Posting::Replayed | Posting::Insufficient | Posting::Conflicting => Err(tx.stale()),
    }
}
