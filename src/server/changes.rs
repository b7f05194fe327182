//! How names come, move and go, and what the backing is then owed. A part of the namespace: it
//! changes nothing else, and runs from records only.
//!
//! Invariant: the backing learns of a file when it is published, under the first name it has then;
//! its further names follow as links to that. Directories and symbolic links are owed at once.

use terral_format::ids::{FileSlot, Ino, Lsn, ROOT};
use terral_format::message::{Attributes, Kind};
use terral_format::names::{Inode, flag, index_of};
use terral_format::record::NameOperation;

use crate::authn;
use crate::names::Names;

/// A name: where, and what it is called.
type Place<'a> = (Ino, &'a [u8]);

/// Whether the backing has an inode under its name as soon as all that is owed is done.
pub(crate) fn is_known(inode: &Inode) -> bool {
    inode.kind != Kind::File || (inode.published.is_some() && !inode.is(flag::REWRITTEN))
}

impl Names {
    pub(crate) fn made(&mut self, parent: Ino, name: &[u8], new: &Attributes, target: &[u8]) {
        self.insert(parent, name, Inode::new(new), target);
        if !name.is_empty() {
            self.touch(parent, new.changed_ns);
        }
        let Some(path) = self.path(new.ino) else { return };
        match new.kind {
            Kind::File => {}
            Kind::Directory => {
                self.owe(NameOperation::MakeDirectory { path, mode: new.mode });
            }
            Kind::Symlink => {
                self.owe(NameOperation::MakeLink { path, target: target.to_vec() });
            }
        }
    }

    // Files in hand.

    pub(crate) fn spared(&mut self, ino: Ino, slot: FileSlot) {
        let mut inode = Inode::new(&Attributes {
            ino,
            kind: Kind::File,
            mode: 0,
            links: 0,
            uid: authn::user(),
            gid: authn::group(),
            size: 0,
            accessed_ns: 0,
            modified_ns: 0,
            changed_ns: 0,
        });
        inode.slot = Some(slot);
        inode.flags = flag::SPARE;
        self.spares += 1;
        self.inodes.insert(inode, (ROOT, b""), b"");
    }

    pub(crate) fn created(&mut self, ino: Ino, to: Place<'_>, look: (u32, u32), time_ns: u64) {
        self.hidden.remove(&(to.0, to.1.into()));
        self.inodes.name_it(index_of(ino), to.0, to.1);
        self.spares -= 1;
        self.update(ino, |inode| {
            inode.flags &= !flag::SPARE;
            inode.links = 1;
            (inode.mode, inode.gid) = (look.0 as u16, look.1);
            inode.accessed_ns = time_ns;
            inode.modified_ns = time_ns;
            inode.changed_ns = time_ns;
        });
        self.touch(to.0, time_ns);
    }

    // Further names.

    pub(crate) fn linked(&mut self, ino: Ino, alias: Ino, to: Place<'_>, time_ns: u64) {
        let Some(inode) = self.inode(ino) else { return };
        let first = self.path(ino);
        self.hidden.remove(&(to.0, to.1.into()));
        if inode.is(flag::NAMED) {
            self.add_alias(ino, alias, to);
        } else {
            self.inodes.name_it(index_of(ino), to.0, to.1);
        }
        self.update(ino, |inode| {
            inode.links = if first.is_some() { inode.links + 1 } else { 1 };
            inode.changed_ns = time_ns;
        });
        self.touch(to.0, time_ns);
        if let (Some(from), true, Some(to)) = (first, is_known(&inode), self.path(alias)) {
            self.owe(NameOperation::Link { from, to, ino });
        }
    }

    pub(crate) fn add_alias(&mut self, ino: Ino, alias: Ino, to: Place<'_>) {
        let Some(mut inode) = self.inode(ino) else { return };
        // The slot's own fields say nothing of the file; only its name counts.
        inode.ino = alias;
        inode.kind = Kind::File;
        inode.flags = flag::ALIAS;
        inode.below = index_of(ino);
        inode.slot = None;
        inode.published = None;
        self.inodes.insert(inode, to, b"");
        self.aliases.entry(ino).or_default().push(alias);
    }

    /// A file was published as a new one: its further names are to be links to that.
    pub(crate) fn owe_aliases(&mut self, ino: Ino) {
        let Some(from) = self.path(ino) else { return };
        for alias in self.aliases.get(&ino).cloned().unwrap_or_default() {
            if let Some(to) = self.path(alias) {
                self.owe(NameOperation::Link { from: from.clone(), to, ino });
            }
        }
    }

