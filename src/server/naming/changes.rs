//! How names come, move and go, and what the backing is then owed. A part of the namespace: it
//! changes nothing else, and runs from records only.
//!
//! Invariants, of the backing as it is once all that is owed is done: a file that it knows is there
//! under all of its names. One that it does not know yet, or that starts anew, may have an older
//! file under its first name, which it will replace in one step, and has nothing under the others:
//! they become links to it when it is published. Directories, symbolic links and FIFOs are owed at
//! once. A socket is never there.

use terral_format::disk::NameOperation;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::{Ino, Lsn};
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::wire::message::{Attributes, Change, Kind};

use crate::naming::names::{Names, Place, is_known};

/// What the backing has under a name as soon as all that is owed is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    /// Nothing.
    Nothing,
    /// What has the name here, and under other names, too, if `shared`.
    Same { shared: bool },
    /// An older file that looks like this, for what has the name here to replace.
    Older(Fingerprint),
}

/// What the backing has under the name in slot `name`, which is one of `inode`'s.
fn there(name: &Inode, inode: &Inode) -> There {
    match inode.published {
        _ if is_known(inode) => There::Same { shared: inode.kind == Kind::File && inode.links > 1 },
        Some(older) if name.ino == inode.ino => There::Older(older),
        _ => There::Nothing,
    }
}

/// What the backing has under a name that is taken over, as [`NameOperation::Rename`] says it.
fn over(replaced: Option<&(Inode, Inode)>) -> Option<Object> {
    let Some((name, inode)) = replaced.filter(|(_, inode)| inode.kind != Kind::Socket) else {
        return Some(Object::NONE);
    };
    match there(name, inode) {
        There::Same { shared: false } if inode.kind == Kind::File => {
            inode.published.map(Fingerprint::object)
        }
        There::Older(older) => Some(older.object()),
        // It has not come to be there, and will not any more.
        There::Nothing if name.ino == inode.ino => Some(Object::NONE),
        // The others keep further names, or are no files.
        There::Same { .. } | There::Nothing => None,
    }
}

impl Names {
    pub(crate) fn made(&mut self, parent: Ino, name: &[u8], new: &Attributes, target: &[u8]) {
        if self.inode(new.ino).is_some_and(|inode| inode.is(flag::PREALLOCATED)) {
            self.created(new, (parent, name));
            return;
        }
        let counted = if new.kind == Kind::File { flag::COUNTED } else { 0 };
        self.insert(parent, name, Inode { flags: counted, ..Inode::new(new) }, target);
        if !name.is_empty() {
            self.touch(parent, new.changed_ns);
        }
        let Some(path) = self.path_there(new.ino) else { return };
        match new.kind {
            Kind::File | Kind::Socket => {}
            Kind::Fifo => {
                self.owe(NameOperation::MakeFifo { path: path.clone(), mode: new.mode });
                self.owe_owner(path, new);
            }
            Kind::Directory => {
                self.owe(NameOperation::MakeDirectory { path: path.clone(), mode: new.mode });
                self.owe_owner(path, new);
            }
            Kind::Symlink => {
                let target = target.to_vec();
                self.owe(NameOperation::MakeLink { path: path.clone(), target });
                self.owe_owner(path, new);
            }
        }
    }

    /// What root's server makes there is root's: somebody else's is given to him.
    fn owe_owner(&mut self, path: Vec<u8>, new: &Attributes) {
        let own = self.own;
        if own.0 != 0 || own == (new.uid, new.gid) {
            return;
        }
        // Giving a file away may take set-id bits off.
        let mode = (new.kind != Kind::Symlink).then_some(new.mode);
        let (uid, gid) = (Some(new.uid), Some(new.gid));
        let change = Change { mode, uid, gid, ..Change::default() };
        self.owe(NameOperation::Change { path, ino: new.ino, change });
    }

    /// What the backing has under a name that was taken away is hidden until `owed` is done there.
    fn hide(&mut self, place: Place<'_>, owed: Option<Lsn>) {
        owed.into_iter().for_each(|until| self.hidden.hide(place, until));
    }

    /// Has what the backing has under `path`, a name of this inode, removed there.
    fn owe_removal(&mut self, inode: &Inode, there: There, path: Vec<u8>) -> Option<Lsn> {
        let keeps = match there {
            There::Nothing => return None,
            There::Same { .. } if inode.is_directory() => {
                return self.owe(NameOperation::RemoveDirectory { path });
            }
            There::Same { shared } => shared.then_some(inode.ino),
            There::Older(_) => None,
        };
        self.owe(NameOperation::Unlink { path, keeps })
    }

    /// As [`Names::owe_removal`], for a name that another has here already.
    fn owe_replaced(&mut self, inode: &Inode, there: There, path: Vec<u8>, place: Place<'_>) {
        let owed = self.owe_removal(inode, there, path);
        self.hide(place, owed);
    }

    pub(crate) fn remove(&mut self, parent: Ino, name: &[u8], time_ns: u64) -> Option<Ino> {
        let found = self.inodes.lookup(parent, name)?;
        let ino = self.file_of(&found);
        let inode = self.inode(ino)?;
        let path = self.path_there(found.ino)?;
        let owed = self.owe_removal(&inode, there(&found, &inode), path);
        self.inodes.unname(index_of(found.ino));
        self.hide((parent, name), owed);
        self.touch(parent, time_ns);
        if inode.is_directory() {
            self.count_link(parent, -1);
        }
        self.lose_name(ino, index_of(found.ino), time_ns).then_some(ino)
    }

