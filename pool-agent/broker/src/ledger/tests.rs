//! Random histories against the ledger: the books balance after every step, restarts included.

use proptest::prelude::*;

use super::*;

const CAPACITIES: [u64; 3] = [16 * CHUNK_UNIT, 8 * CHUNK_UNIT, 0];
const LEASES_MAX: usize = 12;

#[derive(Debug, Clone)]
enum Step {
    Lease {
        client: u64,
        units: u64,
        donor: Option<usize>,
        exact: bool,
    },
    Cancel {
        client: u64,
        pick: usize,
    },
    Release {
        client: u64,
        pick: usize,
    },
    Reclaim {
        client: u64,
    },
    /// The card shows this share (of 8) of the quarantined bytes still there.
    Settle {
        donor: usize,
        eighths: u64,
    },
    /// The quota of a donor changes while the broker runs.
    Resize {
        donor: usize,
        units: u64,
    },
    /// A successor takes over, of whose donors each gives this many units now.
    Restart {
        units: [u64; 3],
    },
    Register {
        client: u64,
        pick: usize,
        lie: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = 1u64..4;
    prop_oneof![
        4 => (client.clone(), 0u64..6, prop::option::of(0usize..4), any::<bool>())
            .prop_map(|(client, units, donor, exact)| Step::Lease { client, units, donor, exact }),
        1 => (client.clone(), any::<usize>()).prop_map(|(client, pick)| Step::Cancel { client, pick }),
        2 => (client.clone(), any::<usize>()).prop_map(|(client, pick)| Step::Release { client, pick }),
        1 => client.clone().prop_map(|client| Step::Reclaim { client }),
        2 => (0usize..4, 0u64..9).prop_map(|(donor, eighths)| Step::Settle { donor, eighths }),
        1 => (0usize..4, 0u64..20).prop_map(|(donor, units)| Step::Resize { donor, units }),
        1 => prop_oneof![Just(CAPACITIES.map(|bytes| bytes / CHUNK_UNIT)), prop::array::uniform3(0u64..20)]
            .prop_map(|units| Step::Restart { units }),
        2 => (client, any::<usize>(), any::<bool>())
            .prop_map(|(client, pick, lie)| Step::Register { client, pick, lie }),
    ]
}

fn picked(ledger: &Ledger, pick: usize) -> LeaseId {
    let ids: Vec<LeaseId> = ledger.chunks().map(|(id, _)| id).collect();
    if ids.is_empty() { LeaseId(7) } else { ids[pick % ids.len()] }
}

fn apply(ledger: &mut Ledger, step: &Step) {
    match *step {
        Step::Lease { client, units, donor, exact } => {
            let want = Want { bytes: units * CHUNK_UNIT, donor: donor.map(Donor), exact };
            let before = ledger.clone();
            match ledger.lease(Client(client), Nonce(client), want) {
                Ok((_, chunk)) => {
                    assert!(chunk.bytes <= want.bytes && chunk.bytes > 0);
                    assert!(
                        chunk.bytes <= before.accounts[chunk.donor.0].free_bytes(),
                        "lent beyond the quota"
                    );
                    assert!(!exact || chunk.bytes == want.bytes);
                    assert!(donor.is_none_or(|donor| chunk.donor == Donor(donor)));
                }
                Err(_) => assert_eq!(before.accounts, ledger.accounts),
            }
        }
        Step::Cancel { client, pick } => drop(ledger.cancel(Client(client), picked(ledger, pick))),
        Step::Release { client, pick } => drop(ledger.release(Client(client), picked(ledger, pick))),
        Step::Reclaim { client } => {
            ledger.reclaim(Client(client));
            assert!(ledger.leases.values().all(|lease| lease.client != Client(client)));
        }
        Step::Settle { donor, eighths } => {
            let Some(account) = ledger.accounts.get(donor).copied() else {
                assert_eq!(ledger.settle(Donor(donor), 0), 0);
                return;
            };
            let there = account.leased_bytes + account.quarantined_bytes * eighths / 8;
            ledger.settle(Donor(donor), there);
            assert_eq!(ledger.accounts[donor].leased_bytes, account.leased_bytes);
            assert_eq!(ledger.accounts[donor].quarantined_bytes, there - account.leased_bytes);
        }
        Step::Resize { donor, units } => {
            let before = ledger.clone();
            ledger.resize(Donor(donor), units * CHUNK_UNIT);
            for (was, is) in before.accounts.iter().zip(&ledger.accounts) {
                assert_eq!(
                    (was.leased_bytes, was.quarantined_bytes),
                    (is.leased_bytes, is.quarantined_bytes)
                );
            }
        }
        Step::Restart { units } => {
            let (chunks, before): (Vec<_>, _) = (ledger.chunks().collect(), ledger.clone());
            let capacities = units.map(|units| units * CHUNK_UNIT);
            *ledger = Ledger::resumed(&capacities, LEASES_MAX, chunks, ledger.next_lease());
            assert!(ledger.leases.is_empty());
            for (was, is) in before.accounts.iter().zip(&ledger.accounts) {
                assert!(is.quarantined_bytes >= was.leased_bytes, "a smaller quota hides what is lent");
            }
        }
        Step::Register { client, pick, lie } => {
            let id = picked(ledger, pick);
            let known = ledger.chunks().find(|(at, _)| *at == id).map(|(_, chunk)| chunk);
            let mut claim =
                known.unwrap_or(Chunk { nonce: Nonce(client), donor: Donor(0), bytes: CHUNK_UNIT });
            if lie {
                claim.nonce = Nonce(claim.nonce.0 + 1000);
            }
            let orphan = ledger.orphans.get(&id).copied();
            let full = ledger.held.get(&Client(client)).is_some_and(|&held| held >= LEASES_MAX);
            // The card showed some of the orphans' bytes gone, and does not say whose.
            let there = orphan.is_some_and(|chunk| ledger.past_bytes[chunk.donor.0] >= chunk.bytes);
            let answer = ledger.register(Client(client), id, claim);
            assert!(orphan.is_none() || !lie || answer.is_err(), "a stranger claimed an orphan");
            assert!(lie || full || !there || answer.is_ok(), "a holder is not recognised: {answer:?}");
        }
    }
}

fn check(ledger: &Ledger) {
    for (at, account) in ledger.accounts().iter().enumerate() {
        let leased: u64 =
            ledger.leases.values().filter(|l| l.chunk.donor == Donor(at)).map(|l| l.chunk.bytes).sum();
        assert_eq!(account.leased_bytes, leased, "leases of donor {at}");
        let total = account
            .leased_bytes
            .checked_add(account.quarantined_bytes)
            .expect("small numbers do not overflow");
        // A quota that shrank below what is lent leaves nothing free, and takes nothing.
        assert_eq!(total + account.free_bytes(), account.capacity_bytes.max(total), "donor {at}");
    }
    let held: usize = ledger.held.values().sum();
    assert_eq!(held, ledger.leases.len());
    assert!(ledger.held.values().all(|&count| count <= LEASES_MAX && count > 0));
    assert!(ledger.chunks().all(|(id, _)| id.0 < ledger.next_lease()), "a lease number could come twice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn leased_free_and_quarantined_are_the_capacity(steps in prop::collection::vec(step(), 1..80)) {
        let mut ledger = Ledger::new(&CAPACITIES, LEASES_MAX);
        for step in &steps {
            apply(&mut ledger, step);
            check(&ledger);
        }
    }
}

fn want(units: u64) -> Want {
    Want { bytes: units * CHUNK_UNIT, donor: None, exact: true }
}

#[test]
fn any_donor_means_the_emptiest() {
    let mut ledger = Ledger::new(&CAPACITIES, LEASES_MAX);
    let (_, first) = ledger.lease(Client(1), Nonce(1), want(9)).unwrap();
    let (_, second) = ledger.lease(Client(1), Nonce(1), want(8)).unwrap();
    assert_eq!((first.donor, second.donor), (Donor(0), Donor(1)));
    assert_eq!(
        ledger.lease(Client(1), Nonce(1), want(8)),
        Err(Refusal::OutOfMemory { bytes: 8 * CHUNK_UNIT })
    );
}

#[test]
fn a_successor_with_a_smaller_quota_knows_every_byte_that_is_lent() {
    let mut ledger = Ledger::new(&[8 * CHUNK_UNIT], LEASES_MAX);
    let (id, chunk) = ledger.lease(Client(1), Nonce(1), want(6)).unwrap();
    let mut ledger = Ledger::resumed(&[2 * CHUNK_UNIT], LEASES_MAX, [(id, chunk)], ledger.next_lease());
    ledger.quarantine_unexplained(Donor(0), 7 * CHUNK_UNIT);
    assert_eq!(ledger.accounts()[0].quarantined_bytes, 7 * CHUNK_UNIT, "one unit more is on the card");
    ledger.register(Client(2), id, chunk).unwrap();
    let account = ledger.accounts()[0];
    assert_eq!((account.leased_bytes, account.quarantined_bytes), (6 * CHUNK_UNIT, CHUNK_UNIT));
    assert!(
        ledger.lease(Client(2), Nonce(1), want(1)).is_err(),
        "nothing is lent until use is below the quota"
    );
    ledger.settle(Donor(0), 6 * CHUNK_UNIT);
    ledger.resize(Donor(0), 7 * CHUNK_UNIT);
    assert!(ledger.lease(Client(2), Nonce(1), want(2)).is_err());
    ledger.lease(Client(2), Nonce(1), want(1)).unwrap();
}

#[test]
fn released_bytes_come_back_only_when_the_card_shows_it() {
    let mut ledger = Ledger::new(&[4 * CHUNK_UNIT], LEASES_MAX);
    let (id, _) = ledger.lease(Client(1), Nonce(1), want(4)).unwrap();
    ledger.release(Client(1), id).unwrap();
    assert_eq!(ledger.accounts()[0].free_bytes(), 0);
    assert_eq!(ledger.settle(Donor(0), 3 * CHUNK_UNIT), CHUNK_UNIT);
    assert_eq!(ledger.settle(Donor(0), 0), 3 * CHUNK_UNIT);
}

#[test]
fn a_process_whose_connection_ended_may_come_by_another_but_nobody_claims_what_was_given_back() {
    let mut ledger = Ledger::new(&[8 * CHUNK_UNIT], LEASES_MAX);
    let (held, chunk) = ledger.lease(Client(1), Nonce(1), want(3)).unwrap();
    let (back, other) = ledger.lease(Client(1), Nonce(1), want(4)).unwrap();
    ledger.release(Client(1), back).unwrap();
    assert!(ledger.register(Client(1), back, other).is_err());
    ledger.reclaim(Client(1));
    assert!(ledger.register(Client(2), back, other).is_err());
    ledger.register(Client(2), held, chunk).unwrap();
    assert!(ledger.register(Client(2), LeaseId(u64::MAX), chunk).is_err());
    assert_eq!(ledger.accounts()[0].leased_bytes, chunk.bytes);
}

#[test]
fn what_was_given_back_unheard_is_disowned_by_its_own_process_alone() {
    let mut ledger = Ledger::new(&[8 * CHUNK_UNIT], LEASES_MAX);
    let (gone, chunk) = ledger.lease(Client(1), Nonce(1), want(3)).unwrap();
    let (held, other) = ledger.lease(Client(2), Nonce(2), want(5)).unwrap();
    let chunks = [(gone, chunk), (held, other)];
    let mut ledger = Ledger::resumed(&[8 * CHUNK_UNIT], LEASES_MAX, chunks, ledger.next_lease());
    ledger.settle(Donor(0), 5 * CHUNK_UNIT);
    assert_eq!((ledger.disown(Nonce(2), gone), ledger.disown(Nonce(1), LeaseId(99))), (None, None));
    assert_eq!((ledger.disown(Nonce(1), gone), ledger.disown(Nonce(1), gone)), (Some(chunk), None));
    ledger.register(Client(2), held, other).unwrap();
    assert_eq!(ledger.disown(Nonce(2), held), None, "a lease is released, not disowned");
    assert_eq!(ledger.accounts()[0].leased_bytes, 5 * CHUNK_UNIT);
}

#[test]
fn a_lease_given_in_the_last_moments_is_claimed_from_unexplained_bytes() {
    let mut ledger = Ledger::resumed(&[4 * CHUNK_UNIT], LEASES_MAX, [], 5);
    ledger.quarantine_unexplained(Donor(0), CHUNK_UNIT);
    let claim = Chunk { nonce: Nonce(3), donor: Donor(0), bytes: CHUNK_UNIT };
    ledger.register(Client(1), LeaseId(9), claim).unwrap();
    assert_eq!(ledger.accounts()[0].leased_bytes, CHUNK_UNIT);
    assert_eq!(ledger.next_lease(), 10);
    let refused = ledger.register(Client(1), LeaseId(10), claim);
    assert_eq!(refused, Err(Refusal::NotYours { lease: 10 }), "registering never takes free bytes");
}
