//! What must hold at every step, worked out from the bare rows by other means than billing's: sums over lists, unions by sorting,
//! arithmetic in 128 bits.

use std::collections::BTreeMap;

use tarn_billing::account::AccountKind;
use tarn_billing::funds::{Draw, Funds};
use tarn_billing::grant::{Grant, GrantKind};
use tarn_billing::rate::Rate;
use tarn_billing::segment::Segment;
use tarn_billing::transfer::{Transfer, TransferKind};
use tarn_protocol::ids::SegmentId;
use tarn_protocol::units::Timestamp;

use crate::control_plane::ControlPlane;

/// `floor(rate × seconds / 3600)`.
pub fn charged(rate: Rate, seconds: i64) -> i64 {
    let wide = i128::from(rate.hourly().get()) * i128::from(seconds) / 3600;
    i64::try_from(wide).expect("a charge fits")
}

/// M5: per card, and per instance and SKU, segments never share an instant.
pub fn no_second_twice(segments: &BTreeMap<SegmentId, Segment>, one: &Segment) {
    let end = |segment: &Segment| segment.ended_at().map_or(i64::MAX, Timestamp::as_micros);
    let begin = |segment: &Segment| segment.opened_at().as_micros();
    if begin(one) == end(one) {
        return;
    }
    for other in segments.values().filter(|other| other.id() != one.id() && begin(other) != end(other)) {
        let same_card = one.terms().meter == other.terms().meter;
        let same_run = one.terms().instance_id == other.terms().instance_id;
        let overlap = begin(one) < end(other) && begin(other) < end(one);
        assert!(!(overlap && (same_card || same_run)), "M5: a second is billed twice: {one:?} and {other:?}");
    }
}

fn spendable(grant: &Grant, at: Timestamp) -> bool {
    let terms = grant.terms();
    terms.granted_at <= at && terms.expires_at.is_none_or(|expires_at| at < expires_at)
}

/// M13: what is drawn is spendable then, and nothing that comes before it in draw order is left.
pub fn draws_in_order(grants: &[Grant], draw: &Draw, transfer: &Transfer, now: Timestamp) {
    let at = transfer.at();
    assert!(at <= now, "a charge from the future");
    assert!(spendable(&draw.before, at), "M13: {:?} is drawn at {at}", draw.before);
    let key = |grant: &Grant| {
        let terms = grant.terms();
        let expires_at = terms.expires_at.map_or(i64::MAX, Timestamp::as_micros);
        (terms.kind == GrantKind::Cash, terms.priority, expires_at, terms.id.clone())
    };
    let passed_over = grants
        .iter()
        .find(|grant| spendable(grant, at) && grant.remaining().get() > 0 && key(grant) < key(&draw.before));
    assert_eq!(passed_over, None, "M13: passed over for {:?} at {at}", draw.before);
}

/// Milliseconds of a segment that evidence proves by `at`: the union of the intervals within its window.
pub fn proven_ms(store: &ControlPlane, segment: &Segment, at: Timestamp) -> i64 {
    let spans = spans(store, segment, at);
    let (mut reached, mut total) = (0, 0);
    for (from, to) in spans {
        total += (to - from.max(reached)).max(0);
        reached = reached.max(to);
    }
    total
}

/// The end of the last of those milliseconds.
fn frontier(store: &ControlPlane, segment: &Segment, at: Timestamp) -> Option<i64> {
    spans(store, segment, at).into_iter().map(|(_, to)| to).max()
}

fn window(segment: &Segment, at: Timestamp) -> (i64, i64) {
    let anchor = &segment.terms().anchor;
    let end = segment.ended_at().map_or(at, |ended_at| ended_at.min(at));
    let start = signed(anchor.mono_ms.get());
    (start, start + (end.micros_since(anchor.at) / 1000).max(0))
}

