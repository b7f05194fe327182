//! What a member that speaks for one user alone may ask of files that were born here: what the
//! permission bits let him do when he asks, or, as with NFS (RFC 1813, 4.4), what he owns; and what
//! is taken of the reasons that such a member gives.
//!
//! Not here: what other members are let do, which look at the bits before they ask.

use terral_format::ids::{Ino, Member, Number};
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX};
use terral_format::wire::far::{Act, Done, Question, What};
use terral_format::wire::person::Person;
use terral_format::wire::updates::Update;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::far::desk::{Admitted, Payload};
use crate::members::at_home;

/// `r` and `w` of permission bits.
const READ: u32 = 4;
const WRITE: u32 = 2;
/// Longest text that is taken of one.
const TEXT_MAX: usize = 4096;
/// Linux' errors have lower numbers (errno(3)).
const ERRNO_MAX: i32 = 133;
/// `ENODEV`.
const ENODEV: i32 = 19;

/// A member's question as far as it may ask that; of what it says that is open there, only what it
/// may have open is left.
///
/// # Errors
/// [`ErrorKind::Malformed`] for what is no question.
pub fn admit(state: &State, from: Member, frame: Payload) -> Result<Admitted> {
    let members = state.members.as_ref();
    let Some(user) = members.and_then(|members| members.stranger(from)) else {
        return Ok(Admitted::whole(frame));
    };
    let (question, _) = Question::read(&frame)?;
    let is_own = |file: Number| members.is_some_and(|members| members.is_born_here(file));
    let of_user = |frame| Admitted { user: Some(user.user), ..Admitted::whole(frame) };
    match &question.what {
        What::Begin(Some(open)) => {
            let may = |file: &Number| {
                let opened = is_own(*file) && may(state, user, *file, &Act::Open).is_ok();
                opened && !is_left(state, user, *file)
            };
            let open = open.iter().copied().filter(may).collect();
            let question = Question { what: What::Begin(Some(open)), ..question };
            let frame = question.write(Vec::new())?.whole();
            Ok(of_user(Payload::new(frame.into(), 0)))
        }
        What::File(file, act) if is_own(*file) && !is_members_only(act) => {
            let said = may(state, user, *file, act).map_or_else(
                |error| Some(Err(error)),
                |()| is_his(state, user, *file).and_then(|his| keeps_none(act, his)),
            );
            Ok(Admitted { said, if_open: is_left(state, user, *file), ..of_user(frame) })
        }
        What::File(_, act) if is_members_only(act) => {
            let context = "a question that no user's server asks";
            Err(Error::new(ErrorKind::Malformed, context))
        }
        // Of its own files it asks what others have of them.
        What::Begin(None) | What::File(..) => Ok(of_user(frame)),
    }
}

/// Whether who speaks for one user alone never asks that.
fn is_members_only(act: &Act) -> bool {
    matches!(act, Act::ReadPart { .. } | Act::Take { .. })
}

/// Whether a file has no name, and is somebody else's: who had it open when it had one, where he
/// could reach it, goes on.
fn is_left(state: &State, user: &Person, file: Number) -> bool {
    let ino = Ino(file.counted());
    is_his(state, user, file) == Some(false) && state.names.names_of(ino).is_empty()
}

/// Whether a file that was born here is a user's, if it is there.
fn is_his(state: &State, user: &Person, file: Number) -> Option<bool> {
    let inode = state.names.inode(Ino(file.counted()))?;
    Some(inode.attributes().uid == user.user)
}

/// What is said to who wants a file's memory for himself: only its owner has it. All else that a
/// user writes to others' files is looked at, and copied, each time; so what is taken from him ends
/// at once, and he keeps no bytes of others.
fn keeps_none(act: &Act, his: bool) -> Option<Result<Done>> {
    match act {
        // He is given nothing to keep.
        Act::Kept { .. } => Some(Ok(Done::Unknown)),
        _ if his => None,
        Act::Borrow { .. } | Act::Grow { .. } | Act::Accept { .. } => Some(Ok(Done::Unknown)),
        Act::Return { .. } | Act::Wrote { .. } => Some(Ok(Done::Done)),
        Act::Offer { .. } => {
            let context = "a shared map of another user's file";
            Some(Err(Error { errno: ENODEV, ..Error::new(ErrorKind::Unsupported, context) }))
        }
        _ => None,
    }
}

