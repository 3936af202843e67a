//! Segments: one billable interval of one instance, on the UUID of its primary card.
//!
//! A segment is anchored once: the control plane's instant `opened_at` stands for the host's `anchor_mono_ms` of one boot. From there
//! the host's monotonic clock proves what ran and the control plane's clock bounds it: evidence counts only within the window
//! `[anchor, anchor + elapsed)`, so billed seconds never exceed control-plane time whatever a host claims. Evidence that is ahead of
//! that window waits in the coverage until time catches up.
//!
//! Proven milliseconds are summed, then floored to seconds, once per segment; never per report. A donor has no segment.
//!
//! A disk's segment is anchored on the control plane's own clock and covered whole, so its seconds are those that passed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_protocol::control::RunUntil;
use tarn_protocol::ids::{InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Timestamp};

use crate::coverage::Coverage;
use crate::derived;
use crate::meter::Meter;
use crate::money::Micros;
use crate::price::{Price, PriceVersion};
use crate::rate::{InvalidRate, Rate, Seconds};

const MICROS_PER_MILLI: i64 = 1000;

/// Where a host's monotonic clock and the control plane's clock meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub at: Timestamp,
    pub boot_id: BootId,
    pub mono_ms: MonoMillis,
}

impl Anchor {
    /// The instant of first ready evidence: a report received at `received_at`, made at `report_mono`, says ready since
    /// `ready_mono`. Never before `not_before` (the acceptance of the start, or the end of the segment before); then the host's
    /// side moves with it, so nothing earlier bills.
    pub fn from_report(
        received_at: Timestamp,
        boot_id: BootId,
        report_mono: MonoMillis,
        ready_mono: MonoMillis,
        not_before: Timestamp,
    ) -> Self {
        let ready = ready_mono.min(report_mono);
        let age_ms = signed(report_mono.get() - ready.get());
        let ready_at = received_at.plus_micros(age_ms.saturating_mul(MICROS_PER_MILLI).saturating_neg());
        let early_micros = not_before.micros_since(ready_at).max(0);
        let early_ms =
            early_micros.div_euclid(MICROS_PER_MILLI) + i64::from(early_micros % MICROS_PER_MILLI > 0);
        Self {
            at: ready_at.plus_micros(early_ms * MICROS_PER_MILLI),
            boot_id,
            mono_ms: MonoMillis::new(ready.get().saturating_add(early_ms.unsigned_abs())),
        }
    }

    /// On the control plane's own clock: for what only it witnesses.
    pub fn of_control_plane(at: Timestamp) -> Self {
        Self { at, boot_id: BootId::new("control-plane"), mono_ms: MonoMillis::new(0) }
    }

    /// Before which a run cannot bill: the acceptance and the lease of its start, or, where it did not work meanwhile for a reason of
    /// ours (`resumed`), the receipt of the report that shows it well, however long ago it was first ready; and never before the end
    /// of the segment before.
    pub fn not_before(
        accepted_at: Timestamp,
        last_end: Option<Timestamp>,
        resumed: bool,
        received_at: Timestamp,
    ) -> Timestamp {
        let from = if resumed { received_at } else { accepted_at };
        last_end.map_or(from, |end| end.max(from))
    }

    /// The host's clock at `at`, in whole milliseconds; the anchor itself for anything earlier.
    pub fn mono_at(&self, at: Timestamp) -> MonoMillis {
        let elapsed_ms = (at.micros_since(self.at) / MICROS_PER_MILLI).max(0);
        MonoMillis::new(self.mono_ms.get().saturating_add(elapsed_ms.unsigned_abs()))
    }

    /// The control plane's instant for a moment of the host's clock; the anchor itself for anything earlier.
    pub fn instant_of(&self, mono_ms: MonoMillis) -> Timestamp {
        let elapsed_ms = signed(mono_ms.get().saturating_sub(self.mono_ms.get()));
        Timestamp::from_micros(
            self.at.as_micros().saturating_add(elapsed_ms.saturating_mul(MICROS_PER_MILLI)),
        )
    }
}

/// What a boot last said of its clock: at `at` a report arrived that was made at `mono_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    pub at: Timestamp,
    pub mono_ms: MonoMillis,
}

