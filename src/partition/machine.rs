//! One server's part of the protocol: what is heard goes to who decides or to who borrows, what
//! they say goes into channels, and what is in these and not in the session yet goes into frames.
//!
//! Invariant: a step is a function of what is durable, of the leases and sessions of this process,
//! and of its input. Not here: what becomes of a removed member's things (`removal`).

use std::collections::BTreeMap;

use terral_format::disk::partition::Record;
use terral_format::ids::{Epoch, Member, Operation, Thing};
use terral_format::moment::Moment;
use terral_format::wire::peers::{Answer, Failure, Frame, Message};

use crate::durable::Durable;
use crate::effect::{Access, Context, Effect, Input, Local, Out};
use crate::fitting::fitting;
use crate::lease::{self, Lease, Leases};
use crate::left_out::{Rule, keeps};
use crate::terms::Terms;

/// What is so of the present session with a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    /// How many of our messages were put into it, or taken before.
    pub(crate) sent: u64,
    /// A frame is owed: it has asked for the lease, or what it has sent was taken and it is to know
    /// that now.
    pub(crate) owes: bool,
    /// What it has sent was taken, and is said with whatever is said next: most answer it, or ask
    /// more. By itself it is said when more has come, so that nobody waits for that who has sent
    /// what he may, or when time has passed.
    pub(crate) late: bool,
    /// We ask for the lease.
    pub(crate) renew: bool,
    /// The latest table by which it has spoken.
    pub(crate) epoch: Epoch,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    pub(crate) durable: Durable,
    pub(crate) leases: Leases,
    pub(crate) sessions: BTreeMap<Member, Session>,
    pub(crate) terms: Terms,
}

macro_rules! context {
    ($machine:expr, $now:expr, $local:expr) => {
        Context {
            me: $machine.durable.me,
            now: $now,
            terms: &$machine.terms,
            table: &$machine.durable.table,
            leases: &$machine.leases,
            local: $local,
        }
    };
}
pub(crate) use context;

impl Machine {
    /// The server of this memory, new or after its process has died. What clients may do is then to
    /// be made what [`Machine::access`] says, before anything of what is wanted is done.
    pub fn start(
        durable: Durable,
        terms: Terms,
        now: Moment,
        local: &dyn Local,
    ) -> (Self, Vec<Effect>) {
        let all = durable.table.members.keys().copied();
        let bound = all.filter(|at| *at != durable.me && durable.table.may_live(*at));
        let leases = bound.map(|member| (member, Lease::after_restart(now, &terms))).collect();
        let mut machine = Machine { durable, leases, sessions: BTreeMap::new(), terms };
        let mut out = Out::default();
        if machine.is_expelled() {
            return (machine, vec![Effect::Expelled]);
        }
        let cx = context!(machine, now, local);
        machine.durable.decider.restart(&mut out);
        machine.durable.borrower.restart(&cx, &mut out);
        machine.conclude(now, local, &mut out);
        (machine, out.effects)
    }

    /// What is to be written down before the effects of a step are carried out.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// What is to be written down of what has happened since this was last asked.
    pub fn take_changes(&mut self) -> Vec<Record> {
        self.durable.take_changes()
    }

    /// What clients may do with a thing without asking.
    pub fn access(&self, thing: Thing, now: Moment, local: &dyn Local) -> Access {
        if self.is_expelled() {
            return Access::Nothing;
        }
        self.durable.borrower.access(thing, &context!(self, now, local))
    }

    /// Whether another member has shown a thing, and who has it to change asks this one first.
    pub fn is_shown(&self, thing: Thing, now: Moment, local: &dyn Local) -> bool {
        !self.is_expelled() && self.durable.borrower.is_shown(thing, &context!(self, now, local))
    }

    /// Whether what a thing is, is here and nowhere else: also while clients are leaving it, and
    /// while it is only shown, or changed for others.
    pub fn has(&self, thing: Thing, now: Moment, local: &dyn Local) -> bool {
        let access = self.access(thing, now, local);
        matches!(access, Access::Change | Access::Look) || self.durable.decider.is_here(thing)
    }

