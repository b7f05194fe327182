//! What a server writes down as a member of a partition: its part in the protocol, and what its
//! tables have of things that were born, or are, elsewhere. A server that is alone writes none of
//! it.
//!
//! None of it changes the namespace: what a name stands for, and what a file is, is as the member
//! says that has the thing.

use serde::{Deserialize, Serialize};

use super::{NameOperation, partition};
use crate::fingerprint::Fingerprint;
use crate::ids::{Asker, Ino, Lsn, Member, Number, ServerId, Wish};
use crate::wire::answering::Answers;
use crate::wire::attributes::{Attributes, Kind};
use crate::wire::moving::{Back, Moving};
use crate::wire::placement::{Placement, Stripe};
use crate::wire::roster::{Certificate, Partition, Policy, Roster};
use crate::wire::transactions::{Destination, Set, TransactionId, Way};

/// One effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Membership {
    /// This server is that member, and its memory that server.
    Joined {
        /// Which.
        me: Member,
        /// Of which life of its memory.
        server: ServerId,
        /// Whose number the root has; it is the control, too, as long as nothing else is said.
        root: Member,
        /// Of which partition.
        partition: Partition,
    },
    /// Who is in, as the control says.
    Roster(Roster),
    /// Of its part in the protocol.
    Protocol(partition::Record),
    /// What was born elsewhere has a place in the tables; no name yet.
    Born {
        /// Where.
        ino: Ino,
        /// Which it is.
        number: Number,
        /// What it is.
        kind: Kind,
        /// What a link says; of a socket, its address.
        text: Vec<u8>,
    },
    /// It has none any more.
    Forgotten {
        /// Which.
        ino: Ino,
    },
    /// It has a name, as it had elsewhere before.
    Named {
        /// What.
        ino: Ino,
        /// In which directory.
        parent: Ino,
        /// Which.
        name: Vec<u8>,
    },
    /// It has that no more, as it lost it elsewhere before.
    Unnamed {
        /// In which directory.
        parent: Ino,
        /// Which.
        name: Vec<u8>,
    },
    /// What it looks like, as it was elsewhere before.
    Looks {
        /// By the number of its place here.
        attributes: Attributes,
    },
    /// Whether another member has it: then all of it is to be asked for.
    Elsewhere {
        /// What.
        ino: Ino,
        /// Whether it is.
        is: bool,
    },
    /// A directory has been elsewhere: what is missing in it may be in the permanent store, and
    /// nobody changes its names without asking.
    Overlaid {
        /// Which.
        ino: Ino,
    },
    /// How what was born elsewhere looked in the permanent store, if it was there.
    There {
        /// By the number of its place here.
        ino: Ino,
        /// How.
        fingerprint: Option<Fingerprint>,
    },
    /// Whether another file, of another home, is about to take the name of this one.
    Adrift {
        /// Which.
        ino: Ino,
        /// Whether it is.
        is: bool,
    },
    /// This member moves a directory to another path, and that is the name operation that the
    /// permanent store is owed of it; or it is through with that.
    Moves(Option<(Moving, Lsn)>),
    /// Another member does so: nothing is brought meanwhile. Or that is over.
    Rests {
        /// Who.
        by: Member,
        /// What it does.
        moving: Option<Moving>,
    },
    /// It is done: the permanent store has it there, and what is owed below it is owed there.
    Moved {
        /// Where it was there.
        from: Vec<u8>,
        /// Where it is.
        to: Vec<u8>,
    },
    /// A file is created here where another member has the directory, or that is over.
    Creates {
        /// By this that member is asked to name it.
        wish: Wish,
        /// How far it is.
        creation: Option<Creation>,
    },
    /// A directory that a dead member had was put together from what others knew of it.
    Restored {
        /// Which.
        ino: Ino,
        /// Who had it.
        of: Member,
    },
    /// Whether another file, of another home, is about to take one of the names of this one, which
    /// is not counted meanwhile.
    Leaves {
        /// Which file.
        ino: Ino,
        /// In which directory.
        directory: Number,
        /// Which name.
        name: Vec<u8>,
        /// Whether it is.
        is: bool,
    },
    /// A file that was born here has lost a name, and has others, as another member says.
    Lost {
        /// Which file.
        ino: Ino,
        /// Who says so.
        by: Member,
        /// Which of the times at which he says so.
        token: u64,
        /// Whether it is counted.
        counted: bool,
    },
    /// A file without a name has chunks of one that was born elsewhere, under the same numbers.
    Borrows {
        /// Which has them.
        ino: Ino,
        /// Whose they are.
        file: Number,
    },
    /// It has none of it any more.
    Returned {
        /// Which had them.
        ino: Ino,
    },
    /// What a member moves changes places with something, as a record just before says what it
    /// moves.
    Exchanges {
        /// Who: this one, too.
        by: Member,
        /// What comes back.
        back: Back,
    },
    /// What is owed of two names that another member lets change places is owed there; done again,
    /// it is undone.
    Swapped {
        /// Who.
        by: Member,
        /// Each a directory and a name in it, which change places in the tables, too, unless one of
        /// the directories is here: then what that has is newer.
        names: Option<[(Ino, Vec<u8>); 2]>,
    },
    /// A file without a name is a batch of what is written here to one that was born elsewhere.
    Batch {
        /// Which is.
        ino: Ino,
        /// What is written.
        file: Number,
        /// Random bits: no other batch has them.
        id: u64,
        /// By somebody who takes set-id bits off.
        strips: bool,
    },
    /// What it has is where it is to be, or lost.
    Merged {
        /// Which was one.
        ino: Ino,
    },
    /// What holds for files by their paths, as the control says.
    Policies(Vec<Policy>),
    /// By the control: this server has come by the invitation of a member, and no other does.
    Bound {
        /// Of which.
        member: Member,
        /// Its instance.
        instance: u128,
    },
    /// By what members prove who they are, as the control says.
    Certificates(Vec<Certificate>),
    /// Where new bytes are, as the control says.
    Placement(Placement),
    /// Of transactions of which several members have a part.
    Transacts(Transacts),
    /// Who says who is in, if that is not where the root was born any more.
    Control(Member),
    /// These members are of the authority and nothing else, as the control says.
    Authorities(Vec<Member>),
    /// Over which members the parts of a file that was born here lie; `None`: it is no more.
    Striped {
        /// Which.
        ino: Ino,
        /// They.
        stripe: Option<Stripe>,
    },
    /// A name of a file that was born here was let go for a member, which takes it away, or does
    /// not: until that is known it is not counted.
    LetGo {
        /// Which file.
        ino: Ino,
        /// In which directory.
        directory: Number,
        /// Which name; empty: one that went at another time.
        name: Vec<u8>,
        /// For whom.
        by: Member,
        /// Which of the times at which this server lets one go: later ones are greater.
        which: u64,
        /// Whether it is unknown; else it is known.
        is: bool,
    },
    /// A home has asked what has come of names that it has let go for this member: by this time of
    /// its, and by those before, none goes from now on, but for what was under way.
    Asked {
        /// Which home.
        home: Member,
        /// Which of its times.
        which: u64,
    },
    /// A name of another member's file, which that has let go, has gone here.
    Gone {
        /// Where the file was born.
        home: Member,
        /// Which of the times at which that let one go.
        which: u64,
        /// Whether the home may not know of it.
        is: bool,
    },
    /// What the permanent store has of a file under its first name, as is known of it here from now
    /// on.
    InStore {
        /// Which.
        ino: Ino,
        /// How it looks; `None`: nothing.
        fingerprint: Option<Fingerprint>,
        /// It is an older version, or another file, which this one is to replace.
        rewritten: bool,
    },
    /// The permanent store is owed this once it is known what the file is called there whose names
    /// are delegated.
    Later(NameOperation),
    /// Who answers for users' servers, as the control says.
    Answers(Vec<Answers>),
}

