//! What is known of a member: whether there is a session with it, and when one is tried for next.

use std::net::SocketAddr;
use std::time::Duration;

use terral_format::ids::ServerId;
use terral_format::moment::Moment;
use terral_format::wire::roster::Key;

use crate::chance::Chance;
use crate::endpoint::Timing;

use super::framing::Assembler;
use super::greeting::Encryption;
use super::ready::Token;
use super::shake::Known;

/// A session.
pub(super) struct Open {
    pub(super) number: u64,
    /// In which connection.
    pub(super) token: Token,
    /// In which life of the other side's process.
    pub(super) life: u64,
    pub(super) begun: Moment,
    /// When something came last.
    pub(super) heard: Moment,
    /// When something that waits to go went last, or began to wait.
    pub(super) moved: Moment,
    /// When something was said last.
    pub(super) said: Moment,
    /// A frame was refused; when no more than so much waits to go, there is room.
    pub(super) room: Option<usize>,
    pub(super) assembler: Assembler,
}

impl Open {
    pub(super) fn new(
        (number, life): (u64, u64),
        (token, encryption): (Token, Encryption),
        now: Moment,
    ) -> Self {
        let [begun, heard, moved, said] = [now; 4];
        let (assembler, room) = (Assembler::new(encryption), None);
        Open { number, token, life, begun, heard, moved, said, room, assembler }
    }
}

/// A member that was admitted.
pub(super) struct Admitted {
    pub(super) server: ServerId,
    pub(super) key: Key,
    pub(super) addresses: Vec<SocketAddr>,
    /// The greatest number of a session with it.
    pub(super) latest: u64,
    /// When a session is tried for next, if one is wanted.
    pub(super) next: Option<Moment>,
    /// Before that none is tried for, so that sessions that end at once do not follow each other
    /// without a pause.
    pub(super) earliest: Moment,
    /// How long is waited after that.
    wait: Duration,
    pub(super) open: Option<Open>,
}

impl Admitted {
    pub(super) fn new((server, key): (ServerId, Key), latest: u64, timing: &Timing) -> Self {
        let (wait, addresses) = (timing.retry_first, Vec::new());
        let earliest = Moment(0);
        Admitted { server, key, addresses, latest, next: None, earliest, wait, open: None }
    }

    pub(super) fn known(&self) -> Known {
        Known { server: self.server, latest: self.latest, key: self.key }
    }

    /// A session is tried for now; then again, after a wait that grows. A part of it is by chance,
    /// so that those who lose one at the same time do not all come at the same time.
    pub(super) fn tried(&mut self, now: Moment, chance: &mut Chance, timing: &Timing) {
        let part = chance.between(0, 255) as u32;
        self.next = Some(now + self.wait * (256 + part) / 512);
        self.wait = (self.wait * 2).min(timing.retry_most);
    }

    /// There is a session. The next one is tried for no earlier than if there were none.
    pub(super) fn begun(&mut self, open: Open) {
        self.latest = open.number;
        self.earliest = self.next.take().unwrap_or(self.earliest);
        self.open = Some(open);
    }

    /// A session that has lasted is over: the next one is tried for at once.
    pub(super) fn ended(&mut self, open: &Open, now: Moment, timing: &Timing) {
        if now >= open.begun + timing.silence {
            (self.wait, self.earliest) = (timing.retry_first, now);
        }
    }
}
