//! Where a request goes: free bytes of every card in, segments out.
//!
//! Placement decides everything about speed: a layer on the primary runs ten times faster than one behind a link, and so does the
//! scratch memory that arrives after the weights. So the primary keeps a reserve for late, small and hot requests, large ones
//! give way to donors once the primary is down to it, and only when donors are full may a large request eat the reserve. What is large, and
//! how much of the reserve a request leaves, is the business of [`crate::growth`].
//!
//! Traced on an H200 with products of 8192 × 8192 bf16 weights, each operand in turn behind a link of 51 GB/s: a far weight makes
//! them 31 to 53 times slower, far inputs 24 to 104 times (every block of the product reads them again, and far lines do not stay in
//! the cache), a far output 1 to 2.5 times, a far workspace of cuBLAS at most 1.3 times. In a pool of which nine tenths are weights,
//! products of local weights run at 0.02 of native without a reserve and at native speed with one, as long as a batch's
//! activations are smaller than what counts as large.

use tarn_protocol::pool_config::{Placement, PoolConfig};

/// Every segment is a multiple of this: the driver's granularity for device memory.
pub(crate) const UNIT: u64 = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Local,
    /// Index into the pool config's donors; the one after the last is the host tier.
    Donor(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
}

/// Free bytes of each card; donors in the order of preference, fastest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cards {
    pub(crate) local_bytes: u64,
    /// Index into the config's donors, and free bytes.
    pub(crate) donors: Vec<(usize, u64)>,
    /// The host tier: what no card has room for, and nothing else.
    pub(crate) host: Option<(usize, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) placement: Placement,
    pub(crate) reserve_bytes: u64,
    pub(crate) large_bytes: u64,
    pub(crate) granule_bytes: u64,
    /// Whether the process's growth decides what is large and what it leaves; else the figures above hold as they are.
    pub(crate) watched: bool,
    /// What counts as a pause, where that is given.
    pub(crate) pause_ms: Option<u64>,
}

const fn floor(bytes: u64) -> u64 {
    bytes / UNIT * UNIT
}

impl From<&PoolConfig> for Rules {
    fn from(config: &PoolConfig) -> Self {
        let policy = &config.policy;
        Self {
            placement: policy.placement,
            reserve_bytes: config.reserve_bytes().get(),
            large_bytes: policy.large_bytes.get(),
            granule_bytes: policy.granule_bytes.get().max(UNIT),
            watched: true,
            pause_ms: None,
        }
    }
}

impl Rules {
    /// These rules for a request that turned out to be large, or not.
    pub(crate) fn sized(self, large: bool) -> Self {
        Self { large_bytes: if large { 0 } else { u64::MAX }, ..self }
    }
}

impl Cards {
    pub(crate) fn donor_bytes(&self) -> u64 {
        self.donors.iter().map(|(_, free)| floor(*free)).sum()
    }

    fn host_bytes(&self) -> u64 {
        self.host.map_or(0, |(_, free)| floor(free))
    }

    fn remote(&mut self) -> impl Iterator<Item = &mut (usize, u64)> {
        self.donors.iter_mut().chain(&mut self.host)
    }

    /// A card turned out to have nothing.
    pub(crate) fn exhaust(&mut self, place: Place) {
        match place {
            Place::Local => self.local_bytes = 0,
            Place::Donor(donor) => {
                for (_, free) in self.remote().filter(|(at, _)| *at == donor) {
                    *free = 0;
                }
            }
        }
    }

    /// Bytes of a segment were taken.
    pub(crate) fn take(&mut self, segment: Segment) {
        match segment.place {
            Place::Local => self.local_bytes = self.local_bytes.saturating_sub(segment.bytes),
            Place::Donor(donor) => {
                for (_, free) in self.remote().filter(|(at, _)| *at == donor) {
                    *free = free.saturating_sub(segment.bytes);
                }
            }
        }
    }

    /// What a request may take of the primary without touching the reserve, or as little of it as it must.
    fn local_share(&self, bytes: u64, large: bool, rules: Rules) -> u64 {
        let keep = if large { rules.reserve_bytes } else { 0 };
        let spare = floor(self.local_bytes.saturating_sub(keep));
        let needed = bytes.saturating_sub(self.donor_bytes());
        spare.max(needed).min(floor(self.local_bytes)).min(bytes)
    }
}

