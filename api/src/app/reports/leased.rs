//! Leased time that nobody paid for, by reason: every lease of a period, cut by [`tarn_billing::leased`].

use std::collections::BTreeMap;

use serde_json::Value;
use tarn_billing::leased::{self, Excused, Lease, Spent, Step, Stretch, Unbilled, millis_of};
use tarn_billing::segment::Segment;
use tarn_billing::states::MeteredState;
use tarn_protocol::ids::{EventId, LeaseId};
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::{Fault, ReasonCode, State};
use tarn_rows::instances::InstanceEventRow;
use tarn_rows::reports::LeasedRow;
use tarn_rows::{Page, TenantScope};
use tarn_store::{StoreError, Tx};

use super::Period;
use crate::app::metering::stored::{self, corrupt};

/// Leases that one report looks at.
pub const LEASES_MAX: usize = 20_000;
const LEASES_PER_READ: u32 = 500;
const EVENTS_PER_READ: u32 = 500;

#[derive(Debug, thiserror::Error)]
pub enum LeasedError {
    #[error("more than {LEASES_MAX} leases in this period; ask for a shorter one")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Milliseconds: `leased = billed + the sum of unbilled`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeasedTime {
    pub leased_ms: i64,
    pub billed_ms: i64,
    pub unbilled_ms: BTreeMap<Unbilled, i64>,
}

impl LeasedTime {
    fn of(stretches: impl IntoIterator<Item = Stretch>) -> Self {
        let mut time = Self::default();
        for stretch in stretches {
            time.leased_ms += stretch.millis();
            match stretch.spent {
                Spent::Billed { .. } => time.billed_ms += stretch.millis(),
                Spent::Unbilled(reason) => *time.unbilled_ms.entry(reason).or_default() += stretch.millis(),
            }
        }
        time
    }

    pub fn add(&mut self, other: &Self) {
        self.leased_ms += other.leased_ms;
        self.billed_ms += other.billed_ms;
        for (reason, millis) in &other.unbilled_ms {
            *self.unbilled_ms.entry(*reason).or_default() += millis;
        }
    }
}

/// All leases of a period, in order of id, and their sum.
pub async fn report(
    tx: &mut Tx,
    period: Period,
    now: Timestamp,
) -> Result<(BTreeMap<LeaseId, (LeasedRow, LeasedTime)>, LeasedTime), LeasedError> {
    let (mut leases, mut total) = (BTreeMap::new(), LeasedTime::default());
    let (from, to) = (millis_of(period.from), millis_of(period.to));
    for row in leases_of(tx, period).await? {
        let record = Record::read(tx, &row).await?;
        let stretches = record.stretches(&row, now);
        let time = LeasedTime::of(stretches.into_iter().filter_map(|stretch| stretch.clipped(from, to)));
        total.add(&time);
        leases.insert(row.lease_id.clone(), (row, time));
    }
    Ok((leases, total))
}

/// Live ones, and those that were released in the period or after it.
async fn leases_of(tx: &mut Tx, period: Period) -> Result<Vec<LeasedRow>, LeasedError> {
    let mut leases: Vec<LeasedRow> = Vec::new();
    loop {
        let above = leases.last().map(|row| row.lease_id.clone());
        let rows = tx.leased_still(period.to, above.as_ref(), LEASES_PER_READ).await?;
        let more = rows.len() == LEASES_PER_READ as usize;
        leases.extend(rows);
        if leases.len() > LEASES_MAX {
            return Err(LeasedError::TooMany);
        }
        if !more {
            break;
        }
    }
    // After every lease that was released at that very instant: it has no time in the period.
    let mut place = (period.from, "z".to_owned());
    loop {
        let rows = tx.leased_until((place.0, &place.1), period.to, LEASES_PER_READ).await?;
        let Some(last) = rows.last() else { return Ok(leases) };
        place = (last.released_at.unwrap_or(period.to), last.lease_id.to_string());
        leases.extend(rows);
        if leases.len() > LEASES_MAX {
            return Err(LeasedError::TooMany);
        }
    }
}

/// All that is known of one lease's time.
#[derive(Debug)]
pub struct Record {
    pub segments: Vec<Segment>,
    steps: Vec<Step>,
    excused: Vec<Excused>,
}

