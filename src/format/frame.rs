//! The frame: how records lie in the log and messages on the socket.
//!
//! Little-endian: length (4), version (2), zero (2), checksum (8), payload. The checksum is XXH3-64
//! over the payload, seeded with the length, so that a run of zeros is never a frame.

use crate::{Error, ErrorKind, Result};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 16;
/// Longest payload.
pub const PAYLOAD_MAX: usize = 1 << 30;

/// XXH3-64 of `bytes` (github.com/Cyan4973/xxHash, `doc/xxhash_spec.md`).
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

fn seal(payload: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(payload, payload.len() as u64 | 1 << 63)
}

/// Appends the frame of `payload`, which is of this version, to `out`.
pub fn write(out: &mut Vec<u8>, version: u16, payload: &[u8]) {
    let length = payload.len();
    assert!(length <= PAYLOAD_MAX, "our own frames are bounded");
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&seal(payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// The version that a header says.
pub fn version(header: &[u8; HEADER_BYTES]) -> u16 {
    u16::from_le_bytes([header[4], header[5]])
}

/// Length of the payload that a header announces.
pub fn payload_bytes(header: &[u8]) -> Result<usize> {
    let bad = |what: &str| Error::new(ErrorKind::Malformed, format!("frame: {what}"));
    if header.len() < HEADER_BYTES {
        return Err(bad("shorter than its header"));
    }
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    if length > PAYLOAD_MAX {
        return Err(bad(&format!("absurd length {length}")));
    }
    if header[6..8] != [0, 0] {
        return Err(bad("bytes that are zero in all versions are not"));
    }
    Ok(length)
}

/// Whether what is said to be of a version is of the one that this program reads.
///
/// # Errors
/// [`ErrorKind::Version`] if it is of another one.
pub fn is_of(said: u16, version: u16) -> Result<()> {
    if said == version {
        return Ok(());
    }
    let context = format!("frame: version {said}, this program reads {version}");
    Err(Error::new(ErrorKind::Version, context))
}

/// A whole frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Of what it holds.
    pub version: u16,
    /// What it holds.
    pub payload: &'a [u8],
    /// The bytes after it.
    pub rest: &'a [u8],
}

impl<'a> Frame<'a> {
    /// What it holds, if that is of this version.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] if it is of another one.
    pub fn of(&self, version: u16) -> Result<&'a [u8]> {
        is_of(self.version, version)?;
        Ok(self.payload)
    }
}

/// The frame at the start of `bytes`, of any version.
pub fn read(bytes: &[u8]) -> Result<Frame<'_>> {
    let length = payload_bytes(bytes)?;
    let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else {
        return Err(Error::new(ErrorKind::Malformed, "frame: truncated"));
    };
    let mut sum = [0; 8];
    sum.copy_from_slice(&bytes[8..16]);
    if u64::from_le_bytes(sum) != seal(payload) {
        return Err(Error::new(ErrorKind::Corrupt, "frame"));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    Ok(Frame { version, payload, rest: &bytes[HEADER_BYTES + length..] })
}

/// Encodes a message or record.
pub fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|error| Error::new(ErrorKind::Malformed, format!("encode: {error}")))
}

/// Encodes a message or record into `out` without allocating; gives the part used.
pub fn encode_into<'a, T: serde::Serialize>(value: &T, out: &'a mut [u8]) -> Result<&'a mut [u8]> {
    postcard::to_slice(value, out)
        .map_err(|error| Error::new(ErrorKind::Malformed, format!("encode: {error}")))
}

/// Decodes a message or record, and gives the bytes behind it.
///
/// # Errors
/// [`ErrorKind::Malformed`] if they are none.
pub fn decode_first<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8])> {
    postcard::take_from_bytes(bytes)
        .map_err(|error| Error::new(ErrorKind::Malformed, format!("decode: {error}")))
}

/// Decodes a message or record; every byte must belong to it.
pub fn decode<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    match decode_first(bytes)? {
        (value, []) => Ok(value),
        _ => Err(Error::new(ErrorKind::Malformed, "decode: bytes left over")),
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, read, write};
    use proptest::prelude::{any, prop, proptest};

    #[test]
    fn a_run_of_zeros_is_no_frame() {
        assert!(read(&[0; 64]).is_err());
    }

    proptest! {
        #[test]
        fn one_changed_byte_is_noticed(
            payload in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<usize>(),
            flip in 1u8..
        ) {
            let mut bytes = Vec::new();
            write(&mut bytes, 7, &payload);
            assert_eq!(read(&bytes).and_then(|frame| frame.of(7)), Ok(payload.as_slice()));
            let at = at % bytes.len();
            bytes[at] ^= flip;
            assert!(read(&bytes).and_then(|frame| frame.of(7)).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read(
            bytes in prop::collection::vec(any::<u8>(), 0..HEADER_BYTES * 4)
        ) {
            let _ = read(&bytes);
        }
    }
}
