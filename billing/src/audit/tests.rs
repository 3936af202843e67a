//! A small ledger made by settlement itself passes; every wrong value in it is named.

use proptest::prelude::*;
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, GrantId, HoldId, HostId, InstanceId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};

use super::movements::{EntryFact, GrantFact, TransferFact};
use super::overlaps::SpanFact;
use super::reversals::MovementFact;
use super::segments::{EvidenceFact, SegmentFact, UsageFact};
use super::wallets::{AccountFact, BalanceFact, HoldFact, WalletEntryFact};
use super::{Audited, Auditor, Counted, Difference, Rule};
use crate::account::Account;
use crate::funds::Funds;
use crate::grant::{Grant, GrantKind, GrantTerms};
use crate::meter::Meter;
use crate::money::Micros;
use crate::price::{Price, PriceBook, PriceVersion};
use crate::rate::Rate;
use crate::segment::{Anchor, CloseReason, Segment, SegmentState, SegmentTerms};
use crate::settlement::settle;
use crate::transfer::{Transfer, TransferKind};

const OPENED: Timestamp = Timestamp::from_micros(1_800_000_000_123_456);
const ANCHOR_MS: u64 = 5_000;

/// Everything a database would hold.
#[derive(Debug, Clone)]
struct Books {
    prices: Vec<Price>,
    grants: Vec<GrantFact>,
    transfers: Vec<TransferFact>,
    accounts: Vec<AccountFact>,
    holds: Vec<HoldFact>,
    entries: Vec<WalletEntryFact>,
    segments: Vec<SegmentFact>,
    evidence: Vec<EvidenceFact>,
    counted: Counted,
}

fn tenant() -> TenantId {
    TenantId::new(OPENED, 1)
}

fn grant(number: u128, kind: GrantKind, micros: i64) -> Grant {
    Grant::new(GrantTerms {
        id: GrantId::new(OPENED, number),
        tenant_id: tenant(),
        kind,
        priority: 0,
        amount: Micros::new(micros),
        granted_at: OPENED.plus_seconds(-10),
        expires_at: None,
    })
    .unwrap()
}

fn price() -> Price {
    Price {
        offer_id: "pool-96".parse().unwrap(),
        version: PriceVersion::FIRST,
        rate: Rate::per_hour(Micros::new(2_400_000)).unwrap(),
        effective_from: OPENED.plus_seconds(-1000),
    }
}

fn open() -> Segment {
    Segment::open(SegmentTerms {
        id: SegmentId::new(OPENED, 7),
        tenant_id: tenant(),
        instance_id: InstanceId::new(OPENED, 7),
        generation: Generation::new(1),
        offer_id: "pool-96".parse().unwrap(),
        meter: Meter::Card(GpuUuid::from_bytes([7; 16])),
        price_version: PriceVersion::FIRST,
        rate: price().rate,
        anchor: Anchor { at: OPENED, boot_id: BootId::new("boot"), mono_ms: MonoMillis::new(ANCHOR_MS) },
    })
}

/// Posts `transfer` as the store would.
fn post(books: &mut Books, transfer: &Transfer) {
    let [debit, credit] = transfer.entries().map(|entry| {
        let account = books.accounts.iter_mut().find(|account| account.id == entry.account_id).unwrap();
        let Some(balance) = &mut account.balance else {
            return EntryFact { amount: entry.amount, seq: None, balance_after: None };
        };
        balance.posted = balance.posted.checked_add(entry.amount).unwrap();
        balance.version += 1;
        let (seq, balance_after) = (balance.version, Some(balance.posted));
        let account_id = entry.account_id;
        books.entries.push(WalletEntryFact { account_id, seq, amount: entry.amount, balance_after });
        EntryFact { amount: entry.amount, seq: Some(seq), balance_after }
    });
    books.transfers.push(TransferFact {
        id: transfer.id().clone(),
        kind: transfer.kind(),
        debit: transfer.debit().id().clone(),
        credit: transfer.credit().id().clone(),
        amount: transfer.amount(),
        tenant_id: Some(tenant()),
        segment_id: transfer.subject().segment_id.clone(),
        grant_id: transfer.subject().grant_id.clone(),
        reverses: transfer.subject().reverses.clone(),
        at: transfer.at(),
        entries: 2,
        debit_entry: Some(debit),
        credit_entry: Some(credit),
    });
}

