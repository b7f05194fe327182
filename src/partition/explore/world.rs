//! Three servers, their clients, the network between them, time, and the control.
//!
//! No server need do anything, for any time: a freeze of any length is one of the orders that are
//! tried. A step that breaks a promise gives an error that says which.

use std::collections::VecDeque;

use terral_format::ids::{Member, Thing, Wish};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Answer, Failure, Frame, Work};

use crate::effect::{Access, Effect, Input};
use crate::members::Verdict;

use super::bounds::{Bounds, UNIT_NS};
use super::bytes;
use super::hashing::{self, Hashed, Pool};
use super::oracle::{Oracle, State};
use super::server::{self, Process, SERVERS, Server, THINGS, index, member, thing};
use super::step::Step;

/// What is on its way from one server to another, in order.
type Wire = Hashed<VecDeque<Frame>>;

/// What many states have in common.
pub(crate) type Pools = (Pool<Server>, Pool<VecDeque<Frame>>);

/// Everything.
#[derive(Clone)]
pub(crate) struct World {
    /// What may still happen.
    pub(crate) left: Bounds,
    /// Nanoseconds.
    pub(crate) time: u64,
    /// What the servers' clocks count while 1000 pass.
    pub(crate) rates: [u64; SERVERS],
    servers: [Hashed<Server>; SERVERS],
    wires: [[Wire; SERVERS]; SERVERS],
    pub(crate) oracle: Oracle,
    /// Whom the control has removed, and what it knew of them.
    pub(crate) removed: Vec<(usize, Verdict)>,
    /// Of how many each server knows.
    told: [usize; SERVERS],
    /// A frame came too early, and was in vain.
    pub(crate) has_gaps: bool,
}

fn body(number: u8) -> Body {
    Body::new([number]).expect("a byte")
}

impl World {
    pub(crate) fn new(bounds: Bounds) -> Self {
        World {
            left: bounds,
            time: UNIT_NS,
            rates: [1000; SERVERS],
            servers: std::array::from_fn(|at| Hashed::new(Server::new(at))),
            wires: std::array::from_fn(|_| std::array::from_fn(|_| Hashed::new(VecDeque::new()))),
            oracle: Oracle { things: vec![Default::default(); bounds.things], ..Oracle::default() },
            removed: Vec::new(),
            told: [0; SERVERS],
            has_gaps: false,
        }
    }

    /// A number that no other state has, but for chance.
    pub(crate) fn hash(&self) -> u64 {
        let servers: [u64; SERVERS] = std::array::from_fn(|at| self.servers[at].hash());
        let wires = self.wires.each_ref().map(|wires| wires.each_ref().map(|wire| wire.hash()));
        let rest = (wires, &self.oracle, &self.removed, self.told, self.has_gaps);
        hashing::of(&(self.left, self.time, self.rates, servers, rest))
    }

    /// What is in other states, too, is in memory once.
    pub(crate) fn share(&mut self, (servers, wires): &mut Pools) {
        self.servers.iter_mut().for_each(|server| server.share(servers));
        self.wires.iter_mut().flatten().for_each(|wire| wire.share(wires));
    }

    /// What time it is by a server's clock.
    pub(crate) fn clock(&self, at: usize) -> Moment {
        Moment(self.time * self.rates[at] / 1000)
    }

    pub(crate) fn server(&self, at: usize) -> &Server {
        &self.servers[at]
    }

    pub(crate) fn wire(&self, from: usize, to: usize) -> &VecDeque<Frame> {
        &self.wires[from][to]
    }

    pub(crate) fn is_up(&self, at: usize) -> bool {
        matches!(self.server(at).process, Process::Up(_))
    }

    pub(crate) fn is_down(&self, at: usize) -> bool {
        matches!(self.server(at).process, Process::Down(_))
    }

    pub(crate) fn is_lost(&self, at: usize) -> bool {
        matches!(self.server(at).process, Process::Lost)
    }

    /// Whether a server's clients can do something: it is there, and does not know that it was
    /// removed, if it was.
    pub(crate) fn serves(&self, at: usize) -> bool {
        match &self.server(at).process {
            Process::Up(machine) => !machine.is_expelled(),
            Process::Down(_) => true,
            Process::Lost => false,
        }
    }

