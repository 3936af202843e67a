//! Deaths and absences: of tenants, of the broker, of a donor's device node; forks; many processes at once.

use std::process::Command;
use std::time::Instant;

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, tenant, until};

fn empty(rig: &Rig) -> bool {
    rig.cards.iter().all(|&card| rig.used(card) == 0)
}

/// The books and the cards agree, and nothing is leased any more.
fn all_reclaimed(rig: &Rig) {
    let observer = rig.observer();
    until("every lease is reclaimed", || {
        observer.donors().iter().all(|donor| donor.leased_bytes == 0 && donor.quarantined_bytes == 0)
    });
    until("the cards are empty", || empty(rig));
    until("every slot is free", || observer.processes().is_empty());
}

#[test]
fn m1_random_allocations_of_three_processes_with_kills_add_up() {
    let rig = Rig::new(&Shape::default());
    let observer = rig.observer();
    let most = Bytes::mib(900).get().to_string();
    let story = ["churn", "16", "120", &most];
    let mut tenants: Vec<Tenant> = (0..3).map(|_| rig.spawn("dlopen", &story)).collect();
    for round in 0..4 {
        let victim = round % 3;
        tenants[victim].read_until("started=1");
        // Killed somewhere in the middle of its allocations.
        let start = Instant::now();
        until("the victim has donor memory or time is up", || {
            for figures in observer.donors() {
                assert!(figures.leased_bytes + figures.quarantined_bytes <= figures.capacity_bytes);
            }
            start.elapsed().as_millis() > 150 + 40 * round as u128
        });
        tenants[victim].kill();
        tenants[victim] = rig.spawn("dlopen", &story);
    }
    for tenant in &mut tenants {
        tenant.end();
        assert!(tenant.number("blocks") > 100);
    }
    all_reclaimed(&rig);
}

/// All together want less than there is, and more than the cap leaves on the primary: so nobody may hear that memory is out.
#[test]
fn m1_under_a_cap_no_process_is_refused_and_used_is_the_sum_of_live_blocks() {
    let cap = Bytes::gib(4);
    let rig = Rig::new(&Shape { cap_bytes: Some(cap), ..Shape::default() });
    let observer = rig.observer();
    let most = Bytes::mib(200).get().to_string();
    let story = ["churn", "16", "120", &most, "pause"];
    let mut tenants: Vec<Tenant> = (0..3).map(|_| rig.spawn("dlopen", &story)).collect();
    for victim in [0, 1, 2] {
        tenants[victim].read_until("started=1");
        let start = Instant::now();
        until("time is up", || {
            // What the card really holds: the cap, and what a context takes in each process and a killed one.
            let contexts = 4 * Bytes::mib(512).get();
            assert!(rig.used(rig.cards[0]) <= cap.get() + contexts, "{}", rig.used(rig.cards[0]));
            for held in observer.processes() {
                assert!(held.donor_bytes <= rig.config.donor_bytes().get(), "wrapped below zero: {held:?}");
            }
            start.elapsed().as_millis() > 200
        });
        tenants[victim].kill();
        tenants[victim] = rig.spawn("dlopen", &story);
    }
    for tenant in &mut tenants {
        tenant.read_until("waiting");
        assert_eq!(tenant.number("oom"), 0, "{:?}", tenant.facts);
    }
    let sum = |fact: &str| tenants.iter().map(|tenant| tenant.number(fact)).sum::<u64>();
    let (live, blocks) = (sum("live"), sum("live_blocks"));
    assert!(live > cap.get(), "{live} bytes spill");
    let used = || observer.processes().iter().map(|held| held.local_bytes + held.donor_bytes).sum::<u64>();
    let granules = blocks * rig.config.policy.granule_bytes.get();
    assert!((live..=live + granules).contains(&used()), "{} used for {live} in {blocks} blocks", used());
    until("donors hold what the books say", || {
        let leased: u64 = observer.donors().iter().map(|donor| donor.leased_bytes).sum();
        leased == observer.processes().iter().map(|held| held.donor_bytes).sum::<u64>()
    });
    for tenant in &mut tenants {
        tenant.say("go on");
        tenant.end();
    }
    all_reclaimed(&rig);
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let rig = Rig::new(&Shape::default());
    let mut victim = rig.spawn("dlopen", &["hold", &Bytes::gib(60).get().to_string()]);
    victim.read_until("waiting");
    assert!(rig.donors_used() > Bytes::gib(30).get());
    victim.kill();
    all_reclaimed(&rig);
}

