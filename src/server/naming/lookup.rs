//! From paths to inodes. A name not yet known is looked for in the backing, and adopted.

use terral_format::disk::facts::Fact;
use terral_format::ids::{FileSlot, Ino, ROOT};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{FileRef, Kind, Name, Target};
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::{components, join, refuse};
use crate::core::state::State;
use crate::naming::names::Entry;
use crate::needs::fetching::{Fetched, Need};

impl State {
    /// What the permanent store says.
    ///
    /// # Errors
    /// As [`Fetches::get`], also while a name above, below or at what is asked for is just being
    /// moved there; [`ErrorKind::Backing`] if that fails, or there is no store.
    pub(crate) fn fetch(&mut self, need: Need) -> Result<Fetched> {
        let none = || Error::new(ErrorKind::Backing, "no permanent store");
        let backing = self.backing.clone().ok_or_else(none)?;
        if need.path().is_some_and(|path| self.names.is_unsettled(path)) {
            return Err(self.wait_until_settled());
        }
        self.fetches.get(&need, &*backing, &*self.world)
    }

    /// Whoever asks waits until the drain knows what the store has, unless it cannot find that out.
    pub(crate) fn wait_until_settled(&mut self) -> Error {
        let failed = self.debts.names_failure.as_ref().map(|(why, ..)| why.clone());
        let failed = failed.filter(|_| self.names.is_next_unsure());
        let unsure = self.debts.unsure_until().map(|_| "what was published is not known".into());
        match failed.or(unsure) {
            Some(why) => Error::new(ErrorKind::Backing, why),
            None => self.fetches.wait(),
        }
    }

    /// The inode at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`], and whatever the backing fails with.
    pub fn resolve(&mut self, path: &[u8]) -> Result<Ino> {
        let parts = components(path)?;
        let Some((name, above)) = parts.split_last() else { return Ok(ROOT) };
        let directory = self.walk(path, above)?;
        self.child(directory, name)?.ok_or_else(|| refuse(ErrorKind::NotFound, path))
    }

    /// The directory that these components lead to.
    fn walk(&mut self, path: &[u8], parts: &[&[u8]]) -> Result<Ino> {
        let mut at = ROOT;
        for part in parts {
            self.permit_search(at, path)?;
            at = self.child(at, part)?.ok_or_else(|| refuse(ErrorKind::NotFound, path))?;
            match self.names.inode(at).map(|inode| inode.kind) {
                Some(Kind::Directory) => {}
                // The client knows it now, and where it leads.
                Some(Kind::Symlink) => return Err(refuse(ErrorKind::Link, path)),
                _ => return Err(refuse(ErrorKind::NotDirectory, path)),
            }
        }
        self.permit_search(at, path)?;
        Ok(at)
    }

    /// Refuses to look for a name in a directory whose bits do not allow it.
    fn permit_search(&self, directory: Ino, path: &[u8]) -> Result<()> {
        let inode = self.names.inode(directory).ok_or_else(|| refuse(ErrorKind::NotFound, path))?;
        self.permit(&inode.attributes(), 1, path)
    }

    /// The directory that has (or shall have) the last component of `path`, and that component.
    pub fn resolve_parent<'p>(&mut self, path: &'p [u8]) -> Result<(Ino, &'p [u8])> {
        let parts = components(path)?;
        let Some((name, above)) = parts.split_last() else {
            return Err(refuse(ErrorKind::Busy, path));
        };
        Ok((self.walk(path, above)?, name))
    }

    /// What `name` is in `directory`.
    pub fn child(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Ino>> {
        match self.names.entry(directory, name) {
            Some(Entry::Here(ino)) => return Ok(Some(ino)),
            Some(Entry::Gone(_)) => return Ok(None),
            None => {}
        }
        let inode = self.names.inode(directory);
        let inode = inode.ok_or_else(|| refuse(ErrorKind::NotFound, name))?;
        if !inode.is_directory() {
            return Err(refuse(ErrorKind::NotDirectory, name));
        }
        match (&self.backing, inode.is(flag::OVERLAY)) {
            (Some(_), true) => self.adopt(directory, name),
            _ => Ok(None),
        }
    }

    /// As [`State::child`], for a name about to be made. While the backing is away, a name we do
    /// not know counts as new: work goes on, and if it turns out to exist both versions are kept.
    pub fn child_or_new(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Ino>> {
        match self.child(directory, name) {
            Err(error) if error.kind == ErrorKind::Backing => Ok(None),
            found => found,
        }
    }

    fn adopt(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let path = join(&self.names.path(directory).unwrap_or_default(), name);
        let path = self.names.backing_path(&path);
        let Fetched::Look(looked) = self.fetch(Need::Look(path))? else {
            return Err(refuse(ErrorKind::Invalid, name));
        };
        let Some((found, target)) = looked? else { return Ok(None) };
        self.names.reserve()?;
        let mut attributes = found.attributes;
        attributes.ino = self.names.next_ino();
        self.record(Fact::Adopted {
            parent: directory,
            name: name.into(),
            attributes,
            fingerprint: found.fingerprint,
            target,
        });
        Ok(Some(attributes.ino))
    }

    /// The inode a request is about.
    pub fn target(&mut self, target: &Target<'_>) -> Result<Ino> {
        match target {
            Target::Path(path) => self.resolve(path),
            Target::File(file) if file.slot == FileSlot::NONE => {
                let inode = self.names.inode(file.ino).filter(|inode| inode.kind != Kind::File);
                let stale = || Error::new(ErrorKind::BadHandle, format!("inode {}", file.ino));
                inode.map(|_| file.ino).ok_or_else(stale)
            }
            Target::File(file) => self.open_file(*file).map(|inode| inode.ino),
        }
    }

    /// The inode of an open file; what a client says of it must fit together.
    pub fn open_file(&self, file: FileRef) -> Result<Inode> {
        let inode = self.names.inode(file.ino);
        let inode = inode.filter(|inode| inode.slot == Some(file.slot));
        inode.ok_or_else(|| Error::new(ErrorKind::BadHandle, format!("file {}", file.ino)))
    }

    /// All names of a directory: ours, and those only the backing knows, in order.
    pub fn names_of(&mut self, directory: Ino) -> Result<Vec<Name>> {
        let inode = self.names.inode(directory);
        let inode = inode.ok_or_else(|| Error::new(ErrorKind::NotFound, "directory"))?;
        if !inode.is_directory() {
            let path = self.names.path(directory).unwrap_or_default();
            let link = inode.kind == Kind::Symlink;
            let kind = if link { ErrorKind::Link } else { ErrorKind::NotDirectory };
            return Err(refuse(kind, &path));
        }
        let mut names = Vec::new();
        if self.backing.is_some() && inode.is(flag::OVERLAY) {
            let path = self.names.path(directory).unwrap_or_default();
            let path = self.names.backing_path(&path);
            if let Fetched::List(listed) = self.fetch(Need::List(path))? {
                names = listed?;
            }
            names.retain(|name| self.names.entry(directory, &name.name).is_none());
        }
        for (name, child) in self.names.children(&inode) {
            names.push(Name { name, ino: child.ino, kind: child.kind });
        }
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }
}
