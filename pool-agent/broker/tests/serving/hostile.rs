//! Strangers, slow readers, junk and greed: each costs itself its connection or its answer, and nobody else anything.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use tarn_broker::admission::Admission;
use tarn_broker::ledger::CHUNK_UNIT;
use tarn_broker::observer::Observer;
use tarn_protocol::broker_wire::{Op, Reply, Request, Status};

use crate::bench_of_clients::{Bench, Client, config, own_uid, tenants_like_us, until};

fn status(reply: Option<(Reply, Vec<std::os::fd::OwnedFd>)>) -> u32 {
    reply.expect("an answer").0.status
}

#[test]
fn a_process_of_another_cgroup_or_namespace_observes_but_leases_nothing() {
    let elsewhere = [
        Admission { tenant_cgroup: Some(PathBuf::from("/tarn.slice/another")), ..tenants_like_us() },
        Admission { tenant_pid_namespace: Some("pid:[1]".to_owned()), ..tenants_like_us() },
        Admission { tenant_uids: vec![own_uid() + 1], ..tenants_like_us() },
    ];
    for admission in elsewhere {
        let bench = Bench::new(&config(1, 4), admission);
        let client = Client::connect(&bench.socket());
        assert_eq!(status(client.ask(Request::new(Op::Hello))), Status::Forbidden as u32);
        assert!(client.hung_up());
        let client = Client::connect(&bench.socket());
        assert_eq!(status(client.ask(Request::new(Op::Observe))), Status::Ok as u32);
        assert_eq!(client.lease(1).status, Status::Forbidden as u32);
    }
}

#[test]
fn a_foreign_user_is_refused() {
    if own_uid() != 0 {
        return; // Only root can pose as somebody else.
    }
    let bench = Bench::new(&config(1, 4), tenants_like_us());
    let path = bench.socket();
    let answer = std::thread::spawn(move || {
        // SAFETY: the raw call changes the ids of this thread alone, which ends with the closure.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(changed, 0);
        let client = Client::connect(&path);
        // Refused at the door: the answer is there before the question.
        tarn_broker::wire::receive_reply(client.0.as_fd()).unwrap().0.status
    });
    assert_eq!(answer.join().unwrap(), Status::Forbidden as u32);
}

#[test]
fn a_client_that_never_reads_is_dropped_and_the_others_are_served() {
    let bench = Bench::new(&config(1, 60), tenants_like_us());
    let slow = Client::hello(&bench.socket(), 1);
    // Far more questions than its queue has room for answers; the broker hangs up in the middle.
    let mut sent = 0;
    while tarn_broker::wire::send_request(slow.0.as_fd(), Request { bytes: 1, ..Request::new(Op::Lease) })
        .is_ok()
    {
        sent += 1;
        assert!(sent < 100_000, "the slow client is still being served");
    }
    let brisk = Client::hello(&bench.socket(), 2);
    assert!(brisk.lease(60).ok(), "the slow client's leases, if any, were reclaimed");
}

#[test]
fn junk_ends_the_connection_or_gets_an_error_and_nothing_else() {
    let bench = Bench::new(&config(1, 4), tenants_like_us());
    let client = Client::connect(&bench.socket());
    rustix::net::send(&client.0, &[7u8; 9], rustix::net::SendFlags::empty()).unwrap();
    assert!(client.hung_up(), "a short packet is no message");

    let client = Client::connect(&bench.socket());
    assert_eq!(
        status(client.ask(Request { version: 99, ..Request::new(Op::Hello) })),
        Status::BadVersion as u32
    );
    let client = Client::connect(&bench.socket());
    assert_eq!(status(client.ask(Request::new(Op::Lease))), Status::BadRequest as u32, "hello comes first");

    let client = Client::hello(&bench.socket(), 1);
    let bad = |request| status(client.ask(request));
    assert_eq!(bad(Request::new(Op::Hello)), Status::BadRequest as u32);
    assert_eq!(bad(Request { op: 4711, ..Request::new(Op::Hello) }), Status::BadRequest as u32);
    assert_eq!(bad(Request { bytes: 3, ..Request::new(Op::Lease) }), Status::BadRequest as u32);
    assert_eq!(bad(Request { bytes: u64::MAX, ..Request::new(Op::Lease) }), Status::BadRequest as u32);
    let beyond = Request { bytes: CHUNK_UNIT, donor: 9, ..Request::new(Op::Lease) };
    assert_eq!(bad(beyond), Status::BadRequest as u32);
    let theirs = client.lease(1);
    let thief = Client::hello(&bench.socket(), 2);
    thief.send(Request { lease: theirs.lease, ..Request::new(Op::Release) });
    assert_eq!(status(thief.ask(Request::new(Op::Settle))), Status::Ok as u32);
    let leased = Observer::connect(&bench.socket()).unwrap().donors()[0].leased_bytes;
    assert_eq!(leased, CHUNK_UNIT, "nobody releases another's lease");
}

