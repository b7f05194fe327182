//! What a client asks that has used something borrowed beyond the deadline (see
//! `terral_format::local::lease`): does it count?
//!
//! This server is alone, and decides everything itself. A mark that says otherwise is of a time in
//! which it was not, and is taken off; all that was done meanwhile counts, if it is there.

use terral_format::Result;
use terral_format::local::entry::MapEntry;
use terral_format::wire::message::{FileRef, Reply};

use crate::core::state::State;
use crate::naming::attributes;
use crate::storage::granting;

/// Whether what was done with a chunk, or with attributes or names, counts.
pub fn answer(state: &mut State, file: FileRef, chunk: Option<(u64, u64)>) -> Result<Reply> {
    let Some((index, used)) = chunk else {
        // What was committed is applied before any such request is answered.
        attributes::own(state, file.ino);
        return Ok(Reply::Done);
    };
    let now = granting::own(state, file, index)?;
    Ok(if now.is_chunk_of(MapEntry(used)) { Reply::Done } else { Reply::Again })
}
