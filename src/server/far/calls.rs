//! Reads and writes of files whose bytes are on another machine, as clients ask for them.

use std::sync::atomic::Ordering;

use terral_format::ids::{Member, Number, SessionSlot};
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX};
use terral_format::local::tables::access;
use terral_format::wire::far::{Act, BYTES_MAX, Done};
use terral_format::wire::far_files::{CALL_MAX, Handle, PIECE_MAX, Piece};
use terral_format::wire::message::Reply;
use terral_format::{Error, ErrorKind, Result};

use super::asking::{Step, ask, ask_member, is_asked, number_of};
use super::role::{Behind, part_of};
use super::{committing, parts, shown};
use crate::authority::caller::Caller;
use crate::core::state::State;

fn malformed() -> Error {
    Error::new(ErrorKind::Malformed, "a call about a file of another machine")
}

/// The file of a description that is open for this.
///
/// # Errors
/// [`ErrorKind::BadHandle`] if there is none.
pub fn opened(state: &State, of: Handle, need: u64) -> Result<Number> {
    let open = state.descriptions.get(of.description).filter(|open| open.nonce == of.nonce);
    // What it is open for its opener may change (`O_APPEND`), but not this.
    let open = open.filter(|open| u64::from(open.access) & need != 0);
    let number = open.and_then(|open| number_of(state, open.ino));
    number.ok_or_else(|| Error::new(ErrorKind::BadHandle, "a file of another machine"))
}

/// The token with which is written through a description.
pub fn token(state: &State, of: Handle) -> u64 {
    state.storage.memory().description_token(of.description).load(Ordering::SeqCst)
}

/// Reads a piece of a call; with the first, what its others need.
///
/// # Errors
/// As those of [`ask`]; [`ErrorKind::BadHandle`] if it is not open for that.
pub fn read(
    state: &mut State,
    session: SessionSlot,
    of: Handle,
    (at, bytes): (u64, u32),
    piece: Piece,
) -> Result<Reply> {
    let file = opened(state, of, access::READ)?;
    let bytes = bytes as usize;
    if bytes > PIECE_MAX {
        return Err(malformed());
    }
    let call = (session, piece.call);
    if piece.within == 0
        && let Some(reply) =
            shown::read(state, call, file, (at, bytes as u64 + u64::from(piece.more)))?
    {
        return Ok(reply);
    }
    if let Some(kept) = state.far.pieces.read(call, at, bytes) {
        return Ok(Reply::Extent(kept));
    }
    let whole = bytes.saturating_add(piece.more as usize).min(BYTES_MAX);
    let (mut read, ends) = read_anywhere(state, file, (at, bytes, whole))?;
    let rest = read.split_off(bytes.min(read.len()));
    if !rest.is_empty() {
        state.far.pieces.was_read(call, at + read.len() as u64, rest, ends);
    }
    Ok(Reply::Extent(read))
}

/// Reads so many bytes, or, if a member keeps the chunk in which they begin, as many of them as are
/// in that, but no fewer than `least`; and whether the file ends there.
fn read_anywhere(
    state: &mut State,
    file: Number,
    (at, least, whole): (u64, usize, usize),
) -> Result<(Vec<u8>, bool)> {
    let members = state.members.as_ref();
    // A user's server says of nobody that he keeps something.
    let direct = members.is_some_and(|members| members.stranger(file.born()).is_none());
    let act = Act::Read { at, bytes: whole as u32, kept: false, direct };
    if !is_asked(state, file, Step::ReadWhole) {
        let (member, size) = match ask(state, (file, act), Step::Read, |_| Behind::Nothing)? {
            (Done::With { member, size }, _) => (member, size),
            (_, read) => {
                let ends = read.len() < whole;
                return Ok((read, ends));
            }
        };
        let there = size.saturating_sub(at).min(CHUNK_BYTES - at % CHUNK_BYTES) as usize;
        let (there, ends) = (there.min(whole), at + whole as u64 > size);
        if there >= least.min(size.saturating_sub(at) as usize)
            && let Some(mut read) = read_of(state, member, file, (at, there as u32))?
        {
            read.resize(there, 0);
            let ends = ends && at + there as u64 == size;
            return Ok((read, ends));
        }
    }
    let act = Act::Read { at, bytes: whole as u32, kept: false, direct: false };
    let (_, read) = ask(state, (file, act), Step::ReadWhole, |_| Behind::Nothing)?;
    let ends = read.len() < whole;
    Ok((read, ends))
}

