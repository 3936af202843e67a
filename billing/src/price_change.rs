//! What a new price would do to one tenant: which segments split and when, what the tenant burns before and after, and how long its
//! money lasts either way. Said before anything is written, by the same forecast that arms the hosts.

use tarn_protocol::ids::{InstanceId, SegmentId};
use tarn_protocol::units::Timestamp;

use crate::exhaustion::{Runway, forecast};
use crate::funds::Funds;
use crate::money::{Micros, OutOfRange};
use crate::price::{Price, PriceBook};
use crate::rate::{Rate, hourly_burn};
use crate::segment::{Segment, SegmentState};

/// Money that lasts shorter than this is a customer to talk to before the price changes.
pub const SHORT_SECONDS: i64 = 24 * 3600;

/// One running instance that will cost something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffectedInstance {
    pub instance_id: InstanceId,
    pub segment_id: SegmentId,
    /// Just before the new price, and from it on.
    pub before: Rate,
    pub after: Rate,
    /// Where its segment ends and the next one opens.
    pub splits_at: Timestamp,
}

/// What the new price does to one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impact {
    pub instances: Vec<AffectedInstance>,
    /// Of everything that the tenant runs, per hour, just before the new price and from it on.
    pub burn_before: Micros,
    pub burn_after: Micros,
    pub runway_before: Runway,
    pub runway_after: Runway,
}

impl Impact {
    /// Whether the new price is what takes the tenant's runway, seen from `now`, below [`SHORT_SECONDS`].
    pub fn falls_short(&self, now: Timestamp) -> bool {
        let limit = now.plus_seconds(SHORT_SECONDS);
        let short = |runway| matches!(runway, Runway::Until(until) if until < limit);
        short(self.runway_after) && !short(self.runway_before)
    }
}

