//! List I/O: many extents of an object in one call, their bytes packed one after the other.

use terral_format::local::geometry::FILE_BYTES_MAX;
use terral_format::{Error, ErrorKind, Result};

use super::address::invalid;

/// Most extents of one call.
pub const EXTENTS_MAX: usize = 1 << 16;

/// Bytes of an object that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Extent {
    /// The first.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

/// Looks at all extents before anything is moved: each is in an object, and together they are as
/// long as the packed bytes.
///
/// # Errors
/// [`ErrorKind::Invalid`] for too many, or another sum; [`ErrorKind::TooLarge`] for one that ends
/// where no object reaches.
pub(super) fn check(extents: &[Extent], packed: usize) -> Result<()> {
    if extents.len() > EXTENTS_MAX {
        return Err(invalid("too many extents"));
    }
    let mut sum = 0u64;
    for extent in extents {
        end(extent.at, extent.bytes)?;
        // Each is below 2^48, and there are at most 2^16 of them.
        sum = sum.checked_add(extent.bytes).ok_or_else(|| invalid("extents"))?;
    }
    if sum == packed as u64 { Ok(()) } else { Err(invalid("extents of another length in all")) }
}

/// Where an extent ends.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if that is beyond any object.
pub(super) fn end(at: u64, bytes: u64) -> Result<u64> {
    let end = at.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
    end.ok_or_else(|| Error::new(ErrorKind::TooLarge, "extent of an object"))
}

#[cfg(test)]
mod tests {
    use terral_format::ErrorKind;
    use terral_format::local::geometry::FILE_BYTES_MAX;

    use super::{EXTENTS_MAX, Extent, check};

    #[test]
    fn extents_that_lie_or_overflow_are_refused_before_anything_moves() {
        let one = |at, bytes| Extent { at, bytes };
        let kind = |extents: &[Extent], packed| check(extents, packed).map_err(|error| error.kind);
        assert_eq!(kind(&[], 0), Ok(()));
        assert_eq!(kind(&[one(7, 5), one(0, 3)], 8), Ok(()));
        assert_eq!(kind(&[one(7, 5)], 4), Err(ErrorKind::Invalid));
        assert_eq!(kind(&[one(u64::MAX, 1)], 1), Err(ErrorKind::TooLarge));
        assert_eq!(kind(&[one(1, u64::MAX)], 0), Err(ErrorKind::TooLarge));
        assert_eq!(kind(&[one(FILE_BYTES_MAX, 0)], 0), Ok(()));
        assert_eq!(kind(&[one(FILE_BYTES_MAX, 1)], 1), Err(ErrorKind::TooLarge));
        assert_eq!(kind(&vec![one(0, 0); EXTENTS_MAX + 1], 0), Err(ErrorKind::Invalid));
        assert_eq!(kind(&vec![one(0, FILE_BYTES_MAX); EXTENTS_MAX], 0), Err(ErrorKind::Invalid));
    }
}
