//! How sessions begin and end: who has dialled and who is dialled is brought through the
//! hand-shake, and the lesser of the two members says that there is a session.
//!
//! A greeting says which session its sender knew of last. If a later one is there, with the same
//! process, the two have dialled each other at once, and what is there stays.

use terral_format::ids::Member;
use terral_format::moment::Moment;

use crate::endpoint::{Event, Loss, Session};

use super::connections::{Connection, LISTENER, Phase};
use super::encryption::{NO_ENCRYPTION, WANTS_ENCRYPTION};
use super::greeting::Greeting;
use super::peer::Open;
use super::ready::Token;
use super::shake::{Known, Next, Shake};
use super::stream::Came;
use super::{PAUSE, Tcp, random};

/// More than a hand-shake ever waits for.
const LONGEST: usize = 256;
/// How much greater the number of a session may be than what was known. Who sits on the wire can
/// change it, and no later one would be greater than the greatest.
const LONGEST_STEP: u64 = 1 << 32;
/// Of a member of whom so many sessions have ended and nobody has heard it yet, no more begin.
pub(super) const UNHEARD_LOSSES: usize = 32;

impl Tcp {
    /// A socket has something to say.
    pub(super) fn serve(&mut self, token: Token, now: Moment) {
        if token == LISTENER {
            return self.welcome(now);
        }
        match self.connections.get(token).map(|one| &one.phase) {
            None => {}
            Some(Phase::Shaking(_)) => while self.shake(token, now) {},
            Some(Phase::Open(member)) => {
                let member = *member;
                self.talk(token, member, now);
            }
        }
    }

    fn welcome(&mut self, now: Moment) {
        let (identity, encryption, life) = (&self.identity, self.encryption, self.life);
        let shake = || Some(Shake::accept(identity, encryption, life, random().ok()?));
        for _ in 0..self.connections.accept(shake, now) {
            self.turn_away("too many strangers");
        }
        self.due = self.due.min(now + self.timing.handshake);
        if self.connections.is_paused {
            self.due = self.due.min(now + PAUSE);
        }
    }

    fn turn_away(&mut self, why: &'static str) {
        *self.turned_away.entry(why).or_default() += 1;
    }

    /// Closes a connection that is not a session.
    pub(super) fn refuse(&mut self, token: Token, why: &'static str) -> bool {
        self.connections.close(token);
        self.turn_away(why);
        false
    }

    /// Goes on with a hand-shake; whether there may be more of it to do.
    fn shake(&mut self, token: Token, now: Moment) -> bool {
        self.connections.flush(token);
        let Some(Phase::Shaking(shake)) = self.connections.get(token).map(|one| &one.phase) else {
            return false;
        };
        let mut bytes = [0; LONGEST];
        let wants = shake.wants();
        let bytes = match self.connections.read_first(token, &mut bytes[..wants]) {
            Came::Bytes(count) => &bytes[..count],
            Came::Nothing => return false,
            Came::End => return self.refuse(token, "closed before there was a session"),
            Came::Wrong(what) => return self.refuse(token, what),
        };
        let known = |member: Member| -> Option<Known> {
            self.members.get(&member).map(|admitted| admitted.known())
        };
        let Some(Connection { stream, phase: Phase::Shaking(shake), .. }) =
            self.connections.get(token)
        else {
            return false;
        };
        let Some(channel) = stream.channel() else { return false };
        match shake.take(bytes, &channel, known) {
            Err(why) => {
                if why == WANTS_ENCRYPTION {
                    self.connections.write(token, &[&NO_ENCRYPTION]);
                }
                self.refuse(token, why)
            }
            Ok(Next::More) => true,
            Ok(Next::Say(what)) => {
                self.connections.write(token, &[&what]);
                true
            }
            Ok(Next::Proven(what)) => {
                self.connections.write(token, &[&what]);
                self.proven(token, now)
            }
            Ok(Next::Go(number)) => self.go(token, number, now),
        }
    }

    /// Who has proven that he is a member, and still is one.
    fn partner(&mut self, token: Token) -> Option<Greeting> {
        let Some(Phase::Shaking(shake)) = self.connections.get(token).map(|one| &one.phase) else {
            return None;
        };
        let theirs = *shake.theirs()?;
        let known = self.members.get(&theirs.from)?;
        (known.server == theirs.server).then_some(theirs)
    }

    /// The lesser member says that there is a session; the other one waits for that.
    fn proven(&mut self, token: Token, now: Moment) -> bool {
        let Some(theirs) = self.partner(token) else {
            return self.refuse(token, "no member any more");
        };
        if self.turns.losses(theirs.from) >= UNHEARD_LOSSES {
            return self.refuse(token, "more sessions than are heard of");
        }
        if self.identity.member > theirs.from {
            return true;
        }
        let Some(known) = self.members.get(&theirs.from) else { return false };
        let is_later = |open: &Open| open.life == theirs.life && open.number > theirs.after;
        if known.open.as_ref().is_some_and(is_later) {
            return self.refuse(token, "both have dialled");
        }
        let Some(number) = known.latest.max(theirs.after).checked_add(1) else {
            return self.refuse(token, "an absurd number of sessions");
        };
        self.connections.write(token, &[&number.to_le_bytes()]);
        self.begin(token, &theirs, number, now)
    }

    fn go(&mut self, token: Token, number: u64, now: Moment) -> bool {
        let Some(theirs) = self.partner(token) else {
            return self.refuse(token, "no member any more");
        };
        let latest = self.members.get(&theirs.from).map_or(u64::MAX, |known| known.latest);
        if number <= latest || theirs.from > self.identity.member {
            return self.refuse(token, "a session that was before");
        }
        if number - latest.max(theirs.after).min(number) > LONGEST_STEP {
            return self.refuse(token, "an absurd number of sessions");
        }
        self.begin(token, &theirs, number, now)
    }

    fn begin(&mut self, token: Token, theirs: &Greeting, number: u64, now: Moment) -> bool {
        let member = theirs.from;
        self.lose(member, Loss::Replaced);
        self.connections.begin(token, member);
        self.connections.close_dials(member);
        let Some(known) = self.members.get_mut(&member) else { return false };
        let carrier = (token, self.encryption);
        known.begun(Open::new((number, theirs.life), carrier, now));
        self.turns.push(Event::Connected(Session { with: member, number }));
        self.due = self.due.min(now + self.timing.beat());
        false
    }

    /// Ends the session with a member, if there is one, and says so.
    pub(super) fn lose(&mut self, member: Member, why: Loss) {
        let now = (self.clock)();
        let Some(known) = self.members.get_mut(&member) else { return };
        let Some(open) = known.open.take() else { return };
        known.ended(&open, now, &self.timing);
        self.connections.close(open.token);
        self.turns.push(Event::Lost(Session { with: member, number: open.number }, why));
    }

    /// Dials a member wherever it may be.
    pub(super) fn dial(&mut self, member: Member, now: Moment) {
        let Some(known) = self.members.get_mut(&member) else { return };
        known.tried(now, &mut self.chance, &self.timing);
        let (addresses, to) = (known.addresses.clone(), (member, known.known()));
        for address in addresses {
            let Ok(nonce) = random() else { return };
            let life = (self.life, nonce);
            let shake = Shake::dial(&self.identity, self.encryption, life, to);
            // It is tried again.
            _ = self.connections.dial((member, address), shake, now);
        }
    }
}
