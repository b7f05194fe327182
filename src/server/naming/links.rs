//! The naming role: what requests that move names, or give files more of them, do.

use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::ids::Ino;
use terral_format::local::geometry::PATH_MAX;
use terral_format::local::names::flag;
use terral_format::wire::message::{Kind, RenameHow, Reply, Target, gives_rights};
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::operations::not_permitted;

/// `r` and `w` of permission bits.
const READ_WRITE: u32 = 6;

/// Whether a path leads through another.
fn is_below(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.first() == Some(&b'/'))
}

impl State {
    /// Moves a name. What is wrong with the names themselves comes first, as on Linux.
    pub fn rename(&mut self, from: &[u8], to: &[u8], how: RenameHow) -> Result<()> {
        let (parent, name) = self.resolve_parent(from)?;
        let (to_parent, to_name) = self.resolve_parent(to)?;
        let missing = |path| move || Error::new(ErrorKind::NotFound, shown(path));
        let ino = self.child(parent, name)?.ok_or_else(missing(from))?;
        let there = match how {
            RenameHow::Exchange => self.child(to_parent, to_name)?,
            RenameHow::Replace | RenameHow::Keep => self.child_or_new(to_parent, to_name)?,
        };
        match (how, there) {
            (RenameHow::Exchange, None) => return Err(missing(to)()),
            (RenameHow::Keep, Some(_)) => return Err(Error::new(ErrorKind::Exists, shown(to))),
            _ => {}
        }
        if is_below(to, from) {
            return Err(Error::new(ErrorKind::Invalid, shown(to)));
        }
        if is_below(from, to) {
            let kind = match how {
                RenameHow::Exchange => ErrorKind::Invalid,
                _ => ErrorKind::NotEmpty,
            };
            return Err(Error::new(kind, shown(to)));
        }
        self.permit_moving(ino, parent, to_parent, from)?;
        match there {
            Some(there) if how == RenameHow::Exchange => {
                self.permit_moving(there, to_parent, parent, to)?;
            }
            Some(there) => self.permit_removal(to_parent, there, to)?,
            None => self.permit_change_in(to_parent, to)?,
        }
        if there == Some(ino) {
            return Ok(());
        }
        if let (Some(there), RenameHow::Replace) = (there, how) {
            self.permit_replacing(ino, there, to)?;
            self.keep_for_openers(there)?;
        }
        let (name, to_name, time_ns) = (name.into(), to_name.into(), self.storage.time_ns());
        self.record(match how {
            RenameHow::Exchange => Fact::Exchanged { parent, name, to_parent, to_name, time_ns },
            _ => Fact::Renamed { parent, name, to_parent, to_name, time_ns },
        });
        Ok(())
    }

    /// Refuses to take a name elsewhere; a directory that gets another parent is itself changed.
    fn permit_moving(&self, ino: Ino, parent: Ino, to_parent: Ino, path: &[u8]) -> Result<()> {
        self.permit_removal(parent, ino, path)?;
        match self.names.inode(ino) {
            Some(inode) if inode.is_directory() && parent != to_parent => {
                self.permit(&inode.attributes(), 2, path)
            }
            _ => Ok(()),
        }
    }

    /// What rename(2) lets one thing take the place of.
    fn permit_replacing(&mut self, moved: Ino, there: Ino, to: &[u8]) -> Result<()> {
        let is_directory = |ino| self.names.inode(ino).is_some_and(|inode| inode.is_directory());
        let refuse = |kind| Err(Error::new(kind, shown(to)));
        match (is_directory(moved), is_directory(there)) {
            (true, false) => refuse(ErrorKind::NotDirectory),
            (false, true) => refuse(ErrorKind::IsDirectory),
            (true, true) if !self.names_of(there)?.is_empty() => refuse(ErrorKind::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Gives a file a further name, or one that has none its first.
    pub fn link(&mut self, target: &Target<'_>, path: &[u8]) -> Result<()> {
        let ino = self.target(target)?;
        let (parent, name) = self.resolve_parent(path)?;
        if self.child_or_new(parent, name)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, shown(path)));
        }
        let missing = || Error::new(ErrorKind::NotFound, shown(path));
        let inode = self.names.inode(ino).ok_or_else(missing)?;
        if inode.is_directory() {
            let refused = Error::new(ErrorKind::Unauthorized, shown(path));
            return Err(Error { errno: refused.kind.to_errno(), ..refused });
        }
        self.permit_linking(ino, path)?;
        self.permit_change_in(parent, path)?;
        let (alias, name, time_ns) = (self.names.next_ino(), name.into(), self.storage.time_ns());
        self.record(Fact::Linked { ino, alias, parent, name, time_ns });
        if !inode.is(flag::NAMED) {
            // All of it came into memory before it lost its last name.
            let record = inode.slot.map(|slot| self.storage.memory().record(slot));
            record.into_iter().for_each(|record| record.backed_bytes().store(0, Ordering::SeqCst));
            self.owe(ino);
        }
        Ok(())
    }

    /// Refuses a further name of somebody else's file to who may not read and write it, or where
    /// it gives its runner rights, if this machine does so (`protected_hardlinks`, proc(5)).
    fn permit_linking(&self, ino: Ino, path: &[u8]) -> Result<()> {
        let Some(is) = self.attributes(ino) else { return Ok(()) };
        let safe =
            is.kind == Kind::File && !gives_rights(is.mode) && self.person.may(&is, READ_WRITE);
        if safe || self.person.owns(&is) || !self.machine.protects_links() {
            return Ok(());
        }
        Err(not_permitted(path))
    }

    /// Makes a symbolic link.
    pub fn make_link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        if target.is_empty() || target.len() >= PATH_MAX {
            let kind = if target.is_empty() { ErrorKind::NotFound } else { ErrorKind::NameTooLong };
            return Err(Error::new(kind, shown(target)));
        }
        let (parent, name) = self.resolve_parent(path)?;
        if self.child_or_new(parent, name)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, shown(path)));
        }
        self.permit_change_in(parent, path)?;
        self.make(parent, name, Kind::Symlink, 0o777, target);
        Ok(())
    }

    /// What a symbolic link says.
    pub fn read_link(&mut self, path: &[u8]) -> Result<Reply> {
        let ino = self.resolve(path)?;
        let link = self.names.inode(ino).is_some_and(|inode| inode.kind == Kind::Symlink);
        let refused = || Error::new(ErrorKind::Invalid, shown(path));
        let target = link.then(|| self.names.target(ino)).flatten();
        target.map(Reply::LinkTarget).ok_or_else(refused)
    }
}