fn spans(store: &ControlPlane, segment: &Segment, at: Timestamp) -> Vec<(i64, i64)> {
    let (start, end) = window(segment, at);
    let terms = segment.terms();
    let of_run = store.meter_events.values().filter(|event| {
        event.instance_id == terms.instance_id
            && event.generation == terms.generation
            && event.boot_id == terms.anchor.boot_id
    });
    let spans = of_run
        .map(|event| (signed(event.from_mono_ms.get()).max(start), signed(event.to_mono_ms.get()).min(end)));
    let mut spans: Vec<(i64, i64)> = spans.filter(|(from, to)| from < to).collect();
    spans.sort_unstable();
    spans
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("a clock of milliseconds")
}

fn segments_of(store: &ControlPlane, tenant: usize) -> impl Iterator<Item = &Segment> {
    let tenant_id = &store.ledgers[tenant].tenant_id;
    store.segments.values().filter(move |segment| segment.terms().tenant_id == *tenant_id)
}

/// What a tenant could spend at `at`: unexpired grants less what holds keep.
pub fn available(store: &ControlPlane, tenant: usize, at: Timestamp) -> i64 {
    let ledger = &store.ledgers[tenant];
    let granted: i64 =
        ledger.grants.iter().filter(|grant| spendable(grant, at)).map(|grant| grant.remaining().get()).sum();
    (granted - ledger.funds().held().get()).max(0)
}

/// M3: a start goes ahead exactly when an hour of everything is there.
pub fn an_hour_is_there(store: &ControlPlane, tenant: usize, starting: Rate, now: Timestamp, admitted: bool) {
    let accrued: i64 = segments_of(store, tenant)
        .map(|segment| {
            let seconds = (proven_ms(store, segment, now) / 1000).max(segment.settled().seconds.get());
            charged(segment.terms().rate, seconds) - segment.settled().micros.get()
        })
        .sum();
    let burning: i64 = segments_of(store, tenant)
        .filter(|segment| segment.ended_at().is_none())
        .map(|segment| segment.terms().rate.hourly().get())
        .sum();
    let left = (available(store, tenant, now) - accrued).max(0);
    let needed = burning + starting.hourly().get();
    assert_eq!(admitted, left >= needed, "M3: a start with {left} for {needed}");
}

/// M13: before what is left of a grant goes back, everything proven before its expiry has drawn on it.
pub fn nothing_proven_was_left_to_an_expired_grant(store: &ControlPlane, tenant: usize, grant: &Grant) {
    let last = grant.terms().expires_at.expect("it expired").plus_micros(-1);
    let left = available(store, tenant, last);
    for segment in segments_of(store, tenant) {
        let (proven, settled) = (proven_ms(store, segment, last) / 1000, segment.settled());
        let next = charged(segment.terms().rate, settled.seconds.get() + 1) - settled.micros.get();
        assert!(
            proven <= settled.seconds.get() || next > left,
            "M13: {grant:?} goes back, and {proven} s of {segment:?} were not drawn on it"
        );
    }
}

