//! What is done about the first in a thing's queue: the choice between lending, showing, asking,
//! and carrying it out here.
//!
//! First user: lent. Who looks while another changes: that one is asked. Who looks at what is at
//! rest: shown. A second changer: carried out here, until it is calm; but what is changed together
//! with another thing is lent, as one server must have both. What may not go to a member is carried
//! out here.

use terral_format::ids::{Loan, Member, Thing};
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Failure, Message, Work};

use crate::effect::{Context, Effect, Giving, Out};
use crate::left_out::{Rule, keeps};

use super::inheriting::is_restored;
use super::{Busy, Decider, Entry, Hold, Request, answer, here};

/// What came of looking at the first in the queue.
enum Turn {
    /// It is through; the next one.
    Next,
    /// Something must happen before.
    Wait,
}

impl Decider {
    /// Does what can be done about a thing's queue; `body` is what it is, if that is known, for who
    /// is given it so.
    pub(super) fn advance(
        &mut self,
        thing: Thing,
        mut body: Option<(Giving, Body)>,
        cx: &Context<'_>,
        out: &mut Out,
    ) {
        if self.unheard_of(thing, cx).is_some() {
            return;
        }
        while let Some(entry) = self.entries.get(&thing)
            && let Some(request) = entry.queue.front().cloned()
        {
            let turn = match entry.hold {
                Hold::Lost(of) if is_restored(thing, cx) => {
                    out.want(Effect::Restore { thing, of });
                    Turn::Wait
                }
                Hold::Lost(member) | Hold::Disputed(member) => {
                    answer(out, &request, Err(Failure::Removed(member)));
                    Turn::Next
                }
                Hold::Lent { .. } => self.of_lent(thing, &request, cx, out),
                Hold::Kept { .. } => self.of_kept(thing, out),
                Hold::Here { .. } => self.of_here(thing, &request, &mut body, cx, out),
            };
            match (turn, self.entries.get_mut(&thing)) {
                (Turn::Next, Some(entry)) => entry.queue.pop_front(),
                _ => break,
            };
        }
    }

    fn of_lent(
        &mut self,
        thing: Thing,
        request: &Request,
        cx: &Context<'_>,
        out: &mut Out,
    ) -> Turn {
        let Some(entry) = self.entries.get_mut(&thing) else { return Turn::Wait };
        let Hold::Lent { to, loan, recalled } = &mut entry.hold else { return Turn::Wait };
        let (to, loan) = (*to, *loan);
        if !keeps(Rule::LoansOutliveClocks)
            && *recalled
            && cx.leases.get(&to).is_some_and(|lease| !lease.binds(cx.now))
        {
            entry.hold = here();
            entry.queue.push_front(request.clone());
            return Turn::Next;
        }
        if *recalled {
            return Turn::Wait;
        }
        let operation = request.operation;
        if to == request.from {
            out.say(to, Message::Lend { operation, thing, loan, body: None });
            return Turn::Next;
        }
        // Who has what he would not be lent by itself is not believed of it, either.
        let is_believed = cx.local.may_go(thing, to, Giving::Lend);
        if let Work::Look(look) | Work::Find(look) = &request.work
            && is_believed
        {
            out.say(to, Message::Ask { operation, thing, loan, look: look.clone() });
            entry.asked.push(request.clone());
            return Turn::Next;
        }
        *recalled = true;
        out.say(to, Message::Recall { thing, loan });
        Turn::Wait
    }

    fn of_kept(&mut self, thing: Thing, out: &mut Out) -> Turn {
        let Some(entry) = self.entries.get_mut(&thing) else { return Turn::Wait };
        if let Hold::Kept { by, recalled: recalled @ false, .. } = &mut entry.hold {
            *recalled = true;
            by.iter().for_each(|(to, loan)| out.say(*to, Message::Recall { thing, loan: *loan }));
        }
        Turn::Wait
    }

    fn of_here(
        &mut self,
        thing: Thing,
        request: &Request,
        body: &mut Option<(Giving, Body)>,
        cx: &Context<'_>,
        out: &mut Out,
    ) -> Turn {
        let Some(entry) = self.entries.get(&thing) else { return Turn::Wait };
        let Hold::Here { shown, recalled, busy } = &entry.hold else { return Turn::Wait };
        let mine = shown.get(&request.from).copied();
        match &request.work {
            _ if busy.is_some() => Turn::Wait,
            Work::Find(_) => self.serve(thing, request, out),
            Work::Look(_) => match mine {
                Some(_) if *recalled => Turn::Wait,
                Some(loan) => {
                    let operation = request.operation;
                    out.say(request.from, Message::Show { operation, thing, loan, body: None });
                    Turn::Next
                }
                None if *recalled
                    || is_changed(entry, None, thing, cx)
                    || !may_have(thing, request, cx) =>
                {
                    self.serve(thing, request, out)
                }
                None => self.give(thing, request, body, cx, out),
            },
            Work::Take if !may_have(thing, request, cx) => {
                let no_directory = thing.number().counted() == 0;
                let why = if no_directory { Failure::NotMoved } else { Failure::NotYours };
                answer(out, request, Err(why));
                Turn::Next
            }
            _ if !self.are_copies_gone(thing, cx, out) => Turn::Wait,
            work => {
                let Some(entry) = self.entries.get(&thing) else { return Turn::Wait };
                let may_serve = *work != Work::Take;
                let is_changed = || is_changed(entry, Some(request.from), thing, cx);
                let stays = request.from != cx.me && !cx.local.is_lent(thing, work);
                let stays = stays || !may_have(thing, request, cx);
                if may_serve && (stays || is_changed()) {
                    return self.serve(thing, request, out);
                }
                self.give(thing, request, body, cx, out)
            }
        }
    }

