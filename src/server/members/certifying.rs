//! For whom a user's server speaks: the user as he is now, whatever groups he was in when it was
//! let in.
//!
//! Invariant: only what he is in changes, of the member that is his. Not here: who is let in
//! (`control`), and who says what his groups are (`cli`).

use terral_format::wire::person::{GROUPS_MAX, Person};
use terral_format::wire::roster::Roster;
use terral_format::{Error, ErrorKind, Result};

use super::control::{own_roster, seat};
use crate::core::state::State;

/// The server of this user, if one is in, speaks for him as he is.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control, or he is root, or in too many groups.
pub fn speaks_for(state: &mut State, user: Person) -> Result<()> {
    if user.is_root() || user.groups.len() > GROUPS_MAX {
        let context = "a server of a user: not of root, nor of who is in too many groups";
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let roster = own_roster(state)?;
    let server = state.members.as_ref().and_then(|members| members.server_of(user.user));
    let mut certificates = roster.certificates.clone();
    let his = certificates.iter_mut().find(|of| Some(of.member) == server);
    let Some(his) = his.filter(|his| his.user.as_ref() != Some(&user)) else { return Ok(()) };
    his.user = Some(user);
    let version = roster.version + 1;
    seat(state, Roster { version, certificates, ..roster });
    Ok(())
}