    fn is_removed(&self, at: usize) -> bool {
        self.removed.iter().any(|(removed, _)| *removed == at)
    }

    /// Whether the control may remove a member: not twice, and not the last one.
    pub(crate) fn may_remove(&self, at: usize) -> bool {
        !self.is_removed(at) && self.removed.len() + 1 < SERVERS
    }

    /// Whether a server does not know all that the control has decided.
    pub(crate) fn has_news(&self, at: usize) -> bool {
        self.told[at] < self.removed.len()
    }

    /// Whether a server does anything if it notices what time it is.
    pub(crate) fn notices(&self, at: usize) -> bool {
        let mut server = self.server(at).clone();
        let effects = server.handle(self.clock(at), Input::Tick);
        !effects.is_empty() || server != *self.server(at)
    }

    fn change<T>(&mut self, at: usize, act: impl FnOnce(&mut Server) -> T) -> T {
        let is_first = self.servers[at].hash() != 0;
        let server = self.servers[at].change();
        if is_first {
            server.has_written();
        }
        act(server)
    }

    /// What it comes to. With `halts`, the process of who takes the step dies once what is durable
    /// of it is written down.
    pub(crate) fn after(&self, step: Step, halts: bool) -> Result<World, String> {
        let mut world = self.clone();
        world.take(step, halts)?;
        world.servers.iter_mut().for_each(Hashed::hash_anew);
        world.wires.iter_mut().flatten().for_each(Hashed::hash_anew);
        world.check()?;
        Ok(world)
    }

    /// The records of what has changed lead from here to there, for each server that has changed.
    pub(crate) fn records_lead_to(&self, next: &World) {
        for at in (0..SERVERS).filter(|at| self.servers[*at].hash() != next.servers[*at].hash()) {
            if let (Some(before), Some(now)) =
                (self.server(at).durable(), next.server(at).durable())
            {
                bytes::follows(before, now);
            }
        }
    }

    /// What it comes to if a server hears something that nobody of these has said.
    pub(crate) fn hearing(&self, to: usize, frame: Frame) -> Result<World, String> {
        let mut world = self.clone();
        world.deliver(to, Some(bytes::carried(&frame)), false)?;
        world.servers.iter_mut().for_each(Hashed::hash_anew);
        world.wires.iter_mut().flatten().for_each(Hashed::hash_anew);
        world.check()?;
        Ok(world)
    }

    fn take(&mut self, step: Step, halts: bool) -> Result<(), String> {
        match step {
            Step::Begin { server, thing, changes } => self.begin(server, thing, changes, halts),
            Step::Run { server, request } => self.run(server, request, halts),
            Step::Leave { server, thing: at } => {
                let body = body(self.server(server).content[at]);
                self.change(server, |s| {
                    (s.recalling[at], s.access[at]) = (false, Access::Nothing);
                });
                self.tell(server, Input::Recalled { thing: thing(at), body }, halts)
            }
            Step::Again { server } => {
                let (operation, thing) = self.change(server, |s| s.later.remove(0));
                self.tell(server, Input::Again { operation, thing }, halts)
            }
            Step::Rest { server, thing: at } => {
                self.change(server, |s| s.in_use.0[at] = false);
                self.tell(server, Input::Rest(thing(at)), halts)
            }
            Step::GiveBack { server, thing: at } => {
                self.left.returns -= 1;
                self.tell(server, Input::GiveBack(thing(at)), halts)
            }
            Step::Deliver { from, to } => {
                let frame = self.wires[from][to].change().pop_front();
                self.deliver(to, frame, halts)
            }
            Step::Pass { ns } => {
                self.left.time = self.left.time.saturating_sub(1);
                self.time += ns;
                for at in 0..SERVERS {
                    let is_up = self.is_up(at);
                    self.change(at, |server| server.ticked = !is_up);
                }
                Ok(())
            }
            Step::Tick { server } => {
                self.change(server, |server| server.ticked = true);
                self.tell(server, Input::Tick, halts)
            }
            Step::Tell { server } => {
                self.told[server] = self.removed.len();
                self.tell(server, Input::Table(server::table(&self.removed)), halts)
            }
            failure => self.fail(failure),
        }
    }

