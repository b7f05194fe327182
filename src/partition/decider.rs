//! Who has what of the things that this server decides, and who waits for them: it lends, shows,
//! asks, or carries out what others want done.
//!
//! Invariants: a thing is lent to one member, or it is here; while somebody has a copy nobody
//! changes it. An operation is answered once, after which it is gone from the queue. What this
//! server itself has of its things it has like any other member, and is told in messages. A thing
//! of which there is no entry is wholly this server's, if it was born here; a removed member's, and
//! lost, if it is inherited.
//!
//! Not here: what this server has of things (`borrower`).

use std::collections::{BTreeMap, VecDeque};

use terral_format::disk::partition::{Busy, Hold, Request};
use terral_format::ids::{Loan, Member, Operation, Thing};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Answer, Failure, Message, Work};

use crate::changes::{Aside, Tracked, TrackedSet};
use crate::effect::{Context, Effect, Giving, Out};
use crate::left_out::{Rule, keeps};

mod choosing;
mod inheriting;
mod records;

/// It is here, and nobody else has a copy.
fn here() -> Hold {
    Hold::Here { shown: BTreeMap::new(), recalled: false, busy: None }
}

/// It was kept, and is here now. The one that had it before may have shown it to members that were
/// removed and live, and do not say so.
fn inherited(cx: &Context<'_>) -> Hold {
    let fenced = cx.table.fenced().filter(|_| keeps(Rule::WaitForTheFenced));
    let shown = fenced.map(|member| (member, Loan { by: cx.me, number: 0 })).collect();
    Hold::Here { shown, recalled: false, busy: None }
}

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    hold: Hold,
    queue: VecDeque<Request>,
    /// Looks that who has it was asked for.
    asked: Vec<Request>,
    /// What cannot be carried out yet.
    later: Vec<Request>,
    /// Who has changed it lately, and when.
    changers: BTreeMap<Member, Moment>,
}

impl Entry {
    fn new(hold: Hold) -> Self {
        let (queue, asked, later, changers) = Default::default();
        Entry { hold, queue, asked, later, changers }
    }
}

/// All that this server decides and others use. Durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Decider {
    entries: Tracked<Thing, Entry>,
    /// Copies that were recalled and are not dropped, by who has them.
    awaited: TrackedSet<(Member, Thing)>,
    /// By removed member whose heir this server is: who has not said yet what it has of that.
    unheard: TrackedSet<(Member, Member)>,
    loans: u64,
    /// How many of these were written down.
    written: Aside<u64>,
}

fn answer(out: &mut Out, request: &Request, answer: Answer) {
    out.say(request.from, Message::Done { operation: request.operation, answer });
}

impl Decider {
    fn entry(&mut self, thing: Thing, cx: &Context<'_>) -> &mut Entry {
        self.entries.or_insert_with(thing, || {
            let hold = match cx.table.successor(thing.number().born()) {
                Some((_, Some(removed))) => Hold::Lost(removed),
                _ => {
                    let loan = Loan { by: cx.me, number: 0 };
                    Hold::Lent { to: cx.me, loan, recalled: false }
                }
            };
            Entry::new(hold)
        })
    }

    /// Whether the decider itself has a thing.
    pub fn is_here(&self, thing: Thing) -> bool {
        let hold = self.entries.get(&thing).map(|entry| &entry.hold);
        matches!(hold, Some(Hold::Here { .. } | Hold::Kept { here: true, .. }))
    }

    /// How many things others have, or have been shown.
    pub(crate) fn lent(&self, me: Member) -> u64 {
        let is_lent = |entry: &&Entry| match &entry.hold {
            Hold::Here { shown, .. } => shown.keys().any(|member| *member != me),
            Hold::Lent { to, .. } => *to != me,
            Hold::Kept { by, .. } => by.keys().any(|member| *member != me),
            Hold::Lost(_) | Hold::Disputed(_) => false,
        };
        self.entries.values().filter(is_lent).count() as u64
    }

    /// Whether a member other than `me` has it to change it.
    pub(crate) fn is_lent(&self, thing: Thing, me: Member) -> bool {
        let hold = self.entries.get(&thing).map(|entry| &entry.hold);
        matches!(hold, Some(Hold::Lent { to, recalled: false, .. }) if *to != me)
    }

    /// Whether a member other than `me` was shown it, and it is not taken back.
    pub(crate) fn is_shown(&self, thing: Thing, me: Member) -> bool {
        match self.entries.get(&thing).map(|entry| &entry.hold) {
            Some(Hold::Here { shown: by, .. } | Hold::Kept { by, .. }) => {
                by.keys().any(|member| *member != me)
            }
            _ => false,
        }
    }

