//! What things are, what is done to them, and what comes of that, as servers of a partition tell
//! each other in bodies ([`super::body::Body`]).
//!
//! Attributes say no inode number: that is each server's own. Not here: which of it is said when
//! (`peers`), and what is allowed to whom (`person`).

use serde::{Deserialize, Serialize};

use super::attributes::{Attributes, Kind};
use super::body::Body;
use super::capability::{Capability, Principal, Revocation, Scope};
use super::containers::Setting;
use super::locks::Waiting;
use super::login::Carried;
use super::message::{Change as Attribute, RenameHow, XattrHow};
use super::person::Person;
use super::status::{MemberStatus, Safety};
use super::transactions::{InDoubt, Preparing, Returned, TransactionId};
use crate::fingerprint::Fingerprint;
use crate::ids::{Member, Number};
use crate::{Error, ErrorKind, Result, frame};

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// 1 to 255 bytes, no slash, no zero.
    pub name: Vec<u8>,
    /// What it stands for.
    pub number: Number,
    /// What that is.
    pub kind: Kind,
    /// What a link says; of a socket, its address.
    pub text: Vec<u8>,
}

/// What a directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// What it looks like.
    pub attributes: Attributes,
    /// Its names, in no order.
    pub names: Vec<Child>,
    /// The permanent store, if there is one, has no other.
    pub whole: bool,
}

/// What a directory was until [`super::peers::PEERS`] 2.
#[derive(Deserialize)]
struct DirectoryBefore {
    attributes: Attributes,
    names: Vec<Child>,
}

/// What anything else is, but for the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What it looks like.
    pub attributes: Attributes,
}

/// Something that is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// What.
    pub kind: Kind,
    /// Its permission bits.
    pub mode: u32,
    /// What a link says; of a socket, its address.
    pub text: Vec<u8>,
}

/// How somebody looks at a thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// What it looks like.
    Attributes,
    /// What a name in it stands for.
    Name(Vec<u8>),
    /// Names in it after this one, in order.
    Names(Vec<u8>),
    /// What it looks like, and what a name in it stands for: a step of a path.
    Step(Vec<u8>),
    /// The extended attribute of this name.
    Xattr(Vec<u8>),
    /// Names of extended attributes after this one, in order.
    XattrNames(Vec<u8>),
    /// Where its bytes are, and how safe.
    Safety,
    /// How the server is that decides it, and has it bring what it owes.
    Server {
        /// See [`super::message::Request::Flush`].
        hasten: bool,
    },
    /// Which processes wait for locks of what the server has that decides it.
    Waits,
    /// Whether the server that decides it has issued this, and what it comes to.
    Verify(Box<Capability>),
    /// In which epoch something was revoked last, as the control knows.
    Revoked,
    /// A capability for everything, for him, for so long from now on, seconds; of the control.
    Issue(Principal, u64),
    /// A capability for whom this credential names; of the control.
    Authorize(Carried),
    /// Whether a transaction comes to be; of the member that decides it.
    Decided(TransactionId),
    /// Of what it is not known whether it comes to be, on the member that is asked.
    Doubts,
    /// What a name stands for in a directory that these lead to from the root, and that only the
    /// permanent store has: its owner's server, which is asked, has it from then on. The outcome
    /// is a step, with what it looks like.
    Adopt(Vec<(Number, Vec<u8>)>, Vec<u8>),
}

/// What is changed of a thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Something is made in it, under a name that nothing has.
    Make(Vec<u8>, Made),
    /// A name is taken away, which stands for no directory.
    Remove(Vec<u8>),
    /// Its attributes.
    Attributes(Attribute),
    /// A file loses a name, at its home: the path.
    Unname(Vec<u8>),
    /// A file gets another name, at its home: both paths, and what becomes of what is there.
    Move(Vec<u8>, Vec<u8>, RenameHow),
    /// Another file is about to take its name, also in the permanent store.
    LetGo,
    /// A file of the member that asks is to have a name in it, unless that stands for something.
    /// The outcome is a step: what the name stands for then. Done again, it is as if done once.
    Name(Child),
    /// A file gets a further name, at its home: the path.
    Link {
        /// Of the new name.
        path: Vec<u8>,
        /// Who asks has it by a name: it must have one.
        named: bool,
    },
    /// Another file is about to take this name of it, in this directory, also in the permanent
    /// store.
    LetGoOf(Number, Vec<u8>),
    /// An extended attribute is set, or removed.
    Xattr {
        /// Its name.
        name: Vec<u8>,
        /// Its value; `None` removes it.
        value: Option<Vec<u8>>,
        /// What must be there.
        how: XattrHow,
    },
    /// Something else is about to change places with this name of it, in this directory, also in
    /// the permanent store.
    Swap(Number, Vec<u8>),
    /// What capabilities allow is revoked, at the control; done once no member does it any more.
    Revoke(Revocation),
    /// This credential ends, as its holder wishes; as `Revoke`.
    Logout(Carried),
    /// Containers change, as he wishes who may `admin` by his capability; as `Revoke`.
    Container(Principal, Setting),
    /// This is to be done once the transaction comes to be, and can be until that is known; at the
    /// home.
    Prepare(TransactionId, Box<Preparing>),
    /// The transaction has come to be: so has what was prepared for it. Done again, it is as if
    /// done once.
    Commit(TransactionId),
    /// Whether it comes to be, as somebody says, since who decides it was removed; on the member
    /// that is asked.
    Resolve(TransactionId, bool),
    /// The transaction comes to be unless who decides it, and asks, says otherwise while it is in;
    /// these were prepared. At the witness, which writes it down.
    Witness(TransactionId, Vec<Number>),
    /// The witness of this transaction need not know of it any more, as the homes do, or as it does
    /// not come to be. Done again, it is as if done once.
    Release(TransactionId),
    /// The transaction has come to be, and the permanent store has what that makes of a file whose
    /// names were delegated. Done again, it is as if done once.
    Return(TransactionId, Box<Returned>),
}

