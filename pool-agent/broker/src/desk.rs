//! Requests in, replies out: the ledger's rules joined to the cards, the pages and the journal. No socket here.
//!
//! The desk owns the broker's driver handles, one a live lease. A lease that was registered after a restart has none: its
//! memory belongs to the process that maps it, and only the card's figures show when it goes.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tarn_protocol::broker_wire::{
    CHUNK_MORE, CHUNK_RDMA, DONOR_ANY, Op, Reply, Request, SLOT_NONE, Status, VERSION,
};

use crate::admission::Numbered;
use crate::journal::{DonorLine, Journal, JournalError};
use crate::ledger::{CHUNK_UNIT, Chunk, Client, Donor, LeaseId, Ledger, Nonce, Refusal, Want};
use crate::memory::{DRIVER_OUT_OF_MEMORY, DonorMemory, DriverRefusal};
use crate::pages::Pages;
use crate::shares::{Piece, ShareId, ShareRefusal, Shares};
use crate::stock::{GRANULE, Stock};

/// How long a probe chunk stays after its last use, so that a burst of new processes shares one.
const PROBE_LINGER: Duration = Duration::from_millis(500);
/// First and longest pause between looks at a card with quarantined bytes.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LONGEST: Duration = Duration::from_millis(250);

/// What a connection is, from its first message on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub client: Client,
    pub nonce: Nonce,
}

/// The desk's answer to a request.
#[derive(Debug)]
pub enum Answer {
    Reply(Reply),
    /// With the chunk's descriptor, which is closed once sent.
    Chunk(Reply, OwnedFd),
    /// With the probes' descriptors, which stay the desk's: see [`Desk::probe_descriptors`].
    Probes(Reply),
    /// `Release` has no reply.
    Silent,
    /// What other clients already sent may change the answer: ask again when that is taken in.
    Later,
}

struct Probe<H> {
    handle: H,
    /// Sent to every process that asks: exporting costs the driver 0.6 ms, sending a descriptor again costs nothing.
    descriptor: OwnedFd,
    last_used_at: Duration,
}

pub struct Desk<M: DonorMemory> {
    ledger: Ledger,
    memory: M,
    journal: Journal,
    pages: Pages,
    handles: BTreeMap<LeaseId, M::Handle>,
    probes: Vec<Option<Probe<M::Handle>>>,
    shares: Shares,
    stock: Stock<M::Handle>,
    baselines: Vec<u64>,
    look_at: Option<Duration>,
    look_pause: Duration,
}

impl<M: DonorMemory> std::fmt::Debug for Desk<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

fn refusal(refusal: &Refusal) -> Reply {
    Reply::new(match refusal {
        Refusal::OutOfMemory { .. } => Status::OutOfMemory,
        Refusal::Limited { .. } => Status::Limited,
        Refusal::BadSize { .. } | Refusal::NoSuchDonor { .. } | Refusal::NotYours { .. } => {
            Status::BadRequest
        }
    })
}

fn driver_refusal(refusal: DriverRefusal) -> Reply {
    let out_of_memory = refusal.code == DRIVER_OUT_OF_MEMORY;
    let status = if out_of_memory { Status::OutOfMemory } else { Status::Driver };
    Reply { driver_code: refusal.code, ..Reply::new(status) }
}

impl<M: DonorMemory> Desk<M> {
    pub fn new(ledger: Ledger, memory: M, journal: Journal, pages: Pages, donors: &[DonorLine]) -> Self {
        pages.publish(ledger.accounts());
        let look_at = ledger.quarantined().then_some(Duration::ZERO);
        Self {
            memory,
            journal,
            pages,
            handles: BTreeMap::new(),
            probes: donors.iter().map(|_| None).collect(),
            shares: Shares::default(),
            stock: Stock::new(donors.len()),
            baselines: donors.iter().map(|donor| donor.baseline_bytes).collect(),
            look_at,
            look_pause: LOOK_FIRST,
            ledger,
        }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What replies to `Hello` and `Observe` carry.
    pub fn page_descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.pages.descriptors()
    }

    /// Opens a connection of a tenant process: its slot.
    pub fn greet(&mut self, process: Numbered) -> Reply {
        let slot = self.pages.take_slot(process).unwrap_or(SLOT_NONE);
        Reply { slot, ..Reply::new(Status::Ok) }
    }

