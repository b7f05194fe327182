//! What servers say to each other: messages, which are taken once and in order (`channel`), in
//! frames, which may be lost, doubled, or late.
//!
//! Not here: how a frame is written down, which is `format`'s once there is a transport.

use terral_format::{Error, ErrorKind};

use crate::ids::{Body, Epoch, Loan, Member, Operation, ServerId, Thing};
use crate::terms::Moment;

/// What is to be done to a thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// It is looked at: a stat, a listing, a read.
    Look(Body),
    /// It is changed, or taken in use for that.
    Change(Body),
}

/// Why something is not done: what it needs is another member's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// It was removed, and nobody else has it.
    Removed(Member),
    /// It has not answered for long. Whether a change was made may be unknown.
    Silent(Member),
}

impl Failure {
    /// What the client is told.
    pub fn error(self) -> Error {
        let context = match self {
            Failure::Removed(member) => {
                format!("{member} was removed from the partition, and only it had this")
            }
            Failure::Silent(member) => format!("{member} of the partition does not answer"),
        };
        Error { errno: 5, ..Error::new(ErrorKind::Backing, context) }
    }
}

/// What an operation came to.
pub type Answer = Result<Body, Failure>;

/// What a member has of a removed one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// The loan to change it.
    Whole(Loan),
    /// A copy that was good when it heard of the removal, which nobody changes without it.
    Kept(Loan),
}

/// What one server says to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the decider: this is to be done; by you, or lend or show it. There is one answer: `Lend`,
    /// `Show` or `Done`.
    Want {
        /// Done once, or not at all.
        operation: Operation,
        /// On what.
        thing: Thing,
        /// What.
        work: Work,
    },
    /// Do it yourself: the thing is yours to change. No body: you have it, by this loan.
    Lend {
        /// What was wanted.
        operation: Operation,
        /// What is lent.
        thing: Thing,
        /// By this loan.
        loan: Loan,
        /// As it is.
        body: Option<Body>,
    },
    /// Look yourself: it stays as it is, until the lease is over or it is recalled.
    Show {
        /// What was wanted.
        operation: Operation,
        /// What is shown.
        thing: Thing,
        /// By this loan.
        loan: Loan,
        /// As it is.
        body: Option<Body>,
    },
    /// It has been done, or is not.
    Done {
        /// What was wanted.
        operation: Operation,
        /// What came of it.
        answer: Answer,
    },
    /// To who has it: give it back.
    Recall {
        /// What.
        thing: Thing,
        /// Only if it is by this loan.
        loan: Loan,
    },
    /// To who has it to change: somebody wants to look.
    Ask {
        /// Whose operation, and which.
        operation: Operation,
        /// At what.
        thing: Thing,
        /// Only if it is by this loan.
        loan: Loan,
        /// How.
        look: Body,
    },
    /// The answer to `Ask` of one that goes on changing it.
    Looked {
        /// Of the question.
        operation: Operation,
        /// Of the question.
        thing: Thing,
        /// What was seen.
        answer: Body,
    },
    /// To the decider: a loan that is over, with what the thing is now.
    Return {
        /// What.
        thing: Thing,
        /// Which.
        loan: Loan,
        /// As it is.
        body: Body,
        /// Whether somebody there is still changing it.
        in_use: bool,
    },
    /// To the decider: a copy that is no more.
    Dropped {
        /// Of what.
        thing: Thing,
        /// Which.
        loan: Loan,
    },
    /// To the heir: all that the sender has of what a removed member decided.
    Holds {
        /// The removed one.
        removed: Member,
        /// By thing.
        held: Vec<(Thing, Holding)>,
    },
}

/// What goes over a connection at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Who sends it.
    pub from: Member,
    /// Of which memory it is.
    pub server: ServerId,
    /// Which table the sender goes by.
    pub epoch: Epoch,
    /// How many of the receiver's messages the sender has taken.
    pub taken: u64,
    /// How many the sender has said before these.
    pub before: u64,
    /// What it says now.
    pub messages: Vec<Message>,
    /// When it was sent, by the sender's clock.
    pub sent: Moment,
    /// The latest `sent` of the receiver's that the sender knows: what it has shown may be used for
    /// a term from then, once `before` and all these messages are taken.
    pub renewed: Option<Moment>,
    /// Whether the sender asks for that.
    pub renew: bool,
}
