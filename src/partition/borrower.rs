//! What this server has of things, its own as well as others', and what its clients wait for.
//!
//! Invariants: clients may change a thing only while this server has it whole. A request that can
//! go on keeps the thing until it has run once; one that comes while the thing is being given back
//! waits until it is, and then wants it anew. Of each request there is one operation under way at
//! most; it is durable, so a client that asks again after a restart does not have it done twice.
//! Of things that were born here and of which there is no entry, this server has all.
//!
//! Not here: who else has something (`decider`).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use terral_format::disk::partition::{Held, Kind, Stage, Wanted};
use terral_format::ids::{Loan, Member, Operation, Thing, Wish};
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Answer, Failure, Message, Work};

use crate::changes::{Aside, Tracked};
use crate::effect::{Access, Context, Effect, Out};
use crate::lease;
use crate::left_out::{Rule, keeps};

mod after_removal;
mod giving_back;
mod leased;
mod records;

use leased::Copies;

/// What this server has, and wants. Durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Borrower {
    held: Tracked<Thing, Held>,
    /// What is held as a copy by a lease, by who has shown it. Which of these clients know of is so
    /// of this process only.
    copies: BTreeMap<Member, Copies>,
    wanted: Tracked<Wish, Wanted>,
    operations: u64,
    /// How many of these were written down.
    written: Aside<u64>,
}