impl Record {
    pub async fn read(tx: &mut Tx, lease: &LeasedRow) -> Result<Self, StoreError> {
        let mut segments = Vec::new();
        for row in tx.segments_of_run(&lease.instance_id, lease.generation).await? {
            segments.push(stored::segment(&row).map_err(corrupt)?);
        }
        let excusing = tx.meter_events_excusing(&lease.instance_id, lease.generation).await?;
        let excused = excusing.into_iter().map(|event| Excused {
            from_mono_ms: event
                .to_mono_ms
                .get()
                .saturating_sub(event.excused_ms)
                .max(event.from_mono_ms.get()),
            to_mono_ms: event.to_mono_ms.get(),
            boot_id: event.boot_id,
        });
        Ok(Self { segments, excused: excused.collect(), steps: steps(tx, lease).await? })
    }

    pub fn stretches(&self, lease: &LeasedRow, now: Timestamp) -> Vec<Stretch> {
        leased::account(&Lease {
            from: lease.created_at,
            to: lease.released_at.unwrap_or(now),
            steps: &self.steps,
            segments: &self.segments,
            excused: &self.excused,
            now,
        })
    }
}

/// The instance's states over time, as billing names them.
async fn steps(tx: &mut Tx, lease: &LeasedRow) -> Result<Vec<Step>, StoreError> {
    let scope = TenantScope::proven(lease.tenant_id.clone());
    let (mut events, mut after): (Vec<InstanceEventRow>, Option<EventId>) = (Vec::new(), None);
    loop {
        let page = Page { after: after.as_ref(), limit: EVENTS_PER_READ };
        let rows = tx.instance_events(&scope, &lease.instance_id, page).await?;
        let Some(last) = rows.last() else { break };
        after = Some(last.id.clone());
        events.extend(rows);
    }
    let mut changes: Vec<Change> = events.iter().filter_map(Change::of).collect();
    changes.sort_by_key(|change| change.at);
    Ok(in_order(changes).into_iter().map(Change::step).collect())
}

/// A change of state, as the instance's history tells it.
#[derive(Debug, Clone, Copy)]
struct Change {
    at: Timestamp,
    from: State,
    to: State,
    reason: Option<ReasonCode>,
}

impl Change {
    fn of(event: &InstanceEventRow) -> Option<Self> {
        let word = |field: &str| event.detail.0.get(field).and_then(Value::as_str);
        Some(Self {
            at: event.created_at,
            from: word("from")?.parse().ok()?,
            to: word("to")?.parse().ok()?,
            reason: word("reason").and_then(|reason| reason.parse().ok()),
        })
    }

    fn step(self) -> Step {
        let state = match self.to {
            State::Requested | State::Scheduling | State::Provisioning | State::Starting => {
                MeteredState::Preparing
            }
            State::Running => MeteredState::Running,
            State::Degraded => MeteredState::DegradedByUs,
            State::Stopping | State::Suspending => MeteredState::Stopping,
            State::Failed if self.reason.is_some_and(|reason| reason.fault() == Fault::Tarn) => {
                MeteredState::HostFault
            }
            State::Stopped | State::Suspended | State::Failed => MeteredState::Stopped,
            State::Terminating | State::Terminated => MeteredState::Terminated,
        };
        Step { at: self.at, state, by_operator: self.reason == Some(ReasonCode::Maintenance) }
    }
}

/// Several changes of one transaction bear one instant, and ids of one instant are in no order: each begins where another ended.
fn in_order(mut changes: Vec<Change>) -> Vec<Change> {
    let (mut ordered, mut state) = (Vec::with_capacity(changes.len()), State::Requested);
    while let Some(first) = changes.first().copied() {
        let together = changes.partition_point(|change| change.at <= first.at);
        let next = changes[..together].iter().position(|change| change.from == state).unwrap_or(0);
        let change = changes.remove(next);
        state = change.to;
        ordered.push(change);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_instant_follow_each_other() {
        let change = |second, from, to| Change {
            at: Timestamp::from_micros(0).plus_seconds(second),
            from,
            to,
            reason: None,
        };
        let told = vec![
            change(1, State::Scheduling, State::Provisioning),
            change(1, State::Requested, State::Scheduling),
            change(2, State::Starting, State::Running),
            change(2, State::Provisioning, State::Starting),
            change(2, State::Running, State::Degraded),
            change(3, State::Degraded, State::Stopping),
        ];
        let ordered: Vec<State> = in_order(told).into_iter().map(|change| change.to).collect();
        let expected = [
            State::Scheduling,
            State::Provisioning,
            State::Starting,
            State::Running,
            State::Degraded,
            State::Stopping,
        ];
        assert_eq!(ordered, expected);
    }
}