/// Two grants (the first of `first_micros`), evidence in `reports`, settled after each second of `settled_at`, then closed; and one
/// reversal.
fn books(first_micros: i64, reports: &[(u64, u64)], settled_at: &[i64]) -> Books {
    let empty = |account: &Account| AccountFact {
        id: account.id().clone(),
        kind: account.kind(),
        tenant_id: account.tenant_id().cloned(),
        balance: account.kind().wallet().then_some(BalanceFact {
            posted: Micros::ZERO,
            held: Micros::ZERO,
            version: 0,
        }),
    };
    let accounts = [Account::all_of(&tenant()), Account::all_of_system()].concat();
    let mut books = Books {
        prices: vec![price()],
        grants: vec![],
        transfers: vec![],
        accounts: accounts.iter().map(empty).collect(),
        holds: vec![],
        entries: vec![],
        segments: vec![],
        evidence: vec![],
        counted: Counted::default(),
    };
    let grants = vec![grant(1, GrantKind::Trial, first_micros), grant(2, GrantKind::Cash, 900_000_000)];
    for grant in &grants {
        post(&mut books, &grant.funding().unwrap());
    }
    let mut funds = Funds::new(grants, Micros::ZERO).unwrap();
    let mut segment = open();
    let host_id = HostId::new(OPENED, 1);
    for (seq, (from, to)) in (1..).zip(reports) {
        let evidence = UsageEvidence {
            seq: Sequence::new(seq),
            boot_id: BootId::new("boot"),
            instance_id: segment.terms().instance_id.clone(),
            generation: Generation::new(1),
            primary: segment.terms().meter.card().unwrap().clone(),
            from_mono_ms: MonoMillis::new(*from),
            to_mono_ms: MonoMillis::new(*to),
            excused_ms: 0,
        };
        let received_at = OPENED.plus_seconds(1);
        segment.apply(&evidence, received_at).unwrap();
        books.evidence.push(EvidenceFact {
            segment_id: segment.id().clone(),
            host_id: host_id.clone(),
            seq,
            from_ms: *from,
            to_ms: *to,
            excused_ms: 0,
            received_at,
        });
    }
    let mut book = PriceBook::from_stored([price()]).unwrap();
    let end = OPENED.plus_seconds(3000);
    let instants = settled_at.iter().map(|second| OPENED.plus_seconds(*second));
    for at in instants.chain([end]) {
        if at == end {
            segment = segment.close(end, CloseReason::UserRequest).unwrap();
        }
        let plan = settle(&segment, &book, &funds, at).unwrap();
        segment = segment.settle_to(plan.before, plan.after).unwrap();
        for charge in &plan.charges {
            post(&mut books, &charge.transfer);
        }
        funds = plan.funds_after;
    }
    if let Some(charge) = books.transfers.iter().find(|fact| fact.kind == TransferKind::Usage).cloned() {
        give_back(&mut books, &charge, &mut funds);
    }
    book.append(&price().offer_id, price().rate, end, end).unwrap();
    let remaining = |grant: &Grant| GrantFact { terms: grant.terms().clone(), remaining: grant.remaining() };
    books.grants = funds.grants().iter().map(remaining).collect();
    books.prices = book.versions(&price().offer_id).to_vec();
    books.segments = vec![fact(&segment, host_id, end)];
    hold(&mut books);
    count(&mut books);
    books
}

/// Reverses half of a charge.
fn give_back(books: &mut Books, charge: &TransferFact, funds: &mut Funds) {
    let account = |id| {
        let known = [Account::all_of(&tenant()), Account::all_of_system()].concat();
        known.into_iter().find(|account| account.id() == id).unwrap()
    };
    let accounts = (account(&charge.debit), account(&charge.credit));
    let subject = crate::transfer::Subject {
        grant_id: charge.grant_id.clone(),
        segment_id: charge.segment_id.clone(),
        reverses: None,
    };
    let original =
        Transfer::new(charge.id.clone(), charge.kind, accounts, charge.amount, subject, charge.at).unwrap();
    let half = Micros::new((charge.amount.get() + 1) / 2);
    let at = OPENED.plus_seconds(4000);
    let reversal = original.reversal(TransferId::new(at, 99), half, Micros::ZERO, at).unwrap();
    post(books, &reversal);
    let given = funds.grants().iter().map(|grant| {
        let back = if Some(grant.id()) == charge.grant_id.as_ref() { half.get() } else { 0 };
        Grant::from_stored(grant.terms().clone(), Micros::new(grant.remaining().get() + back)).unwrap()
    });
    *funds = Funds::new(given.collect(), Micros::ZERO).unwrap();
}

