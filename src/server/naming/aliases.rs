//! Further names of files. The first one is in the inode; each other one has a place of its own in
//! the table, which says whose it is.

use terral_format::disk::NameOperation;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::Ino;
use terral_format::local::names::{flag, index_of};
use terral_format::wire::message::Kind;

use crate::core::invariant::holds;
use crate::naming::names::{Names, Place, is_known};

impl Names {
    pub(super) fn linked(&mut self, ino: Ino, alias: Ino, to: Place<'_>, time_ns: u64) {
        let Some(inode) = self.inode(ino) else { return };
        let first = self.path(ino);
        if inode.is(flag::NAMED) {
            self.add_alias(ino, alias, to);
        } else {
            // What the backing had of it went with its last name.
            self.inodes.name_it(index_of(ino), to, |inode| {
                inode.published = None;
                inode.backed_bytes = 0;
                inode.flags &= !(flag::REWRITTEN | flag::INTENT | flag::CONTESTED);
            });
        }
        self.update(ino, |inode| {
            inode.links = if first.is_some() { inode.links + 1 } else { 1 };
            inode.changed_ns = time_ns;
        });
        self.touch(to.0, time_ns);
        if let (Some(from), true, Some(to)) = (first, is_known(&inode), self.path(alias)) {
            self.owe(NameOperation::Link { from, to, ino, over: Some(Object::NONE) });
        }
    }

    pub(super) fn add_alias(&mut self, ino: Ino, alias: Ino, to: Place<'_>) {
        let Some(mut inode) = self.inode(ino) else { return };
        // The slot's own fields say nothing of the file; only its name counts.
        inode.ino = alias;
        inode.kind = Kind::File;
        inode.flags = flag::ALIAS;
        inode.below = index_of(ino);
        inode.slot = None;
        inode.published = None;
        holds("a further name is of one that has a first", || self.path(ino).is_some());
        self.inodes.insert(inode, to, b"");
        self.aliases.entry(ino).or_default().push(alias);
    }

    /// A file was published as a new one, in place of `before`: its further names, which may be
    /// links to that, are to be links to the new one.
    pub(super) fn owe_aliases(&mut self, ino: Ino, before: Option<Fingerprint>) {
        let over = Some(before.map_or(Object::NONE, Fingerprint::object));
        let Some(from) = self.path(ino) else { return };
        for alias in self.aliases.get(&ino).cloned().unwrap_or_default() {
            if let Some(to) = self.path(alias) {
                self.owe(NameOperation::Link { from: from.clone(), to, ino, over });
            }
        }
    }

    pub(super) fn drop_alias(&mut self, ino: Ino, alias: Ino) {
        self.inodes.free(index_of(alias));
        if let Some(aliases) = self.aliases.get_mut(&ino) {
            aliases.retain(|other| *other != alias);
            if aliases.is_empty() {
                self.aliases.remove(&ino);
            }
        }
    }

    /// Takes one name from a file. True: it was the last. The name must be unlinked in the table.
    pub(super) fn lose_name(&mut self, ino: Ino, slot: u32, time_ns: u64) -> bool {
        let alias = self.inodes.at(slot);
        if alias.is(flag::ALIAS) {
            self.drop_alias(ino, alias.ino);
        } else if let Some(next) = self.aliases.get(&ino).and_then(|all| all.iter().min().copied())
        {
            // The next one becomes the first: the same in a replay, which may know them in another
            // order.
            let (parent, name) = {
                let found = self.inodes.at(index_of(next));
                (self.inodes.at(found.parent).ino, self.inodes.name(&found))
            };
            self.inodes.unname(index_of(next));
            self.inodes.name_it(index_of(ino), (parent, &name), |_| ());
            self.drop_alias(ino, next);
            self.leave_older(ino);
        }
        let named = self.inode(ino).is_some_and(|inode| inode.is(flag::NAMED));
        self.update(ino, |inode| {
            inode.links = if named { inode.links.saturating_sub(1) } else { 0 };
            inode.changed_ns = time_ns;
        });
        !named
    }
}
