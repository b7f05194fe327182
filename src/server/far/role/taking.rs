//! What was asked about chunks that are to stay where they are taken to, about what is read to be
//! kept, and of who has ended.

use terral_format::ids::{Ino, Member, Number};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::Act;
use terral_format::wire::locks::FarOwner;

use super::{Ahead, Asked, Behind, Far};
use crate::core::world::Tick;

/// The question for bytes of one chunk, from there in its file on, which is taken by this stamp; 0:
/// it is not.
pub(in crate::far) fn part_of(at: u64, bytes: u32, stamp: u64) -> Act {
    Act::ReadPart { index: at / CHUNK_BYTES, at: (at % CHUNK_BYTES) as u32, bytes, stamp }
}

/// Where in its file something is read, and how many bytes.
pub(super) fn place_of(act: &Act) -> Option<(u64, u32)> {
    match *act {
        Act::Read { at, bytes, .. } => Some((at, bytes)),
        Act::ReadPart { index, at, bytes, .. } => {
            Some((index * CHUNK_BYTES + u64::from(at), bytes))
        }
        _ => None,
    }
}

impl Far {
    /// A part of a chunk that is to stay here is to come, by this stamp.
    pub(in crate::far) fn asks_part(
        &mut self,
        (to, by): (Member, Member),
        (file, act): (Number, Act),
        stamp: u64,
        now: Tick,
    ) {
        self.asks((self.own_id(by), None), (file, act), Behind::Nothing, now);
        if let Some(asked) = self.questions.get_mut(&self.asked) {
            (asked.to, asked.takes) = (to, Some(stamp));
        }
    }

    /// How many chunks a member is to take, and has not heard so.
    pub(in crate::far) fn takes(&self, to: Member) -> usize {
        let takes = |asked: &&Asked| asked.to == to && matches!(asked.act, Act::Take { .. });
        self.questions.values().filter(takes).count()
    }

    /// Whether it is to take this one, and has not heard so.
    pub(in crate::far) fn is_to_take(&self, to: Member, ino: Ino, chunk: u64) -> bool {
        self.questions.values().any(|asked| {
            let is = matches!(asked.act, Act::Take { index, .. } if index == chunk);
            is && asked.to == to && Ino(asked.file.counted()) == ino
        })
    }

    /// Whether what is here of a chunk has come before this stamp, and may not be kept.
    pub fn is_unkept(&self, file: Number, chunk: u64, before: u64) -> bool {
        let came = self.parts.unkept(file, chunk);
        came.is_some_and(|stamp| stamp < before) && self.loans.since(file, chunk) == came
    }

    /// Whether somebody was told, since then, to take something from a member, and has not heard
    /// so.
    pub(in crate::far) fn takes_from(&self, member: Member, since: impl Fn(Tick) -> bool) -> bool {
        let is = |act| matches!(act, Act::Take { from, .. } if from == member);
        self.questions.values().any(|asked| is(asked.act) && since(asked.since))
    }

    /// A chunk is to come anew, or does not: what was asked and said of it before means nothing.
    pub(in crate::far) fn forget_taking(&mut self, file: Number, chunk: u64) {
        self.questions.retain(|_, asked| {
            let is_part = |at: u64| asked.takes.is_some() && at / CHUNK_BYTES == chunk;
            let is = match asked.act {
                Act::Kept { index, .. } => index == chunk,
                act => place_of(&act).is_some_and(|(at, _)| is_part(at)),
            };
            asked.file != file || !is
        });
    }

    /// Something is to be read, and kept; from this member, if it has its chunk.
    pub(in crate::far) fn reads_ahead(
        &mut self,
        (by, with): (Member, Option<Member>),
        ahead: &Ahead,
        now: Tick,
    ) {
        let Ahead { file, at, bytes, since } = *ahead;
        let act = match with {
            Some(_) => part_of(at, bytes, 0),
            None => Act::Read { at, bytes, kept: true, direct: true },
        };
        self.asks((self.own_id(by), None), (file, act), Behind::Nothing, now);
        if let Some(asked) = self.questions.get_mut(&self.asked) {
            asked.kept = Some(since);
            asked.to = with.unwrap_or(asked.to);
        }
    }

    /// Ends of who may have had locks that their files' homes could not take note of.
    pub(in crate::far) fn unheard_ends(&self) -> Vec<(Number, FarOwner)> {
        let failed = self.questions.values().filter(|asked| asked.outcome.is_some());
        failed.filter_map(Asked::end).collect()
    }

    /// Such an end is not said again.
    pub(in crate::far) fn forget_end(&mut self, file: Number, owner: FarOwner) {
        self.questions.retain(|_, asked| asked.end() != Some((file, owner)));
    }
}
