//! M13, M16, V19: shares of one card. Each is a pool of its own, with its own broker and no donors; nothing but the card is common.

use std::time::{Duration, Instant};

use tarn_protocol::units::Bytes;

use crate::rig::{PATIENCE, PTX, Rig, Shape, Tenant, until};

const STEP: Bytes = Bytes::mib(2);
const TIER: Bytes = Bytes::gib(12);

fn share(cap: Bytes, host_tier_bytes: Option<Bytes>, number: u128) -> Shape {
    Shape { donors: vec![], cap_bytes: Some(cap), host_tier_bytes, lease: 100 + number, ..Shape::default() }
}

/// `count` shares of `cap` on one card.
fn sold(count: u128, cap: Bytes) -> Vec<Rig> {
    let first = Rig::new(&share(cap, None, 0));
    let others: Vec<Rig> = (1..count).map(|number| first.beside(&share(cap, None, number))).collect();
    // The first made the host, so it goes last.
    others.into_iter().chain([first]).collect()
}

/// What a card has for tenants: not what the driver keeps, nor the context of one process each.
fn net(rig: &Rig, tenants: u64) -> Bytes {
    let card = &rig.host.gpus()[rig.cards[0]];
    Bytes::new(card.memory_bytes - card.reserved_bytes - tenants * card.context_bytes)
}

/// Every tenant takes all that it bought while the others do, and has the bytes that it wrote.
fn all_fill(count: u64) {
    let cap = {
        let rig = Rig::without_broker(&share(Bytes::gib(1), None, 0));
        Bytes::new(net(&rig, count).get() / count).floor_to(STEP)
    };
    let rigs = sold(count.into(), cap);
    let mut tenants: Vec<Tenant> = rigs.iter().map(|rig| rig.spawn("dlopen", &["everything"])).collect();
    for tenant in &mut tenants {
        tenant.read_until("waiting");
    }
    for tenant in &tenants {
        let of = |fact| tenant.number(fact);
        let (total, free, taken) = (of("total"), of("free"), of("taken"));
        assert_eq!(
            (total, free, taken),
            (cap.get(), cap.get(), cap.get()),
            "of {count}: advertised, free, had"
        );
        assert_eq!((of("free_when_full"), of("bad")), (0, 0));
    }
    for tenant in &mut tenants {
        tenant.say("go on");
        tenant.end();
    }
    for rig in &rigs {
        until("the card is empty", || rig.used(0) == 0);
        assert_eq!(rig.log(), "");
    }
}

#[test]
fn m13_two_halves_and_four_quarters_are_filled_by_all_at_once() {
    all_fill(2);
    all_fill(4);
}

/// Takes blocks until the next one is refused.
fn fills(rig: &Rig) -> Tenant {
    rig.spawn_program("hinting", "dlopen", &["overflow", &Bytes::mib(64).to_string()], &[])
}

fn intact(tenant: &mut Tenant) {
    tenant.ask("check");
    assert_eq!(tenant.number("bad"), 0);
}

fn gives_back(mut tenant: Tenant) {
    tenant.say("free");
    tenant.end();
}

/// Three quarters of the card, twice.
fn oversold(rig: &Rig) -> Bytes {
    Bytes::new(net(rig, 0).get() * 3 / 4).floor_to(Bytes::mib(64))
}

#[test]
fn m16_of_two_oversold_shares_the_one_that_asks_too_late_is_out_of_memory_and_the_other_notices_nothing() {
    let cap = oversold(&Rig::without_broker(&share(Bytes::gib(1), None, 0)));
    let early = Rig::new(&share(cap, None, 0));
    let late = early.beside(&share(cap, None, 1));
    let mut neighbour = fills(&early);
    neighbour.read_until("waiting");
    assert_eq!(
        (neighbour.number("taken"), neighbour.number("full")),
        (cap.get(), 0),
        "it gets what it bought"
    );
    let mut handles = late.spawn("dlopen", &["attempt", &Bytes::mib(64).to_string()]);
    handles.read_until("waiting");
    let mut asker = fills(&late);
    asker.read_until("waiting");
    // It sees the truth, takes all of it, and is refused more by the code for it.
    assert_eq!(asker.number("total"), cap.get());
    let left = net(&early, 3).get() - cap.get();
    assert!(asker.number("free") <= left, "{left} left: {:?}", asker.facts);
    assert!(left - asker.number("taken") < Bytes::mib(64).get(), "{left} left: {:?}", asker.facts);
    asker.ask("more");
    assert_eq!(asker.number("more"), 2);
    handles.ask("try");
    assert_eq!(handles.number("attempt"), 2, "nor is there a handle to be had");
    intact(&mut neighbour);
    intact(&mut asker);
    // What the neighbour gives back is the asker's, up to what that one bought.
    gives_back(neighbour);
    asker.ask("more");
    assert_eq!(asker.number("more"), 0);
    gives_back(asker);
    handles.ask("try");
    assert_eq!(handles.number("attempt"), 0);
    handles.say("end");
    handles.end();
    let mut again = fills(&late);
    again.read_until("waiting");
    assert_eq!(again.number("taken"), cap.get());
    gives_back(again);
    until("the card is empty", || early.used(0) == 0);
    assert_eq!((early.log(), late.log()), (String::new(), String::new()));
}

