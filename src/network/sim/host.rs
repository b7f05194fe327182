//! What one member's process knows: whom it may have sessions with, which it has, what came.

use std::collections::{BTreeMap, VecDeque};

use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;

use crate::endpoint::{Event, Loss, Session};
use crate::turns::Turns;

use super::link::Packet;

/// How a member's clock goes: what it shows at the start, and how much faster it is than time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// What the clock shows at time 0, in nanoseconds.
    pub start_ns: u64,
    /// In parts of a million: −10,000 is one in a hundred slower.
    pub per_million: i32,
}

impl Drift {
    fn rate(self) -> u128 {
        1_000_000u128.saturating_add_signed(self.per_million.into())
    }

    /// What it shows at a time.
    pub(crate) fn shows(self, at: u64) -> Moment {
        Moment(self.start_ns + (u128::from(at) * self.rate() / 1_000_000) as u64)
    }

    /// The first time at which it shows so much.
    pub(crate) fn time(self, moment: Moment) -> u64 {
        let shown = u128::from(moment.0.saturating_sub(self.start_ns));
        u64::try_from((shown * 1_000_000).div_ceil(self.rate())).unwrap_or(u64::MAX)
    }
}

/// This side of a session.
pub(crate) struct End {
    pub(crate) number: u64,
    /// The life of the other side's process.
    pub(crate) life: u64,
    /// When something came last, by this side's clock.
    pub(crate) heard: Moment,
    /// Bytes that the other side has not said it has taken.
    pub(crate) in_flight: usize,
    /// A frame was refused; when no more than so much is in flight, there is room.
    pub(crate) room: Option<usize>,
}

/// A member's process.
pub(crate) struct Host {
    pub(crate) server: ServerId,
    pub(crate) life: u64,
    pub(crate) drift: Drift,
    pub(crate) is_alive: bool,
    pub(crate) admitted: BTreeMap<Member, ServerId>,
    /// Whom it tries to have a session with, and how long it waits after the next attempt.
    pub(crate) wanted: BTreeMap<Member, u64>,
    pub(crate) ends: BTreeMap<Member, End>,
    /// The greatest number of a session with each.
    pub(crate) latest: BTreeMap<Member, u64>,
    pub(crate) turns: Turns,
    /// Until when it does nothing.
    pub(crate) frozen_until: u64,
    /// What has come meanwhile.
    pub(crate) stalled: VecDeque<(Member, Packet)>,
}

impl Host {
    pub(crate) fn new(server: ServerId, life: u64, drift: Drift) -> Self {
        Host {
            server,
            life,
            drift,
            is_alive: true,
            admitted: BTreeMap::new(),
            wanted: BTreeMap::new(),
            ends: BTreeMap::new(),
            latest: BTreeMap::new(),
            turns: Turns::default(),
            frozen_until: 0,
            stalled: VecDeque::new(),
        }
    }

    pub(crate) fn latest(&self, with: Member) -> u64 {
        self.latest.get(&with).copied().unwrap_or_default()
    }

    /// The session with a member, if it has this number.
    pub(crate) fn end(&mut self, with: Member, number: u64) -> Option<&mut End> {
        self.ends.get_mut(&with).filter(|end| end.number == number)
    }

    pub(crate) fn connect(&mut self, with: Member, number: u64, life: u64, now: Moment) {
        self.lose(with, Loss::Replaced);
        self.wanted.remove(&with);
        self.latest.insert(with, number);
        let end = End { number, life, heard: now, in_flight: 0, room: None };
        self.ends.insert(with, end);
        self.turns.push(Event::Connected(Session { with, number }));
    }

    /// Ends the session with a member; gives its number.
    pub(crate) fn lose(&mut self, with: Member, why: Loss) -> Option<u64> {
        let number = self.ends.remove(&with)?.number;
        self.turns.push(Event::Lost(Session { with, number }, why));
        Some(number)
    }

    /// The other side has taken so much.
    pub(crate) fn taken(&mut self, with: Member, number: u64, bytes: usize) {
        let Some(end) = self.end(with, number) else { return };
        end.in_flight = end.in_flight.saturating_sub(bytes);
        if end.room.is_some_and(|room| end.in_flight <= room) {
            end.room = None;
            self.turns.push(Event::Room(Session { with, number }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Drift;
    use terral_format::moment::Moment;

    #[test]
    fn a_clock_shows_a_moment_when_its_time_has_come() {
        for per_million in [-10_000, 0, 7, 10_000] {
            let drift = Drift { start_ns: 77, per_million };
            for moment in [77, 78, 1_000_000_077, 123_456_789_123] {
                let time = drift.time(Moment(moment));
                assert!(drift.shows(time) >= Moment(moment), "{per_million} {moment}");
                assert!(time == 0 || drift.shows(time - 1) < Moment(moment));
            }
        }
    }
}