    /// Answers a request of a greeted client. `last_call`: a lease that does not fit is refused, not put off.
    pub fn answer(
        &mut self,
        caller: Caller,
        request: &Request,
        now: Duration,
        last_call: bool,
    ) -> Result<Answer, JournalError> {
        if request.version != VERSION {
            return Ok(Answer::Reply(Reply::new(Status::BadVersion)));
        }
        match Op::from_code(request.op) {
            Some(Op::Lease) => self.lease(caller, request, now, last_call),
            Some(Op::Release) => self.release(caller, LeaseId(request.lease), now),
            Some(Op::Register) => self.register(caller, request),
            Some(Op::Probe) => Ok(self.probe(now)),
            Some(Op::Settle) if !last_call => Ok(Answer::Later),
            Some(Op::Settle) => {
                self.look();
                self.publish()?;
                Ok(Answer::Reply(Reply::new(Status::Ok)))
            }
            Some(Op::Unshare) => {
                self.shares.withdraw(caller.client, ShareId(request.nonce));
                Ok(Answer::Silent)
            }
            Some(Op::Open) => Ok(self.open(request)),
            Some(Op::Export) => Ok(self.export(caller, request)),
            // An offer comes by [`Desk::share`], with its descriptor.
            Some(Op::Hello | Op::Observe | Op::Share) | None => {
                Ok(Answer::Reply(Reply::new(Status::BadRequest)))
            }
        }
    }

    /// The connection ended, however it ended.
    pub fn leave(&mut self, client: Client, slot: u32, now: Duration) -> Result<usize, JournalError> {
        if slot != SLOT_NONE {
            self.pages.return_slot(slot);
        }
        self.shares.forget(client);
        let held = self.ledger.reclaim(client);
        for (lease, chunk) in &held {
            self.let_go(*lease, *chunk);
            self.journal.ended(*lease)?;
        }
        if !held.is_empty() {
            self.clear_idle_stock();
            self.look_soon(now);
            self.publish()?;
        }
        Ok(held.len())
    }

    /// When [`Desk::tick`] has something to do.
    pub fn next_wake(&self) -> Option<Duration> {
        let probes = self.probes.iter().flatten().map(|probe| probe.last_used_at + PROBE_LINGER);
        probes.chain(self.look_at).chain(self.stock.next_wake()).min()
    }

