//! What a member that speaks for one user alone may ask of files that were born here: what the
//! permission bits let him do when he asks, or, as with NFS (RFC 1813, 4.4), what he owns.
//!
//! Not here: what other members are let do, which look at the bits before they ask.

use terral_format::ids::{Ino, Member, Number};
use terral_format::wire::far::{Act, Question, What};
use terral_format::wire::person::Person;
use terral_format::wire::updates::Update;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::far::desk::Payload;

/// `r` and `w` of permission bits.
const READ: u32 = 4;
const WRITE: u32 = 2;

/// What is to be said to a member's question without doing anything, if it may not ask that; of
/// what it says that is open there, only what it may have open is left.
///
/// # Errors
/// [`ErrorKind::Malformed`] for what is no question.
pub fn admit(state: &State, from: Member, frame: Payload) -> Result<(Payload, Option<Error>)> {
    let members = state.members.as_ref();
    let Some(user) = members.and_then(|members| members.user_of(from)) else {
        return Ok((frame, None));
    };
    let (question, _) = Question::read(&frame)?;
    let is_own = |file: Number| members.is_some_and(|members| members.is_born_here(file));
    match &question.what {
        What::Begin(Some(open)) => {
            let may = |file: &Number| is_own(*file) && may(state, user, *file, &Act::Open).is_ok();
            let open = open.iter().copied().filter(may).collect();
            let question = Question { what: What::Begin(Some(open)), ..question };
            let frame = question.write(Vec::new())?.whole();
            Ok((Payload::new(frame.into(), 0), None))
        }
        What::Begin(None) => Ok((frame, None)),
        What::File(file, act) if is_own(*file) => {
            let refused = may(state, user, *file, act).err();
            Ok((frame, refused))
        }
        // Of its own files it asks what others have of them.
        What::File(..) => Ok((frame, None)),
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
        | Act::WriteMapped { .. } => Some((0, 0)),
        Act::Lost { .. } | Act::Place(_) => None,
    }
}

fn may(state: &State, user: &Person, file: Number, act: &Act) -> Result<()> {
    let denied = || Error::new(ErrorKind::Denied, format!("a file of {}", file.born()));
    if let Act::Place(_) = act {
        return Err(denied());
    }
    let ino = Ino(file.counted());
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
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
