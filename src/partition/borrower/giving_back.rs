//! How a thing goes back: it is asked for, clients leave, the decider is told. And how the looks of
//! others at what this server changes are answered meanwhile.

use terral_format::ids::{Loan, Member, Operation, Thing};
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Message, Work};

use crate::effect::{Access, Context, Effect, Out};

use super::leased::Copies;
use super::{Borrower, Held, Kind};

impl Borrower {
    /// What is had by that loan. Of one's own things one may not know that they are lent, or by
    /// which loan, as neither is written where nobody else uses them; one's own messages are never
    /// late.
    fn by_loan(
        &mut self,
        thing: Thing,
        (from, loan): (Member, Loan),
        cx: &Context<'_>,
    ) -> Option<&mut Held> {
        if from == cx.me && cx.is_born_here(thing) {
            let held = || Held::new(from, loan, Kind::Whole);
            self.held.or_insert_with(thing, held).loan = loan;
        }
        let held = self.held.get_mut(&thing)?;
        (held.kind != Kind::Gone && held.from == from && held.loan == loan).then_some(held)
    }

    /// The decider wants it back.
    pub fn recalled(
        &mut self,
        (from, thing, loan): (Member, Thing, Loan),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        if let Some(held) = self.by_loan(thing, (from, loan), cx) {
            held.recalled = true;
            self.leave(thing, cx, out);
        }
    }

    /// Somebody wants to look. Who is changing it answers; else it goes back, to be shown.
    pub fn asked(
        &mut self,
        (from, operation): (Member, Operation),
        (thing, loan, look): (Thing, Loan, Body),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let stays = cx.local.in_use(thing) || !cx.local.is_settled(thing);
        let busy = stays || self.is_pinned(thing);
        let Some(held) = self.by_loan(thing, (from, loan), cx) else { return };
        if held.leaving {
            return;
        }
        if busy && held.kind == Kind::Whole {
            held.looked = true;
            held.asks.push((operation, look.clone()));
            out.want(Effect::Serve { operation, thing, work: Work::Look(look) });
        } else {
            held.recalled = true;
            self.leave(thing, cx, out);
        }
    }

    /// A look was answered.
    pub fn served(&mut self, operation: Operation, thing: Thing, answer: Body, out: &mut Out) {
        let Some(held) = self.held.get_mut(&thing) else { return };
        if let Some(at) = held.asks.iter().position(|(asked, _)| *asked == operation) {
            held.asks.remove(at);
            out.say(held.from, Message::Looked { operation, thing, answer });
        }
    }

    /// Nobody here changes it any more: who has looked at it may have a copy.
    pub fn rests(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        if self.held.get(&thing).is_some_and(|held| held.looked && held.kind == Kind::Whole) {
            self.give_back(thing, cx, out);
        }
    }

    /// It is given back without being recalled; not what is wholly this server's own, of which
    /// nothing is written.
    pub fn give_back(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        let Some(held) = self.held.get_mut(&thing).filter(|held| held.kind != Kind::Gone) else {
            return;
        };
        held.recalled = true;
        self.leave(thing, cx, out);
    }

    /// Begins to take it from clients, once nobody needs it to stay.
    pub(super) fn leave(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        if self.is_pinned(thing) {
            return;
        }
        let Some(held) = self.held.get_mut(&thing) else { return };
        if !held.recalled || held.leaving {
            return;
        }
        let unmarked = |copies: &Copies| copies.unmarked.contains(&thing);
        if self.copies.get(&held.from).is_some_and(unmarked) {
            self.drop_copy(thing, cx, out);
            return;
        }
        held.leaving = true;
        out.recalls.push(thing);
    }

    /// Clients have left it.
    pub fn left(&mut self, thing: Thing, body: Body, cx: &Context<'_>, out: &mut Out) {
        let Some(held) = self.held.get_mut(&thing).filter(|held| held.leaving) else { return };
        let (to, loan) = (held.from, held.loan);
        match held.kind {
            // Its heir does not take from others what a thing is.
            Kind::Kept if !cx.local.are_for_one(cx.me, loan.by) => self.drop_copy(thing, cx, out),
            Kind::Whole | Kind::Kept => {
                let in_use = cx.local.in_use(thing);
                out.say(to, Message::Return { thing, loan, body, in_use });
                self.gone(thing, cx, out);
            }
            Kind::Copy | Kind::Gone => self.drop_copy(thing, cx, out),
        }
    }

    fn drop_copy(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        let Some(held) = self.held.get(&thing) else { return };
        out.say(held.from, Message::Dropped { thing, loan: held.loan });
        self.gone(thing, cx, out);
    }

    /// It is not this server's any more; who waited for that wants it anew.
    fn gone(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        self.forget_copy(thing, cx.me);
        if cx.is_born_here(thing) {
            if let Some(held) = self.held.get_mut(&thing) {
                *held = Held::new(held.from, held.loan, Kind::Gone);
            }
        } else {
            self.held.remove(&thing);
        }
        out.want(Effect::Publish { thing, access: Access::Nothing });
        self.resume(thing, cx, out);
    }
}
