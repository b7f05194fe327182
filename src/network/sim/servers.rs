//! Three servers' parts of the partition's protocol, over this network: sessions break, processes
//! stop and die, and each change of each client is made once and seen by all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::ids::{Member, Number, ServerId, Thing, Wish};
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Frame, Work};
use terral_partition::durable::Durable;
use terral_partition::effect::{Access, Effect, Input, Local};
use terral_partition::machine::Machine;
use terral_partition::members::{Standing, Table};
use terral_partition::terms::Terms;

use super::{Drift, Faults, NO_KEY, Net, Sim};
use crate::chance::Chance;
use crate::conformance::crowd::{member, server};
use crate::endpoint::{Endpoint, Event, IN_FLIGHT_BYTES, Peer, Session, Timing};
use crate::seeds::seeds;

const SERVERS: u16 = 3;
/// As few changes fail in as little time, everybody waits for as long as it takes.
const TERMS: Terms = Terms { patience: Duration::from_secs(3600), ..Terms::USUAL };

/// Who has a thing goes on changing it: others' changes are shipped.
struct InUse;

impl Local for InUse {
    fn in_use(&self, _: Thing) -> bool {
        true
    }
}

/// One server: its process's way to the others, and what is in its machine's memory.
struct Server {
    me: Member,
    end: Sim,
    machine: Machine,
    sessions: BTreeMap<Member, Session>,
    /// How often each thing was changed.
    content: BTreeMap<Thing, u64>,
    access: BTreeMap<Thing, Access>,
    /// Who wants something that is not done: it changes the thing, or looks at it.
    open: BTreeMap<Wish, (Thing, bool)>,
    /// What those saw who looked.
    seen: BTreeMap<Wish, u64>,
}

fn things() -> impl Iterator<Item = Thing> {
    (1..=SERVERS).map(|at| Thing::File(Number::new(member(at), 1).expect("50 bits")))
}

fn body(count: u64) -> Body {
    Body::new(count.to_le_bytes()).expect("eight bytes")
}

fn count(body: &Body) -> u64 {
    body.bytes().try_into().map(u64::from_le_bytes).unwrap_or_default()
}

fn start(net: &Net, at: u16, machine: impl FnOnce(&Sim) -> Machine) -> (Sim, Machine) {
    let drift = Drift { start_ns: 1, per_million: i32::from(at) * 2000 };
    let mut end = net.start(member(at), server(at), drift);
    for other in (1..=SERVERS).filter(|other| *other != at) {
        end.admit(Peer {
            member: member(other),
            server: server(other),
            key: NO_KEY,
            addresses: vec![],
        });
        end.reach(member(other));
    }
    let machine = machine(&end);
    (end, machine)
}

impl Server {
    fn new(net: &Net, at: u16) -> Self {
        let me = member(at);
        let (end, machine) = start(net, at, |end| {
            Machine::start(Durable::new(me, ServerId(server(at).0)), TERMS, end.now(), &InUse).0
        });
        let access = things().map(|thing| (thing, Access::Nothing)).collect();
        let content = things().map(|thing| (thing, 0)).collect();
        let (sessions, open, seen) = Default::default();
        let mut one = Server { me, end, machine, sessions, content, access, open, seen };
        let is_in = |at| (member(at), Standing::In(server(at)));
        let members = (1..=SERVERS).map(is_in).collect();
        one.tell(Input::Table(Table { epoch: terral_format::ids::Epoch(1), members }));
        one.look_at_access();
        one
    }

    /// What clients may do is what the machine says.
    fn look_at_access(&mut self) {
        let now = self.end.now();
        for (thing, access) in &mut self.access {
            *access = self.machine.access(*thing, now, &InUse);
        }
    }

