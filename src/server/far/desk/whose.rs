//! In whose name a question is asked, and of whose file: of both who asks may say anything.
//!
//! Not here: what a user's server may ask of a file (`far/users`).

use terral_format::ids::{Member, Number};
use terral_format::wire::far::Act;

/// What is wrong with a question, if it is asked in another one's name, or of another one's file.
pub(super) fn in_anothers_name(
    file: Number,
    act: &Act,
    (from, me): (Member, Member),
) -> Option<&'static str> {
    match *act {
        // Of a chunk that is here, whosever it is.
        Act::ReadPart { .. } => None,
        act if file.born() != owner(act, from, me) => {
            Some("a question about a file of another member")
        }
        Act::Lock(lock) | Act::TestLock(lock) if lock.owner.by != from => {
            Some("a lock in the name of another member")
        }
        Act::Fencing(owner, _) if owner.by != from => Some("a lock in the name of another member"),
        Act::Update(attempt, _) if attempt.of.by != from => {
            Some("a request in the name of another member")
        }
        Act::Lost { by, .. }
        | Act::Borrow { by, .. }
        | Act::Grow { by, .. }
        | Act::Return { by, .. }
        | Act::Offer { by, .. }
        | Act::Accept { by, .. }
        | Act::Kept { by, .. }
            if by != from =>
        {
            Some("something in the name of another member")
        }
        _ => None,
    }
}

/// Whose files may be asked about in this way: those of who is asked, but for one.
fn owner(act: Act, from: Member, me: Member) -> Member {
    if act.is_to_user() { from } else { me }
}
