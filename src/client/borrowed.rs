//! What is borrowed from another machine, and used without asking until a deadline, or is there and
//! asked for: see `terral_format::local::lease`. Whoever was late asks here how that stands.

use terral_format::Result;
use terral_format::ids::Ino;
use terral_format::local::entry::MapEntry;
use terral_format::local::lease::Until;
use terral_format::local::names::{self, Inode, flag};
use terral_format::wire::message::{FileRef, Reply, Request};
use terral_transport::boottime;

use crate::session::{Connection, Memory, unexpected};

/// Whether a deadline has passed; to be asked when what it is about is done.
#[inline]
pub(crate) fn is_over(until: Until) -> bool {
    until.is_over(boottime::now_ns)
}

impl Memory {
    /// Until when something may be used; to be asked before it is.
    #[inline]
    pub(crate) fn until(&self, borrowed: bool) -> Until {
        Until::noted(&self.superblock().deadline, borrowed)
    }

    /// Until when attributes, or names in a directory, may be looked at. What an inode is marked as
    /// counts if it was seen after the deadline was noted, which has passed on for others by then:
    /// so `again` gives it once more, if it matters.
    #[inline]
    pub(crate) fn until_seen(
        &self,
        inode: &Inode,
        again: impl FnOnce() -> Option<Inode>,
    ) -> (Until, Option<Inode>) {
        if inode.flags & (flag::ELSEWHERE | flag::BORROWED) == 0 {
            return (Until::ALWAYS, None);
        }
        let noted = self.until(true);
        let Some(now) = again() else { return (Until::NEVER, None) };
        let until = match now.flags & (flag::ELSEWHERE | flag::BORROWED | flag::SHOWN) {
            0 => Until::ALWAYS,
            marks if marks & flag::SHOWN != 0 => Until::ALWAYS,
            marks if marks & flag::BORROWED != 0 => noted,
            _ => Until::NEVER,
        };
        (until, Some(now))
    }

    /// Until when attributes, or names in a directory, may be changed, as things are now, whatever
    /// was seen before.
    pub(crate) fn until_now(&self, ino: Ino) -> Until {
        self.until_by(names::flags_of(self.flags(ino)))
    }

    /// The same of the bytes of a file that is open, and of how many they are: those are here, also
    /// while another machine has its attributes.
    #[inline]
    pub(crate) fn until_of_open(&self, ino: Ino) -> Until {
        self.until(names::flags_of(self.flags(ino)) & flag::BORROWED != 0)
    }

    #[inline]
    fn until_by(&self, flags: u16) -> Until {
        if flags & flag::ELSEWHERE != 0 {
            return Until::NEVER;
        }
        self.until(flags & flag::BORROWED != 0)
    }
}

impl Connection {
    /// Asks how what was done too late with a chunk, or with attributes or names, stands: true if
    /// it counts, false if it is to be done anew.
    #[cold]
    pub(crate) fn counts(&self, file: FileRef, chunk: Option<(u64, MapEntry)>) -> Result<bool> {
        let chunk = chunk.map(|(index, entry)| (index, entry.0));
        match self.call(Request::Late { file, chunk })? {
            Reply::Done => Ok(true),
            Reply::Again => Ok(false),
            _ => Err(unexpected()),
        }
    }
}
