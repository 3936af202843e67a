//! The shape behind an offer: which cards make it, and what it asks of placement and of a quota.

use std::collections::BTreeSet;

use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{GpuUuid, HostId, OfferId};
use tarn_protocol::units::Bytes;
use tarn_provisioner::fleet::{Fleet, FleetError};
use tarn_provisioner::placement::{Placed, Request};
use tarn_provisioner::quota::Charge;
use tarn_provisioner::snapshot::HostSnapshot;

/// A card larger than its nominal memory by more than this share is another product and not sold under this shape.
const LARGER_PERCENT_MAX: u64 = 5;
/// What the driver keeps of a donor and the pool therefore never counts.
const DONOR_KEEPS: Bytes = Bytes::mib(512);
const GRANULE: Bytes = Bytes::mib(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub offer_id: OfferId,
    /// Primary and donors.
    pub cards: u32,
    /// Nominal memory of one card.
    pub card_memory_bytes: Bytes,
    /// Part of the product name; `None`: any model of that memory.
    pub model_contains: Option<String>,
    pub link_class_min: LinkClass,
}

/// Where a tenant wants an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub region: Option<String>,
    pub link_class_min: Option<LinkClass>,
    pub host_id: Option<HostId>,
    /// Sets that already failed for this instance.
    pub excluded: Vec<BTreeSet<GpuUuid>>,
}

impl Shape {
    /// The part of the fleet that can serve this shape: cards of another size or model are left out.
    pub fn fleet(&self, snapshot: &[HostSnapshot]) -> Result<Fleet, FleetError> {
        let mut hosts = snapshot.to_vec();
        for host in &mut hosts {
            host.gpus.retain(|gpu| self.sells(&gpu.model, gpu.memory_bytes));
            let kept: BTreeSet<&GpuUuid> = host.gpus.iter().map(|gpu| &gpu.uuid).collect();
            host.links.retain(|link| kept.contains(&link.from) && kept.contains(&link.to));
        }
        Fleet::new(hosts)
    }

    fn sells(&self, model: &str, memory_bytes: Bytes) -> bool {
        let most = self.card_memory_bytes.get() / 100 * (100 + LARGER_PERCENT_MAX);
        memory_bytes.get() <= most
            && self.model_contains.as_ref().is_none_or(|part| model.contains(part.as_str()))
    }

    pub fn request(&self, wanted: &Wanted) -> Request {
        Request {
            cards: self.cards as usize,
            model: None,
            card_memory_bytes: self.card_memory_bytes,
            link_class: wanted
                .link_class_min
                .map_or(self.link_class_min, |class| class.max(self.link_class_min)),
            link_grade: LinkGrade::B,
            region: wanted.region.clone(),
            host: wanted.host_id.clone(),
            excluded: wanted.excluded.clone(),
        }
    }

    /// What one instance takes out of a quota: every card, though one is metered.
    pub fn charge(&self) -> Charge {
        Charge::pool(self.cards, self.card_memory_bytes)
    }

    /// The pool's size that a placed set surely has: the primary whole, each donor less what its driver keeps.
    pub fn pool_bytes(placed: &Placed, snapshot: &[HostSnapshot]) -> Option<Bytes> {
        let host = snapshot.iter().find(|host| host.id == placed.host_id)?;
        let memory =
            |uuid: &GpuUuid| host.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| gpu.memory_bytes.get());
        let mut total = memory(&placed.primary)?;
        for donor in &placed.donors {
            let given = memory(&donor.uuid)?.saturating_sub(DONOR_KEEPS.get());
            total += Bytes::new(given).floor_to(GRANULE).get();
        }
        Some(Bytes::new(total))
    }
}

impl Shape {
    pub fn of(offer: &tarn_rows::offers::OfferRow) -> Self {
        Self {
            offer_id: offer.id.clone(),
            cards: offer.cards,
            card_memory_bytes: offer.card_memory_bytes,
            model_contains: offer.model_contains.clone(),
            link_class_min: offer.link_class_min,
        }
    }
}
