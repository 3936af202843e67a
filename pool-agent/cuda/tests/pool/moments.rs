//! M1: at every moment, what the books say is used is the sum of the blocks that live.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tarn_broker::observer::{Observer, ProcessFigures};
use tarn_protocol::units::Bytes;

use crate::rig::{PATIENCE, Rig, Shape, Tenant, until};

const THREADS: &str = "16";
const PROCESSES: usize = 3;
/// Deaths in one run; the trial's own length is eight hours, `TARN_M1_SECONDS` away.
const KILLS: usize = 8;
const SECONDS: u64 = 12;
/// A busy machine takes longer to come to as many.
const LOOKS: u64 = 200;

/// Bytes and blocks by a program's own books, each pair read at one moment.
#[derive(Debug, Clone, Copy)]
struct Books {
    asked: (u64, u64),
    given: (u64, u64),
    going: (u64, u64),
    gone: (u64, u64),
}

struct Counting {
    tenant: Tenant,
    pid: u32,
    books: File,
}

impl Counting {
    fn start(rig: &Rig, number: usize, most: Bytes) -> Self {
        let path: PathBuf = rig.instance.join(format!("books-{number}"));
        let books = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        books.set_len(64).unwrap();
        let story = [path.to_str().unwrap(), THREADS, &most.get().to_string()];
        let mut tenant = rig.spawn_program("counting", "dlopen", &story, &[]);
        tenant.read_until("started=1");
        let pid = tenant.pid();
        Self { tenant, pid, books }
    }

    fn books(&self) -> Books {
        let mut bytes = [0; 64];
        self.books.read_exact_at(&mut bytes, 0).unwrap();
        let number = |at: usize| u64::from_ne_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
        let pair = |what: usize| (number(2 * what), number(2 * what + 1));
        Books { asked: pair(0), given: pair(1), going: pair(2), gone: pair(3) }
    }

    /// One look between two readings of its own books: what it lives on is in between, but for whole granules.
    fn look(&self, observer: &Observer, granule: u64) -> Option<u64> {
        let before = self.books();
        let held = of(observer, self.pid)?;
        let after = self.books();
        let used = held.local_bytes + held.donor_bytes;
        let least = before.given.0.saturating_sub(after.going.0);
        let most_blocks = after.asked.1 - before.gone.1;
        let most = after.asked.0 - before.gone.0 + most_blocks * granule;
        assert!(
            (least..=most).contains(&used),
            "{used} bytes used, {least} to {most} live in at most {most_blocks} blocks: {held:?}, {before:?}, {after:?}"
        );
        Some(used)
    }
}

fn of(observer: &Observer, pid: u32) -> Option<ProcessFigures> {
    observer.processes().into_iter().find(|held| held.pid == pid)
}

fn seconds() -> u64 {
    let asked = std::env::var("TARN_M1_SECONDS");
    asked.map_or(SECONDS, |seconds| seconds.parse().expect("TARN_M1_SECONDS is a number"))
}

/// The pool's own figures: nothing above what there is, nothing below zero.
fn within(rig: &Rig, observer: &Observer) {
    let total = rig.config.total_bytes().get();
    for held in observer.processes() {
        assert!(held.local_bytes + held.donor_bytes <= total, "wrapped below zero, or too much: {held:?}");
    }
    for donor in observer.donors() {
        assert!(donor.leased_bytes + donor.quarantined_bytes <= donor.capacity_bytes, "{donor:?}");
    }
    for &card in &rig.cards {
        let memory = rig.host.gpus()[card].memory_bytes;
        assert!(rig.used(card) <= memory, "card {card} holds {}", rig.used(card));
    }
}

#[test]
fn m1_at_every_moment_used_is_the_sum_of_live_blocks_while_processes_die() {
    // Together they never want more than there is, and always more than the primary's share.
    let rig = Rig::new(&Shape { cap_bytes: Some(Bytes::gib(6)), ..Shape::default() });
    let observer = rig.observer();
    let granule = rig.config.policy.granule_bytes.get();
    let most = Bytes::mib(200);
    let mut running: Vec<Counting> =
        (0..PROCESSES).map(|number| Counting::start(&rig, number, most)).collect();
    let (start, length) = (Instant::now(), Duration::from_secs(seconds()));
    let (mut looks, mut highest, mut killed) = (0_u64, 0, 0);
    let spilled = Bytes::gib(6).get();
    while start.elapsed() < length || killed < KILLS || looks < LOOKS || highest <= spilled {
        assert!(
            start.elapsed() < length + PATIENCE,
            "{looks} looks, {killed} deaths, {highest} bytes at most"
        );
        let used: u64 = running.iter().filter_map(|one| one.look(&observer, granule)).sum();
        highest = highest.max(used);
        within(&rig, &observer);
        looks += 1;
        if start.elapsed() > length * u32::try_from(killed + 1).unwrap() / u32::try_from(KILLS + 1).unwrap() {
            let victim = killed % PROCESSES;
            running[victim].tenant.kill();
            running[victim] = Counting::start(&rig, PROCESSES + killed, most);
            killed += 1;
        }
    }
    for one in &mut running {
        one.tenant.say("enough");
        one.tenant.end();
        assert_eq!(one.tenant.number("refused"), 0, "there was room for all: {:?}", one.tenant.facts);
    }
    assert!(running.iter().map(|one| one.tenant.number("blocks")).sum::<u64>() > 100);
    until("every lease is reclaimed", || {
        observer.donors().iter().all(|donor| donor.leased_bytes == 0 && donor.quarantined_bytes == 0)
            && observer.processes().is_empty()
    });
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}