#[test]
fn a_broker_may_die_and_return_while_a_block_lives() {
    let mut rig = Rig::new(&Shape::default());
    let mut holder = rig.spawn("dlopen", &["hold", &Bytes::gib(40).get().to_string()]);
    holder.read_until("waiting");
    let free = holder.number("free");
    let leased: u64 = rig.observer().donors().iter().map(|donor| donor.leased_bytes).sum();

    rig.kill_broker();
    holder.ask("check");
    assert_eq!(holder.number("bad"), 0, "bytes outlive the broker");
    assert!(holder.number("free") < Bytes::gib(24).get(), "no donor memory can be had now");
    holder.ask("more");
    assert_eq!(holder.number("more"), 2, "a clean out of memory");
    holder.ask("check");
    assert_eq!(holder.number("bad"), 0);

    rig.start_broker(&[]);
    let observer = rig.observer();
    let quarantined: u64 = observer.donors().iter().map(|donor| donor.quarantined_bytes).sum();
    assert_eq!(quarantined, leased, "unclaimed bytes are nobody's to lease");
    until("the process is recognised and sees the pool again", || {
        holder.ask("check");
        holder.number("free") == free
    });
    let again: u64 = observer.donors().iter().map(|donor| donor.leased_bytes).sum();
    assert_eq!((again, holder.number("bad")), (leased, 0));
    holder.ask("more");
    assert_eq!(holder.number("more"), 0);
    holder.say("free");
    holder.end();
    all_reclaimed(&rig);
}

/// A broker that is there and answers nothing: one long wait, then short and rare ones; and when it goes on, everything is as before.
#[test]
fn a_broker_that_stops_answering_costs_one_wait_and_no_memory() {
    let rig = Rig::new(&Shape::default());
    let hold = |bytes: Bytes| {
        let mut holder = rig.spawn("dlopen", &["hold", &bytes.to_string()]);
        holder.read_until("waiting");
        holder
    };
    let mut holder = hold(Bytes::gib(40));
    let observer = rig.observer();
    let leased = || observer.donors().iter().map(|donor| donor.leased_bytes).sum::<u64>();
    let held = leased();
    rig.signal_broker("STOP");
    let start = Instant::now();
    for _ in 0..20 {
        holder.ask("more");
        assert_eq!(holder.number("more"), 2, "a clean out of memory");
        holder.ask("check");
        assert_eq!(holder.number("bad"), 0);
    }
    let waited = start.elapsed().as_secs();
    assert!((9..20).contains(&waited), "{waited} s for twenty requests");
    // One that starts now waits once, and sees the primary alone.
    let late = hold(Bytes::gib(1));
    assert!(late.number("free") < Bytes::gib(24).get());
    rig.signal_broker("CONT");
    until("the holder is back", || {
        holder.ask("more");
        holder.number("more") == 0
    });
    holder.ask("check");
    assert_eq!((leased(), holder.number("bad")), (held, 0));
    assert!(observer.donors().iter().all(|donor| donor.quarantined_bytes == 0));
    for mut one in [holder, late] {
        one.say("free");
        one.end();
    }
    all_reclaimed(&rig);
    assert!(rig.log().contains("the broker does not answer"), "{}", rig.log());
}

#[test]
fn memory_freed_while_the_broker_was_away_is_free_when_it_returns() {
    let mut rig = Rig::new(&Shape::default());
    let mut holder = rig.spawn("dlopen", &["hold", &Bytes::gib(40).get().to_string()]);
    holder.read_until("waiting");
    rig.kill_broker();
    holder.say("free");
    holder.end();
    rig.start_broker(&[]);
    all_reclaimed(&rig);
}

