//! The naming role: what requests on extended attributes do. Only `user.*` is kept, of files and
//! directories; the backing's are read when they are first asked for.

use terral_format::disk::NameOperation;
use terral_format::disk::facts::Fact;
use terral_format::ids::Ino;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Kind, Reply, Target, XATTR_VALUE_MAX, XattrHow};
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::xattrs::Values;
use crate::needs::fetching::{Fetched, Need};

/// The one namespace of names that programs may use.
const PREFIX: &[u8] = b"user.";
/// Longest name, its prefix included.
const NAME_MAX: usize = 255;
/// Names and values of one inode, bytes.
const ALL_MAX: usize = 64 << 10;
/// Bytes of names in one reply.
const NAMES_BYTES: usize = 12 << 10;

/// `r` and `w` of permission bits.
const READ: u32 = 4;
const WRITE: u32 = 2;

fn check_name(name: &[u8]) -> Result<()> {
    let refuse = |kind| Err(Error::new(kind, String::from_utf8_lossy(name)));
    match name.strip_prefix(PREFIX) {
        _ if name.is_empty() || name.len() > NAME_MAX => refuse(ErrorKind::OutOfRange),
        None => refuse(ErrorKind::Unsupported),
        Some(rest) if rest.is_empty() || rest.contains(&0) => refuse(ErrorKind::Invalid),
        Some(_) => Ok(()),
    }
}

fn bytes_of(values: &Values) -> usize {
    values.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Whether the backing has this very inode, and not one that ours is to replace.
fn is_there(inode: &Inode) -> bool {
    inode.published.is_some() && !inode.is(flag::REWRITTEN)
}

impl State {
    fn xattr_target(&mut self, target: &Target<'_>, want: u32) -> Result<Inode> {
        let ino = self.target(target)?;
        let path = self.names.path(ino).unwrap_or_default();
        let missing = || Error::new(ErrorKind::NotFound, shown(&path));
        let inode = self.names.inode(ino).ok_or_else(missing)?;
        let kept = matches!(inode.kind, Kind::File | Kind::Directory);
        if !kept && want == WRITE {
            let kind = ErrorKind::Unauthorized;
            return Err(Error { kind, errno: kind.to_errno(), context: shown(&path) });
        }
        if want != 0 {
            self.permit(&inode.attributes(), want, &path)?;
        }
        if kept {
            self.find_xattrs(ino)?;
        }
        Ok(inode)
    }

    /// Has what the backing says of an inode's attributes, if that was not asked before. What ours
    /// will replace there takes its attributes along only if this is called before.
    pub fn find_xattrs(&mut self, ino: Ino) -> Result<()> {
        let inode = self.names.inode(ino).filter(is_there);
        let unknown = self.xattrs.of(ino).is_none();
        let path = inode.and_then(|inode| self.names.path(inode.ino));
        let (Some(path), true, true) = (path, unknown, self.backing.is_some()) else {
            return Ok(());
        };
        let path = self.names.backing_path(&path);
        let found = match self.fetch(Need::Xattrs(path))? {
            Fetched::Xattrs(Err(error)) if error.kind == ErrorKind::Unsupported => return Ok(()),
            Fetched::Xattrs(found) => found?,
            _ => return Ok(()),
        };
        if !found.is_empty() {
            self.log.reserve()?;
        }
        let mut bytes = 0;
        for (name, value) in found {
            bytes += name.len() + value.len();
            if check_name(&name).is_ok() && value.len() <= XATTR_VALUE_MAX && bytes <= ALL_MAX {
                self.record(Fact::XattrFound { ino, name, value });
            }
        }
        Ok(())
    }

    /// The value of one.
    pub fn xattr(&mut self, target: &Target<'_>, name: &[u8]) -> Result<Reply> {
        let inode = self.xattr_target(target, READ)?;
        if matches!(inode.kind, Kind::File | Kind::Directory) {
            check_name(name)?;
        }
        let value = self.xattrs.of(inode.ino).and_then(|values| values.get(name));
        let missing = || Error::new(ErrorKind::NoData, String::from_utf8_lossy(name));
        value.cloned().map(Reply::Xattr).ok_or_else(missing)
    }

    /// Names after `after`.
    pub fn xattr_names(&mut self, target: &Target<'_>, after: &[u8]) -> Result<Reply> {
        let inode = self.xattr_target(target, 0)?;
        let mut bytes = 0;
        let (mut names, mut last) = (Vec::new(), true);
        for name in self.xattrs.of(inode.ino).into_iter().flat_map(Values::keys) {
            if name.as_slice() <= after {
                continue;
            }
            bytes += name.len() + 4;
            if bytes > NAMES_BYTES {
                last = false;
                break;
            }
            names.push(name.clone());
        }
        Ok(Reply::XattrNames { names, last })
    }

    /// Sets or removes one.
    pub fn set_xattr(
        &mut self,
        target: &Target<'_>,
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrHow,
    ) -> Result<()> {
        let ino = self.xattr_target(target, WRITE)?.ino;
        check_name(name)?;
        let refuse = |kind| Err(Error::new(kind, String::from_utf8_lossy(name)));
        if value.is_some_and(|value| value.len() > XATTR_VALUE_MAX) {
            return refuse(ErrorKind::TooBig);
        }
        let values = self.xattrs.of(ino);
        let there = values.is_some_and(|values| values.contains_key(name));
        match (how, value, there) {
            (XattrHow::Create, Some(_), true) => return refuse(ErrorKind::Exists),
            (XattrHow::Replace, Some(_), false) | (_, None, false) => {
                return refuse(ErrorKind::NoData);
            }
            _ => {}
        }
        let more = value.map_or(0, |value| name.len() + value.len());
        if values.map_or(0, bytes_of) + more > ALL_MAX {
            return refuse(ErrorKind::NoSpace);
        }
        let (name, value) = (name.to_vec(), value.map(<[u8]>::to_vec));
        self.record(Fact::Xattr { ino, name, value, time_ns: self.storage.time_ns() });
        Ok(())
    }

    // From records.

    pub(crate) fn apply_xattr(&mut self, fact: &Fact) {
        match fact {
            Fact::Xattr { ino, name, value, time_ns } => {
                self.xattrs.set(*ino, name, value.as_deref());
                self.names.update(*ino, |inode| inode.changed_ns = *time_ns);
                let known = |inode: &Inode| inode.is_directory() || is_there(inode);
                if self.names.inode(*ino).is_some_and(|inode| known(&inode)) {
                    self.owe_xattr(*ino, name.clone(), value.clone());
                }
            }
            Fact::XattrFound { ino, name, value } => self.xattrs.found(*ino, name, value),
            _ => {}
        }
    }

    fn owe_xattr(&mut self, ino: Ino, name: Vec<u8>, value: Option<Vec<u8>>) {
        if let Some(path) = self.names.path(ino) {
            self.names.owe(NameOperation::SetXattr { path, ino, name, value });
        }
    }

    /// The backing has another inode under the file's name than before: it has none of its
    /// attributes yet.
    pub(crate) fn owe_xattrs(&mut self, ino: Ino) {
        for (name, value) in self.xattrs.of(ino).cloned().unwrap_or_default() {
            self.owe_xattr(ino, name, Some(value));
        }
    }
}
