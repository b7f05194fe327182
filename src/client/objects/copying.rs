//! Bytes of one object that are to be in another one, too.

use std::collections::VecDeque;

use terral_format::Result;

use super::object::Object;
use crate::submitted::Submitted;

/// Bytes that are read and written at once.
const PIECE: u64 = 1 << 20;
/// Pieces that are read at the same time.
const AHEAD: usize = 3;

/// Reads a piece meanwhile; fewer bytes at the end.
fn begin(from: &Object, at: u64, bytes: u64) -> Result<Submitted<Vec<u8>>> {
    from.submit(move |from| {
        let mut piece = vec![0; bytes as usize];
        let count = from.read(&mut piece, at)?;
        piece.truncate(count);
        Ok(piece)
    })
}

/// Copies bytes from a place on to the same place; fewer at the end of what is copied.
pub(super) fn copy(from: &Object, to: &Object, (at, bytes): (u64, u64)) -> Result<()> {
    let length = |done: u64| PIECE.min(bytes - done);
    let (mut begun, mut done, mut under_way) = (0, 0, VecDeque::new());
    while done < bytes {
        while begun < bytes && under_way.len() < AHEAD {
            under_way.push_back(begin(from, at + begun, length(begun))?);
            begun += length(begun);
        }
        let Some(next) = under_way.pop_front() else { break };
        let (piece, most) = (next.wait()?, length(done));
        to.write(&piece, at + done)?;
        if (piece.len() as u64) < most {
            break;
        }
        done += most;
    }
    Ok(())
}
