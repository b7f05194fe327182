//! What is so on this machine only: what the instance is, sessions and open files, where a file's
//! record and bytes are, and what the drain is about to do.
//!
//! Not here: what another server would have to know (`facts`).

use serde::{Deserialize, Serialize};

use crate::fingerprint::{Fingerprint, Object};
use crate::ids::{DescriptionSlot, FileSlot, Ino, InstanceId, Lsn, SessionSlot};
use crate::local::geometry::Geometry;
use crate::wire::capability::{Key, Operations, Principal, Revocation, Rights};
use crate::wire::containers::{Altered, ContainerName, Group, Quota};
use crate::wire::credential::{Check, CredentialId};
use crate::wire::message::Totals;
use crate::wire::person::Person;
use crate::wire::updates::Attempt;

/// One thing that is so here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Local {
    /// First record of every log.
    Began(Began),
    /// A client came.
    SessionBegan {
        /// Its session.
        session: SessionSlot,
        /// Its process.
        pid: u32,
        /// When that process started, in clock ticks since boot: a pid alone may be somebody
        /// else's.
        started_ticks: u64,
    },
    /// A client is gone; what it had counted.
    SessionEnded {
        /// Its session.
        session: SessionSlot,
        /// What it did.
        totals: Totals,
    },
    /// A session presented a capability, and it was good: as servers wrote it down that could not
    /// revoke it.
    Presented {
        /// Which session.
        session: SessionSlot,
        /// The number that stands for it there.
        handle: u32,
        /// What it allows.
        rights: Rights,
        /// The container's revocation epoch at issue.
        epoch: u64,
        /// Whom its holder acts as.
        person: Person,
    },
    /// A session may defer changes.
    Defers {
        /// Which.
        session: SessionSlot,
    },
    /// A client has descriptions and inode numbers in hand, for what it will open and make.
    Lent {
        /// Whose.
        session: SessionSlot,
        /// Descriptions, with their nonces.
        descriptions: Vec<(DescriptionSlot, u32)>,
        /// Inode numbers.
        inos: Vec<Ino>,
    },
    /// The answer to a request, in the same transaction as its effects.
    Answered {
        /// Whose.
        session: SessionSlot,
        /// Which of its request slots.
        request: u8,
        /// Which request of that slot.
        sequence: u64,
        /// The encoded [`crate::wire::message::Reply`].
        reply: Vec<u8>,
    },
    /// A description was opened.
    Opened {
        /// Which.
        description: DescriptionSlot,
        /// Its nonce.
        nonce: u32,
        /// Of what.
        ino: Ino,
        /// Bits of `tables::access`.
        access: u8,
        /// By whom.
        session: SessionSlot,
    },
    /// A description ended.
    Closed {
        /// Which.
        description: DescriptionSlot,
    },
    /// A client has a file in hand that it will create, open and without a name.
    Preallocated {
        /// Which.
        ino: Ino,
        /// Its record in shared memory.
        slot: FileSlot,
    },
    /// A file got a record in shared memory.
    Attached {
        /// Which.
        ino: Ino,
        /// Where.
        slot: FileSlot,
    },
    /// A file lost its record.
    Detached {
        /// Which.
        ino: Ino,
    },
    /// A small file's bytes are among the packed ones, and it has no record.
    Packed {
        /// Which.
        ino: Ino,
        /// First granule.
        place: u32,
    },
    /// The drain is about to change a published file in place.
    Intent {
        /// Which.
        ino: Ino,
    },
    /// The drain is about to put a whole version under its name: whether it is there is seen from
    /// what has the name.
    Publishing {
        /// Of which file.
        ino: Ino,
        /// Where, and what.
        version: Publishing,
    },
    /// The drain is about to let two names change places in the backing: not to be done twice.
    Exchanging {
        /// The operation's ordinal.
        lsn: Lsn,
        /// What has the first name in the backing before.
        object: Object,
    },
    /// The counters of a snapshot.
    Counters {
        /// No slot from this one's on was used, and no generation is higher.
        bound: Ino,
        /// Of sessions that ended.
        totals: Totals,
    },
    /// A session presented a capability, and it was good.
    Held {
        /// Which session.
        session: SessionSlot,
        /// The number that stands for it there.
        handle: u32,
        /// What it allows, to whom.
        held: Held,
    },
    /// Capabilities are good for less.
    Revoked {
        /// Which, and how much.
        what: Revocation,
        /// The container's revocation epoch from then on.
        epoch: u64,
    },
    /// As `Held`; another member has issued it.
    HeldLeased {
        /// Which session.
        session: SessionSlot,
        /// The number that stands for it there.
        handle: u32,
        /// What it allows, to whom.
        held: Held,
    },
    /// A session presented a capability that ends with a credential, and it was good.
    HeldUnder {
        /// Which session.
        session: SessionSlot,
        /// The number that stands for it there.
        handle: u32,
        /// What it allows, to whom.
        held: Held,
        /// With which credential.
        credential: CredentialId,
        /// Another member has issued it.
        leased: bool,
    },
    /// Somebody has proven who he is.
    LoggedIn(Kept),
    /// A credential has ended.
    LoggedOut(CredentialId),
    /// A named lock has given a token.
    Token {
        /// The file that stands for it.
        ino: Ino,
        /// Greater than all before it.
        token: u64,
    },
    /// A file is not written with a lower token any more.
    Fenced {
        /// Which.
        ino: Ino,
        /// The token.
        token: u64,
    },
    /// A container has changed.
    Container(Altered),
    /// There may be so much in a container.
    Quota(ContainerName, Quota),
    /// Quotas count these files.
    Counted {
        /// There, as they have no name that says so.
        at: Option<ContainerName>,
        /// Which.
        inos: Vec<Ino>,
    },
    /// This is told as a file's update id from now on.
    Updated {
        /// Which.
        ino: Ino,
        /// Greater than all before it.
        id: u64,
    },
    /// Something is written to a file as it had the update id that it was to have: from now on it
    /// is there, whoever carries it out.
    Update {
        /// Which.
        ino: Ino,
        /// Its update id from then on.
        id: u64,
        /// By which request.
        attempt: Attempt,
        /// What: records of a [batch](crate::local::batch).
        records: Vec<u8>,
    },
    /// Part of a snapshot: such a request was carried out.
    Attempted {
        /// Which.
        attempt: Attempt,
        /// The update id that it has led to.
        id: u64,
    },
    /// These are all the groups that the list of principals says.
    Groups(Vec<Group>),
}

