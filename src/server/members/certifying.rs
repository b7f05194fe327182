//! For whom a user's server speaks: the user as he is now, whatever groups he was in when it was
//! let in.
//!
//! Invariant: only what he is in changes, of all members that are his on one machine, at the word
//! of who answers for them: none there keeps a group that was taken from him. Not here: who is let
//! in (`newcomers`), and who says what his groups are (`cli`).

use terral_format::ids::Member;
use terral_format::wire::answering::is_users;
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Certificate, Roster};
use terral_format::{Error, ErrorKind, Result};

use super::control::{own_roster, seat};
use crate::core::state::State;

/// Whether somebody is a user, for whom alone a server may speak.
///
/// # Errors
/// [`ErrorKind::Invalid`] if he is root, or in too many groups.
pub fn may_speak(user: &Person) -> Result<()> {
    let context = "a server of a user: not of root, nor of who is in too many groups";
    is_users(user).then_some(()).ok_or_else(|| Error::new(ErrorKind::Invalid, context))
}

/// The servers of this user for which `by` answers, if there are any, speak for him as he is.
///
/// # Errors
/// [`ErrorKind::Invalid`] if this is not the control; those of [`may_speak`].
pub fn speaks_for(state: &mut State, by: Member, user: Person) -> Result<()> {
    may_speak(&user)?;
    let roster = own_roster(state)?;
    let Some(certificates) = as_he_is(&roster, by, &user) else { return Ok(()) };
    let version = roster.version + 1;
    seat(state, Roster { version, certificates, ..roster });
    // The next control goes by them, too: nobody is told before the registry has them.
    state.members.iter_mut().for_each(|members| members.have_come());
    Ok(())
}

/// By what members prove who they are, once those of this user for which `by` answers speak for him
/// as he is; nothing if they do.
pub fn as_he_is(roster: &Roster, by: Member, user: &Person) -> Option<Vec<Certificate>> {
    let mut certificates = roster.certificates.clone();
    let is_his = |of: &&mut Certificate| {
        let is = of.user.as_ref().is_some_and(|of| of.user == user.user);
        is && roster.answers_for(of.member) == Some(by)
    };
    for his in certificates.iter_mut().filter(is_his) {
        his.user = Some(user.clone());
    }
    (certificates != roster.certificates).then_some(certificates)
}
