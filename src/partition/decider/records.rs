//! What a step has changed of what this server decides, as records; and the other way.

use terral_format::disk::partition::{Line, Record, Request};
use terral_format::ids::Thing;

use crate::changes::{of_list, of_map, of_sets, put};

use super::{Decider, Entry};

impl Entry {
    fn changes(&self, before: &Entry, thing: Thing, records: &mut Vec<Record>) {
        let queues = [before, self].map(|entry| entry.queue.iter().collect::<Vec<_>>());
        let asked = [before, self].map(|entry| entry.asked.iter().collect::<Vec<_>>());
        for (line, [before, now]) in [(Line::Queue, queues), (Line::Asked, asked)] {
            let (gone, came) = of_list(&before, &now);
            records.extend(gone.rev().map(|at| Record::Went(thing, line, at as u32)));
            let came = came.map(|at| Record::Came(thing, line, at as u32, now[at].clone()));
            records.extend(came);
        }
        for (member, _, since) in of_map(&before.changers, &self.changers) {
            records.push(Record::Changer(thing, member, since.copied()));
        }
    }

    fn came(&mut self, line: Line, at: usize, request: Request) {
        match line {
            Line::Queue => self.queue.insert(at.min(self.queue.len()), request),
            Line::Asked => self.asked.insert(at.min(self.asked.len()), request),
        }
    }

    fn went(&mut self, line: Line, at: usize) {
        match line {
            Line::Queue => _ = self.queue.remove(at),
            Line::Asked if at < self.asked.len() => _ = self.asked.remove(at),
            Line::Asked => {}
        }
    }
}

impl Decider {
    /// What has changed since `before`.
    pub(crate) fn changes(&self, before: &Decider, records: &mut Vec<Record>) {
        let Decider { entries, awaited, unheard, loans } = self;
        if *loans != before.loans {
            records.push(Record::Loans(*loans));
        }
        for (thing, before, now) in of_map(&before.entries, entries) {
            let Some(now) = now else {
                records.push(Record::Hold(thing, None));
                continue;
            };
            if before.is_none_or(|before| before.hold != now.hold) {
                records.push(Record::Hold(thing, Some(now.hold.clone())));
            }
            let none = Entry::new(now.hold.clone());
            now.changes(before.unwrap_or(&none), thing, records);
        }
        let awaited = of_sets(&before.awaited, awaited).into_iter();
        records.extend(awaited.map(|(member, thing, is)| Record::Awaited(member, thing, is)));
        let unheard = of_sets(&before.unheard, unheard).into_iter();
        records.extend(unheard.map(|(removed, by, is)| Record::Unheard(removed, by, is)));
    }

    /// Makes a change, if the record is one of these.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Loans(count) => self.loans = count,
            Record::Hold(thing, None) => _ = self.entries.remove(&thing),
            Record::Hold(thing, Some(hold)) => {
                let entry = self.entries.entry(thing).or_insert_with(|| Entry::new(hold.clone()));
                entry.hold = hold;
            }
            Record::Awaited(member, thing, is) => put(&mut self.awaited, (member, thing, is)),
            Record::Unheard(removed, by, is) => put(&mut self.unheard, (removed, by, is)),
            Record::Came(thing, ..) | Record::Went(thing, ..) | Record::Changer(thing, ..) => {
                self.entries.entry(thing).and_modify(|entry| entry.apply(record));
            }
            _ => {}
        }
    }
}

impl Entry {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Came(_, line, at, request) => self.came(line, at as usize, request),
            Record::Went(_, line, at) => self.went(line, at as usize),
            Record::Changer(_, member, Some(since)) => _ = self.changers.insert(member, since),
            Record::Changer(_, member, None) => _ = self.changers.remove(&member),
            _ => {}
        }
    }
}
