//! What becomes of things when a member is removed: of what it had borrowed, and, in its heir, of
//! what it decided.
//!
//! Not here: what the members have of its things, and say (`removal`).

use terral_format::ids::{Member, Thing};
use terral_format::wire::peers::{Failure, Holding, Message};

use crate::effect::{Context, Effect, Out};
use crate::left_out::{Rule, keeps};

use super::{Decider, Entry, Hold, answer, here, inherited};

impl Decider {
    /// A member was removed: what was lent to it is lost, its wishes are gone. So are its copies if
    /// it is dead; if it may live, they are when their lease is over.
    pub fn removed(&mut self, member: Member, cx: &Context<'_>, out: &mut Out) {
        let waits = cx.table.may_live(member) && keeps(Rule::WaitForTheFenced);
        let things: Vec<Thing> = self.entries.keys().copied().collect();
        for thing in things {
            let Some(entry) = self.entries.get_mut(&thing) else { continue };
            entry.queue.retain(|request| request.from != member);
            entry.asked.retain(|request| request.from != member);
            entry.later.retain(|request| request.from != member);
            match &mut entry.hold {
                Hold::Lent { to, .. } if *to == member => {
                    entry.hold = Hold::Lost(member);
                    if !keeps(Rule::LostIsLost) {
                        entry.hold = here();
                    }
                    for request in entry.asked.drain(..) {
                        answer(out, &request, Err(Failure::Removed(member)));
                    }
                }
                Hold::Here { shown, recalled, .. } if !waits => {
                    shown.remove(&member);
                    *recalled &= !shown.is_empty();
                }
                Hold::Kept { by, here, .. } => {
                    by.remove(&member);
                    if by.is_empty() {
                        entry.hold = if *here { inherited(cx) } else { Hold::Lost(member) };
                    }
                }
                _ => {}
            }
        }
        if !waits {
            self.awaited.take_unless(|(from, _), ()| *from != member);
        }
        self.unheard.take_unless(|(_, from), ()| *from != member);
        if cx.table.successor(member) == Some((cx.me, Some(member))) {
            // Nobody else has had any of it.
            let heard = cx.table.present().filter(|from| cx.local.are_for_one(cx.me, *from));
            heard.for_each(|from| _ = self.unheard.insert((member, from), ()));
        }
        self.resume(cx, out);
    }

    /// A member has said what it has of a removed one's, all of it or a part.
    pub fn holds(
        &mut self,
        (from, removed): (Member, Member),
        (held, more): (Vec<(Thing, Holding)>, bool),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        if !self.unheard.contains_key(&(removed, from)) {
            return;
        }
        if !more {
            self.unheard.remove(&(removed, from));
        }
        for (thing, holding) in held {
            if cx.table.successor(thing.number().born()) == Some((cx.me, Some(removed))) {
                self.adopt((from, removed), thing, holding, cx, out);
            }
        }
        self.resume(cx, out);
    }

    fn adopt(
        &mut self,
        (from, removed): (Member, Member),
        thing: Thing,
        holding: Holding,
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let entry = self.entry(thing, cx);
        match (holding, &mut entry.hold) {
            (_, Hold::Disputed(_)) => {}
            (Holding::Whole(_), hold @ Hold::Lent { .. }) => *hold = Hold::Disputed(removed),
            (Holding::Whole(loan), hold) => {
                if let Hold::Kept { by, .. } = hold {
                    for (to, loan) in std::mem::take(by) {
                        out.say(to, Message::Recall { thing, loan });
                    }
                }
                *hold = Hold::Lent { to: from, loan, recalled: false };
            }
            (Holding::Kept(loan), Hold::Kept { by, .. }) => _ = by.insert(from, loan),
            (Holding::Kept(loan), hold @ Hold::Lost(_)) => {
                let by = [(from, loan)].into();
                *hold = Hold::Kept { by, recalled: false, here: false };
            }
            (Holding::Kept(loan), _) => out.say(from, Message::Recall { thing, loan }),
        }
    }

    /// A thing that a dead member had is what could be put together of it, or stays lost.
    pub fn restored(&mut self, thing: Thing, is: bool, cx: &Context<'_>, out: &mut Out) {
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        let Hold::Lost(member) = entry.hold else { return };
        if is && is_restored(thing, cx) {
            // Who may live, and speaks for others, may go by what it was shown.
            entry.hold = inherited(cx);
            self.advance(thing, None, cx, out);
            return;
        }
        for request in entry.queue.drain(..) {
            answer(out, &request, Err(Failure::Removed(member)));
        }
        self.compact(thing, cx);
    }

    /// Somebody who must still be heard before this thing is decided.
    pub(super) fn unheard_of(&self, thing: Thing, cx: &Context<'_>) -> Option<Member> {
        let (_, before) = cx.table.successor(thing.number().born())?;
        self.unheard.of(before?).next().filter(|_| keeps(Rule::GatherFirst))
    }

    /// What the process before this one was to put together, again.
    pub(super) fn restore_again(&self, thing: Thing, out: &mut Out) {
        if let Some(Entry { hold: Hold::Lost(of), queue, .. }) = self.entries.get(&thing)
            && !queue.is_empty()
        {
            out.want(Effect::Restore { thing, of: *of });
        }
    }

    fn resume(&mut self, cx: &Context<'_>, out: &mut Out) {
        let things: Vec<Thing> = self.entries.keys().copied().collect();
        things.into_iter().for_each(|thing| self.advance(thing, None, cx, out));
    }
}

/// Whether a lost thing is put together from what others know. Not while a member that was removed,
/// and could have had it, may live: its clients may still be told of changes of it.
pub(super) fn is_restored(thing: Thing, cx: &Context<'_>) -> bool {
    let born = thing.number().born();
    let had = |member: Member| cx.local.are_for_one(member, born);
    !cx.table.fenced().any(had) && cx.local.may_be_restored(thing)
}
