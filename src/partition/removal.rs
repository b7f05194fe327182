//! The control's verdicts: a new table comes, members are removed, and who is left says to each
//! heir what it has of the removed one's.
//!
//! Not here: how the control comes to know.

use std::collections::BTreeMap;
use std::sync::Arc;

use terral_format::ids::{Member, Thing};
use terral_format::moment::Moment;
use terral_format::wire::peers::{HOLDS_MAX, Holding, Message};

use crate::effect::{Context, Effect, Local, Out};
use crate::machine::{Machine, context};
use crate::members::Table;

impl Machine {
    /// A table has come. One that is not later changes nothing.
    pub(crate) fn table(&mut self, table: Table, now: Moment, local: &dyn Local, out: &mut Out) {
        if table.epoch <= self.durable.table.epoch {
            return;
        }
        let before = std::mem::replace(&mut self.durable.table, Arc::new(table));
        if self.is_expelled() {
            self.expelled(out);
            return;
        }
        // Also who came and went in tables that were skipped: its heir waits for all members.
        let removed: Vec<Member> =
            self.durable.table.removed().filter(|member| !before.is_removed(*member)).collect();
        // Who was alive until now, also after it was removed, may have shown something to who was
        // removed and may live.
        let table = &self.durable.table;
        let ended = |member: Member| before.may_live(member) && !table.may_live(member);
        let news = !removed.is_empty() || table.removed().any(ended);
        for member in table.fenced().filter(|_| news) {
            self.leases.entry(member).or_default().inherit(now, &self.terms);
        }
        // By heir, and by the last of those that were removed before it: only that one's heir asks.
        let mut had = BTreeMap::<_, Vec<_>>::new();
        for member in removed {
            let held = self.removed(member, now, local, out);
            if let Some(successor) = self.durable.table.successor(member) {
                had.entry(successor).or_default().extend(held);
            }
        }
        for ((heir, last), held) in had {
            last.into_iter().for_each(|removed| tell_heir(heir, removed, &held, out));
        }
        // All others are told that the table is known here: they may have spoken by it before.
        for member in self.durable.table.present().filter(|member| *member != self.durable.me) {
            self.durable.channels.entry(member).or_default();
            self.sessions.entry(member).or_default().owes = true;
        }
    }

    /// Gives what this server has of a removed member's.
    fn removed(
        &mut self,
        member: Member,
        now: Moment,
        local: &dyn Local,
        out: &mut Out,
    ) -> Vec<(Thing, Holding)> {
        self.durable.part(member);
        if !self.durable.table.may_live(member) {
            self.leases.remove(&member);
        }
        self.sessions.remove(&member);
        out.messages.retain(|(to, _)| *to != member);
        let cx = context!(self, now, local);
        let held = self.durable.borrower.removed(member, &cx, out);
        self.durable.decider.removed(member, &cx, out);
        held
    }

    /// This server was removed. Until now it was as one whose links are all cut: what it said to
    /// its clients was true; what others have decided since it does not know.
    fn expelled(&mut self, out: &mut Out) {
        out.messages.clear();
        for (wish, failure) in self.durable.borrower.all_fail(self.durable.me) {
            out.want(Effect::Answer { wish, answer: Err(failure) });
        }
        (self.leases, self.sessions) = Default::default();
        let all: Vec<Member> = self.durable.channels.keys().copied().collect();
        all.into_iter().for_each(|member| self.durable.part(member));
        out.want(Effect::Expelled);
    }
}

/// Says to an heir what this server has of a removed one's, in as many messages as that takes.
fn tell_heir(heir: Member, removed: Member, held: &[(Thing, Holding)], out: &mut Out) {
    let parts = held.len().div_ceil(HOLDS_MAX).max(1);
    for part in 1..=parts {
        let held = held.iter().skip((part - 1) * HOLDS_MAX).take(HOLDS_MAX).copied().collect();
        out.say(heir, Message::Holds { removed, held, more: part < parts });
    }
}