/// What `price`, whose [`PriceBook::append`] took the book from `book` to `changed`, does to the tenant of `segments`, which are all
/// of it that is open or not fully settled.
pub fn impact(
    segments: &[Segment],
    (book, changed): (&PriceBook, &PriceBook),
    price: &Price,
    funds: &Funds,
    now: Timestamp,
) -> Result<Impact, OutOfRange> {
    let open = || segments.iter().filter(|segment| segment.state() == SegmentState::Open);
    let rate = |book: &PriceBook, segment: &Segment| {
        let terms = segment.terms();
        book.at(&terms.offer_id, price.effective_from)
            .filter(|price| price.version > terms.price_version)
            .map_or(Ok(terms.rate), |price| terms.meter.rate_at(price.rate).map_err(|_| OutOfRange))
    };
    let affected = open().filter(|segment| {
        segment.terms().offer_id == price.offer_id && segment.opened_at() < price.effective_from
    });
    Ok(Impact {
        instances: affected
            .map(|segment| {
                Ok(AffectedInstance {
                    instance_id: segment.terms().instance_id.clone(),
                    segment_id: segment.id().clone(),
                    before: rate(book, segment)?,
                    after: rate(changed, segment)?,
                    splits_at: price.effective_from,
                })
            })
            .collect::<Result<_, _>>()?,
        burn_before: hourly_burn(open().map(|segment| rate(book, segment)).collect::<Result<Vec<_>, _>>()?)?,
        burn_after: hourly_burn(
            open().map(|segment| rate(changed, segment)).collect::<Result<Vec<_>, _>>()?,
        )?,
        runway_before: forecast(segments, book, funds, now)?,
        runway_after: forecast(segments, changed, funds, now)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_protocol::ids::{GrantId, TenantId};
    use tarn_protocol::units::{BootId, Generation, MonoMillis};

    use super::*;
    use crate::grant::{Grant, GrantKind, GrantTerms};
    use crate::meter::Meter;
    use crate::segment::{Anchor, SegmentTerms};
    use crate::settlement::due_price;

    const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn tenant() -> TenantId {
        TenantId::new(START, 1)
    }

    fn rate(micros: i64) -> Rate {
        Rate::per_hour(Micros::new(micros)).unwrap()
    }

    fn book() -> PriceBook {
        let mut book = PriceBook::default();
        for (offer, micros) in [("pool-96", 2_400_000), ("card-24", 900_000)] {
            book.append(&offer.parse().unwrap(), rate(micros), START, START).unwrap();
        }
        book
    }

    fn running(number: u128, offer: &str, opened_at: Timestamp) -> Segment {
        let price = book().at(&offer.parse().unwrap(), opened_at).unwrap().clone();
        Segment::open(SegmentTerms {
            id: SegmentId::new(opened_at, number),
            tenant_id: tenant(),
            instance_id: InstanceId::new(opened_at, number),
            generation: Generation::new(1),
            offer_id: price.offer_id,
            meter: Meter::Card(tarn_protocol::ids::GpuUuid::from_bytes([u8::try_from(number).unwrap(); 16])),
            price_version: price.version,
            rate: price.rate,
            anchor: Anchor { at: opened_at, boot_id: BootId::new("boot"), mono_ms: MonoMillis::new(5_000) },
        })
    }

    fn cash(micros: i64) -> Funds {
        let terms = GrantTerms {
            id: GrantId::new(START, 1),
            tenant_id: tenant(),
            kind: GrantKind::Cash,
            priority: 0,
            amount: Micros::new(micros),
            granted_at: START,
            expires_at: None,
        };
        Funds::new(vec![Grant::new(terms).unwrap()], Micros::ZERO).unwrap()
    }

    fn change(micros: i64, from: Timestamp, now: Timestamp) -> (PriceBook, PriceBook, Price) {
        let (before, mut after) = (book(), book());
        let price = after.append(&"pool-96".parse().unwrap(), rate(micros), from, now).unwrap();
        (before, after, price)
    }

    #[test]
    fn a_dearer_pool_shortens_the_runway_of_everything_and_splits_its_own_segments() {
        let now = START.plus_seconds(100);
        let segments = [running(1, "pool-96", START), running(2, "card-24", START)];
        // 25 hours of both, less the 100 seconds that ran.
        let funds = cash(25 * 3_300_000);
        let at = now.plus_seconds(3600);
        let (before, after, price) = change(4_800_000, at, now);
        let impact = impact(&segments, (&before, &after), &price, &funds, now).unwrap();
        let affected = AffectedInstance {
            instance_id: segments[0].terms().instance_id.clone(),
            segment_id: segments[0].id().clone(),
            before: rate(2_400_000),
            after: rate(4_800_000),
            splits_at: at,
        };
        assert_eq!(impact.instances, [affected]);
        assert_eq!((impact.burn_before.get(), impact.burn_after.get()), (3_300_000, 5_700_000));
        let until = |runway| match runway {
            Runway::Until(until) => until.micros_since(START) / 1_000_000,
            Runway::Unlimited => panic!("money ends"),
        };
        assert_eq!(until(impact.runway_before), 25 * 3600);
        // 3,700 seconds at the old burn, the rest at the new one.
        let left = 25 * 3_300_000 * 3600 - 3_300_000 * 3700;
        assert!((until(impact.runway_after) - (3700 + left / 5_700_000)).abs() <= 1);
        assert!(impact.falls_short(now));
    }

    #[test]
    fn who_was_short_before_does_not_fall_short_by_the_price() {
        let segments = [running(1, "pool-96", START)];
        let (before, after, price) = change(4_800_000, START.plus_seconds(1), START);
        for (hours, short) in [(23, false), (25, true), (47, true), (49, false)] {
            let funds = cash(hours * 2_400_000);
            let impact = impact(&segments, (&before, &after), &price, &funds, START).unwrap();
            assert_eq!(impact.falls_short(START), short, "{hours} hours");
        }
    }

    proptest! {
        /// What the preview says splits is what settlement splits, at the same instant and rates.
        #[test]
        fn the_preview_is_what_settlement_then_does(
            opened in prop::collection::vec((0_i64..4000, prop::bool::ANY), 1..6),
            micros in 0_i64..9_000_000,
            ahead in 0_i64..2000,
        ) {
            let now = START.plus_seconds(2000);
            let segments: Vec<Segment> = opened.iter().zip(1..)
                .map(|((second, pool), number)| (START.plus_seconds(*second), *pool, number))
                .filter(|(at, ..)| *at <= now)
                .map(|(at, pool, number)| running(number, if pool { "pool-96" } else { "card-24" }, at))
                .collect();
            let at = now.plus_seconds(ahead);
            let (before, after, price) = change(micros, at, now);
            let told = impact(&segments, (&before, &after), &price, &cash(1_000_000_000), now).unwrap();
            let later = at.plus_seconds(1);
            let split: Vec<_> = segments.iter()
                .filter_map(|segment| Some((segment, due_price(segment, &after, later)?)))
                .map(|(segment, price)| segment.clone().split(price).unwrap())
                .collect();
            prop_assert_eq!(told.instances.len(), split.len());
            for (affected, (ended, begun)) in told.instances.iter().zip(&split) {
                prop_assert_eq!(&affected.segment_id, ended.id());
                prop_assert_eq!(ended.ended_at(), Some(affected.splits_at));
                prop_assert_eq!((ended.terms().rate, begun.terms().rate), (affected.before, affected.after));
            }
            let change: i64 = told.instances.iter().map(|one| one.after.hourly().get() - one.before.hourly().get()).sum();
            prop_assert_eq!(told.burn_after.get() - told.burn_before.get(), change);
        }
    }
}
