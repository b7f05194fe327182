//! All members in one process: one seed, and a time that passes when nobody has anything left to
//! do. Links delay, lose, are cut in one direction or both, and hold back; clocks drift; processes
//! stop for longer than any term, and die with or without their machines.
//!
//! The same seed and the same calls give the same [`Net::trace`]. Not here: what members decide.

mod link;

mod host;

mod world;

mod process;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod walks;

#[cfg(test)]
mod servers;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;
#[cfg(test)]
use terral_format::wire::roster::Key;

use crate::endpoint::{
    Endpoint, Event, FRAME_BYTES, IN_FLIGHT_BYTES, Loss, Peer, Refused, Session, Timing, weight,
};

pub use host::Drift;

use host::Host;
use link::{Packet, State, Word};
use world::World;

/// Nobody proves anything here.
#[cfg(test)]
const NO_KEY: Key = Key([0; 32]);
/// What the network itself holds of a session: what is beyond that waits to go.
const HELD_BYTES: usize = FRAME_BYTES;

/// What goes wrong by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// How long something is under way: from so many nanoseconds to so many.
    pub delay_ns: (u64, u64),
    /// Of a million frames so many are lost, and their sessions with them.
    pub loss_per_million: u32,
    /// A frame is lost without its session: no endpoint promises less. For tests of what is above.
    pub loss_is_silent: bool,
    /// Of a million attempts to have a session so many come twice.
    pub doubled_per_million: u32,
}

impl Faults {
    /// Nothing goes wrong; a link takes 20 to 200 µs.
    pub const NONE: Faults = Faults {
        delay_ns: (20_000, 200_000),
        loss_per_million: 0,
        loss_is_silent: false,
        doubled_per_million: 0,
    };
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The network and its time.
#[derive(Clone)]
pub struct Net(Rc<RefCell<World>>);

impl Net {
    /// A network at time 0, without members.
    pub fn new(seed: u64, timing: Timing, faults: Faults) -> Self {
        Net(Rc::new(RefCell::new(World::new(seed, timing, faults))))
    }

    /// Starts a member's process, whose clock goes so. One that there was is no more.
    pub fn start(&self, member: Member, server: ServerId, drift: Drift) -> Sim {
        let life = self.0.borrow_mut().start(member, server, drift);
        Sim { net: self.clone(), member, life }
    }

    /// From now on other things go wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    /// A member's machine is lost: nobody hears anything of it any more.
    pub fn lose_machine(&self, member: Member) {
        self.0.borrow_mut().crash(member, false);
    }

    /// A member's process does nothing for so long; what comes meanwhile waits.
    pub fn freeze(&self, member: Member, time: Duration) {
        let mut world = self.0.borrow_mut();
        let until = world.now.saturating_add(nanoseconds(time));
        world.freeze(member, until);
    }

    /// What is said in this direction is lost, and what is under way.
    pub fn cut_link(&self, from: Member, to: Member) {
        self.0.borrow_mut().set_link(from, to, State::Cut);
    }

    /// What is said in this direction is held back.
    pub fn clog_link(&self, from: Member, to: Member) {
        self.0.borrow_mut().set_link(from, to, State::Clogged);
    }

    /// What is said in this direction arrives, and what was held back.
    pub fn heal_link(&self, from: Member, to: Member) {
        self.0.borrow_mut().set_link(from, to, State::Open);
    }

    /// Nanoseconds since the start.
    pub fn time(&self) -> u64 {
        self.0.borrow().now
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        let until = self.time().saturating_add(nanoseconds(time));
        while self.time() < until {
            self.0.borrow_mut().step(until);
        }
    }

    /// Lets the next thing happen, if it does within so long; else that time passes.
    pub fn step(&self, time: Duration) {
        let mut world = self.0.borrow_mut();
        let until = world.now.saturating_add(nanoseconds(time));
        world.step(until);
    }

    /// A number for all that was said and has come so far, and when.
    pub fn trace(&self) -> u64 {
        self.0.borrow().trace()
    }
}

/// A member's way to the others, in a simulation. Dropped, the process is no more.
pub struct Sim {
    net: Net,
    member: Member,
    life: u64,
}

impl Sim {
    /// What is done by a process that is there; nothing if it is no more.
    fn alive<T>(&self, act: impl FnOnce(&mut World) -> T) -> Option<T> {
        let mut world = self.net.0.borrow_mut();
        let host = world.hosts.get(&self.member)?;
        (host.is_alive && host.life == self.life).then(|| act(&mut world))
    }

