//! What a name leads to: content, attributes, extended attributes.
//!
//! Not here: names (`store`).

use std::collections::BTreeMap;

use rustix::io::Errno;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::Ino;
use terral_format::wire::message::{Attributes, Change, Kind};

use super::pages::Pages;

/// Size that a directory says it has, as on ext4.
const DIRECTORY_BYTES: u64 = 4096;

/// Longest name and value of an extended attribute, as in Linux.
const XATTR_NAME_MAX: usize = 255;
const XATTR_VALUE_MAX: usize = 64 << 10;

/// What it is, and what is in it.
#[derive(Debug)]
pub(super) enum Content {
    File(Pages),
    /// Names and inode numbers.
    Directory(BTreeMap<Vec<u8>, u64>),
    Symlink(Vec<u8>),
    Fifo,
}

/// A file, directory, symbolic link or FIFO.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed_ns: u64,
    pub(super) modified_ns: u64,
    pub(super) changed_ns: u64,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names that lead to it; being staged is one.
    pub(super) names: u32,
    /// Handles that keep it also without a name, as open files are kept.
    pub(super) handles: u32,
}

impl Node {
    /// A new one of root's, without a name.
    pub(super) fn new(content: Content, mode: u32, now_ns: u64) -> Self {
        Node {
            content,
            mode,
            uid: 0,
            gid: 0,
            accessed_ns: now_ns,
            modified_ns: now_ns,
            changed_ns: now_ns,
            xattrs: BTreeMap::new(),
            names: 0,
            handles: 0,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.content {
            Content::File(_) => Kind::File,
            Content::Directory(_) => Kind::Directory,
            Content::Symlink(_) => Kind::Symlink,
            Content::Fifo => Kind::Fifo,
        }
    }

    pub(super) fn size(&self) -> u64 {
        match &self.content {
            Content::File(pages) => pages.size(),
            Content::Directory(_) => DIRECTORY_BYTES,
            Content::Symlink(target) => target.len() as u64,
            Content::Fifo => 0,
        }
    }

    /// The bytes, if it is a file.
    pub(super) fn pages(&self) -> Option<&Pages> {
        if let Content::File(pages) = &self.content { Some(pages) } else { None }
    }

    /// The names in it, if it is a directory.
    pub(super) fn list(&self) -> Option<&BTreeMap<Vec<u8>, u64>> {
        if let Content::Directory(names) = &self.content { Some(names) } else { None }
    }

    pub(super) fn fingerprint(&self, inode: u64) -> Fingerprint {
        Fingerprint::new(Object::new(inode), self.size(), self.changed_ns)
    }

    /// All but its links, if it is a directory.
    pub(super) fn attributes(&self) -> Attributes {
        Attributes {
            ino: Ino(0),
            kind: self.kind(),
            mode: self.mode,
            links: self.names,
            uid: self.uid,
            gid: self.gid,
            size: self.size(),
            accessed_ns: self.accessed_ns,
            modified_ns: self.modified_ns,
            changed_ns: self.changed_ns,
        }
    }

    /// Its bytes or names are other ones now.
    pub(super) fn modified(&mut self, now_ns: u64) {
        (self.modified_ns, self.changed_ns) = (now_ns, now_ns);
    }

    /// Changes attributes as `chown`, `chmod` and `utimensat` do, in this order, for root.
    pub(super) fn set(&mut self, change: &Change, now_ns: u64) {
        let chown = change.uid.is_some() || change.gid.is_some();
        if chown {
            self.uid = change.uid.unwrap_or(self.uid);
            self.gid = change.gid.unwrap_or(self.gid);
            self.drop_set_id();
        }
        let chmod = change.mode.filter(|_| self.kind() != Kind::Symlink);
        self.mode = chmod.map_or(self.mode, |mode| mode & 0o7777);
        let utime = change.accessed_ns.is_some() || change.modified_ns.is_some();
        self.accessed_ns = change.accessed_ns.unwrap_or(self.accessed_ns);
        self.modified_ns = change.modified_ns.unwrap_or(self.modified_ns);
        if chown || chmod.is_some() || utime {
            self.changed_ns = now_ns;
        }
    }

    /// What a new owner does to a file's mode.
    fn drop_set_id(&mut self) {
        if self.kind() == Kind::Directory {
            return;
        }
        let group = if self.mode & 0o010 == 0 { 0 } else { 0o2000 };
        self.mode &= !(0o4000 | group);
    }

    /// Gives it owner, mode and times.
    pub(super) fn set_attributes(&mut self, want: &Attributes, now_ns: u64) {
        let other = (self.uid, self.gid) != (want.uid, want.gid);
        let change = Change {
            mode: Some(want.mode),
            uid: other.then_some(want.uid),
            gid: other.then_some(want.gid),
            accessed_ns: Some(want.accessed_ns),
            modified_ns: Some(want.modified_ns),
        };
        self.set(&change, now_ns);
    }

    /// Sets an extended attribute or removes it. Only those of users are taken.
    pub(super) fn set_xattr(
        &mut self,
        name: &[u8],
        value: Option<&[u8]>,
        now_ns: u64,
    ) -> rustix::io::Result<()> {
        let of_user = name.strip_prefix(b"user.");
        let has_some = matches!(self.kind(), Kind::File | Kind::Directory);
        match (name.len(), of_user, value) {
            (length, ..) if length == 0 || length > XATTR_NAME_MAX => return Err(Errno::RANGE),
            _ if name.contains(&0) => return Err(Errno::INVAL),
            (.., Some(value)) if value.len() > XATTR_VALUE_MAX => return Err(Errno::TOOBIG),
            (_, None, _) => return Err(Errno::OPNOTSUPP),
            _ if !has_some => return Err(Errno::PERM),
            (_, Some(b""), _) => return Err(Errno::INVAL),
            (.., Some(value)) => drop(self.xattrs.insert(name.to_vec(), value.to_vec())),
            (.., None) if self.xattrs.remove(name).is_none() => return Ok(()),
            (.., None) => {}
        }
        self.changed_ns = now_ns;
        Ok(())
    }
}
