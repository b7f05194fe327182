//! Members in one thread, each of whom is asked in turn what has happened; what an endpoint says is
//! held against its grammar at once.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::{Member, ServerId};

use crate::endpoint::{Endpoint, Event, Loss, Refused, Session};

use super::Stage;

/// How long a promise may take, by the members' clocks.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often everybody is asked until then, if no time passes.
const TURNS: usize = 1_000_000;
/// How long one is asked for.
const LOOK: Duration = Duration::from_millis(1);

/// Whether a frame was sent.
pub(crate) type Sent = Result<(), Refused>;

/// The member of a number.
pub(crate) fn member(number: u16) -> Member {
    Member::new(number).expect("14 bits")
}

/// The server that a member has at first.
pub(crate) fn server(number: u16) -> ServerId {
    ServerId(u64::from(number) + 1000)
}

/// What one member has heard.
#[derive(Default)]
pub(crate) struct Heard {
    /// The session with each member, while there is one.
    pub(crate) open: BTreeMap<Member, u64>,
    latest: BTreeMap<Member, u64>,
    pub(crate) frames: Vec<(Session, Box<[u8]>)>,
    pub(crate) rooms: Vec<Session>,
    pub(crate) losses: Vec<(Session, Loss)>,
}

impl Heard {
    /// Holds an event against the grammar.
    fn hear(&mut self, event: Event) {
        let Session { with, number } = event.session();
        let open = self.open.get(&with).copied();
        match event {
            Event::Connected(session) => {
                assert_eq!(open, None, "{session:?} beside another");
                let latest = self.latest.insert(with, number);
                assert!(
                    latest.is_none_or(|latest| latest < number),
                    "{session:?} after {latest:?}"
                );
                self.open.insert(with, number);
            }
            Event::Frame(session, frame) => {
                assert_eq!(open, Some(number), "a frame of {session:?}");
                self.frames.push((session, frame));
            }
            Event::Room(session) => {
                assert_eq!(open, Some(number), "room in {session:?}");
                self.rooms.push(session);
            }
            Event::Lost(session, why) => {
                assert_eq!(open, Some(number), "{session:?} is lost: {why:?}");
                self.open.remove(&with);
                self.losses.push((session, why));
            }
        }
    }
}

/// Members, and what they have heard.
pub(crate) struct Crowd<S: Stage> {
    pub(crate) stage: S,
    endpoints: BTreeMap<u16, S::Endpoint>,
    heard: BTreeMap<u16, Heard>,
    /// Who is not asked.
    pub(crate) away: Vec<u16>,
}

impl<S: Stage> Crowd<S> {
    /// Members 1 to `count`, each of whom has admitted all others.
    pub(crate) fn of(stage: S, count: u16) -> Self {
        let (endpoints, heard) = Default::default();
        let mut crowd = Crowd { stage, endpoints, heard, away: Vec::new() };
        (1..=count).for_each(|number| crowd.start(number, server(number)));
        for (one, other) in (1..=count).flat_map(|one| (1..=count).map(move |other| (one, other))) {
            if one != other {
                crowd.admit(one, other, server(other));
            }
        }
        crowd
    }

    pub(crate) fn start(&mut self, number: u16, server: ServerId) {
        self.endpoints.remove(&number);
        self.endpoints.insert(number, self.stage.start(member(number), server));
        self.heard.insert(number, Heard::default());
    }

    /// A member's process is no more.
    pub(crate) fn kill(&mut self, number: u16) {
        self.endpoints.remove(&number);
    }

    pub(crate) fn admit(&mut self, one: u16, other: u16, server: ServerId) {
        let peer = self.stage.peer(member(other), server);
        self.endpoint(one).admit(peer);
    }

    pub(crate) fn endpoint(&mut self, number: u16) -> &mut S::Endpoint {
        self.endpoints.get_mut(&number).expect("it was started")
    }

    pub(crate) fn heard(&self, number: u16) -> &Heard {
        &self.heard[&number]
    }

    /// The session that one member has with another, as far as it has heard.
    pub(crate) fn session(&self, one: u16, other: u16) -> Option<Session> {
        let with = member(other);
        self.heard(one).open.get(&with).map(|number| Session { with, number: *number })
    }

    /// The frames that one member has got from another.
    pub(crate) fn frames(&self, one: u16, other: u16) -> Vec<&[u8]> {
        let of = self.heard(one).frames.iter().filter(|(at, _)| at.with == member(other));
        of.map(|(_, frame)| &frame[..]).collect()
    }

    pub(crate) fn send(&mut self, one: u16, other: u16, frame: &[u8]) -> Sent {
        let session = self.session(one, other).expect("there is a session");
        self.endpoint(one).send(session, frame)
    }

    pub(crate) fn send_now(&mut self, (one, other): (u16, u16), parts: &[&[u8]]) -> Sent {
        let session = self.session(one, other).expect("there is a session");
        self.endpoint(one).send_now(session, parts)
    }

    /// Takes one event of a member, if there is one soon.
    pub(crate) fn take(&mut self, number: u16) -> bool {
        let Some(endpoint) = self.endpoints.get_mut(&number) else { return false };
        let until = endpoint.now() + LOOK;
        let Some(event) = endpoint.next(until) else { return false };
        self.heard.get_mut(&number).expect("it was started").hear(event);
        true
    }

    /// Asks everybody.
    pub(crate) fn turn(&mut self) {
        let is_there = |number: &u16| !self.away.contains(number);
        let all: Vec<u16> = self.endpoints.keys().copied().filter(is_there).collect();
        for number in all {
            let mut most = 100;
            while most > 0 && self.take(number) {
                most -= 1;
            }
        }
    }

    /// Asks everybody until it is so.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let first = *self.endpoints.keys().find(|at| !self.away.contains(at)).expect("somebody");
        let end = self.endpoint(first).now() + PATIENCE;
        for _ in 0..TURNS {
            if is_so(self) {
                return;
            }
            assert!(self.endpoint(first).now() < end, "in vain for {PATIENCE:?}: {what}");
            self.turn();
        }
        panic!("in vain: {what}");
    }

    /// Asks everybody for so long.
    pub(crate) fn pass(&mut self, time: Duration) {
        let first = *self.endpoints.keys().find(|at| !self.away.contains(at)).expect("somebody");
        let end = self.endpoint(first).now() + time;
        for _ in 0..TURNS {
            if self.endpoint(first).now() >= end {
                return;
            }
            self.turn();
        }
        panic!("no time passes");
    }

    /// One member wants a session with another, until both have the same.
    pub(crate) fn connect(&mut self, one: u16, other: u16) -> Session {
        self.endpoint(one).reach(member(other));
        self.until_connected(one, other)
    }

    pub(crate) fn until_connected(&mut self, one: u16, other: u16) -> Session {
        let number = |crowd: &Self, one, other| crowd.session(one, other).map(|at| at.number);
        self.until("both have the same session", |crowd| {
            let mine = number(crowd, one, other);
            mine.is_some() && mine == number(crowd, other, one)
        });
        self.session(one, other).expect("just now")
    }
}
