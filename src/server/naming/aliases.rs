//! Further names of files. The first one is in the inode; each other one has a place of its own in
//! the table, which says whose it is.

use terral_format::disk::NameOperation;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::Ino;
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::wire::message::Kind;

use crate::core::invariant::holds;
use crate::naming::names::{Names, Place, is_known};

impl Names {
    pub(super) fn linked(&mut self, ino: Ino, alias: Ino, to: Place<'_>, time_ns: u64) {
        let Some(inode) = self.inode(ino) else { return };
        let first = self.path(ino);
        let has_others = inode.is(flag::NAMED) || (self.has_others && inode.links > 0);
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
            inode.links = if has_others { inode.links.saturating_add(1) } else { 1 };
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
        let has_first = |file: Inode| file.is(flag::NAMED);
        holds("a further name is of one that has a first", || {
            self.inode(ino).is_some_and(has_first)
        });
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

    /// Whether a file may have names that are not in these tables: only its count says then whether
    /// it has any. Where there is a permanent store, who brings it has all of them.
    pub(super) fn counts(&self, inode: &Inode) -> bool {
        let all = self.has_backing && !inode.is(flag::FAR);
        self.has_others && !all && inode.kind == Kind::File
    }

    /// Takes one name from a file. True: it was the last. The name must be unlinked in the table.
    pub(super) fn lose_name(&mut self, ino: Ino, slot: u32, time_ns: u64) -> bool {
        self.drop_name(ino, slot);
        let Some(inode) = self.inode(ino) else { return false };
        let named = inode.is(flag::NAMED);
        let left = inode.links.saturating_sub(1);
        let links = if named || self.counts(&inode) { left } else { 0 };
        // What it is called in directories that are here it is called, whatever is counted.
        let links = if links == 0 && self.counts(&inode) { self.names_here(ino) } else { links };
        self.update(ino, |inode| {
            inode.links = links;
            inode.changed_ns = time_ns;
        });
        if !self.counts(&inode) {
            return !named;
        }
        // Of one that was let go it may turn out that it has stayed.
        let all = links == 0 && !self.is_leaving(ino);
        if all {
            // What else it is called here is older.
            self.drop_names(ino);
        }
        // Of another member's file nothing is kept that is not called anything here.
        all || (inode.is(flag::FAR) && !named)
    }

    /// All names that are here of a file, with the directories they are in.
    pub fn names_of(&self, ino: Ino) -> Vec<(Ino, Vec<u8>)> {
        let Some(inode) = self.inode(ino).filter(|inode| inode.is(flag::NAMED)) else {
            return Vec::new();
        };
        let aliases = self.aliases.get(&ino).into_iter().flatten();
        let aliases = aliases.map(|alias| self.inodes.at(index_of(*alias)));
        let all = std::iter::once(inode).chain(aliases);
        all.map(|name| (self.inodes.at(name.parent).ino, self.inodes.name(&name))).collect()
    }

    /// How many names of a file are in directories that are here.
    pub fn names_here(&self, ino: Ino) -> u32 {
        let names = self.names_of(ino).into_iter();
        names.filter(|(parent, _)| !self.is_elsewhere(*parent)).count() as u32
    }

    /// Whether more than one name of a file is here.
    pub fn has_further(&self, ino: Ino) -> bool {
        self.aliases.contains_key(&ino)
    }

    /// A file is called none of what it is called here.
    fn drop_names(&mut self, ino: Ino) {
        for alias in self.aliases.remove(&ino).unwrap_or_default() {
            self.inodes.unname(index_of(alias));
            self.inodes.free(index_of(alias));
        }
        if self.inode(ino).is_some_and(|inode| inode.is(flag::NAMED)) {
            self.inodes.unname(index_of(ino));
        }
    }

    /// A name is none any more, as it was lost elsewhere before: it does not count.
    pub(super) fn unnamed(&mut self, (parent, name): Place<'_>) {
        if let Some(found) = self.inodes.lookup(parent, name) {
            let ino = self.file_of(&found);
            self.inodes.unname(index_of(found.ino));
            self.drop_name(ino, index_of(found.ino));
        }
    }

    /// What is unlinked in the table is no name of a file any more; the next one may become its
    /// first.
    fn drop_name(&mut self, ino: Ino, slot: u32) {
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
    }
}
