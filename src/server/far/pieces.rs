//! Pieces of calls that are longer than a message: what was read for the next ones, and what is to
//! be written with the last one. None is of use to any other call.

use std::collections::BTreeMap;

use terral_format::ids::SessionSlot;
use terral_format::wire::far_files::CALL_MAX;
use terral_format::{Error, ErrorKind, Result};

/// Calls of which something is kept at most: beyond these the one that has been kept for longest
/// is forgotten, and begins anew.
const CALLS_MAX: usize = 64;

/// A session's call.
pub type Call = (SessionSlot, u64);

/// What was read, and not taken yet.
struct ReadAhead {
    /// Where the next byte is in the file.
    at: u64,
    bytes: Vec<u8>,
    taken: usize,
    /// The file ends there.
    ends: bool,
}

enum Kept {
    Read(ReadAhead),
    Written(Vec<u8>),
}

/// See the module.
#[derive(Default)]
pub struct Pieces {
    calls: BTreeMap<Call, (u64, Kept)>,
    next: u64,
}

impl Pieces {
    fn keep(&mut self, call: Call, kept: Kept) {
        self.next += 1;
        self.calls.insert(call, (self.next, kept));
        if self.calls.len() > CALLS_MAX
            && let Some(oldest) = self.calls.iter().min_by_key(|(_, (age, _))| *age)
        {
            let oldest = *oldest.0;
            self.calls.remove(&oldest);
        }
    }

    /// What was read for a call from `at` on, and nobody has taken yet; the file ends behind it if
    /// `ends`.
    pub fn was_read(&mut self, call: Call, at: u64, bytes: Vec<u8>, ends: bool) {
        self.keep(call, Kept::Read(ReadAhead { at, bytes, taken: 0, ends }));
    }

    /// The next `bytes` of what was read for this call, or fewer at the end of the file. `None`:
    /// nothing was.
    pub fn read(&mut self, call: Call, at: u64, bytes: usize) -> Option<Vec<u8>> {
        let (_, Kept::Read(kept)) = self.calls.get_mut(&call)? else { return None };
        let left = kept.bytes.len() - kept.taken;
        if kept.at != at || (left < bytes && !kept.ends) {
            self.calls.remove(&call);
            return None;
        }
        let count = left.min(bytes);
        let piece = kept.bytes[kept.taken..kept.taken + count].to_vec();
        (kept.at, kept.taken) = (kept.at + count as u64, kept.taken + count);
        if kept.taken == kept.bytes.len() {
            self.calls.remove(&call);
        }
        Some(piece)
    }

    /// Keeps a piece of what is to be written. False: those before it are not here.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if a call has more than there may be.
    pub fn add(&mut self, call: Call, within: usize, bytes: &[u8]) -> Result<bool> {
        if within + bytes.len() > CALL_MAX {
            return Err(Error::new(ErrorKind::Malformed, "a call of more than may be written"));
        }
        if within == 0 {
            self.keep(call, Kept::Written(bytes.to_vec()));
            return Ok(true);
        }
        match self.calls.get_mut(&call) {
            Some((_, Kept::Written(kept))) if kept.len() == within => {
                kept.extend_from_slice(bytes);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether all pieces before this place are here.
    pub fn has(&self, call: Call, within: usize) -> bool {
        let kept = self.calls.get(&call).map(|(_, kept)| kept);
        within == 0 || matches!(kept, Some(Kept::Written(kept)) if kept.len() == within)
    }

    /// All pieces before the last one.
    pub fn take(&mut self, call: Call) -> Vec<u8> {
        match self.calls.remove(&call) {
            Some((_, Kept::Written(kept))) => kept,
            _ => Vec::new(),
        }
    }

    /// A session is over.
    pub fn has_ended(&mut self, session: SessionSlot) {
        self.calls.retain(|(of, _), _| *of != session);
    }
}

#[cfg(test)]
mod tests {
    use super::{CALL_MAX, CALLS_MAX, Pieces, SessionSlot};

    const CALL: (SessionSlot, u64) = (SessionSlot(1), 2);

    #[test]
    fn what_was_read_is_taken_once_in_order_and_by_its_call_only() {
        let mut pieces = Pieces::default();
        pieces.was_read(CALL, 10, b"abcdef".to_vec(), true);
        assert_eq!(pieces.read((SessionSlot(1), 3), 10, 4), None);
        assert_eq!(pieces.read((SessionSlot(2), 2), 10, 4), None);
        assert_eq!(pieces.read(CALL, 10, 4), Some(b"abcd".to_vec()));
        assert_eq!(pieces.read(CALL, 14, 4), Some(b"ef".to_vec()));
        assert_eq!(pieces.read(CALL, 16, 4), None);
        pieces.was_read(CALL, 10, b"abcdef".to_vec(), true);
        assert_eq!(pieces.read(CALL, 11, 4), None, "not where the call goes on");
        pieces.was_read(CALL, 10, b"abc".to_vec(), false);
        assert_eq!(pieces.read(CALL, 10, 4), None, "there may be more");
    }

    #[test]
    fn what_is_written_is_whole_or_not_at_all() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.add(CALL, 0, b"ab"), Ok(true));
        assert_eq!(pieces.add(CALL, 3, b"cd"), Ok(false), "a piece is missing");
        assert_eq!(pieces.add(CALL, 2, b"cd"), Ok(true));
        assert!(pieces.has(CALL, 4) && !pieces.has(CALL, 2));
        assert_eq!(pieces.take(CALL), b"abcd");
        assert!(!pieces.has(CALL, 4) && pieces.has(CALL, 0));
        assert!(pieces.add(CALL, CALL_MAX, b"a").is_err());
    }

    #[test]
    fn so_many_calls_are_kept_and_none_of_a_session_that_is_over() {
        let mut pieces = Pieces::default();
        for call in 0..=CALLS_MAX as u64 {
            assert_eq!(pieces.add((SessionSlot(1), call), 0, b"a"), Ok(true));
        }
        assert!(!pieces.has((SessionSlot(1), 0), 1) && pieces.has((SessionSlot(1), 1), 1));
        pieces.has_ended(SessionSlot(1));
        assert!(pieces.calls.is_empty());
    }
}
