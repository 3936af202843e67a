//! The socket side: one thread, one epoll, every client a nonblocking `SOCK_SEQPACKET` connection.
//!
//! Fairness and limits are here: a client is served a bounded number of messages a round, must say hello in time, and is dropped
//! when it does not read its replies. Give-backs of a round are processed before any request is refused for want of memory,
//! so that a process never sees "out of memory" for bytes that another gave back before it asked.
//!
//! One thread is enough because the driver has one lock: on driver 580, 256 processes that only import one descriptor get 4,200
//! imports a second out of it (p50 17 ms), 256 that lease chunks of 64 MiB 2,400 leases.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::Timespec;
use tarn_protocol::broker_wire::{Op, Reply, Request, SLOTS_MAX, Status, VERSION};

use crate::admission::{Admission, Numbered, Proc, Standing};
use crate::desk::{Answer, Caller, Desk};
use crate::journal::JournalError;
use crate::ledger::{Client, Nonce};
use crate::memory::DonorMemory;
use crate::wire::{self, WireError};

/// Messages taken from one client before the next gets its turn.
const MESSAGES_PER_TURN: usize = 16;
/// Connections of the instance: a slot for every process, and as many observers (the NVML stand-in of each process).
const TENANTS_MAX: usize = 2 * SLOTS_MAX;
/// Connections in all: the host's own observers get in when the instance has used up its share.
const CLIENTS_MAX: usize = TENANTS_MAX + 16;
/// A connection that has not said hello by then is dropped.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// Rounds a request waits for memory while other clients keep talking.
const LATER_ROUNDS_MAX: u32 = 8;
const EVENTS_PER_ROUND: usize = 256;

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const RELOAD: u64 = 2;
const FIRST_CLIENT: u64 = 3;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {path}")]
    Listen { path: PathBuf, source: Errno },
    #[error("waiting for events failed")]
    Wait(#[source] Errno),
    #[error("the ledger can no longer be written")]
    Journal(#[from] JournalError),
}

/// What a connection may do, learnt from the kernel and from its first message.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Silent { standing: Standing },
    Tenant { nonce: Nonce, slot: u32 },
    Observer,
}

#[derive(Debug)]
struct Peer {
    socket: OwnedFd,
    pid: u32,
    stage: Stage,
}

#[derive(Debug)]
struct Waiting {
    client: Client,
    request: Request,
    rounds: u32,
}

/// What the donors give from now on, in their order; `None` when the word is not understood.
pub type Quotas = Box<dyn FnMut() -> Option<Vec<u64>> + Send>;

pub struct Server<M: DonorMemory> {
    desk: Desk<M>,
    admission: Admission,
    listener: OwnedFd,
    epoll: OwnedFd,
    peers: BTreeMap<Client, Peer>,
    /// Connections that have not said hello, oldest first, and since when.
    silent: BTreeMap<Client, Duration>,
    waiting: Vec<Waiting>,
    next_client: u64,
    quotas: Option<Quotas>,
    /// Given up for a moment to turn a connection away when no descriptor is left: one that stays unanswered would wake us for ever.
    spare: Option<OwnedFd>,
}

impl<M: DonorMemory> std::fmt::Debug for Server<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("desk", &self.desk).finish_non_exhaustive()
    }
}

fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Opens the socket at `path`, in place of a dead predecessor's.
pub fn listen(path: &Path) -> Result<OwnedFd, ServeError> {
    let failed = |source| ServeError::Listen { path: path.to_owned(), source };
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    rustix::net::bind(&socket, &address).map_err(failed)?;
    // Who may speak is decided by credentials; the mode only has to let the instance's user connect.
    rustix::fs::chmod(path, Mode::from_raw_mode(0o666)).map_err(failed)?;
    rustix::net::listen(&socket, 4096).map_err(failed)?;
    Ok(socket)
}

