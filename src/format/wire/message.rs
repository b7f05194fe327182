//! What clients and servers say to each other: postcard, in a request slot of the session page. Not
//! here: how they meet (`handshake`).

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::ids::{DescriptionSlot, Ino, Member};
pub use crate::wire::attributes::{Attributes, Change, Kind, Name, Seen, gives_rights};
use crate::wire::capability::{Capability, Operations, Revocation};
use crate::wire::containers::{Bounded, Container};
use crate::wire::credential::Credential;
use crate::wire::far_files::{FarFile, LentTo, Offered, Stored};
use crate::wire::fencing::Fenced;
use crate::wire::locks::{HeldLock, LockAsk};
use crate::wire::login::{CHALLENGE_BYTES, Hidden, Proof, Shown, Whom, Wish};
pub use crate::wire::manner::{OpenHow, RenameHow, XattrHow};
pub use crate::wire::opened::{FileRef, OpenFile};
pub use crate::wire::presentation::Presentation;
use crate::wire::starting::Needed;
pub use crate::wire::status::{Drain, MemberAnswer, Safety, Space, Status, Totals};
use crate::wire::transactions::{self, MemberDoubts, TransactionId};

/// Version of the messages and of shared memory. Both sides must have the same.
pub const PROTOCOL: u32 = 27;
/// Version of the frames of the handshake. It stays, so that programs of all versions can be told
/// why they are refused: [`PROTOCOL`] changes instead.
pub const FRAMES: u16 = 4;
/// Who waits for a lock asks again at least this often: the server forgets those who do not.
pub const WAIT_REFRESH_MS: u64 = 1000;
/// Longest value of an extended attribute: it must fit a message together with two paths.
pub const XATTR_VALUE_MAX: usize = 8 << 10;
/// Most bytes of a chunk in one answer ([`Reply::Extent`]).
pub const EXTENT_MAX: u32 = 15 << 10;

/// A file, by name or open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target<'a> {
    /// Relative to the container's root, without leading slash; the root itself is empty.
    Path(#[serde(borrow)] &'a [u8]),
    /// An open file.
    File(FileRef),
}

/// A request: on whose authority, and what.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope<'a> {
    /// What [`Reply::Handle`] gave for the presented capability; 0 for [`Request::Present`] only.
    pub authority: u32,
    /// What to do.
    #[serde(borrow)]
    pub request: Request<'a>,
}