/// Reads bytes of a chunk that a member keeps, as far as they were written. `None`: it does not any
/// more.
fn read_of(
    state: &mut State,
    member: Member,
    file: Number,
    (at, bytes): (u64, u32),
) -> Result<Option<Vec<u8>>> {
    if bytes == 0 {
        return Ok(Some(Vec::new()));
    }
    if state.members.as_ref().is_some_and(|members| members.me() == member) {
        let (index, within) = (at / CHUNK_BYTES, (at % CHUNK_BYTES) as u32);
        return parts::copy(state, (file, index), 0, (within, bytes as usize));
    }
    let act = part_of(at, bytes, 0);
    match ask_member(state, member, (file, act), Step::ReadPart, Behind::Nothing) {
        Ok((Done::Read, read)) => Ok(Some(read)),
        Err(error) if state.fetches.is_waiting() => Err(error),
        // Its home says what became of it.
        _ => Ok(None),
    }
}

/// Takes a piece of a call; with the last one, all of it is written.
///
/// # Errors
/// As those of [`read`]; [`ErrorKind::TooLarge`] for bytes where no file has any.
pub fn write(
    state: &mut State,
    caller: &Caller,
    of: Handle,
    at: Option<u64>,
    (piece, bytes): (Piece, &[u8]),
) -> Result<Reply> {
    let file = opened(state, of, access::WRITE)?;
    let (call, within) = ((caller.session, piece.call), piece.within as usize);
    let end = within + bytes.len();
    if bytes.len() > PIECE_MAX || end > CALL_MAX {
        return Err(malformed());
    }
    check_end(at, end)?;
    if piece.more > 0 {
        let added = state.far.pieces.add(call, within, bytes)?;
        return Ok(if added { Reply::Done } else { Reply::Again });
    }
    if !is_asked(state, file, Step::Write) {
        committing::settle(state, file)?;
    }
    if !is_asked(state, file, Step::Write) && !state.far.pieces.has(call, within) {
        return recalled(state, file);
    }
    let (strips, token) = (!caller.person.is_root(), token(state, of));
    let act = Act::Write { at, strips, token };
    let done = ask(state, (file, act), Step::Write, |state| {
        let mut whole = state.far.pieces.take(call);
        whole.extend_from_slice(bytes);
        Behind::Bytes(whole)
    });
    written(done?.0)
}

/// Has written what who asks has put into a file of its own on this machine.
///
/// # Errors
/// As those of [`write`].
pub fn ship(
    state: &mut State,
    caller: &Caller,
    of: Handle,
    at: Option<u64>,
    (from, bytes): (Handle, u32),
) -> Result<Reply> {
    let file = opened(state, of, access::WRITE)?;
    if bytes as usize > CALL_MAX {
        return Err(malformed());
    }
    check_end(at, bytes as usize)?;
    let open = state.descriptions.get(from.description).filter(|open| open.nonce == from.nonce);
    let open = open.filter(|open| open.session == caller.session);
    let open = open.filter(|open| u64::from(open.access) & access::READ != 0);
    let ino = open.map(|open| open.ino).ok_or_else(malformed)?;
    let slot = state.names.inode(ino).and_then(|inode| inode.slot).ok_or_else(malformed)?;
    if !is_asked(state, file, Step::Write) {
        committing::settle(state, file)?;
    }
    if !is_asked(state, file, Step::Write) && !state.storage.has_from(slot, 0, bytes) {
        return recalled(state, file);
    }
    let (strips, token) = (!caller.person.is_root(), token(state, of));
    let act = Act::Write { at, strips, token };
    match ask(state, (file, act), Step::Write, |_| Behind::Stored { slot, at: 0, bytes })?.0 {
        Done::Unknown => Ok(Reply::Again),
        done => written(done),
    }
}

fn check_end(at: Option<u64>, bytes: usize) -> Result<()> {
    match at.is_some_and(|at| at.checked_add(bytes as u64).is_none_or(|end| end > FILE_BYTES_MAX)) {
        true => Err(Error::new(ErrorKind::TooLarge, "offset")),
        false => Ok(()),
    }
}

/// The pieces before the last one are not here: they were forgotten, or were given to a process
/// before this one, which may have had all of it written.
fn recalled(state: &mut State, file: Number) -> Result<Reply> {
    let act = Act::Recall { step: Step::Write as u8 };
    match ask(state, (file, act), Step::Recall, |_| Behind::Nothing)?.0 {
        Done::Unknown => Ok(Reply::Again),
        done => written(done),
    }
}

fn written(done: Done) -> Result<Reply> {
    match done {
        Done::Written(at) => Ok(Reply::At(at)),
        _ => Err(malformed()),
    }
}