#[test]
fn m16_two_oversold_shares_that_fill_at_once_take_the_card_between_them_and_lose_nothing() {
    let cap = oversold(&Rig::without_broker(&share(Bytes::gib(1), None, 0)));
    let one = Rig::new(&share(cap, None, 0));
    let other = one.beside(&share(cap, None, 1));
    for _ in 0..5 {
        let mut both = [fills(&one), fills(&other)];
        for tenant in &mut both {
            tenant.read_until("waiting");
        }
        let taken: u64 = both.iter().map(|tenant| tenant.number("taken")).sum();
        let there = net(&one, 2).get();
        assert!(taken <= there && there - taken < 2 * Bytes::mib(64).get(), "{taken} of {there}");
        for tenant in &mut both {
            assert!(tenant.number("taken") <= cap.get());
            intact(tenant);
        }
        both.into_iter().for_each(gives_back);
        until("the card is empty", || one.used(0) == 0);
    }
}

#[test]
fn m16_an_oversold_share_with_a_host_tier_moves_there_and_its_neighbour_notices_nothing() {
    let cap = oversold(&Rig::without_broker(&share(Bytes::gib(1), None, 0)));
    let early = Rig::new(&share(cap, None, 0));
    let late = early.beside(&share(cap, Some(TIER), 1));
    let mut neighbour = fills(&early);
    neighbour.read_until("waiting");
    let mut asker = fills(&late);
    asker.read_until("waiting");
    assert_eq!(asker.number("total"), cap.get(), "the tier is in no total");
    let (local, host) = (asker.number("local"), asker.number("host"));
    assert!(
        local + Bytes::mib(64).get() > net(&early, 2).get() - cap.get(),
        "the card first: {:?}",
        asker.facts
    );
    assert!(host > 0 && host <= TIER.get() && local + host == asker.number("taken"), "{:?}", asker.facts);
    intact(&mut neighbour);
    intact(&mut asker);
    asker.ask("more");
    assert_eq!(asker.number("more"), 2, "card and tier are full");
    neighbour.ask("more");
    assert_eq!(neighbour.number("more"), 2, "and its neighbour's cap is its own");
    gives_back(asker);
    intact(&mut neighbour);
    gives_back(neighbour);
    until("the card is empty", || early.used(0) == 0);
}

/// Shares of a card's processors are not sold, so launches are the driver's own and cost nothing more; what V19 asks of them here is that none is
/// lost and that the books of memory stay within bounds, whatever form they take.
#[test]
fn v19_tiny_kernels_of_every_form_reach_the_driver_and_no_figure_leaves_its_bounds() {
    let cap = Bytes::mib(192);
    let rigs = sold(2, cap);
    let observers: Vec<_> = rigs.iter().map(Rig::observer).collect();
    let most = Bytes::mib(96).to_string();
    let mut tenants: Vec<Tenant> =
        rigs.iter().map(|rig| rig.spawn_program("launching", "dlopen", &[PTX, &most], &[])).collect();
    for tenant in &mut tenants {
        tenant.read_until("waiting");
        for form in ["cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx"] {
            assert!(tenant.facts[form].ends_with("libcuda-real.so.1"), "{:?}", tenant.facts);
        }
    }
    let (start, length, mut looks) = (Instant::now(), Duration::from_secs(3), 0);
    // A charge is made before the cap is looked at, so it shows for a moment: at most one a thread.
    let shown_max = cap.get() + 4 * Bytes::mib(97).get();
    while start.elapsed() < length || looks < 200 {
        assert!(start.elapsed() < PATIENCE, "{looks} looks");
        for observer in &observers {
            let held = observer.processes();
            assert_eq!(held.len(), 1);
            assert!(held[0].local_bytes <= shown_max && held[0].donor_bytes == 0, "{held:?}");
        }
        let contexts = 2 * rigs[0].host.gpus()[0].context_bytes;
        assert!(rigs[0].used(0) <= contexts + 2 * cap.get(), "the card holds {}", rigs[0].used(0));
        looks += 1;
    }
    for tenant in &mut tenants {
        tenant.say("enough");
        tenant.end();
        let of = |fact| tenant.number(fact);
        assert_eq!((of("sum"), of("free")), (of("launches"), cap.get()), "{:?}", tenant.facts);
        assert!(of("captured") > 0 && of("blocks") > 10 && of("refused") > 0, "{:?}", tenant.facts);
    }
    until("the card is empty", || rigs[0].used(0) == 0);
    assert!(rigs.iter().all(|rig| rig.log().is_empty()));
}
