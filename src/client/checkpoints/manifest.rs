//! What a checkpoint consists of: text, one line for each object, in the order of its bytes.
//!
//! Version 1 (`docs/formats.md`). Invariant: its parts follow one another from byte 0 on, without a
//! gap; what says otherwise is not a manifest.

use std::fmt::Write;

use terral_format::{Error, ErrorKind, Result};

use crate::objects::Address;

/// The first line.
const HEAD: &str = "terral checkpoint 1";
/// Most objects of a checkpoint.
pub const PARTS_MAX: usize = 1 << 20;
/// No manifest has more bytes: a line has at most 86.
pub(super) const BYTES_MAX: u64 = (PARTS_MAX as u64 + 4) * 96;

/// A part of a checkpoint: the bytes that one object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which object.
    pub address: Address,
    /// Where its first byte is, of all bytes of the checkpoint.
    pub at: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// A checkpoint as it was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) step: u64,
    /// By where they are.
    pub(super) parts: Vec<Part>,
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("checkpoint: {what}"))
}

impl Manifest {
    /// A manifest of these parts, in whatever order.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for none, too many, a gap, or two that have the same byte.
    pub(super) fn new(step: u64, parts: &[Part]) -> Result<Self> {
        let mut parts = parts.to_vec();
        // An empty one comes before what begins where it is.
        parts.sort_unstable_by_key(|part| (part.at, part.bytes));
        let manifest = Manifest { step, parts };
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<()> {
        if self.parts.is_empty() || self.parts.len() > PARTS_MAX {
            return Err(invalid("no parts, or too many"));
        }
        let mut end = 0u64;
        for part in &self.parts {
            if part.at != end {
                return Err(invalid(&format!("a gap or two parts at byte {end}")));
            }
            part.address.checked()?;
            end = end.checked_add(part.bytes).ok_or_else(|| invalid("too many bytes"))?;
        }
        Ok(())
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.at + part.bytes)
    }

    /// Parts that have a byte from `at` on, the first of them first.
    pub(super) fn from(&self, at: u64) -> &[Part] {
        let first = self.parts.partition_point(|part| part.at + part.bytes <= at);
        &self.parts[first..]
    }

    pub(super) fn write(&self) -> String {
        let mut text = format!("{HEAD}\nstep {}\nbytes {}\n", self.step, self.bytes());
        for Part { address, at, bytes } in &self.parts {
            // Writing to a string does not fail.
            let _ = writeln!(text, "object {} {} {at} {bytes}", address.server, address.id);
        }
        text + &format!("end {}\n", self.parts.len())
    }

    /// # Errors
    /// [`ErrorKind::Malformed`] for anything that [`Manifest::write`] would not write.
    pub(super) fn read(text: &[u8]) -> Result<Self> {
        let wrong = || Error::new(ErrorKind::Malformed, "manifest of a checkpoint");
        let text = std::str::from_utf8(text).map_err(|_| wrong())?;
        let number = |line: &str, word: &str| line.strip_prefix(word)?.parse::<u64>().ok();
        let mut lines = text.lines().skip(1);
        let step = lines.next().and_then(|line| number(line, "step ")).ok_or_else(wrong)?;
        let parts = lines.skip(1).map_while(part).take(PARTS_MAX + 1).collect();
        let manifest = Manifest { step, parts };
        manifest.check().map_err(|_| wrong())?;
        // So there is one way to say each, and what is cut short is none.
        if manifest.write() == text { Ok(manifest) } else { Err(wrong()) }
    }
}

fn part(line: &str) -> Option<Part> {
    let mut words = line.strip_prefix("object ")?.split(' ');
    let server = words.next()?.parse().ok()?;
    let id = words.next()?.parse().ok()?;
    let (at, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Part { address: Address { server, id }, at, bytes })
}

#[cfg(test)]
mod tests {
    use super::{Manifest, Part};
    use crate::objects::{Address, ObjectId};

    fn of(server: u16, at: u64, bytes: u64) -> Part {
        Part { address: Address { server, id: ObjectId(u128::from(at)) }, at, bytes }
    }

    const GOLDEN: &str = "terral checkpoint 1\nstep 7\nbytes 12\n\
         object 0 00000000000000000000000000000000 0 5\n\
         object 3 00000000000000000000000000000005 5 7\nend 2\n";

    #[test]
    fn a_manifest_is_written_in_one_way_and_read_in_no_other() {
        let manifest = Manifest::new(7, &[of(3, 5, 7), of(0, 0, 5)]).expect("whole");
        assert_eq!(manifest.write(), GOLDEN);
        assert_eq!(Manifest::read(GOLDEN.as_bytes()).expect("reads"), manifest);
        // Cut short anywhere, or with any byte changed.
        for at in 0..GOLDEN.len() {
            assert!(Manifest::read(&GOLDEN.as_bytes()[..at]).is_err(), "{at}");
            let mut changed = GOLDEN.as_bytes().to_vec();
            changed[at] ^= 0x80;
            assert!(Manifest::read(&changed).is_err(), "{at}");
        }
        for (from, to) in [(" 5 7", " 5 18446744073709551615"), ("bytes 12", "bytes 13")] {
            assert!(Manifest::read(GOLDEN.replace(from, to).as_bytes()).is_err(), "{to}");
        }
        assert!(Manifest::read(GOLDEN.replace("object 3", "object 16384").as_bytes()).is_err());
    }

    #[test]
    fn parts_with_gaps_or_of_the_same_bytes_make_no_checkpoint() {
        assert!(Manifest::new(1, &[]).is_err());
        assert!(Manifest::new(1, &[of(0, 1, 5)]).is_err());
        assert!(Manifest::new(1, &[of(0, 0, 5), of(1, 4, 2)]).is_err());
        assert!(Manifest::new(1, &[of(0, 0, u64::MAX), of(1, u64::MAX, 1)]).is_err());
        let empty = Manifest::new(1, &[of(0, 0, 5), of(1, 5, 0), of(2, 5, 1)]).expect("whole");
        assert_eq!((empty.bytes(), empty.from(5).len(), empty.from(6).len()), (6, 1, 0));
    }
}
