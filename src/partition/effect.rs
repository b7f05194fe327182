//! What a machine is told, what it wants done, and what it asks of the server around it.
//!
//! What is durable of a step is written down before anything of what it wants is done; what is done
//! is done in order. After a restart the machine says again what had not been done.

use std::collections::VecDeque;

use terral_format::ids::{Epoch, Member, Operation, Thing, Wish};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Answer, Frame, Message, Work};

use crate::lease::Leases;
use crate::members::Table;
use crate::terms::Terms;

/// What local clients may do with a thing without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Nothing.
    Nothing,
    /// Look, until the deadline word: it is marked.
    Leased,
    /// Look, until it is recalled.
    Look,
    /// Look and change, until it is recalled.
    Change,
}

/// How a thing goes to another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Giving {
    /// As a copy.
    Show,
    /// To be changed there.
    Lend,
    /// The same, as what is to be done cannot be done here.
    Take,
}

impl Giving {
    /// What is given for this.
    pub fn of(work: &Work) -> Self {
        match work {
            Work::Look(_) | Work::Find(_) => Giving::Show,
            Work::Change(_) => Giving::Lend,
            Work::Take => Giving::Take,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A frame has come.
    Frame(Frame),
    /// There is a new session with a member: what was under way in the last one may be lost.
    Connected(Member),
    /// Time has passed; several times in a term.
    Tick,
    /// A client's request needs a thing. The same again if it ran and could not, or after a
    /// restart: an [`Effect::Go`] that was said before is void then.
    Wish {
        /// Whose.
        wish: Wish,
        /// What it needs.
        thing: Thing,
        /// What for.
        work: Work,
    },
    /// A request that could go on has run.
    Ran(Wish),
    /// A client has its answer, from here or elsewhere, or is gone: it will not ask again.
    Forget(Wish),
    /// No client uses the thing any more, and none can; this is what it is.
    Recalled {
        /// What was recalled.
        thing: Thing,
        /// As it is.
        body: Body,
    },
    /// What a thing is that only the server uses.
    Fetched {
        /// What was to be fetched.
        thing: Thing,
        /// What for.
        to: Giving,
        /// As it is; `None`: it is more than is given to another member.
        body: Option<Body>,
    },
    /// An operation was carried out, in the transaction that this input is part of.
    Served {
        /// Which.
        operation: Operation,
        /// On what.
        thing: Thing,
        /// What came of it.
        answer: Body,
    },
    /// An operation cannot be carried out yet, and nothing of it was: what is after it need not
    /// wait for it.
    Later {
        /// Which.
        operation: Operation,
        /// On what.
        thing: Thing,
    },
    /// It is to be tried again.
    Again {
        /// Which.
        operation: Operation,
        /// On what.
        thing: Thing,
    },
    /// Nobody here changes it any more: the last who had it open for writing has closed it.
    Rest(Thing),
    /// It is to be given back: memory is short, or the server leaves.
    GiveBack(Thing),
    /// What a thing was that is lost was put together from what is left of it, in the transaction
    /// that this input is part of; or it cannot be.
    Restored {
        /// Which.
        thing: Thing,
        /// Whether it was.
        is: bool,
    },
    /// The control's table.
    Table(Table),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send a frame; it may be lost.
    Send {
        /// To whom.
        to: Member,
        /// What.
        frame: Frame,
    },
    /// The thing is this now. Part of the step's transaction.
    Install {
        /// What.
        thing: Thing,
        /// As it is.
        body: Body,
    },
    /// Clients may do this now, and nobody is to leave it any more, unless a [`Effect::Recall`]
    /// says so again. Less than before only of what is marked, where nobody is waited for: who is
    /// looking just now is right if the deadline word says so afterwards.
    Publish {
        /// With what.
        thing: Thing,
        /// This.
        access: Access,
    },
    /// Move the deadline word on.
    Deadline(Moment),
    /// Raise the flags of all of them, then wait once, then say [`Input::Recalled`] of each.
    Recall(Vec<Thing>),
    /// Say [`Input::Fetched`].
    Fetch {
        /// Of what.
        thing: Thing,
        /// What for.
        to: Giving,
    },
    /// Carry it out, and say [`Input::Served`].
    Serve {
        /// For whom.
        operation: Operation,
        /// On what.
        thing: Thing,
        /// What.
        work: Work,
    },
    /// The request can run now, and the thing stays until it has. Say [`Input::Ran`].
    Go(Wish),
    /// The request was carried out elsewhere, or cannot be. Say [`Input::Forget`] in the end.
    Answer {
        /// Whose.
        wish: Wish,
        /// What came of it.
        answer: Answer,
    },
    /// Somebody wants a thing that a dead member had: say [`Input::Restored`] of it.
    Restore {
        /// Which.
        thing: Thing,
        /// Who had it.
        of: Member,
    },
    /// Ask the control for its table: others have a later one.
    NeedTable(Epoch),
    /// This server was removed. Clients may do nothing with anything any more, and nothing more is
    /// done, nor are requests that could go on; what is dirty here is a conflict. Each process that
    /// takes this memory over says it again.
    Expelled,
}

/// What the machine asks of the server around it.
pub trait Local {
    /// Whether somebody here is changing the thing, has it open for that, or changed it just now.
    fn in_use(&self, thing: Thing) -> bool;

    /// Whether a thing that this server decides may be another's, for what that one wants of it:
    /// else that is done here.
    fn is_lent(&self, _: Thing, _: &Work) -> bool {
        true
    }

    /// Whether a member may have a thing, in this way: else what it wants is done here, or not.
    fn may_go(&self, _: Thing, _: Member, _: Giving) -> bool {
        true
    }

    /// Whether a member is trusted with all. Of one that is not, nobody waits for what it says that
    /// it has of a removed one's; and for what it does not answer, half as long.
    fn is_trusted(&self, _: Member) -> bool {
        true
    }

    /// Whether two members speak for the same: only those lend things to each other, and keep
    /// copies of each other's for an heir.
    fn are_for_one(&self, _: Member, _: Member) -> bool {
        true
    }

    /// Whether a copy is all of a thing, and there for the next process of this server, too: then
    /// it is as good as the thing once that is lost.
    fn keeps_copy(&self, _: Thing) -> bool {
        true
    }

    /// Whether a thing of which a dead member had all may be put together from what others know.
    fn may_be_restored(&self, _: Thing) -> bool {
        false
    }

    /// Whether a thing that another member decides can go back at once if somebody looks at it:
    /// else who looks is answered.
    fn is_settled(&self, _: Thing) -> bool {
        true
    }
}

/// What is so while one input is handled.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// This server.
    pub me: Member,
    /// When it is.
    pub now: Moment,
    /// How long things last.
    pub terms: &'a Terms,
    /// Who is in.
    pub table: &'a Table,
    /// What is shown, and until when.
    pub leases: &'a Leases,
    /// The server around.
    pub local: &'a dyn Local,
}

impl Context<'_> {
    /// Whether the thing was born here: then it is this server's as long as nothing says otherwise.
    pub fn is_born_here(&self, thing: Thing) -> bool {
        thing.number().born() == self.me
    }

    /// Whether so much has passed since.
    pub fn is_past(&self, since: Moment, after: std::time::Duration) -> bool {
        since + after <= self.now
    }
}

/// What comes of an input.
#[derive(Debug, Default)]
pub struct Out {
    /// To other members, and to oneself: who decides is told like anybody else.
    pub messages: VecDeque<(Member, Message)>,
    /// To the server around.
    pub effects: Vec<Effect>,
    /// What clients have to leave.
    pub recalls: Vec<Thing>,
}

impl Out {
    /// Says something to a member.
    pub fn say(&mut self, to: Member, message: Message) {
        self.messages.push_back((to, message));
    }

    /// Wants something done.
    pub fn want(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
