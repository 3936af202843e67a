//! The broker's two shared pages: donors' bytes and every process's share.
//!
//! The CUDA stand-in reads the same pages, which is what makes the two views agree. When the broker is gone the pages stay mapped, for
//! the totals, and no donor byte is free; when another one answers, its pages are read. When there was none at start, donors count as
//! absent and the total is the primary alone.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Once;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tarn_protocol::broker_wire::{
    DonorFigures, LOCAL_PAGE_BYTES, LedgerPage, LocalSlot, Op, Reply, Request, SLOTS_MAX,
};
use tarn_protocol::pool_config::PoolConfig;

use crate::seat;

pub(crate) struct Pages {
    ledger: &'static LedgerPage,
    slots: &'static [LocalSlot],
    /// Its end tells either side that the other is gone.
    socket: OwnedFd,
}

/// The pages of the broker that is there, else of the last one that was; `None` when this process found none at its start.
pub(crate) fn get(pool: &PoolConfig) -> Option<&'static Pages> {
    static CURRENT: AtomicPtr<Pages> = AtomicPtr::new(std::ptr::null_mut());
    static START: Once = Once::new();
    // Leaked on purpose: another thread may be reading the old ones.
    let keep = |pages| CURRENT.store(Box::into_raw(Box::new(pages)), Release);
    START.call_once(|| match connect(pool) {
        Some(pages) => keep(pages),
        None if pool.donors.is_empty() => {}
        None => seat::warn("nvml: no broker answers: showing the primary alone"),
    });
    // SAFETY: null or a leaked box, never freed.
    let known = unsafe { CURRENT.load(Acquire).as_ref() }?;
    if !known.broker_lives()
        && let Some(pages) = connect(pool)
    {
        keep(pages);
    }
    // SAFETY: as above.
    unsafe { CURRENT.load(Acquire).as_ref() }
}

impl Pages {
    /// The donors' figures now, in the order of the pool config.
    pub(crate) fn donors(&self) -> impl Iterator<Item = DonorFigures> + '_ {
        self.ledger.donors()
    }

    /// Whether the broker of these pages still holds its end of the connection.
    pub(crate) fn broker_lives(&self) -> bool {
        let mut byte = 0u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the buffer is one live byte.
        let got = unsafe { libc::recv(self.socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
        got > 0 || (got < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Slots that were ever given out.
    fn slots(&self) -> &[LocalSlot] {
        let high = self.ledger.slots_high.load(Relaxed) as usize;
        &self.slots[..high.min(self.slots.len())]
    }

    /// Bytes that all processes of the tenant took from the primary, by their own count.
    pub(crate) fn local_bytes(&self) -> u64 {
        self.slots().iter().map(|slot| slot.local_bytes.load(Relaxed)).sum()
    }

    /// Donor bytes that `pid` holds, or `None` when it is not a process of this pool.
    pub(crate) fn spilled_by(&self, pid: u32) -> Option<u64> {
        if pid == 0 {
            return None;
        }
        // NVML numbers processes as the host does, or as the caller's pid namespace does: a slot knows both.
        let own = |slot: &&LocalSlot| slot.pid.load(Relaxed) == pid || slot.pid_inside.load(Relaxed) == pid;
        self.slots().iter().find(own).map(|slot| slot.donor_bytes.load(Relaxed))
    }
}

fn connect(pool: &PoolConfig) -> Option<Pages> {
    let socket = open_socket(pool.broker_socket.as_os_str().as_bytes())?;
    let observe = Request::new(Op::Observe).to_bytes();
    // SAFETY: the buffer is live and of the stated length.
    let sent =
        unsafe { libc::send(socket.as_raw_fd(), observe.as_ptr().cast(), observe.len(), libc::MSG_NOSIGNAL) };
    if usize::try_from(sent).ok()? != observe.len() {
        return None;
    }
    let (reply, mut descriptors) = receive(&socket)?;
    if !reply.ok() || descriptors.len() != 2 {
        return None;
    }
    let local = descriptors.pop()?;
    let ledger = descriptors.pop()?;
    let ledger = map_read_only(&ledger, std::mem::size_of::<LedgerPage>())?.cast::<LedgerPage>();
    let slots = map_read_only(&local, LOCAL_PAGE_BYTES)?.cast::<LocalSlot>();
    Some(Pages {
        // SAFETY: mapped for the life of the process, big enough and page-aligned; only atomics are written by others.
        ledger: unsafe { &*ledger },
        // SAFETY: as above, for SLOTS_MAX slots.
        slots: unsafe { std::slice::from_raw_parts(slots, SLOTS_MAX) },
        socket,
    })
}

fn open_socket(path: &[u8]) -> Option<OwnedFd> {
    // SAFETY: an all-zero sockaddr_un is a valid value to be filled.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
    if path.len() >= address.sun_path.len() {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    // SAFETY: plain socket creation; the result is checked and owned at once.
    let raw = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return None;
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let wait = libc::timeval { tv_sec: 2, tv_usec: 0 };
    let length = libc::socklen_t::try_from(std::mem::size_of::<libc::timeval>()).ok()?;
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the option value is a live timeval of the stated size.
        unsafe { libc::setsockopt(raw, libc::SOL_SOCKET, option, (&raw const wait).cast(), length) };
    }
    let length = libc::socklen_t::try_from(std::mem::size_of::<libc::sockaddr_un>()).ok()?;
    // SAFETY: the address is a live sockaddr_un of the stated size.
    let connected = unsafe { libc::connect(raw, (&raw const address).cast(), length) };
    (connected == 0).then_some(socket)
}

/// One reply and the descriptors that came with it.
fn receive(socket: &OwnedFd) -> Option<(Reply, Vec<OwnedFd>)> {
    let mut bytes = [0u8; Reply::BYTES];
    let mut control = [0u64; 16];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero msghdr is a valid value to be filled.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = std::mem::size_of_val(&control);
    // SAFETY: all buffers are live and of the stated sizes.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let mut descriptors = Vec::new();
    // SAFETY: the control buffer was filled by recvmsg; the CMSG macros walk it within msg_controllen.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header);
                for at in 0..bytes / std::mem::size_of::<RawFd>() {
                    let mut raw: RawFd = -1;
                    let one = std::mem::size_of::<RawFd>();
                    std::ptr::copy_nonoverlapping(data.add(at * one), (&raw mut raw).cast(), one);
                    descriptors.push(OwnedFd::from_raw_fd(raw));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    (usize::try_from(got).ok()? == Reply::BYTES).then(|| (Reply::from_bytes(bytes), descriptors))
}

fn map_read_only(file: &OwnedFd, bytes: usize) -> Option<*const libc::c_void> {
    // SAFETY: a fresh shared mapping chosen by the kernel; the result is checked.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    (address != libc::MAP_FAILED).then_some(address.cast_const())
}
