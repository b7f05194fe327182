//! What others have shown, by lender: made known to clients as far as the deadline word allows, and
//! taken away when a lease is over. What a step costs does not grow with how much is shown.

use std::collections::BTreeSet;

use terral_format::ids::{Member, Thing};
use terral_format::moment::Moment;

use crate::effect::{Access, Context, Effect, Out};
use crate::lease;
use crate::left_out::{Rule, keeps};

use super::{Borrower, Held, Kind, is_leased};

/// What one member has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Copies {
    /// Clients know of these.
    pub(super) marked: BTreeSet<Thing>,
    /// They do not know of these: yet, or any more.
    pub(super) unmarked: BTreeSet<Thing>,
}

impl Borrower {
    pub(super) fn is_marked(&self, from: Member, thing: Thing) -> bool {
        self.copies.get(&from).is_some_and(|copies| copies.marked.contains(&thing))
    }

    /// It is a copy no more, if it was.
    pub(super) fn forget_copy(&mut self, thing: Thing, me: Member) {
        let Some(held) = self.held.get(&thing) else { return };
        if held.kind != Kind::Copy || held.from == me {
            return;
        }
        if let Some(copies) = self.copies.get_mut(&held.from) {
            copies.marked.remove(&thing);
            copies.unmarked.remove(&thing);
            if copies.marked.is_empty() && copies.unmarked.is_empty() {
                self.copies.remove(&held.from);
            }
        }
    }

    /// It is one, if it is another member's; clients do not know of it yet.
    pub(super) fn is_copy(&mut self, thing: Thing, held: &Held, me: Member) {
        if held.kind == Kind::Copy && held.from != me {
            self.copies.entry(held.from).or_default().unmarked.insert(thing);
        }
    }

    /// Nobody has told clients of any copy yet.
    pub(crate) fn clients_know_nothing(&mut self) {
        self.copies.values_mut().for_each(|copies| copies.unmarked.append(&mut copies.marked));
    }

    /// Who has shown something that is still here: their leases are renewed.
    pub fn lenders(&self) -> impl Iterator<Item = Member> + '_ {
        self.copies.keys().copied()
    }

    /// Takes away at once what was shown by leases that are over: clients see it by the deadline.
    pub fn take_away(&mut self, cx: &Context<'_>, out: &mut Out) {
        let mut over = Vec::new();
        for (from, copies) in &mut self.copies {
            if is_leased(*from, cx) {
                continue;
            }
            for thing in &copies.marked {
                out.want(Effect::Publish { thing: *thing, access: Access::Nothing });
            }
            copies.unmarked.append(&mut copies.marked);
            over.extend(copies.unmarked.iter().copied());
        }
        for thing in over {
            if let Some(held) = self.held.get_mut(&thing) {
                (held.recalled, held.leaving, held.over) = (true, false, true);
                self.leave(thing, cx, out);
            }
        }
    }

    /// Makes known to clients what is shown, where its lease reaches as far as the deadline word
    /// does, which is never moved back. Gives the end of the lease that is over first, of those by
    /// which something is marked.
    pub fn mark(&mut self, word: Moment, cx: &Context<'_>, out: &mut Out) -> Option<Moment> {
        let mut first: Option<Moment> = None;
        for (from, copies) in &mut self.copies {
            let until = lease::until(cx.leases, *from);
            if until > cx.now && until >= word {
                let held = &self.held;
                let may = |thing: &Thing| held.get(thing).is_some_and(|held| !held.recalled);
                let (now, later) = std::mem::take(&mut copies.unmarked).into_iter().partition(may);
                copies.unmarked = later;
                let now: BTreeSet<Thing> = now;
                for thing in &now {
                    out.want(Effect::Publish { thing: *thing, access: Access::Leased });
                }
                copies.marked.extend(now);
            }
            let counts = until > cx.now || keeps(Rule::TakeAwayFirst);
            if counts && !copies.marked.is_empty() {
                first = Some(first.map_or(until, |first| first.min(until)));
            }
        }
        first
    }
}
