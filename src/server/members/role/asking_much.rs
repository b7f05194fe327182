//! How much a user's server has under way here: what it wants done, and how often it says that it
//! has moved. Its process is his, and may ask for ever more of what nobody can give it.
//!
//! Invariant: what is counted is at least what is there. Not here: questions about bytes of files
//! (`far/desk`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::Member;

use super::{Members, Part};
use crate::core::world::Tick;

/// So many things one may want at the same time: more than its programs have requests.
const WANTS_MAX: usize = 16_384;
/// And so many bytes of that.
const BYTES_MAX: usize = 64 << 20;
/// So often it may say where it is, in this time: once in each of its lives, and not at all times.
const MOVES_MAX: u32 = 8;
const MOVES_IN: Duration = Duration::from_secs(60);

/// What is known of those that are trusted with little.
#[derive(Default)]
pub(super) struct AskingMuch {
    /// What each has under way, and how many bytes.
    wants: BTreeMap<Member, (usize, usize)>,
    /// Since when each has moved, how often.
    moves: BTreeMap<Member, (Tick, u32)>,
}

impl Members {
    /// A user's server wants things done, of so many bytes. Whether that is too much: then it is
    /// not heard, until some of it is done.
    pub fn wants_too_much(&mut self, member: Member, (count, bytes): (usize, usize)) -> bool {
        let (wants, of) = self.asking_much.wants.entry(member).or_default();
        let too_much = count > 0 && (*wants + count > WANTS_MAX || *of + bytes > BYTES_MAX);
        if !too_much {
            (*wants, *of) = (*wants + count, *of + bytes);
        }
        too_much
    }

    /// Time has passed: what is done by now is under way no more.
    pub fn count_wants(&mut self) {
        let Part::Runs(machine) = &self.part else { return };
        for (member, wants) in &mut self.asking_much.wants {
            *wants = machine.wanted_by(*member);
        }
        let users = &self.users;
        self.asking_much.wants.retain(|member, _| users.contains_key(member));
        self.asking_much.moves.retain(|member, _| users.contains_key(member));
    }

    /// Whether a user's server may say once more where it is.
    pub fn may_move(&mut self, member: Member, now: Tick) -> bool {
        let (since, count) = self.asking_much.moves.entry(member).or_insert((now, 0));
        if now.since(*since) > MOVES_IN {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= MOVES_MAX
    }
}
