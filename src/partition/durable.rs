//! What outlives the server's process: it lies in the memory of the machine, and is written down
//! with every step, before anything of what the step wants is done.
//!
//! Not here: sessions and leases, which begin anew with each process.

use std::collections::BTreeMap;
use std::sync::Arc;

use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;

use crate::borrower::Borrower;
use crate::channel::Channel;
use crate::decider::Decider;
use crate::members::Table;

/// A server's part of the protocol, in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Durable {
    /// Which member this is.
    pub(crate) me: Member,
    /// Of which life of its memory.
    pub(crate) server: ServerId,
    /// The latest table that it knows.
    pub(crate) table: Arc<Table>,
    /// Who has what of its things.
    pub(crate) decider: Decider,
    /// What it has.
    pub(crate) borrower: Borrower,
    /// What it has said and heard.
    pub(crate) channels: BTreeMap<Member, Channel>,
    /// The deadline word, or what it is about to be.
    pub(crate) word: Moment,
}

impl Durable {
    /// A member that has just joined, and has not heard of any table: the first thing that its
    /// machine is to be told is the one that it is in. Members may have been removed by then.
    pub fn new(me: Member, server: ServerId) -> Self {
        let (table, decider, borrower, channels, word) = Default::default();
        Durable { me, server, table, decider, borrower, channels, word }
    }
}