    /// The process dies, and the next one takes its memory over.
    fn restart(&mut self, net: &Net) {
        let durable = self.machine.durable().clone();
        let mut wanted = Vec::new();
        let (end, machine) = start(net, self.me.number(), |end| {
            let (machine, effects) = Machine::start(durable, TERMS, end.now(), &InUse);
            wanted = effects;
            machine
        });
        (self.end, self.machine, self.sessions) = (end, machine, BTreeMap::new());
        self.look_at_access();
        self.carry_out(wanted);
        for (wish, (thing, changes)) in self.open.clone() {
            self.ask(wish, thing, changes);
        }
    }

    fn tell(&mut self, input: Input) {
        let effects = self.machine.handle(self.end.now(), &InUse, input);
        self.carry_out(effects);
    }

    fn ask(&mut self, wish: Wish, thing: Thing, changes: bool) {
        let work = if changes { Work::Change(body(0)) } else { Work::Look(body(0)) };
        self.tell(Input::Wish { wish, thing, work });
    }

    /// A client wants something.
    fn want(&mut self, wish: Wish, thing: Thing, changes: bool) {
        self.open.insert(wish, (thing, changes));
        if self.access[&thing] == Access::Change {
            return self.run(wish);
        }
        self.ask(wish, thing, changes);
    }

    /// It is done here.
    fn run(&mut self, wish: Wish) {
        let Some((thing, changes)) = self.open.remove(&wish) else { return };
        let content = self.content.entry(thing).or_default();
        *content += u64::from(changes);
        if !changes {
            self.seen.insert(wish, *content);
        }
    }

    fn send(&mut self, to: Member, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("our own frame");
        let Some(session) = self.sessions.get(&to).copied() else { return };
        if self.end.send(session, &bytes).is_err() {
            self.end.cut(session);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        let mut then = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send { to, frame } => self.send(to, &frame),
                Effect::Install { thing, body } => _ = self.content.insert(thing, count(&body)),
                Effect::Publish { thing, access } => _ = self.access.insert(thing, access),
                Effect::Recall(all) => {
                    for thing in all {
                        self.access.insert(thing, Access::Nothing);
                        then.push(Input::Recalled { thing, body: body(self.content[&thing]) });
                    }
                }
                Effect::Fetch { thing, to } => {
                    let body = Some(body(self.content[&thing]));
                    then.push(Input::Fetched { thing, to, body });
                }
                Effect::Serve { operation, thing, work } => {
                    let content = self.content.entry(thing).or_default();
                    *content += u64::from(matches!(work, Work::Change(_)));
                    then.push(Input::Served { operation, thing, answer: body(*content) });
                }
                Effect::Go(wish) => {
                    self.run(wish);
                    then.push(Input::Ran(wish));
                }
                Effect::Answer { wish, answer } => {
                    let answer = answer.expect("nobody is removed, and there is time");
                    if let Some((_, false)) = self.open.remove(&wish) {
                        self.seen.insert(wish, count(&answer));
                    }
                    then.push(Input::Forget(wish));
                }
                Effect::Deadline(_)
                | Effect::NeedTable(_)
                | Effect::Restore { .. }
                | Effect::Expelled => {}
            }
        }
        then.into_iter().for_each(|input| self.tell(input));
    }

    /// Hears what has come, and sees what time it is.
    fn turn(&mut self) {
        while let Some(event) = self.end.next(Default::default()) {
            match event {
                Event::Connected(session) => {
                    self.sessions.insert(session.with, session);
                    self.tell(Input::Connected(session.with));
                }
                Event::Frame(session, bytes) => match Frame::read(&bytes) {
                    Ok(frame) => self.tell(Input::Frame(frame)),
                    Err(error) => panic!("{session:?}: {error}"),
                },
                Event::Room(_) => {}
                Event::Lost(session, _) => {
                    self.sessions.remove(&session.with);
                    self.end.reach(session.with);
                }
            }
        }
        self.tell(Input::Tick);
    }
}

