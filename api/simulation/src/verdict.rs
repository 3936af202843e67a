//! The ledger beside the oracle's bill, once a world has come to rest.

use tarn_billing::segment::{CloseReason, SegmentState};
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::{BootId, Timestamp};

use crate::audit;
use crate::control_plane::ControlPlane;
use crate::host::Truth;
use crate::oracle::{Line, Oracle};
use crate::script::{Script, What};

/// What a host's clock really showed when an end was committed.
#[derive(Debug, Clone)]
pub struct Acceptance {
    pub id: InstanceId,
    pub boot_id: BootId,
    pub mono_ms: u64,
    pub slept: bool,
}

/// What a world was like, so that a run of many can be seen to reach what it should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub instances: usize,
    pub segments: usize,
    pub seconds: i64,
    pub micros: i64,
    /// Segments that ended because the money did.
    pub exhausted: usize,
    /// Segments that ended because a price began.
    pub split: usize,
    pub expired_grants: usize,
    /// Seconds that were proven and that no money was left for.
    pub unpaid_seconds: i64,
}

/// Everything that late copies must not change.
pub fn digest(store: &ControlPlane) -> Vec<String> {
    let ledgers = store.ledgers.iter().flat_map(|ledger| {
        let wallets = ledger.wallets.values().map(|wallet| format!("{wallet:?}"));
        let grants = ledger.grants.iter().map(|grant| format!("{grant:?}"));
        wallets
            .chain(grants)
            .chain(ledger.transfers.values().map(|transfer| format!("{transfer:?}")))
            .collect::<Vec<_>>()
    });
    ledgers.chain(store.segments.values().map(|segment| format!("{segment:?}"))).collect()
}

pub fn judge(store: &ControlPlane, truths: &[&Truth], accepted: &[Acceptance], script: &Script) -> Summary {
    bill_is_the_oracles(store, truths);
    nothing_bills_after_an_accepted_end(store, accepted, script);
    unpaid_only_without_money(store);
    for ledger in &store.ledgers {
        let held = ledger.funds().held().get();
        assert_eq!(held, 0, "M18: a start that is over keeps money back");
    }
    summary(store)
}

/// M4, M6, M7, M9–M12, M18: line by line, what was proven is what really ran and was to be billed.
fn bill_is_the_oracles(store: &ControlPlane, truths: &[&Truth]) {
    let expected = Oracle::of(&store.facts).lines(truths);
    let billed = store.segments.values().map(|segment| {
        let terms = segment.terms();
        assert!(segment.ended_at().is_some(), "M11: a segment is open at the end: {segment:?}");
        Line {
            instance_id: terms.instance_id.clone(),
            generation: terms.generation,
            from_ms: i64::try_from(terms.anchor.mono_ms.get()).expect("a clock"),
            price_version: terms.price_version.get(),
            primary: terms.meter.card().expect("a card's segment").clone(),
            seconds: segment.confirmed(Timestamp::from_micros(i64::MAX / 2)).get(),
        }
    });
    let mut billed: Vec<Line> = billed.filter(|line| line.seconds > 0).collect();
    billed.sort();
    assert_eq!(billed, expected, "M6: the bill on the left, the truth on the right");
    for segment in store.segments.values() {
        let terms = segment.terms();
        let ran = truths.iter().find(|truth| {
            truth.instance_id == terms.instance_id
                && truth.generation == terms.generation
                && truth.boot_id == terms.anchor.boot_id
        });
        let ran = ran.expect("M18: only what ran is billed");
        let died = ran.died.expect("it ended");
        let inside =
            segment.coverage().intervals().iter().all(|(from, to)| ran.ready <= *from && *to <= died);
        assert!(inside, "M9: {segment:?} bills what never ran: {ran:?}");
        assert_eq!(terms.meter.card(), Some(&ran.primary), "M12: the primary alone is metered");
    }
}

/// How much of a host's lag is taken for the delay of reports.
const LAG_MS: u64 = 5_000;

fn nothing_bills_after_an_accepted_end(store: &ControlPlane, accepted: &[Acceptance], script: &Script) {
    // A clock of ours that was set ahead stands for time that never passed: what it bounds is bounded by evidence alone.
    if script.happenings.iter().any(|happening| matches!(happening.what, What::WallStep { ms } if ms > 0)) {
        return;
    }
    for end in accepted {
        let slack = if end.slept { LAG_MS } else { 0 };
        let of = store.segments.values().filter(|segment| {
            let terms = segment.terms();
            terms.instance_id == end.id
                && terms.anchor.boot_id == end.boot_id
                && terms.anchor.mono_ms.get() < end.mono_ms
        });
        for segment in of {
            // A price begins for a run that is behind our clock when the run's own clock is there.
            let priced =
                matches!(segment.state(), SegmentState::Closed { reason: CloseReason::PriceChanged, .. });
            if end.slept && priced {
                continue;
            }
            let last = segment.coverage().intervals().last().map_or(0, |(_, to)| *to);
            assert!(last <= end.mono_ms + slack, "M11: {segment:?} bills beyond its accepted end: {end:?}");
        }
    }
}

fn unpaid_only_without_money(store: &ControlPlane) {
    let now = Timestamp::from_micros(i64::MAX / 2);
    for (tenant, ledger) in store.ledgers.iter().enumerate() {
        for segment in store.segments.values().filter(|segment| segment.terms().tenant_id == ledger.tenant_id)
        {
            let (proven, settled) = (segment.confirmed(now).get(), segment.settled());
            assert_eq!(audit::proven_ms(store, segment, now) / 1000, proven, "M5, M7: {segment:?}");
            assert!(settled.seconds.get() <= proven, "M5: more is settled than proven: {segment:?}");
            let next = audit::charged(segment.terms().rate, settled.seconds.get() + 1) - settled.micros.get();
            let left = audit::available(store, tenant, store.last());
            assert!(
                settled.seconds.get() == proven || next > left,
                "M6: {left} left, and unpaid: {segment:?}"
            );
        }
    }
}

fn summary(store: &ControlPlane) -> Summary {
    use tarn_billing::transfer::TransferKind;
    let ended_by = |wanted: CloseReason| {
        let of = store.segments.values().filter(
            |segment| matches!(segment.state(), SegmentState::Closed { reason, .. } if reason == wanted),
        );
        of.count()
    };
    let far = Timestamp::from_micros(i64::MAX / 2);
    let transfers = store.ledgers.iter().flat_map(|ledger| ledger.transfers.values());
    let settled = |segment: &tarn_billing::segment::Segment| segment.settled().seconds.get();
    Summary {
        instances: store.order.len(),
        segments: store.segments.len(),
        seconds: store.segments.values().map(settled).sum(),
        micros: store.ledgers.iter().map(crate::control_plane::Ledger::earned).sum(),
        exhausted: ended_by(CloseReason::BalanceExhausted),
        split: ended_by(CloseReason::PriceChanged),
        expired_grants: transfers.filter(|transfer| transfer.kind() == TransferKind::GrantExpiry).count(),
        unpaid_seconds: store
            .segments
            .values()
            .map(|segment| segment.confirmed(far).get() - settled(segment))
            .sum(),
    }
}
