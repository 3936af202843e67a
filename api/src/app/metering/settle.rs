//! Settlement of one tenant: brings the ledger up to what its segments have proven and time has ended, in one commit.

use std::collections::HashMap;

use tarn_billing::catch_up::{CatchUpError, CaughtUp, Step, catch_up};
use tarn_billing::funds::Funds;
use tarn_billing::money::Micros;
use tarn_billing::price::PriceBook;
use tarn_billing::rate::Seconds;
use tarn_billing::segment::{Segment, SegmentState};
use tarn_billing::settlement::{Charge, Settlement};
use tarn_protocol::ids::{GrantId, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::segments::{SegmentRow, WaivedRow};
use tarn_rows::storage::StorageSegmentRow;
use tarn_store::{StoreError, Tx};

use super::caps::{CAPS_MAX, Limits};
use super::purse::{CorruptMoney, Purse};
use super::stored::CorruptRow;
use super::{debts, exhaustion, expire, segments, storage, stored};
use crate::app::act::Act;

/// Ending what the money no longer pays for leaves nothing open, and what a cap ends is under no later one: after one round for each,
/// the next is the last.
const ROUNDS_MAX: u32 = CAPS_MAX + 3;

#[derive(Debug, thiserror::Error)]
pub enum SettleFailed {
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error(transparent)]
    Plan(#[from] CatchUpError),
    #[error("what the money no longer pays for does not end")]
    RunsOn,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What one settlement did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    pub segments: u32,
    pub transfers: u32,
    /// Expired grants that were taken back.
    pub expired: u32,
    /// Instances that were stopped because the money had ended.
    pub stopped: u32,
}

pub async fn settle(tx: &mut Tx, act: &mut Act, scope: &TenantScope) -> Result<Settled, SettleFailed> {
    Ok(settle_all(tx, act, scope).await?.0)
}

/// Settles, and computes the runway again.
pub async fn settle_and_rearm(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
) -> Result<Settled, SettleFailed> {
    let (done, purse) = settle_all(tx, act, scope).await?;
    match purse {
        Some(purse) => exhaustion::rearm_with(tx, act, scope, purse).await?,
        None => exhaustion::rearm(tx, act, scope).await?,
    }
    Ok(done)
}

/// What it did, and the tenant's money as it is then, where that need not be read again.
async fn settle_all(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
) -> Result<(Settled, Option<Purse>), SettleFailed> {
    tx.lock_tenant(scope).await?;
    let mut done = Settled::default();
    for _ in 0..ROUNDS_MAX {
        let purse = Purse::load(tx, scope, act.now).await?;
        let limits = Limits::load(tx, scope, &purse, act.now).await?;
        let due: Vec<Segment> = purse.costing().cloned().collect();
        let CaughtUp { steps, funds } = catch_up(due, &purse.book, &purse.funds, act.now)?;
        let ends = steps.last().and_then(Step::exhausts_at);
        if let Some((at, limit)) =
            limits.first_reached(act.now).filter(|(at, _)| ends.is_none_or(|end| *at < end))
        {
            done.stopped += exhaustion::stop_capped(tx, act, scope, limit, at).await?;
            continue;
        }
        let cards = purse.segments.into_iter().map(|(row, _)| (row.id.clone(), Row::Card(row)));
        let disks = purse.disks.into_iter().map(|(row, _)| (row.id.clone(), Row::Disk(row)));
        let mut books = Books { rows: cards.chain(disks).collect(), charges: Vec::new(), done: &mut done };
        let mut ended = None;
        for step in steps {
            ended = books.carry_out(tx, act, scope, step).await?;
        }
        books.post(tx, act, scope).await?;
        if let Some(at) = ended {
            done.stopped += exhaustion::stop_all(tx, act, scope, at).await?;
            continue;
        }
        // Money that a start keeps back is money: nothing is beyond it until the hold is resolved.
        if purse.funds.held() == Micros::ZERO && books.owe(tx, act, scope, &purse.waived).await? {
            return Ok((done, None));
        }
        let after = books.purse(purse.book, funds, purse.waived, act.now)?;
        return Ok((done, Some(after)));
    }
    Err(SettleFailed::RunsOn)
}

/// Seconds of a disk that cost nothing need no write at every tick: an hour of them together, and the last ones.
fn due(segment: &Segment, plan: &Settlement) -> bool {
    let free = segment.state() == SegmentState::Open && plan.amount() == Micros::ZERO;
    !(free && segment.terms().meter.card().is_none())
        || plan.after.seconds.since(plan.before.seconds).get() >= 3600
}

enum Row {
    Card(SegmentRow),
    Disk(StorageSegmentRow),
}

impl Row {
    fn ended_run(&self) -> Option<&SegmentRow> {
        match self {
            Self::Card(row) => row.ended_at.is_some().then_some(row),
            Self::Disk(_) => None,
        }
    }
}

/// The segments' rows as the steps so far left them.
struct Books<'done> {
    rows: HashMap<SegmentId, Row>,
    /// Of the steps so far, not posted yet: each grant is drawn and each wallet moved once for all of them.
    charges: Vec<Charge>,
    done: &'done mut Settled,
}

