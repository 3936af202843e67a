//! Packets and descriptors over the broker's `SOCK_SEQPACKET` sockets, in both directions.
//!
//! A packet is a whole message or nothing: another length ends the connection. Descriptors that a peer sends along are closed
//! on arrival, but for the one that an offer of local memory carries (see [`crate::shares`]).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tarn_protocol::broker_wire::{DONORS_MAX, Reply, Request};

/// Most descriptors a reply carries.
const DESCRIPTORS_MAX: usize = DONORS_MAX;
/// Room for the descriptors of one message; the kernel itself closes what a misbehaving peer sends beyond.
const INBOUND_MAX: usize = DESCRIPTORS_MAX;

#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("a packet of {bytes} bytes is not a message")]
    Length { bytes: usize },
    #[error("the peer does not read its replies")]
    Slow,
    #[error("nothing to read yet")]
    Empty,
    #[error("the socket failed")]
    Socket(#[source] Errno),
}

impl From<Errno> for WireError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Empty,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            other => Self::Socket(other),
        }
    }
}

/// Reads one request without waiting, and the first descriptor that came with it; others are closed.
pub fn receive_request(socket: impl AsFd) -> Result<(Request, Option<OwnedFd>), WireError> {
    let mut packet = [0u8; Request::BYTES + 1];
    let (bytes, descriptors) = receive(socket, &mut packet, RecvFlags::DONTWAIT)?;
    let Ok(whole) = <[u8; Request::BYTES]>::try_from(&packet[..bytes]) else {
        return Err(WireError::Length { bytes });
    };
    Ok((Request::from_bytes(whole), descriptors.into_iter().next()))
}

/// Sends a reply with its descriptors, never waiting: a peer whose receive queue is full is [`WireError::Slow`].
pub fn send_reply(socket: impl AsFd, reply: Reply, descriptors: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    match send(socket, &reply.to_bytes(), descriptors, SendFlags::DONTWAIT) {
        Err(WireError::Empty) => Err(WireError::Slow),
        other => other,
    }
}

/// Sends a request; waits while the broker's queue is full.
pub fn send_request(socket: impl AsFd, request: Request) -> Result<(), WireError> {
    send(socket, &request.to_bytes(), &[], SendFlags::empty())
}

/// Waits for one reply and the descriptors that came with it.
pub fn receive_reply(socket: impl AsFd) -> Result<(Reply, Vec<OwnedFd>), WireError> {
    let mut packet = [0u8; Reply::BYTES + 1];
    let (bytes, descriptors) = receive(socket, &mut packet, RecvFlags::empty())?;
    let Ok(whole) = <[u8; Reply::BYTES]>::try_from(&packet[..bytes]) else {
        return Err(WireError::Length { bytes });
    };
    Ok((Reply::from_bytes(whole), descriptors))
}

fn send(
    socket: impl AsFd,
    packet: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), WireError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(WireError::Length { bytes: descriptors.len() });
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(packet)], &mut control, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => return Ok(()),
        }
    }
}

fn receive(
    socket: impl AsFd,
    packet: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), WireError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(INBOUND_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(packet)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)
        {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(message) => break message,
        }
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    if message.bytes == 0 {
        return Err(WireError::Closed);
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(WireError::Length { bytes: packet.len() });
    }
    Ok((message.bytes, descriptors))
}
