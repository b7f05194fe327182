//! What clients ask about open files whose bytes are on another machine, and what the server there
//! asks in their name, as a client of its own ([`super::message::Request::Far`]).
//!
//! Messages are short and calls are not: a call of a client that reads or writes more than fits one
//! has a number of its own, by which the server knows the pieces that belong together. Not here:
//! what servers say to each other (`far`).

use serde::{Deserialize, Serialize};

use super::capability::Operations;
use super::fencing::Fencing;
use super::locks::{FarLock, FarOwner, LockAsk};
use super::message::FileRef;
use super::placed::Placing;
use super::updates::{Attempt, Update};
use crate::ids::{DescriptionSlot, Ino, Member, Number, PageNumber};

/// Most bytes that one call reads or writes at once; more is done bit by bit.
pub const CALL_MAX: usize = super::far::BYTES_MAX;
/// Most bytes of one piece.
pub const PIECE_MAX: usize = 15 << 10;

/// An open file, as its server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// Its description.
    pub description: DescriptionSlot,
    /// Must match.
    pub nonce: u32,
}

/// A piece of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Of which call of the session.
    pub call: u64,
    /// Where it begins in what is read or written.
    pub within: u32,
    /// Bytes of the call after it.
    pub more: u32,
}

/// Bytes of a file that is on another machine, in this machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// They begin in this page of the arena.
    pub page: PageNumber,
    /// So many bytes after its begin, less than a segment has.
    pub within: u32,
    /// So many, at most [`CALL_MAX`].
    pub bytes: u32,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FarFile<'a> {
    /// Read → [`super::message::Reply::Extent`]; fewer bytes at the end of the file. What is read
    /// for the pieces that follow is as it was for the first. Or, with the first piece, →
    /// [`super::message::Reply::Stored`], for as much of the call as there is; then nothing follows
    /// but [`FarFile::Through`].
    Read {
        /// Which.
        of: Handle,
        /// From here on: where this piece begins.
        at: u64,
        /// So many, at most [`PIECE_MAX`]; with what follows at most [`CALL_MAX`].
        bytes: u32,
        /// Which piece.
        piece: Piece,
    },
    /// Write → [`super::message::Reply::Done`], and with the last piece
    /// [`super::message::Reply::At`], before which nothing is written;
    /// [`super::message::Reply::Again`] if the server does not have the pieces before this one.
    Write {
        /// Which.
        of: Handle,
        /// Where the call begins; `None`: at the end of the file.
        at: Option<u64>,
        /// Which piece. All of them are at most [`CALL_MAX`] bytes.
        piece: Piece,
        /// The bytes, at most [`PIECE_MAX`].
        #[serde(borrow, serialize_with = "crate::wire::bytes::serialize")]
        bytes: &'a [u8],
    },
    /// Write what the caller has put into a file of this machine that it alone has open, from its
    /// begin on → [`super::message::Reply::At`]; [`super::message::Reply::Again`] if that is not in
    /// memory, or was not when a server before this one was asked: then nothing was written.
    Ship {
        /// Which.
        of: Handle,
        /// Where the call begins; `None`: at the end of the file.
        at: Option<u64>,
        /// Where the bytes are.
        from: Handle,
        /// So many, at most [`CALL_MAX`].
        bytes: u32,
    },
    /// Have chunks of it for this machine alone, in which its processes write as in a file of their
    /// own → [`super::message::Reply::Lent`], and where they do so;
    /// [`super::message::Reply::Again`] if the first cannot be had: it is written by asking.
    Borrow {
        /// Which.
        of: Handle,
        /// The first.
        first: u64,
        /// So many, as far as they can be had.
        count: u32,
    },
    /// It was written there up to here: so long is the file for others from now on → done;
    /// [`super::message::Reply::Again`] if it may not be this machine's alone any more.
    Grow {
        /// Which.
        of: Handle,
        /// Bytes.
        to: u64,
        /// Of the size that it was seen to have there.
        epoch: u16,
    },
    /// Have a batch for what is written here until it is committed →
    /// [`super::message::Reply::Lent`], and which file that is;
    /// [`super::message::Reply::Again`] if there is none to be had: it is written by asking.
    Batch {
        /// Which.
        of: Handle,
        /// A batch that is full, or had been sealed; 0 if none was known.
        full: Ino,
    },
    /// What was written here goes to the file's home → done once it is there. It fails if something
    /// that was written before could not be taken there: that is said once.
    Commit(Handle),
    /// Have a file of this machine for what is to be shipped: open, and without a name →
    /// [`super::message::Reply::Preallocated`], with one.
    Bounce,
    /// What a call was told to be stored here, it does not look at any more. Has no answer.
    Through {
        /// Which call of the session.
        call: u64,
    },
    /// Open what was born here, for members that have it open → as
    /// [`super::message::Request::Open`]. Only for the server's own process.
    Open {
        /// What.
        ino: Ino,
        /// Bits of [`access`](mod@crate::local::geometry).
        access: u8,
    },
    /// Nobody can change what was born here without asking this server, from now on → done;
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) if somebody can. Only for the server's own
    /// process.
    Rests(Ino),
    /// Take a lock, change one, or give it back → done; [`ErrorKind::WouldBlock`] if another one is
    /// in the way, [`ErrorKind::Deadlock`] if who waits for it would for ever.
    ///
    /// [`ErrorKind::WouldBlock`]: crate::ErrorKind::WouldBlock
    /// [`ErrorKind::Deadlock`]: crate::ErrorKind::Deadlock
    Lock {
        /// Which.
        ask: LockAsk,
        /// Who asks asks again until he has it.
        wait: u32,
    },
    /// What would be in the way of a lock → [`super::message::Reply::Held`].
    TestLock(LockAsk),
    /// The same as [`FarFile::Lock`] for somebody on another machine, of what was born here. Only
    /// for the server's own process.
    LockFor(Ino, FarLock),
    /// The same as [`FarFile::TestLock`], likewise.
    TestLockFor(Ino, FarLock),
    /// A machine has what was born here open no more: its locks there are over. Only for the
    /// server's own process.
    UnlockAll(Ino, Member),
    /// Is what was born on another machine open here? → [`super::message::Reply::IsOpen`]. Only for
    /// the server's own process.
    IsOpen(Number),
    /// What was born here has lost a name on another machine, the last one that is known there:
    /// once for each token of a machine. Only for the server's own process.
    Lost(Ino, Member, u64),
    /// A machine wants so many chunks, from one on, of what was born here for itself →
    /// [`super::message::Reply::LentTo`]; [`super::message::Reply::Again`] if it cannot have the
    /// first. Only for the server's own process, as all that follow.
    LendTo(Ino, Member, u64, u32),
    /// A machine wants these chunks to be asked back, and may be about to leave → done;
    /// [`super::message::Reply::Again`] if they may stay there.
    BringBack(Ino, Member, u64, u32, bool),
    /// A machine has what was born here open no more, and gives nothing back of it any more → done.
    HasNothing(Ino, Member),
    /// A chunk that was lent to this machine before a stamp is asked back →
    /// [`super::message::Reply::Stored`], its pages that were written; what is there of it stays as
    /// it is until [`FarFile::Took`]. [`super::message::Reply::Again`] if nothing is.
    GiveBack(Number, u64, u64),
    /// It was taken back → done.
    Took(Number, u64, u64),
    /// A machine wants a chunk of what was born here for itself, to be mapped →
    /// [`super::message::Reply::Offered`], or as [`FarFile::LendTo`]; one that it has already is
    /// just lent. [`ErrorKind::TextBusy`](crate::ErrorKind::TextBusy) if others have it mapped.
    OfferTo(Ino, Member, u64),
    /// It has all bytes of it that was offered by this stamp → as [`FarFile::LendTo`].
    Accepted(Ino, Member, u64, u64),
    /// Where is a chunk that was lent to this machine, and is mapped here? →
    /// [`super::message::Reply::Lent`], or [`super::message::Reply::Again`] if it is not.
    Mapped(Number, u64),
    /// Have a chunk of it for this machine alone, fit to be mapped, as
    /// [`super::message::Request::Map`] does → [`super::message::Reply::Lent`];
    /// [`super::message::Reply::Again`] if it cannot be had just now. Any client may ask this, and
    /// what follows.
    Map {
        /// Which; open for writing.
        of: Handle,
        /// The chunk.
        index: u64,
        /// Whether what is stored there becomes the file's.
        stores: bool,
    },
    /// Write to a chunk of what was born here, which another machine has mapped → done;
    /// [`super::message::Reply::Again`] if it has not any more.
    WriteMapped {
        /// The file, by its number; open for writing.
        file: FileRef,
        /// From here on.
        at: u64,
        /// The bytes, of one chunk, at most [`PIECE_MAX`].
        #[serde(borrow, serialize_with = "crate::wire::bytes::serialize")]
        bytes: &'a [u8],
    },
    /// Something is said of a named lock, or of what it protects, wherever that is →
    /// [`super::message::Reply::Fenced`].
    Fencing {
        /// Which file; open for writing if it is to be fenced.
        of: Handle,
        /// What.
        what: Fencing,
    },
    /// The same of what was born here, for somebody on another machine. Only for the server's own
    /// process.
    FencingFor(Ino, FarOwner, Fencing),
    /// An object is to be had by another member's server → it is open, as
    /// [`super::message::Reply::Opened`] says, if it is created, or done.
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if there is no such member.
    Place {
        /// Which.
        on: Member,
        /// What.
        what: Placing,
        /// The path of its container, from the root.
        #[serde(borrow, serialize_with = "crate::wire::bytes::serialize")]
        container: &'a [u8],
        /// Which object.
        id: u128,
    },
    /// The update id of an open file is wanted, or a write as long as it has one, wherever that is
    /// → [`super::message::Reply::Updated`]. [`ErrorKind::Changed`](crate::ErrorKind::Changed) if
    /// it has another one.
    Update {
        /// Which; open for writing if it is to be written.
        of: Handle,
        /// What.
        what: Update,
        /// What is to be written: records of a [batch](crate::local::batch), at most
        /// [`super::updates::RECORDS_MAX`].
        #[serde(borrow, serialize_with = "crate::wire::bytes::serialize")]
        records: &'a [u8],
    },
    /// The same of what was born here, for somebody on another machine. Only for the server's own
    /// process.
    UpdateFor {
        /// Which.
        ino: Ino,
        /// For which request.
        attempt: Attempt,
        /// As that of [`FarFile::Update`].
        what: Update,
        /// The same.
        #[serde(borrow, serialize_with = "crate::wire::bytes::serialize")]
        records: &'a [u8],
    },
    /// Which machine keeps the chunk of what was born here that has this byte →
    /// [`super::message::Reply::With`]; [`super::message::Reply::Again`] if none does. Only for the
    /// server's own process, as all that follow.
    Where(Ino, u64),
    /// A chunk of what was born elsewhere is to come here, and stay → done;
    /// [`super::message::Reply::Again`] if it cannot.
    Take {
        /// Whose.
        of: Number,
        /// Which.
        index: u64,
        /// So many bytes of it count.
        bytes: u32,
        /// Who has it.
        from: Member,
        /// By this stamp.
        stamp: u64,
    },
    /// A machine has all of a chunk of what was born here, by this stamp → as
    /// [`FarFile::Accepted`].
    Kept(Ino, Member, u64, u64),
    /// Bytes of a chunk that is here are read, as [`super::far::Act::ReadPart`] says →
    /// [`super::message::Reply::Extent`], as [`FarFile::Read`]; [`super::message::Reply::Again`] if
    /// they are not to be had.
    ReadPart {
        /// Whose.
        of: Number,
        /// Where this piece begins in the file.
        at: u64,
        /// So many, at most [`PIECE_MAX`].
        bytes: u32,
        /// By which it is taken; 0: it is not.
        stamp: u64,
        /// Which piece.
        piece: Piece,
    },
}

