//! Which cards a request gets: a pure decision over a [`Fleet`].
//!
//! A placed set is *matched*: one host, one model, memory within 1 %, driver new enough, health good, and between the primary and
//! every donor a certified link of at least the wanted class and grade in both directions. Among all such sets the least
//! [`Score`](crate::Score) wins, hosts in order of id on a tie, so equal inputs give equal answers. The class of a link comes from
//! its certificate alone.
//!
//! [`place`] answers from the fleet's buckets. [`place_by_scan`] asks every host: the same answer, slowly, for tests and for the
//! benchmark.

mod availability;
mod refusal;
mod request;
mod set;

pub use availability::{Alternative, Availability, LinkRange, alternatives, availability};
pub use refusal::{Reason, Refusal};
pub use request::Request;
pub use set::{Placed, PlacedDonor};

use crate::card_set::CardSet;
use crate::choice::{Choice, Table, best};
use crate::fleet::{Bucket, Fleet, Host, Verdict};
use request::Resolved;

/// Picks the best matched set, or says why there is none. Changes nothing: the caller takes the cards once its lease is stored.
pub fn place(fleet: &Fleet, request: &Request) -> Result<Placed, Refusal> {
    let resolved = Resolved::new(fleet, request);
    let touched = resolved.excluded.touched();
    let mut found: Option<(Choice, u32)> = None;
    let pinned = resolved.pinned();
    for bucket in fleet.occupied().filter(|_| !resolved.names_host()) {
        let Ok(choice) = bucket_verdict(fleet, bucket, &resolved) else { continue };
        if found.is_some_and(|(known, _)| known.score < choice.score) {
            continue;
        }
        let Some(&host) = bucket.hosts.iter().find(|host| !touched.contains(host)) else { continue };
        found = better(found, choice, host);
    }
    for &host in touched.iter().chain(pinned.as_slice()) {
        if let Ok(choice) = host_verdict(fleet, host, &resolved) {
            found = better(found, choice, host);
        }
    }
    match found {
        Some((choice, host)) => Ok(set::placed(fleet, host, choice, resolved.floor)),
        None => Err(refusal::explain(fleet, &resolved)),
    }
}

/// [`place`] without the index.
pub fn place_by_scan(fleet: &Fleet, request: &Request) -> Result<Placed, Refusal> {
    let resolved = Resolved::new(fleet, request);
    let mut found = None;
    for (host, _) in fleet.hosts() {
        if let Ok(choice) = host_verdict(fleet, host, &resolved) {
            found = better(found, choice, host);
        }
    }
    match found {
        Some((choice, host)) => Ok(set::placed(fleet, host, choice, resolved.floor)),
        None => Err(refusal::explain(fleet, &resolved)),
    }
}

fn better(found: Option<(Choice, u32)>, choice: Choice, host: u32) -> Option<(Choice, u32)> {
    match found {
        Some((known, at)) if (known.score, at) <= (choice.score, host) => found,
        _ => Some((choice, host)),
    }
}

/// What the hosts of a bucket answer, exclusions and pinning aside.
fn bucket_verdict(fleet: &Fleet, bucket: &Bucket, resolved: &Resolved) -> Verdict {
    let key = &bucket.key;
    if !resolved.region_matches(key.region) {
        return Err(Reason::OtherRegion);
    }
    let topology = fleet.topology(key.topology);
    let allowed = resolved.allowed(key.topology)?;
    let table = Table { topology, free: key.free, warned: key.warned, excluded: &[] };
    let judge = || judge(&table, key.standing, key.healthy, allowed, resolved);
    // Remembered answers hold when the request accepts every card of the shape; mixed hosts are rare and asked each time.
    if allowed.len() == topology.cards() {
        bucket.verdict(resolved.cards, resolved.floor, judge)
    } else {
        judge()
    }
}

/// What one host answers, exclusions and pinning included.
fn host_verdict(fleet: &Fleet, index: u32, resolved: &Resolved) -> Verdict {
    let host: &Host = fleet.host(index);
    if !resolved.region_matches(host.region) {
        return Err(Reason::OtherRegion);
    }
    if !resolved.host_matches(index) {
        return Err(Reason::OtherHost);
    }
    let topology = fleet.topology(host.topology);
    let allowed = resolved.allowed(host.topology)?;
    let key = host.bucket_key();
    let excluded = resolved.excluded.on(index);
    let table = Table { topology, free: key.free, warned: key.warned, excluded };
    judge(&table, key.standing, key.healthy, allowed, resolved)
}

/// The best set, or the most lasting reason against it.
fn judge(
    table: &Table<'_>,
    standing: crate::fleet::Standing,
    healthy: CardSet,
    allowed: CardSet,
    resolved: &Resolved,
) -> Verdict {
    let open = standing == crate::fleet::Standing::Open;
    let choice = open.then(|| best(table, allowed, resolved.cards, resolved.floor)).flatten();
    choice.ok_or_else(|| refusal::reason(table, standing, healthy, allowed, resolved))
}

#[cfg(test)]
mod tests;
