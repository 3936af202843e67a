//! Settlement of one tenant: brings the ledger up to what its segments have proven, in one commit.

use tarn_billing::money::Micros;
use tarn_billing::segment::{Segment, SegmentState};
use tarn_billing::settlement::{self, Charge, SettleError, Settlement, due_price};
use tarn_rows::TenantScope;
use tarn_rows::ledger::Posting;
use tarn_rows::segments::SegmentRow;
use tarn_rows::storage::StorageSegmentRow;
use tarn_store::{StoreError, Tx};

use super::purse::{CorruptMoney, Purse};
use super::stored::CorruptRow;
use super::{segments, storage, stored};
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
    split_disks_at_new_prices(tx, act, scope, &mut purse).await?;
    let mut plans = settlement::settle_all(purse.costing(), &purse.book, &purse.funds, act.now)?.into_iter();
    let mut done = Settled::default();
    for ((row, segment), plan) in purse.segments.into_iter().zip(plans.by_ref()) {
        if plan.changes() {
            let moved = moved(segment, &plan)?;
            segments::save(tx, scope, stored::changed(row, &moved, act.now)).await?;
            done.segments += 1;
            act.hit("settle.segment_saved");
            done.transfers += post_all(tx, act, scope, &plan).await?;
        }
    }
    for ((row, segment), plan) in purse.disks.into_iter().zip(plans) {
        if plan.changes() && due(&segment, &plan) {
            let moved = moved(segment, &plan)?;
            storage::save(tx, scope, stored::storage_changed(row, &moved, act.now)).await?;
            act.hit("settle.segment_saved");
            done.segments += 1;
            done.transfers += post_all(tx, act, scope, &plan).await?;
        }
    }
    Ok(done)
}

/// Seconds of a disk that cost nothing need no write at every tick: an hour of them together, and the last ones.
fn due(segment: &Segment, plan: &Settlement) -> bool {
    let open = segment.state() == SegmentState::Open;
    !(open && plan.amount() == Micros::ZERO) || plan.after.seconds.since(plan.before.seconds).get() >= 3600
}

fn moved(segment: Segment, plan: &Settlement) -> Result<Segment, CorruptMoney> {
    segment.settle_to(plan.before, plan.after).map_err(|error| CorruptMoney::Row(CorruptRow::Segment(error)))
}

/// The same as for cards, on disks.
async fn split_disks_at_new_prices(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    purse: &mut Purse,
) -> Result<(), SettleFailed> {
    let mut place = 0;
    while place < purse.disks.len() {
        let (row, segment) = purse.disks[place].clone();
        if let Some(price) = due_price(&segment, &purse.book, act.now) {
            let (before, after) =
                segment.split(price).map_err(|error| CorruptMoney::Row(CorruptRow::Segment(error)))?;
            let ended = stored::storage_changed(row, &before, act.now);
            storage::save(tx, scope, ended.clone()).await?;
            let begun = stored::storage_row(&after, act.now).map_err(CorruptMoney::Row)?;
            tx.insert_storage_segment(scope, &begun).await?;
            let ended = StorageSegmentRow { row_version: ended.row_version + 1, ..ended };
            // As the next reading would have it, so that both parts settle alike.
            let ended_segment = stored::storage_segment(&ended).map_err(CorruptMoney::Row)?;
            let begun_segment = stored::storage_segment(&begun).map_err(CorruptMoney::Row)?;
            purse.disks[place] = (ended, ended_segment);
            purse.disks.push((begun, begun_segment));
            act.rearm.insert(scope.tenant_id().clone());
        }
        place += 1;
    }
    Ok(())
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
            let begun = stored::row(&after, act.now).map_err(CorruptMoney::Row)?;
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

/// Posts the transfers of one plan and draws its grants; its segment is moved on in the same commit: all of it or, on any lost race,
/// none.
async fn post_all(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    plan: &Settlement,
) -> Result<u32, SettleFailed> {
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