/// A chunk that is offered to another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// The size of the file, bytes.
    pub size: u64,
    /// See [`super::far::Done::Offered`].
    pub bytes: u32,
    /// See [`super::far::Done::Lent`].
    pub stamp: u64,
}

/// What was lent to another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentTo {
    /// So many chunks.
    pub count: u32,
    /// The size of the file, bytes.
    pub size: u64,
    /// See [`super::far::Done::Lent`].
    pub stamp: u64,
}

impl FarFile<'_> {
    /// See [`super::message::Request::is_seen`].
    pub fn is_seen(&self) -> bool {
        matches!(
            self,
            FarFile::Write { .. }
                | FarFile::Ship { .. }
                | FarFile::Grow { .. }
                | FarFile::Commit(_)
                | FarFile::WriteMapped { .. }
                | FarFile::Fencing { .. }
                | FarFile::Update { .. }
                | FarFile::Place { .. }
        )
    }

    /// See [`super::message::Request::is_apart`].
    pub fn is_apart(&self) -> bool {
        matches!(
            self,
            FarFile::Read { .. }
                | FarFile::Write { .. }
                | FarFile::Through { .. }
                | FarFile::Lock { .. }
                | FarFile::TestLock(_)
                | FarFile::Borrow { .. }
                | FarFile::Grow { .. }
                | FarFile::Batch { .. }
                | FarFile::Commit(_)
                | FarFile::GiveBack(..)
                | FarFile::Took(..)
                | FarFile::Mapped(..)
                | FarFile::Map { .. }
                | FarFile::WriteMapped { .. }
                | FarFile::Fencing { .. }
                | FarFile::FencingFor(..)
                | FarFile::Update { .. }
                | FarFile::UpdateFor { .. }
                | FarFile::Place { .. }
                | FarFile::Where(..)
                | FarFile::Take { .. }
                | FarFile::ReadPart { .. }
        )
    }

    /// The operations a capability must allow for it.
    pub fn needs(&self) -> Operations {
        match self {
            FarFile::Read { .. }
            | FarFile::Update { what: Update::Look, .. }
            | FarFile::UpdateFor { what: Update::Look, .. }
            | FarFile::Through { .. }
            | FarFile::Rests(_)
            | FarFile::IsOpen(_) => Operations::READ,
            // Of locks it counts what a description is open for.
            FarFile::Lock { .. }
            | FarFile::TestLock(_)
            | FarFile::LockFor(..)
            | FarFile::TestLockFor(..)
            | FarFile::Fencing { what: Fencing::Take { .. } | Fencing::Renew { .. }, .. }
            | FarFile::FencingFor(..)
            | FarFile::UnlockAll(..) => Operations(0),
            FarFile::Fencing { what: Fencing::Fence { .. }, .. }
            | FarFile::Write { .. }
            | FarFile::Ship { .. }
            | FarFile::Bounce
            | FarFile::Borrow { .. }
            | FarFile::Batch { .. }
            | FarFile::Commit(_)
            | FarFile::Map { .. }
            | FarFile::WriteMapped { .. }
            | FarFile::Update { .. }
            | FarFile::UpdateFor { .. }
            | FarFile::Grow { .. } => Operations::WRITE,
            FarFile::LendTo(..)
            | FarFile::BringBack(..)
            | FarFile::HasNothing(..)
            | FarFile::GiveBack(..)
            | FarFile::Took(..)
            | FarFile::OfferTo(..)
            | FarFile::Accepted(..)
            | FarFile::Mapped(..)
            | FarFile::Where(..)
            | FarFile::Take { .. }
            | FarFile::Kept(..)
            | FarFile::ReadPart { .. }
            | FarFile::Open { .. } => Operations::READ.and(Operations::WRITE),
            FarFile::Place { what, .. } if what.creates() => {
                Operations::CREATE.and(Operations::WRITE)
            }
            FarFile::Place { .. } => {
                Operations::CREATE.and(Operations::WRITE).and(Operations::READ)
            }
            FarFile::Lost(..) => Operations::REMOVE,
        }
    }
}
