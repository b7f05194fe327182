//! Reads files of proc(5).

use std::fs::File;
use std::io::{Read, Result};

/// Bytes that are read at once: all of one, mostly.
const BYTES: usize = 4096;

/// All of one. Its length is not known before it is read: `fs::read` would ask for it, and then
/// read by small pieces. Names in it are what programs make them, and cut after 15 bytes.
pub(crate) fn read(path: &str) -> Result<String> {
    let (file, mut bytes) = (File::open(path)?, Vec::with_capacity(BYTES));
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into()))
}
