//! What a step has changed of what this server has and wants, as records; and the other way.

use std::collections::BTreeMap;

use terral_format::disk::partition::{Held, Record};
use terral_format::ids::{Member, Operation, Thing};
use terral_format::wire::body::Body;

use crate::changes::{of_list, of_map};

use super::Borrower;
use super::leased::Copies;

/// Without the looks that are being answered, which have records of their own.
fn bare(held: &Held) -> Held {
    Held { asks: Vec::new(), ..held.clone() }
}

fn marks(copies: &BTreeMap<Member, Copies>) -> BTreeMap<(Member, Thing), bool> {
    let mut all = BTreeMap::new();
    for (from, Copies { marked, unmarked }) in copies {
        all.extend(marked.iter().map(|thing| ((*from, *thing), true)));
        all.extend(unmarked.iter().map(|thing| ((*from, *thing), false)));
    }
    all
}

impl Borrower {
    /// What has changed since `before`.
    pub(crate) fn changes(&self, before: &Borrower, records: &mut Vec<Record>) {
        let Borrower { held, copies, wanted, operations } = self;
        if *operations != before.operations {
            records.push(Record::Operations(*operations));
        }
        for (thing, before, now) in of_map(&before.held, held) {
            if before.map(bare) != now.map(bare) {
                records.push(Record::Held(thing, now.map(bare)));
            }
            let Some(now) = now else { continue };
            let before = before.map_or(&[][..], |before| &before.asks);
            let (gone, came) = of_list(before, &now.asks);
            records.extend(gone.rev().map(|at| Record::Answered(thing, at as u32)));
            let asks = |at: usize| {
                let (operation, look) = now.asks[at].clone();
                Record::Asks(thing, at as u32, operation, look)
            };
            records.extend(came.map(asks));
        }
        if *copies != before.copies {
            for ((from, thing), _, mark) in of_map(&marks(&before.copies), &marks(copies)) {
                records.push(Record::Marked(from, thing, mark.copied()));
            }
        }
        for (wish, _, now) in of_map(&before.wanted, wanted) {
            records.push(Record::Wanted(wish, now.cloned()));
        }
    }

    /// Makes a change, if the record is one of these.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Operations(count) => self.operations = count,
            Record::Held(thing, held) => {
                let asks = self.held.remove(&thing).map(|held| held.asks).unwrap_or_default();
                self.held.extend(held.map(|held| (thing, Held { asks, ..held })));
            }
            Record::Asks(thing, at, operation, look) => self.asks(thing, at, (operation, look)),
            Record::Answered(thing, at) => {
                let held = self.held.get_mut(&thing).filter(|held| held.asks.len() > at as usize);
                held.into_iter().for_each(|held| _ = held.asks.remove(at as usize));
            }
            Record::Marked(from, thing, mark) => self.is_now(from, thing, mark),
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

    fn is_now(&mut self, from: Member, thing: Thing, mark: Option<bool>) {
        let copies = self.copies.entry(from).or_default();
        copies.marked.remove(&thing);
        copies.unmarked.remove(&thing);
        match mark {
            Some(true) => _ = copies.marked.insert(thing),
            Some(false) => _ = copies.unmarked.insert(thing),
            None if copies.marked.is_empty() && copies.unmarked.is_empty() => {
                self.copies.remove(&from);
            }
            None => {}
        }
    }
}
