//! The evidence of each second of an instance: what a customer in dispute and an operator look at together.
//!
//! An interval is cut into pieces that follow each other without gap. Of each piece this says where it went (billed or not, and why),
//! which reports of the host prove it and when the control plane received them, under which price, and which transfers paid for it.

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::leased::{Spent, Stretch, Unbilled, millis_of};
use tarn_billing::money::Micros;
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::Rate;
use tarn_billing::segment::Segment;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId, SegmentId, TransferId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};
use tarn_rows::TenantScope;
use tarn_rows::ledger::TransferRow;
use tarn_rows::reports::LeasedRow;
use tarn_rows::segments::MeterEventRow;
use tarn_store::{StoreError, Tx};

use super::Period;
use super::leased::Record;

const MILLIS_PER_SECOND: u64 = 1000;

/// What one piece of evidence says, and when it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    pub host_id: HostId,
    pub boot_id: BootId,
    pub seq: Sequence,
    pub from_mono_ms: MonoMillis,
    pub to_mono_ms: MonoMillis,
    pub excused_ms: u64,
    pub received_at: Timestamp,
}

/// A transfer that paid for seconds `[first_second, end_second)` of its segment, alone or with others of the same range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    pub transfer_id: TransferId,
    pub amount: Micros,
    pub from: AccountKind,
    pub first_second: u64,
    pub end_second: u64,
    pub posted_at: Timestamp,
}

/// The price and place under which a piece was metered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metered {
    pub segment_id: SegmentId,
    pub primary: Option<GpuUuid>,
    pub price_version: PriceVersion,
    pub rate: Rate,
    pub from_mono_ms: MonoMillis,
    pub to_mono_ms: MonoMillis,
}

/// A stretch of time with one answer to each question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub from: Timestamp,
    pub to: Timestamp,
    pub generation: Generation,
    /// `None`: on the bill.
    pub unbilled: Option<Unbilled>,
    /// Within a segment.
    pub metered: Option<Metered>,
    pub proofs: Vec<Proof>,
    pub payments: Vec<Payment>,
}

/// The pieces of an instance in a period, in order; `None`: there is no such instance. Time in which it held no cards is in none.
pub async fn pieces(
    tx: &mut Tx,
    scope: &TenantScope,
    instance: &InstanceId,
    period: Period,
    now: Timestamp,
) -> Result<Option<Vec<Piece>>, StoreError> {
    if tx.instance(scope, instance).await?.is_none() {
        return Ok(None);
    }
    let (from, to) = (millis_of(period.from), millis_of(period.to));
    let mut pieces = Vec::new();
    for lease in tx.leases_of_instance(scope, instance).await? {
        let overlaps = lease.created_at < period.to && lease.released_at.is_none_or(|at| at > period.from);
        if !overlaps {
            continue;
        }
        let record = Record::read(tx, &lease).await?;
        let stretches = record.stretches(&lease, now);
        let stretches: Vec<Stretch> =
            stretches.iter().filter_map(|stretch| stretch.clipped(from, to)).collect();
        for (place, segment) in record.segments.iter().enumerate() {
            let within = stretches.iter().filter(|stretch| stretch.segment == Some(place)).copied();
            let file = File::read(tx, scope, &lease, segment, within.collect()).await?;
            pieces.extend(file.pieces(lease.generation));
        }
        pieces.extend(stretches.iter().filter(|stretch| stretch.segment.is_none()).map(|stretch| Piece {
            from: stretch.from(),
            to: stretch.to(),
            generation: lease.generation,
            unbilled: unbilled(stretch),
            metered: None,
            proofs: Vec::new(),
            payments: Vec::new(),
        }));
    }
    pieces.sort_by_key(|piece| piece.from);
    Ok(Some(pieces))
}

const fn unbilled(stretch: &Stretch) -> Option<Unbilled> {
    match stretch.spent {
        Spent::Billed { .. } => None,
        Spent::Unbilled(reason) => Some(reason),
    }
}

/// Everything about one segment that bears on some stretches of it.
struct File<'record> {
    segment: &'record Segment,
    stretches: Vec<Stretch>,
    events: Vec<MeterEventRow>,
    payments: Vec<Payment>,
}

impl<'record> File<'record> {
    async fn read(
        tx: &mut Tx,
        scope: &TenantScope,
        lease: &LeasedRow,
        segment: &'record Segment,
        stretches: Vec<Stretch>,
    ) -> Result<Self, StoreError> {
        let mut file = Self { segment, stretches, events: Vec::new(), payments: Vec::new() };
        let Some((first, last)) = file.stretches.first().zip(file.stretches.last()) else { return Ok(file) };
        let (from, to) = (file.mono(first.from_ms), file.mono(last.to_ms));
        let run = (&lease.instance_id, lease.generation);
        file.events = tx.meter_events_between(run, &segment.terms().anchor.boot_id, from, to).await?;
        if let Some((first_ms, end_ms)) = file.charged() {
            let charges = charges(tx, scope, segment, (first_ms, end_ms)).await?;
            file.payments = payments(segment, &charges);
        }
        Ok(file)
    }

    /// Which of the segment's charged milliseconds the stretches hold.
    fn charged(&self) -> Option<(u64, u64)> {
        let billed = self.stretches.iter().filter_map(|stretch| match stretch.spent {
            Spent::Billed { first_ms } => Some((first_ms, first_ms + stretch.millis().unsigned_abs())),
            Spent::Unbilled(_) => None,
        });
        billed.reduce(|(first, _), (_, end)| (first, end))
    }

