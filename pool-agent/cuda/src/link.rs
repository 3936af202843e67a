//! This process's connection to the broker: made at first need, made again when a broker comes back, dropped by a forked child.
//!
//! The link owns the list of leases, because a new broker has to be told of them. A dead broker takes nothing that exists: it
//! only means that there is no donor memory to be had. Whether it lives is read off the socket, without a message. One that is there and
//! does not answer (stopped, or out of processor time) costs one long wait; from then on it is tried shortly, and ever more rarely, until
//! it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tarn_protocol::broker_wire::{CHUNK_MORE, CHUNK_RDMA, DONORS_MAX, Op, Reply, Request, SLOT_NONE, Status};

use crate::account::Account;
use crate::log;
use crate::pages::Pages;
use crate::socket::{self, Gone, Socket};

/// Pause between attempts to reach a broker that is not there.
const RETRY_AFTER_MS: u64 = 50;
/// How long a broker that was silent once is waited for, and the first and longest pause before it is tried again.
const SILENT_WITHIN_MS: u64 = 1_000;
const SILENT_PAUSE_MS: u64 = 2_000;
const SILENT_PAUSE_MOST_MS: u64 = 30_000;

#[derive(Debug, Clone, Copy)]
struct Lease {
    donor: u32,
    bytes: u64,
}

/// A donor chunk, ready to be imported.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) lease: u64,
    pub(crate) bytes: u64,
    /// Whether network cards may reach it.
    pub(crate) rdma: bool,
    /// The donor has more for whoever asks again.
    pub(crate) more: bool,
    pub(crate) descriptor: OwnedFd,
}

/// Descriptors of donors' granules, to prove that they can be imported.
#[derive(Debug)]
pub(crate) struct Probes {
    /// The mask of donors that are in use by others to the last granule.
    pub(crate) full: u16,
    pub(crate) offered: Vec<(usize, OwnedFd)>,
}

/// A reply and what came with it.
type Message = (Reply, Vec<OwnedFd>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("no broker")]
    Gone,
    #[error("the donor has no room")]
    OutOfMemory,
    #[error("the broker refused")]
    Refused,
}

impl From<Gone> for LinkError {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

#[derive(Debug, Default)]
struct State {
    socket: Option<Socket>,
    leases: BTreeMap<u64, Lease>,
    /// Given back since the last answer: a broker that dies may never have heard of it, and of the host's memory its successor hears from
    /// nobody else.
    unheard: BTreeSet<u64>,
}

#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    /// The host tier's place: what is leased there is not device memory, and not charged as such.
    host: Option<u32>,
    nonce: u64,
    state: Mutex<State>,
    /// Of the current socket, or -1: for looks without the lock, and for the forked child.
    fd: AtomicI32,
    /// Of the same socket: tells it from another file by its number.
    inode: AtomicU64,
    /// Of the last broker that answered; leaked when replaced.
    pages: AtomicPtr<Pages>,
    retry_at_ms: AtomicU64,
    /// How often in a row the broker was there and did not answer.
    silences: AtomicU32,
    /// Something was given back that the broker may not have taken in yet.
    returned: AtomicBool,
}

pub(crate) fn monotonic_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-pointer outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer outlives the call and its length is stated.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { u64::from_ne_bytes(bytes) } else { u64::from(std::process::id()) << 32 | monotonic_ms() }
}

impl Link {
    pub(crate) fn new(path: PathBuf, host_place: Option<usize>) -> Self {
        Self {
            path,
            host: host_place.and_then(|place| u32::try_from(place).ok()),
            nonce: random(),
            state: Mutex::default(),
            fd: AtomicI32::new(-1),
            inode: AtomicU64::new(0),
            pages: AtomicPtr::new(std::ptr::null_mut()),
            retry_at_ms: AtomicU64::new(0),
            silences: AtomicU32::new(0),
            returned: AtomicBool::new(false),
        }
    }