/// How far a host's clock may lag behind its anchor by the delay of reports alone.
const LAG_MS_MAX: i64 = 5_000;

impl Heard {
    /// The instant, as `anchor` counts it, that the host's clock has reached at `at`. A host that was suspended since the anchor (or
    /// a control plane whose clock jumped ahead) is behind it; what runs after `at` would else count as before. Lags that reports'
    /// delays explain are none.
    fn corrected(self, anchor: &Anchor, at: Timestamp) -> Timestamp {
        // Not clamped to the anchor: a segment that a price began may be younger than the last report.
        let since_ms = self.at.micros_since(anchor.at).div_euclid(MICROS_PER_MILLI);
        let lag_ms = signed(anchor.mono_ms.get()) + since_ms - signed(self.mono_ms.get());
        if lag_ms > LAG_MS_MAX { at.plus_micros(-lag_ms * MICROS_PER_MILLI) } else { at }
    }
}

pub(crate) fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// What a segment bills, fixed when it opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentTerms {
    pub id: SegmentId,
    pub tenant_id: TenantId,
    pub instance_id: InstanceId,
    pub generation: Generation,
    /// The SKU.
    pub offer_id: OfferId,
    pub meter: Meter,
    pub price_version: PriceVersion,
    /// Of the whole thing: the price times what the meter counts.
    pub rate: Rate,
    pub anchor: Anchor,
}

/// Why a segment ended. Of two reasons at one instant the one declared first is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    UserRequest,
    Terminated,
    CommandEnded,
    Failed,
    BalanceExhausted,
    SpendCap,
    PriceChanged,
    PrimaryReplaced,
    HostLost,
    Degraded,
}

/// A text that names no close reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown close reason")]
pub struct UnknownCloseReason;

impl CloseReason {
    pub const ALL: [Self; 10] = [
        Self::UserRequest,
        Self::Terminated,
        Self::CommandEnded,
        Self::Failed,
        Self::BalanceExhausted,
        Self::SpendCap,
        Self::PriceChanged,
        Self::PrimaryReplaced,
        Self::HostLost,
        Self::Degraded,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserRequest => "user_request",
            Self::Terminated => "terminated",
            Self::CommandEnded => "command_ended",
            Self::Failed => "failed",
            Self::BalanceExhausted => "balance_exhausted",
            Self::SpendCap => "spend_cap",
            Self::PriceChanged => "price_changed",
            Self::PrimaryReplaced => "primary_replaced",
            Self::HostLost => "host_lost",
            Self::Degraded => "degraded",
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CloseReason {
    type Err = UnknownCloseReason;
    fn from_str(text: &str) -> Result<Self, UnknownCloseReason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or(UnknownCloseReason)
    }
}

/// Open, or ended at an instant. `ended_at` NULL in a row means open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    Open,
    Closed { ended_at: Timestamp, reason: CloseReason },
}

/// What of a segment is already in the ledger; `micros` is always `rate.charged(seconds)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    pub seconds: Seconds,
    pub micros: Micros,
}

