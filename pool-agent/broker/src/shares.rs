//! Blocks that one process of the pool offers to the others, piece by piece.
//!
//! A piece is either a donor chunk, which the broker owns and exports anew for whoever opens it, or local memory of the offering process.
//! Only that process can export the latter, so its descriptor comes with the offer and is kept here: unread, never used but to be
//! sent on, counted, and closed when the offer or its process ends. A descriptor that comes with any other message is closed at once.
//! Bytes stay charged to the owner: an opener takes no lease, and a chunk given back while somebody still maps it stays quarantined.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use crate::ledger::{Client, LeaseId};

/// Pieces of one block.
pub const PIECES_MAX: usize = 4096;
/// Descriptors that one process may leave here.
pub const DESCRIPTORS_MAX: usize = 1024;
/// Blocks that one process may offer at a time.
pub const SHARES_MAX: usize = 4096;

/// The number that the owner of a block drew for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareId(pub u64);

#[derive(Debug)]
pub enum Piece {
    Donor { lease: LeaseId, bytes: u64 },
    Local { descriptor: OwnedFd, bytes: u64 },
}

#[derive(Debug)]
struct Share {
    owner: Client,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareRefusal {
    #[error("the offer is not the caller's, or its pieces come out of order")]
    NotYours,
    #[error("the process offers too much")]
    Limited,
}

#[derive(Debug, Default)]
pub struct Shares {
    shares: BTreeMap<ShareId, Share>,
}

impl Shares {
    /// Adds the piece `index` of a block. Offering the same piece again is no error and changes nothing.
    pub fn offer(
        &mut self,
        owner: Client,
        id: ShareId,
        index: usize,
        piece: Piece,
    ) -> Result<(), ShareRefusal> {
        if matches!(piece, Piece::Local { .. }) && self.descriptors(owner) >= DESCRIPTORS_MAX {
            return Err(ShareRefusal::Limited);
        }
        if index == 0 && !self.shares.contains_key(&id) {
            if self.shares.values().filter(|share| share.owner == owner).count() >= SHARES_MAX {
                return Err(ShareRefusal::Limited);
            }
            self.shares.insert(id, Share { owner, pieces: vec![piece] });
            return Ok(());
        }
        let share = self.shares.get_mut(&id).filter(|share| share.owner == owner);
        let Some(share) = share.filter(|share| index <= share.pieces.len()) else {
            return Err(ShareRefusal::NotYours);
        };
        if index == PIECES_MAX {
            return Err(ShareRefusal::Limited);
        }
        if index == share.pieces.len() {
            share.pieces.push(piece);
        }
        Ok(())
    }

    /// Descriptors that a process has left here.
    fn descriptors(&self, owner: Client) -> usize {
        let shares = self.shares.values().filter(|share| share.owner == owner);
        let pieces = shares.flat_map(|share| &share.pieces);
        pieces.filter(|piece| matches!(piece, Piece::Local { .. })).count()
    }

    pub fn withdraw(&mut self, owner: Client, id: ShareId) {
        if self.shares.get(&id).is_some_and(|share| share.owner == owner) {
            self.shares.remove(&id);
        }
    }

    /// The process is gone, and with it what it offered.
    pub fn forget(&mut self, owner: Client) {
        self.shares.retain(|_, share| share.owner != owner);
    }

    pub fn piece(&self, id: ShareId, index: usize) -> Option<&Piece> {
        self.shares.get(&id)?.pieces.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(lease: u64) -> Piece {
        Piece::Donor { lease: LeaseId(lease), bytes: 2 }
    }

    #[test]
    fn pieces_come_in_order_from_one_owner_and_go_with_it() {
        let (mut shares, me, other, id) = (Shares::default(), Client(1), Client(2), ShareId(9));
        assert_eq!(shares.offer(me, id, 1, piece(1)), Err(ShareRefusal::NotYours));
        assert_eq!(shares.offer(me, id, 0, piece(1)), Ok(()));
        assert_eq!(shares.offer(me, id, 0, piece(7)), Ok(()), "again");
        assert_eq!(shares.offer(other, id, 1, piece(2)), Err(ShareRefusal::NotYours));
        assert_eq!(shares.offer(me, id, 1, piece(2)), Ok(()));
        assert!(matches!(shares.piece(id, 0), Some(Piece::Donor { lease: LeaseId(1), .. })));
        shares.withdraw(other, id);
        assert!(shares.piece(id, 1).is_some() && shares.piece(id, 2).is_none());
        shares.forget(me);
        assert!(shares.piece(id, 0).is_none());
    }

    #[test]
    fn nobody_fills_the_broker_with_descriptors() {
        let (mut shares, me) = (Shares::default(), Client(1));
        let local = || Piece::Local { descriptor: rustix::pipe::pipe().unwrap().0, bytes: 2 };
        for at in 0..DESCRIPTORS_MAX {
            let (id, index) = (ShareId(at as u64 / 8), at % 8);
            // A piece that is there already costs nothing: each of these is new.
            assert_eq!(shares.offer(me, id, index, local()), Ok(()));
        }
        assert_eq!(shares.offer(me, ShareId(u64::MAX), 0, local()), Err(ShareRefusal::Limited));
        assert_eq!(shares.offer(Client(2), ShareId(u64::MAX), 0, local()), Ok(()));
    }
}