    /// The pages of the last broker that answered. Stale figures of a dead one are for accounting only: see [`Link::alive`].
    pub(crate) fn pages(&self) -> Option<&'static Pages> {
        // SAFETY: the pointer is null or a leaked box, never freed.
        unsafe { self.pages.load(Ordering::Acquire).as_ref() }
    }

    /// Whether donor memory can be had: connected now, or after one new attempt.
    pub(crate) fn alive(&self, account: &Account) -> bool {
        self.alive_now() || self.connected(&mut self.lock(), account).is_ok()
    }

    /// Whether there is a connection, without an attempt to make one.
    pub(crate) fn alive_now(&self) -> bool {
        let fd = self.fd.load(Ordering::Acquire);
        fd >= 0 && socket::connected(fd)
    }

    /// Leases up to `bytes` from `donor`; less only if not `exact`.
    pub(crate) fn lease(
        &self,
        donor: usize,
        bytes: u64,
        exact: bool,
        account: &Account,
    ) -> Result<Chunk, LinkError> {
        let donor = u32::try_from(donor).map_err(|_| LinkError::Refused)?;
        let request = Request { bytes, donor, exact: u32::from(exact), ..Request::new(Op::Lease) };
        let mut state = self.lock();
        let (reply, mut descriptors) = self.ask(&mut state, request, account)?;
        match (status(&reply), descriptors.pop()) {
            (Some(Status::Ok), Some(descriptor)) => {
                state.leases.insert(reply.lease, Lease { donor, bytes: reply.bytes });
                drop(state);
                if self.host == Some(donor) {
                    account.charge_host(reply.bytes);
                } else {
                    account.charge_donor(reply.bytes, self.pages());
                }
                let rdma = reply.flags & CHUNK_RDMA != 0;
                let more = reply.flags & CHUNK_MORE != 0;
                Ok(Chunk { lease: reply.lease, bytes: reply.bytes, rdma, more, descriptor })
            }
            (Some(Status::Ok), None) => {
                log::warn("cuda: this process has no descriptor to spare: a chunk was given back");
                self.tell_released(&mut state, reply.lease);
                Err(LinkError::OutOfMemory)
            }
            (Some(Status::OutOfMemory | Status::Limited), _) => Err(LinkError::OutOfMemory),
            _ => Err(LinkError::Refused),
        }
    }

    /// Gives a lease back, after its memory has been unmapped and released here.
    pub(crate) fn release(&self, lease: u64, account: &Account) {
        let mut state = self.lock();
        let Some(Lease { bytes, donor }) = state.leases.remove(&lease) else { return };
        self.tell_released(&mut state, lease);
        if self.host == Some(donor) && state.socket.is_none() {
            // Connecting tells the next broker. A card shows by itself that the memory is gone; the host does not.
            let _ = self.connected(&mut state, account);
        }
        drop(state);
        if self.host == Some(donor) {
            account.return_host(bytes);
        } else {
            account.return_donor(bytes, self.pages());
        }
    }

    fn tell_released(&self, state: &mut State, lease: u64) {
        state.unheard.insert(lease);
        self.returned.store(true, Ordering::Release);
        let request = Request { lease, ..Request::new(Op::Release) };
        if state.socket.as_ref().is_some_and(|socket| socket.send(request).is_err()) {
            self.disconnect(state);
        }
    }

    /// Offers a block to the pool's other processes, piece by piece: the lease of each, or its bytes and the descriptor of local memory.
    /// A refusal withdraws what was offered.
    pub(crate) fn share(
        &self,
        number: u64,
        pieces: &[(u64, u64, Option<OwnedFd>)],
        account: &Account,
    ) -> Result<(), LinkError> {
        let mut state = self.lock();
        for (index, (lease, bytes, descriptor)) in pieces.iter().enumerate() {
            let exact = u32::try_from(index).map_err(|_| LinkError::Refused)?;
            let request =
                Request { nonce: number, lease: *lease, bytes: *bytes, exact, ..Request::new(Op::Share) };
            let answer = self.connected(&mut state, account).and_then(|socket| {
                socket.send_along(request, descriptor.as_ref().map(AsFd::as_fd))?;
                socket.receive()
            });
            let Ok((reply, _)) = answer else {
                self.disconnect(&mut state);
                return Err(LinkError::Gone);
            };
            if !reply.ok() {
                drop(state);
                self.unshare(number);
                return Err(LinkError::Refused);
            }
        }
        Ok(())
    }

    pub(crate) fn unshare(&self, number: u64) {
        let mut state = self.lock();
        let request = Request { nonce: number, ..Request::new(Op::Unshare) };
        if state.socket.as_ref().is_some_and(|socket| socket.send(request).is_err()) {
            self.disconnect(&mut state);
        }
    }

    /// A piece of a block that another process of the pool shares: bytes and descriptor.
    pub(crate) fn open(
        &self,
        number: u64,
        index: usize,
        account: &Account,
    ) -> Result<(u64, OwnedFd), LinkError> {
        let exact = u32::try_from(index).map_err(|_| LinkError::Refused)?;
        self.descriptor(Request { nonce: number, exact, ..Request::new(Op::Open) }, account)
    }

    /// Another descriptor of a lease of this process.
    pub(crate) fn export(&self, lease: u64, account: &Account) -> Result<OwnedFd, LinkError> {
        let request = Request { lease, ..Request::new(Op::Export) };
        self.descriptor(request, account).map(|(_, descriptor)| descriptor)
    }

    fn descriptor(&self, request: Request, account: &Account) -> Result<(u64, OwnedFd), LinkError> {
        let (reply, mut descriptors) = self.ask(&mut self.lock(), request, account)?;
        match descriptors.pop() {
            Some(descriptor) if reply.ok() => Ok((reply.bytes, descriptor)),
            _ => Err(LinkError::Refused),
        }
    }

    /// A descriptor of a granule of each donor, only to be imported and dropped. Asked together with the greeting: when a thousand
    /// processes start at once, every wait costs each of them a turn of the processor.
    pub(crate) fn probe(&self, account: &Account) -> Result<Probes, LinkError> {
        let request = Request::new(Op::Probe);
        let mut state = self.lock();
        let along = self.reconnect(&mut state, account, Some(request))?;
        let (reply, descriptors) = match along {
            Some(answer) => answer,
            None => self.ask(&mut state, request, account)?,
        };
        if !reply.ok() {
            return Err(LinkError::Refused);
        }
        let donors = (0..DONORS_MAX).filter(|donor| reply.bytes & (1 << donor) != 0);
        let full = u16::try_from(reply.lease).unwrap_or(0);
        Ok(Probes { full, offered: donors.zip(descriptors).collect() })
    }

    /// As [`Link::settle`], if this process gave anything back since: a program that frees and looks must see what it freed.
    pub(crate) fn settle_own(&self, account: &Account) {
        if self.returned.load(Ordering::Acquire) {
            self.settle(account);
        }
    }

    /// Has the broker bring its page up to date.
    pub(crate) fn settle(&self, account: &Account) {
        self.returned.store(false, Ordering::Release);
        // Without an answer the page stays as it is, and so does the caller's refusal.
        let _ = self.ask(&mut self.lock(), Request::new(Op::Settle), account);
    }

    /// In a forked child: the inherited connection belongs to the parent. Only what is safe after fork in a threaded process.
    pub(crate) fn abandon(&self) {
        let fd = self.fd.swap(-1, Ordering::AcqRel);
        let inode = self.inode.load(Ordering::Acquire);
        // A program that closes what it does not know may have a file of its own by that number.
        if fd >= 0 && socket::inode(fd) == Some(inode) {
            // SAFETY: the child's copy of the descriptor; the child starts anew and never uses it.
            unsafe { libc::close(fd) };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, state: &mut State, request: Request, account: &Account) -> Result<Message, Gone> {
        let socket = self.connected(state, account)?;
        let asked_at_ms = monotonic_ms();
        let answer = socket.send(request).and_then(|()| socket.receive());
        if answer.is_err() {
            self.unanswered(asked_at_ms, socket::ANSWER_WITHIN_MS);
            self.disconnect(state);
        } else {
            // Messages are taken in their order.
            state.unheard.clear();
        }
        answer
    }

    /// The socket, connected.
    fn connected<'a>(&self, state: &'a mut State, account: &Account) -> Result<&'a Socket, Gone> {
        self.reconnect(state, account, None)?;
        state.socket.as_ref().ok_or(Gone)
    }

    /// Replaces a broken or missing socket, at most every [`RETRY_AFTER_MS`]. Then, `along` is asked with the greeting, and its answer
    /// returned.
    fn reconnect(
        &self,
        state: &mut State,
        account: &Account,
        along: Option<Request>,
    ) -> Result<Option<Message>, Gone> {
        if state.socket.as_ref().is_some_and(|socket| !socket::connected(socket.raw())) {
            self.disconnect(state);
        }
        if state.socket.is_some() {
            return Ok(None);
        }
        let now = monotonic_ms();
        if now < self.retry_at_ms.load(Ordering::Relaxed) {
            return Err(Gone);
        }
        self.retry_at_ms.store(now + RETRY_AFTER_MS, Ordering::Relaxed);
        let silent = self.silences.load(Ordering::Relaxed) > 0;
        let within_ms = if silent { SILENT_WITHIN_MS } else { socket::ANSWER_WITHIN_MS };
        let greeted = self.greet(state, account, along, within_ms);
        let (socket, answer) = greeted.inspect_err(|_| self.unanswered(now, within_ms))?;
        if silent {
            socket.wait_at_most(socket::ANSWER_WITHIN_MS)?;
            self.silences.store(0, Ordering::Relaxed);
        }
        self.inode.store(socket.inode(), Ordering::Release);
        self.fd.store(socket.raw(), Ordering::Release);
        state.socket = Some(socket);
        Ok(answer)
    }

    /// Connects and says hello; tells a new broker of the leases that this process holds, and of those that it holds no more.
    fn greet(
        &self,
        state: &State,
        account: &Account,
        along: Option<Request>,
        within_ms: u64,
    ) -> Result<(Socket, Option<Message>), Gone> {
        let socket = Socket::connect(&self.path, within_ms)?;
        socket.send(Request { nonce: self.nonce, ..Request::new(Op::Hello) })?;
        if let Some(along) = along {
            socket.send(along)?;
        }
        let (reply, files) = socket.receive()?;
        let [ledger, local] = files.as_slice() else {
            log::warn(&format!("cuda: the broker refused this process with status {}", reply.status));
            return Err(Gone);
        };
        if reply.slot == SLOT_NONE {
            log::warn("cuda: no slot free, this process's local bytes are not counted");
        }
        let pages = Pages::map(ledger, local, reply.slot, self.pages()).ok_or(Gone)?;
        let answer = along.map(|_| socket.receive()).transpose()?;
        for (&lease, held) in &state.leases {
            let claim = Request { lease, donor: held.donor, bytes: held.bytes, ..Request::new(Op::Register) };
            socket.send(claim)?;
            let (reply, _) = socket.receive()?;
            if !reply.ok() {
                log::warn(&format!("cuda: lease {lease} of {} bytes was not recognised", held.bytes));
            }
        }
        for &lease in &state.unheard {
            socket.send(Request { lease, ..Request::new(Op::Release) })?;
        }
        // Leaked on purpose: another thread may be reading the old ones.
        self.pages.store(Box::into_raw(Box::new(pages)), Ordering::Release);
        account.show(self.pages());
        Ok((socket, answer))
    }

    /// An exchange that began at `asked_at_ms` failed. If the whole time went by, the broker is left alone for a while.
    fn unanswered(&self, asked_at_ms: u64, within_ms: u64) {
        let now = monotonic_ms();
        if now.saturating_sub(asked_at_ms) < within_ms {
            return;
        }
        let before = self.silences.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            log::warn("cuda: the broker does not answer: no donor memory until it does");
        }
        let pause = (SILENT_PAUSE_MS << before.min(8)).min(SILENT_PAUSE_MOST_MS);
        self.retry_at_ms.store(now + pause, Ordering::Relaxed);
    }

    fn disconnect(&self, state: &mut State) {
        self.fd.store(-1, Ordering::Release);
        state.socket = None;
    }
}

fn status(reply: &Reply) -> Option<Status> {
    [Status::Ok, Status::OutOfMemory, Status::Limited]
        .into_iter()
        .find(|status| *status as u32 == reply.status)
}
