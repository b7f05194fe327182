//! Bytes of one object that are to be in another one, too.

use terral_format::Result;

use super::object::Object;

/// Bytes that are read and written at once.
const PIECE: u64 = 1 << 20;

/// Copies bytes from a place on to the same place; fewer at the end of what is copied.
pub(super) fn copy(from: &Object, to: &Object, (at, bytes): (u64, u64)) -> Result<()> {
    let mut buffer = vec![0; PIECE.min(bytes) as usize];
    let mut done = 0;
    while done < bytes {
        let most = PIECE.min(bytes - done) as usize;
        let count = from.read(&mut buffer[..most], at + done)?;
        to.write(&buffer[..count], at + done)?;
        done += count as u64;
        if count < most {
            break;
        }
    }
    Ok(())
}