/// Which of `r` and `w` what is done needs: all of the first, or any of the second.
fn wanted(act: &Act) -> Option<(u32, u32)> {
    match act {
        Act::Read { .. } => Some((READ, 0)),
        Act::Write { .. }
        | Act::Truncate { .. }
        | Act::Borrow { .. }
        | Act::Grow { .. }
        | Act::Wrote { .. }
        | Act::Return { .. }
        | Act::Kept { .. }
        | Act::Merge { .. }
        | Act::Update(_, Update::Write { .. }) => Some((WRITE, 0)),
        // A chunk goes there whole.
        Act::Offer { .. } | Act::Accept { .. } => Some((READ | WRITE, 0)),
        Act::Open | Act::Update(..) | Act::Lock(_) | Act::TestLock(_) | Act::Fencing(..) => {
            Some((0, READ | WRITE))
        }
        Act::Close
        | Act::Recall { .. }
        | Act::IsOpen
        | Act::GiveBack { .. }
        | Act::Took { .. }
        | Act::ReadMapped { .. }
        | Act::WriteMapped { .. }
        | Act::Take { .. }
        | Act::ReadPart { .. } => Some((0, 0)),
        Act::Lost { .. } | Act::Place(_) => None,
    }
}

fn may(state: &State, user: &Person, file: Number, act: &Act) -> Result<()> {
    let denied = || Error::new(ErrorKind::Denied, format!("a file of {}", file.born()));
    if let Act::Place(_) = act {
        return Err(denied());
    }
    let ino = Ino(file.counted());
    let asks = wanted(act).is_none_or(|(all, any)| all | any != 0);
    let Some(inode) = state.names.inode(ino) else {
        let gone = || Error::new(ErrorKind::NotFound, format!("a file of {}", file.born()));
        return if asks { Err(gone()) } else { Ok(()) };
    };
    if let Act::Offer { index, .. } | Act::Accept { index, .. } = act
        && *index > FILE_BYTES_MAX / CHUNK_BYTES
    {
        return Err(Error::new(ErrorKind::TooLarge, "offset"));
    }
    let is = inode.attributes();
    let Some((all, any)) = wanted(act) else {
        // He has lost a name of it who has all directories that it is known to be in.
        let his = |(at, _): (Ino, Vec<u8>)| {
            state.names.inode(at).is_some_and(|at| at.attributes().uid == user.user)
        };
        let names = state.names.names_of(ino);
        let lost = !names.is_empty() && names.into_iter().all(his);
        return if lost { Ok(()) } else { Err(denied()) };
    };
    if all & WRITE != 0 && !at_home::is_at_home(state, ino) {
        return Err(denied());
    }
    if all | any == 0 || is.uid == user.user {
        return Ok(());
    }
    let let_in =
        user.may(&is, all) && (any == 0 || [READ, WRITE].iter().any(|bit| user.may(&is, *bit)));
    match let_in && state.names.may_reach(user, ino) {
        true => Ok(()),
        false => Err(denied()),
    }
}

/// A few words, for somebody's terminal.
pub fn be_plain(text: &mut String) {
    text.retain(|letter| !letter.is_control());
    let end = text.char_indices().nth(TEXT_MAX).map_or(text.len(), |(at, _)| at);
    text.truncate(end);
}

/// Why a member's has not done something: nothing that has who asks wait, or try anew.
pub fn failed(mut error: Error) -> Error {
    be_plain(&mut error.context);
    if matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Busy) {
        error.kind = ErrorKind::Backing;
    }
    if !(0..=ERRNO_MAX).contains(&error.errno) {
        error.errno = 0;
    }
    error
}