    /// Whether who decides a thing wants it back, and it is still here.
    pub fn is_recalled(&self, thing: Thing) -> bool {
        self.durable.borrower.is_recalled(thing)
    }

    /// Whether another member still wants something done by this operation.
    pub fn is_wanted(&self, operation: Operation) -> bool {
        self.durable.decider.is_wanted(operation)
    }

    /// How much another member wants that is not done: how many things, and bytes.
    pub fn wanted_by(&self, member: Member) -> (usize, usize) {
        self.durable.decider.wanted_by(member)
    }

    /// About how many bytes another member was told that it has not taken, as far as is known.
    pub fn untaken(&self, member: Member) -> usize {
        self.durable.channels.get(&member).map_or(0, |channel| channel.untaken_bytes())
    }

    /// Whether this server decides a thing.
    pub fn decides(&self, thing: Thing) -> bool {
        self.decider(thing) == Some(self.durable.me)
    }

    /// How many things of its own others have, and how many of others it has.
    pub fn loans(&self) -> (u64, u64) {
        let borrowed = self.durable.borrower.borrowed(self.durable.me);
        (self.durable.decider.lent(self.durable.me), borrowed.count() as u64)
    }

    /// Who decides a thing; none if the table does not know who made it.
    pub fn decider(&self, thing: Thing) -> Option<Member> {
        self.durable.table.decider(thing.number())
    }

    /// Whether a frame would renew the lease of something that this server has: what tests ask.
    #[cfg(test)]
    pub(crate) fn is_renewed_by(&self, frame: &Frame) -> bool {
        let has = self.durable.borrower.lenders().any(|lender| lender == frame.from);
        let until = lease::until(&self.leases, frame.from);
        has && frame.renewed.is_some_and(|sent| sent + self.terms.lease > until)
    }

    pub(crate) fn is_expelled(&self) -> bool {
        self.durable.table.is_removed(self.durable.me)
    }

    /// Something has happened. `now` never goes back.
    pub fn handle(&mut self, now: Moment, local: &dyn Local, input: Input) -> Vec<Effect> {
        let mut out = Out::default();
        if self.is_expelled() {
            if let Input::Wish { wish, .. } = input {
                let answer: Answer = Err(Failure::Removed(self.durable.me));
                out.want(Effect::Answer { wish, answer });
            }
            return out.effects;
        }
        if keeps(Rule::TakeAwayFirst) || input == Input::Tick {
            let cx = context!(self, now, local);
            self.durable.borrower.take_away(&cx, &mut out);
        }
        match input {
            Input::Frame(frame) => self.frame(frame, now, local, &mut out),
            Input::Connected(member) => self.connected(member),
            Input::Table(table) => self.table(table, now, local, &mut out),
            Input::Tick => self.tick(now, local, &mut out),
            local_input => self.heard_here(local_input, now, local, &mut out),
        }
        self.conclude(now, local, &mut out);
        out.effects
    }

    fn heard_here(&mut self, input: Input, now: Moment, local: &dyn Local, out: &mut Out) {
        let cx = context!(self, now, local);
        let decider = &mut self.durable.decider;
        let borrower = &mut self.durable.borrower;
        match input {
            Input::Wish { wish, thing, work } => borrower.wish(wish, (thing, work), &cx, out),
            Input::Ran(wish) => borrower.ran(wish, &cx, out),
            Input::Forget(wish) => borrower.forget(wish, &cx, out),
            Input::Recalled { thing, body } => borrower.left(thing, body, &cx, out),
            Input::Fetched { thing, to, body } => decider.fetched((thing, to), body, &cx, out),
            Input::Served { operation, thing, answer } => {
                if !decider.served((operation, thing), &answer, &cx, out) {
                    borrower.served(operation, thing, answer, out);
                }
            }
            Input::Later { operation, thing } => decider.later((operation, thing), &cx, out),
            Input::Again { operation, thing } => decider.again((operation, thing), &cx, out),
            Input::Rest(thing) => borrower.rests(thing, &cx, out),
            Input::GiveBack(thing) => borrower.give_back(thing, &cx, out),
            Input::Restored { thing, is } => decider.restored(thing, is, &cx, out),
            Input::Frame(_) | Input::Connected(_) | Input::Tick | Input::Table(_) => {}
        }
    }

