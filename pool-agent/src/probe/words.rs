//! What the two processes of a probe say: to each other over a socket, to the agent as one JSON line.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// Over the socket, one byte each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Word {
    /// With the descriptor: the memory is filled with the first pattern.
    Filled = b'f',
    /// The importer begins its atomics: now both count on the same words.
    Adding = b'a',
    /// The exporter's own atomics are done.
    Added = b'd',
    /// The importer has done everything and touches the memory no more.
    Used = b'u',
}

/// What the importer measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    pub read_mb_per_second: u64,
    pub write_mb_per_second: u64,
    pub copy_out_mb_per_second: u64,
    pub copy_in_mb_per_second: u64,
    pub loaded_read_mb_per_second: u64,
    pub loaded_write_mb_per_second: u64,
    /// One round trip.
    pub latency_nanos: u64,
    pub bytes_tested: u64,
    /// Of each kind of atomics.
    pub atomics_nanos: Vec<u64>,
    /// The driver gave up on the atomics instead.
    pub atomics_fault: Option<String>,
}

/// One process's last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Measured(Measured),
    /// The exporter found every word as it should be, and these sums in the counters.
    Intact {
        sums: Vec<u64>,
    },
    Failed {
        reason: String,
        detail: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("{call} failed with {name}")]
    Driver { call: &'static str, name: String },
    #[error("{what}: word {index} is {found:#x}, not {expected:#x}")]
    Mismatch { what: &'static str, index: u64, found: u32, expected: u32 },
    #[error("{what}: {count} words differ")]
    Differ { what: &'static str, count: u64 },
    #[error("{kind}: both cards together counted {found} of {expected}")]
    Sum { kind: &'static str, found: u64, expected: u64 },
    #[error("granting access across the link failed with {name}")]
    Access { name: String },
    #[error("the other process of the probe is gone")]
    PeerGone,
    #[error("no card with the wanted UUID is visible")]
    NoCard,
    #[error("no CUDA driver library can be loaded")]
    NoDriver,
}

impl ProbeError {
    pub fn out_of_memory(&self) -> bool {
        matches!(self, Self::Driver { name, .. } if name == "CUDA_ERROR_OUT_OF_MEMORY")
    }

    /// The reason code of a certificate.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Mismatch { .. } | Self::Differ { .. } | Self::Sum { .. } => "p2p_data_mismatch",
            Self::Access { .. } => "p2p_enable_failed",
            Self::Driver { .. } | Self::NoCard | Self::NoDriver => "probe_error",
            Self::PeerGone => "probe_crashed",
        }
    }

    pub fn verdict(&self) -> Verdict {
        Verdict::Failed { reason: self.reason().to_owned(), detail: self.to_string() }
    }
}

pub fn send(socket: impl AsFd, word: Word, descriptor: Option<&OwnedFd>) -> Result<(), ProbeError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let list: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    if !list.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&list));
    }
    let packet = [word as u8];
    sendmsg(socket, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL)
        .map(|_| ())
        .map_err(|_| ProbeError::PeerGone)
}

/// Waits for `word`; the deadline is the agent's, which kills both.
pub fn receive(socket: impl AsFd, word: Word) -> Result<Option<OwnedFd>, ProbeError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut packet = [0];
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(|_| ProbeError::PeerGone)?;
    let descriptor = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut received) => received.next(),
        _ => None,
    });
    if message.bytes == 1 && packet[0] == word as u8 { Ok(descriptor) } else { Err(ProbeError::PeerGone) }
}
