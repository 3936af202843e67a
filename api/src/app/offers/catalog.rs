//! Every listed offer with its price of the moment and what the fleet could serve of it.

use tarn_billing::price::{Price, PriceBook};
use tarn_protocol::units::{Bytes, Timestamp};
use tarn_provisioner::fleet::FleetError;
use tarn_provisioner::placement::{self, Availability, Placed, Refusal};
use tarn_provisioner::snapshot::HostSnapshot;
use tarn_rows::offers::OfferRow;

use super::shape::{Shape, Wanted};

/// An offer that can be shown.
#[derive(Debug, Clone)]
pub struct Listed {
    pub offer: OfferRow,
    pub price: Price,
    pub availability: Availability,
    /// What the next start would get, or why it would get nothing.
    pub next: Result<Placed, Refusal>,
    /// Of what the next start would get.
    pub pool_bytes: Option<Bytes>,
}

/// Listed offers that have a price at `now`, in order of id.
pub fn list(
    offers: &[OfferRow],
    book: &PriceBook,
    snapshot: &[HostSnapshot],
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Vec<Listed>, FleetError> {
    let on_sale = offers.iter().filter(|offer| offer.listed);
    on_sale
        .filter_map(|offer| Some((offer, book.at(&offer.id, now)?)))
        .map(|(offer, price)| {
            let shape = Shape::of(offer);
            let (fleet, request) = (shape.fleet(snapshot)?, shape.request(wanted));
            let next = placement::place(&fleet, &request);
            let pool_bytes = next.as_ref().ok().and_then(|placed| Shape::pool_bytes(placed, snapshot));
            let availability = placement::availability(&fleet, &request);
            Ok(Listed { offer: offer.clone(), price: price.clone(), availability, next, pool_bytes })
        })
        .collect()
}