/// What a client can ask.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Verify this encoded [`Presentation`] and remember the answer → [`Reply::Handle`].
    Present(#[serde(borrow)] &'a [u8]),
    /// Attributes of a name or an open file → [`Reply::Attributes`].
    Stat(#[serde(borrow)] Target<'a>),
    /// Open or create → [`Reply::Opened`], or [`Reply::Node`] for a FIFO.
    Open {
        /// Which.
        path: &'a [u8],
        /// How.
        how: OpenHow,
    },
    /// Open an open file once more, with a description of its own → as [`Request::Open`].
    Reopen {
        /// Which.
        file: FileRef,
        /// How; nothing is made.
        how: OpenHow,
    },
    /// A descriptor of this description was closed; if it was the last, the description ends.
    Close {
        /// Which.
        description: DescriptionSlot,
        /// Must match.
        nonce: u32,
    },
    /// Make a directory.
    MakeDirectory {
        /// Where.
        path: &'a [u8],
        /// Permission bits, umask already taken off.
        mode: u32,
    },
    /// Remove an empty directory.
    RemoveDirectory(&'a [u8]),
    /// Remove a file's name.
    Unlink(&'a [u8]),
    /// Move a name, over an existing one if there is one.
    Rename {
        /// The old name.
        from: &'a [u8],
        /// The new name.
        to: &'a [u8],
        /// What else may happen at `to`.
        how: RenameHow,
    },
    /// Give a file a further name.
    Link {
        /// Which.
        #[serde(borrow)]
        target: Target<'a>,
        /// The new name.
        path: &'a [u8],
    },
    /// Make a symbolic link.
    MakeLink {
        /// Where.
        path: &'a [u8],
        /// What it says, 1 to 4,095 bytes.
        target: &'a [u8],
    },
    /// What a symbolic link says → [`Reply::LinkTarget`].
    ReadLink(&'a [u8]),
    /// Names of a directory after `after`, in order → [`Reply::Names`].
    List {
        /// Which directory.
        path: &'a [u8],
        /// The last name already seen; empty to begin.
        after: &'a [u8],
    },
    /// Change attributes.
    Change {
        /// Of what.
        #[serde(borrow)]
        target: Target<'a>,
        /// To what.
        change: Change,
    },
    /// Make a file this long.
    Truncate {
        /// Which.
        #[serde(borrow)]
        target: Target<'a>,
        /// Bytes.
        size: u64,
        /// As that of [`OpenHow`].
        token: u64,
    },
    /// Have chunks for writing at indices `first..first + count`; the map shows what was granted.
    Grant {
        /// Which file.
        file: FileRef,
        /// First chunk index.
        first: u64,
        /// How many; the server may give fewer, but at least the first.
        count: u32,
        /// Pages of the first that are needed now: a new file may get a small chunk for few.
        pages: u32,
    },
    /// Bring chunks from the backing for reading; a file at rest ([`FileSlot::RESTING`]) just gets
    /// its record → [`Reply::Extent`] where memory has no room for the first.
    Stage {
        /// Which file.
        file: FileRef,
        /// First chunk index.
        first: u64,
        /// How many; the server may bring fewer, but at least the first.
        count: u32,
        /// Who asks reads the first from this byte of it on,
        within: u32,
        /// so many, at most [`EXTENT_MAX`]; 0: he needs the chunk itself.
        bytes: u32,
    },
    /// A page claim or append ticket has not moved for long: take it from who is dead or stopped.
    Unblock {
        /// Which file.
        file: FileRef,
        /// Chunk index of the claim.
        index: u64,
        /// Who is in the way.
        owner: u16,
    },
    /// Have files in hand, open and without a name, which can be created without waiting →
    /// [`Reply::Preallocated`]; from then on the session may defer changes (see
    /// [`crate::local::changes::Deferred`]).
    Preallocate {
        /// How many; the server may give fewer.
        count: u32,
        /// Their descriptions live as long as their kernel descriptors.
        kernel: bool,
    },
    /// Answer once the file is as safe as its container's durability promises.
    Sync(FileRef),
    /// A lock is in the way. If its holder is no more it is gone with the answer; else
    /// [`ErrorKind::WouldBlock`](crate::ErrorKind::WouldBlock): a `waiter` then sleeps on the
    /// file's head in [`crate::local::lock_table`], and asks again after [`WAIT_REFRESH_MS`].
    LockBlocked {
        /// Which.
        ask: LockAsk,
        /// The thread of the session that will wait, for the detection of deadlocks; 0: none will.
        waiter: u32,
    },
    /// This thread of the session does not wait for a lock any more.
    StopWaiting(u32),
    /// Blocks to write lists of locks into → [`Reply::LockBlocks`].
    LockBlocks,
    /// An extended attribute → [`Reply::Xattr`].
    Xattr {
        /// Of what.
        #[serde(borrow)]
        target: Target<'a>,
        /// Its name, with its prefix.
        name: &'a [u8],
    },
    /// Names of extended attributes after `after`, in order → [`Reply::XattrNames`].
    XattrNames {
        /// Of what.
        #[serde(borrow)]
        target: Target<'a>,
        /// The last name already seen; empty to begin.
        after: &'a [u8],
    },
    /// Set or remove an extended attribute.
    SetXattr {
        /// Of what.
        #[serde(borrow)]
        target: Target<'a>,
        /// Its name, with its prefix.
        name: &'a [u8],
        /// Its value; `None` removes it.
        value: Option<&'a [u8]>,
        /// What must be there.
        how: XattrHow,
    },
    /// Bytes and names, used and free → [`Reply::Space`].
    Space,
    /// How the server is → [`Reply::Status`].
    Status,
    /// Where a file's bytes are → [`Reply::Safety`].
    Safety(&'a [u8]),
    /// How all servers of the partition are, none if this one is alone → [`Reply::Everywhere`].
    Everywhere {
        /// All are to bring what they owe, as [`Request::Flush`] has it.
        hasten: bool,
    },
    /// Publish open files too, so that everything written so far gets to the backing.
    Flush,
    /// No more work will come: finish the drain, and leave when the debt is paid. (`admin`)
    Finish,
    /// Let one more server into the partition: if this is empty, one that is trusted with all; else
    /// one of the user whom an encoded [`Newcomer`](super::answering::Newcomer) says, by the
    /// [`Key`](super::roster::Key) behind it, for which the server that is asked answers; the
    /// invitation has no secret then → [`Reply::Invitation`]. (`admin`)
    Invite(&'a [u8]),
    /// Leave now; what is owed stays in memory for `terral recover`. (`admin`)
    Leave,
    /// Make chunks fit to be mapped (see [`crate::local::entry`]), holes and what lies beyond the
    /// end of the file included.
    Map {
        /// Which file.
        file: FileRef,
        /// First chunk index.
        first: u64,
        /// How many; the server may do fewer, but at least the first.
        count: u32,
        /// For writing.
        stores: bool,
    },
    /// Somebody who is not root writes into a file that gives its runner rights: it gives no more.
    DropSetId(FileRef),
    /// A program is about to be executed. [`ErrorKind::TextBusy`](crate::ErrorKind::TextBusy) if
    /// somebody may write into its file; else nobody may as long as it runs.
    Execute {
        /// Which file.
        file: FileRef,
        /// The descriptor, in the asking process, of the copy that will run; none for a script,
        /// which is only read.
        copy: Option<u32>,
    },
    /// Make a FIFO or a socket → [`Reply::Node`].
    MakeNode {
        /// Where.
        path: &'a [u8],
        /// Which of the two.
        kind: Kind,
        /// Permission bits, umask already taken off.
        mode: u32,
        /// Of a socket that is bound: its address as the program gave it, at most 108 bytes.
        address: &'a [u8],
    },
    /// What is borrowed was used, and the deadline had passed when that was done (see
    /// [`crate::local::lease`]) → [`Reply::Done`] if it counts all the same, [`Reply::Again`] if it
    /// is not there.
    Late {
        /// Which file; a directory for the names in it, without a record's slot.
        file: FileRef,
        /// Of a read or write: the chunk's index, and its [`crate::local::entry::MapEntry`] then.
        chunk: Option<(u64, u64)>,
    },
    /// About a file whose bytes are on another machine, or for a machine that has it open.
    Far(#[serde(borrow)] FarFile<'a>),
    /// Remove a member from the partition. (`admin`)
    Fence {
        /// Which.
        member: Member,
        /// Whether it is known to be dead.
        dead: bool,
    },
    /// Who opens files that match it from now on writes so: [`super::roster::Policy`]. (`admin`)
    Policy(&'a str, Option<super::roster::Consistency>),
    /// New files that match it are created so from now on:
    /// [`LayoutPolicy`](super::placement::LayoutPolicy). (`admin`)
    Layout(&'a str, Option<super::placement::Layout>),
    /// A member keeps bytes of new files from now on, or does not. (`admin`)
    Role {
        /// Which.
        member: Member,
        /// Whether it does.
        stores: bool,
    },
    /// On which server new bytes are to be, of two chosen at random the one that has more room →
    /// [`Reply::Elsewhere`].
    Choose,
    /// As [`Request::Finish`]; a member of several leaves in order, or may not. Whether files that
    /// only it has may be lost. (`admin`)
    Stop(bool),
    /// Have a capability to keep, narrow and hand on, with a serial of its own →
    /// [`Reply::Capability`]. Only who shows none gets one. (`admin`)
    Capability,
    /// End what capabilities allow → [`Reply::Revoked`], once nobody does it any more. (`admin`)
    Revoke(Revocation),
    /// What another member has issued is to count still: see [`crate::local::tables::LEASED`].
    Renew,
    /// Carry out all of these encoded [`transactions::Operation`]s, or none.
    Transact(&'a [u8]),
    /// Something to sign → [`Reply::Challenge`], good once and for a minute.
    Challenge,
    /// Prove who one is → [`Reply::Credential`].
    Login(#[serde(borrow)] Proof<'a>, Wish<'a>),
    /// Have a capability for whom a credential names → [`Reply::Capability`]; whether it is to be
    /// kept, which is written down.
    Authorize(Shown<'a>, bool),
    /// End a credential, and all capabilities that were got by it → [`Reply::Revoked`].
    Logout(Shown<'a>),
    /// As whom one acts → [`Reply::Whom`].
    Whom,
    /// Show a ticket of Kerberos, with a challenge, which is used up → [`Reply::Negotiated`]; then
    /// log in ([`Proof::Gss`]), within a minute.
    Negotiate([u8; CHALLENGE_BYTES], Hidden<'a>),
    /// Containers after this name, in order → [`Reply::Containers`].
    Containers(&'a str),
    /// Change containers, as this encoded [`Setting`](super::containers::Setting) says →
    /// [`Reply::Revoked`], once all members go by it. (`admin`)
    SetContainer(&'a [u8]),
    /// Whether a file may be used still: who logged in asks when containers have changed.
    Use {
        /// Which.
        file: FileRef,
        /// For what: read 1, write 2.
        access: u8,
    },
    /// What was prepared for transactions and is not known to come to be, on all members; nothing
    /// if this one is alone → [`Reply::Doubts`]. (`admin`)
    Doubts,
    /// Whether one comes to be whose decider was removed → [`Reply::Doubts`]: what was in doubt,
    /// and is not any more. (`admin`)
    Resolve {
        /// Which.
        of: TransactionId,
        /// Whether it does.
        is: bool,
    },
    /// What came of users' servers that were to be started: encoded pairs of
    /// [`Needed`](super::starting::Needed) and [`Started`](super::starting::Started) →
    /// [`Reply::Needed`], those that are needed now. Who asks starts them, and asks again soon.
    /// (`admin`)
    Starts(&'a [u8]),
    /// A user, as an encoded [`Person`](super::person::Person), is in these groups now: his server,
    /// if one is in, speaks for him as he is. (`admin`)
    Speaks(&'a [u8]),
}

impl Request<'_> {
    /// The operations a capability must allow for this request.
    pub fn needs(&self) -> Operations {
        match self {
            Request::Present(_)
            | Request::Close { .. }
            | Request::LockBlocked { .. }
            | Request::LockBlocks
            | Request::StopWaiting(_)
            | Request::Space
            | Request::Everywhere { hasten: false }
            | Request::Status
            | Request::Late { .. }
            | Request::Renew
            | Request::Choose
            | Request::Unblock { .. } => Operations(0),
            Request::Challenge | Request::Login(..) | Request::Whom => Operations(0),
            Request::Authorize(..) | Request::Logout(_) | Request::Negotiate(..) => Operations(0),
            Request::Stat(_)
            | Request::ReadLink(_)
            | Request::Xattr { .. }
            | Request::XattrNames { .. }
            | Request::Safety(_)
            | Request::Containers(_)
            | Request::List { .. } => Operations::LIST,
            Request::Open { how, .. } | Request::Reopen { how, .. } => {
                let mut needs = Operations(0);
                if how.access & 1 != 0 {
                    needs = needs.and(Operations::READ);
                }
                if how.access & 2 != 0 || how.truncate {
                    needs = needs.and(Operations::WRITE);
                }
                if how.create { needs.and(Operations::CREATE) } else { needs }
            }
            Request::Stage { .. }
            | Request::Execute { .. }
            | Request::Map { stores: false, .. } => Operations::READ,
            Request::MakeDirectory { .. }
            | Request::Link { .. }
            | Request::MakeLink { .. }
            | Request::MakeNode { .. } => Operations::CREATE,
            Request::RemoveDirectory(_) | Request::Unlink(_) => Operations::REMOVE,
            Request::Rename { .. } => Operations::CREATE.and(Operations::REMOVE),
            Request::Change { .. }
            | Request::SetXattr { .. }
            | Request::Truncate { .. }
            | Request::DropSetId(_)
            | Request::Grant { .. }
            | Request::Map { .. }
            | Request::Flush
            | Request::Everywhere { .. }
            | Request::Sync(_) => Operations::WRITE,
            Request::Preallocate { .. } => {
                Operations::CREATE.and(Operations::REMOVE).and(Operations::WRITE)
            }
            Request::Finish | Request::Invite(_) | Request::Leave => Operations::ADMIN,
            Request::Fence { .. } | Request::Policy(..) | Request::Stop(_) => Operations::ADMIN,
            Request::Layout(..) | Request::Role { .. } => Operations::ADMIN,
            Request::Capability | Request::Revoke(_) | Request::SetContainer(_) => {
                Operations::ADMIN
            }
            Request::Doubts | Request::Resolve { .. } => Operations::ADMIN,
            Request::Starts(_) | Request::Speaks(_) => Operations::ADMIN,
            Request::Use { access, .. } => Operations(access & 3),
            Request::Far(far) => far.needs(),
            Request::Transact(operations) => transactions::needs(operations),
        }
    }

    /// Whether it needs no session: it is about the server, or about names.
    pub fn is_question(&self) -> bool {
        matches!(
            self,
            Request::Stat(Target::Path(_))
                | Request::ReadLink(_)
                | Request::List { .. }
                | Request::Space
                | Request::Status
                | Request::Safety(_)
                | Request::Everywhere { .. }
                | Request::Flush
                | Request::Finish
                | Request::Invite(_)
                | Request::Fence { .. }
                | Request::Policy(..)
                | Request::Layout(..)
                | Request::Role { .. }
                | Request::Stop(_)
                | Request::Leave
                | Request::Capability
                | Request::Revoke(_)
        ) || matches!(self, Request::Containers(_) | Request::SetContainer(_))
            || matches!(self, Request::Starts(_) | Request::Speaks(_))
            || matches!(self, Request::Doubts | Request::Resolve { .. })
            || self.is_of_identity()
    }

    /// Whether it is about who somebody is.
    pub fn is_of_identity(&self) -> bool {
        matches!(self, Request::Challenge | Request::Login(..) | Request::Whom)
            || matches!(self, Request::Authorize(..) | Request::Logout(_) | Request::Negotiate(..))
    }

    /// Whether it is about nothing that can be changed without waiting for the server.
    pub fn is_apart(&self) -> bool {
        matches!(
            self,
            Request::Grant { .. }
                | Request::Stage { .. }
                | Request::Map { .. }
                | Request::Unblock { .. }
                | Request::LockBlocks
                | Request::LockBlocked { .. }
                | Request::StopWaiting(_)
                | Request::Present(_)
                | Request::Renew
                | Request::Choose
                | Request::Use { .. }
                | Request::Preallocate { .. }
        ) || matches!(self, Request::Far(far) if far.is_apart())
    }

    /// Whether a deferred change must not come in between.
    pub fn needs_gate(&self) -> bool {
        match self {
            Request::Open { how, .. } => how.create,
            Request::MakeDirectory { .. }
            | Request::RemoveDirectory(_)
            | Request::Unlink(_)
            | Request::Rename { .. }
            | Request::Link { .. }
            | Request::MakeLink { .. }
            | Request::MakeNode { .. }
            | Request::Transact(_)
            | Request::Execute { .. } => true,
            _ => false,
        }
    }

    /// Whether others can see what it does, and nobody has counted on it before it is answered: it
    /// does not come to be once its process has ended.
    pub fn is_seen(&self) -> bool {
        match self {
            Request::Change { .. } | Request::Truncate { .. } | Request::DropSetId(_) => true,
            Request::Far(far) => far.is_seen(),
            Request::Open { how, .. } | Request::Reopen { how, .. } => how.create || how.truncate,
            Request::Close { .. } => false,
            _ => self.changes_names(),
        }
    }

    /// Whether it may need memory for a file's bytes, and changes nothing before it has that: with
    /// memory full it can be done later.
    pub fn needs_chunks(&self) -> bool {
        matches!(
            self,
            Request::Grant { .. }
                | Request::Stage { .. }
                | Request::Open { .. }
                | Request::Reopen { .. }
                | Request::Truncate { .. }
                | Request::Unlink(_)
                | Request::Rename { .. }
                | Request::Transact(_)
                | Request::Far(FarFile::Fencing { .. } | FarFile::FencingFor(..))
                | Request::Far(FarFile::Update { .. } | FarFile::UpdateFor { .. })
                | Request::Unblock { .. }
        )
    }

    /// Whether it may need a place for a new inode or a new name.
    pub fn makes_names(&self) -> bool {
        match self {
            Request::Open { how, .. } => how.create || how.unnamed,
            Request::MakeDirectory { .. }
            | Request::Rename { .. }
            | Request::Link { .. }
            | Request::MakeLink { .. }
            | Request::MakeNode { .. }
            | Request::Transact(_) => true,
            _ => false,
        }
    }

    /// Whether doing it twice differs from doing it once, so that the answer must be remembered.
    pub fn changes_names(&self) -> bool {
        matches!(
            self,
            Request::Open { .. }
                | Request::Reopen { .. }
                | Request::Close { .. }
                | Request::MakeDirectory { .. }
                | Request::RemoveDirectory(_)
                | Request::Unlink(_)
                | Request::Rename { .. }
                | Request::Link { .. }
                | Request::MakeLink { .. }
                | Request::MakeNode { .. }
                | Request::SetXattr { .. }
                | Request::Transact(_)
                | Request::Far(FarFile::Open { .. } | FarFile::Lost(..))
        ) || matches!(self, Request::Far(FarFile::Place { what, .. }) if what.creates())
    }
}

/// The server's answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// Not done.
    Failed(Error),
    /// The capability is good; use this number.
    Handle(u32),
    /// Attributes.
    Attributes(Seen),
    /// It is open.
    Opened {
        /// The description.
        description: DescriptionSlot,
        /// What descriptors of it carry.
        nonce: u32,
        /// The file. For a directory, its ino with slot [`FileSlot::NONE`].
        file: FileRef,
    },
    /// Files in hand.
    Preallocated(Vec<OpenFile>),
    /// What a symbolic link says.
    LinkTarget(Vec<u8>),
    /// Names, and whether these were the last.
    Names {
        /// In order of their bytes.
        names: Vec<Name>,
        /// Nothing follows.
        last: bool,
    },
    /// A group of blocks in [`crate::local::lock_table`].
    LockBlocks(u32),
    /// The value of an extended attribute.
    Xattr(Vec<u8>),
    /// Names of extended attributes, and whether these were the last.
    XattrNames {
        /// In order of their bytes.
        names: Vec<Vec<u8>>,
        /// Nothing follows.
        last: bool,
    },
    /// Bytes and names, used and free.
    Space(Space),
    /// How the server is.
    Status(Box<Status>),
    /// Where a file's bytes are.
    Safety(Box<Safety>),
    /// How each is, in order.
    Everywhere(Vec<MemberAnswer>),
    /// The number of a FIFO or a socket: the kernel has what it stands for.
    Node(Ino),
    /// The file is to be created by this member's server, and is not yet: ask again and say so
    /// ([`OpenHow::on`](super::manner::OpenHow::on)); or, to [`Request::Choose`], which was chosen.
    Elsewhere(Member),
    /// This machine keeps a chunk of the file, which is so many bytes long.
    With(Member, u64),
    /// It is to be done anew.
    Again,
    /// The text of a [`crate::wire::roster::Invitation`], for one server.
    Invitation(String),
    /// Bytes that memory has no room for, or are on another machine.
    Extent(#[serde(with = "crate::wire::bytes")] Vec<u8>),
    /// Bytes were written on another machine, and begin there.
    At(u64),
    /// Bytes of another machine's file are here until the call says [`FarFile::Through`], or
    /// [`crate::local::tables::Superblock::starts`] is another.
    Stored {
        /// Where; at least one byte.
        places: Vec<Stored>,
        /// The file ends behind them.
        ends: bool,
    },
    /// Whether somebody has it open.
    IsOpen(bool),
    /// What would be in the way of a lock.
    Held(Option<HeldLock>),
    /// Chunks of another machine's file are this machine's alone, in this one without a name.
    Lent(FileRef),
    /// Chunks of a file are another machine's.
    LentTo(LentTo),
    /// A chunk is offered to another machine.
    Offered(Offered),
    /// One to keep.
    Capability(Box<Capability>),
    /// It was revoked.
    Revoked {
        /// So many sessions where that was done may do less now.
        sessions: u32,
        /// These members have not said that they go by it: what was handed out is good there no
        /// more, and their own programs go on until they do.
        deaf: Vec<Member>,
    },
    /// To be signed, once.
    Challenge([u8; CHALLENGE_BYTES]),
    /// One to keep.
    Credential(Box<Credential>),
    /// As whom one acts.
    Whom(Box<Whom>),
    /// What a named lock gives, or a file was told.
    Fenced(Fenced),
    /// What proves to who has shown a ticket that the server has the key that it is for.
    Negotiated(#[serde(with = "crate::wire::bytes")] Vec<u8>),
    /// Containers, and whether these were the last.
    Containers(Vec<Container>, Vec<Bounded>, bool),
    /// The update id of a file.
    Updated(u64),
    /// What is, or was, in doubt on each member, in order.
    Doubts(Vec<MemberDoubts>),
    /// Users' servers that are needed, at most [`NEEDED_MAX`](super::starting::NEEDED_MAX).
    Needed(Vec<Needed>),
}
