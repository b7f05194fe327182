//! What outlives the server's process: it lies in the memory of the machine, and is written down
//! with every step, before anything of what the step wants is done.
//!
//! Not here: sessions and leases, which begin anew with each process.

use std::collections::BTreeMap;
use std::sync::Arc;

use terral_format::disk::partition::Record;
use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;

use crate::borrower::Borrower;
use crate::changes::of_map;
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

    /// The same server, as these records leave it: all that were written.
    pub fn replay(me: Member, server: ServerId, records: impl IntoIterator<Item = Record>) -> Self {
        let mut durable = Durable::new(me, server);
        records.into_iter().for_each(|record| durable.apply(record));
        durable
    }

    /// The records that lead here from nothing.
    pub fn snapshot(&self) -> Vec<Record> {
        self.changes(&Durable::new(self.me, self.server))
    }

    /// What has changed since `before`, an earlier state of the same server: applied to that, these
    /// records give this one.
    pub fn changes(&self, before: &Durable) -> Vec<Record> {
        let mut records = Vec::new();
        let Durable { me: _, server: _, table, decider, borrower, channels, word } = self;
        if table.epoch != before.table.epoch {
            records.push(Record::Epoch(table.epoch));
        }
        for (member, _, now) in of_map(&before.table.members, &table.members) {
            records.push(Record::Stands(member, now.copied()));
        }
        if *word != before.word {
            records.push(Record::Word(*word));
        }
        for (with, before, now) in of_map(&before.channels, channels) {
            match now {
                Some(now) => now.changes(before, with, &mut records),
                None => records.push(Record::Parted(with)),
            }
        }
        decider.changes(&before.decider, &mut records);
        borrower.changes(&before.borrower, &mut records);
        records
    }

    /// Makes a change.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Epoch(epoch) => Arc::make_mut(&mut self.table).epoch = epoch,
            Record::Stands(member, standing) => {
                let members = &mut Arc::make_mut(&mut self.table).members;
                members.remove(&member);
                members.extend(standing.map(|standing| (member, standing)));
            }
            Record::Word(word) => self.word = word,
            Record::Parted(with) => _ = self.channels.remove(&with),
            Record::Said(with, _) | Record::Acknowledged(with, _) | Record::Taken(with, _) => {
                self.channels.entry(with).or_default().apply(record);
            }
            Record::Loans(_)
            | Record::Hold(..)
            | Record::Came(..)
            | Record::Went(..)
            | Record::Changer(..)
            | Record::Awaited(..)
            | Record::Unheard(..) => self.decider.apply(record),
            Record::Operations(_)
            | Record::Held(..)
            | Record::Asks(..)
            | Record::Answered(..)
            | Record::Marked(..)
            | Record::Wanted(..) => self.borrower.apply(record),
        }
    }
}
