//! How much is said until all that were invited are in, and each knows of all: some frames between
//! the control and each member, however many there are, and some between each two others, which
//! tell each other that they go by the same table. What is said then is as in `shell/links`, of
//! which this has the order alone; frames take no time.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::moment::Moment;
use terral_format::wire::peers::Frame;
use terral_format::wire::roster::{Control, Roster, Rule};
use terral_partition::effect::Input;

use super::member;
use crate::members::control;
use crate::members::telling::Telling;
use crate::sharing::{carrying, ruling};
use crate::sim::Sim;

/// All come within it, one after the other.
const COMING: Duration = Duration::from_secs(1);
/// As often as time is said to pass.
const TICK: Duration = Duration::from_millis(250);

enum Said {
    Control(Control),
    Protocol(Frame),
}

/// A control, and those that it has invited.
struct Forming {
    sims: Vec<Sim>,
    telling: Telling,
    come: Vec<Member>,
    sessions: BTreeSet<(usize, usize)>,
    /// What is on its way, from and to.
    ways: VecDeque<(usize, usize, Said)>,
    /// Frames that came to or from the control.
    with_control: u64,
    /// And between two others.
    between: u64,
}

fn address(at: usize) -> Vec<SocketAddr> {
    vec![SocketAddr::from(([10, 0, 0, at as u8], 7))]
}

impl Forming {
    fn new(count: usize) -> Self {
        let mut sims: Vec<Sim> = (0..count).map(|at| Sim::without_dir(at as u64)).collect();
        let invite = |server: &crate::shared::Shared| {
            let mut state = server.lock();
            control::begin(&mut state, false, false).expect("random bits");
            control::is_at(&mut state, member(0), address(0)).expect("it is the control");
            let all = (1..count).map(|_| control::invite(&mut state).expect("there is room"));
            let all: Vec<_> = all.collect();
            carrying::resume(&mut state).expect("it is logged");
            all
        };
        let invitations = sims[0].with(invite).expect("it lives");
        for (sim, invitation) in sims[1..].iter_mut().zip(invitations) {
            sim.with(|server| {
                let mut state = server.lock();
                control::accept(&mut state, &invitation);
                carrying::resume(&mut state).expect("it is logged");
            });
        }
        let (telling, come, sessions, ways, with_control, between) = Default::default();
        Forming { sims, telling, come, sessions, ways, with_control, between }
    }

    fn say(&mut self, from: usize, to: usize, said: Control) {
        self.ways.push_back((from, to, Said::Control(said)));
    }

    fn hear(&mut self, at: usize, input: Input) {
        let heard = self.sims[at].with(|server| carrying::hear(&mut server.lock(), input.clone()));
        assert!(heard.is_some_and(|heard| heard.is_ok()));
    }

    /// A member has a session with the control.
    fn come(&mut self, at: usize) {
        self.come.push(member(at));
        self.telling.forget(member(at));
        self.say(at, 0, Control::AskTime(Moment(1)));
        self.connect(at, 0);
        self.settle();
    }

    fn connect(&mut self, one: usize, other: usize) {
        self.sessions.insert((one.min(other), one.max(other)));
        self.hear(one, Input::Connected(member(other)));
        self.hear(other, Input::Connected(member(one)));
    }

    /// Without a session it is lost, and one is wanted, if there is an address.
    fn send(&mut self, from: usize, to: usize, frame: Frame) {
        if self.sessions.contains(&(from.min(to), from.max(to))) {
            self.ways.push_back((from, to, Said::Protocol(frame)));
        } else if self.roster(from).seat(member(to)).is_some_and(|seat| !seat.addresses.is_empty())
        {
            self.connect(from, to);
        }
    }

    /// What servers want said goes on its way.
    fn collect(&mut self) {
        for at in 0..self.sims.len() {
            let frames = self.sims[at].with(|server| {
                let mut state = server.lock();
                state.members.as_mut().map(|members| members.take_frames())
            });
            for (to, frame) in frames.flatten().unwrap_or_default() {
                self.send(at, to.number().into(), frame);
            }
        }
        let roster = self.roster(0);
        for with in self.telling.tell(&roster, self.come.iter()) {
            let certificates = roster.certificates.clone();
            let roster = roster.clone();
            let rule = Rule { roster, certificates, ..Rule::default() };
            self.say(0, with.number().into(), Control::Roster(Box::new(rule)));
        }
    }