    fn host<T>(&self, act: impl FnOnce(&mut Host) -> T) -> Option<T> {
        self.alive(|world| world.hosts.get_mut(&self.member).map(act)).flatten()
    }

    /// What has come; a frame that is taken makes room for others.
    fn take(&self) -> Option<Event> {
        let event = self.host(|host| host.turns.pop())??;
        if let Event::Frame(session, bytes) = &event {
            let word = Word::Taken(weight(bytes.len()));
            let packet = Packet::Within(session.number, word);
            self.alive(|world| world.say(self.member, session.with, packet));
        }
        Some(event)
    }

    /// Sends a frame if no more than `most` is in flight; if more is, there is room when no more
    /// than `room` is.
    fn send_if(
        &self,
        session: Session,
        parts: &[&[u8]],
        (most, room): (usize, usize),
    ) -> Result<(), Refused> {
        let frame = parts.concat();
        if frame.len() > FRAME_BYTES {
            return Err(Refused::TooLong);
        }
        let is_sent = self.host(|host| {
            let end = host.end(session.with, session.number).ok_or(Refused::Over)?;
            if end.in_flight > most {
                end.room = end.room.max(Some(room));
                return Err(Refused::Full);
            }
            end.in_flight += weight(frame.len());
            Ok(())
        });
        is_sent.unwrap_or(Err(Refused::Over))?;
        let packet = Packet::Within(session.number, Word::Frame(frame.into()));
        self.alive(|world| world.say(self.member, session.with, packet));
        Ok(())
    }

    /// Until when, by the time of all.
    fn time(&self, until: Moment) -> u64 {
        let world = self.net.0.borrow();
        let Some(host) = world.hosts.get(&self.member) else { return world.now };
        host.drift.time(until).max(host.frozen_until)
    }
}

impl Endpoint for Sim {
    fn now(&self) -> Moment {
        let world = self.net.0.borrow();
        world.hosts.get(&self.member).map_or(Moment(0), |host| host.drift.shows(world.now))
    }

    fn admit(&mut self, peer: Peer) {
        if peer.member == self.member {
            return;
        }
        let before = self.host(|host| host.admitted.get(&peer.member).copied()).flatten();
        if before.is_some_and(|server| server != peer.server) {
            self.expel(peer.member);
        }
        self.host(|host| host.admitted.insert(peer.member, peer.server));
    }

    fn expel(&mut self, member: Member) {
        self.host(|host| (host.admitted.remove(&member), host.wanted.remove(&member)));
        self.alive(|world| world.end(self.member, member, Loss::Expelled));
    }

    fn reach(&mut self, member: Member) {
        self.alive(|world| world.want(self.member, member));
    }

    fn cut(&mut self, session: Session) {
        let is_there = self.host(|host| host.end(session.with, session.number).is_some());
        if is_there == Some(true) {
            self.host(|host| host.turns.drop_frames(session));
            self.alive(|world| world.end(self.member, session.with, Loss::Cut));
        }
    }

    fn send(&mut self, session: Session, frame: &[u8]) -> Result<(), Refused> {
        let most = IN_FLIGHT_BYTES.saturating_sub(weight(frame.len()));
        self.send_if(session, &[frame], (most, IN_FLIGHT_BYTES / 2))
    }

    fn send_now(&mut self, session: Session, parts: &[&[u8]]) -> Result<(), Refused> {
        self.send_if(session, parts, (HELD_BYTES, HELD_BYTES))
    }

    fn next(&mut self, until: Moment) -> Option<Event> {
        let until = self.time(until);
        loop {
            let is_awake = self.host(|host| host.frozen_until)? <= self.net.time();
            if let Some(event) = is_awake.then(|| self.take()).flatten() {
                return Some(event);
            }
            if self.net.time() >= until {
                return None;
            }
            self.net.0.borrow_mut().step(until);
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.alive(|world| world.crash(self.member, true));
    }
}
