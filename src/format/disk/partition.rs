//! What a server writes down of its part in the partition: who has what of its things, what it has,
//! what was said. A step changes what its records say, each of one thing; a snapshot is the records
//! that lead there from nothing.
//!
//! Here is also what the records are made of, which is what the server has in memory. A record is
//! as long as one body and one entry for each member, at most.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Loan, Member, Operation, Thing, Wish};
use crate::moment::Moment;
use crate::wire::body::Body;
use crate::wire::peers::{Answer, Message, Work};
pub use crate::wire::roster::{Standing, Verdict};

/// An operation that waits for its thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Who wants it.
    pub from: Member,
    /// Which.
    pub operation: Operation,
    /// What.
    pub work: Work,
    /// Since when.
    pub since: Moment,
}

/// What the server is doing with a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Busy {
    /// It looks up what it is.
    Fetching,
    /// It carries out an operation.
    Serving(Operation),
}

/// Who has a thing that this server decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hold {
    /// One member, to change it.
    Lent {
        /// Who.
        to: Member,
        /// By this loan.
        loan: Loan,
        /// It is to give it back.
        recalled: bool,
    },
    /// This server; copies of it are shown.
    Here {
        /// To whom.
        shown: BTreeMap<Member, Loan>,
        /// They are to be dropped.
        recalled: bool,
        /// What is done with it.
        busy: Option<Busy>,
    },
    /// It is inherited; these have copies that are as good as the thing, and so is what is here if
    /// one has given his back.
    Kept {
        /// Who.
        by: BTreeMap<Member, Loan>,
        /// They are to give them back.
        recalled: bool,
        /// One has.
        here: bool,
    },
    /// Nobody.
    Lost(Member),
    /// It is inherited, and two say that they have it to change it. One of them does not keep to
    /// the protocol, and nobody knows which: neither is believed, the others have nothing of it.
    Disputed(Member),
}

/// How a server has a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// To change it.
    Whole,
    /// To look at it: others may have copies, too. By the lease, if it is another member's.
    Copy,
    /// A copy of a removed member's thing, kept for the heir if it is not `over`: nobody begins to
    /// look at it.
    Kept,
    /// Not at all, though it was born here.
    Gone,
}

/// What a server has of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held {
    /// Who decides it.
    pub from: Member,
    /// By which loan.
    pub loan: Loan,
    /// How.
    pub kind: Kind,
    /// It is to be given back.
    pub recalled: bool,
    /// Clients are leaving it.
    pub leaving: bool,
    /// It is good no more, as its lease was over once, or its decider was removed and may live: it
    /// is here only for requests that began before.
    pub over: bool,
    /// Others who look, and are being answered: a record each.
    #[serde(skip)]
    pub asks: Vec<(Operation, Body)>,
    /// Others have looked.
    pub looked: bool,
}

impl Held {
    /// It has just come.
    pub fn new(from: Member, loan: Loan, kind: Kind) -> Self {
        let (recalled, leaving, over, looked) = (false, false, false, false);
        Held { from, loan, kind, recalled, leaving, over, asks: Vec::new(), looked }
    }
}

/// How far a request of a client is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// The thing is being given back.
    Waiting,
    /// The decider was asked.
    Asked {
        /// By this operation.
        operation: Operation,
        /// Who it is.
        decider: Member,
        /// When.
        since: Moment,
    },
    /// It can run.
    Ready,
    /// It has its answer.
    Over(Answer),
}

/// A request of a client that needs a thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// Which.
    pub thing: Thing,
    /// What for.
    pub work: Work,
    /// How far it is.
    pub stage: Stage,
}

/// Which of a thing's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Line {
    /// Operations that wait.
    Queue,
    /// Looks that who has it was asked for.
    Asked,
    /// Operations that cannot be carried out yet, for which no other waits.
    Later,
}

/// One change. `None` takes away what was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The table's epoch.
    Epoch(Epoch),
    /// What the table says of a member.
    Stands(Member, Option<Standing>),
    /// The deadline word.
    Word(Moment),
    /// How many operations this server has begun.
    Operations(u64),
    /// How many loans this server has made.
    Loans(u64),
    /// A message was said.
    Said(Member, Message),
    /// So many of what was said to a member it has taken.
    Acknowledged(Member, u64),
    /// So many of what a member has said were taken.
    Taken(Member, u64),
    /// Nothing more is between this server and a member.
    Parted(Member),
    /// Who has a thing.
    Hold(Thing, Option<Hold>),
    /// An operation got this place in a line; those behind it move on.
    Came(Thing, Line, u32, Request),
    /// The operation in this place left the line.
    Went(Thing, Line, u32),
    /// Who has changed a thing lately, and when.
    Changer(Thing, Member, Option<Moment>),
    /// Whether a member is to drop a copy.
    Awaited(Member, Thing, bool),
    /// Whether a member has not said yet what it has of a removed one's, which is the first.
    Unheard(Member, Member, bool),
    /// What this server has of a thing.
    Held(Thing, Option<Held>),
    /// A look got this place among those that are being answered.
    Asks(Thing, u32, Operation, Body),
    /// The look in this place was answered.
    Answered(Thing, u32),
    /// A request of a client.
    Wanted(Wish, Option<Wanted>),
}
