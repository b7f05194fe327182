//! Who is in a partition, and what holds for all of it, as people say and change it.

use terral_format::ids::Member;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::person::Person;
use terral_format::wire::placement::Layout;
use terral_format::wire::roster::Consistency;
use terral_format::wire::starting::{Needed, Started};
use terral_format::{Result, frame};

use crate::client::Client;
use crate::session::unexpected;

impl Client {
    /// Lets one more server into the partition, that of one user alone or one that is trusted with
    /// all: the text of its invitation, which whoever has it can use.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if this server lets nobody in.
    pub fn invite(&self, user: Option<&Person>) -> Result<String> {
        let user = user.map(frame::encode).transpose()?.unwrap_or_default();
        match self.0.call(Request::Invite(&user))? {
            Reply::Invitation(text) => Ok(text),
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
        self.done(Request::Speaks(&frame::encode(user)?))
    }

    /// Removes a member from the partition; `dead` if it is known that it does nothing any more.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if this server does not say who is in, or the member is that one;
    /// [`ErrorKind::NotFound`] if there is none; [`ErrorKind::Exists`] if it was removed before.
    pub fn fence(&self, member: Member, dead: bool) -> Result<()> {
        self.done(Request::Fence { member, dead })
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