fn hold(books: &mut Books) {
    let cash = Account::wallet_cash(&tenant());
    let amount = Micros::new(5);
    books.holds.push(HoldFact { id: HoldId::new(OPENED, 1), account_id: cash.id().clone(), amount });
    let wallet = books.accounts.iter_mut().find(|account| account.id == *cash.id()).unwrap();
    wallet.balance.as_mut().unwrap().held = amount;
}

fn fact(segment: &Segment, host_id: HostId, updated_at: Timestamp) -> SegmentFact {
    let (ended_at, close_reason) = match segment.state() {
        SegmentState::Open => (None, None),
        SegmentState::Closed { ended_at, reason } => (Some(ended_at), Some(reason)),
    };
    SegmentFact {
        terms: segment.terms().clone(),
        covered: segment.coverage().clone(),
        ended_at,
        close_reason,
        settled: segment.settled(),
        updated_at,
        lease_host: Some(host_id),
        instance_tenant: Some(tenant()),
        continues: false,
    }
}

fn count(books: &mut Books) {
    let all = |len: usize| u64::try_from(len).unwrap();
    books.counted = Counted {
        accounts: all(books.accounts.len()),
        balances: all(books.accounts.iter().filter(|account| account.balance.is_some()).count()),
        transfers: all(books.transfers.len()),
        reversals: all(books.transfers.iter().filter(|fact| fact.reverses.is_some()).count()),
        entries: 2 * all(books.transfers.len()),
        grants: all(books.grants.len()),
        holds_pending: all(books.holds.len()),
        segments: all(books.segments.len()),
        disks: 0,
    };
}

fn audit(books: &Books) -> Result<Audited, Difference> {
    let mut auditor = Auditor::new(books.prices.clone())?;
    for grant in books.grants.iter().cloned() {
        auditor.movements.grant(grant);
    }
    books.transfers.iter().try_for_each(|fact| auditor.movements.transfer(fact))?;
    auditor.movements.end_of_tenants()?;
    for reversal in books.transfers.iter().filter(|fact| fact.reverses.is_some()) {
        let original = books.transfers.iter().find(|fact| Some(&fact.id) == reversal.reverses.as_ref());
        auditor.reversals.reversal(&movement(original.unwrap()), &movement(reversal))?;
    }
    books.accounts.iter().cloned().try_for_each(|fact| auditor.wallets.account(fact))?;
    books.holds.iter().try_for_each(|fact| auditor.wallets.hold(fact))?;
    books.entries.iter().try_for_each(|fact| auditor.wallets.entry(fact))?;
    auditor.wallets.end_of_accounts()?;
    books.segments.iter().cloned().try_for_each(|fact| auditor.segments.segment(fact))?;
    books.evidence.iter().try_for_each(|fact| auditor.segments.evidence(fact))?;
    let mut usages: Vec<&TransferFact> =
        books.transfers.iter().filter(|fact| fact.kind == TransferKind::Usage).collect();
    usages.sort_by(|one, other| one.id.cmp(&other.id));
    for fact in usages {
        auditor.segments.usage(&UsageFact {
            id: fact.id.clone(),
            segment_id: fact.segment_id.clone().unwrap(),
            tenant_id: fact.tenant_id.clone(),
            grant_id: fact.grant_id.clone(),
            amount: fact.amount,
        })?;
    }
    auditor.segments.end_of_segments()?;
    for owner in ["card", "instance"] {
        auditor.overlaps.next_kind();
        for fact in &books.segments {
            auditor.overlaps.span(span(owner, fact))?;
        }
    }
    auditor.finish(&books.counted)
}

fn movement(fact: &TransferFact) -> MovementFact {
    MovementFact {
        id: fact.id.clone(),
        kind: fact.kind,
        debit: fact.debit.clone(),
        credit: fact.credit.clone(),
        amount: fact.amount,
        segment_id: fact.segment_id.clone(),
        grant_id: fact.grant_id.clone(),
        undone: Micros::ZERO,
    }
}

fn span(owner: &str, fact: &SegmentFact) -> SpanFact {
    let proven = fact.covered.intervals();
    SpanFact {
        owner: owner.to_owned(),
        segment_id: fact.terms.id.clone(),
        started_at: fact.terms.anchor.at,
        ended_at: fact.ended_at,
        boot_id: fact.terms.anchor.boot_id.clone(),
        proven: proven.first().zip(proven.last()).map(|(first, last)| (first.0, last.1)),
    }
}