    fn roster(&mut self, at: usize) -> Roster {
        let roster = self.sims[at].with(|server| {
            let state = server.lock();
            state.members.as_ref().map(|members| members.roster().clone())
        });
        roster.flatten().expect("it is a member")
    }

    /// All that is on its way arrives, and what that leads to.
    fn settle(&mut self) {
        self.collect();
        while let Some((from, to, said)) = self.ways.pop_front() {
            match from.min(to) {
                0 => self.with_control += 1,
                _ => self.between += 1,
            }
            match said {
                Said::Protocol(frame) => self.hear(to, Input::Frame(frame)),
                Said::Control(said) => self.is_told((from, to), said),
            }
            self.collect();
        }
    }

    fn is_told(&mut self, (from, to): (usize, usize), said: Control) {
        match said {
            Control::AskTime(asked) => self.say(to, from, Control::Time { asked, time_ns: 0 }),
            Control::Time { .. } => self.say(to, from, Control::Here(address(to))),
            Control::Here(addresses) => self.act(to, |state| {
                control::is_at(state, member(from), addresses.clone()).expect("it is the control");
            }),
            Control::Roster(rule) => {
                let version = rule.roster.version;
                self.act(to, |state| ruling::heard(state, *rule.clone()).expect("a log"));
                let with = |(one, other): &(usize, usize)| match (*one == to, *other == to) {
                    (true, _) => Some(*other),
                    (_, true) => Some(*one),
                    _ => None,
                };
                let sessions: Vec<_> = self.sessions.iter().filter_map(with).collect();
                for with in sessions {
                    self.hear(to, Input::Connected(member(with)));
                }
                self.say(to, from, Control::Knows(version));
            }
            Control::Knows(version) => self.act(to, |state| {
                state.members.iter_mut().for_each(|members| members.knows(member(from), version));
            }),
            _ => panic!("{from} has no reason to say that"),
        }
    }

    fn act(&mut self, at: usize, act: impl Fn(&mut crate::core::state::State)) {
        self.sims[at].with(|server| {
            let mut state = server.lock();
            act(&mut state);
            carrying::resume(&mut state).expect("it is logged");
        });
    }

    /// Time has passed.
    fn tick(&mut self) {
        self.telling.tick();
        (0..1 + self.come.len()).for_each(|at| self.hear(at, Input::Tick));
        self.settle();
    }
}

/// Frames with the control, and between others, until all are in, where those that know a roster
/// are told of the next one each tick, or `at_once`.
fn frames(count: usize, at_once: bool) -> [u64; 2] {
    let mut forming = Forming::new(count);
    let (each, mut ticked) = (COMING / count as u32, Duration::ZERO);
    for at in 1..count {
        forming.sims.iter().for_each(|sim| sim.world.pass(each));
        if at_once || each * at as u32 >= ticked + TICK {
            ticked += TICK;
            forming.tick();
        }
        forming.come(at);
    }
    let last = forming.roster(0);
    for at in 1..count {
        assert_eq!(forming.roster(at), last, "{at} knows of all");
    }
    let current = forming.sims[0].with(|server| {
        let state = server.lock();
        let members = state.members.as_ref().expect("it is the control");
        last.seats.iter().all(|seat| members.is_current(seat.member))
    });
    assert_eq!(current, Some(true), "and the control knows that");
    [forming.with_control, forming.between]
}

#[test]
fn a_partition_of_many_is_formed_with_so_many_frames_for_each_and_so_many_for_each_two() {
    let counts = [4, 8, 16, 32];
    let all = counts.map(|count| frames(count, false));
    let at_once = counts.map(|count| frames(count, true));
    println!("{counts:?}: {all:?} frames; {at_once:?} if each change were told at once");
    for (count, [with_control, between]) in counts.into_iter().zip(all) {
        let (others, count) = (count as u64 - 1, count as u64);
        assert!(with_control <= 20 * count, "{with_control} frames for {count}");
        assert!(between <= 3 * others * (others - 1), "{between} between {others}");
    }
    // It would be noticed.
    assert!(at_once[3][0] > 3 * at_once[2][0], "{at_once:?}");
}