#[test]
fn without_a_broker_the_pool_is_truthfully_the_primary_alone() {
    let rig = Rig::without_broker(&Shape::default());
    let mut tenant = rig.spawn("dlopen", &["everything"]);
    tenant.read_until("waiting");
    assert_eq!(tenant.number("total"), rig.config.primary.memory_bytes.get());
    assert_eq!(rig.donors_used(), 0);
    tenant.say("go on");
    tenant.end();
    assert!(rig.log().contains("no broker answers"), "{}", rig.log());
}

#[test]
fn a_cap_holds_while_the_broker_is_away_and_when_it_is_back() {
    let shape = Shape { donors: vec![], cap_bytes: Some(Bytes::gib(6)), ..Shape::default() };
    let mut rig = Rig::new(&shape);
    let two = Bytes::gib(2).get().to_string();
    let hold = || {
        let mut holder = rig.spawn("dlopen", &["hold", &two]);
        holder.read_until("waiting");
        holder
    };
    let (mut first, mut second) = (hold(), hold());
    let tries = |holder: &mut Tenant, mib: u64| {
        holder.ask(&format!("try {}", Bytes::mib(mib)));
        holder.number("try")
    };
    assert_eq!((tries(&mut first, 3000), tries(&mut first, 2000)), (2, 0));
    rig.kill_broker();
    assert_eq!((tries(&mut first, 3000), tries(&mut first, 2000)), (2, 0));
    // One that has never met a broker: what is in use on the card is not its own.
    let mut stranger = rig.spawn("dlopen", &["hold", "4096"]);
    stranger.read_until("waiting");
    assert_eq!(tries(&mut stranger, 2049), 2);
    rig.start_broker(&[]);
    // The first comes back at once, the second has not noticed anything yet.
    assert_eq!((tries(&mut first, 3000), tries(&mut first, 2000)), (2, 0));
    second.kill();
    until("the dead hold nothing", || tries(&mut first, 3000) == 0);
}

#[test]
fn a_broken_pool_config_shows_the_bare_driver() {
    let rig = Rig::without_broker(&Shape::default());
    std::fs::write(rig.lib().join("pool.json"), "{").unwrap();
    let mut tenant = rig.spawn("dlopen", &["see"]);
    tenant.end();
    assert_eq!(tenant.number("devices"), 8, "nothing is faked");
    let log = std::fs::read_to_string(rig.lib().join("standin.log")).unwrap();
    assert!(log.contains("showing the bare card"), "{log}");
}

#[test]
fn a_masked_donor_node_makes_a_truthful_smaller_pool() {
    let rig = Rig::new(&Shape::default());
    // A node that is not there cannot be opened by anybody, root included; the broker opened it long ago.
    let masked = rig.host.device_node(rig.cards[2]);
    std::fs::rename(&masked, masked.with_extension("away")).unwrap();
    let mut tenant = rig.spawn("dlopen", &["everything"]);
    tenant.read_until("waiting");
    let without = rig.config.total_bytes().get() - rig.config.donors[1].reserved_bytes.get();
    assert_eq!(tenant.number("total"), without);
    assert!(tenant.number("taken") * 100 >= tenant.number("free") * 99);
    assert_eq!(tenant.number("bad"), 0);
    tenant.say("go on");
    tenant.end();
    assert!(rig.log().contains("out of reach"), "{}", rig.log());
}

#[test]
fn a_forked_child_takes_nothing_of_its_parent() {
    let rig = Rig::new(&Shape::default());
    let mut parent = rig.spawn("linked", &["fork"]);
    parent.end();
    assert_eq!((parent.number("child"), parent.number("parent")), (0, 1));
    all_reclaimed(&rig);
}

/// `count` processes at a barrier, in the pool or on the bare driver.
fn barrier(rig: &Rig, pooled: bool, count: u32) -> Tenant {
    let mut command = Command::new(tenant(false));
    let total = if pooled { rig.config.total_bytes() } else { rig.config.primary.memory_bytes };
    command.args(["dlopen", "barrier", &count.to_string(), &total.to_string()]).env_clear();
    if pooled {
        command.env("LD_LIBRARY_PATH", rig.lib());
    } else {
        command.env("LD_LIBRARY_PATH", rig.host.lib_dir()).env("CUDA_VISIBLE_DEVICES", "0");
    }
    let mut many = Tenant::start(command);
    many.end();
    println!("{count} processes, pooled {pooled}: {:?}", many.facts);
    many
}

