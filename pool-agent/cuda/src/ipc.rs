//! Blocks between processes of one pool: a 64-byte token in place of the driver's IPC handle.
//!
//! The driver gives an IPC handle for its own allocations only. For a spilled block the broker keeps the offer ([`crate::link`]), and the
//! token names it: whoever has it, in this pool, opens the whole block as one range. Opening twice gives the same address and counts;
//! closing ends with the last use. The owner alone is charged, so a token opens nothing once its block was freed or its process is gone,
//! while ranges that are open live on until they are closed.
//!
//! After a broker restart the offers are gone: what is open stays open, a new open is refused, and asking for the handle again
//! offers the block anew where the new broker can (chunks of its predecessor cannot be exported).

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::{
    Code, DevicePtr, HANDLE_POSIX_FD, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, IpcHandle,
    OUT_OF_MEMORY, SUCCESS,
};
use crate::blocks::{Closed, Holding, Piece, Sharing, Spilled};
use crate::link::{LinkError, random};
use crate::pool::Pool;
use crate::{log, real, stitch};

const MARK: [u8; 8] = *b"TarnPool";

/// What a token says. Everything in it is checked by whoever acts on it: the pool here, the number by the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// Which pool, by its lease.
    pool: u64,
    number: u64,
    bytes: u64,
    owner: u64,
}

/// A number for the pool: two pools differ in their lease.
fn pool_number(pool: &Pool) -> u64 {
    pool.config.lease_id.to_string().bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

impl Token {
    fn to_handle(self) -> IpcHandle {
        let words = [self.pool, self.number, self.bytes, self.owner];
        let mut text = [0; 64];
        text[..8].copy_from_slice(&MARK);
        for (to, word) in text[8..].chunks_exact_mut(8).zip(words.into_iter().chain([check(words)])) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        IpcHandle(text)
    }

    /// `None`: one of the driver's own handles.
    pub(crate) fn of(handle: &IpcHandle) -> Option<Self> {
        let word = |at: usize| {
            handle.0[8 * at..8 * at + 8].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
        };
        let words = [word(1), word(2), word(3), word(4)].map(u64::from_le);
        let [pool, number, bytes, owner] = words;
        let ours = handle.0[..8] == MARK && u64::from_le(word(5)) == check(words);
        ours.then_some(Self { pool, number, bytes, owner })
    }
}

/// Tells a token from a driver's handle that begins like one.
fn check(words: [u64; 4]) -> u64 {
    words
        .into_iter()
        .fold(0x7461_726E, |sum: u64, word| (sum.rotate_left(17) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A token for a block of this process.
pub(crate) fn token(pool: &Pool, block: &Spilled) -> Result<IpcHandle, Code> {
    let Sharing::Own(shared) = &block.sharing else {
        // What another process owns is not ours to hand on, as with the driver's own handles.
        return Err(INVALID_VALUE);
    };
    let mut number = shared.load(Ordering::Acquire);
    let fresh = number == 0;
    if fresh {
        // Never 0, and too large to be guessed by a program that means no harm.
        number = random() | 1;
    }
    let pieces = block.pieces.iter().map(offered).collect::<Result<Vec<_>, Code>>()?;
    pool.link.share(number, &pieces, &pool.account).map_err(|error| {
        log::warn(&format!("cuda: a block of {} pieces cannot be shared: {error}", pieces.len()));
        INVALID_VALUE
    })?;
    if fresh && let Err(theirs) = shared.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire) {
        pool.link.unshare(number);
        number = theirs;
    }
    let token =
        Token { pool: pool_number(pool), number, bytes: block.bytes, owner: std::process::id().into() };
    Ok(token.to_handle())
}

/// What the broker is told of a piece.
fn offered(piece: &Piece) -> Result<(u64, u64, Option<OwnedFd>), Code> {
    match piece.holding {
        Holding::Lease { lease, .. } => Ok((lease, piece.bytes, None)),
        Holding::Local => export_local(piece).map(|descriptor| (0, piece.bytes, Some(descriptor))),
        Holding::Foreign => Err(INVALID_VALUE),
    }
}

fn export_local(piece: &Piece) -> Result<OwnedFd, Code> {
    let mut descriptor: i32 = -1;
    // SAFETY: for POSIX descriptors the driver writes one int through the pointer, which outlives the call.
    let code = unsafe { real::mem_export((&raw mut descriptor).cast(), piece.handle, HANDLE_POSIX_FD, 0) };
    if code != SUCCESS || descriptor < 0 {
        return Err(if code == SUCCESS { INVALID_VALUE } else { code });
    }
    // SAFETY: the driver just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Opens another process's block.
pub(crate) fn open(pool: &Pool, token: Token) -> Result<DevicePtr, Code> {
    if token.owner == u64::from(std::process::id()) {
        return Err(INVALID_CONTEXT);
    }
    if token.pool != pool_number(pool) {
        log::warn("cuda: a memory handle of another pool was refused");
        return Err(INVALID_HANDLE);
    }
    if real::current_context().is_null() {
        return Err(INVALID_CONTEXT);
    }
    if let Some(at) = pool.blocks().open_again(token.number) {
        return Ok(at);
    }
    let block = stitch::assemble(pool, (token.number, token.bytes), |index| {
        pool.link.open(token.number, index, &pool.account).map_err(|error| match error {
            LinkError::Gone | LinkError::OutOfMemory => OUT_OF_MEMORY,
            LinkError::Refused => INVALID_HANDLE,
        })
    })?;
    let start = block.start;
    let added = pool.blocks().add_opened(token.number, Arc::clone(&block));
    match added {
        Ok(()) => Ok(start),
        Err(spare) => {
            stitch::tear_down(pool, &spare);
            pool.blocks().open_again(token.number).ok_or(INVALID_HANDLE)
        }
    }
}

/// Ends one use of an opened block; `None` when none was opened at `at`.
pub(crate) fn close(pool: &Pool, at: DevicePtr) -> Option<Code> {
    let closed = pool.blocks().close(at);
    match closed {
        Closed::Unknown => None,
        Closed::InUse => Some(SUCCESS),
        Closed::Last(block) => {
            // SAFETY: no arguments. Whatever it says, the block is out of the books and must go.
            unsafe { real::ctx_synchronize() };
            stitch::tear_down(pool, &block);
            Some(SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_told_from_any_other_handle() {
        let token = Token { pool: 1, number: u64::MAX, bytes: 3, owner: 4 };
        let handle = token.to_handle();
        assert_eq!(Token::of(&handle), Some(token));
        for at in 0..48 {
            let mut other = handle;
            other.0[at] ^= 1;
            assert_eq!(Token::of(&other), None, "byte {at}");
        }
        assert_eq!(Token::of(&IpcHandle([0; 64])), None);
    }
}