    fn mono(&self, millis: i64) -> MonoMillis {
        let opens = millis_of(self.segment.opened_at());
        let anchor = self.segment.terms().anchor.mono_ms.get();
        MonoMillis::new(anchor.saturating_add_signed(millis - opens))
    }

    /// The stretches, cut wherever an answer changes.
    fn pieces(&self, generation: Generation) -> Vec<Piece> {
        self.stretches.iter().flat_map(|stretch| self.cut(stretch, generation)).collect()
    }

    fn cut(&self, stretch: &Stretch, generation: Generation) -> Vec<Piece> {
        let opens = millis_of(self.segment.opened_at());
        let anchor = self.segment.terms().anchor.mono_ms.get();
        let instant = |mono: u64| opens.saturating_add_unsigned(mono) - anchor.cast_signed();
        let mut at: Vec<i64> = vec![stretch.from_ms, stretch.to_ms];
        at.extend(
            self.events
                .iter()
                .flat_map(|event| [instant(event.from_mono_ms.get()), instant(event.to_mono_ms.get())]),
        );
        if let Spent::Billed { first_ms } = stretch.spent {
            let offset = |second: u64| {
                stretch.from_ms + (second * MILLIS_PER_SECOND).cast_signed() - first_ms.cast_signed()
            };
            at.extend(
                self.payments
                    .iter()
                    .flat_map(|payment| [offset(payment.first_second), offset(payment.end_second)]),
            );
        }
        at.retain(|millis| (stretch.from_ms..=stretch.to_ms).contains(millis));
        at.sort_unstable();
        at.dedup();
        let parts = at.windows(2).filter_map(|pair| stretch.clipped(pair[0], pair[1]));
        parts.map(|part| self.piece(&part, generation)).collect()
    }

    fn piece(&self, part: &Stretch, generation: Generation) -> Piece {
        let terms = self.segment.terms();
        let (from, to) = (self.mono(part.from_ms), self.mono(part.to_ms));
        let touching = self.events.iter().filter(|event| event.from_mono_ms < to && event.to_mono_ms > from);
        let paid = |payment: &&Payment| match part.spent {
            Spent::Billed { first_ms } => {
                let end_ms = first_ms + part.millis().unsigned_abs();
                payment.first_second * MILLIS_PER_SECOND < end_ms
                    && payment.end_second * MILLIS_PER_SECOND > first_ms
            }
            Spent::Unbilled(_) => false,
        };
        Piece {
            from: part.from(),
            to: part.to(),
            generation,
            unbilled: unbilled(part),
            metered: Some(Metered {
                segment_id: terms.id.clone(),
                primary: terms.meter.card().cloned(),
                price_version: terms.price_version,
                rate: terms.rate,
                from_mono_ms: from,
                to_mono_ms: to,
            }),
            proofs: touching.map(Proof::from).collect(),
            payments: self.payments.iter().filter(paid).cloned().collect(),
        }
    }
}

impl From<&MeterEventRow> for Proof {
    fn from(event: &MeterEventRow) -> Self {
        Self {
            host_id: event.host_id.clone(),
            boot_id: event.boot_id.clone(),
            seq: event.seq,
            from_mono_ms: event.from_mono_ms,
            to_mono_ms: event.to_mono_ms,
            excused_ms: event.excused_ms,
            received_at: event.received_at,
        }
    }
}

/// The usage transfers of a segment that hold its charged milliseconds `[first_ms, end_ms)`, and one more. The id of each says with which second it
/// begins, so they sort by it; the one that begins before may reach into the range.
async fn charges(
    tx: &mut Tx,
    scope: &TenantScope,
    segment: &Segment,
    (first_ms, end_ms): (u64, u64),
) -> Result<Vec<TransferRow>, StoreError> {
    let at = |millis: u64, entropy| {
        let second = i64::try_from(millis / MILLIS_PER_SECOND).unwrap_or(i64::MAX / 2_000_000);
        TransferId::new(segment.opened_at().plus_seconds(second), entropy)
    };
    let first = at(first_ms, 0);
    let before = tx.usage_below(scope, segment.id(), &first).await?;
    let from = before.map_or(first, |before| TransferId::new(before.id.created_at(), 0));
    let to = at(end_ms, u128::MAX);
    let mut charges = tx.usage_between(scope, segment.id(), (&from, &to)).await?;
    // One beyond the range says where the last one in it ends.
    charges.extend(tx.usage_above(scope, segment.id(), &to).await?);
    Ok(charges)
}

/// Each charge with the seconds that it pays for: up to where the next one begins.
fn payments(segment: &Segment, charges: &[TransferRow]) -> Vec<Payment> {
    let opened_ms = millis_of(segment.opened_at());
    let first = |charge: &TransferRow| {
        (millis_of(charge.id.created_at()) - opened_ms).max(0).unsigned_abs() / MILLIS_PER_SECOND
    };
    let settled = segment.settled().seconds.get().unsigned_abs();
    let purses = Account::all_of(&segment.terms().tenant_id);
    let paid = charges.iter().map(|charge| {
        let first_second = first(charge);
        let next = charges.iter().map(first).find(|next| *next > first_second);
        let paying = purses.iter().find(|account| *account.id() == charge.debit_account_id);
        Payment {
            transfer_id: charge.id.clone(),
            amount: charge.amount_micros,
            from: paying.map_or(AccountKind::WalletPromo, Account::kind),
            first_second,
            end_second: next.unwrap_or(settled).max(first_second),
            posted_at: charge.created_at,
        }
    });
    paid.collect()
}