/// What a start costs is measured on a quiet machine (`docs/benchmarks.md`); what makes it cheap is asserted here.
#[test]
fn m19_processes_that_start_at_a_barrier_see_the_pool_and_share_its_proof() {
    let rig = Rig::new(&Shape::default());
    let observer = rig.observer();
    let none = observer.reach_proofs();
    for count in [256, 1000] {
        let before = observer.reach_proofs();
        let (bare, pooled) = (barrier(&rig, false, count), barrier(&rig, true, count));
        println!("added p99: {} us", pooled.number("p99_us").saturating_sub(bare.number("p99_us")));
        let proofs = observer.reach_proofs() - before;
        assert!(proofs <= u64::from(count) / 4, "{proofs} of {count} tried for themselves");
        all_reclaimed(&rig);
    }
    // The second crowd may still find the first one's proof.
    assert!(observer.reach_proofs() > none, "nobody tried");
}

#[test]
fn a_proof_is_not_taken_over_by_a_process_that_sees_other_device_nodes() {
    let rig = Rig::new(&Shape::default());
    let observer = rig.observer();
    let mut first = rig.spawn("dlopen", &["see"]);
    first.end();
    assert_eq!(first.number("total"), rig.config.total_bytes().get());
    // In a mount namespace of its own, where one donor has no node.
    let script = "mount -t tmpfs none \"$DEV\" && for n in 0 1 3 4 5 6 7; do : > \"$DEV/nvidia$n\"; done && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(tenant(false)).args(["dlopen", "see"]);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LD_LIBRARY_PATH", rig.lib());
    command.env("DEV", rig.host.device_node(0).parent().unwrap());
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        return; // Only root makes a mount namespace without more ado; the hash of the surroundings is tested by itself.
    }
    let mut second = Tenant::start(command);
    second.end();
    let without = rig.config.total_bytes().get() - rig.config.donors[1].reserved_bytes.get();
    assert_eq!((second.number("total"), observer.reach_proofs()), (without, 2));
}

#[test]
fn a_program_without_descriptors_to_spare_is_refused_and_loses_nothing() {
    let rig = Rig::new(&Shape::default());
    let mut tenant = rig.spawn("dlopen", &["no_descriptors", &Bytes::gib(40).get().to_string(), "6"]);
    tenant.read_until("waiting");
    assert_eq!(tenant.number("refused"), 6, "{:?}", tenant.facts);
    assert_eq!(tenant.number("left"), tenant.number("before"), "{:?} {}", rig.observer().donors(), rig.log());
    until("nothing is leased for what was refused", || {
        rig.observer().donors().iter().all(|donor| donor.leased_bytes + donor.quarantined_bytes == 0)
    });
    tenant.say("go on");
    tenant.end();
    assert_eq!(tenant.number("again"), 1);
    all_reclaimed(&rig);
}

#[test]
fn a_forked_child_keeps_the_files_that_took_the_place_of_ours() {
    let rig = Rig::new(&Shape::default());
    let mut tenant = rig.spawn("dlopen", &["own_files"]);
    tenant.end();
    assert_eq!((tenant.number("child"), tenant.number("parent")), (0, 1));
    all_reclaimed(&rig);
}

#[test]
fn sizes_that_nothing_has_are_refused_and_cost_nothing() {
    for (cap_bytes, host_tier_bytes) in [(None, None), (Some(Bytes::gib(20)), Some(Bytes::gib(2)))] {
        let rig = Rig::new(&Shape { cap_bytes, host_tier_bytes, ..Shape::default() });
        let mut tenant = rig.spawn("dlopen", &["sizes"]);
        tenant.end();
        assert_eq!(tenant.number("sizes"), 1);
        all_reclaimed(&rig);
    }
}
