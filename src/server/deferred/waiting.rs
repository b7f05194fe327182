//! Deferred changes that cannot be applied just now, as a file that is open loses its name and what
//! only the permanent directory has of it cannot be brought: they stay committed, and are tried
//! again. Others do not wait for them, but for those that are about the same things.
//!
//! Not here: how they are applied (`applying`), and who tries again (`tending`).

use std::time::Duration;

use terral_format::Error;
use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::local::changes::Deferred;

use crate::core::world::Tick;

/// First and longest pause before they are tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// What changes are about.
#[derive(PartialEq)]
enum Thing {
    Name(Ino, Vec<u8>),
    Inode(Ino),
    Description(DescriptionSlot),
}

/// What one is about, and the directories it takes place in.
fn things(change: &Deferred<'_>) -> (Vec<Thing>, Vec<Ino>) {
    use Thing::{Description, Inode, Name};
    match *change {
        Deferred::Create { ino, parent, name, .. }
        | Deferred::Unlink { parent, name, ino, .. }
        | Deferred::MakeDirectory { ino, parent, name, .. }
        | Deferred::RemoveDirectory { parent, name, ino, .. } => {
            (vec![Name(parent, name.into()), Inode(ino)], vec![parent])
        }
        Deferred::Change { ino, .. } => (vec![Inode(ino)], vec![]),
        Deferred::Close { description, .. } => (vec![Description(description)], vec![]),
        Deferred::Open { ino, description, .. } => {
            (vec![Inode(ino), Description(description)], vec![])
        }
        Deferred::Rename { parent, name, to_parent, to_name, ino, over, .. } => {
            let names = [Name(parent, name.into()), Name(to_parent, to_name.into())];
            let inodes = [Inode(ino), Inode(over)];
            (names.into_iter().chain(inodes).collect(), vec![parent, to_parent])
        }
    }
}

/// The changes that wait.
#[derive(Default)]
pub struct Waiting {
    things: Vec<Thing>,
    directories: Vec<Ino>,
    sessions: Vec<SessionSlot>,
    /// What tells them apart: their stamps.
    stamps: Vec<u64>,
    why: Option<Error>,
    /// When they are tried again, and the pause before.
    again: Option<(Tick, Duration)>,
}

impl Waiting {
    /// Those that wait after another look: the pauses grow while there are any.
    pub fn after(before: &Waiting, now: Tick) -> Self {
        let again = match before.again {
            Some((until, pause)) if !before.is_due(now) => (until, pause),
            Some((_, pause)) => (now + pause, (pause * 2).min(PAUSE.1)),
            None => (now + PAUSE.0, PAUSE.0 * 2),
        };
        Waiting { again: Some(again), ..Waiting::default() }
    }

    /// Whether they may be tried again.
    pub fn is_due(&self, now: Tick) -> bool {
        self.again.is_none_or(|(until, _)| until <= now)
    }

    /// Something happened that may help.
    pub fn hasten(&mut self, now: Tick) {
        self.again = self.again.map(|_| (now, PAUSE.0));
    }

    /// Whether the change with this stamp waits, and is not to be tried yet.
    pub fn keeps(&self, stamp: u64, now: Tick) -> bool {
        !self.stamps.is_empty() && self.stamps.contains(&stamp) && !self.is_due(now)
    }

    /// One more waits: it failed, or it comes after one that it depends on.
    pub fn add(
        &mut self,
        (session, stamp): (SessionSlot, u64),
        change: &Deferred<'_>,
        why: Option<Error>,
    ) {
        let (things, directories) = things(change);
        self.things.extend(things.into_iter().filter(|thing| *thing != Thing::Inode(Ino(0))));
        self.directories.extend(directories);
        self.sessions.push(session);
        self.stamps.push(stamp);
        self.why = self.why.take().or(why);
    }

    /// Whether a change must come after one that waits.
    pub fn precede(&self, change: &Deferred<'_>) -> bool {
        if self.sessions.is_empty() {
            return false;
        }
        let (things, directories) = things(change);
        let same = things.iter().any(|thing| self.things.contains(thing));
        let within = directories.into_iter().any(|ino| self.things.contains(&Thing::Inode(ino)));
        let above = |thing: &Thing| self.directories.iter().any(|ino| *thing == Thing::Inode(*ino));
        same || within || things.iter().any(above)
    }

    /// Whether one that waits is about this inode, as one that creates it is.
    pub fn is_about(&self, ino: Ino) -> bool {
        self.things.contains(&Thing::Inode(ino))
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Why the first of them does.
    pub fn why(&self) -> Option<&Error> {
        self.why.as_ref()
    }

    /// Whether changes of this session do.
    pub fn has(&self, session: SessionSlot) -> bool {
        self.sessions.contains(&session)
    }
}

#[cfg(test)]
mod tests {
    use super::Waiting;
    use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
    use terral_format::local::changes::Deferred;

    fn unlink(parent: u64, name: &[u8], ino: u64) -> Deferred<'_> {
        Deferred::Unlink { parent: Ino(parent), name, ino: Ino(ino), time_ns: 0 }
    }

    #[test]
    fn only_what_is_about_the_same_things_comes_after() {
        let mut waiting = Waiting::default();
        let first = unlink(1, b"a", 10);
        assert!(!waiting.precede(&first));
        waiting.add((SessionSlot(3), 1), &first, None);
        assert!(waiting.precede(&first) && waiting.has(SessionSlot(3)) && waiting.count() == 1);
        assert!(!waiting.precede(&unlink(1, b"b", 11)) && !waiting.precede(&unlink(2, b"a", 12)));
        let (parent, name, ino, time_ns) = (Ino(1), b"d".as_slice(), Ino(1), 0);
        let gone = Deferred::RemoveDirectory { parent, name, ino, time_ns };
        assert!(waiting.precede(&gone), "the directory it takes place in");
        let description = DescriptionSlot(7);
        assert!(!waiting.precede(&Deferred::Close { description, nonce: 1 }));
        let open = Deferred::Open { ino: Ino(10), description, nonce: 1, access: 1 };
        assert!(waiting.precede(&open));
        waiting.add((SessionSlot(3), 1), &open, None);
        assert!(waiting.precede(&Deferred::Close { description, nonce: 1 }));
    }

    #[test]
    fn what_is_in_a_directory_comes_after_what_is_about_that() {
        let mut waiting = Waiting::default();
        let (parent, name, to_name) = (Ino(1), b"d".as_slice(), b"e".as_slice());
        let (to_parent, ino, over, time_ns) = (parent, Ino(20), Ino(0), 0);
        let moved = Deferred::Rename { parent, name, to_parent, to_name, ino, over, time_ns };
        waiting.add((SessionSlot(0), 1), &moved, None);
        assert!(waiting.precede(&unlink(20, b"x", 21)) && waiting.precede(&unlink(1, b"e", 22)));
        let over_nothing = Deferred::Rename {
            parent: Ino(5),
            name: b"p",
            to_parent: Ino(5),
            to_name: b"q",
            ino: Ino(50),
            over: Ino(0),
            time_ns,
        };
        assert!(!waiting.precede(&over_nothing), "nothing is no thing that they share");
    }
}
