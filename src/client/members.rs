//! Who is in a partition, and what holds for all of it, as people say and change it. Where another
//! server decides that, this one asks it, and says after some seconds that there is no answer yet:
//! it is asked again for [`PATIENCE`].

use std::cell::Cell;
use std::time::{Duration, Instant};

use terral_format::ids::Member;
use terral_format::wire::answering::Newcomer;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::person::Person;
use terral_format::wire::placement::Layout;
use terral_format::wire::roster::{Consistency, Invitation, Key};
use terral_format::wire::starting::{Needed, Started};
use terral_format::{ErrorKind, Result, frame};

use crate::client::Client;
use crate::session::unexpected;

/// What is not answered for so long is not asked again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until there is an answer, or nobody has any for long.
fn patiently<T>(ask: impl Fn() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        match ask() {
            Err(error) if error.kind == ErrorKind::Unanswered && begin.elapsed() < PATIENCE => {}
            answered => return answered,
        }
    }
}

impl Client {
    /// Lets one more server into the partition, which is trusted with all: the text of its
    /// invitation, which whoever has it can use.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if this server lets nobody in.
    pub fn invite(&self) -> Result<String> {
        match self.0.call(Request::Invite(&[]))? {
            Reply::Invitation(text) => Ok(text),
            _ => Err(unexpected()),
        }
    }

    /// Lets in a server of one user, for which the server that is asked answers: an invitation
    /// without the secret half of this key. By the same key it is the same member, however often
    /// it is asked.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if that member was removed: it is asked by another key;
    /// [`ErrorKind::TooMany`] if there may be no more, of this user or in all;
    /// [`ErrorKind::Unanswered`] if who decides it says nothing for a minute;
    /// [`ErrorKind::Busy`] if it is not reachable yet.
    ///
    /// [`ErrorKind::Exists`]: terral_format::ErrorKind::Exists
    /// [`ErrorKind::TooMany`]: terral_format::ErrorKind::TooMany
    /// [`ErrorKind::Busy`]: terral_format::ErrorKind::Busy
    pub fn invite_user(&self, whom: &Newcomer, key: Key) -> Result<Invitation> {
        let asked = frame::encode(&(whom, key))?;
        match patiently(|| self.0.call(Request::Invite(&asked)))? {
            Reply::Invitation(text) => Invitation::of(&text),
            _ => Err(unexpected()),
        }
    }

    /// What came of users' servers that were to be started, at most
    /// [`AT_ONCE`](terral_format::wire::starting::AT_ONCE) at a time. Those that are needed now:
    /// who asks starts them, and asks again soon.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where no user has a server of his own.
    ///
    /// [`ErrorKind::Invalid`]: terral_format::ErrorKind::Invalid
    pub fn starts(&self, came: &[(Needed, Started)]) -> Result<Vec<Needed>> {
        match self.0.call(Request::Starts(&frame::encode(&came)?))? {
            Reply::Needed(all) => Ok(all),
            _ => Err(unexpected()),
        }
    }

    /// A user is in these groups now: his server, if one is in, speaks for him as he is.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] where no user has a server of his own.
    ///
    /// [`ErrorKind::Invalid`]: terral_format::ErrorKind::Invalid
    pub fn speaks_for(&self, user: &Person) -> Result<()> {
        let user = frame::encode(user)?;
        patiently(|| self.done(Request::Speaks(&user)))
    }

    /// Removes a member from the partition; `dead` if it is known that it does nothing any more.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if this server does not say who is in, nor answers for that one, or
    /// the member is this one; [`ErrorKind::NotFound`] if there is none; [`ErrorKind::Exists`] if
    /// it was removed before.
    pub fn fence(&self, member: Member, dead: bool) -> Result<()> {
        self.done(Request::Fence { member, dead })
    }

    /// Removes a user's server for which the server that is asked answers, as [`Client::fence`].
    ///
    /// # Errors
    /// As those of [`Client::fence`]; [`ErrorKind::Unanswered`] as of [`Client::invite_user`].
    pub fn fence_user(&self, member: Member, dead: bool) -> Result<()> {
        let asked = Cell::new(false);
        patiently(|| match self.done(Request::Fence { member, dead }) {
            // What was not answered in time was done.
            Err(error) if error.kind == ErrorKind::Exists && asked.get() => Ok(()),
            done => {
                asked.set(true);
                done
            }
        })
    }

    /// Files whose paths match a pattern are written so by who opens them from now on; `None`:
    /// nothing is said of them any more.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if this server does not say that, or it is no pattern;
    /// [`ErrorKind::NotFound`] if nothing was said of it.
    pub fn set_policy(&self, pattern: &str, consistency: Option<Consistency>) -> Result<()> {
        self.done(Request::Policy(pattern, consistency))
    }

    /// New files whose paths match a pattern are created so from now on; `None`: nothing is said of
    /// them any more.
    ///
    /// # Errors
    /// As those of [`Client::set_policy`]; [`ErrorKind::Invalid`] if a server that is named is not
    /// in, or keeps no files, too.
    ///
    /// [`ErrorKind::Invalid`]: terral_format::ErrorKind::Invalid
    pub fn set_layout(&self, pattern: &str, layout: Option<Layout>) -> Result<()> {
        self.done(Request::Layout(pattern, layout))
    }

    /// A member keeps bytes of new files from now on, or does not; what it has, it has.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if this server does not say that, or nobody would keep any;
    /// [`ErrorKind::NotFound`] if there is no such member.
    ///
    /// [`ErrorKind::Invalid`]: terral_format::ErrorKind::Invalid
    /// [`ErrorKind::NotFound`]: terral_format::ErrorKind::NotFound
    pub fn set_role(&self, member: Member, stores: bool) -> Result<()> {
        self.done(Request::Role { member, stores })
    }
}
