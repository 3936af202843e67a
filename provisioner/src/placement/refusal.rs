//! Why nothing fitted: one reason per host, counted.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::request::Resolved;
use super::{bucket_verdict, host_verdict};
use crate::card_set::CardSet;
use crate::choice::{Table, best};
use crate::fleet::{Fleet, Standing};

/// Why one host cannot serve a request. Lasting reasons come first: the first that holds is the host's reason, so that only
/// [`Reason::InUse`] grows as cards are leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    OtherRegion,
    /// The request names another host.
    OtherHost,
    ModelMissing,
    /// Not that many matched cards in the host, leased or not.
    TooFewCards,
    MemoryTooSmall,
    DriverTooOld,
    /// Cut into MIG instances, which can neither be pooled nor sold whole.
    MigEnabled,
    /// A display runs on a card that a pool would need.
    DisplayActive,
    /// No set whose links are all certified at the wanted class and grade.
    LinksNotCertified,
    CardsUnhealthy,
    Cordoned,
    Unreachable,
    InUse,
    /// Only sets that already failed for this request are left.
    AlreadyTried,
}

impl Reason {
    /// In order of declaration.
    pub const ALL: [Self; 14] = [
        Self::OtherRegion,
        Self::OtherHost,
        Self::ModelMissing,
        Self::TooFewCards,
        Self::MemoryTooSmall,
        Self::DriverTooOld,
        Self::MigEnabled,
        Self::DisplayActive,
        Self::LinksNotCertified,
        Self::CardsUnhealthy,
        Self::Cordoned,
        Self::Unreachable,
        Self::InUse,
        Self::AlreadyTried,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherRegion => "other_region",
            Self::OtherHost => "other_host",
            Self::ModelMissing => "model_missing",
            Self::TooFewCards => "too_few_cards",
            Self::MemoryTooSmall => "memory_too_small",
            Self::DriverTooOld => "driver_too_old",
            Self::MigEnabled => "mig_enabled",
            Self::DisplayActive => "display_active",
            Self::LinksNotCertified => "links_not_certified",
            Self::CardsUnhealthy => "cards_unhealthy",
            Self::Cordoned => "cordoned",
            Self::Unreachable => "unreachable",
            Self::InUse => "in_use",
            Self::AlreadyTried => "already_tried",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::OtherRegion => "in another region",
            Self::OtherHost => "not the named host",
            Self::ModelMissing => "without that card model",
            Self::TooFewCards => "with too few matching cards",
            Self::MemoryTooSmall => "whose cards have too little memory",
            Self::DriverTooOld => "with a driver older than 550",
            Self::MigEnabled => "with MIG enabled",
            Self::DisplayActive => "with a display on a card the pool needs",
            Self::LinksNotCertified => "without certified links of that class",
            Self::CardsUnhealthy => "with cards out of service",
            Self::Cordoned => "cordoned",
            Self::Unreachable => "unreachable",
            Self::InUse => "with the cards in use",
            Self::AlreadyTried => "where only sets that failed are left",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No host fits. `hosts` counts every host of the fleet once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Refusal {
    pub cards: usize,
    pub hosts: BTreeMap<Reason, usize>,
}

impl Refusal {
    /// Whether it may fit once somebody stops: all else about some host is right.
    pub fn may_fit_later(&self) -> bool {
        self.hosts.contains_key(&Reason::InUse)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cards = if self.cards == 1 { "card" } else { "cards" };
        write!(f, "no host can place {} {cards} now", self.cards)?;
        for (position, (reason, hosts)) in self.hosts.iter().rev().enumerate() {
            let start = if position == 0 { ": " } else { ", " };
            write!(f, "{start}{hosts} {}", reason.sentence())?;
        }
        Ok(())
    }
}

/// Every host's reason, for a request that nothing fits.
pub(super) fn explain(fleet: &Fleet, resolved: &Resolved) -> Refusal {
    let touched = resolved.excluded.touched();
    let mut hosts = [0; Reason::ALL.len()];
    let mut count = |reason: Reason, number: usize| hosts[reason as usize] += number;
    for bucket in fleet.occupied() {
        let special = |host: &u32| touched.contains(host) || resolved.pinned() == Some(*host);
        let apart = if touched.is_empty() && resolved.pinned().is_none() {
            0
        } else {
            bucket.hosts.iter().filter(|host| special(host)).count()
        };
        let reason = bucket_verdict(fleet, bucket, resolved).err().unwrap_or(Reason::OtherHost);
        let reason =
            if resolved.names_host() && reason != Reason::OtherRegion { Reason::OtherHost } else { reason };
        count(reason, bucket.hosts.len() - apart);
    }
    let mut apart: Vec<u32> = touched.into_iter().chain(resolved.pinned()).collect();
    apart.sort_unstable();
    apart.dedup();
    for host in apart {
        count(host_verdict(fleet, host, resolved).err().unwrap_or(Reason::AlreadyTried), 1);
    }
    let counted = Reason::ALL.into_iter().zip(hosts).filter(|(_, hosts)| *hosts > 0);
    Refusal { cards: resolved.cards, hosts: counted.collect() }
}

/// The most lasting reason why a host that has enough matching cards gives none.
pub(super) fn reason(
    table: &Table<'_>,
    standing: Standing,
    healthy: CardSet,
    allowed: CardSet,
    resolved: &Resolved,
) -> Reason {
    let (size, topology, shape) = (resolved.cards, table.topology, table.topology.shape());
    let fits =
        |free: CardSet| topology.candidates(size, resolved.floor).iter().any(|set| free.holds(set.set));
    let matched = |cards: CardSet| {
        cards
            .iter()
            .map(|card| cards.iter().filter(|other| shape.kinds[*other] == shape.kinds[card]).count())
            .max()
    };
    let enough = |cards: CardSet| matched(cards).is_some_and(|most| most >= size);
    match () {
        () if !enough(allowed) => Reason::TooFewCards,
        () if standing == Standing::DriverTooOld => Reason::DriverTooOld,
        () if !enough(allowed.minus(shape.mig)) => Reason::MigEnabled,
        () if size > 1 && !enough(allowed.minus(shape.mig).minus(shape.display)) => Reason::DisplayActive,
        () if !fits(allowed) => Reason::LinksNotCertified,
        () if !fits(allowed.both(healthy)) => Reason::CardsUnhealthy,
        () if standing == Standing::Cordoned => Reason::Cordoned,
        () if standing == Standing::Unreachable => Reason::Unreachable,
        () if best(&Table { excluded: &[], ..*table }, allowed, size, resolved.floor).is_some() => {
            Reason::AlreadyTried
        }
        () => Reason::InUse,
    }
}