fn plain() -> Books {
    books(300_000, &[(5_000, 900_000), (900_000, 1_700_500), (1_800_000, 2_900_000)], &[60, 61, 700, 2000])
}

#[test]
fn a_ledger_that_settlement_made_passes() {
    let audited = audit(&plain()).unwrap();
    // 1,695.5 s and 1,100 s are proven, and all of it was paid.
    assert_eq!((audited.settled_seconds, audited.unsettled_seconds), (2_795, 0));
    assert_eq!(audited.totals.values().sum::<i128>(), 0);
    assert!(audited.transfers >= 8, "{audited:?}");
}

type Spoil = fn(&mut Books);

/// One wrong value, the rule that names it, and what its row begins with.
const SPOILS: &[(Rule, &str, Spoil)] = &[
    (Rule::PriceBook, "price book", |books| books.prices[1].effective_from = books.prices[0].effective_from),
    (Rule::Transfer, "transfer trf_", |books| books.transfers[0].kind = TransferKind::TopUp),
    (Rule::Transfer, "transfer trf_", |books| books.transfers[0].amount = Micros::ZERO),
    (Rule::Transfer, "transfer trf_", |books| books.transfers[0].tenant_id = None),
    (Rule::Transfer, "transfer trf_", |books| books.transfers[0].tenant_id = Some(TenantId::new(OPENED, 2))),
    (Rule::EntriesBalance, "transfer trf_", |books| books.transfers[0].debit_entry = None),
    (Rule::EntriesBalance, "transfer trf_", |books| {
        books.transfers[0].credit_entry.as_mut().unwrap().amount = Micros::new(1);
    }),
    (Rule::EntriesBalance, "transfer trf_", |books| books.transfers[0].entries = 3),
    (Rule::RunningBalance, "transfer trf_", |books| {
        books.transfers[0].credit_entry.as_mut().unwrap().seq = None;
    }),
    (Rule::RunningBalance, "transfer trf_", |books| {
        books.transfers[0].debit_entry.as_mut().unwrap().seq = Some(1);
    }),
    (Rule::Grant, "grant grn_", |books| books.grants[0].remaining = Micros::new(1)),
    (Rule::Grant, "grant grn_", |books| books.grants[1].terms.amount = Micros::new(1)),
    (Rule::Grant, "transfer trf_", |books| books.transfers[0].grant_id = None),
    (Rule::Grant, "transfer trf_", |books| {
        let other = books.grants[1].terms.id.clone();
        books.transfers[0].grant_id = Some(other);
    }),
    (Rule::Reversal, "transfer trf_", |books| {
        let charge = books.transfers.last().unwrap().reverses.clone();
        let other = books
            .transfers
            .iter()
            .find(|fact| fact.kind == TransferKind::Usage && Some(&fact.id) != charge.as_ref());
        let other = other.unwrap().id.clone();
        books.transfers.last_mut().unwrap().reverses = Some(other);
    }),
    (Rule::Account, "account acc_", |books| books.accounts[0].tenant_id = Some(TenantId::new(OPENED, 3))),
    (Rule::Account, "account acc_", |books| books.accounts[0].balance = None),
    (Rule::RunningBalance, "entry 2 of account acc_", |books| {
        let gap = books.entries.iter_mut().find(|entry| entry.seq == 1).unwrap();
        gap.seq = 2;
    }),
    (Rule::RunningBalance, "entry 1 of account acc_", |books| {
        books.entries[0].balance_after = Some(Micros::new(3));
    }),
    (Rule::WalletBalance, "wallet acc_", |books| {
        books.accounts[0].balance.as_mut().unwrap().posted = Micros::new(3);
    }),
    (Rule::WalletBalance, "wallet acc_", |books| books.accounts[0].balance.as_mut().unwrap().version += 1),
    (Rule::Hold, "wallet acc_", |books| books.holds.clear()),
    (Rule::SegmentPrice, "segment seg_", |books| {
        books.segments[0].terms.rate = Rate::per_hour(Micros::new(2_400_001)).unwrap();
    }),
    (Rule::SegmentPrice, "segment seg_", |books| {
        books.segments[0].terms.price_version = PriceVersion::new(2);
    }),
    (Rule::SegmentPrice, "segment seg_", |books| books.prices[1].effective_from = OPENED.plus_seconds(100)),
    (Rule::Evidence, "segment seg_", |books| drop(books.evidence.pop())),
    (Rule::Evidence, "segment seg_", |books| books.evidence[0].to_ms -= 1),
    (Rule::Evidence, "evidence 1 of host hst_", |books| books.evidence[0].host_id = HostId::new(OPENED, 2)),
    (Rule::Evidence, "segment seg_", |books| books.segments[0].instance_tenant = None),
    (Rule::Evidence, "segment seg_", |books| books.segments[0].close_reason = None),
    (Rule::Evidence, "segment seg_", |books| {
        let evidence =
            EvidenceFact { seq: 9, from_ms: 1_700_600, to_ms: 1_700_700, ..books.evidence[0].clone() };
        books.evidence.push(evidence);
    }),
    (Rule::Charge, "segment seg_", |books| books.segments[0].settled.micros = Micros::new(1)),
    (Rule::Charge, "segment seg_", |books| {
        books.segments[0].settled.seconds = crate::rate::Seconds::new(2_794).unwrap();
    }),
    (Rule::Complete, "segments", |books| books.counted.segments += 1),
    (Rule::Complete, "entries", |books| books.counted.entries += 1),
];

