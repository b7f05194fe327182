//! How much room other members have said that they have, for who chooses where new bytes are.
//!
//! Invariant: only what a member has said, and how often it was chosen here since; nothing of it is
//! written down, and none is asked because of its age. Not here: who asks, and chooses
//! (`naming/placement`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::wire::status::MemberStatus;

use super::Members;
use crate::core::world::Tick;

/// What a member has said counts for so long.
const FRESH: Duration = Duration::from_secs(1);
/// For each file that was put on a member since it has said how it is, so many bytes are expected.
const EXPECTED: u64 = 16 << 20;

/// How loaded a member is: more room is better, and of two with as much, owing less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of memory that are free.
    pub room: u64,
    /// Bytes that the permanent store does not have yet.
    pub owed: u64,
}

impl Load {
    /// What a member says of itself.
    pub fn of(status: &MemberStatus) -> Self {
        let room = status.memory_bound_bytes.saturating_sub(status.memory_used_bytes);
        Load { room, owed: status.drain.owed_bytes }
    }

    /// Whether new bytes are better there than where that is the other one's load: differences
    /// that are less than what is expected of one file are none.
    pub fn is_less_than(&self, other: &Load) -> bool {
        let steps = |of: &Load| (of.room / EXPECTED, std::cmp::Reverse(of.owed / EXPECTED));
        steps(self) > steps(other)
    }
}

/// What members have said.
#[derive(Default)]
pub(super) struct Loads(BTreeMap<Member, (Load, Tick)>);

impl Members {
    /// A member has said how it is.
    pub fn reports(&mut self, member: Member, load: Load, now: Tick) {
        self.loads.0.insert(member, (load, now));
    }

    /// How a member is, if it has said so just now.
    pub fn load_of(&self, member: Member, now: Tick) -> Option<Load> {
        let (load, at) = self.loads.0.get(&member)?;
        (now.since(*at) < FRESH).then_some(*load)
    }

    /// New bytes are to be on a member: it has that much less room until it says more.
    pub fn was_chosen(&mut self, member: Member) {
        if let Some((load, _)) = self.loads.0.get_mut(&member) {
            load.room = load.room.saturating_sub(EXPECTED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EXPECTED, Load};

    #[test]
    fn more_room_is_better_and_of_as_much_owing_less() {
        let load = |room: u64, owed: u64| Load { room: room * EXPECTED, owed: owed * EXPECTED };
        assert!(load(9, 9).is_less_than(&load(8, 0)));
        assert!(!load(8, 0).is_less_than(&load(9, 9)));
        assert!(load(8, 1).is_less_than(&load(8, 2)));
        let (one, other) = (load(8, 1), Load { room: 8 * EXPECTED + 1, owed: EXPECTED });
        assert!(!one.is_less_than(&other) && !other.is_less_than(&one), "as good");
    }
}