    fn connected(&mut self, member: Member) {
        if self.durable.table.server(member).is_some() {
            let channel = self.durable.channels.entry(member).or_default();
            let sent = channel.acknowledged();
            self.sessions.insert(member, Session { sent, owes: true, ..Session::default() });
        }
    }

    fn tick(&mut self, now: Moment, local: &dyn Local, out: &mut Out) {
        let cx = context!(self, now, local);
        self.durable.decider.tick(&cx, out);
        self.durable.borrower.give_up_waiting(&cx, out);
        self.sessions.values_mut().for_each(|session| session.owes |= session.late);
        for lender in self.durable.borrower.lenders().collect::<Vec<_>>() {
            if lease::until(&self.leases, lender) <= now + self.terms.lease / 2 {
                let session = self.sessions.entry(lender).or_default();
                (session.owes, session.renew) = (true, true);
            }
        }
    }

    /// A frame has come. One from who is not in, or who goes by a later table, is as if it were
    /// lost: it is sent again once this server has that table.
    fn frame(&mut self, frame: Frame, now: Moment, local: &dyn Local, out: &mut Out) {
        let from = frame.from;
        let table = &self.durable.table;
        if frame.epoch > table.epoch {
            out.want(Effect::NeedTable(frame.epoch));
            return;
        }
        if table.server(from) != Some(frame.server) || from == self.durable.me {
            return;
        }
        let channel = self.durable.channels.entry(from).or_default();
        channel.acknowledge(frame.taken);
        let session = self.sessions.entry(from).or_default();
        if frame.epoch > session.epoch {
            session.epoch = frame.epoch;
            session.sent = channel.acknowledged();
        }
        let says = !frame.messages.is_empty();
        session.owes |= frame.renew || says && session.late;
        session.late |= says;
        // All that was said before it and with it is taken with this step, or has been.
        let has_gap = frame.before > channel.taken();
        let is_in_order = !has_gap || !keeps(Rule::RenewInOrder);
        let lease = self.leases.entry(from).or_default();
        lease.hear(frame.sent, now);
        if let Some(sent) = frame.renewed.filter(|_| is_in_order) {
            lease.renewed(sent, now, &self.terms);
        }
        if has_gap {
            return;
        }
        for (before, message) in (frame.before..).zip(frame.messages) {
            if self.durable.channels.entry(from).or_default().take(before) {
                self.dispatch(from, message, now, local, out);
            }
        }
    }

    fn dispatch(
        &mut self,
        from: Member,
        message: Message,
        now: Moment,
        local: &dyn Local,
        out: &mut Out,
    ) {
        let cx = context!(self, now, local);
        if !is_sensible(from, &message, &cx) && keeps(Rule::OnlyItsBusiness) {
            return;
        }
        let decider = &mut self.durable.decider;
        let borrower = &mut self.durable.borrower;
        match message {
            Message::Want { operation, thing, work } => {
                decider.want((from, operation), (thing, work), &cx, out);
            }
            Message::Return { thing, loan, body, in_use } => {
                decider.returned((from, thing, loan), (body, in_use), &cx, out);
            }
            Message::Dropped { thing, loan } => decider.dropped((from, thing, loan), &cx, out),
            Message::Looked { operation, thing, answer } => {
                decider.looked((from, operation), thing, answer, out);
            }
            Message::Holds { removed, held, more } => {
                decider.holds((from, removed), (held, more), &cx, out);
            }
            Message::Lend { operation, thing, loan, body } => {
                borrower.lent((from, operation), (thing, loan, body), &cx, out);
            }
            Message::Show { operation, thing, loan, body } => {
                borrower.shown((from, operation), (thing, loan, body), &cx, out);
            }
            Message::Done { operation, answer } => borrower.done((from, operation), answer, out),
            Message::Recall { thing, loan } => borrower.recalled((from, thing, loan), &cx, out),
            Message::Ask { operation, thing, loan, look } => {
                borrower.asked((from, operation), (thing, loan, look), &cx, out);
            }
        }
    }

