//! What outlives the server's process: it lies in the memory of the machine, and is written down
//! with every step, before anything of what the step wants is done.
//!
//! Not here: sessions and leases, which begin anew with each process.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use terral_format::disk::partition::Record;
use terral_format::ids::{Member, ServerId, Thing, Wish};
use terral_format::moment::Moment;
use terral_format::wire::peers::Work;

use crate::borrower::Borrower;
use crate::changes::Aside;
use crate::channel::Channel;
use crate::decider::Decider;
use crate::members::{Standing, Table};

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
    /// The table and the word that were written down, and with whom nothing is any more.
    pub(crate) written: Aside<Written>,
}

/// See [`Durable`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    table: Arc<Table>,
    word: Moment,
    parted: Vec<Member>,
}

impl Durable {
    /// Members that are in, as far as it knows.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        let is_in = |standing: &Standing| matches!(standing, Standing::In(_));
        self.table
            .members
            .iter()
            .filter(move |(_, standing)| is_in(standing))
            .map(|(member, _)| *member)
    }

    /// A member that has just joined, and has not heard of any table: the first thing that its
    /// machine is to be told is the one that it is in. Members may have been removed by then.
    pub fn new(me: Member, server: ServerId) -> Self {
        let (table, decider, borrower, channels, word, written) = Default::default();
        Durable { me, server, table, decider, borrower, channels, word, written }
    }

    /// Which member this is.
    pub fn me(&self) -> Member {
        self.me
    }

    /// Of which life of its memory.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Those among these requests of clients that wait, run, or have an answer that was not taken.
    pub fn wishes(&self, among: RangeInclusive<Wish>) -> impl Iterator<Item = Wish> + '_ {
        self.borrower.wishes(among)
    }

    /// What one of them wants.
    pub fn work_of(&self, wish: Wish) -> Option<(Thing, Work)> {
        self.borrower.work_of(wish)
    }

    /// The same server, as these records leave it: all that were written.
    pub fn replay(me: Member, server: ServerId, records: impl IntoIterator<Item = Record>) -> Self {
        let mut durable = Durable::new(me, server);
        records.into_iter().for_each(|record| durable.apply(record));
        durable.take_changes();
        durable
    }

    /// The records that lead here from nothing.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut all = self.clone();
        all.written = Aside::default();
        all.decider.all_is_new();
        all.borrower.all_is_new();
        all.channels.values_mut().for_each(Channel::all_is_new);
        all.take_changes()
    }

    /// What has changed since this was last asked, or since it was made of records: applied to what
    /// was then, these give what is now. Takes as long as the changes did.
    pub fn take_changes(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        let Durable { me: _, server: _, table, decider, borrower, channels, word, written } = self;
        let Written { table: known, word: before, parted } = &mut written.0;
        if table.epoch != known.epoch {
            records.push(Record::Epoch(table.epoch));
        }
        if !Arc::ptr_eq(table, known) {
            let gone = known.members.keys().filter(|member| !table.members.contains_key(member));
            records.extend(gone.map(|member| Record::Stands(*member, None)));
            let new = |(member, at): &(&Member, &Standing)| known.members.get(member) != Some(at);
            let new = table.members.iter().filter(new);
            records.extend(new.map(|(member, at)| Record::Stands(*member, Some(*at))));
            *known = Arc::clone(table);
        }
        if *word != std::mem::replace(before, *word) {
            records.push(Record::Word(*word));
        }
        records.extend(std::mem::take(parted).into_iter().map(Record::Parted));
        for (with, channel) in channels.iter_mut().filter(|(_, channel)| !channel.is_written()) {
            channel.take_changes(*with, &mut records);
        }
        decider.take_changes(&mut records);
        borrower.take_changes(&mut records);
        records
    }

    /// Nothing more is to be said to a member, nor heard from it.
    pub(crate) fn part(&mut self, member: Member) {
        if self.channels.remove(&member).is_some() {
            self.written.0.parted.push(member);
        }
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
            Record::Parted(with) => self.part(with),
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
            | Record::Wanted(..) => self.borrower.apply(self.me, record),
        }
    }
}
