//! A broker dies and another takes over: leases stay with who holds them.

use tarn_broker::ledger::CHUNK_UNIT;
use tarn_broker::observer::Observer;
use tarn_protocol::broker_wire::{Op, Request, Status};

use crate::bench_of_clients::{Bench, Client, config, tenants_like_us, until};

#[test]
fn a_successor_lets_holders_register_and_nobody_else() {
    let config = config(1, 8);
    let mut bench = Bench::new(&config, tenants_like_us());
    let lease = {
        let holder = Client::hello(&bench.socket(), 77);
        let lease = holder.lease(3);
        // Stopped while the client is connected: like a kill, nothing is reclaimed.
        bench.stop();
        lease
    };
    bench.serve(&config, tenants_like_us());
    let observer = Observer::connect(&bench.socket()).unwrap();
    assert_eq!(observer.donors()[0].quarantined_bytes, 3 * CHUNK_UNIT);

    let claim =
        Request { lease: lease.lease, bytes: lease.bytes, donor: lease.donor, ..Request::new(Op::Register) };
    let thief = Client::hello(&bench.socket(), 78);
    assert_eq!(thief.ask(claim).unwrap().0.status, Status::BadRequest as u32);
    let holder = Client::hello(&bench.socket(), 77);
    let inflated = Request { bytes: 5 * CHUNK_UNIT, ..claim };
    assert_eq!(holder.ask(inflated).unwrap().0.status, Status::BadRequest as u32);
    assert!(holder.ask(claim).unwrap().0.ok());
    assert!(!holder.ask(claim).unwrap().0.ok(), "once");
    let donor = observer.donors()[0];
    assert_eq!((donor.leased_bytes, donor.quarantined_bytes), (3 * CHUNK_UNIT, 0));
    assert_ne!(holder.lease(1).lease, lease.lease, "no number comes twice");
}

#[test]
fn an_observer_notices_that_its_broker_is_gone() {
    let config = config(1, 8);
    let mut bench = Bench::new(&config, tenants_like_us());
    let observer = Observer::connect(&bench.socket()).unwrap();
    assert!(observer.alive());
    bench.stop();
    until("the end is noticed", || !observer.alive());
    assert_eq!(observer.donors()[0].capacity_bytes, 8 * CHUNK_UNIT, "its last words stay readable");
    bench.serve(&config, tenants_like_us());
    assert!(Observer::connect(&bench.socket()).unwrap().alive());
}

/// The broker may not have noticed yet that the old connection is gone, and then notices.
#[test]
fn a_process_takes_its_leases_over_to_a_new_connection() {
    let config = config(1, 8);
    let bench = Bench::new(&config, tenants_like_us());
    let observer = Observer::connect(&bench.socket()).unwrap();
    let former = Client::hello(&bench.socket(), 77);
    let lease = former.lease(3);
    let claim =
        Request { lease: lease.lease, bytes: lease.bytes, donor: lease.donor, ..Request::new(Op::Register) };
    let thief = Client::hello(&bench.socket(), 78);
    assert_eq!(thief.ask(claim).unwrap().0.status, Status::BadRequest as u32);
    let inflated = Request { bytes: 4 * CHUNK_UNIT, ..claim };
    let now = Client::hello(&bench.socket(), 77);
    assert!(!now.ask(inflated).unwrap().0.ok());
    assert!(now.ask(claim).unwrap().0.ok());
    drop(former);
    until("the old connection has gone", || observer.processes().len() == 2);
    let donor = observer.donors()[0];
    assert_eq!(
        (donor.leased_bytes, donor.quarantined_bytes),
        (3 * CHUNK_UNIT, 0),
        "and took nothing with it"
    );
    drop(now);
    until("the new one takes them", || observer.donors()[0].leased_bytes == 0);
}
