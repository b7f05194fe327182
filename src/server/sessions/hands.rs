//! What sessions have in hand, beside files: descriptions for what they open, and inode numbers for
//! the directories they make. What a session has not used when it ends is free again. Not here: how
//! it gets them (`lending`).

use rustc_hash::FxHashMap;
use terral_format::disk::Record;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};

use crate::core::invariant::holds;

/// What is lent, and to whom.
#[derive(Default)]
pub struct Hands {
    descriptions: FxHashMap<DescriptionSlot, (SessionSlot, u32)>,
    inos: FxHashMap<Ino, SessionSlot>,
}

impl Hands {
    /// A record says that this was lent.
    pub fn lent(&mut self, to: SessionSlot, descriptions: &[(DescriptionSlot, u32)], inos: &[Ino]) {
        let lent = || descriptions.iter().any(|(slot, _)| self.descriptions.contains_key(slot));
        let lent = || lent() || inos.iter().any(|ino| self.inos.contains_key(ino));
        holds("nothing is lent to two", || !lent());
        let descriptions = descriptions.iter().map(|(slot, nonce)| (*slot, (to, *nonce)));
        self.descriptions.extend(descriptions);
        self.inos.extend(inos.iter().map(|ino| (*ino, to)));
    }

    /// What this record uses is in hand no more.
    pub fn used_by(&mut self, record: &Record) {
        match record {
            Record::Local(Local::Opened { description, .. }) => {
                self.descriptions.remove(description);
            }
            Record::Fact(Fact::Made { ino, .. }) => _ = self.inos.remove(ino),
            _ => {}
        }
    }

    /// Whether a session has this description in hand.
    pub fn has(&self, session: SessionSlot, description: DescriptionSlot, nonce: u32) -> bool {
        self.descriptions.get(&description) == Some(&(session, nonce))
    }

    /// Whether a session has this inode number in hand.
    pub fn has_ino(&self, session: SessionSlot, ino: Ino) -> bool {
        self.inos.get(&ino) == Some(&session)
    }

    /// A session ended: gives what it had not used.
    pub fn ended(&mut self, session: SessionSlot) -> (Vec<DescriptionSlot>, Vec<Ino>) {
        let descriptions = self.descriptions.iter().filter(|(_, (of, _))| *of == session);
        let descriptions: Vec<_> = descriptions.map(|(slot, _)| *slot).collect();
        let inos = self.inos.iter().filter(|(_, of)| **of == session);
        let inos: Vec<_> = inos.map(|(ino, _)| *ino).collect();
        descriptions.iter().for_each(|slot| _ = self.descriptions.remove(slot));
        inos.iter().for_each(|ino| _ = self.inos.remove(ino));
        (descriptions, inos)
    }

    /// All descriptions that are lent.
    pub fn descriptions(&self) -> impl Iterator<Item = DescriptionSlot> {
        self.descriptions.keys().copied()
    }

    /// All inode numbers that are.
    pub fn inos(&self) -> impl Iterator<Item = Ino> {
        self.inos.keys().copied()
    }

    /// Records from which they come back.
    pub fn snapshot(&self) -> impl Iterator<Item = Local> {
        let descriptions = self.descriptions.iter().map(|(slot, (session, nonce))| Local::Lent {
            session: *session,
            descriptions: vec![(*slot, *nonce)],
            inos: Vec::new(),
        });
        let inos = self.inos.iter().map(|(ino, session)| Local::Lent {
            session: *session,
            descriptions: Vec::new(),
            inos: vec![*ino],
        });
        descriptions.chain(inos)
    }
}
