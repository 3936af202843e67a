//! Which donors this process reaches: by importing memory of each, or by the word of a process that did so a moment ago in the same
//! surroundings (see [`tarn_protocol::reach`]). A donor that is not reached is not counted.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use tarn_protocol::broker_wire::DONORS_MAX;

use crate::abi::{HANDLE_POSIX_FD, SUCCESS};
use crate::account::Account;
use crate::link::{Link, LinkError, monotonic_ms};
use crate::pool::as_pointer;
use crate::real;

/// The mask of donors that this process reaches; the error says that no broker answers.
pub(crate) fn reached(link: &Link, account: &Account) -> Result<u16, LinkError> {
    let surroundings = surroundings();
    let known = || link.pages().and_then(|pages| pages.reached().proven(surroundings, monotonic_ms()));
    if link.alive_now()
        && let Some(mask) = known()
    {
        return Ok(mask);
    }
    let probes = link.probe(account)?;
    // While this process waited for its turn, a neighbour may have proven it all.
    if let Some(mask) = known() {
        return Ok(mask);
    }
    let mut mask = probes.full;
    for (donor, descriptor) in probes.offered {
        if donor < DONORS_MAX && imports(&descriptor) {
            mask |= 1 << donor;
        }
    }
    if let Some(pages) = link.pages() {
        pages.reached().prove(surroundings, mask, monotonic_ms());
    }
    Ok(mask)
}

/// A donor that had been reached refused: processes that start now find out for themselves.
pub(crate) fn doubt(link: &Link) {
    if let Some(pages) = link.pages() {
        pages.reached().forget(surroundings());
    }
}

fn imports(descriptor: &OwnedFd) -> bool {
    let mut handle = 0;
    // SAFETY: for POSIX descriptors the driver takes the number in place of the pointer; the out-pointer outlives the call.
    let imported = unsafe { real::mem_import(&raw mut handle, as_pointer(descriptor), HANDLE_POSIX_FD) };
    if imported != SUCCESS {
        return false;
    }
    // SAFETY: the handle was just imported and is used nowhere else.
    unsafe { real::mem_release(handle) };
    true
}

/// What decides which device nodes a process can open: user, root directory, mount namespace, cgroup; as a hash.
fn surroundings() -> u32 {
    let mut hash = Fnv::default();
    // SAFETY: no arguments, no failure.
    hash.add(unsafe { libc::geteuid() }.into());
    for path in [c"/", c"/proc/self/ns/mnt"] {
        // SAFETY: an all-zero stat is valid, and stat writes it whole or not at all.
        let stat = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::stat(path.as_ptr(), &raw mut stat);
            stat
        };
        hash.add(stat.st_dev);
        hash.add(stat.st_ino);
    }
    add_file(&mut hash, c"/proc/self/cgroup");
    hash.0
}

/// Adds the beginning of a file; one that cannot be read adds nothing.
fn add_file(hash: &mut Fnv, path: &CStr) {
    let mut text = [0u8; 1024];
    // SAFETY: a NUL-terminated path; the buffer outlives the read and its length is stated; the descriptor is closed once.
    let read = unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return;
        }
        let read = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        read
    };
    for word in text[..usize::try_from(read).unwrap_or(0)].chunks(8) {
        let mut whole = [0; 8];
        whole[..word.len()].copy_from_slice(word);
        hash.add(u64::from_ne_bytes(whole));
    }
}

/// FNV-1a over 64-bit words: two processes agree on it, and nobody gains from a collision.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x811C_9DC5)
    }
}

impl Fnv {
    fn add(&mut self, word: u64) {
        for byte in word.to_ne_bytes() {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_hash_and_another_word_another() {
        assert_eq!(surroundings(), surroundings());
        let (mut first, mut second) = (Fnv::default(), Fnv::default());
        first.add(1);
        second.add(2);
        assert_ne!(first.0, second.0);
    }
}
