//! Whose place in the backing a file takes when it has taken its name, and what is then owed of the
//! one that was there.

use terral_format::disk::NameOperation;
use terral_format::ids::Ino;
use terral_format::local::names::{Inode, flag};

use crate::naming::names::{Names, is_known};

impl Names {
    /// Who has taken a file's place in the backing.
    pub fn replacement(&self, ino: Ino) -> Option<Ino> {
        self.replacements.get(&ino).copied()
    }

    /// A file that the backing does not know takes the place of another there, whose bytes may just
    /// be changed.
    pub(super) fn replace_in_backing(&mut self, from: &Inode, replacement: Ino) {
        // What is still to be done with the backing's copy changes the look that we know.
        self.hand_over(from.ino, replacement);
        for known in self.replacements.values_mut().filter(|known| **known == from.ino) {
            *known = replacement;
        }
        self.replacements.insert(from.ino, replacement);
        self.update(replacement, |inode| {
            inode.published = from.published;
            inode.flags |= flag::REWRITTEN | from.flags & flag::INTENT;
        });
    }

    /// A file that the backing does not know leaves the name under which it would have replaced an
    /// older one.
    pub(super) fn leave_older(&mut self, ino: Ino) {
        let leaves = |inode: &Inode| inode.published.is_some() || inode.is(flag::INTENT);
        if !self.inode(ino).is_some_and(|inode| !is_known(&inode) && leaves(&inode)) {
            return;
        }
        self.replacements.retain(|_, replacement| *replacement != ino);
        self.update(ino, |inode| {
            inode.published = None;
            inode.flags &= !(flag::REWRITTEN | flag::INTENT);
        });
    }

    /// What is owed of `from` in the backing is owed of `to` now, which has its place there.
    pub(super) fn hand_over(&mut self, from: Ino, to: Ino) {
        for (_, operation) in &mut self.owed {
            match operation {
                NameOperation::Rename { ino, .. }
                | NameOperation::Link { ino, .. }
                | NameOperation::Change { ino, .. }
                | NameOperation::SetXattr { ino, .. }
                | NameOperation::Unlink { keeps: Some(ino), .. }
                    if *ino == from =>
                {
                    *ino = to;
                }
                NameOperation::Exchange { inos, .. } => {
                    inos.iter_mut().filter(|ino| **ino == from).for_each(|ino| *ino = to);
                }
                _ => {}
            }
        }
    }
}