/// The broker's own numbers come from claims too: none may be the last that there is, nor for bytes that nobody's past explains.
#[test]
fn a_made_up_claim_takes_nothing_and_ends_nothing() {
    let mut bench = Bench::new(&config(1, 4), tenants_like_us());
    bench.cards.linger(true);
    let client = Client::hello(&bench.socket(), 1);
    let kept = client.lease(1);
    let given_back = client.lease(2);
    client.send(Request { lease: given_back.lease, ..Request::new(Op::Release) });
    let claim =
        |lease, units| Request { lease, bytes: units * CHUNK_UNIT, donor: 0, ..Request::new(Op::Register) };
    for lease in [0, given_back.lease, 77, u64::MAX - 1, u64::MAX] {
        assert_eq!(status(client.ask(claim(lease, 1))), Status::BadRequest as u32, "{lease}");
    }
    assert!(client.lease(1).ok(), "the broker goes on");
    drop(client);
    let observer = Observer::connect(&bench.socket()).unwrap();
    until("all is given back, and on the card", || observer.donors()[0].leased_bytes == 0);
    bench.stop();
    // Unexplained bytes of a past may be claimed, but not under a number that leaves none for later leases.
    bench.serve(&config(1, 4), tenants_like_us());
    let client = Client::hello(&bench.socket(), 2);
    for lease in [0, u64::MAX - 1, u64::MAX] {
        assert_eq!(status(client.ask(claim(lease, 1))), Status::BadRequest as u32, "{lease}");
    }
    assert_eq!(status(client.ask(claim(kept.lease, 9))), Status::BadRequest as u32);
    bench.cards.linger(false);
    assert!(client.lease(4).ok(), "all of it is free again");
}

#[test]
fn inbound_descriptors_are_closed() {
    use std::mem::MaybeUninit;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    let bench = Bench::new(&config(1, 4), tenants_like_us());
    let client = Client::hello(&bench.socket(), 1);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [writer.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let packet = Request::new(Op::Settle).to_bytes();
    sendmsg(&client.0, &[std::io::IoSlice::new(&packet)], &mut control, SendFlags::empty()).unwrap();
    drop(writer);
    // The pipe ends once the broker, who had the last copy, has closed it.
    let mut byte = [0u8];
    assert_eq!(rustix::io::read(&reader, &mut byte).unwrap(), 0);
}

#[test]
fn the_ledger_page_cannot_be_written_and_no_page_resized() {
    let bench = Bench::new(&config(1, 4), tenants_like_us());
    let client = Client::connect(&bench.socket());
    let (_, pages) = client.ask(Request::new(Op::Hello)).unwrap();
    let map = |page: &std::os::fd::OwnedFd, protection| {
        // SAFETY: a new mapping at the kernel's choice; it is leaked.
        unsafe { mmap(std::ptr::null_mut(), 64, protection, MapFlags::SHARED, page, 0) }
    };
    assert!(map(&pages[0], ProtFlags::READ).is_ok());
    assert_eq!(map(&pages[0], ProtFlags::READ | ProtFlags::WRITE).unwrap_err(), Errno::PERM);
    assert!(rustix::io::pwrite(&pages[0], &[1], 0).is_err());
    assert!(map(&pages[1], ProtFlags::READ | ProtFlags::WRITE).is_ok());
    for page in &pages {
        assert_eq!(rustix::fs::ftruncate(page, 0).unwrap_err(), Errno::PERM, "{}", page.as_raw_fd());
    }
}

#[test]
fn bytes_given_back_are_lent_again_only_when_the_card_shows_them_free() {
    let bench = Bench::new(&config(2, 4), tenants_like_us());
    let (first, second) = (Client::hello(&bench.socket(), 1), Client::hello(&bench.socket(), 2));
    let lease = first.lease(4);
    bench.cards.linger(true);
    first.send(Request { lease: lease.lease, ..Request::new(Op::Release) });
    assert!(second.lease(4).ok(), "the other donor");
    assert_eq!(second.lease(1).status, Status::OutOfMemory as u32, "somebody still maps the rest");
    bench.cards.linger(false);
    assert!(second.lease(4).ok(), "no wait, no second try");
}

#[test]
fn hundreds_of_clients_come_lease_and_go() {
    let bench = Bench::new(&config(1, 60), tenants_like_us());
    let observer = Observer::connect(&bench.socket()).unwrap();
    for _ in 0..2 {
        let clients: Vec<Client> = (0..300).map(|nonce| Client::hello(&bench.socket(), nonce)).collect();
        let granted = clients.iter().filter(|client| client.lease(1).ok()).count();
        assert_eq!(granted, 60);
        assert_eq!(observer.processes().len(), 300);
        drop(clients);
        until("everything is reclaimed", || {
            let donor = observer.donors()[0];
            donor.free_bytes() == 60 * CHUNK_UNIT && observer.processes().is_empty()
        });
    }
}