    /// Ends a step: hears what this server has said to itself, makes known what is shown, moves the
    /// deadline on, and sends.
    fn conclude(&mut self, now: Moment, local: &dyn Local, out: &mut Out) {
        while let Some((to, message)) = out.messages.pop_front() {
            if to == self.durable.me {
                self.dispatch(to, message, now, local, out);
            } else if self.durable.table.server(to).is_some() {
                self.durable.channels.entry(to).or_default().say(message);
            }
        }
        let cx = context!(self, now, local);
        let until = self.durable.borrower.mark(self.durable.word, &cx, out);
        if let Some(until) = until.filter(|until| *until > self.durable.word) {
            self.durable.word = until;
            out.want(Effect::Deadline(until));
        }
        let recalls = std::mem::take(&mut out.recalls);
        if !recalls.is_empty() {
            out.want(Effect::Recall(recalls));
        }
        self.send(now, out);
    }

    fn send(&mut self, now: Moment, out: &mut Out) {
        let Durable { me, server, table, decider, channels, .. } = &mut self.durable;
        for (to, channel) in channels.iter_mut().filter(|(to, _)| table.server(**to).is_some()) {
            let session = self.sessions.entry(*to).or_default();
            session.sent = session.sent.max(channel.acknowledged());
            let (said, taken) = (channel.said(), channel.taken());
            let (mut sent, kept) = (channel.index(session.sent), channel.kept());
            let mut window = WINDOW.saturating_sub(frames_of(&kept[..sent]));
            if (session.sent == said || window == 0) && !session.owes {
                continue;
            }
            let lease = self.leases.entry(*to).or_default();
            let renewed = if decider.awaits(*to) { None } else { lease.renew(&self.terms) };
            loop {
                // Who has sent all that may be under way says at least what it has taken.
                let fits = if window > 0 { fitting(&kept[sent..]) } else { 0 };
                let messages = kept[sent..sent + fits].to_vec();
                (sent, window) = (sent + fits, window.saturating_sub(1));
                // A lease counts once all is taken that was said before: it goes with the last.
                let is_last = sent == kept.len();
                let frame = Frame {
                    from: *me,
                    server: *server,
                    epoch: table.epoch,
                    taken,
                    before: session.sent,
                    messages,
                    sent: now,
                    renewed: renewed.filter(|_| is_last || !keeps(Rule::RenewWithTheLast)),
                    renew: session.renew && is_last,
                };
                session.sent += fits as u64;
                session.renew &= !is_last;
                out.want(Effect::Send { to: *to, frame });
                if is_last || window == 0 {
                    break;
                }
            }
            (session.owes, session.late) = (false, false);
            channel.sent();
        }
    }
}

/// How many frames with messages, of 960 KiB at most each, are under way to a member that has not
/// said to have taken them: less than any network refuses. Who has more to say goes on as they are
/// taken.
pub const WINDOW: usize = 4;

/// How many frames these are.
fn frames_of(mut messages: &[Message]) -> usize {
    let mut count = 0;
    while !messages.is_empty() {
        messages = &messages[fitting(messages)..];
        count += 1;
    }
    count
}

/// Whether a member says what it may say: of what it decides, to who borrows; of what this server
/// decides, to who decides. Nothing else comes from a member that goes by the same table.
fn is_sensible(from: Member, message: &Message, cx: &Context<'_>) -> bool {
    let decides = |thing: &Thing, member| cx.table.decider(thing.number()) == Some(member);
    match message {
        Message::Lend { thing, .. }
        | Message::Show { thing, .. }
        | Message::Recall { thing, .. }
        | Message::Ask { thing, .. } => decides(thing, from),
        Message::Want { operation, thing, .. } => operation.by == from && decides(thing, cx.me),
        Message::Looked { thing, .. }
        | Message::Return { thing, .. }
        | Message::Dropped { thing, .. } => decides(thing, cx.me),
        Message::Done { .. } | Message::Holds { .. } => true,
    }
}