    /// Looks at the cards when a look is due, and drops idle probes.
    pub fn tick(&mut self, now: Duration) -> Result<(), JournalError> {
        for probe in &mut self.probes {
            if let Some(idle) = probe.take_if(|probe| probe.last_used_at + PROBE_LINGER <= now) {
                self.memory.release(idle.handle);
            }
        }
        let accounts = self.ledger.accounts();
        // Nothing is made ahead where nothing is lent any more.
        let room = |donor: Donor| {
            let account = accounts[donor.0];
            if account.leased_bytes > 0 { account.free_bytes() } else { 0 }
        };
        self.stock.replenish(&mut self.memory, room, now);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look();
            self.publish()?;
            self.look_pause = (self.look_pause * 2).min(LOOK_LONGEST);
            self.look_at = self.ledger.quarantined().then(|| now + self.look_pause);
        }
        Ok(())
    }

    fn lease(
        &mut self,
        caller: Caller,
        request: &Request,
        now: Duration,
        last_call: bool,
    ) -> Result<Answer, JournalError> {
        let donor = (request.donor != DONOR_ANY).then_some(Donor(request.donor as usize));
        let mut want = Want { bytes: request.bytes, donor, exact: request.exact != 0 };
        let free =
            |donor: Donor| self.ledger.accounts().get(donor.0).map_or(0, |account| account.free_bytes());
        let stocked = donor.is_some_and(|donor| self.stock.bytes(donor) > 0 && free(donor) >= GRANULE);
        let from_stock = stocked && (want.bytes == GRANULE || (want.bytes > GRANULE && !want.exact));
        if from_stock {
            want = Want { bytes: GRANULE, exact: true, ..want };
        }
        let mut granted = self.ledger.lease(caller.client, caller.nonce, want);
        if matches!(granted, Err(Refusal::OutOfMemory { .. })) && self.ledger.quarantined() {
            self.look();
            granted = self.ledger.lease(caller.client, caller.nonce, want);
        }
        let (lease, chunk) = match granted {
            Ok(granted) => granted,
            Err(Refusal::OutOfMemory { .. }) if !last_call => return Ok(Answer::Later),
            Err(refused) => return Ok(Answer::Reply(refusal(&refused))),
        };
        let ready = if from_stock { self.stock.take(chunk.donor) } else { None };
        let made = ready.map_or_else(|| self.create(chunk), Ok);
        match made {
            Err(refused) => {
                // The card may hold what it just refused to explain; the ledger's view is refreshed with the next look.
                let _ = self.ledger.cancel(caller.client, lease);
                self.look_soon(now);
                Ok(Answer::Reply(driver_refusal(refused)))
            }
            Ok((handle, descriptor)) => {
                self.handles.insert(lease, handle);
                self.journal.leased(lease, chunk)?;
                self.publish()?;
                if chunk.bytes >= GRANULE && self.memory.makes_ahead(chunk.donor) {
                    self.stock.expect_more(chunk.donor, now);
                }
                Ok(Answer::Chunk(self.granted(lease, chunk, request.bytes), descriptor))
            }
        }
    }

    fn granted(&self, lease: LeaseId, chunk: Chunk, wanted_bytes: u64) -> Reply {
        let donor = u32::try_from(chunk.donor.0).unwrap_or(DONOR_ANY);
        let rdma = if self.memory.rdma(chunk.donor) { CHUNK_RDMA } else { 0 };
        let left = self.ledger.accounts()[chunk.donor.0].free_bytes();
        let more = if chunk.bytes < wanted_bytes && left >= CHUNK_UNIT { CHUNK_MORE } else { 0 };
        Reply { lease: lease.0, bytes: chunk.bytes, donor, flags: rdma | more, ..Reply::new(Status::Ok) }
    }

    /// An idle probe, and what was made ahead, give way to a lease that needs the card's last bytes.
    fn create(&mut self, chunk: Chunk) -> Result<(M::Handle, OwnedFd), DriverRefusal> {
        let created = self.memory.create(chunk.donor, chunk.bytes);
        if !matches!(&created, Err(refused) if refused.code == DRIVER_OUT_OF_MEMORY) {
            return created;
        }
        let probe = self.probes[chunk.donor.0].take();
        let made_room = probe.is_some() | self.stock.clear(&mut self.memory, chunk.donor, 0);
        if let Some(probe) = probe {
            self.memory.release(probe.handle);
        }
        if made_room { self.memory.create(chunk.donor, chunk.bytes) } else { created }
    }

    /// Changes what the donors give, in their order: visible on the page at once. Live memory is never taken.
    pub fn resize(&mut self, capacities: &[u64]) -> Result<(), JournalError> {
        for (at, &capacity) in capacities.iter().enumerate().take(self.ledger.accounts().len()) {
            let donor = Donor(at);
            self.ledger.resize(donor, capacity);
            let free = self.ledger.accounts()[at].free_bytes();
            self.stock.clear(&mut self.memory, donor, free);
        }
        self.publish()
    }

    /// Nothing is kept ready on donors that nobody uses.
    fn clear_idle_stock(&mut self) {
        for at in 0..self.ledger.accounts().len() {
            if self.ledger.accounts()[at].leased_bytes == 0 {
                self.stock.clear(&mut self.memory, Donor(at), 0);
            }
        }
    }

    fn release(&mut self, caller: Caller, lease: LeaseId, now: Duration) -> Result<Answer, JournalError> {
        let released = self.ledger.release(caller.client, lease).ok();
        if let Some(chunk) = released.or_else(|| self.ledger.disown(caller.nonce, lease)) {
            self.let_go(lease, chunk);
            self.journal.ended(lease)?;
            self.clear_idle_stock();
            self.look_soon(now);
            self.publish()?;
        }
        Ok(Answer::Silent)
    }

    fn register(&mut self, caller: Caller, request: &Request) -> Result<Answer, JournalError> {
        let lease = LeaseId(request.lease);
        let chunk = Chunk { nonce: caller.nonce, donor: Donor(request.donor as usize), bytes: request.bytes };
        match self.ledger.register(caller.client, lease, chunk) {
            Ok(()) => {
                self.journal.leased(lease, chunk)?;
                self.publish()?;
                Ok(Answer::Reply(Reply { lease: lease.0, bytes: chunk.bytes, ..Reply::new(Status::Ok) }))
            }
            Err(refused) => Ok(Answer::Reply(refusal(&refused))),
        }
    }

    /// Every donor's probe, made where there is none.
    fn probe(&mut self, now: Duration) -> Answer {
        let mut reply = Reply { lease: 0, bytes: 0, ..Reply::new(Status::Ok) };
        for (at, place) in self.probes.iter_mut().enumerate() {
            let bit = 1 << at;
            if place.is_none() {
                match self.memory.create(Donor(at), CHUNK_UNIT) {
                    Ok((handle, descriptor)) => {
                        *place = Some(Probe { handle, descriptor, last_used_at: now });
                    }
                    Err(DriverRefusal { code: DRIVER_OUT_OF_MEMORY }) => reply.lease |= bit,
                    Err(refused) => {
                        tracing::debug!(donor = at, code = refused.code, "no probe can be made");
                    }
                }
            }
            if let Some(probe) = place {
                probe.last_used_at = now;
                reply.bytes |= bit;
            }
        }
        Answer::Probes(reply)
    }

    /// What an [`Answer::Probes`] carries, in the order of the donors.
    pub fn probe_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.probes.iter().flatten().map(|probe| probe.descriptor.as_fd())
    }

    /// Takes a piece of a block that the caller offers to the pool's other processes.
    pub fn share(&mut self, caller: Caller, request: &Request, descriptor: Option<OwnedFd>) -> Answer {
        let piece = match (request.lease, descriptor) {
            (0, Some(descriptor)) => Some(Piece::Local { descriptor, bytes: request.bytes }),
            (0, None) => None,
            (lease, _) => {
                let lease = LeaseId(lease);
                let chunk = self.ledger.held(caller.client, lease);
                chunk.map(|chunk| Piece::Donor { lease, bytes: chunk.bytes })
            }
        };
        let Some(piece) = piece.filter(|_| request.version == VERSION) else {
            return Answer::Reply(Reply::new(Status::BadRequest));
        };
        let offered = self.shares.offer(caller.client, ShareId(request.nonce), request.exact as usize, piece);
        Answer::Reply(Reply::new(match offered {
            Ok(()) => Status::Ok,
            Err(ShareRefusal::NotYours) => Status::BadRequest,
            Err(ShareRefusal::Limited) => Status::Limited,
        }))
    }

    /// A piece of somebody's block.
    fn open(&self, request: &Request) -> Answer {
        let piece = self.shares.piece(ShareId(request.nonce), request.exact as usize);
        let (bytes, descriptor) = match piece {
            None => return Answer::Reply(Reply::new(Status::BadRequest)),
            Some(Piece::Local { descriptor, bytes }) => (*bytes, descriptor.try_clone().ok()),
            Some(Piece::Donor { lease, bytes }) => (*bytes, self.descriptor(*lease)),
        };
        match descriptor {
            Some(descriptor) => Answer::Chunk(Reply { bytes, ..Reply::new(Status::Ok) }, descriptor),
            None => Answer::Reply(Reply::new(Status::Limited)),
        }
    }

    fn export(&self, caller: Caller, request: &Request) -> Answer {
        let lease = LeaseId(request.lease);
        let Some(chunk) = self.ledger.held(caller.client, lease) else {
            return Answer::Reply(Reply::new(Status::BadRequest));
        };
        match self.descriptor(lease) {
            Some(descriptor) => {
                Answer::Chunk(Reply { bytes: chunk.bytes, ..Reply::new(Status::Ok) }, descriptor)
            }
            None => Answer::Reply(Reply::new(Status::Limited)),
        }
    }

    /// A new descriptor of a lease; `None` when the chunk is a predecessor's, of which this process has no handle.
    fn descriptor(&self, lease: LeaseId) -> Option<OwnedFd> {
        let handle = self.handles.get(&lease)?;
        self.memory
            .export(handle)
            .inspect_err(|refused| tracing::warn!(code = refused.code, "no descriptor"))
            .ok()
    }

    /// The memory of a lease that has ended: ours to release, or a predecessor's, whose handle died with it.
    fn let_go(&mut self, lease: LeaseId, chunk: Chunk) {
        match self.handles.remove(&lease) {
            Some(handle) => self.memory.release(handle),
            None => self.memory.returned(chunk.donor, chunk.bytes),
        }
    }

    fn look_soon(&mut self, now: Duration) {
        self.look_pause = LOOK_FIRST;
        self.look_at = Some(now);
    }

    /// Reads the cards that have quarantined bytes and frees what they show gone.
    fn look(&mut self) {
        for at in 0..self.ledger.accounts().len() {
            let account = self.ledger.accounts()[at];
            if account.quarantined_bytes == 0 {
                continue;
            }
            let Some(used) = self.memory.used_bytes(Donor(at)) else { continue };
            let probe = if self.probes[at].is_some() { CHUNK_UNIT } else { 0 };
            let pool = used.saturating_sub(probe + self.stock.bytes(Donor(at)));
            // What was there before the pool can shrink, never below zero: leased bytes are in `used` for certain.
            self.baselines[at] = self.baselines[at].min(pool.saturating_sub(account.leased_bytes));
            self.ledger.settle(Donor(at), pool - self.baselines[at]);
        }
    }

    fn publish(&mut self) -> Result<(), JournalError> {
        self.pages.publish(self.ledger.accounts());
        self.journal.compact(&self.ledger)
    }
}
