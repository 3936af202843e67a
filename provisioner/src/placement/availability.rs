//! What could be sold now: counts and link speeds per shape, and what fits when the wanted shape does not.

use serde::Serialize;
use tarn_protocol::hardware::LinkClass;

use super::request::Resolved;
use super::{Request, bucket_verdict, set};
use crate::fleet::Fleet;

/// How often a request could be placed now, were nothing else placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Availability {
    pub count: u32,
    /// Of the next set on each host that has one; `None` for single cards and where nothing fits.
    pub links: Option<LinkRange>,
}

/// The links that a buyer may get, weakest to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LinkRange {
    pub class_min: LinkClass,
    pub class_max: LinkClass,
    pub read_mb_per_second_min: u64,
    pub read_mb_per_second_max: u64,
    pub write_mb_per_second_min: u64,
    pub write_mb_per_second_max: u64,
}

/// A shape that fits now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alternative<T> {
    pub offer: T,
    pub availability: Availability,
}

/// Counts what fits. Hosts do not influence each other, so the count is the sum over hosts of the disjoint sets in each.
/// Exclusions do not matter here; a named host and a region do.
pub fn availability(fleet: &Fleet, request: &Request) -> Availability {
    let resolved = Resolved::new(fleet, &Request { excluded: Vec::new(), ..request.clone() });
    let mut total = Availability { count: 0, links: None };
    for bucket in fleet.occupied() {
        let Ok(choice) = bucket_verdict(fleet, bucket, &resolved) else { continue };
        let topology = fleet.topology(bucket.key.topology);
        let Ok(allowed) = resolved.allowed(bucket.key.topology) else { continue };
        let per_host = topology.fit_count(bucket.key.free.both(allowed), resolved.cards, resolved.floor);
        for &host in bucket.hosts.iter().filter(|host| resolved.host_matches(**host)) {
            total.count += per_host;
            let placed = set::placed(fleet, host, choice, resolved.floor);
            for donor in &placed.donors {
                total.links = Some(LinkRange::widened(total.links, donor));
            }
        }
    }
    total
}

/// Those of `offers` that fit now, in their order.
pub fn alternatives<T>(fleet: &Fleet, offers: impl IntoIterator<Item = (T, Request)>) -> Vec<Alternative<T>> {
    offers
        .into_iter()
        .map(|(offer, request)| Alternative { offer, availability: availability(fleet, &request) })
        .filter(|alternative| alternative.availability.count > 0)
        .collect()
}

impl LinkRange {
    fn widened(range: Option<Self>, donor: &super::PlacedDonor) -> Self {
        let (class, read, write) = (donor.link_class, donor.read_mb_per_second, donor.write_mb_per_second);
        let own = Self {
            class_min: class,
            class_max: class,
            read_mb_per_second_min: read,
            read_mb_per_second_max: read,
            write_mb_per_second_min: write,
            write_mb_per_second_max: write,
        };
        range.map_or(own, |range| Self {
            class_min: range.class_min.min(class),
            class_max: range.class_max.max(class),
            read_mb_per_second_min: range.read_mb_per_second_min.min(read),
            read_mb_per_second_max: range.read_mb_per_second_max.max(read),
            write_mb_per_second_min: range.write_mb_per_second_min.min(write),
            write_mb_per_second_max: range.write_mb_per_second_max.max(write),
        })
    }
}