    /// Whether somebody waits for something.
    pub(crate) fn is_asked(&self) -> bool {
        let asked = |entry: &Entry| {
            let later = !entry.later.is_empty() || !entry.asked.is_empty();
            later || !entry.queue.is_empty()
        };
        self.entries.values().any(asked)
    }

    /// Somebody wants something done.
    pub fn want(
        &mut self,
        (from, operation): (Member, Operation),
        (thing, work): (Thing, Work),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let request = Request { from, operation, work, since: cx.now };
        self.entry(thing, cx).queue.push_back(request);
        self.advance(thing, None, cx, out);
    }

    /// A loan is over. One's own may be over when nothing is written of it any more.
    pub fn returned(
        &mut self,
        (from, thing, loan): (Member, Thing, Loan),
        (body, in_use): (Body, bool),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let is_own = from == cx.me && cx.is_born_here(thing);
        if is_own {
            self.entry(thing, cx);
        }
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        match &mut entry.hold {
            Hold::Lent { to, loan: lent, .. } if *to == from && (*lent == loan || is_own) => {
                entry.hold = here();
                entry.asked.drain(..).rev().for_each(|request| entry.queue.push_front(request));
                if in_use {
                    entry.changers.insert(from, cx.now);
                }
            }
            Hold::Kept { by, here, .. } if by.get(&from) == Some(&loan) => {
                by.remove(&from);
                *here = true;
                if by.is_empty() {
                    entry.hold = inherited(cx);
                }
            }
            _ => return,
        }
        if from != cx.me {
            out.want(Effect::Install { thing, body });
        }
        self.advance(thing, None, cx, out);
    }

    /// A copy is no more.
    pub fn dropped(
        &mut self,
        (from, thing, loan): (Member, Thing, Loan),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        let Hold::Here { shown, recalled, .. } = &mut entry.hold else { return };
        if shown.get(&from) == Some(&loan) {
            shown.remove(&from);
            *recalled &= !shown.is_empty();
            self.awaited.remove(&(from, thing));
            self.advance(thing, None, cx, out);
        }
    }

    /// Who has it has answered for it.
    pub fn looked(
        &mut self,
        (from, operation): (Member, Operation),
        thing: Thing,
        seen: Body,
        out: &mut Out,
    ) {
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        if !matches!(entry.hold, Hold::Lent { to, .. } if to == from) {
            return;
        }
        if let Some(at) = entry.asked.iter().position(|request| request.operation == operation) {
            answer(out, &entry.asked.remove(at), Ok(seen));
        }
    }

    /// The server around has said what the thing is.
    pub fn fetched(
        &mut self,
        (thing, to): (Thing, Giving),
        body: Option<Body>,
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        let Hold::Here { busy, .. } = &mut entry.hold else { return };
        if *busy == Some(Busy::Fetching) {
            *busy = None;
            if body.is_none() {
                self.stays(thing, cx, out);
            }
            self.advance(thing, body.map(|body| (to, body)), cx, out);
        }
    }

    /// The server around has carried out an operation. False: not one of these.
    pub fn served(
        &mut self,
        (operation, thing): (Operation, Thing),
        seen: &Body,
        cx: &Context<'_>,
        out: &mut Out,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(&thing) else { return false };
        let Hold::Here { busy, .. } = &mut entry.hold else { return false };
        if *busy != Some(Busy::Serving(operation)) {
            return false;
        }
        *busy = None;
        if entry.queue.front().is_some_and(|front| front.operation == operation)
            && let Some(request) = entry.queue.pop_front()
        {
            if matches!(request.work, Work::Change(_)) {
                entry.changers.insert(request.from, cx.now);
            }
            answer(out, &request, Ok(seen.clone()));
        }
        self.advance(thing, None, cx, out);
        true
    }

    /// The server around cannot carry out an operation yet: those after it need not wait.
    pub fn later(
        &mut self,
        (operation, thing): (Operation, Thing),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        let Hold::Here { busy, .. } = &mut entry.hold else { return };
        if *busy != Some(Busy::Serving(operation)) {
            return;
        }
        *busy = None;
        if let Some(request) = entry.queue.pop_front_if(|front| front.operation == operation) {
            entry.later.push(request);
        }
        self.advance(thing, None, cx, out);
    }

    /// Such an operation is to be tried again.
    pub fn again(
        &mut self,
        (operation, thing): (Operation, Thing),
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        let at = entry.later.iter().position(|request| request.operation == operation);
        let Some(request) = at.map(|at| entry.later.remove(at)) else { return };
        // What it has waited for was not this thing.
        entry.queue.push_back(Request { since: cx.now, ..request });
        self.advance(thing, None, cx, out);
    }

    /// Whether an operation is not answered yet.
    pub fn is_wanted(&self, operation: Operation) -> bool {
        let lists = |entry: &Entry| {
            let mut all = entry.queue.iter().chain(&entry.later);
            all.any(|request| request.operation == operation)
        };
        self.entries.values().any(lists)
    }