impl Borrower {
    /// See [`crate::durable::Durable::wishes`].
    pub(crate) fn wishes(&self, among: RangeInclusive<Wish>) -> impl Iterator<Item = Wish> + '_ {
        self.wanted.range(among).map(|(wish, _)| *wish)
    }

    /// See [`crate::durable::Durable::work_of`].
    pub(crate) fn work_of(&self, wish: Wish) -> Option<(Thing, Work)> {
        self.wanted.get(&wish).map(|wanted| (wanted.thing, wanted.work.clone()))
    }

    /// What others than `me` decide, and this server has.
    pub(crate) fn borrowed(&self, me: Member) -> impl Iterator<Item = Thing> + '_ {
        let theirs = move |held: &Held| held.from != me && held.kind != Kind::Gone;
        self.held.iter().filter(move |(_, held)| theirs(held)).map(|(thing, _)| *thing)
    }

    /// Whether something that is more than a look is awaited.
    pub(crate) fn awaits_changes(&self) -> bool {
        let awaited = |stage: &Stage| matches!(stage, Stage::Waiting | Stage::Asked { .. });
        let looks = |work: &Work| matches!(work, Work::Look(_) | Work::Find(_));
        self.wanted.values().any(|wanted| awaited(&wanted.stage) && !looks(&wanted.work))
    }

    /// What clients may do with it, or could until they have left it.
    pub fn access(&self, thing: Thing, cx: &Context<'_>) -> Access {
        match self.held.get(&thing) {
            None if cx.is_born_here(thing) => Access::Change,
            None => Access::Nothing,
            Some(held) => match held.kind {
                Kind::Whole => Access::Change,
                Kind::Copy if held.from == cx.me => Access::Look,
                Kind::Copy if self.is_marked(held.from, thing) => Access::Leased,
                Kind::Copy | Kind::Kept | Kind::Gone => Access::Nothing,
            },
        }
    }

    /// Whether a copy that another member has shown is one now; clients may not know of it.
    pub fn is_shown(&self, thing: Thing, cx: &Context<'_>) -> bool {
        let copy = |held: &&Held| held.kind == Kind::Copy && held.from != cx.me && !held.recalled;
        self.held.get(&thing).filter(copy).is_some_and(|held| is_leased(held.from, cx))
    }

    /// See [`crate::machine::Machine::is_recalled`].
    pub(crate) fn is_recalled(&self, thing: Thing) -> bool {
        self.held.get(&thing).is_some_and(|held| held.recalled)
    }

    /// Whether a request may begin now.
    fn permits(&self, thing: Thing, work: &Work, cx: &Context<'_>) -> bool {
        let Some(held) = self.held.get(&thing) else { return cx.is_born_here(thing) };
        let looks = matches!(work, Work::Look(_));
        !held.recalled
            && match held.kind {
                Kind::Whole => true,
                Kind::Copy => looks && (held.from == cx.me || is_leased(held.from, cx)),
                Kind::Kept | Kind::Gone => false,
            }
    }

    /// A client's request needs something.
    pub fn wish(
        &mut self,
        wish: Wish,
        (thing, work): (Thing, Work),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        match self.wanted.get(&wish).map(|wanted| &wanted.stage) {
            Some(Stage::Waiting | Stage::Asked { .. }) => {}
            Some(Stage::Over(answer)) => {
                out.want(Effect::Answer { wish, answer: answer.clone() });
            }
            Some(Stage::Ready) | None => {
                let wanted = Wanted { thing, work, stage: Stage::Waiting };
                let before = self.wanted.insert(wish, wanted).map(|before| before.thing);
                self.pursue(wish, cx, out);
                for thing in before.filter(|before| *before != thing).into_iter().chain([thing]) {
                    self.leave(thing, cx, out);
                }
            }
        }
    }

    /// Lets a request run, or wait, or asks the decider.
    fn pursue(&mut self, wish: Wish, cx: &Context<'_>, out: &mut Out) {
        let Some(Wanted { thing, work, .. }) = self.wanted.get(&wish) else { return };
        let thing = *thing;
        let stage = if self.permits(thing, work, cx) {
            out.want(Effect::Go(wish));
            Stage::Ready
        } else if self.held.get(&thing).is_some_and(|held| held.recalled) {
            Stage::Waiting
        } else if let Some(decider) = cx.table.decider(thing.number()) {
            self.operations += 1;
            let operation = Operation { by: cx.me, number: self.operations };
            out.say(decider, Message::Want { operation, thing, work: work.clone() });
            // One that is not trusted has no more time by answering what says nothing.
            let since = self.wanted.get(&wish).and_then(|wanted| match wanted.stage {
                Stage::Asked { since, .. } if !cx.local.is_trusted(decider) => Some(since),
                _ => None,
            });
            Stage::Asked { operation, decider, since: since.unwrap_or(cx.now) }
        } else {
            self.conclude(wish, Err(Failure::Removed(thing.number().born())), out);
            return;
        };
        if let Some(wanted) = self.wanted.get_mut(&wish) {
            wanted.stage = stage;
        }
    }

    /// A request has its answer.
    fn conclude(&mut self, wish: Wish, answer: Answer, out: &mut Out) {
        if let Some(wanted) = self.wanted.get_mut(&wish) {
            wanted.stage = Stage::Over(answer.clone());
            out.want(Effect::Answer { wish, answer });
        }
    }

    /// Who waits for that member to have done that.
    fn waiting_for(&self, (from, sought): (Member, Operation)) -> Option<Wish> {
        let is_it = |wanted: &Wanted| match wanted.stage {
            Stage::Asked { operation, decider, .. } => operation == sought && decider == from,
            _ => false,
        };
        self.wanted.iter().find(|(_, wanted)| is_it(wanted)).map(|(wish, _)| *wish)
    }

    /// Whether a thing is here by that loan.
    fn has(&self, thing: Thing, (from, loan): (Member, Loan)) -> bool {
        self.held.get(&thing).is_some_and(|held| held.from == from && held.loan == loan)
    }

    /// It is lent to this server.
    pub fn lent(
        &mut self,
        (from, operation): (Member, Operation),
        (thing, loan, body): (Thing, Loan, Option<Body>),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        if !self.has(thing, (from, loan)) && (body.is_some() || from == cx.me) {
            self.had(thing, Kind::Whole, (from, loan), cx);
            install(thing, body, out);
            out.want(Effect::Publish { thing, access: Access::Change });
            self.resume(thing, cx, out);
        }
        if let Some(wish) = self.waiting_for((from, operation)) {
            self.pursue(wish, cx, out);
        }
    }

    /// It is shown to this server. Whose operation that answers looks at what has come, also if the
    /// lease is over: it was so after that was asked for.
    pub fn shown(
        &mut self,
        (from, operation): (Member, Operation),
        (thing, loan, body): (Thing, Loan, Option<Body>),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let wish = self.waiting_for((from, operation));
        if self.has(thing, (from, loan)) || (body.is_none() && from != cx.me) {
            wish.into_iter().for_each(|wish| self.pursue(wish, cx, out));
            return;
        }
        self.had(thing, Kind::Copy, (from, loan), cx);
        install(thing, body, out);
        if from == cx.me {
            out.want(Effect::Publish { thing, access: Access::Look });
        }
        if let Some(wish) = wish
            && let Some(wanted) = self.wanted.get_mut(&wish)
        {
            wanted.stage = Stage::Ready;
            out.want(Effect::Go(wish));
        }
        self.resume(thing, cx, out);
    }

    /// Who waited for what was to be given back goes on.
    fn resume(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        let waits = |w: &Wanted| w.thing == thing && w.stage == Stage::Waiting;
        let waiting: Vec<Wish> =
            self.wanted.iter().filter(|(_, w)| waits(w)).map(|(wish, _)| *wish).collect();
        waiting.into_iter().for_each(|wish| self.pursue(wish, cx, out));
    }

    fn had(&mut self, thing: Thing, kind: Kind, (from, loan): (Member, Loan), cx: &Context<'_>) {
        self.forget_copy(thing, cx.me);
        if kind == Kind::Whole && from == cx.me && cx.is_born_here(thing) {
            self.held.remove(&thing);
            return;
        }
        let held = Held::new(from, loan, kind);
        self.is_copy(thing, &held, cx.me);
        self.held.insert(thing, held);
    }

    /// An operation is through.
    pub fn done(&mut self, (from, operation): (Member, Operation), answer: Answer, out: &mut Out) {
        if let Some(wish) = self.waiting_for((from, operation)) {
            self.conclude(wish, answer, out);
        }
    }

    /// A request has run.
    pub fn ran(&mut self, wish: Wish, cx: &Context<'_>, out: &mut Out) {
        if let Some(wanted) = self.wanted.get(&wish)
            && wanted.stage == Stage::Ready
        {
            let thing = wanted.thing;
            self.wanted.remove(&wish);
            self.leave(thing, cx, out);
        }
    }

    /// A client has its answer, or is gone: what was wanted for it may be done yet, and nobody
    /// waits for that.
    pub fn forget(&mut self, wish: Wish, cx: &Context<'_>, out: &mut Out) {
        if let Some(wanted) = self.wanted.remove(&wish)
            && wanted.stage == Stage::Ready
        {
            self.leave(wanted.thing, cx, out);
        }
    }

    /// Whether somebody runs, or is about to, who needs it to stay.
    fn is_pinned(&self, thing: Thing) -> bool {
        let mut all = self.wanted.values();
        keeps(Rule::RunOnce) && all.any(|w| w.thing == thing && w.stage == Stage::Ready)
    }

    /// Who has waited too long for the decider is told so. That one may do it yet.
    pub fn give_up_waiting(&mut self, cx: &Context<'_>, out: &mut Out) {
        let silent = |wanted: &Wanted| match wanted.stage {
            Stage::Asked { decider, since, .. } if decider != cx.me => {
                // One that is trusted says itself, after its patience, for whom it waits.
                let turns = if cx.local.is_trusted(decider) { 2 } else { 1 };
                cx.is_past(since, turns * cx.terms.patience).then_some(decider)
            }
            _ => None,
        };
        let over: Vec<(Wish, Member)> =
            self.wanted.iter().filter_map(|(wish, w)| silent(w).map(|m| (*wish, m))).collect();
        for (wish, member) in over {
            self.conclude(wish, Err(Failure::Silent(member)), out);
        }
    }
}

/// Whether what a member has shown may be used.
fn is_leased(from: Member, cx: &Context<'_>) -> bool {
    cx.now < lease::until(cx.leases, from)
}

fn install(thing: Thing, body: Option<Body>, out: &mut Out) {
    if let Some(body) = body {
        out.want(Effect::Install { thing, body });
    }
}
