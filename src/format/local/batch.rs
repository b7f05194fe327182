//! A batch: what this machine has written to another one's file and not committed yet, as a log. It
//! is a file without a name to which clients append records, each in one piece
//! ([`crate::local::size`]), until the server seals it, and sends what is there.
//!
//! A record is a header and the bytes; it is sent as it lies there. Only its own machine writes it,
//! but whoever may write the file may have written anything: it is checked before use.

use crate::{Error, ErrorKind, Result};

/// Bytes of a header.
pub const HEAD_BYTES: usize = 16;
/// Most bytes of a record, with its header: as many as go in one frame.
pub const RECORD_MAX: usize = crate::wire::far::BYTES_MAX;
/// A batch with so many bytes is full: it goes, and another one begins.
pub const BATCH_BYTES: u64 = 64 << 20;
/// So a header is told from what is none.
const MARK: u32 = u32::from_le_bytes(*b"Tbat");

/// What a record's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Where they are in the file.
    pub at: u64,
    /// So many.
    pub bytes: u32,
}

impl Head {
    /// As it is written: little-endian, as it travels.
    pub fn write(self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.at.to_le_bytes());
        head[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        head[12..].copy_from_slice(&self.check().to_le_bytes());
        head
    }

    fn check(self) -> u32 {
        MARK ^ self.bytes.rotate_left(7) ^ self.at as u32 ^ (self.at >> 32) as u32
    }

    /// What was written.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if it is no header.
    pub fn read(head: &[u8; HEAD_BYTES]) -> Result<Self> {
        let word = |from: usize| {
            u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
        };
        let at = u64::from(word(0)) | u64::from(word(4)) << 32;
        let read = Head { at, bytes: word(8) };
        let end = at.checked_add(read.bytes.into());
        let fits = end.is_some_and(|end| end <= crate::local::geometry::FILE_BYTES_MAX)
            && read.record_bytes() <= RECORD_MAX as u64;
        if fits && read.check() == word(12) { Ok(read) } else { Err(malformed()) }
    }

    /// Bytes of the record.
    pub fn record_bytes(self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.bytes)
    }
}

fn malformed() -> Error {
    Error::new(ErrorKind::Malformed, "a batch of what was written to a file of another machine")
}

/// The writes that records say, in order: where, and which bytes.
///
/// # Errors
/// [`ErrorKind::Malformed`] where they are none.
pub fn writes(mut records: &[u8]) -> impl Iterator<Item = Result<(u64, &[u8])>> {
    std::iter::from_fn(move || {
        if records.is_empty() {
            return None;
        }
        let Some((head, rest)) = records.split_first_chunk::<HEAD_BYTES>() else {
            records = &[];
            return Some(Err(malformed()));
        };
        let read = Head::read(head).and_then(|head| {
            let (bytes, after) =
                rest.split_at_checked(head.bytes as usize).ok_or_else(malformed)?;
            Ok((head.at, bytes, after))
        });
        Some(match read {
            Ok((at, bytes, after)) => {
                records = after;
                Ok((at, bytes))
            }
            Err(error) => {
                records = &[];
                Err(error)
            }
        })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Head, RECORD_MAX, writes};

    fn record(at: u64, bytes: &[u8]) -> Vec<u8> {
        [&Head { at, bytes: bytes.len() as u32 }.write(), bytes].concat()
    }

    #[test]
    fn records_are_read_as_they_were_written_or_not_at_all() {
        let both = [record(7, b"abc"), record(1 << 40, b""), record(0, b"d")].concat();
        let read: Vec<_> = writes(&both).map(|one| one.expect("a record")).collect();
        assert_eq!(read, [(7, &b"abc"[..]), (1 << 40, b""), (0, b"d")]);
        for end in 1..both.len() {
            let whole = [19, 35].contains(&end);
            assert_eq!(writes(&both[..end]).all(|one| one.is_ok()), whole, "{end}");
        }
        for at in 0..16 {
            let mut bad = both.clone();
            bad[at] ^= 1;
            assert!(writes(&bad).any(|one| one.is_err()), "{at}");
        }
    }

    #[test]
    fn what_no_file_and_no_frame_has_is_no_record() {
        let beyond = record(u64::MAX, b"a");
        assert!(writes(&beyond).any(|one| one.is_err()));
        let long = record(0, &vec![0; RECORD_MAX]);
        assert!(writes(&long).any(|one| one.is_err()));
    }
}
