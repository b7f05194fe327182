//! What this server has after a member was removed, and after it was itself started again.

use terral_format::ids::{Member, Thing, Wish};
use terral_format::wire::peers::{Failure, Holding, Work};

use crate::effect::{Access, Context, Effect, Out};
use crate::left_out::{Rule, keeps};

use super::{Borrower, Kind, Stage};

impl Borrower {
    /// A member was removed: what was its is the heir's to ask for. A copy whose lease lasts is as
    /// good as the thing if that member was dead by then, as it had to wait before it changed the
    /// thing: it is kept, and not looked at, if the server around has all of it, and speaks for
    /// whom that member did: else nobody asks for it. One that may live waits no longer than the
    /// lease: its copies are given up. Gives what the heir is to know.
    /// Changes that the member was asked for may have been made, and lost: they fail, unless it has
    /// left in order.
    pub fn removed(
        &mut self,
        member: Member,
        cx: &Context<'_>,
        out: &mut Out,
    ) -> Vec<(Thing, Holding)> {
        let mut had = Vec::new();
        let Some((heir, _)) = cx.table.successor(member) else { return had };
        let copies = self.copies.remove(&member).unwrap_or_default();
        let may_live = cx.table.may_live(member) && keeps(Rule::KeepOfTheDead);
        let mut given_up = Vec::new();
        let theirs = self.held.iter().filter(|(_, held)| held.from == member);
        let theirs: Vec<Thing> = theirs.map(|(thing, _)| *thing).collect();
        for thing in theirs {
            let Some(held) = self.held.get_mut(&thing) else { continue };
            held.from = heir;
            held.asks.clear();
            if held.kind == Kind::Copy {
                held.kind = Kind::Kept;
                if copies.marked.contains(&thing) {
                    out.want(Effect::Publish { thing, access: Access::Nothing });
                    out.recalls.extend(held.leaving.then_some(thing));
                }
                let keeps = cx.local.keeps_copy(thing) && cx.local.are_for_one(cx.me, member);
                if may_live || !keeps {
                    (held.recalled, held.over) = (true, true);
                    given_up.push(thing);
                }
            }
            // The heir is not to know of what nobody can go by any more.
            if held.over && keeps(Rule::KeepWhatIsGood) {
                continue;
            }
            let whole = held.kind == Kind::Whole;
            let holding = if whole { Holding::Whole } else { Holding::Kept };
            had.push((thing, holding(held.loan)));
        }
        given_up.into_iter().for_each(|thing| self.leave(thing, cx, out));
        let asked =
            |stage: &Stage| matches!(stage, Stage::Asked { decider, .. } if *decider == member);
        let asked: Vec<(Wish, bool)> = self
            .wanted
            .iter()
            .filter(|(_, wanted)| asked(&wanted.stage))
            .map(|(wish, wanted)| (*wish, matches!(wanted.work, Work::Look(_) | Work::Find(_))))
            .collect();
        let is_undone = cx.table.has_left(member);
        for (wish, looks) in asked {
            if looks || is_undone {
                self.pursue(wish, cx, out);
            } else {
                self.conclude(wish, Err(Failure::Removed(member)), out);
            }
        }
        had
    }

    /// This server was removed: what its clients wait for fails.
    pub fn all_fail(&mut self, me: Member) -> Vec<(Wish, Failure)> {
        let wishes = self.wanted.take_unless(|_, _| false);
        let open = wishes.into_iter().filter(|(_, wanted)| !matches!(wanted.stage, Stage::Over(_)));
        open.map(|(wish, _)| (wish, Failure::Removed(me))).collect()
    }

    /// What this server has, as its process is another one: copies are given up, as nobody knows
    /// how long they may be used; clients come again with what they want.
    pub fn restart(&mut self, cx: &Context<'_>, out: &mut Out) {
        self.wanted.take_unless(|_, wanted| wanted.stage != Stage::Ready);
        self.clients_know_nothing();
        let things: Vec<Thing> = self.held.keys().copied().collect();
        for thing in things {
            let Some(held) = self.held.get_mut(&thing) else { continue };
            let is_leased = held.kind == Kind::Copy && held.from != cx.me;
            held.recalled |= is_leased;
            held.leaving &= !is_leased;
            out.recalls.extend(held.leaving.then_some(thing));
            for (operation, look) in held.asks.clone() {
                out.want(Effect::Serve { operation, thing, work: Work::Look(look) });
            }
            self.leave(thing, cx, out);
        }
    }
}