    pub(crate) fn rename(&mut self, from: Place<'_>, to: Place<'_>, time_ns: u64) -> Option<Ino> {
        let moved = self.inodes.lookup(from.0, from.1)?;
        let inode = self.inode(self.file_of(&moved))?;
        let old_path = self.path_there(moved.ino)?;
        let replaced = self.inodes.lookup(to.0, to.1).filter(|other| other.ino != moved.ino);
        let replaced = replaced.and_then(|name| Some((name, self.inode(self.file_of(&name))?)));

        let slot = replaced.map(|(name, _)| index_of(name.ino));
        self.inodes.rename(index_of(moved.ino), to, slot);
        if inode.is_directory() {
            self.count_link(from.0, -1);
            self.count_link(to.0, 1);
        }
        self.update(inode.ino, |inode| inode.changed_ns = time_ns);
        let new_path = self.path_there(moved.ino)?;
        let owed = match there(&moved, &inode) {
            There::Same { .. } => {
                // One that keeps other names looks different with one less.
                if let Some((name, other)) = &replaced
                    && there(name, other) == (There::Same { shared: true })
                {
                    let there = There::Same { shared: true };
                    self.owe_replaced(other, there, new_path.clone(), to);
                }
                let (ino, over) = (inode.ino, over(replaced.as_ref()));
                self.owe(NameOperation::Rename { from: old_path, to: new_path, ino, over })
            }
            older => {
                let owed = self.owe_removal(&inode, older, old_path);
                self.replace(&moved, &inode, replaced.as_ref(), to, new_path);
                owed
            }
        };
        self.hide(from, owed);
        self.touch(from.0, time_ns);
        self.touch(to.0, time_ns);
        let (name, other) = replaced?;
        if other.is_directory() {
            self.count_link(to.0, -1);
        }
        self.lose_name(other.ino, index_of(name.ino), time_ns).then_some(other.ino)
    }

    /// What the backing does not know has taken the name of another, which is `path`.
    fn replace(
        &mut self,
        moved: &Inode,
        inode: &Inode,
        replaced: Option<&(Inode, Inode)>,
        to: Place<'_>,
        path: Vec<u8>,
    ) {
        let first = moved.ino == inode.ino && inode.kind == Kind::File;
        if first {
            self.leave_older(inode.ino);
        }
        let Some((name, other)) = replaced else { return };
        let there = there(name, other);
        let file = other.kind == Kind::File && there != There::Same { shared: true };
        if first && file && there != There::Nothing {
            // The backing's file of the new name stays until ours takes its place, whole.
            self.replace_in_backing(other, inode.ino);
        } else {
            // What keeps other names, or is no file, is no version that ours could replace.
            self.owe_replaced(other, there, path, to);
        }
    }

    pub(crate) fn exchange(&mut self, one: Place<'_>, other: Place<'_>, time_ns: u64) {
        let found = [one, other].map(|place| self.inodes.lookup(place.0, place.1));
        let [Some(a), Some(b)] = found else { return };
        let inodes = [&a, &b].map(|found| self.inode(self.file_of(found)));
        let ([Some(file_a), Some(file_b)], [Some(path_a), Some(path_b)]) =
            (inodes, [self.path_there(a.ino), self.path_there(b.ino)])
        else {
            return;
        };
        self.inodes.exchange(index_of(a.ino), index_of(b.ino));
        for (file, from, to) in [(&file_a, one.0, other.0), (&file_b, other.0, one.0)] {
            if file.is_directory() {
                self.count_link(from, -1);
                self.count_link(to, 1);
            }
            // What another member's file looks like is its home's to say.
            if !file.is(flag::FAR) {
                self.update(file.ino, |inode| inode.changed_ns = time_ns);
            }
        }
        self.touch(one.0, time_ns);
        self.touch(other.0, time_ns);
        // What the backing has of another member's file only that one knows.
        let far = file_a.is(flag::FAR) || file_b.is(flag::FAR);
        if far || (is_known(&file_a) && is_known(&file_b)) {
            let inos = [file_a.ino, file_b.ino];
            self.owe(NameOperation::Exchange { from: path_a, to: path_b, inos });
            return;
        }
        // An older file that one of them would have replaced is in the way of both.
        for (name, file, path, place) in
            [(&a, &file_a, &path_a, one), (&b, &file_b, &path_b, other)]
        {
            if let older @ There::Older(_) = there(name, file) {
                self.owe_replaced(file, older, path.clone(), place);
                self.leave_older(file.ino);
            }
        }
        // One that is there goes where it now is; the other one will come.
        let known =
            [(&file_a, path_a.clone(), path_b.clone(), one), (&file_b, path_b, path_a, other)];
        for (file, from, to, place) in known.into_iter().filter(|(file, ..)| is_known(file)) {
            let ino = file.ino;
            let owed = self.owe(NameOperation::Rename { from, to, ino, over: None });
            self.hide(place, owed);
        }
    }
}