    fn drop_alias(&mut self, ino: Ino, alias: Ino) {
        self.inodes.free(index_of(alias));
        if let Some(aliases) = self.aliases.get_mut(&ino) {
            aliases.retain(|other| *other != alias);
            if aliases.is_empty() {
                self.aliases.remove(&ino);
            }
        }
    }

    /// Takes one name from a file. True: it was the last. The name must be unlinked in the table.
    fn lose_name(&mut self, ino: Ino, slot: u32, time_ns: u64) -> bool {
        let alias = self.inodes.at(slot);
        if alias.is(flag::ALIAS) {
            self.drop_alias(ino, alias.ino);
        } else if let Some(next) = self.aliases.get(&ino).and_then(|all| all.first().copied()) {
            // The next one becomes the first.
            let (parent, name) = {
                let found = self.inodes.at(index_of(next));
                (self.inodes.at(found.parent).ino, self.inodes.name(&found))
            };
            self.inodes.unname(index_of(next));
            self.inodes.name_it(index_of(ino), parent, &name);
            self.drop_alias(ino, next);
        }
        let named = self.inode(ino).is_some_and(|inode| inode.is(flag::NAMED));
        self.update(ino, |inode| {
            inode.links = if named { inode.links.saturating_sub(1) } else { 0 };
            inode.changed_ns = time_ns;
        });
        !named
    }

    /// A file takes the place of another in the backing, whose bytes may just be changed there.
    fn inherit(&mut self, from: &Inode, heir: Ino) {
        if from.published.is_none() {
            return;
        }
        for known in self.heirs.values_mut().filter(|known| **known == from.ino) {
            *known = heir;
        }
        self.heirs.insert(from.ino, heir);
        let half = from.flags & flag::INTENT;
        self.update(heir, |inode| inode.flags |= half);
    }

