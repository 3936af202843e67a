//! A reader of a running broker: the figures of every donor and what each process took, for the agent.
//!
//! It holds no lease and takes no slot, so it can come and go, and a broker restart only means connecting again.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::Timespec;
use tarn_protocol::broker_wire::{DonorFigures, LOCAL_PAGE_BYTES, LedgerPage, Op, Request};

use crate::pages::{Mapping, PageError};
use crate::wire::{self, WireError};

/// A broker that does not answer within this is treated as gone.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("cannot connect to the broker")]
    Connect(#[source] Errno),
    #[error("the broker did not answer")]
    Wire(#[from] WireError),
    #[error("the broker refused with status {status}")]
    Refused { status: u32 },
    #[error("the broker sent {count} pages instead of two")]
    Pages { count: usize },
    #[error("the broker's pages cannot be mapped")]
    Map(#[from] PageError),
}

/// What one tenant process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessFigures {
    pub pid: u32,
    /// On the primary, as the process itself counts it.
    pub local_bytes: u64,
    /// On donors.
    pub donor_bytes: u64,
}

#[derive(Debug)]
pub struct Observer {
    socket: OwnedFd,
    ledger: Mapping,
    local: Mapping,
}

impl Observer {
    pub fn connect(path: &Path) -> Result<Self, ObserveError> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(ObserveError::Connect)?;
        let address = SocketAddrUnix::new(path).map_err(ObserveError::Connect)?;
        rustix::net::connect(&socket, &address).map_err(ObserveError::Connect)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN)).map_err(ObserveError::Connect)?;
        wire::send_request(&socket, Request::new(Op::Observe))?;
        let (reply, pages) = wire::receive_reply(&socket)?;
        if !reply.ok() {
            return Err(ObserveError::Refused { status: reply.status });
        }
        let [ledger, local] = pages.as_slice() else {
            return Err(ObserveError::Pages { count: pages.len() });
        };
        let ledger = Mapping::of(ledger, size_of::<LedgerPage>(), false)?;
        let local = Mapping::of(local, LOCAL_PAGE_BYTES, false)?;
        Ok(Self { socket, ledger, local })
    }

    /// False once the broker has gone: the pages then show its last words.
    pub fn alive(&self) -> bool {
        let mut sources = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut sources, Some(&at_once)), Ok(0))
    }

    /// The donors' figures, in the order of the pool config.
    pub fn donors(&self) -> Vec<DonorFigures> {
        self.ledger.ledger().donors().collect()
    }

    /// How often a process imported memory of the donors to see whether it reaches them; the others took its word.
    pub fn reach_proofs(&self) -> u64 {
        self.local.local().reached.proofs()
    }

    /// The processes that said hello and have not gone.
    pub fn processes(&self) -> Vec<ProcessFigures> {
        let high = self.ledger.ledger().slots_high.load(Acquire) as usize;
        let taken = self.local.slots().iter().take(high).filter_map(|slot| {
            let pid = slot.pid.load(Acquire);
            (pid != 0).then(|| ProcessFigures {
                pid,
                local_bytes: slot.local_bytes.load(Relaxed),
                donor_bytes: slot.donor_bytes.load(Relaxed),
            })
        });
        taken.collect()
    }
}