impl Books<'_> {
    /// Writes one step: all of it or, on any lost race, nothing of the whole transaction. The instant at which the money ended, if
    /// that is the step.
    async fn carry_out(
        &mut self,
        tx: &mut Tx,
        act: &mut Act,
        scope: &TenantScope,
        step: Step,
    ) -> Result<Option<Timestamp>, SettleFailed> {
        match step {
            Step::Split { ended, begun } => {
                self.save(tx, scope, &ended, act.now).await?;
                act.hit("split.ended");
                self.insert(tx, scope, &begun, act.now).await?;
                act.rearm.insert(scope.tenant_id().clone());
            }
            Step::Settle { segment, plan } if due(&segment, &plan) => {
                self.save(tx, scope, &segment, act.now).await?;
                act.hit("settle.segment_saved");
                self.charges.extend(plan.charges);
                self.done.segments += 1;
            }
            Step::Settle { .. } => {}
            Step::Expire { before, transfer } => {
                self.post(tx, act, scope).await?;
                self.done.expired += u32::from(expire::take_back(tx, scope, &before, &transfer).await?);
            }
            Step::Exhaust { at } => return Ok(Some(at)),
        }
        Ok(None)
    }

    async fn save(
        &mut self,
        tx: &mut Tx,
        scope: &TenantScope,
        segment: &Segment,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let saved = match self.rows.remove(segment.id()) {
            None => return Err(tx.stale()),
            Some(Row::Card(row)) => {
                let row = stored::changed(row, segment, now);
                segments::save(tx, scope, row.clone()).await?;
                Row::Card(SegmentRow { row_version: row.row_version + 1, ..row })
            }
            Some(Row::Disk(row)) => {
                let row = stored::storage_changed(row, segment, now);
                storage::save(tx, scope, row.clone()).await?;
                Row::Disk(StorageSegmentRow { row_version: row.row_version + 1, ..row })
            }
        };
        self.rows.insert(segment.id().clone(), saved);
        Ok(())
    }

    async fn insert(
        &mut self,
        tx: &mut Tx,
        scope: &TenantScope,
        segment: &Segment,
        now: Timestamp,
    ) -> Result<(), SettleFailed> {
        let corrupt = |error: CorruptRow| CorruptMoney::Row(error);
        let row = if segment.terms().meter.card().is_some() {
            let row = stored::row(segment, now).map_err(corrupt)?;
            tx.insert_segment(scope, &row).await?;
            Row::Card(row)
        } else {
            let row = stored::storage_row(segment, now).map_err(corrupt)?;
            tx.insert_storage_segment(scope, &row).await?;
            Row::Disk(row)
        };
        self.rows.insert(segment.id().clone(), row);
        Ok(())
    }

    /// What of ended runs money did not reach is owed, or charged to nobody; whether there was any.
    async fn owe(
        &mut self,
        tx: &mut Tx,
        act: &mut Act,
        scope: &TenantScope,
        waived: &[WaivedRow],
    ) -> Result<bool, SettleFailed> {
        let mut ended: Vec<&SegmentRow> = self.rows.values().filter_map(Row::ended_run).collect();
        ended.sort_by(|one, other| one.id.cmp(&other.id));
        let mut owed = Vec::new();
        for row in ended {
            let before = waived.iter().find(|waived| waived.segment_id == row.id);
            let segment = stored::segment(row).map_err(CorruptMoney::Row)?;
            let segment = segment.with_waived(before.map_or(Seconds::ZERO, |before| before.seconds));
            let unpaid = segment.confirmed(act.now).since(segment.settled().seconds);
            if unpaid > Seconds::ZERO {
                owed.push((row.clone(), segment, unpaid, before));
            }
        }
        let any = !owed.is_empty();
        for (row, segment, unpaid, before) in owed {
            self.done.transfers += debts::incur(tx, act, scope, (row, segment), unpaid, before).await?;
            self.done.segments += 1;
        }
        Ok(any)
    }

    /// Draws the grants and posts the transfers that pay for the charges so far. A lost race makes the whole transaction try again.
    async fn post(&mut self, tx: &mut Tx, act: &Act, scope: &TenantScope) -> Result<(), StoreError> {
        let charges = std::mem::take(&mut self.charges);
        let mut drawn: Vec<&GrantId> = charges.iter().map(|charge| charge.draw.grant_id()).collect();
        drawn.sort();
        drawn.dedup();
        for grant in drawn {
            let mut of_grant =
                charges.iter().map(|charge| &charge.draw).filter(|draw| draw.grant_id() == grant);
            let Some(first) = of_grant.next() else { continue };
            let last = of_grant.next_back().unwrap_or(first);
            if !tx.set_grant_remaining(scope, grant, first.before.remaining(), last.remaining_after).await? {
                return Err(tx.stale());
            }
            act.hit("settle.drawn");
        }
        if charges.is_empty() {
            return Ok(());
        }
        let transfers: Vec<_> = charges.iter().map(|charge| stored::transfer(&charge.transfer)).collect();
        if !tx.post_charges(&transfers).await? {
            return Err(tx.stale());
        }
        act.hit("settle.posted");
        self.done.transfers += u32::try_from(transfers.len()).unwrap_or(u32::MAX);
        Ok(())
    }

    /// The tenant's money as it would be read now.
    fn purse(
        self,
        book: PriceBook,
        funds: Funds,
        waived: Vec<WaivedRow>,
        now: Timestamp,
    ) -> Result<Purse, CorruptMoney> {
        let (mut cards, mut disks) = (Vec::new(), Vec::new());
        for row in self.rows.into_values() {
            match row {
                Row::Card(row) => cards.push(row),
                Row::Disk(row) => disks.push(row),
            }
        }
        cards.sort_by(|one, other| one.id.cmp(&other.id));
        disks.sort_by(|one, other| one.id.cmp(&other.id));
        Purse::of_rows(book, funds, (cards, disks), waived, now)
    }
}
