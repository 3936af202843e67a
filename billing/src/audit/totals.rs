//! The end of an audit: sums against each other, and rows against how many there are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Auditor;
use super::difference::{Difference, Rule, same};
use crate::account::AccountKind;

/// How many rows the snapshot has, counted by the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub accounts: u64,
    pub balances: u64,
    pub transfers: u64,
    pub reversals: u64,
    pub entries: u64,
    pub grants: u64,
    pub holds_pending: u64,
    /// Of cards and of disks.
    pub segments: u64,
    /// Of disks alone.
    pub disks: u64,
}

/// What an audit without a difference looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Audited {
    pub accounts: u64,
    pub transfers: u64,
    pub entries: u64,
    pub grants: u64,
    pub holds_pending: u64,
    pub segments: u64,
    pub evidence: u64,
    pub settled_seconds: i128,
    /// Proven and not in the ledger yet, or beyond what their tenants could pay. No difference.
    pub unsettled_seconds: i128,
    /// Micros, signed as entries are, of all accounts of a kind. They sum to zero.
    #[serde(skip)]
    pub totals: BTreeMap<AccountKind, i128>,
}

pub(super) fn close(auditor: Auditor, counted: &Counted) -> Result<Audited, Difference> {
    let Auditor { movements, reversals, wallets, segments, overlaps } = auditor;
    let rows = [
        ("transfers", counted.transfers, movements.transfers),
        ("entries", counted.entries, movements.entries),
        ("reversals", counted.reversals, reversals.seen),
        ("grants", counted.grants, movements.grants),
        ("accounts", counted.accounts, wallets.accounts),
        ("wallet balances", counted.balances, wallets.balances),
        ("pending holds", counted.holds_pending, wallets.holds),
        ("segments", counted.segments, segments.seen),
        // All by instance and SKU, and those of cards by card.
        ("spans", 2 * counted.segments - counted.disks, overlaps.seen),
    ];
    for (what, wanted, seen) in rows {
        same(Rule::Complete, || what.to_owned(), "rows seen", wanted, seen)?;
    }
    let ledger = || "ledger".to_owned();
    same(Rule::Total, ledger, "micros of all accounts", 0, movements.totals.values().sum())?;
    for kind in AccountKind::ALL.into_iter().filter(|kind| kind.wallet()) {
        let of = |totals: &BTreeMap<AccountKind, i128>| totals.get(&kind).copied().unwrap_or_default();
        let row = || format!("all {kind}");
        same(
            Rule::Total,
            row,
            "micros of its transfers and its balances",
            of(&movements.totals),
            of(&wallets.totals),
        )?;
    }
    same(Rule::Total, ledger, "micros settled for all segments", segments.settled_micros, movements.used)?;
    Ok(Audited {
        accounts: wallets.accounts,
        transfers: movements.transfers,
        entries: movements.entries,
        grants: movements.grants,
        holds_pending: wallets.holds,
        segments: segments.seen,
        evidence: segments.evidence,
        settled_seconds: segments.settled_seconds,
        unsettled_seconds: segments.unsettled_seconds,
        totals: movements.totals,
    })
}
