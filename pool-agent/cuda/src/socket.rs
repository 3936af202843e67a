//! The broker's socket, through libc alone: connect, one message out, one message and its descriptors in.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tarn_protocol::broker_wire::{DONORS_MAX, Reply, Request};

/// A broker that does not answer within this is treated as gone. Creating 20 GiB takes 0.1 s, and others may be in the queue.
pub(crate) const ANSWER_WITHIN_MS: u64 = 10_000;
/// Most descriptors a reply carries.
const DESCRIPTORS_MAX: usize = DONORS_MAX;

/// The connection failed; nothing more is known or needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the broker is gone")]
pub(crate) struct Gone;

#[derive(Debug)]
pub(crate) struct Socket {
    fd: ManuallyDrop<OwnedFd>,
    /// Device and inode of the socket: a tenant that closes descriptors it does not know may have another file here.
    identity: (u64, u64),
}

fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: an all-zero stat is valid, and fstat writes it whole.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// Which socket is behind a number, if one is: all sockets are of one device. Safe in a forked child.
pub(crate) fn inode(fd: RawFd) -> Option<u64> {
    // SAFETY: an all-zero stat is valid, and fstat writes it whole.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let found = libc::fstat(fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK;
        found.then_some(stat.st_ino)
    }
}

impl Socket {
    /// `within_ms`: how long each answer is waited for.
    pub(crate) fn connect(path: &Path, within_ms: u64) -> Result<Self, Gone> {
        let bytes = path.as_os_str().as_bytes();
        // SAFETY: an all-zero address is valid to fill in.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        if bytes.len() >= address.sun_path.len() {
            return Err(Gone);
        }
        address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).map_err(|_| Gone)?;
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = from.cast_signed();
        }
        // SAFETY: plain socket creation; the descriptor is owned at once.
        let fd = unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(Gone);
            }
            OwnedFd::from_raw_fd(fd)
        };
        wait_at_most(&fd, within_ms)?;
        let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).map_err(|_| Gone)?;
        loop {
            // SAFETY: the address is initialised and its length is stated.
            let code = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) };
            if code == 0 {
                let identity = identity(fd.as_raw_fd()).ok_or(Gone)?;
                return Ok(Self { fd: ManuallyDrop::new(fd), identity });
            }
            if !interrupted() {
                return Err(Gone);
            }
        }
    }

    /// From now on answers are waited for so long.
    pub(crate) fn wait_at_most(&self, within_ms: u64) -> Result<(), Gone> {
        wait_at_most(&self.fd, within_ms)
    }

    pub(crate) fn inode(&self) -> u64 {
        self.identity.1
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn ours(&self) -> bool {
        identity(self.raw()) == Some(self.identity)
    }

    pub(crate) fn send(&self, request: Request) -> Result<(), Gone> {
        self.send_along(request, None)
    }

    /// Sends a request, and a descriptor with it.
    pub(crate) fn send_along(
        &self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Gone> {
        if !self.ours() {
            return Err(Gone);
        }
        let mut packet = request.to_bytes();
        // Aligned for a control message, and roomy enough for one descriptor.
        let mut control = [0u64; 4];
        let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        loop {
            // SAFETY: an all-zero header is valid; every pointer put in it outlives the call, with its length.
            let sent = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = &raw mut part;
                message.msg_iovlen = 1;
                if let Some(descriptor) = descriptor {
                    enclose(&mut message, &mut control, descriptor.as_raw_fd());
                }
                libc::sendmsg(self.raw(), &raw const message, libc::MSG_NOSIGNAL)
            };
            if usize::try_from(sent) == Ok(packet.len()) {
                return Ok(());
            }
            if !(sent < 0 && interrupted()) {
                return Err(Gone);
            }
        }
    }

    /// Waits for one reply and what came with it.
    pub(crate) fn receive(&self) -> Result<(Reply, Vec<OwnedFd>), Gone> {
        let mut packet = [0u8; Reply::BYTES];
        // Aligned for control messages, and roomy enough for the descriptors.
        let mut control = [0u64; 2 + (DESCRIPTORS_MAX * size_of::<RawFd>()).div_ceil(8)];
        let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        let received = loop {
            // SAFETY: an all-zero header is valid; every pointer put in it outlives the call, with its length.
            let (received, message) = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = &raw mut part;
                message.msg_iovlen = 1;
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = size_of_val(&control);
                (libc::recvmsg(self.raw(), &raw mut message, libc::MSG_CMSG_CLOEXEC), message)
            };
            if received < 0 && interrupted() {
                continue;
            }
            break (received, descriptors(&message, received));
        };
        let (length, descriptors) = received;
        if usize::try_from(length) != Ok(Reply::BYTES) || descriptors.len() > DESCRIPTORS_MAX {
            return Err(Gone);
        }
        Ok((Reply::from_bytes(packet), descriptors))
    }
}

fn wait_at_most(fd: &OwnedFd, within_ms: u64) -> Result<(), Gone> {
    let wait = libc::timeval {
        tv_sec: i64::try_from(within_ms / 1000).map_err(|_| Gone)?,
        tv_usec: i64::try_from(within_ms % 1000 * 1000).map_err(|_| Gone)?,
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the option value outlives the call and its length is stated.
        unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const wait).cast(),
                libc::socklen_t::try_from(size_of::<libc::timeval>()).map_err(|_| Gone)?,
            );
        }
    }
    Ok(())
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.ours() {
            // SAFETY: the field is not touched again; the descriptor is still our socket.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
        // Otherwise the number belongs to another file of the tenant: closing that would be worse than leaking ours.
    }
}

/// Puts a descriptor into the control part of a message.
fn enclose(message: &mut libc::msghdr, control: &mut [u64; 4], descriptor: RawFd) {
    /// Bytes of a descriptor.
    const ONE: libc::c_uint = RawFd::BITS / 8;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the buffer has room for one header and one descriptor, as the CMSG macros lay them out, and is aligned for them.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(ONE) as usize;
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(ONE) as usize;
        libc::CMSG_DATA(header).cast::<[u8; ONE as usize]>().write(descriptor.to_ne_bytes());
    }
}

fn interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

/// The descriptors that came with a message.
fn descriptors(message: &libc::msghdr, received: isize) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    if received < 0 {
        return found;
    }
    // SAFETY: `message` was filled by recvmsg and its control buffer is alive; the CMSG macros stay within its length, and every
    // descriptor in it was opened for us by the kernel.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header);
                let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                for at in 0..bytes / size_of::<RawFd>() {
                    let one = data.add(at * size_of::<RawFd>()).cast::<[u8; size_of::<RawFd>()]>().read();
                    found.push(OwnedFd::from_raw_fd(RawFd::from_ne_bytes(one)));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    found
}

/// Whether the other end of the connection is still there: no message, no wait.
pub(crate) fn connected(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 0
}
