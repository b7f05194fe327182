//! All members' processes, the links between them, and time: what happens, one thing after the
//! other, as chance and the test will have it.
//!
//! A session breaks as one of TCP does: what is lost tears it in that direction, and who hears
//! nothing for long ends it; who hears of a session that he does not have says that it is over.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use terral_format::ids::{Member, ServerId};

use crate::chance::Chance;
use crate::endpoint::Timing;

use super::Faults;
use super::host::{Drift, Host};
use super::link::{Link, Packet, State, Word};

/// What is to happen.
pub(crate) enum Happening {
    /// Something arrives.
    Arrive { from: Member, to: Member, packet: Packet },
    /// A process does something by itself.
    Wake { member: Member, life: u64, to: Waking },
    /// A frozen process goes on.
    Thaw { member: Member, life: u64 },
}

/// What a process does by itself.
#[derive(Clone, Copy)]
pub(crate) enum Waking {
    /// It looks at the clock.
    Beat,
    /// It tries for a session that it wants.
    Try(Member),
}

/// Everything.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) faults: Faults,
    pub(crate) timing: Timing,
    chance: Chance,
    /// By time, and by the order in which it was decided.
    ahead: BTreeMap<(u64, u64), Happening>,
    decided: u64,
    pub(crate) hosts: BTreeMap<Member, Host>,
    pub(super) links: BTreeMap<(Member, Member), Link>,
    lives: u64,
    trace: DefaultHasher,
}

impl World {
    pub(crate) fn new(seed: u64, timing: Timing, faults: Faults) -> Self {
        World {
            now: 0,
            faults,
            timing,
            chance: Chance::new(seed),
            ahead: BTreeMap::new(),
            decided: 0,
            hosts: BTreeMap::new(),
            links: BTreeMap::new(),
            lives: 0,
            trace: DefaultHasher::new(),
        }
    }

