//! Writes of a file that are done only if nobody has changed it since somebody looked: what is
//! asked where it was born. Not here: when a file counts as changed (the server's `storage`).

use serde::{Deserialize, Serialize};

use crate::ids::{Asker, Member, SessionSlot};

/// Most bytes of the records ([`crate::local::batch`]) of one such write: they are one message.
pub const RECORDS_MAX: usize = 15 << 10;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Update {
    /// The file's update id: as long as nobody changes it, it stays.
    Look,
    /// All that the records say is written if the file has this update id still, or nothing:
    /// [`ErrorKind::Changed`](crate::ErrorKind::Changed).
    Write {
        /// The update id.
        seen: u64,
        /// By somebody who takes set-id bits off.
        strips: bool,
        /// With this token of a named lock; 0: without one.
        token: u64,
        /// Random: no other write has it. A program that another one executes in its place asks
        /// from the same slots, and counts anew.
        call: u64,
    },
}

/// Which request of which process it is for: whoever asks again, since somebody died, asks for the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attempt {
    /// The slot of a process's session.
    pub of: Slot,
    /// See [`Update::Write`].
    pub call: u64,
}

/// A place for one request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
    /// Of which machine.
    pub by: Member,
    /// In which session.
    pub session: SessionSlot,
    /// Whose that is.
    pub pid: u32,
    /// When that process started.
    pub started_ticks: u64,
    /// In which slot of the session.
    pub index: u8,
}

impl Attempt {
    /// That of a request of this process, on this machine.
    pub fn of(by: Member, asker: Asker, (pid, started_ticks): (u32, u64), what: Update) -> Self {
        let Asker { session, index, .. } = asker;
        let call = match what {
            Update::Look => 0,
            Update::Write { call, .. } => call,
        };
        Attempt { of: Slot { by, session, pid, started_ticks, index }, call }
    }
}
