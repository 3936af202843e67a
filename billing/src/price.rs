//! The price book: append-only versions of what an offer costs.
//!
//! A version is effective from an instant that is not in the past when it is appended, so no second that may already be settled
//! changes its price. A segment keeps the version it opened with; a change closes it at `effective_from` and opens another at that
//! same instant (M10).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::OfferId;
use tarn_protocol::units::Timestamp;

use crate::rate::Rate;

/// The number of a price; those of one offer grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceVersion(i64);

impl PriceVersion {
    pub const FIRST: Self = Self(1);

    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    pub const fn get(self) -> i64 {
        self.0
    }

    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for PriceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One version of one offer's price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    pub offer_id: OfferId,
    pub version: PriceVersion,
    pub rate: Rate,
    pub effective_from: Timestamp,
}

/// Every version of every offer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceBook {
    prices: BTreeMap<OfferId, Vec<Price>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrice {
    #[error("a price of {0} in the past")]
    InThePast(OfferId),
    #[error("a price of {0} that does not follow the last one")]
    OutOfOrder(OfferId),
}

impl PriceBook {
    /// From stored rows in any order.
    pub fn from_stored(rows: impl IntoIterator<Item = Price>) -> Result<Self, InvalidPrice> {
        let mut rows: Vec<Price> = rows.into_iter().collect();
        rows.sort_by_key(|price| price.version);
        rows.into_iter().try_fold(Self::default(), |mut book, price| {
            book.push(price)?;
            Ok(book)
        })
    }

    /// Makes the next version of an offer's price and adds it; the caller stores what is returned.
    pub fn append(
        &mut self,
        offer_id: &OfferId,
        rate: Rate,
        effective_from: Timestamp,
        now: Timestamp,
    ) -> Result<Price, InvalidPrice> {
        if effective_from < now {
            return Err(InvalidPrice::InThePast(offer_id.clone()));
        }
        let last = self.versions(offer_id).last();
        let version = last.map_or(PriceVersion::FIRST, |price| price.version.next());
        let price = Price { offer_id: offer_id.clone(), version, rate, effective_from };
        self.push(price.clone())?;
        Ok(price)
    }

    /// The price in force at `at`; `None` when the offer is not on sale yet.
    pub fn at(&self, offer_id: &OfferId, at: Timestamp) -> Option<&Price> {
        self.versions(offer_id).iter().rev().find(|price| price.effective_from <= at)
    }

    /// The prices that follow `version`, earliest first.
    pub fn after(&self, offer_id: &OfferId, version: PriceVersion) -> impl Iterator<Item = &Price> {
        self.versions(offer_id).iter().filter(move |price| price.version > version)
    }

    /// All versions of an offer, earliest first.
    pub fn versions(&self, offer_id: &OfferId) -> &[Price] {
        self.prices.get(offer_id).map_or(&[], Vec::as_slice)
    }

    fn push(&mut self, price: Price) -> Result<(), InvalidPrice> {
        let versions = self.prices.entry(price.offer_id.clone()).or_default();
        let follows = versions
            .last()
            .is_none_or(|last| last.version < price.version && last.effective_from < price.effective_from);
        if !follows {
            return Err(InvalidPrice::OutOfOrder(price.offer_id));
        }
        versions.push(price);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Micros;

    #[test]
    fn versions_are_appended_and_looked_up_by_instant() {
        let offer: OfferId = "pool-96".parse().unwrap();
        let rate = |micros| Rate::per_hour(Micros::new(micros)).unwrap();
        let at = Timestamp::from_micros;
        let mut book = PriceBook::default();
        let first = book.append(&offer, rate(10), at(100), at(50)).unwrap();
        let second = book.append(&offer, rate(20), at(200), at(150)).unwrap();
        assert_eq!(book.at(&offer, at(99)), None);
        assert_eq!(book.at(&offer, at(100)), Some(&first));
        assert_eq!(book.at(&offer, at(199)), Some(&first));
        assert_eq!(book.at(&offer, at(200)), Some(&second));
        assert_eq!(book.after(&offer, first.version).collect::<Vec<_>>(), [&second]);
        assert_eq!(
            book.append(&offer, rate(1), at(300), at(301)),
            Err(InvalidPrice::InThePast(offer.clone()))
        );
        assert_eq!(
            book.append(&offer, rate(1), at(200), at(150)),
            Err(InvalidPrice::OutOfOrder(offer.clone()))
        );
        assert_eq!(PriceBook::from_stored([second.clone(), first.clone()]), Ok(book));
    }
}