    /// How much a member wants that is not done: how many things, and how many bytes it has said.
    pub(crate) fn wanted_by(&self, member: Member) -> (usize, usize) {
        let all = self.entries.values();
        let all = all.flat_map(|entry| entry.queue.iter().chain(&entry.asked).chain(&entry.later));
        let its = all.filter(|request| request.from == member);
        its.fold((0, 0), |(count, bytes), its| (count + 1, bytes + its.work.bytes()))
    }

    /// Time has passed.
    pub fn tick(&mut self, cx: &Context<'_>, out: &mut Out) {
        let things: Vec<Thing> = self.entries.keys().copied().collect();
        for thing in things {
            self.give_up_waiting(thing, cx, out);
            self.advance(thing, None, cx, out);
            let Some(entry) = self.entries.get(&thing) else { continue };
            if entry.changers.values().any(|since| cx.is_past(*since, cx.terms.calm))
                && let Some(entry) = self.entries.get_mut(&thing)
            {
                entry.changers.retain(|_, since| !cx.is_past(*since, cx.terms.calm));
            }
            self.compact(thing, cx);
        }
    }

    /// Forgets what is as it is without an entry.
    fn compact(&mut self, thing: Thing, cx: &Context<'_>) {
        let Some(entry) = self.entries.get(&thing) else { return };
        let is_own = matches!(entry.hold, Hold::Lent { to, recalled: false, .. } if to == cx.me);
        let is_own = is_own && cx.is_born_here(thing);
        // So it is without an entry, too.
        let heir = cx.table.successor(thing.number().born());
        let is_lost = matches!(entry.hold, Hold::Lost(of) if heir == Some((cx.me, Some(of))));
        let waits = !entry.queue.is_empty() || !entry.asked.is_empty() || !entry.later.is_empty();
        let idle = !waits && entry.changers.is_empty();
        if idle && (is_own || is_lost) {
            self.entries.remove(&thing);
        }
    }

    /// Whom the first in the queue waits for, if it is another member.
    fn waits_for(&self, thing: Thing, cx: &Context<'_>) -> Option<Member> {
        if let Some(unheard) = self.unheard_of(thing, cx) {
            return Some(unheard);
        }
        let member = match &self.entries.get(&thing)?.hold {
            Hold::Lent { to, .. } => Some(*to),
            Hold::Here { shown, recalled: true, .. } => shown.keys().next().copied(),
            Hold::Kept { by, .. } => by.keys().next().copied(),
            _ => None,
        };
        member.filter(|member| *member != cx.me)
    }

    /// What has waited too long for another member is not done.
    fn give_up_waiting(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        let Some(member) = self.waits_for(thing, cx) else { return };
        let waits = |request: &Request| !cx.is_past(request.since, cx.terms.patience);
        let over = |request: &Request| !waits(request);
        let Some(entry) = self.entries.get(&thing) else { return };
        if !entry.queue.iter().chain(&entry.asked).any(over) {
            return;
        }
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        for request in entry.queue.iter().chain(&entry.asked).filter(|request| over(request)) {
            answer(out, request, Err(Failure::Silent(member)));
        }
        entry.queue.retain(waits);
        entry.asked.retain(waits);
    }

    /// Whether a member is waited for, to drop a copy: then no lease of its is renewed.
    pub fn awaits(&self, member: Member) -> bool {
        keeps(Rule::WithholdRenewal) && self.awaited.of(member).next().is_some()
    }

    /// What the server around was doing when it died, again.
    pub fn restart(&mut self, out: &mut Out) {
        let things: Vec<Thing> = self.entries.keys().copied().collect();
        for thing in things {
            let Some(entry) = self.entries.get(&thing) else { continue };
            if !entry.later.is_empty()
                && let Some(entry) = self.entries.get_mut(&thing)
            {
                entry.queue.extend(std::mem::take(&mut entry.later));
            }
            self.restore_again(thing, out);
            let Some(entry) = self.entries.get(&thing) else { continue };
            let Hold::Here { busy: Some(busy), .. } = &entry.hold else { continue };
            match (*busy, entry.queue.front()) {
                (Busy::Fetching, front) => {
                    let to = front.map_or(Giving::Show, |front| Giving::of(&front.work));
                    out.want(Effect::Fetch { thing, to });
                }
                (Busy::Serving(operation), Some(front)) if front.operation == operation => {
                    let work = choosing::served(thing, &front.work);
                    out.want(Effect::Serve { operation, thing, work });
                }
                _ => self.is_not_busy(thing),
            }
        }
    }

    fn is_not_busy(&mut self, thing: Thing) {
        let entry = self.entries.get_mut(&thing);
        if let Some(Hold::Here { busy, .. }) = entry.map(|entry| &mut entry.hold) {
            *busy = None;
        }
    }
}
