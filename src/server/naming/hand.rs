//! Files and numbers in hand: inodes that clients can create and use without asking.

use terral_format::ids::{FileSlot, Ino, ROOT};
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::wire::message::{Attributes, Kind};

use crate::naming::names::{Names, Place};

impl Names {
    /// Files in hand now.
    pub fn count_preallocated(&self) -> u64 {
        self.preallocated
    }

    /// A number for a new inode, which nobody else gets.
    pub fn reserve_ino(&mut self) -> Ino {
        let ino = self.next_ino();
        self.inodes.lend(ino);
        ino
    }

    /// A record says that a session has this number in hand.
    pub fn lent(&mut self, ino: Ino) {
        self.inodes.lend(ino);
    }

    /// A number that was lent was not used.
    pub fn give_back(&mut self, ino: Ino) {
        self.inodes.give_back(ino);
    }

    pub(super) fn preallocated(&mut self, ino: Ino, slot: FileSlot) {
        let mut inode = Inode::new(&Attributes {
            ino,
            kind: Kind::File,
            mode: 0,
            links: 0,
            uid: self.own.0,
            gid: self.own.1,
            size: 0,
            accessed_ns: 0,
            modified_ns: 0,
            changed_ns: 0,
        });
        inode.slot = Some(slot);
        inode.flags = flag::PREALLOCATED;
        self.preallocated += 1;
        self.inodes.insert(inode, (ROOT, b""), b"");
    }

    /// A file in hand gets its name.
    pub(super) fn created(&mut self, new: &Attributes, to: Place<'_>) {
        self.preallocated -= 1;
        self.inodes.name_it(index_of(new.ino), to, |inode| {
            inode.flags = inode.flags & !flag::PREALLOCATED | flag::COUNTED;
            inode.links = 1;
            (inode.mode, inode.uid, inode.gid) = (new.mode as u16, new.uid, new.gid);
            inode.accessed_ns = new.accessed_ns;
            inode.modified_ns = new.modified_ns;
            inode.changed_ns = new.changed_ns;
        });
        self.touch(to.0, new.changed_ns);
    }
}
