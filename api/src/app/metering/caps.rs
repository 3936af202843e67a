//! Spend caps of one tenant: what is spent in each one's period, and when it is reached.
//!
//! A cap looks at the segments of the whole tenant, of the instances that one API key made, or of those with one label (as they are
//! labelled now). Reached, it ends what runs under it at the computed instant, as exhaustion does, and no start under it is let in.

use std::collections::BTreeMap;

use serde_json::json;
use tarn_billing::cap::{self, Cap, Window};
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::rate::{Rate, hourly_burn};
use tarn_billing::segment::{Segment, SegmentState};
use tarn_protocol::ids::{InstanceId, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::caps::{CapSubject, SegmentOwnerRow, SpendCapRow};
use tarn_store::{StoreError, Tx};

use super::purse::{CorruptMoney, Purse};
use super::stored;
use crate::app::act::Act;
use crate::app::money::notices::{self, NoticeKind};

/// Caps of one tenant.
pub const CAPS_MAX: u32 = 50;
/// What a start must leave room for: an hour, or the rest of the period if that is shorter.
const ROOM_SECONDS: i64 = 3600;

/// Every cap of a tenant with what it looks at.
#[derive(Debug, Default)]
pub struct Limits {
    pub caps: Vec<Limit>,
}

#[derive(Debug)]
pub struct Limit {
    pub row: SpendCapRow,
    /// The period that now lies in.
    pub window: Window,
    pub spent: Micros,
    /// When it is reached if nothing changes; it may be in the past.
    pub reached_at: Option<Timestamp>,
    /// The open segments under it.
    open: Vec<(SegmentId, Rate)>,
}

impl Limit {
    /// Whether this is an open segment under the cap.
    pub fn covers_open(&self, segment: &SegmentId) -> bool {
        self.open.iter().any(|(id, _)| id == segment)
    }
}

/// A start that was let in and does not run yet: its hour is as good as spent.
#[derive(Debug)]
pub struct Starting {
    created_by: Option<String>,
    label: String,
    hour: Micros,
}

/// A start that a cap does not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{spent} of {limit} are spent this {period}{whose}, which leaves no room for {needed} more; raise the cap or wait until the {period} has ended"
)]
pub struct CapReached {
    pub period: cap::Period,
    pub whose: String,
    pub limit: Micros,
    pub spent: Micros,
    pub needed: Micros,
}

fn covers(row: &SpendCapRow, created_by: Option<&str>, label: &str) -> bool {
    match row.subject_kind {
        CapSubject::Tenant => true,
        CapSubject::ApiKey => created_by == Some(row.subject.as_str()),
        CapSubject::Label => label == row.subject,
    }
}

impl Limits {
    pub async fn load(
        tx: &mut Tx,
        scope: &TenantScope,
        purse: &Purse,
        now: Timestamp,
    ) -> Result<Self, CorruptMoney> {
        let rows = tx.spend_caps(scope).await?;
        let Some(since) = rows.iter().map(|row| row.period.window(now).from).min() else {
            return Ok(Self::default());
        };
        let mut segments = Vec::new();
        for row in tx.segments_since(scope, since).await? {
            segments.push(stored::segment(&row)?);
        }
        let owners: BTreeMap<SegmentId, SegmentOwnerRow> = tx
            .segment_owners(scope, since)
            .await?
            .into_iter()
            .map(|owner| (owner.segment_id.clone(), owner))
            .collect();
        let limit = |row: SpendCapRow| {
            let under: Vec<&Segment> = segments
                .iter()
                .filter(|segment| {
                    let owner = owners.get(segment.id());
                    owner.is_some_and(|owner| covers(&row, owner.created_by.as_deref(), &owner.label))
                })
                .collect();
            let window = row.period.window(now);
            let open = under.iter().filter(|segment| segment.state() == SegmentState::Open);
            Ok::<_, OutOfRange>(Limit {
                window,
                spent: cap::spent(under.iter().copied(), window, now)?,
                reached_at: cap::crossing(
                    under.iter().copied(),
                    &purse.book,
                    Cap { period: row.period, limit: row.limit_micros },
                    now,
                )?,
                open: open.map(|segment| (segment.id().clone(), segment.terms().rate)).collect(),
                row,
            })
        };
        Ok(Self { caps: rows.into_iter().map(limit).collect::<Result<_, _>>()? })
    }

