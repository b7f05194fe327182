//! What a step has changed of what this server decides, as records; and the other way.

use terral_format::disk::partition::{Line, Record, Request};
use terral_format::ids::Thing;

use crate::changes::of_list;

use super::{Decider, Entry};

impl Entry {
    fn changes(&self, before: &Entry, thing: Thing, records: &mut Vec<Record>) {
        let queues = [before, self].map(|entry| entry.queue.iter().collect::<Vec<_>>());
        let asked = [before, self].map(|entry| entry.asked.iter().collect::<Vec<_>>());
        let later = [before, self].map(|entry| entry.later.iter().collect::<Vec<_>>());
        let lines = [(Line::Queue, queues), (Line::Asked, asked), (Line::Later, later)];
        for (line, [before, now]) in lines {
            let (gone, came) = of_list(&before, &now);
            records.extend(gone.rev().map(|at| Record::Went(thing, line, at as u32)));
            let came = came.map(|at| Record::Came(thing, line, at as u32, now[at].clone()));
            records.extend(came);
        }
        let gone = before.changers.keys().filter(|member| !self.changers.contains_key(member));
        records.extend(gone.map(|member| Record::Changer(thing, *member, None)));
        let came =
            self.changers.iter().filter(|(member, at)| before.changers.get(member) != Some(at));
        records.extend(came.map(|(member, at)| Record::Changer(thing, *member, Some(*at))));
    }

    fn came(&mut self, line: Line, at: usize, request: Request) {
        match line {
            Line::Queue => self.queue.insert(at.min(self.queue.len()), request),
            Line::Asked => self.asked.insert(at.min(self.asked.len()), request),
            Line::Later => self.later.insert(at.min(self.later.len()), request),
        }
    }

    fn went(&mut self, line: Line, at: usize) {
        match line {
            Line::Queue => _ = self.queue.remove(at),
            Line::Asked if at < self.asked.len() => _ = self.asked.remove(at),
            Line::Later if at < self.later.len() => _ = self.later.remove(at),
            Line::Asked | Line::Later => {}
        }
    }
}

impl Decider {
    /// What has changed since this was last asked.
    pub(crate) fn take_changes(&mut self, records: &mut Vec<Record>) {
        let Decider { entries, awaited, unheard, loans, written } = self;
        if *loans != std::mem::replace(&mut written.0, *loans) {
            records.push(Record::Loans(*loans));
        }
        for (thing, before, now) in entries.changed() {
            let Some(now) = now else {
                records.push(Record::Hold(thing, None));
                continue;
            };
            if before.as_ref().is_none_or(|before| before.hold != now.hold) {
                records.push(Record::Hold(thing, Some(now.hold.clone())));
            }
            let none = || Entry::new(now.hold.clone());
            now.changes(&before.unwrap_or_else(none), thing, records);
        }
        let awaited = awaited.changed();
        records.extend(
            awaited.map(|((member, thing), _, is)| Record::Awaited(member, thing, is.is_some())),
        );
        let unheard = unheard.changed();
        records.extend(
            unheard.map(|((removed, by), _, is)| Record::Unheard(removed, by, is.is_some())),
        );
    }

    /// Nothing of it was written down.
    pub(crate) fn all_is_new(&mut self) {
        self.written.0 = 0;
        self.entries.all_is_new();
        self.awaited.all_is_new();
        self.unheard.all_is_new();
    }

    /// Makes a change, if the record is one of these.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Loans(count) => self.loans = count,
            Record::Hold(thing, None) => _ = self.entries.remove(&thing),
            Record::Hold(thing, Some(hold)) => {
                let new = Entry::new(hold.clone());
                self.entries.or_insert_with(thing, || new).hold = hold;
            }
            Record::Awaited(member, thing, is) => self.awaited.put((member, thing), is),
            Record::Unheard(removed, by, is) => self.unheard.put((removed, by), is),
            Record::Came(thing, ..) | Record::Went(thing, ..) | Record::Changer(thing, ..) => {
                let entry = self.entries.get_mut(&thing);
                entry.into_iter().for_each(|entry| entry.apply(record.clone()));
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