/// What a server keeps of a credential: nothing that opens anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Names it.
    pub id: CredentialId,
    /// By which its secret is known.
    pub check: Check,
    /// For whom it was issued.
    pub principal: Principal,
    /// What he may do at most by it.
    pub operations: Operations,
    /// At this path, or below; empty: everywhere.
    pub below: Vec<u8>,
    /// When it was issued, seconds since 1970.
    pub issued_s: u64,
    /// How long it is good for, seconds.
    pub lifetime_s: u64,
}

impl Kept {
    /// When it is over, seconds since 1970.
    pub fn expires_s(&self) -> u64 {
        self.issued_s.saturating_add(self.lifetime_s)
    }
}

/// What the holder of a capability may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What, and until when.
    pub rights: Rights,
    /// At this path, or below; `None`: everywhere.
    pub below: Option<Vec<u8>>,
    /// The container's revocation epoch at issue.
    pub epoch: u64,
    /// Names the capability that was issued, for ever.
    pub serial: u64,
    /// To whom.
    pub principal: Principal,
    /// Whom its holder acts as.
    pub person: Person,
}

/// A whole version on its way to its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publishing {
    /// The name, in the backing.
    pub path: Vec<u8>,
    /// How it looks before; its time of change becomes another with the name.
    pub fingerprint: Fingerprint,
    /// Its time of modification, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// What an instance is, for ever.
#[derive(Clone, Serialize, Deserialize, PartialEq, Debug)]
pub struct Began {
    /// Its id.
    pub instance: InstanceId,
    /// The boot in which its memory lives (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// Sizes of its tables.
    pub geometry: Geometry,
    /// The permanent directory.
    pub backing: Option<Vec<u8>>,
    /// What capabilities are signed with.
    pub key: Key,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}
