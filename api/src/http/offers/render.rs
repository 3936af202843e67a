//! From the catalog to documents.

use std::collections::BTreeMap;

use tarn_billing::gate;
use tarn_billing::money::Micros;
use tarn_protocol::units::{Bytes, Timestamp};
use tarn_provisioner::placement::{LinkRange, Refusal};
use tarn_provisioner::quota::Charge;

use super::view::{
    AlternativeDocument, AvailabilityDocument, DryRunDocument, LinksDocument, OfferDocument, OfferPrice,
    QuotaCharge,
};
use crate::app::metering::purse::Purse;
use crate::app::offers::catalog::Listed;

/// More than this many is plenty.
const LOW_MAX: u32 = 4;

pub fn offer(listed: &Listed) -> OfferDocument {
    let offer = &listed.offer;
    OfferDocument {
        id: offer.id.clone(),
        title: offer.title.clone(),
        cards: offer.cards,
        metered_cards: offer.metered_cards,
        card_memory_bytes: offer.card_memory_bytes.get(),
        pool_size_bytes: listed.pool_bytes.map(Bytes::get),
        link_class_min: offer.link_class_min,
        links: listed.availability.links.map(links),
        price: price(listed),
        availability: AvailabilityDocument {
            count: listed.availability.count,
            level: level(listed.availability.count),
            reasons: reasons(listed.next.as_ref().err()),
            detail: listed.next.as_ref().err().map(ToString::to_string),
        },
    }
}

const fn level(count: u32) -> &'static str {
    match count {
        0 => "none",
        1..=LOW_MAX => "low",
        _ => "high",
    }
}

fn reasons(refusal: Option<&Refusal>) -> BTreeMap<&'static str, usize> {
    refusal
        .into_iter()
        .flat_map(|refusal| &refusal.hosts)
        .map(|(reason, hosts)| (reason.as_str(), *hosts))
        .collect()
}

fn price(listed: &Listed) -> OfferPrice {
    OfferPrice {
        per_hour: listed.price.rate.hourly().into(),
        version: listed.price.version.get(),
        billing_starts: "first_ready_evidence",
        stopped_per_hour: Micros::ZERO.into(),
    }
}

const fn links(range: LinkRange) -> LinksDocument {
    LinksDocument {
        class_min: range.class_min,
        class_max: range.class_max,
        read_mb_per_second_min: range.read_mb_per_second_min,
        read_mb_per_second_max: range.read_mb_per_second_max,
        write_mb_per_second_min: range.write_mb_per_second_min,
        write_mb_per_second_max: range.write_mb_per_second_max,
    }
}

pub fn alternative(listed: &Listed) -> AlternativeDocument {
    AlternativeDocument {
        offer_id: listed.offer.id.clone(),
        per_hour: listed.price.rate.hourly().into(),
        link_class: listed.availability.links.map(|range| range.class_min),
        count: listed.availability.count,
    }
}

pub fn dry_run(
    found: &Listed,
    all: &[Listed],
    charge: Charge,
    purse: &Purse,
    now: Timestamp,
) -> DryRunDocument {
    let burning = purse.burning();
    let affordable = gate::admit(purse.start_request(&burning, found.price.rate), now).is_ok();
    let placeable = found.next.is_ok();
    let others = all.iter().filter(|other| other.offer.id != found.offer.id && other.availability.count > 0);
    DryRunDocument {
        offer_id: found.offer.id.clone(),
        placeable,
        affordable,
        pool_size_bytes: found.pool_bytes.map(Bytes::get),
        links: found.availability.links.map(links),
        price: price(found),
        available: purse.funds.available(now).into(),
        quota_charge: QuotaCharge {
            cards: charge.cards,
            memory_bytes: charge.memory_bytes.get(),
            metered_cards: charge.metered_cards,
        },
        reasons: reasons(found.next.as_ref().err()),
        detail: found.next.as_ref().err().map(ToString::to_string),
        alternatives: if placeable { Vec::new() } else { others.map(alternative).collect() },
    }
}
