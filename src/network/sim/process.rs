//! What a process does with what arrives, and by itself: how sessions begin and end.
//!
//! The lesser member of two says that there is a session, so that there is one if both want it at
//! once. Not here: what becomes of what is said (`world`).

use terral_format::ids::Member;

use crate::endpoint::{Event, Loss, Session};

use super::link::{Packet, State, Word};
use super::world::{Happening, Waking, World};

impl World {
    /// A member wants a session. The lesser of the two says that there is one, so that there is one
    /// if both want it at once.
    pub(super) fn dialled(&mut self, from: Member, to: Member, (life, after): (u64, u64)) {
        if from < to {
            return self.dial(to, from);
        }
        // A hand-shake goes both ways.
        if self.links.get(&(to, from)).is_some_and(|link| link.state == State::Cut) {
            return;
        }
        let Some(host) = self.hosts.get_mut(&to) else { return };
        let is_known = |number: u64| number <= after;
        if host.ends.get(&from).is_some_and(|end| end.life == life && !is_known(end.number)) {
            return;
        }
        let number = host.latest(from).max(after) + 1;
        let now = host.drift.shows(self.now);
        host.connect(from, number, life, now);
        self.say(to, from, Packet::Open { number, life });
    }

    pub(super) fn opened(&mut self, (from, to): (Member, Member), number: u64, life: u64) {
        let Some(host) = self.hosts.get_mut(&to) else { return };
        if host.life != life || number <= host.latest(from) || !host.admitted.contains_key(&from) {
            return self.say(to, from, Packet::Within(number, Word::Close));
        }
        let now = host.drift.shows(self.now);
        host.connect(from, number, 0, now);
    }

    pub(super) fn within(&mut self, (from, to): (Member, Member), number: u64, word: Word) {
        let Some(host) = self.hosts.get_mut(&to) else { return };
        let now = host.drift.shows(self.now);
        let Some(end) = host.end(from, number) else {
            if word != Word::Close {
                self.say(to, from, Packet::Within(number, Word::Close));
            }
            return;
        };
        end.heard = now;
        let session = Session { with: from, number };
        match word {
            Word::Frame(bytes) => host.turns.push(Event::Frame(session, bytes.as_ref().into())),
            Word::Taken(bytes) => host.taken(from, number, bytes),
            Word::Beat => {}
            Word::Close => _ = host.lose(from, Loss::Closed),
        }
    }

    /// Ends a session, and says so to the other side.
    pub(super) fn end(&mut self, member: Member, with: Member, why: Loss) {
        let number = self.hosts.get_mut(&member).and_then(|host| host.lose(with, why));
        if let Some(number) = number {
            self.say(member, with, Packet::Within(number, Word::Close));
        }
    }

    /// Tries for a session.
    fn dial(&mut self, member: Member, with: Member) {
        let Some(host) = self.hosts.get(&member) else { return };
        let Some(to) = host.admitted.get(&with).copied() else { return };
        let (from, life, after) = (host.server, host.life, host.latest(with));
        self.say(member, with, Packet::Dial { from, to, life, after });
    }

    pub(super) fn beat(&mut self, member: Member, life: u64) {
        let Some(host) = self.hosts.get(&member) else { return };
        let (drift, now) = (host.drift, host.drift.shows(self.now));
        let with: Vec<_> = host.ends.iter().map(|(with, end)| (*with, end.number)).collect();
        let is_silent = |with: &Member| now >= host.ends[with].heard + self.timing.silence;
        let silent: Vec<_> = host.ends.keys().copied().filter(is_silent).collect();
        for (with, number) in with {
            self.say(member, with, Packet::Within(number, Word::Beat));
        }
        silent.into_iter().for_each(|with| self.end(member, with, Loss::Silent));
        let again = drift.time(now + self.timing.beat()).max(self.now + 1);
        self.decide(again, Happening::Wake { member, life, to: Waking::Beat });
    }

    /// A session is wanted.
    pub(super) fn want(&mut self, member: Member, with: Member) {
        let first = self.timing.retry_first.as_nanos() as u64;
        let Some(host) = self.hosts.get_mut(&member) else { return };
        let may = host.admitted.contains_key(&with) && !host.ends.contains_key(&with);
        if may && !host.wanted.contains_key(&with) {
            host.wanted.insert(with, first);
            let life = host.life;
            self.try_for(member, life, with);
        }
    }

    /// Tries for a session that is wanted, and then again.
    pub(super) fn try_for(&mut self, member: Member, life: u64, with: Member) {
        let Some(host) = self.hosts.get_mut(&member) else { return };
        let Some(wait) = host.wanted.get_mut(&with) else { return };
        let again = self.now + *wait;
        *wait = (*wait * 2).min(self.timing.retry_most.as_nanos() as u64);
        self.dial(member, with);
        self.decide(again, Happening::Wake { member, life, to: Waking::Try(with) });
    }
}
