//! What a client asks that has used something borrowed beyond the deadline (see
//! `terral_format::local::lease`): does it count?
//!
//! This server is alone, and decides everything itself. A mark that says otherwise is of a time in
//! which it was not, and is taken off; all that was done meanwhile counts, if it is there.

use terral_format::local::entry::MapEntry;
use terral_format::wire::message::{FileRef, Reply};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::naming::attributes;
use crate::storage::granting;

/// Whether what was done with a chunk, or with attributes or names, counts.
pub fn answer(state: &mut State, file: FileRef, chunk: Option<(u64, u64)>) -> Result<Reply> {
    let Some((index, used)) = chunk else {
        applied(state)?;
        attributes::own(state, file.ino);
        return Ok(Reply::Done);
    };
    if state.far.loans.has(file.ino) {
        // What is marked there is its home's to give.
        return Ok(Reply::Again);
    }
    let now = granting::own(state, file, index)?;
    Ok(if now.is_chunk_of(MapEntry(used)) { Reply::Done } else { Reply::Again })
}

/// Whether all that was committed is applied. What could not be, or waits, may be what is asked
/// about.
fn applied(state: &mut State) -> Result<()> {
    if state.unapplied {
        return Err(Error::new(ErrorKind::Busy, "what was committed is not applied yet"));
    }
    match state.waiting.why().cloned() {
        Some(error) if error.kind == ErrorKind::Busy => Err(state.fetches.wait()),
        Some(error) => Err(error),
        None => Ok(()),
    }
}
