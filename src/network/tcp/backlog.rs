//! Bytes that wait to go, in order. They lie in pieces, so that nothing is moved. A piece that has
//! gone is used again, as memory that is given back and taken anew costs a page fault for each of
//! its pages; what was not needed for long is given back.

use std::collections::VecDeque;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;
/// Of one with which little begins, as most do that never grow.
const LEAST_BYTES: usize = 1 << 10;

/// What waits.
#[derive(Default)]
pub(super) struct Backlog {
    /// None is empty, and all of them have more than has gone.
    pieces: VecDeque<Vec<u8>>,
    /// How much of the first has gone.
    gone: usize,
    bytes: usize,
    /// Pieces of the full length, empty.
    spare: Vec<Vec<u8>>,
    /// How many there were at once since memory was given back.
    most: usize,
}

impl Backlog {
    /// How much waits.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts it behind all others.
    pub(super) fn push(&mut self, mut part: &[u8]) {
        self.bytes += part.len();
        while !part.is_empty() {
            let room = self.pieces.back().map_or(0, |piece| piece.capacity() - piece.len());
            if room == 0 {
                let is_little = self.pieces.is_empty() && part.len() <= LEAST_BYTES;
                let length = if is_little { LEAST_BYTES } else { PIECE_BYTES };
                let piece = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(length));
                self.pieces.push_back(piece);
                self.most = self.most.max(self.pieces.len());
                continue;
            }
            let (now, rest) = part.split_at(part.len().min(room));
            self.pieces.back_mut().expect("it has room").extend_from_slice(now);
            part = rest;
        }
    }

    /// The first two pieces; what goes next is their beginning.
    pub(super) fn first(&self) -> [&[u8]; 2] {
        let piece = |at| self.pieces.get(at).map_or(&[][..], |piece: &Vec<u8>| &piece[..]);
        [&piece(0)[self.gone..], piece(1)]
    }

    /// So much of that has gone.
    pub(super) fn pop(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.gone += bytes;
        while let Some(piece) = self.pieces.front()
            && self.gone >= piece.len()
        {
            self.gone -= piece.len();
            let mut piece = self.pieces.pop_front().expect("it is the first");
            piece.clear();
            if piece.capacity() >= PIECE_BYTES {
                self.spare.push(piece);
            }
        }
    }

    /// Gives memory back that was not needed since this was called last.
    pub(super) fn rest(&mut self) {
        let needed = std::mem::replace(&mut self.most, self.pieces.len());
        self.spare.truncate(needed.saturating_sub(self.pieces.len()));
        self.spare.shrink_to_fit();
    }

    /// Nothing of it goes any more.
    pub(super) fn clear(&mut self) {
        *self = Backlog::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{Backlog, PIECE_BYTES};
    use proptest::prelude::{any, prop, proptest};

    #[test]
    fn what_is_not_needed_is_given_back() {
        let mut backlog = Backlog::default();
        backlog.push(&vec![1; 10 * PIECE_BYTES]);
        while backlog.bytes() > 0 {
            backlog.pop(backlog.first().concat().len());
        }
        assert_eq!(backlog.spare.len(), 10);
        backlog.rest();
        assert_eq!(backlog.spare.len(), 10, "it was needed just now");
        backlog.push(&vec![1; 3 * PIECE_BYTES]);
        backlog.rest();
        assert_eq!(backlog.spare.len(), 0, "but for those that are used again");
        assert_eq!(backlog.bytes(), 3 * PIECE_BYTES);
    }

    proptest! {
        #[test]
        fn it_goes_in_the_order_in_which_it_came(
            steps in prop::collection::vec((any::<bool>(), 0..3 * PIECE_BYTES), 1..40),
        ) {
            let (mut backlog, mut came, mut went) = (Backlog::default(), Vec::new(), Vec::new());
            for (is_push, bytes) in steps {
                if is_push {
                    let part: Vec<u8> = (0..bytes).map(|at| (came.len() + at * 7) as u8).collect();
                    backlog.push(&part);
                    came.extend_from_slice(&part);
                } else {
                    let first = backlog.first().concat();
                    assert!(!first.is_empty() || backlog.bytes() == 0);
                    let now = &first[..bytes.min(first.len())];
                    went.extend_from_slice(now);
                    backlog.pop(now.len());
                    let memory = backlog.pieces.len() + backlog.spare.len();
                    assert!(memory <= backlog.most, "{memory} pieces");
                }
                assert_eq!(backlog.bytes(), came.len() - went.len());
                assert!(came.starts_with(&went));
            }
        }
    }
}
