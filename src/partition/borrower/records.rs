//! What a step has changed of what this server has and wants, as records; and the other way.

use terral_format::disk::partition::{Held, Record};
use terral_format::ids::{Member, Operation, Thing};
use terral_format::wire::body::Body;

use crate::changes::of_list;

use super::Borrower;

/// Without the looks that are being answered, which have records of their own.
fn bare(held: &Held) -> Held {
    Held { asks: Vec::new(), ..held.clone() }
}

impl Borrower {
    /// What has changed since this was last asked.
    pub(crate) fn take_changes(&mut self, records: &mut Vec<Record>) {
        let Borrower { held, copies: _, wanted, operations, written } = self;
        if *operations != std::mem::replace(&mut written.0, *operations) {
            records.push(Record::Operations(*operations));
        }
        for (thing, before, now) in held.changed() {
            if before.as_ref().map(bare) != now.map(bare) {
                records.push(Record::Held(thing, now.map(bare)));
            }
            let Some(now) = now else { continue };
            let before = before.map_or_else(Vec::new, |before| before.asks);
            let (gone, came) = of_list(&before, &now.asks);
            records.extend(gone.rev().map(|at| Record::Answered(thing, at as u32)));
            let asks = |at: usize| {
                let (operation, look) = now.asks[at].clone();
                Record::Asks(thing, at as u32, operation, look)
            };
            records.extend(came.map(asks));
        }
        let wanted = wanted.changed();
        records.extend(wanted.map(|(wish, _, now)| Record::Wanted(wish, now.cloned())));
    }

    /// Nothing of it was written down.
    pub(crate) fn all_is_new(&mut self) {
        self.written.0 = 0;
        self.held.all_is_new();
        self.wanted.all_is_new();
    }

    /// Makes a change, if the record is one of these.
    pub(crate) fn apply(&mut self, me: Member, record: Record) {
        match record {
            Record::Operations(count) => self.operations = count,
            Record::Held(thing, held) => {
                self.forget_copy(thing, me);
                let asks = self.held.remove(&thing).map(|held| held.asks).unwrap_or_default();
                if let Some(held) = held {
                    self.is_copy(thing, &held, me);
                    self.held.insert(thing, Held { asks, ..held });
                }
            }
            Record::Asks(thing, at, operation, look) => self.asks(thing, at, (operation, look)),
            Record::Answered(thing, at) => {
                let held = self.held.get_mut(&thing).filter(|held| held.asks.len() > at as usize);
                held.into_iter().for_each(|held| _ = held.asks.remove(at as usize));
            }
            Record::Wanted(wish, Some(wanted)) => _ = self.wanted.insert(wish, wanted),
            Record::Wanted(wish, None) => _ = self.wanted.remove(&wish),
            _ => {}
        }
    }

    fn asks(&mut self, thing: Thing, at: u32, look: (Operation, Body)) {
        if let Some(held) = self.held.get_mut(&thing) {
            held.asks.insert((at as usize).min(held.asks.len()), look);
        }
    }
}