/// What is to be done, and who does it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct By<T> {
    /// Whom he acts as, by the word of the member that asks.
    pub person: Person,
    /// What.
    pub what: T,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// What it looks like.
    Attributes(Attributes),
    /// What the name stands for.
    Name(Option<Child>),
    /// Names, in order, and whether these were the last.
    Names(Vec<Child>, bool),
    /// It was done; this was made.
    Done(Option<Number>),
    /// It was not.
    Failed(Error),
    /// It was let go; so it looked in the permanent store, if it was there.
    LetGo(Option<Fingerprint>),
    /// What it looks like, and what the name stands for.
    Step(Attributes, Option<Child>),
    /// One name of it was let go, and so many others are left, or may be; so it looks in the store
    /// under that name, if it is there. At last which of the times at which the home lets one go it
    /// is ([`super::letting_go`]); 0: it is not to hear what comes of it.
    LetGoOf(Option<Fingerprint>, u32, u64),
    /// The value of an extended attribute.
    Xattr(Vec<u8>),
    /// Names of extended attributes, in order, and whether these were the last.
    XattrNames(Vec<Vec<u8>>, bool),
    /// Where its bytes are, and how safe.
    Safety(Box<Safety>),
    /// How the server is.
    Server(Box<MemberStatus>),
    /// Which processes wait for locks.
    Waits(Vec<Waiting>),
    /// The capability is good, and comes to this.
    Good(Scope),
    /// The epoch in which something was revoked last.
    Revoked(u64),
    /// What was issued.
    Issued(Box<Capability>),
    /// So many sessions may do less, and these members have not said that they go by it: what was
    /// handed out is good there no more, and their own programs go on.
    Ended(u32, Vec<Member>),
    /// Whether the transaction comes to be; `None`: that is not decided yet.
    Decided(Option<bool>),
    /// What is, or was until now, in doubt.
    Doubts(Vec<InDoubt>),
    /// Whether the transaction comes to be is not decided, as this member does not answer: its
    /// witness.
    Awaits(Member),
    /// Its names are delegated, so many; it looks so in the permanent store, if it is there, and
    /// whether that is an older version, which it is to replace.
    Delegated(u32, Option<Fingerprint>, bool),
}

fn body_of(what: &impl Serialize) -> Result<Body> {
    let long = || Error::new(ErrorKind::NameTooLong, "more than one message holds");
    Body::new(frame::encode(what)?).ok_or_else(long)
}

fn bytes_of(body: &Body) -> Result<&[u8]> {
    match body.bytes() {
        [] => Err(Error::new(ErrorKind::NotFound, "it is gone")),
        bytes => Ok(bytes),
    }
}

macro_rules! in_bodies {
    ($($what:ty),*) => {$(
        impl $what {
            /// Its bytes.
            ///
            /// # Errors
            /// [`ErrorKind::TooLong`] if it is longer than a body.
            pub fn body(&self) -> Result<Body> {
                body_of(self)
            }

            /// What these bytes say.
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] if that is nothing: what it was of is gone;
            /// [`ErrorKind::Malformed`].
            pub fn of(body: &Body) -> Result<Self> {
                frame::decode(bytes_of(body)?)
            }
        }
    )*};
}

in_bodies!(Node, By<Look>, By<Change>, Outcome);

impl Directory {
    /// Its bytes.
    ///
    /// # Errors
    /// [`ErrorKind::TooLong`] if it is longer than a body.
    pub fn body(&self) -> Result<Body> {
        body_of(self)
    }

    /// What these bytes say; also those that a log has from before.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if that is nothing: what it was of is gone;
    /// [`ErrorKind::Malformed`].
    pub fn of(body: &Body) -> Result<Self> {
        let bytes = bytes_of(body)?;
        frame::decode(bytes).or_else(|error| match frame::decode(bytes) {
            Ok(DirectoryBefore { attributes, names }) => {
                Ok(Directory { attributes, names, whole: false })
            }
            Err(_) => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Attributes, Body, Child, Directory};
    use crate::frame;
    use crate::ids::{Ino, Member, Number};
    use crate::wire::attributes::Kind;

    #[test]
    fn a_directory_that_a_log_has_from_before_is_read_and_may_have_more_names() {
        let attributes = Attributes {
            ino: Ino(1),
            kind: Kind::Directory,
            mode: 0o755,
            links: 2,
            uid: 3,
            gid: 4,
            size: 5,
            accessed_ns: 6,
            modified_ns: 7,
            changed_ns: 8,
        };
        let number = Number::new(Member::LEAST, 9).expect("few");
        let (name, text) = (b"a".to_vec(), Vec::new());
        let names = vec![Child { name, number, kind: Kind::File, text }];
        let before = frame::encode(&(attributes, &names)).expect("encodes");
        let read = Directory::of(&Body::new(before).expect("short"));
        assert_eq!(read, Ok(Directory { attributes, names, whole: false }));
    }
}
