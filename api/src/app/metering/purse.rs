//! All of one tenant's money in one reading: prices, grants, holds, and the segments that still cost.

use tarn_billing::funds::{Funds, Shortfall};
use tarn_billing::gate::StartRequest;
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::price::{InvalidPrice, Price, PriceBook};
use tarn_billing::rate::Rate;
use tarn_billing::segment::{Segment, SegmentState};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::offers::PriceRow;
use tarn_rows::segments::{SegmentRow, WaivedRow};
use tarn_rows::storage::StorageSegmentRow;
use tarn_store::{StoreError, Tx};

use super::stored::{self, CorruptRow};

/// A segment that ended is looked at for this long after its last change: evidence changes it, and the next tick settles it.
pub const SETTLED_LATE_MICROS: i64 = 24 * 3600 * 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum CorruptMoney {
    #[error(transparent)]
    Row(#[from] CorruptRow),
    #[error(transparent)]
    Price(#[from] InvalidPrice),
    #[error(transparent)]
    Amount(#[from] OutOfRange),
    #[error(transparent)]
    Shortfall(#[from] Shortfall),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug)]
pub struct Purse {
    pub book: PriceBook,
    /// Every grant with something left; what pending holds keep back cannot be drawn.
    pub funds: Funds,
    /// Open, or not settled up to what was proven.
    pub segments: Vec<(SegmentRow, Segment)>,
    /// The same of disks.
    pub disks: Vec<(StorageSegmentRow, Segment)>,
    /// Confirmed and not settled.
    pub accrued: Micros,
    /// What of ended segments money did not reach, so far.
    pub waived: Vec<WaivedRow>,
}

impl Purse {
    pub async fn load(tx: &mut Tx, scope: &TenantScope, now: Timestamp) -> Result<Self, CorruptMoney> {
        let book = PriceBook::from_stored(tx.prices().await?.into_iter().map(price))?;
        let grants = tx.grants_left(scope).await?;
        let holds = tx.holds_pending(scope).await?;
        let held = Micros::checked_sum(holds.iter().map(|hold| hold.amount_micros))?;
        let since = now.plus_micros(-SETTLED_LATE_MICROS);
        let cards = tx.segments_that_cost(scope, since).await?;
        // Only what has ended can have been waived.
        let ended = cards.iter().any(|row| row.ended_at.is_some());
        let waived = if ended { tx.waived_seconds(scope).await? } else { Vec::new() };
        let disks = tx.storage_that_costs(scope, since).await?;
        Self::of_rows(book, stored::funds(&grants, held)?, (cards, disks), waived, now)
    }

    pub(super) fn of_rows(
        book: PriceBook,
        funds: Funds,
        (cards, disks): (Vec<SegmentRow>, Vec<StorageSegmentRow>),
        waived: Vec<WaivedRow>,
        now: Timestamp,
    ) -> Result<Self, CorruptMoney> {
        let mut segments = Vec::new();
        for row in cards {
            let mut segment = stored::segment(&row)?;
            if let Some(waived) = waived.iter().find(|waived| waived.segment_id == row.id) {
                segment = segment.with_waived(waived.seconds);
            }
            segments.push((row, segment));
        }
        let disk = |row| stored::storage_segment(&row).map(|segment| (row, segment));
        let disks = disks.into_iter().map(disk).collect::<Result<_, _>>()?;
        let purse = Self { book, funds, segments, disks, accrued: Micros::ZERO, waived };
        let accrued = Micros::checked_sum(purse.costing().map(|segment| segment.accrued(now)))?;
        Ok(Self { accrued, ..purse })
    }

    /// Everything that costs: cards, then disks.
    pub fn costing(&self) -> impl Iterator<Item = &Segment> + Clone {
        let disks = self.disks.iter().map(|(_, segment)| segment);
        self.segments.iter().map(|(_, segment)| segment).chain(disks)
    }

    /// The rates of all open segments.
    pub fn burning(&self) -> Vec<Rate> {
        let open = self.costing().filter(|segment| segment.state() == SegmentState::Open);
        open.map(|segment| segment.terms().rate).collect()
    }

    pub const fn start_request<'purse>(
        &'purse self,
        burning: &'purse [Rate],
        starting: Rate,
    ) -> StartRequest<'purse> {
        StartRequest { funds: &self.funds, accrued: self.accrued, burning, starting }
    }
}

pub fn price(row: PriceRow) -> Price {
    Price {
        offer_id: row.sku,
        version: row.version,
        rate: row.micros_per_hour,
        effective_from: row.effective_from,
    }
}
