//! Which bytes of a striped object are in which part: they go round over the parts, so many bytes
//! at a time. Pure arithmetic, and how it is written down.
//!
//! Invariant: of a range of the object the bytes that are in one part follow one another there, so
//! a size, or a range, is one of each part. Not here: where parts are (`parts`).

use terral_format::{Error, ErrorKind, Result};

use super::address::{Address, ObjectId, invalid};

/// Most parts.
pub const STRIPES_MAX: usize = 256;
/// A stripe has a multiple of so many bytes.
pub const STRIPE_BYTES: u64 = 64 << 10;
/// Most bytes of a stripe.
const STRIPE_BYTES_MAX: u64 = 1 << 40;
/// Version of what is written down.
const VERSION: u8 = 1;

/// How a new object is to be striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// Over so many servers, as far as there are so many; 0: over all.
    pub count: u16,
    /// Bytes of each stripe: a multiple of [`STRIPE_BYTES`]. Those of 2 MiB, or a multiple of it,
    /// are what a machine is lent.
    pub bytes: u64,
}

impl Stripes {
    /// # Errors
    /// [`ErrorKind::Invalid`] for stripes of none, too many, or an odd number of bytes.
    pub(super) fn check(&self) -> Result<()> {
        let fits = (STRIPE_BYTES..=STRIPE_BYTES_MAX).contains(&self.bytes);
        let fits = fits
            && self.bytes.is_multiple_of(STRIPE_BYTES)
            && usize::from(self.count) <= STRIPES_MAX;
        if fits { Ok(()) } else { Err(invalid("stripes of an object")) }
    }
}

/// How an object is striped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Striping {
    /// Bytes of a stripe.
    pub bytes: u64,
    /// Random bits, which no other object of this id had: so nobody takes its parts for his.
    pub nonce: u64,
    /// Where the parts are, in order; the first is the object's own.
    pub servers: Vec<u16>,
}

/// Bytes that follow one another in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub part: usize,
    pub at: u64,
    pub bytes: u64,
}

impl Striping {
    pub fn write(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.nonce.to_le_bytes());
        self.servers.iter().for_each(|server| out.extend(server.to_le_bytes()));
        out
    }

    /// # Errors
    /// [`ErrorKind::Malformed`] for what [`Striping::write`] would not write.
    pub fn read(stored: &[u8]) -> Result<Self> {
        let wrong = || Error::new(ErrorKind::Malformed, "stripes of an object");
        let (head, servers) = stored.split_first_chunk::<17>().ok_or_else(wrong)?;
        let eight = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (bytes, nonce) = (eight(1), eight(9));
        let (all, rest) = servers.as_chunks::<2>();
        let servers: Vec<u16> = all.iter().map(|server| u16::from_le_bytes(*server)).collect();
        let count = u16::try_from(servers.len()).map_err(|_| wrong())?;
        let known = head[0] == VERSION && rest.is_empty() && count > 0;
        let fits = Stripes { count, bytes }.check().is_ok();
        let there = |server: &u16| Address { server: *server, id: ObjectId(0) }.checked().is_ok();
        let fits = known && fits && servers.iter().all(there);
        fits.then_some(Striping { bytes, nonce, servers }).ok_or_else(wrong)
    }

    fn count(&self) -> u64 {
        self.servers.len() as u64
    }

    /// Where a part is below its container; the first one only until the object has its name.
    pub fn path(&self, id: ObjectId, part: usize) -> String {
        format!("{}/{id}-{:016x}-{part}", self.servers[part], self.nonce)
    }

    /// How many of the object's first bytes are in a part.
    pub fn share(&self, bytes: u64, part: usize) -> u64 {
        let round = self.bytes.saturating_mul(self.count());
        let rest = (bytes % round).saturating_sub(self.bytes * part as u64).min(self.bytes);
        bytes / round * self.bytes + rest
    }

    /// Where the object ends if this part ends there and no other is longer.
    pub fn end(&self, bytes: u64, part: usize) -> u64 {
        let Some(last) = bytes.checked_sub(1) else { return 0 };
        let stripe = last / self.bytes * self.count() + part as u64;
        stripe * self.bytes + last % self.bytes + 1
    }

    /// Some bytes of the object, in order.
    pub fn pieces(&self, at: u64, bytes: u64) -> impl Iterator<Item = Piece> + '_ {
        let (mut at, end) = (at, at + bytes);
        std::iter::from_fn(move || {
            let (stripe, within) = (at / self.bytes, at % self.bytes);
            let bytes = (self.bytes - within).min(end - at);
            let part = (stripe % self.count()) as usize;
            let piece = Piece { part, at: stripe / self.count() * self.bytes + within, bytes };
            at += bytes;
            (bytes > 0).then_some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{STRIPE_BYTES, Stripes, Striping};

    fn striping(count: u16) -> Striping {
        Striping { bytes: STRIPE_BYTES, nonce: 7, servers: (0..count).collect() }
    }

    #[test]
    fn each_byte_is_in_one_place_of_one_part_and_sizes_and_pieces_agree() {
        for count in [1, 2, 3, 5] {
            let striping = striping(count);
            let edges =
                (0..20).flat_map(|at| [0, 1, 9, STRIPE_BYTES - 1].map(|of| at * 65536 + of));
            let mut held = vec![0; count.into()];
            let mut before = 0;
            for edge in edges {
                for piece in striping.pieces(before, edge - before) {
                    assert_eq!(held[piece.part], piece.at, "they follow one another");
                    held[piece.part] += piece.bytes;
                }
                let parts = 0..usize::from(count);
                let shares: Vec<u64> = parts.clone().map(|at| striping.share(edge, at)).collect();
                assert_eq!(shares, held, "{edge} of {count}");
                let end = parts.map(|at| striping.end(held[at], at)).max();
                assert_eq!(end, Some(edge), "{count}");
                before = edge;
            }
        }
    }

    #[test]
    fn stripes_are_read_as_they_were_written_or_not_at_all() {
        let striping = striping(3);
        let stored = striping.write();
        assert_eq!(Striping::read(&stored), Ok(striping));
        for cut in 0..stored.len() {
            let read = Striping::read(&stored[..cut]);
            assert!(read.is_err() || read.is_ok_and(|of| of.servers.len() < 3), "{cut}");
        }
        for (at, byte) in [(0, 2), (1, 1), (8, 255), (18, 255)] {
            let mut other = stored.clone();
            other[at] = byte;
            assert!(Striping::read(&other).is_err(), "{at}");
        }
        for (count, bytes) in [(1, 0), (1, STRIPE_BYTES + 1), (257, STRIPE_BYTES), (1, u64::MAX)] {
            assert!(Stripes { count, bytes }.check().is_err(), "{count} of {bytes}");
        }
    }
}