/// Segments, in address order, for `bytes` (a multiple of [`UNIT`]) of a request of `request_bytes`, of which this is what remains.
/// `None`: the cards together do not have them, nor does the host tier have the rest.
pub(crate) fn plan(bytes: u64, request_bytes: u64, cards: &Cards, rules: Rules) -> Option<Vec<Segment>> {
    let on_cards = floor(cards.local_bytes) + cards.donor_bytes();
    if bytes == 0 || on_cards + cards.host_bytes() < bytes {
        return None;
    }
    if let Some((place, _)) = cards.host
        && on_cards < bytes
    {
        // Every byte of the cards is taken, so their policy has no say.
        let mut segments = fill(on_cards, floor(cards.local_bytes), cards);
        segments.push(Segment { place: Place::Donor(place), bytes: bytes - on_cards });
        return Some(segments);
    }
    let large = request_bytes >= rules.large_bytes;
    let local = cards.local_share(bytes, large, rules);
    let segments = match rules.placement {
        Placement::Interleave if large => interleave(bytes, local, cards, rules),
        Placement::Balanced if large => balance(bytes, local, cards),
        Placement::LocalFirst | Placement::Interleave | Placement::Balanced => fill(bytes, local, cards),
    };
    Some(segments)
}

/// Places for a request that cannot be split, best first: a handle, which the tenant maps by itself. What is mapped of it must look like
/// device memory in every respect, so it never lies on the host.
pub(crate) fn whole(bytes: u64, cards: &Cards, rules: Rules, turn: usize) -> Vec<Place> {
    let large = bytes >= rules.large_bytes;
    let keep = if large { rules.reserve_bytes } else { 0 };
    let spare = cards.local_bytes.saturating_sub(keep) >= bytes;
    let mut places: Vec<(Place, u64)> = cards
        .donors
        .iter()
        .filter(|(_, free)| *free >= bytes)
        .map(|&(at, free)| (Place::Donor(at), free))
        .collect();
    if spare {
        places.insert(0, (Place::Local, cards.local_bytes - keep));
    }
    match rules.placement {
        Placement::Interleave if large && !places.is_empty() => {
            let first = turn % places.len();
            places.rotate_left(first);
        }
        Placement::Balanced if large => places.sort_by_key(|(_, free)| std::cmp::Reverse(*free)),
        Placement::LocalFirst | Placement::Interleave | Placement::Balanced => {}
    }
    let mut places: Vec<Place> = places.into_iter().map(|(place, _)| place).collect();
    if !spare {
        // The reserve is the last resort; a small request lands here when the figure was stale, and the driver decides.
        places.push(Place::Local);
    }
    places
}

/// The primary's share, then donors one after another.
fn fill(bytes: u64, local: u64, cards: &Cards) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut rest = bytes;
    let donors = cards.donors.iter().map(|&(at, free)| (Place::Donor(at), floor(free)));
    for (place, free) in std::iter::once((Place::Local, local)).chain(donors) {
        let take = rest.min(free);
        if take > 0 {
            segments.push(Segment { place, bytes: take });
            rest -= take;
        }
    }
    segments
}

/// Granules in turn over every card that has room.
fn interleave(bytes: u64, local: u64, cards: &Cards, rules: Rules) -> Vec<Segment> {
    let mut room: Vec<(Place, u64)> = vec![(Place::Local, local)];
    room.extend(cards.donors.iter().map(|&(at, free)| (Place::Donor(at), floor(free))));
    let mut segments: Vec<Segment> = Vec::new();
    let mut rest = bytes;
    while rest > 0 && room.iter().any(|(_, free)| *free > 0) {
        for (place, free) in &mut room {
            let take = rules.granule_bytes.min(*free).min(rest);
            if take == 0 {
                continue;
            }
            *free -= take;
            rest -= take;
            match segments.last_mut() {
                Some(last) if last.place == *place => last.bytes += take,
                _ => segments.push(Segment { place: *place, bytes: take }),
            }
        }
    }
    segments
}

/// Shares in proportion to free bytes, one segment a card.
fn balance(bytes: u64, local: u64, cards: &Cards) -> Vec<Segment> {
    let mut room: Vec<(Place, u64)> = vec![(Place::Local, local)];
    room.extend(cards.donors.iter().map(|&(at, free)| (Place::Donor(at), floor(free))));
    let total: u128 = room.iter().map(|(_, free)| u128::from(*free)).sum();
    let mut shares: Vec<u64> = room
        .iter()
        .map(|(_, free)| {
            let share = u128::from(bytes) * u128::from(*free) / total.max(1);
            floor(u64::try_from(share).unwrap_or(0)).min(*free)
        })
        .collect();
    let mut rest = bytes - shares.iter().sum::<u64>();
    for (share, (_, free)) in shares.iter_mut().zip(&room) {
        let more = rest.min(free - *share);
        *share += more;
        rest -= more;
    }
    let pairs = room.into_iter().zip(shares);
    pairs.filter(|(_, bytes)| *bytes > 0).map(|((place, _), bytes)| Segment { place, bytes }).collect()
}

#[cfg(test)]
mod tests;
