//! Members that leave in order: this one, and others, as far as it has heard of them.
//!
//! Not here: what is to be done before one may leave (`sharing/departing`).

use std::collections::BTreeSet;

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Number, Thing};
use terral_format::wire::roster::{Control, Roster};

use super::{Members, Part};
use crate::members::copies::Copy;

/// What is known of that. Of this process only.
#[derive(Default)]
pub(super) struct Departing {
    /// Others are gone, and names of what they had are still in the tables.
    departed: Departed,
    /// To the control.
    says: Option<Control>,
    /// The control says that this member is in no more.
    is_let_go: bool,
    /// Directories that members want to hand over before they leave.
    handed: BTreeSet<Number>,
}

/// Who is gone, so that others may have been shown what is elsewhere now.
#[derive(Clone, Copy, Default)]
pub struct Departed {
    /// Members that had brought what they had.
    pub in_order: bool,
    /// Users' servers, each of which another one of his follows.
    pub users: bool,
}

/// How many have left in order, and how many users' servers are in no more.
fn gone(roster: &Roster) -> (usize, usize) {
    let (mut left, mut gone) = (0, BTreeSet::new());
    for seat in &roster.seats {
        if let Standing::Removed { verdict, .. } = seat.standing {
            left += usize::from(verdict == Verdict::Left);
            gone.insert(seat.member);
        }
    }
    let users = roster.certificates.iter().filter(|it| it.user.is_some());
    (left, users.filter(|it| gone.contains(&it.member)).count())
}

impl Departing {
    /// This is so from now on, and that was before.
    pub(super) fn follows(&mut self, roster: &Roster, before: &Roster) {
        let ((left, users), before) = (gone(roster), gone(before));
        self.departed.in_order |= left > before.0;
        self.departed.users |= users > before.1;
    }

    pub(super) fn has_said(&self) -> bool {
        self.says.is_some()
    }
}

impl Members {
    /// Who is gone since this was asked last.
    pub fn take_departed(&mut self) -> Departed {
        std::mem::take(&mut self.departing.departed)
    }

    /// This is to be said to the control once the log has it.
    pub fn says_to_control(&mut self, said: Control) {
        self.departing.says = Some(said);
    }

    /// What is to be said to it now.
    pub fn take_departure(&mut self) -> Option<Control> {
        self.departing.says.take()
    }

    /// The control says that this member is in no more.
    pub fn is_let_go(&mut self) {
        self.departing.is_let_go = true;
    }

    /// Whether it does.
    pub fn was_let_go(&self) -> bool {
        self.departing.is_let_go
    }

    /// Directories that members want to hand over.
    pub fn handed(&mut self) -> &mut BTreeSet<Number> {
        &mut self.departing.handed
    }

    /// What this server has of things that others decide.
    pub fn borrowed(&self) -> Vec<Thing> {
        match &self.part {
            Part::Runs(machine) => machine.borrowed(),
            Part::Replayed(_) => Vec::new(),
        }
    }

    /// Whether another member has a thing that this one decides, to change it.
    pub fn is_lent(&self, thing: Thing) -> bool {
        matches!(&self.part, Part::Runs(machine) if machine.is_lent(thing))
    }

    /// Whether another member was shown a thing that this one decides.
    pub fn is_shown_to_others(&self, thing: Thing) -> bool {
        matches!(&self.part, Part::Runs(machine) if machine.is_shown_to_others(thing))
    }

    /// Whether nobody waits for this server, and it waits for nobody.
    pub fn is_quiet(&self) -> bool {
        let idle = self.effects.is_empty() && self.wishes.is_empty() && self.kept.is_empty();
        let settled = self.postponed.is_empty() && self.adrift.is_empty() && self.mover.is_none();
        let said = self.outbox.is_empty() && self.said.is_empty() && self.creations.is_empty();
        let runs = matches!(&self.part, Part::Runs(machine) if machine.is_quiet());
        runs && idle && settled && said && self.has_no_transactions()
    }

    /// Directories that were shown, and have names of which this is true.
    pub fn copies_with(&self, is: impl Fn(&Copy) -> bool) -> Vec<Thing> {
        let copies = self.copies.iter().filter(|(_, copy)| is(copy));
        copies.map(|(thing, _)| *thing).collect()
    }
}