#[test]
fn every_wrong_value_is_named() {
    for (number, (rule, row, spoil)) in SPOILS.iter().enumerate() {
        let mut spoilt = plain();
        spoil(&mut spoilt);
        let found = audit(&spoilt).expect_err(&format!("spoil {number} of {rule} was not seen"));
        assert_eq!((found.rule, found.row.starts_with(row)), (*rule, true), "spoil {number}: {found}");
    }
}

/// A charge that is missing, doubled, moved to another second or of another amount.
#[test]
fn every_wrong_charge_is_named() {
    let usage = |books: &Books, nth: usize| {
        let usages = books.transfers.iter().enumerate().filter(|(_, fact)| fact.kind == TransferKind::Usage);
        usages.map(|(place, _)| place).nth(nth).unwrap()
    };
    let segments_only = |books: &Books| -> Result<(), Difference> {
        let mut auditor = Auditor::new(books.prices.clone())?;
        books.segments.iter().cloned().try_for_each(|fact| auditor.segments.segment(fact))?;
        books.evidence.iter().try_for_each(|fact| auditor.segments.evidence(fact))?;
        let mut facts: Vec<_> =
            books.transfers.iter().filter(|fact| fact.kind == TransferKind::Usage).collect();
        facts.sort_by(|one, other| one.id.cmp(&other.id));
        for fact in facts {
            let (segment_id, grant_id) = (fact.segment_id.clone().unwrap(), fact.grant_id.clone());
            let (id, tenant_id, amount) = (fact.id.clone(), fact.tenant_id.clone(), fact.amount);
            auditor.segments.usage(&UsageFact { id, segment_id, tenant_id, grant_id, amount })?;
        }
        auditor.segments.end_of_segments()
    };
    segments_only(&plain()).unwrap();
    let spoils: [fn(&mut Books, usize); 4] = [
        |books, at| drop(books.transfers.remove(at)),
        |books, at| books.transfers.push(books.transfers[at].clone()),
        |books, at| books.transfers[at].amount = Micros::new(books.transfers[at].amount.get() + 1),
        |books, at| books.transfers[at].id = TransferId::new(OPENED.plus_seconds(61), 5),
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        for nth in 0..3 {
            let mut spoilt = plain();
            let at = usage(&spoilt, nth);
            spoil(&mut spoilt, at);
            let found = segments_only(&spoilt).expect_err(&format!("spoil {number} of charge {nth}"));
            assert_eq!(found.rule, Rule::Charge, "{found}");
        }
    }
}

#[test]
fn two_segments_in_one_second_are_named() {
    let one = plain().segments.remove(0);
    let end = one.ended_at.unwrap();
    let later = |at: Timestamp, mono: u64| {
        let mut two = one.clone();
        two.terms.id = SegmentId::new(at, 8);
        two.terms.anchor.at = at;
        two.ended_at = None;
        let mut covered = crate::coverage::Coverage::default();
        covered.insert(mono, mono + 1000).unwrap();
        SegmentFact { covered, ..two }
    };
    let sweep = |two: SegmentFact| {
        let mut overlaps = super::overlaps::Overlaps::default();
        overlaps.span(span("card", &one)).and_then(|()| overlaps.span(span("card", &two)))
    };
    sweep(later(end, 3_000_000)).unwrap();
    let early = sweep(later(end.plus_micros(-1), 3_000_000)).unwrap_err();
    assert_eq!((early.rule, early.what), (Rule::Overlap, "start"));
    let again = sweep(later(end, 2_899_999)).unwrap_err();
    assert_eq!((again.rule, again.what), (Rule::Overlap, "first proven moment"));
}