    /// Something goes wrong, or is put right by the control.
    fn fail(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Double { from, to } => {
                self.left.doubles -= 1;
                self.deliver(to, self.wire(from, to).front().cloned(), false)
            }
            Step::Swap { from, to } => {
                self.left.swaps -= 1;
                self.has_gaps = true;
                let frame = self.wires[from][to].change().remove(1);
                self.deliver(to, frame, false)
            }
            Step::Cut { one, other } => {
                self.left.cuts -= 1;
                self.lose(one, other);
                self.lose(other, one);
                self.connect(one, other)
            }
            Step::Part { one, other } => {
                (self.left.cuts, self.left.doubles) = (self.left.cuts - 1, self.left.doubles - 1);
                self.connect(one, other)
            }
            Step::Crash { server } => {
                self.left.crashes -= 1;
                self.crash(server);
                Ok(())
            }
            Step::Restart { server } => self.restart(server),
            Step::Die { server } => {
                self.left.deaths -= 1;
                self.change(server, |server| {
                    server.crash();
                    (server.process, server.access) = (Process::Lost, [Access::Nothing; THINGS]);
                });
                (0..SERVERS).for_each(|from| self.lose(from, server));
                Ok(())
            }
            Step::Remove { server } => {
                let verdict = if self.is_lost(server) { Verdict::Dead } else { Verdict::Fenced };
                self.left.fences -= u8::from(verdict == Verdict::Fenced);
                self.removed.push((server, verdict));
                Ok(())
            }
            other => Err(format!("{other:?} is no failure")),
        }
    }

    /// The machine is told something, and what it wants is done, or is not.
    fn tell(&mut self, at: usize, input: Input, halts: bool) -> Result<(), String> {
        let now = self.clock(at);
        let effects = self.change(at, |server| server.handle(now, input));
        if !halts {
            return self.carry_out(at, effects);
        }
        for effect in effects {
            if let Effect::Install { .. } = effect {
                self.carry_out(at, vec![effect])?;
            }
        }
        self.left.crashes -= 1;
        self.crash(at);
        Ok(())
    }

    fn crash(&mut self, at: usize) {
        self.change(at, Server::crash);
        (0..SERVERS).for_each(|from| self.lose(from, at));
    }

    /// Does in order what is wanted; what the server around says then is said afterwards.
    fn carry_out(&mut self, at: usize, effects: Vec<Effect>) -> Result<(), String> {
        let mut then = Vec::new();
        for effect in effects {
            let Some(effect) = of_other_things(effect, &mut then) else { continue };
            match effect {
                Effect::Send { to, frame } => self.send(at, to, frame)?,
                Effect::Install { thing, body } => {
                    self.change(at, |server| server.content[index(thing)] = body.bytes()[0]);
                }
                Effect::Publish { thing, access } => self.change(at, |server| {
                    server.access[index(thing)] = access;
                    server.recalling[index(thing)] = false;
                }),
                Effect::Deadline(word) => self.change(at, |server| server.word = word),
                Effect::Recall(things) => self.change(at, |server| {
                    things.into_iter().for_each(|thing| server.recalling[index(thing)] = true);
                }),
                Effect::Fetch { thing, to } => {
                    let content = self.server(at).content[index(thing)];
                    let body = (self.left.larges == 0).then(|| body(content));
                    self.left.larges = self.left.larges.saturating_sub(1);
                    then.push(Input::Fetched { thing, to, body });
                }
                Effect::Serve { operation, thing, work: Work::Change(_) | Work::Find(_) }
                    if self.left.delays > 0 =>
                {
                    self.left.delays -= 1;
                    self.change(at, |server| server.later.push((operation, thing)));
                    then.push(Input::Later { operation, thing });
                }
                Effect::Serve { operation, thing, work } => {
                    let answer = body(self.serve(at, index(thing), &work)?);
                    then.push(Input::Served { operation, thing, answer });
                }
                Effect::Go(wish) => {
                    self.change(at, |server| server.ready.insert(wish.0 as u8));
                }
                Effect::Answer { wish, answer } => {
                    self.answer(wish.0 as u8, answer)?;
                    then.push(Input::Forget(wish));
                }
                Effect::Expelled => self.change(at, |server| {
                    (server.ready, server.recalling, server.later) = Default::default();
                    server.access = [Access::Nothing; THINGS];
                }),
                // Nothing is, where nobody says that it may be.
                Effect::NeedTable(_) | Effect::Restore { .. } => {}
            }
        }
        then.into_iter().try_for_each(|input| self.tell(at, input, false))
    }

    fn send(&mut self, from: usize, to: Member, frame: Frame) -> Result<(), String> {
        let to = (0..SERVERS).find(|at| member(*at) == to).expect("there are no others");
        if !self.is_up(to) {
            return Ok(());
        }
        let frame = bytes::carried(&frame);
        // What renews nothing and says nothing might as well be there.
        let machine = self.server(to).machine();
        let renews = frame.renew || machine.is_some_and(|machine| machine.is_renewed_by(&frame));
        let says = renews || !frame.messages.is_empty();
        if !says && self.wire(from, to).is_empty() {
            return self.deliver(to, Some(frame), false);
        }
        let wire = self.wires[from][to].change();
        // Of two that say nothing and ask the same, the later might as well be the only one.
        let is_silent = |frame: &Frame| frame.messages.is_empty();
        if wire.back().is_some_and(|l| is_silent(l) && is_silent(&frame) && frame.renew >= l.renew)
        {
            wire.pop_back();
        }
        wire.push_back(frame);
        Ok(())
    }

    fn deliver(&mut self, to: usize, frame: Option<Frame>, halts: bool) -> Result<(), String> {
        match frame {
            Some(frame) => self.tell(to, Input::Frame(frame), halts),
            None => Ok(()),
        }
    }

    /// What is on its way is lost.
    fn lose(&mut self, from: usize, to: usize) {
        if !self.wire(from, to).is_empty() {
            self.wires[from][to].change().clear();
        }
    }

    fn connect(&mut self, one: usize, other: usize) -> Result<(), String> {
        self.tell(one, Input::Connected(member(other)), false)?;
        self.tell(other, Input::Connected(member(one)), false)
    }

    fn restart(&mut self, at: usize) -> Result<(), String> {
        let now = self.clock(at);
        let effects = self.change(at, |server| server.restart(now));
        self.carry_out(at, effects)?;
        for other in (0..SERVERS).filter(|other| *other != at) {
            self.lose(at, other);
            self.lose(other, at);
            if self.is_up(other) {
                self.connect(at, other)?;
            }
        }
        let mut all = self.oracle.requests.clone();
        all.retain(|_, request| request.server == at && request.state == State::Open);
        all.into_keys().try_for_each(|request| self.want(request, false))
    }

    fn want(&mut self, request: u8, halts: bool) -> Result<(), String> {
        let asked = *self.oracle.request(request);
        let what = body(request);
        let work = match asked.changes {
            true if self.left.takes && request % 2 == 1 => Work::Take,
            true => Work::Change(what),
            false if self.left.finds && request % 2 == 1 => Work::Find(what),
            false => Work::Look(what),
        };
        let wish = Wish(u64::from(request));
        self.change(asked.server, |server| server.ready.remove(&request));
        self.tell(asked.server, Input::Wish { wish, thing: thing(asked.thing), work }, halts)
    }

    fn begin(&mut self, at: usize, thing: usize, changes: bool, halts: bool) -> Result<(), String> {
        let left = if changes { &mut self.left.changes } else { &mut self.left.looks };
        *left -= 1;
        let request = self.oracle.begin(at, thing, changes);
        if changes && self.server(at).access[thing] == Access::Change {
            return self.carry_out_here(at, request);
        }
        if self.is_up(at) { self.want(request, halts) } else { Ok(()) }
    }

    fn run(&mut self, at: usize, request: u8, halts: bool) -> Result<(), String> {
        self.change(at, |server| server.ready.remove(&request));
        self.carry_out_here(at, request)?;
        self.tell(at, Input::Ran(Wish(u64::from(request))), halts)
    }

    /// A client's request is carried out where the client is.
    fn carry_out_here(&mut self, at: usize, request: u8) -> Result<(), String> {
        let asked = *self.oracle.request(request);
        let mut content = self.server(at).content[asked.thing];
        if asked.changes {
            content = self.oracle.change(request, content)?;
            let in_use = self.left.in_use;
            self.change(at, |server| {
                server.content[asked.thing] = content;
                server.in_use.0[asked.thing] = in_use;
            });
        }
        self.answer(request, Ok(body(content)))
    }

    /// A request is carried out where the thing is, for somebody else.
    fn serve(&mut self, at: usize, thing: usize, work: &Work) -> Result<u8, String> {
        let content = self.server(at).content[thing];
        let Work::Change(what) = work else { return Ok(content) };
        let content = self.oracle.change(what.bytes()[0], content)?;
        self.change(at, |server| server.content[thing] = content);
        Ok(content)
    }

    fn answer(&mut self, request: u8, answer: Answer) -> Result<(), String> {
        match answer {
            Ok(seen) => self.oracle.answer(request, seen.bytes()[0]),
            Err(Failure::Removed(of)) if self.removed.iter().all(|(at, _)| member(*at) != of) => {
                Err(format!("{of} is said to be removed"))
            }
            // Who must have what is too large is told so, also then.
            Err(Failure::TooLarge) => self.oracle.conclude(request, State::Failed),
            Err(failure) if self.left.is_calm => Err(format!("{failure:?} on a calm day")),
            Err(failure) => {
                let asked = *self.oracle.request(request);
                let has = |at: &usize| self.server(*at).access[asked.thing] == Access::Change;
                let is_in = |at: &usize| !self.is_lost(*at) && !self.is_removed(*at);
                let has = (0..SERVERS).filter(is_in).find(has);
                let looks = !asked.changes && self.serves(asked.server);
                if let (Failure::Removed(_), true, Some(has)) = (failure, looks, has) {
                    return Err(format!("thing {} is said to be lost: {has} has it", asked.thing));
                }
                self.oracle.conclude(request, State::Failed)
            }
        }
    }

    /// What clients may do is what they may if the process is followed by another one.
    fn is_as_published(&self, at: usize) -> Result<(), String> {
        let server = self.server(at);
        let Some(machine) = server.machine() else { return Ok(()) };
        for index in 0..self.oracle.things.len() {
            let may = machine.access(thing(index), self.clock(at), &server.in_use);
            let access = server.access[index];
            if may != access {
                return Err(format!(
                    "server {at} has published {access:?} of {index}, not {may:?}"
                ));
            }
        }
        Ok(())
    }

    /// What holds at any moment.
    fn check(&self) -> Result<(), String> {
        for at in 0..SERVERS {
            self.is_as_published(at)?;
        }
        let serving: Vec<usize> = (0..SERVERS).filter(|at| self.serves(*at)).collect();
        for thing in 0..self.oracle.things.len() {
            let may = |at: &usize, access| self.server(*at).access[thing] == access;
            let changers = serving.iter().filter(|at| may(at, Access::Change)).count();
            let shows = |at: &usize| self.server(*at).shows(thing, self.clock(*at));
            let lookers: Vec<usize> = serving.iter().copied().filter(shows).collect();
            if changers > 1 || changers == 1 && lookers.len() > 1 {
                return Err(format!("thing {thing} is changed while {lookers:?} may use it"));
            }
            let made = self.oracle.things[thing].made;
            for at in lookers {
                let content = self.server(at).content[thing];
                if content != made {
                    return Err(format!(
                        "server {at} shows {content} of thing {thing}, not {made}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Does what is wanted with things that no client here uses: who does harm speaks of them.
fn of_other_things(effect: Effect, then: &mut Vec<Input>) -> Option<Effect> {
    let is_one = |thing: &Thing| server::is_one(*thing);
    let body = || body(0);
    match effect {
        Effect::Recall(things) => {
            let (these, others): (Vec<Thing>, _) = things.into_iter().partition(is_one);
            then.extend(others.into_iter().map(|thing| Input::Recalled { thing, body: body() }));
            return Some(Effect::Recall(these));
        }
        Effect::Fetch { thing, to } if !is_one(&thing) => {
            then.push(Input::Fetched { thing, to, body: Some(body()) })
        }
        Effect::Serve { operation, thing, .. } if !is_one(&thing) => {
            then.push(Input::Served { operation, thing, answer: body() });
        }
        Effect::Install { thing, .. } | Effect::Publish { thing, .. } if !is_one(&thing) => {}
        other => return Some(other),
    }
    None
}