    /// The first cap that has been reached by `now` over something that runs, and when it was.
    pub fn first_reached(&self, now: Timestamp) -> Option<(Timestamp, &Limit)> {
        let over = self.caps.iter().filter(|limit| !limit.open.is_empty());
        let reached = over.filter_map(|limit| Some((limit.reached_at.filter(|at| *at <= now)?, limit)));
        reached.min_by_key(|(at, _)| *at)
    }

    /// The first cap that ends this segment, and when.
    pub fn until(&self, segment: &SegmentId) -> Option<(Timestamp, &Limit)> {
        let over = self.caps.iter().filter(|limit| limit.covers_open(segment));
        over.filter_map(|limit| Some((limit.reached_at?, limit))).min_by_key(|(at, _)| *at)
    }

    /// What was let in before and does not run yet, but for `own`. The tenant is locked, so nobody else is let in meanwhile.
    pub async fn starting(
        &self,
        tx: &mut Tx,
        scope: &TenantScope,
        own: &InstanceId,
    ) -> Result<Vec<Starting>, StoreError> {
        let mut starting = Vec::new();
        if self.caps.is_empty() {
            return Ok(starting);
        }
        // A hold lasts from the admission to the first ready evidence; one start may have several, on several accounts.
        for hold in tx.holds_pending(scope).await? {
            let Some(id) = hold.instance_id.filter(|id| id != own) else { continue };
            let Some(instance) = tx.instance(scope, &id).await? else { continue };
            starting.push(Starting {
                created_by: instance.created_by,
                label: instance.label,
                hour: hold.amount_micros,
            });
        }
        Ok(starting)
    }

    /// Whether something more at `rate` may start now, besides what is `starting`.
    pub fn admit(
        &self,
        rate: Rate,
        starting: &[Starting],
        created_by: Option<&str>,
        label: &str,
        now: Timestamp,
    ) -> Result<Result<(), CapReached>, OutOfRange> {
        for limit in self.caps.iter().filter(|limit| covers(&limit.row, created_by, label)) {
            let begun = starting
                .iter()
                .filter(|start| covers(&limit.row, start.created_by.as_deref(), &start.label))
                .map(|start| start.hour);
            let burn = hourly_burn(limit.open.iter().map(|(_, rate)| *rate).chain([rate]))?;
            let burn = burn.checked_add(Micros::checked_sum(begun)?)?;
            let left = limit.window.to.micros_since(now) / 1_000_000;
            let needed =
                i128::from(burn.get()) * i128::from(left.clamp(0, ROOM_SECONDS)) / i128::from(ROOM_SECONDS);
            let needed = Micros::new(i64::try_from(needed).map_err(|_| OutOfRange)?);
            if limit.spent.checked_add(needed)? > limit.row.limit_micros {
                let whose = match limit.row.subject_kind {
                    CapSubject::Tenant => String::new(),
                    CapSubject::ApiKey => " by this API key's instances".to_owned(),
                    CapSubject::Label => format!(" by instances labelled {:?}", limit.row.subject),
                };
                return Ok(Err(CapReached {
                    period: limit.row.period,
                    whose,
                    limit: limit.row.limit_micros,
                    spent: limit.spent,
                    needed,
                }));
            }
        }
        Ok(Ok(()))
    }
}

/// Tells a tenant that a cap ended what ran under it: once in a period.
pub async fn tell(tx: &mut Tx, act: &Act, scope: &TenantScope, limit: &Limit) -> Result<(), StoreError> {
    let row = &limit.row;
    let detail = json!({
        "spend_cap_id": row.id, "period": row.period, "subject_kind": row.subject_kind, "subject": row.subject,
        "limit": row.limit_micros, "spent": limit.spent,
        "then": "what ran under this cap was stopped; nothing under it starts until the cap is raised or the period has ended",
    });
    let crossing =
        format!("{} {} {}", NoticeKind::SpendCapReached.as_str(), row.id, limit.window.from.as_micros());
    notices::tell(tx, act, scope, NoticeKind::SpendCapReached, &crossing, detail).await.map(drop)
}
