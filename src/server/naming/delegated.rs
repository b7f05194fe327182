//! Which files' names are delegated to who decides a transaction: where the permanent store has
//! them is not known here until that is over, so nothing of them is brought, or read, there. A part
//! of the namespace: it runs from records only.
//!
//! Not here: how they are, and come back (`delegating`).

use terral_format::disk::NameOperation;
use terral_format::disk::membership::Transacts;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::Ino;
use terral_format::local::names::flag;

use crate::naming::names::{Names, is_known};
use crate::naming::owed::changed;

impl Names {
    pub(super) fn delegates(&mut self, record: &Transacts) {
        match record {
            Transacts::Delegated { file, .. } => drop(self.delegated.insert(Ino(file.counted()))),
            Transacts::Settled { file, .. } => self.is_returned(Ino(file.counted())),
            _ => {}
        }
    }

    /// It is known what a file is called, in the store, too: so there it is owed what was changed
    /// meanwhile.
    fn is_returned(&mut self, ino: Ino) {
        if !self.delegated.remove(&ino) {
            return;
        }
        let is_its =
            |operation: &mut NameOperation| changed(operation).is_some_and(|(of, _)| of == ino);
        let its: Vec<NameOperation> = self.later.extract_if(.., is_its).collect();
        let path = self.path(ino).filter(|_| self.inode(ino).is_some_and(|inode| is_known(&inode)));
        let Some(path) = path else { return };
        for mut operation in its {
            if let Some((_, at)) = changed(&mut operation) {
                at.clone_from(&path);
            }
            self.owe(operation);
        }
    }

    /// Whether a file's are.
    pub fn is_delegated(&self, ino: Ino) -> bool {
        self.delegated.contains(&ino)
    }

    /// Which of these files has this path.
    pub fn delegated_at(&self, path: &[u8]) -> Option<Ino> {
        let mut all = self.delegated.iter().copied();
        all.find(|ino| self.path(*ino).is_some_and(|its| its == path))
    }

    /// What the store has under a file's first name.
    pub(super) fn has_in_store(&mut self, ino: Ino, is: Option<Fingerprint>, rewritten: bool) {
        if is.is_none() {
            self.replacements.retain(|_, replacement| *replacement != ino);
        }
        self.update(ino, |inode| {
            inode.published = is;
            inode.flags &= !(flag::REWRITTEN | flag::INTENT);
            inode.flags |= if rewritten { flag::REWRITTEN } else { 0 };
        });
    }
}