impl<M: DonorMemory> Server<M> {
    /// Serves `desk` on `listener` until `stop` becomes readable.
    pub fn new(
        desk: Desk<M>,
        admission: Admission,
        listener: OwnedFd,
        stop: impl AsFd,
    ) -> Result<Self, ServeError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(ServeError::Wait)?;
        for (source, name) in [(listener.as_fd(), LISTENER), (stop.as_fd(), STOP)] {
            epoll::add(&epoll, source, epoll::EventData::new_u64(name), epoll::EventFlags::IN)
                .map_err(ServeError::Wait)?;
        }
        Ok(Self {
            desk,
            admission,
            listener,
            epoll,
            peers: BTreeMap::new(),
            silent: BTreeMap::new(),
            waiting: Vec::new(),
            next_client: FIRST_CLIENT,
            quotas: None,
            spare: spare(),
        })
    }

    /// Asks `quotas` whenever `signal` becomes readable; it has to take the signal in, too.
    pub fn resize_on(&mut self, signal: impl AsFd, quotas: Quotas) -> Result<(), ServeError> {
        epoll::add(&self.epoll, signal, epoll::EventData::new_u64(RELOAD), epoll::EventFlags::IN)
            .map_err(ServeError::Wait)?;
        self.quotas = Some(quotas);
        Ok(())
    }

    pub fn desk(&self) -> &Desk<M> {
        &self.desk
    }

    pub fn clients(&self) -> usize {
        self.peers.len()
    }

    /// Serves until stopped. `clock` is monotonic.
    pub fn run(&mut self, clock: impl Fn() -> Duration) -> Result<(), ServeError> {
        while self.round(&clock)? {}
        Ok(())
    }

    /// One wait and everything it brings. False: stop was asked.
    fn round(&mut self, clock: &impl Fn() -> Duration) -> Result<bool, ServeError> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_PER_ROUND);
        let timeout = self.timeout(clock());
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(ServeError::Wait(errno)),
        }
        let now = clock();
        for event in &events {
            match event.data.u64() {
                LISTENER => self.accept(now),
                STOP => return Ok(false),
                RELOAD => {
                    let quotas = self.quotas.as_mut().and_then(|quotas| quotas());
                    quotas.map_or(Ok(()), |quotas| self.desk.resize(&quotas))?;
                }
                client => self.serve(Client(client), now)?,
            }
        }
        self.retry(now, events.is_empty())?;
        self.drop_silent(now)?;
        self.desk.tick(now)?;
        Ok(true)
    }

    fn timeout(&self, now: Duration) -> Option<Timespec> {
        if !self.waiting.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let hello = self.silent.first_key_value().map(|(_, since)| *since + HELLO_WITHIN);
        let wake = hello.into_iter().chain(self.desk.next_wake()).min()?;
        Timespec::try_from(wake.saturating_sub(now)).ok()
    }

    fn accept(&mut self, now: Duration) {
        for _ in 0..EVENTS_PER_ROUND {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::MFILE | Errno::NFILE) => return self.turn_away(),
                Err(errno) => {
                    tracing::warn!(%errno, "a connection could not be accepted");
                    return;
                }
            };
            let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else { continue };
            let standing = self.admission.judge(&peer, &Proc);
            let most = match standing {
                Standing::Stranger => 0,
                Standing::Tenant => TENANTS_MAX,
                Standing::Observer => CLIENTS_MAX,
            };
            if self.peers.len() >= most {
                tracing::warn!(pid = peer.pid.as_raw_nonzero().get(), uid = peer.uid.as_raw(), "refused");
                let _ = wire::send_reply(&socket, Reply::new(Status::Forbidden), &[]);
                continue;
            }
            let client = Client(self.next_client);
            self.next_client += 1;
            let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(client.0), interest).is_err() {
                continue;
            }
            let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
            self.peers.insert(client, Peer { socket, pid, stage: Stage::Silent { standing } });
            self.silent.insert(client, now);
        }
    }

    /// No descriptor is left for whoever waits at the door: they are let in by the spare one, and out again.
    fn turn_away(&mut self) {
        tracing::warn!(clients = self.peers.len(), "no descriptor is left: connections are turned away");
        for _ in 0..CLIENTS_MAX {
            self.spare = None;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let turned_away = rustix::net::accept_with(&self.listener, flags);
            let more = turned_away.is_ok();
            drop(turned_away);
            self.spare = spare();
            if !more {
                return;
            }
        }
    }

    fn serve(&mut self, client: Client, now: Duration) -> Result<(), ServeError> {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(peer) = self.peers.get(&client) else { return Ok(()) };
            let (request, descriptor) = match wire::receive_request(&peer.socket) {
                Ok(received) => received,
                Err(WireError::Empty) => return Ok(()),
                Err(WireError::Closed) => return self.part(client, now),
                Err(error) => {
                    tracing::warn!(pid = peer.pid, %error, "client dropped");
                    return self.part(client, now);
                }
            };
            self.handle(client, request, descriptor, now)?;
        }
        Ok(())
    }

    fn handle(
        &mut self,
        client: Client,
        request: Request,
        descriptor: Option<OwnedFd>,
        now: Duration,
    ) -> Result<(), ServeError> {
        let Some(peer) = self.peers.get(&client) else { return Ok(()) };
        match peer.stage {
            Stage::Silent { standing } => self.greet(client, standing, &request, now),
            Stage::Observer => self.send(client, &Answer::Reply(Reply::new(Status::Forbidden)), now),
            Stage::Tenant { nonce, .. } => {
                let caller = Caller { client, nonce };
                let answer = match Op::from_code(request.op) {
                    Some(Op::Share) => self.desk.share(caller, &request, descriptor),
                    _ => self.desk.answer(caller, &request, now, false)?,
                };
                if matches!(answer, Answer::Later) {
                    self.waiting.push(Waiting { client, request, rounds: 0 });
                    return Ok(());
                }
                self.send(client, &answer, now)
            }
        }
    }

    /// The first message decides what the connection is.
    fn greet(
        &mut self,
        client: Client,
        standing: Standing,
        request: &Request,
        now: Duration,
    ) -> Result<(), ServeError> {
        let refused = match (request.version, Op::from_code(request.op), standing) {
            (version, _, _) if version != VERSION => Status::BadVersion,
            (_, Some(Op::Hello), Standing::Tenant) => return self.welcome(client, Some(request.nonce), now),
            (_, Some(Op::Observe), _) => return self.welcome(client, None, now),
            (_, Some(Op::Hello), _) => Status::Forbidden,
            _ => Status::BadRequest,
        };
        self.send(client, &Answer::Reply(Reply::new(refused)), now)?;
        self.part(client, now)
    }

    fn welcome(&mut self, client: Client, nonce: Option<u64>, now: Duration) -> Result<(), ServeError> {
        self.silent.remove(&client);
        let Some(peer) = self.peers.get_mut(&client) else { return Ok(()) };
        let reply = if let Some(nonce) = nonce {
            let reply = self.desk.greet(Numbered::of(peer.pid));
            peer.stage = Stage::Tenant { nonce: Nonce(nonce), slot: reply.slot };
            reply
        } else {
            peer.stage = Stage::Observer;
            Reply::new(Status::Ok)
        };
        if wire::send_reply(&peer.socket, reply, &self.desk.page_descriptors()).is_err() {
            return self.part(client, now);
        }
        Ok(())
    }

    fn send(&mut self, client: Client, answer: &Answer, now: Duration) -> Result<(), ServeError> {
        let Some(peer) = self.peers.get(&client) else { return Ok(()) };
        let (reply, descriptors): (_, Vec<BorrowedFd<'_>>) = match answer {
            Answer::Reply(reply) => (*reply, Vec::new()),
            Answer::Chunk(reply, descriptor) => (*reply, vec![descriptor.as_fd()]),
            Answer::Probes(reply) => (*reply, self.desk.probe_descriptors().collect()),
            Answer::Silent | Answer::Later => return Ok(()),
        };
        match wire::send_reply(&peer.socket, reply, &descriptors) {
            Ok(()) => Ok(()),
            Err(WireError::Closed) => self.part(client, now),
            Err(error) => {
                tracing::warn!(pid = peer.pid, %error, "client dropped");
                self.part(client, now)
            }
        }
    }

    /// Requests that found no memory, once everything that had already arrived is processed.
    fn retry(&mut self, now: Duration, idle: bool) -> Result<(), ServeError> {
        for mut waiting in std::mem::take(&mut self.waiting) {
            let Some(Peer { stage: Stage::Tenant { nonce, .. }, .. }) = self.peers.get(&waiting.client)
            else {
                continue;
            };
            let caller = Caller { client: waiting.client, nonce: *nonce };
            let last_call = idle || waiting.rounds >= LATER_ROUNDS_MAX;
            let answer = self.desk.answer(caller, &waiting.request, now, last_call)?;
            if matches!(answer, Answer::Later) {
                waiting.rounds += 1;
                self.waiting.push(waiting);
            } else {
                self.send(caller.client, &answer, now)?;
            }
        }
        Ok(())
    }

    fn drop_silent(&mut self, now: Duration) -> Result<(), ServeError> {
        let late = self.silent.iter().take_while(|(_, since)| **since + HELLO_WITHIN <= now);
        let silent: Vec<Client> = late.map(|(&client, _)| client).collect();
        for client in silent {
            self.part(client, now)?;
        }
        Ok(())
    }

    /// Forgets a connection and reclaims what it held. Closing the socket removes it from the epoll.
    fn part(&mut self, client: Client, now: Duration) -> Result<(), ServeError> {
        self.silent.remove(&client);
        let Some(peer) = self.peers.remove(&client) else { return Ok(()) };
        if let Stage::Tenant { slot, .. } = peer.stage {
            let reclaimed = self.desk.leave(client, slot, now)?;
            if reclaimed > 0 {
                tracing::info!(pid = peer.pid, leases = reclaimed, "client gone, leases reclaimed");
            }
        }
        Ok(())
    }
}