    /// What is owed of `from` in the backing is owed of `to` now, which has its place there.
    fn hand_over(&mut self, from: Ino, to: Ino) {
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
                _ => {}
            }
        }
    }

    // Taking away.

    /// Takes `name` away; the backing's name is hidden until `owed` is done there.
    fn clear(&mut self, place: Place<'_>, owed: Option<Lsn>) {
        let (parent, name) = place;
        let still = || {
            // The backing may still have what had this name before.
            let mut gone = self.gone.iter().rev();
            gone.find(|(_, of, n)| (*of, &n[..]) == (parent, name)).map(|(until, ..)| *until)
        };
        match owed {
            Some(until) => self.hide(parent, name, until),
            None => {
                if let Some(until) = still() {
                    self.hidden.insert((parent, name.into()), until);
                }
            }
        }
    }

    /// What the backing is owed when `path`, a name of this file, goes.
    fn owe_removal(&mut self, inode: &Inode, path: Vec<u8>) -> Option<Lsn> {
        match inode.kind {
            Kind::Directory => self.owe(NameOperation::RemoveDirectory { path }),
            Kind::File if inode.published.is_none() => None,
            _ => {
                let keeps = (inode.links > 1).then_some(inode.ino);
                self.owe(NameOperation::Unlink { path, keeps })
            }
        }
    }

    pub(crate) fn remove(&mut self, parent: Ino, name: &[u8], time_ns: u64) -> Option<Ino> {
        let found = self.inodes.lookup(parent, name)?;
        let ino = self.file_of(&found);
        let inode = self.inode(ino)?;
        let path = self.path(found.ino)?;
        let owed = self.owe_removal(&inode, path);
        self.inodes.unname(index_of(found.ino));
        self.clear((parent, name), owed);
        self.touch(parent, time_ns);
        if inode.is_directory() {
            self.count_link(parent, -1);
        }
        self.lose_name(ino, index_of(found.ino), time_ns).then_some(ino)
    }

    // Moving.

    pub(crate) fn rename(&mut self, from: Place<'_>, to: Place<'_>, time_ns: u64) -> Option<Ino> {
        let moved = self.inodes.lookup(from.0, from.1)?;
        let ino = self.file_of(&moved);
        let inode = self.inode(ino)?;
        let old_path = self.path(moved.ino)?;
        let replaced = self.inodes.lookup(to.0, to.1).filter(|there| there.ino != moved.ino);
        let there = replaced.and_then(|there| self.inode(self.file_of(&there)));
        let known = is_known(&inode);
        // What the backing has under the old name of a rewritten file is not to be seen again.
        let outdated = inode.published.is_some() && inode.is(flag::REWRITTEN);
        // What keeps other names, or is a link, is no version of a file that ours could replace.
        let apart = there.filter(|there| there.links > 1 || there.kind != Kind::File);
        let there_known = there.filter(|_| apart.is_none());
        let inherited = there_known.and_then(|there| there.published);

        self.hidden.remove(&(to.0, to.1.into()));
        self.inodes.rename(index_of(moved.ino), to, replaced.map(|there| index_of(there.ino)));
        if inode.is_directory() {
            self.count_link(from.0, -1);
            self.count_link(to.0, 1);
        }
        let first = moved.ino == ino;
        if let (false, true, Some(there)) = (known, first, there_known) {
            // What is still to be done with the backing's copy changes the look that we inherit.
            self.hand_over(there.ino, ino);
            self.inherit(&there, ino);
        }
        self.update(ino, |inode| {
            inode.changed_ns = time_ns;
            if !known && first {
                // The backing's file of the new name stays until ours takes its place, whole.
                inode.published = inherited;
                inode.flags &= !flag::REWRITTEN;
                if inherited.is_some() {
                    inode.flags |= flag::REWRITTEN;
                }
            }
        });
        let new_path = self.path(moved.ino)?;
        if let Some(there) = apart.filter(|there| !there.is_directory()) {
            let keeps = (there.links > 1).then_some(there.ino);
            self.owe(NameOperation::Unlink { path: new_path.clone(), keeps });
        }
        let owed = if known {
            self.owe(NameOperation::Rename { from: old_path, to: new_path, ino })
        } else if outdated {
            let keeps = (inode.links > 1).then_some(ino);
            self.owe(NameOperation::Unlink { path: old_path, keeps })
        } else {
            None
        };
        self.clear(from, owed);
        self.touch(from.0, time_ns);
        self.touch(to.0, time_ns);
        let (replaced, there) = (replaced?, there?);
        if there.is_directory() {
            self.count_link(to.0, -1);
        }
        self.lose_name(there.ino, index_of(replaced.ino), time_ns).then_some(there.ino)
    }

    pub(crate) fn exchange(&mut self, one: Place<'_>, other: Place<'_>, time_ns: u64) {
        let found = [one, other].map(|place| self.inodes.lookup(place.0, place.1));
        let [Some(a), Some(b)] = found else { return };
        let inodes = [&a, &b].map(|found| self.inode(self.file_of(found)));
        let ([Some(file_a), Some(file_b)], [Some(path_a), Some(path_b)]) =
            (inodes, [self.path(a.ino), self.path(b.ino)])
        else {
            return;
        };
        self.inodes.exchange(index_of(a.ino), index_of(b.ino));
        for (file, from, to) in [(&file_a, one.0, other.0), (&file_b, other.0, one.0)] {
            if file.is_directory() {
                self.count_link(from, -1);
                self.count_link(to, 1);
            }
            self.update(file.ino, |inode| inode.changed_ns = time_ns);
        }
        self.touch(one.0, time_ns);
        self.touch(other.0, time_ns);
        match (is_known(&file_a), is_known(&file_b)) {
            (true, true) => {
                self.owe(NameOperation::Exchange { from: path_a, to: path_b });
            }
            // The one that is not there yet, or is to be written whole, goes to where it now is;
            // the backing's copy of the other moves, and what was in its way is replaced by it.
            (true, false) => self.move_one(&file_a, &file_b, path_a, path_b, one),
            (false, true) => self.move_one(&file_b, &file_a, path_b, path_a, other),
            (false, false) => {
                self.hand_over(file_a.ino, Ino(0));
                self.hand_over(file_b.ino, file_a.ino);
                self.hand_over(Ino(0), file_b.ino);
                self.update(file_a.ino, |inode| inherit(inode, &file_b));
                self.update(file_b.ino, |inode| inherit(inode, &file_a));
            }
        }
    }

    /// In an exchange: `known` has left `place` for where `new` was.
    fn move_one(&mut self, known: &Inode, new: &Inode, from: Vec<u8>, to: Vec<u8>, at: Place<'_>) {
        let owed = self.owe(NameOperation::Rename { from, to, ino: known.ino });
        self.update(new.ino, |inode| {
            inode.published = None;
            inode.flags &= !flag::REWRITTEN;
        });
        // Hidden behind the new name of `new` as long as that is there.
        if let Some(until) = owed {
            self.gone.push_back((until, at.0, at.1.into()));
        }
    }
}

/// Both files of an exchange are new to the backing: each replaces what it has under the new name.
fn inherit(inode: &mut Inode, other: &Inode) {
    inode.published = other.published;
    inode.flags &= !flag::REWRITTEN;
    if other.published.is_some() {
        inode.flags |= flag::REWRITTEN;
    }
}
