//! For whom a user's server speaks: the user as he is now, whatever groups he was in when it was
//! let in.
//!
//! Invariant: only what he is in changes, of all members that are his: none keeps a group that was
//! taken from him. Not here: who is let in (`control`), and who says what his groups are (`cli`).

use terral_format::wire::person::{GROUPS_MAX, Person};
use terral_format::wire::roster::Roster;
use terral_format::{Error, ErrorKind, Result};

use super::control::{own_roster, seat};
use crate::core::state::State;

/// The servers of this user, if there are any, speak for him as he is.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control, or he is root, or in too many groups.
pub fn speaks_for(state: &mut State, user: Person) -> Result<()> {
    if user.is_root() || user.groups.len() > GROUPS_MAX {
        let context = "a server of a user: not of root, nor of who is in too many groups";
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let roster = own_roster(state)?;
    let mut certificates = roster.certificates.clone();
    let is_his = |of: &Option<Person>| of.as_ref().is_some_and(|of| of.user == user.user);
    for his in certificates.iter_mut().filter(|of| is_his(&of.user)) {
        his.user = Some(user.clone());
    }
    if certificates == roster.certificates {
        return Ok(());
    }
    let version = roster.version + 1;
    seat(state, Roster { version, certificates, ..roster });
    Ok(())
}