/// Something goes wrong, or is well again.
fn disturb(net: &Net, servers: &mut [Server], chance: &mut Chance) {
    let mut number = || chance.between(1, SERVERS.into()) as u16;
    let (one, other) = (number(), number());
    let (from, to) = (member(one), member(other));
    match chance.between(0, 30) {
        0 if one != other => net.cut_link(from, to),
        1 if one != other => net.clog_link(from, to),
        2 => net.freeze(from, Duration::from_secs(chance.between(1, 30))),
        3 => servers[usize::from(one) - 1].restart(net),
        4..=9 => net.heal_link(from, to),
        _ => {}
    }
}

fn walk(seed: u64) {
    let mut chance = Chance::new(seed);
    let faults = Faults { loss_per_million: 10_000, doubled_per_million: 300_000, ..Faults::NONE };
    let net = Net::new(seed, Timing::USUAL, faults);
    let mut servers: Vec<Server> = (1..=SERVERS).map(|at| Server::new(&net, at)).collect();
    let (mut changes, mut wishes) = (BTreeMap::new(), 0);
    for _ in 0..300 {
        let at = chance.between(0, u64::from(SERVERS) - 1) as usize;
        let thing = things().nth(chance.between(0, 2) as usize).expect("three");
        wishes += 1;
        *changes.entry(thing).or_insert(0u64) += 1;
        servers[at].want(Wish(wishes), thing, true);
        disturb(&net, &mut servers, &mut chance);
        for _ in 0..chance.between(0, 4) {
            net.pass(Duration::from_millis(chance.between(1, 700)));
            servers.iter_mut().for_each(Server::turn);
        }
    }
    net.set_faults(Faults::NONE);
    (1..=SERVERS)
        .for_each(|one| (1..=SERVERS).for_each(|to| net.heal_link(member(one), member(to))));
    settle(&net, &mut servers);
    let looks = (1..=SERVERS as usize).flat_map(|at| things().map(move |thing| (at - 1, thing)));
    for (at, thing) in looks.collect::<BTreeSet<_>>() {
        wishes += 1;
        servers[at].want(Wish(wishes), thing, false);
        settle(&net, &mut servers);
        let seen = servers[at].seen.get(&Wish(wishes)).copied();
        assert_eq!(seen, changes.get(&thing).copied(), "server {at} of {thing:?}");
    }
}

/// Until nobody wants anything any more.
fn settle(net: &Net, servers: &mut [Server]) {
    for _ in 0..2000 {
        if servers.iter().all(|server| server.open.is_empty()) {
            return;
        }
        net.pass(Duration::from_millis(100));
        servers.iter_mut().for_each(Server::turn);
    }
    panic!("somebody waits for ever");
}

#[test]
fn each_change_is_made_once_and_all_see_it_whatever_breaks_on_the_way() {
    for seed in seeds(40) {
        let walked = std::panic::catch_unwind(|| walk(seed));
        assert!(walked.is_ok(), "TERRAL_SEED={seed}");
    }
}

#[test]
fn what_waits_for_a_member_arrives_also_if_it_is_more_than_a_network_takes_at_once() {
    let net = Net::new(7, Timing::USUAL, Faults::NONE);
    let mut servers: Vec<Server> = (1..=SERVERS).map(|at| Server::new(&net, at)).collect();
    net.pass(Duration::from_secs(1));
    servers.iter_mut().for_each(Server::turn);
    net.cut_link(member(1), member(2));
    net.cut_link(member(2), member(1));
    let number = |at: u64| Number::new(member(2), 100 + at).expect("50 bits");
    let long = Body::new(vec![1; 40 << 10]).expect("not too long");
    for at in 0..IN_FLIGHT_BYTES as u64 * 3 / (40 << 10) {
        let work = Work::Change(long.clone());
        let thing = Thing::File(number(at));
        servers.iter_mut().for_each(|server| _ = server.content.insert(thing, 0));
        servers[0].open.insert(Wish(at), (thing, true));
        servers[0].tell(Input::Wish { wish: Wish(at), thing, work });
    }
    assert!(!servers[0].open.is_empty());
    net.heal_link(member(1), member(2));
    net.heal_link(member(2), member(1));
    settle(&net, &mut servers);
}