/// What is so of a transaction of which several members have a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transacts {
    /// What was born here is to get these extended attributes if a transaction comes to be, which
    /// another member decides; nobody else sets or sees any until it is known whether it does.
    Prepared {
        /// Which transaction.
        of: TransactionId,
        /// What gets them.
        file: Number,
        /// Them.
        sets: Vec<Set>,
        /// When it was, seconds since 1970.
        since_s: u64,
    },
    /// That is known, and done: nobody waits for it any more.
    Settled {
        /// Which transaction.
        of: TransactionId,
        /// Of what.
        file: Number,
    },
    /// A transaction has come to be that this member decides, with what is in the same
    /// transaction of the log: these were prepared elsewhere, and are to be told.
    Decided {
        /// Which.
        of: TransactionId,
        /// What was prepared.
        files: Vec<Number>,
    },
    /// The home of one was told, or is no more.
    Told {
        /// Which transaction.
        of: TransactionId,
        /// What was prepared.
        file: Number,
    },
    /// Of what was prepared just before: this member knows whether it came to be if who decides it
    /// is removed.
    Watched {
        /// Which transaction.
        of: TransactionId,
        /// What was prepared.
        file: Number,
        /// Who knows.
        witness: Member,
    },
    /// By who decides one: its witness is asked to write down that it comes to be, and knows of it
    /// from then on.
    Asks {
        /// Which transaction.
        of: TransactionId,
        /// Whom.
        witness: Member,
        /// By which request.
        asker: Asker,
    },
    /// By the witness of one: it comes to be if who decides it is removed. These were prepared, and
    /// are to be told then.
    Witnessed {
        /// Which transaction.
        of: TransactionId,
        /// What was prepared.
        files: Vec<Number>,
    },
    /// The witness of one knows of it no more: by itself, and by who decides it.
    Released {
        /// Which transaction.
        of: TransactionId,
    },
    /// Of what was prepared just before: it gets names, too, which are counted already.
    Gets {
        /// Which transaction.
        of: TransactionId,
        /// What was prepared.
        file: Number,
        /// So many more than it loses.
        names: u32,
    },
    /// Of what was prepared just before: its names are delegated to who decides it.
    Delegated {
        /// Which transaction.
        of: TransactionId,
        /// What was prepared.
        file: Number,
        /// The paths of those that it is to get.
        to: Vec<Vec<u8>>,
    },
    /// By who has just decided one: the names of this file were delegated, and are returned once
    /// the permanent store has all that it is owed up to this operation. Until then these
    /// directories stay.
    Returns {
        /// Which transaction.
        of: TransactionId,
        /// What was prepared.
        file: Number,
        /// The last operation.
        after: Lsn,
        /// In which it has, or had, names.
        directories: Vec<Number>,
        /// Which it has lost, each by its directory.
        lost: Way,
        /// Which it has got.
        got: Vec<Destination>,
    },
}

/// A file that was created in a directory of another member: it has no name before that one says
/// so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    /// Who waits for it, if anybody does any more.
    pub asker: Option<Asker>,
    /// The directory's place.
    pub parent: Ino,
    /// What it is to be called there.
    pub name: Vec<u8>,
    /// The file.
    pub ino: Ino,
    /// Whether it is called so, once that is known.
    pub named: Option<bool>,
}
