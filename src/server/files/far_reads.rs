//! Reads of files whose bytes are on another machine: of one that nobody changes there, this server
//! has its home say so, and keeps what it has read.
//!
//! Not here: what is kept (`far/shown`), and how all else is asked for (`far/calls`).

use terral_format::Result;
use terral_format::ids::Number;
use terral_format::local::tables::access;
use terral_format::wire::far_files::{Handle, Piece};
use terral_format::wire::message::Reply;
use terral_format::wire::things::Look;

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::far::{calls, committing, shown};
use crate::naming::elsewhere;

/// Reads a piece of a call.
///
/// # Errors
/// As those of [`calls::read`].
pub fn read(
    state: &mut State,
    caller: &Caller,
    of: Handle,
    (at, bytes): (u64, u32),
    piece: Piece,
) -> Result<Reply> {
    let file = calls::opened(state, of, access::READ)?;
    if piece.within == 0 {
        committing::settle(state, file)?;
    }
    if piece.within == 0 && shown::may_be(state, file) {
        have_shown(state, caller, file)?;
    }
    calls::read(state, caller.session, of, (at, bytes), piece)
}

/// Looks at a file, so that its home shows it if it can.
fn have_shown(state: &mut State, caller: &Caller, file: Number) -> Result<()> {
    let Some(ino) = state.members.as_ref().and_then(|members| members.place(file)) else {
        return Ok(());
    };
    match elsewhere::look(state, caller, ino, Look::Attributes) {
        Err(error) if state.fetches.is_waiting() => return Err(error),
        _ => {}
    }
    if shown::may_be(state, file) {
        shown::refused(state, file);
    }
    Ok(())
}