/// M3, M19: up to `until` everything is paid, and the next second to complete is not.
pub fn the_money_ends_there(
    store: &ControlPlane,
    tenant: usize,
    read: &Funds,
    until: Timestamp,
    now: Timestamp,
) {
    let expired = read.grants().iter().filter(|grant| grant.remaining().get() > 0 && !spendable(grant, now));
    // Taken back or drawn on in this very transaction: the end was judged from before the expiry.
    let judged_at = expired
        .filter(|grant| store.ledgers[tenant].grants.contains(grant))
        .filter_map(|grant| grant.terms().expires_at)
        .min()
        .map_or(now, |expires_at| expires_at.plus_micros(-1));
    let open: Vec<&Segment> =
        segments_of(store, tenant).filter(|segment| segment.ended_at().is_none()).collect();
    let running_ms = |segment: &Segment, at: Timestamp| {
        let (start, now_end) = window(segment, judged_at);
        let reached = frontier(store, segment, judged_at).unwrap_or(start);
        let assumed = proven_ms(store, segment, judged_at) + now_end - reached.max(start);
        assumed + at.micros_since(judged_at).div_euclid(1000)
    };
    let spent = |at: Timestamp| -> i64 {
        segments_of(store, tenant)
            .map(|segment| {
                let ms = match segment.ended_at() {
                    Some(ended_at) => proven_ms(store, segment, ended_at),
                    None => running_ms(segment, at),
                };
                let seconds = ms.div_euclid(1000).max(segment.settled().seconds.get());
                charged(segment.terms().rate, seconds) - segment.settled().micros.get()
            })
            .sum()
    };
    let settled_at = open.iter().map(|segment| segment.settled_until()).max();
    let nothing_before = settled_at.is_some_and(|at| until.micros_since(at) <= 1_000);
    assert!(
        spent(until) <= available(store, tenant, until) || nothing_before,
        "M3: {} is spent of {} by {until}",
        spent(until),
        available(store, tenant, until)
    );
    let next = open.iter().map(|segment| 1000 - running_ms(segment, until).rem_euclid(1000)).min();
    let next = until.plus_micros(next.expect("something runs") * 1000);
    let changes = open.iter().any(|segment| {
        let (offer, version) = (&segment.terms().offer_id, segment.terms().price_version);
        store.book.after(offer, version).any(|price| price.effective_from <= next)
    });
    assert!(
        changes || spent(next) > available(store, tenant, next),
        "M19: the money ends at {until}, and lasts beyond {next}: {} of {}",
        spent(next),
        available(store, tenant, next)
    );
}

/// M1, M2, and what segments say against what the ledger says.
pub fn ledgers(store: &ControlPlane) {
    for ledger in &store.ledgers {
        for transfer in ledger.transfers.values() {
            let sum: i128 = transfer.entries().iter().map(|entry| i128::from(entry.amount.get())).sum();
            assert_eq!(sum, 0, "M1: {transfer:?}");
        }
        for (kind, (balance, entries)) in &ledger.wallets {
            let sum: i64 = entries.iter().map(|entry| entry.amount.get()).sum();
            let last = entries.last().map_or(0, |entry| entry.balance_after.get());
            assert_eq!((balance.posted().get(), last), (sum, sum), "M2: {kind}");
            assert!(entries.iter().zip(1..).all(|(entry, seq)| entry.seq == seq), "M2: sequence");
            assert!(entries.iter().all(|entry| entry.balance_after.get() >= 0), "M3: below the floor");
            let moved =
                ledger.transfers.values().filter_map(|transfer| transfer.amount_on(balance.account_id()));
            assert_eq!(
                moved.map(|amount| i128::from(amount.get())).sum::<i128>(),
                i128::from(sum),
                "M2: transfers"
            );
            let buckets = ledger.grants.iter().filter(|grant| grant.wallet().kind() == *kind);
            assert_eq!(
                buckets.map(|grant| grant.remaining().get()).sum::<i64>(),
                sum,
                "M2: buckets of {kind}"
            );
        }
        promo_never_becomes_cash(ledger.transfers.values());
    }
    for segment in store.segments.values() {
        let settled = segment.settled();
        assert_eq!(
            charged(segment.terms().rate, settled.seconds.get()),
            settled.micros.get(),
            "M4: {segment:?}"
        );
        let of = store.ledgers.iter().flat_map(|ledger| ledger.transfers.values());
        let posted: i64 = of
            .filter(|transfer| transfer.subject().segment_id.as_ref() == Some(segment.id()))
            .map(|transfer| transfer.amount().get())
            .sum();
        assert_eq!(posted, settled.micros.get(), "the ledger and {segment:?} differ");
    }
}

fn promo_never_becomes_cash<'a>(transfers: impl Iterator<Item = &'a Transfer>) {
    for transfer in transfers {
        let (debit, credit) = (transfer.debit().kind(), transfer.credit().kind());
        let crossed = debit == AccountKind::WalletPromo && credit == AccountKind::WalletCash;
        let usage = transfer.kind() == TransferKind::Usage;
        assert!(!crossed && (!usage || credit == AccountKind::RevenueGpu), "M17: {transfer:?}");
    }
}