    /// A number for all that was said and has arrived, and when.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    pub(super) fn decide(&mut self, at: u64, what: Happening) {
        self.decided += 1;
        self.ahead.insert((at, self.decided), what);
    }

    /// Lets the next thing happen, if it does by then; else it is then.
    pub(crate) fn step(&mut self, until: u64) {
        match self.ahead.first_key_value() {
            Some(((at, order), _)) if *at <= until => {
                let key = (*at, *order);
                self.now = self.now.max(key.0);
                if let Some(what) = self.ahead.remove(&key) {
                    self.happen(what);
                }
            }
            _ => self.now = self.now.max(until),
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrive { from, to, packet } => self.arrive(from, to, packet),
            Happening::Wake { member, life, to } => self.wake(member, life, to),
            Happening::Thaw { member, life } => self.thaw(member, life),
        }
    }

    /// A process does something by itself; if it is frozen, afterwards.
    fn wake(&mut self, member: Member, life: u64, to: Waking) {
        let Some(host) = self.hosts.get(&member) else { return };
        if !host.is_alive || host.life != life {
            return;
        }
        if host.frozen_until > self.now {
            return self.decide(host.frozen_until, Happening::Wake { member, life, to });
        }
        match to {
            Waking::Beat => self.beat(member, life),
            Waking::Try(with) => self.try_for(member, life, with),
        }
    }

    pub(crate) fn start(&mut self, member: Member, server: ServerId, drift: Drift) -> u64 {
        self.crash(member, true);
        self.lives += 1;
        self.hosts.insert(member, Host::new(server, self.lives, drift));
        self.decide(self.now, Happening::Wake { member, life: self.lives, to: Waking::Beat });
        self.lives
    }

    /// A process is no more. If its machine is still there, that says so to the others.
    pub(crate) fn crash(&mut self, member: Member, is_machine_there: bool) {
        let Some(host) = self.hosts.get_mut(&member).filter(|host| host.is_alive) else { return };
        host.is_alive = false;
        host.stalled.clear();
        for (with, end) in std::mem::take(&mut host.ends) {
            if is_machine_there {
                self.say(member, with, Packet::Within(end.number, Word::Close));
            }
        }
    }

    pub(crate) fn freeze(&mut self, member: Member, until: u64) {
        if let Some(host) = self.hosts.get_mut(&member) {
            host.frozen_until = host.frozen_until.max(until);
            let life = host.life;
            self.decide(until, Happening::Thaw { member, life });
        }
    }

    /// What was away goes on: it reads what has come meanwhile before it calls anybody silent.
    fn thaw(&mut self, member: Member, life: u64) {
        let Some(host) = self.hosts.get_mut(&member) else { return };
        if host.life != life || host.frozen_until > self.now {
            return;
        }
        let now = host.drift.shows(self.now);
        host.ends.values_mut().for_each(|end| end.heard = now);
        for (from, packet) in std::mem::take(&mut host.stalled) {
            self.arrive(from, member, packet);
        }
    }

    pub(crate) fn set_link(&mut self, from: Member, to: Member, state: State) {
        let link = self.links.entry((from, to)).or_default();
        link.state = state;
        if state != State::Clogged {
            for packet in std::mem::take(&mut link.held) {
                self.say(from, to, packet);
            }
        }
    }

    /// Puts a packet on its way.
    pub(crate) fn say(&mut self, from: Member, to: Member, packet: Packet) {
        (self.now, "said", from, to, &packet).hash(&mut self.trace);
        let link = self.links.entry((from, to)).or_default();
        if link.is_torn(&packet) {
            return;
        }
        match link.state {
            State::Clogged => return link.held.push_back(packet),
            State::Cut => return link.lose(&packet),
            State::Open => {}
        }
        let is_frame = matches!(packet, Packet::Within(_, Word::Frame(_)));
        if is_frame && self.chance.happens(self.faults.loss_per_million) {
            return self.lose(from, to, &packet);
        }
        let is_doubled = matches!(packet, Packet::Dial { .. });
        if is_doubled && self.chance.happens(self.faults.doubled_per_million) {
            self.send_on(from, to, packet.clone());
        }
        self.send_on(from, to, packet);
    }

    fn send_on(&mut self, from: Member, to: Member, packet: Packet) {
        let (least, most) = self.faults.delay_ns;
        let delay = self.chance.between(least, most);
        let link = self.links.entry((from, to)).or_default();
        link.last = link.last.max(self.now + delay);
        let at = link.last;
        self.decide(at, Happening::Arrive { from, to, packet });
    }

    /// A frame is lost: its session is torn, which both sides hear at once or find out by silence.
    fn lose(&mut self, from: Member, to: Member, packet: &Packet) {
        if self.faults.loss_is_silent {
            return;
        }
        let Packet::Within(number, _) = packet else { return };
        if self.chance.happens(500_000) {
            let over = Packet::Within(*number, Word::Close);
            self.send_on(from, to, over.clone());
            self.send_on(to, from, over);
        }
        self.links.entry((from, to)).or_default().lose(packet);
    }

    fn arrive(&mut self, from: Member, to: Member, packet: Packet) {
        (self.now, "came", from, to, &packet).hash(&mut self.trace);
        // What was under way when the link was cut, or when something before it was lost.
        let link = self.links.entry((from, to)).or_default();
        if link.state == State::Cut {
            return link.lose(&packet);
        }
        if link.is_torn(&packet) {
            return;
        }
        let Some(host) = self.hosts.get_mut(&to).filter(|host| host.is_alive) else { return };
        if host.frozen_until > self.now {
            return host.stalled.push_back((from, packet));
        }
        match packet {
            Packet::Dial { from: server, to: at, life, after } => {
                if host.admitted.get(&from) == Some(&server) && host.server == at {
                    self.dialled(from, to, (life, after));
                }
            }
            Packet::Open { number, life } => self.opened((from, to), number, life),
            Packet::Within(number, word) => self.within((from, to), number, word),
        }
    }
}
