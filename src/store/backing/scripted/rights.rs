//! Whose a handle of the store is, and what that one may do there: root's server's or a user's, as
//! [`Dir::open_among_users`](super::super::dir::Dir::open_among_users) says, the user's as the
//! kernel lets him; or a program's of a user, as the kernel lets him. What root's handle was asked
//! to touch that is not root's is noted, for tests to find.
//!
//! Not here: groups, and bits that a name's own kind would make of `r`.

use rustix::io::Errno;

use super::super::beneath::split;
use super::super::{BesideOthers, STAGING};
use super::call::{Call, Operation};
use super::store::Store;

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;

/// Whose a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Who may all.
    Anybody,
    /// Root's, and touches nothing else.
    Roots,
    /// A user's server's.
    User(u32),
    /// Any program's of a user.
    Program(u32),
}

impl Whose {
    /// Who owns what it makes; `None`: who owns the store.
    pub(super) fn owner(self) -> Option<u32> {
        match self {
            Whose::User(user) | Whose::Program(user) => Some(user),
            Whose::Anybody | Whose::Roots => None,
        }
    }
}

impl Store {
    /// Refuses what may not be done.
    pub(super) fn permit(&self, whose: Whose, call: &Call<'_>) -> rustix::io::Result<()> {
        let is_staged = call.path.starts_with(STAGING);
        let paths = std::iter::once(call.path).chain(call.to);
        let mut paths = paths.filter(|path| !is_staged && !path.is_empty());
        match whose {
            Whose::Anybody => Ok(()),
            Whose::Roots => paths.try_for_each(|path| self.must_be_roots(call, path)),
            Whose::Program(user) => paths.try_for_each(|path| self.permit_user(user, call, path)),
            Whose::User(user) => paths.try_for_each(|path| {
                self.must_be_his(user, call, path)?;
                self.permit_user(user, call, path)
            }),
        }
    }

    fn is_own(&self, directory: u64) -> bool {
        let node = self.node(directory);
        node.uid == 0 && (node.mode & OTHERS_WRITE == 0 || node.mode & STICKY != 0)
    }

    /// Whether others make names where this path is, in a directory of root's.
    pub(super) fn is_shared(&self, path: &[u8]) -> bool {
        self.find(split(path).0).is_ok_and(|above| {
            let node = self.node(above);
            node.uid == 0 && node.mode & OTHERS_WRITE != 0
        })
    }

    /// Refuses what could replace what has come there just before, if that cannot be seen.
    pub(super) fn must_keep_theirs(
        &self,
        (whose, beside): (Whose, BesideOthers),
        call: &Call<'_>,
    ) -> rustix::io::Result<()> {
        if whose != Whose::Roots || beside == BesideOthers::All {
            return Ok(());
        }
        let refused = match (call.operation, call.to) {
            (Operation::Rename, Some(to)) => self.is_shared(to) && self.find(to).is_err(),
            (Operation::Exchange, Some(to)) => self.is_shared(to) || self.is_shared(call.path),
            (Operation::Publish, _) if beside == BesideOthers::NoFiles => self.is_shared(call.path),
            _ => false,
        };
        if refused { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Whether the way to a path is root's own, as far as there is one.
    pub(super) fn is_roots_way(&self, path: &[u8]) -> bool {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        let mut above = std::iter::once(0).chain(ends).map(|end| &path[..end]);
        above.all(|above| {
            self.find(above).is_err() || self.find(above).is_ok_and(|inode| self.is_own(inode))
        })
    }

    fn must_be_roots(&self, call: &Call<'_>, path: &[u8]) -> rustix::io::Result<()> {
        if !self.is_roots_way(path) {
            return Err(Errno::PERM);
        }
        match self.find(path) {
            Ok(inode) if self.node(inode).uid != 0 && call.operation != Operation::Stat => {
                Err(Errno::PERM)
            }
            _ => Ok(()),
        }
    }

    fn must_be_his(&self, user: u32, call: &Call<'_>, path: &[u8]) -> rustix::io::Result<()> {
        let is_his = |inode: u64| self.node(inode).uid == user;
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        let mut below_his = false;
        for above in std::iter::once(0).chain(ends).map(|end| &path[..end]) {
            let Ok(inode) = self.find(above) else { return Ok(()) };
            if !is_his(inode) && (below_his || !self.is_own(inode)) {
                return Err(Errno::PERM);
            }
            below_his |= is_his(inode);
        }
        match self.find(path).is_ok_and(|there| !is_his(there)) {
            true if call.operation != Operation::Stat => Err(Errno::PERM),
            _ => Ok(()),
        }
    }

    /// Whether a user has these of `rwx`. Who owns something opens it to himself for the time.
    fn may(&self, user: u32, inode: u64, bits: u32) -> bool {
        let node = self.node(inode);
        let has = if node.gid == user { node.mode >> 3 } else { node.mode };
        user == 0 || node.uid == user || has & bits == bits
    }

    fn permit_user(&self, user: u32, call: &Call<'_>, path: &[u8]) -> rustix::io::Result<()> {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        for above in std::iter::once(0).chain(ends).map(|end| &path[..end]) {
            let Ok(inode) = self.find(above) else { return Ok(()) };
            if !self.may(user, inode, SEARCH) {
                return Err(Errno::ACCESS);
            }
        }
        let there = self.find(path).ok();
        let has = |bits| there.is_none_or(|inode| self.may(user, inode, bits));
        let owns = there.is_none_or(|inode| self.node(inode).uid == user);
        let may = match call.operation {
            Operation::Read | Operation::List => has(READ),
            Operation::Update | Operation::ResumeUpdate => has(WRITE) || owns,
            Operation::Change => owns,
            Operation::SetXattr => has(WRITE),
            Operation::MakeDirectory | Operation::MakeLink | Operation::MakeFifo
                if there.is_some() =>
            {
                true
            }
            Operation::MakeDirectory
            | Operation::MakeLink
            | Operation::MakeFifo
            | Operation::RemoveDirectory
            | Operation::Unlink
            | Operation::Rename
            | Operation::Exchange
            | Operation::SetAside
            | Operation::TakeBack
            | Operation::Publish => self.may_change_names(user, path, owns),
            _ => true,
        };
        if may { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn may_change_names(&self, user: u32, path: &[u8], owns: bool) -> bool {
        let Ok(above) = self.find(split(path).0) else { return true };
        let node = self.node(above);
        let takes = owns || node.mode & STICKY == 0 || node.uid == user;
        takes && self.may(user, above, WRITE | SEARCH)
    }
}