proptest! {
    /// Whatever the instants of settlement, the order of reports and their overlaps.
    #[test]
    fn whatever_settlement_made_passes(
        first_micros in 1i64..2_000_000,
        reports in prop::collection::vec((0u64..2_900_000, 1u64..600_000), 0..12),
        mut settled_at in prop::collection::vec(0i64..3000, 0..12),
    ) {
        settled_at.sort_unstable();
        let reports: Vec<(u64, u64)> = reports.into_iter().map(|(from, length)| (from, from + length)).collect();
        prop_assert!(audit(&books(first_micros, &reports, &settled_at)).is_ok_and(|audited| audited.unsettled_seconds == 0));
    }
}

/// What the control plane alone witnesses is proven from end to end, and priced by the unit.
#[test]
fn what_only_its_ends_prove_is_proven_whole() {
    let mut spoilt = plain();
    let whole = |books: &mut Books, units: u32| {
        let fact = &mut books.segments[0];
        let rate = price().rate.hourly().get();
        fact.terms.rate = Rate::per_hour(Micros::new(rate * i64::from(units))).unwrap();
        fact.settled = crate::segment::Settled::default();
        (fact.terms.meter, fact.covered) = (Meter::Disk { gib: units }, crate::coverage::Coverage::whole());
        fact.terms.anchor.mono_ms = MonoMillis::new(0);
    };
    whole(&mut spoilt, 40);
    let audit_of = |books: &Books| {
        let mut auditor = Auditor::new(books.prices.clone())?;
        books.segments.iter().cloned().try_for_each(|fact| auditor.segments.segment(fact))?;
        auditor.segments.end_of_segments().map(|()| auditor.segments.unsettled_seconds)
    };
    assert_eq!(audit_of(&spoilt), Ok(3_000));
    spoilt.segments[0].terms.meter = Meter::Disk { gib: 39 };
    assert_eq!(audit_of(&spoilt).unwrap_err().rule, Rule::SegmentPrice);
    whole(&mut spoilt, 40);
    spoilt.segments[0].covered = crate::coverage::Coverage::default();
    assert_eq!(audit_of(&spoilt).unwrap_err().rule, Rule::Evidence);
}

/// What was paid out of a top-up is at most the top-up; what did not arrive may be paid out again.
#[test]
fn payouts_stand_against_their_top_up() {
    let system = |kind| Account::new(kind, None).unwrap().id().clone();
    let cash = Account::wallet_cash(&tenant()).id().clone();
    let fact = |number, kind, debit, credit, micros| MovementFact {
        id: TransferId::new(OPENED, number),
        kind,
        debit,
        credit,
        amount: Micros::new(micros),
        segment_id: None,
        grant_id: None,
        undone: Micros::ZERO,
    };
    let refund = || system(crate::account::AccountKind::Refund);
    let clearing = system(crate::account::AccountKind::TopupClearing);
    let top_up = fact(1, TransferKind::TopUp, clearing.clone(), cash.clone(), 10);
    let payout = |number| fact(number, TransferKind::Payout, cash.clone(), refund(), 10);
    let back = fact(9, TransferKind::Reversal, refund(), cash.clone(), 10);
    let lost = MovementFact { undone: Micros::new(10), ..payout(2) };
    let mut reversals = super::reversals::Reversals::default();
    reversals.reversal(&top_up, &lost).unwrap();
    reversals.reversal(&top_up, &payout(3)).unwrap();
    assert_eq!(reversals.reversal(&top_up, &payout(4)).unwrap_err().rule, Rule::Reversal);
    reversals.reversal(&lost, &back).unwrap();
    let elsewhere = MovementFact { debit: clearing, ..payout(5) };
    assert!(reversals.reversal(&top_up, &elsewhere).is_err());
    assert!(reversals.reversal(&payout(6), &payout(7)).is_err(), "a payout takes back no payout");
}