/// One segment, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    terms: SegmentTerms,
    pub(crate) coverage: Coverage,
    settled: Settled,
    state: SegmentState,
    /// Proven, and charged to nobody: the last of an ended segment that money did not reach.
    waived: Seconds,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSegment {
    #[error("segment {id} settled {micros} for {} seconds", seconds.get())]
    WrongSettled { id: SegmentId, seconds: Seconds, micros: Micros },
    #[error("segment {0} ends before it opened")]
    EndsBeforeOpening(SegmentId),
    #[error("segment {0} is settled beyond that instant")]
    SettledPast(SegmentId),
    #[error("price {version} of {offer_id} does not follow inside segment {id}")]
    PriceOutside { id: SegmentId, offer_id: OfferId, version: PriceVersion },
    #[error("a settlement of segment {0} that another one overtook")]
    Stale(SegmentId),
    #[error(transparent)]
    Rate(#[from] InvalidRate),
}

impl Segment {
    /// Nothing of a card is proven yet; a disk is there from now on.
    pub fn open(terms: SegmentTerms) -> Self {
        let coverage = match terms.meter {
            Meter::Card(_) => Coverage::default(),
            Meter::Disk { .. } => Coverage::whole(),
        };
        Self {
            terms,
            coverage,
            settled: Settled::default(),
            state: SegmentState::Open,
            waived: Seconds::ZERO,
        }
    }

    pub fn from_stored(
        terms: SegmentTerms,
        coverage: Coverage,
        settled: Settled,
        state: SegmentState,
    ) -> Result<Self, InvalidSegment> {
        if terms.rate.charged(settled.seconds) != settled.micros {
            let Settled { seconds, micros } = settled;
            return Err(InvalidSegment::WrongSettled { id: terms.id, seconds, micros });
        }
        match state {
            SegmentState::Closed { ended_at, .. } if ended_at < terms.anchor.at => {
                Err(InvalidSegment::EndsBeforeOpening(terms.id))
            }
            _ => Ok(Self { terms, coverage, settled, state, waived: Seconds::ZERO }),
        }
    }

    /// The same, with so many of its proven seconds charged to nobody.
    pub fn with_waived(self, waived: Seconds) -> Self {
        Self { waived, ..self }
    }

    /// Ends the segment at `ended_at` (never before its opening). Of several racing ends the earliest stands, and of those at one
    /// instant the reason declared first, in whatever order they arrive; any other end changes nothing.
    pub fn close(self, ended_at: Timestamp, reason: CloseReason) -> Result<Self, InvalidSegment> {
        let ended_at = ended_at.max(self.opened_at());
        match self.state {
            SegmentState::Closed { ended_at: known, reason: why } if (known, why) <= (ended_at, reason) => {
                Ok(self)
            }
            _ if self.confirmed(ended_at) < self.settled.seconds => {
                Err(InvalidSegment::SettledPast(self.terms.id))
            }
            _ => {
                // What lies beyond the end never counts, so a closed segment is the same however its evidence came in.
                let coverage = self.coverage.split(self.terms.anchor.mono_at(ended_at).get()).0;
                Ok(Self { coverage, state: SegmentState::Closed { ended_at, reason }, ..self })
            }
        }
    }

    /// Ends the segment because its run ended: at `at`, or at its last good evidence where nobody knows better. `heard` is what the
    /// boot last said of its own clock. A settled second stays settled, so an end that a settlement overtook is where the settled
    /// seconds are complete.
    pub fn end(
        self,
        at: Option<Timestamp>,
        heard: Option<Heard>,
        reason: CloseReason,
        now: Timestamp,
    ) -> Result<Self, InvalidSegment> {
        let at = match (at, heard) {
            (None, _) => self.last_good_at(now),
            (Some(at), Some(heard)) => at.min(heard.corrected(&self.terms.anchor, at)),
            (Some(at), None) => at,
        };
        let at = at.max(self.settled_until());
        self.close(at, reason)
    }

    /// Where `price` takes over: at its beginning, or where the settled seconds are complete, which keep the version they were
    /// settled under. `None` when that is not inside the segment.
    pub fn changes_at(&self, price: &Price) -> Option<Timestamp> {
        let follows = price.offer_id == self.terms.offer_id && price.version > self.terms.price_version;
        let at = price.effective_from.max(self.settled_until());
        let inside =
            price.effective_from > self.opened_at() && self.ended_at().is_none_or(|ended_at| at < ended_at);
        (follows && inside).then_some(at)
    }

    /// Ends the segment where the new price takes over and opens another there, with the evidence from that instant on. A segment
    /// that a racing stop already closed gives two closed ones. The new id follows from this id and the version.
    pub fn split(self, price: &Price) -> Result<(Self, Self), InvalidSegment> {
        let Some(at) = self.changes_at(price) else {
            let (offer_id, version) = (price.offer_id.clone(), price.version);
            return Err(InvalidSegment::PriceOutside { id: self.terms.id, offer_id, version });
        };
        let mono_ms = self.terms.anchor.mono_at(at);
        let (before, after) = self.coverage.split(mono_ms.get());
        let version = price.version.get().to_string();
        let terms = SegmentTerms {
            id: SegmentId::new(at, derived::entropy(&["price", self.terms.id.as_str(), &version])),
            price_version: price.version,
            rate: self.terms.meter.rate_at(price.rate)?,
            anchor: Anchor { at, mono_ms, ..self.terms.anchor.clone() },
            ..self.terms.clone()
        };
        let next = Self {
            terms,
            coverage: after,
            settled: Settled::default(),
            state: self.state,
            waived: Seconds::ZERO,
        };
        let state = SegmentState::Closed { ended_at: at, reason: CloseReason::PriceChanged };
        Ok((Self { coverage: before, state, ..self }, next))
    }

    /// Records that seconds up to `after` are in the ledger; `before` is the guard the store compares with the row.
    pub fn settle_to(self, before: Settled, after: Settled) -> Result<Self, InvalidSegment> {
        if self.settled != before || after.seconds < before.seconds {
            return Err(InvalidSegment::Stale(self.terms.id));
        }
        let waived = self.waived;
        Ok(Self::from_stored(self.terms, self.coverage, after, self.state)?.with_waived(waived))
    }

    /// Milliseconds proven by `until`: within the segment, and no further than the control plane's clock has come.
    pub fn confirmed_millis(&self, until: Timestamp) -> u64 {
        let from = self.terms.anchor.mono_ms.get();
        self.coverage.millis_within(from, self.window_end(until).get())
    }

    /// Whole seconds proven by `until`, less what is waived. Only grows, with time and with evidence.
    pub fn confirmed(&self, until: Timestamp) -> Seconds {
        let proven = Seconds::floor_millis(signed(self.confirmed_millis(until)));
        if self.waived == Seconds::ZERO {
            proven
        } else {
            proven.since(self.waived).max(self.settled.seconds)
        }
    }

    /// What the confirmed seconds cost beyond what is settled.
    pub fn accrued(&self, until: Timestamp) -> Micros {
        let seconds = self.confirmed(until).max(self.settled.seconds);
        Micros::new(self.terms.rate.charged(seconds).get() - self.settled.micros.get())
    }

    /// The end of the last proven millisecond by `until`, as an instant: where a segment ends whose host was lost or whose pool was
    /// degraded by us.
    pub fn last_good_at(&self, until: Timestamp) -> Timestamp {
        let frontier = self.coverage.frontier(self.window_end(until).get());
        self.terms.anchor.instant_of(frontier.map_or(self.terms.anchor.mono_ms, MonoMillis::new))
    }

    /// Where the settled seconds are complete; the opening while none is.
    pub fn settled_until(&self) -> Timestamp {
        let settled_ms = self.settled.seconds.get().unsigned_abs() * 1000;
        let reached = self.coverage.reach(self.terms.anchor.mono_ms.get(), settled_ms);
        match reached {
            Some(mono_ms) if settled_ms > 0 => self.terms.anchor.instant_of(MonoMillis::new(mono_ms)),
            _ => self.opened_at(),
        }
    }

    /// `at` on the clock of the host, for the agent to enforce by itself.
    pub fn run_until(&self, at: Timestamp) -> RunUntil {
        RunUntil { boot_id: self.terms.anchor.boot_id.clone(), mono_ms: self.terms.anchor.mono_at(at) }
    }

    /// The end of the billable window on the host's clock, seen from `until`.
    pub(crate) fn window_end(&self, until: Timestamp) -> MonoMillis {
        let until = self.ended_at().map_or(until, |ended_at| ended_at.min(until));
        self.terms.anchor.mono_at(until)
    }

    pub const fn terms(&self) -> &SegmentTerms {
        &self.terms
    }

    pub const fn id(&self) -> &SegmentId {
        &self.terms.id
    }

    pub const fn opened_at(&self) -> Timestamp {
        self.terms.anchor.at
    }

    pub const fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    pub const fn settled(&self) -> Settled {
        self.settled
    }

    pub const fn state(&self) -> SegmentState {
        self.state
    }

    pub const fn ended_at(&self) -> Option<Timestamp> {
        match self.state {
            SegmentState::Open => None,
            SegmentState::Closed { ended_at, .. } => Some(ended_at),
        }
    }
}