    /// It is too large to be given to another member, and is used here for a while: as if this one
    /// had just changed it. Who must have it himself does not get it.
    pub(super) fn stays(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) {
        let Some(entry) = self.entries.get_mut(&thing) else { return };
        entry.changers.insert(cx.me, cx.now);
        if let Some(request) = entry.queue.pop_front_if(|front| front.work == Work::Take) {
            answer(out, &request, Err(Failure::TooLarge));
        }
    }

    /// Recalls all copies at once, the first time; drops those whose lease is over.
    fn are_copies_gone(&mut self, thing: Thing, cx: &Context<'_>, out: &mut Out) -> bool {
        let Some(entry) = self.entries.get_mut(&thing) else { return true };
        let Hold::Here { shown, recalled, .. } = &mut entry.hold else { return true };
        if !keeps(Rule::RecallCopies) {
            shown.clear();
        }
        if shown.is_empty() {
            *recalled = false;
            return true;
        }
        if !*recalled {
            *recalled = true;
            for (to, loan) in &*shown {
                out.say(*to, Message::Recall { thing, loan: *loan });
                self.awaited.insert((*to, thing), ());
            }
        }
        let awaited = &mut self.awaited;
        shown.retain(|member, _| {
            let stays = *member == cx.me || cx.leases.get(member).is_some_and(|l| l.binds(cx.now));
            if !stays {
                awaited.remove(&(*member, thing));
            }
            stays
        });
        *recalled = !shown.is_empty();
        shown.is_empty()
    }

    fn serve(&mut self, thing: Thing, request: &Request, out: &mut Out) -> Turn {
        let Some(entry) = self.entries.get_mut(&thing) else { return Turn::Wait };
        if let Hold::Here { busy, .. } = &mut entry.hold {
            *busy = Some(Busy::Serving(request.operation));
            let (operation, work) = (request.operation, served(thing, &request.work));
            out.want(Effect::Serve { operation, thing, work });
        }
        Turn::Wait
    }

    /// Shows it to who looks, lends it to who changes it; what goes to others needs to be fetched.
    fn give(
        &mut self,
        thing: Thing,
        request: &Request,
        body: &mut Option<(Giving, Body)>,
        cx: &Context<'_>,
        out: &mut Out,
    ) -> Turn {
        let Some(entry) = self.entries.get_mut(&thing) else { return Turn::Wait };
        let Hold::Here { shown, busy, .. } = &mut entry.hold else { return Turn::Wait };
        let to = Giving::of(&request.work);
        let body = body.take().filter(|(fetched_to, _)| request.from != cx.me && *fetched_to == to);
        let body = body.map(|(_, body)| body);
        if body.is_none() && request.from != cx.me {
            *busy = Some(Busy::Fetching);
            out.want(Effect::Fetch { thing, to });
            return Turn::Wait;
        }
        self.loans += 1;
        let loan = Loan { by: cx.me, number: self.loans };
        let (to, operation) = (request.from, request.operation);
        if matches!(request.work, Work::Look(_)) {
            shown.insert(to, loan);
            out.say(to, Message::Show { operation, thing, loan, body });
        } else {
            entry.hold = Hold::Lent { to, loan, recalled: false };
            out.say(to, Message::Lend { operation, thing, loan, body });
        }
        Turn::Next
    }
}

/// Whether who wants something done may be given the thing for that.
fn may_have(thing: Thing, request: &Request, cx: &Context<'_>) -> bool {
    let to = Giving::of(&request.work);
    request.from == cx.me || cx.local.may_go(thing, request.from, to)
}

/// Whether somebody changes it now or has lately, other than `but`.
fn is_changed(entry: &Entry, but: Option<Member>, thing: Thing, cx: &Context<'_>) -> bool {
    let recent = |since| !cx.is_past(since, cx.terms.calm);
    let mut changers = entry.changers.iter();
    changers.any(|(member, since)| Some(*member) != but && recent(*since))
        || (but != Some(cx.me) && cx.local.in_use(thing))
}

/// What is wanted of a thing, as it is carried out. Who looks at a directory may have a name looked
/// for, and that may need the directory as who changes it does: so it steps aside, as who looks for
/// one, or it would wait for what waits behind it.
pub(super) fn served(thing: Thing, work: &Work) -> Work {
    match (thing, work) {
        (Thing::Directory(_), Work::Look(look)) => Work::Find(look.clone()),
        (_, work) => work.clone(),
    }
}
