//! Name operations that the backing is owed, in their order, and how far they have come there.

use std::collections::{BTreeMap, VecDeque};

use terral_format::disk::NameOperation;
use terral_format::disk::local::Publishing;
use terral_format::fingerprint::Object;
use terral_format::ids::{Ino, Lsn};

use crate::core::invariant::holds;
use crate::naming::names::Names;

/// Whose attributes an operation changes, if it does only that.
pub(super) fn changed(operation: &mut NameOperation) -> Option<(Ino, &mut Vec<u8>)> {
    match operation {
        NameOperation::Change { path, ino, .. } | NameOperation::SetXattr { path, ino, .. } => {
            Some((*ino, path))
        }
        _ => None,
    }
}

impl Names {
    /// Where the backing has what we call `path` now, as long as renames are owed.
    pub fn backing_path(&self, path: &[u8]) -> Vec<u8> {
        self.before_owed(path).0
    }

    /// Where that was before all that is owed, and whether that is, or is in, a directory that the
    /// backing has yet to get: whatever it has by that name is something else.
    pub fn before_owed(&self, path: &[u8]) -> (Vec<u8>, bool) {
        let mut path = path.to_vec();
        let below = |path: &[u8], top: &[u8]| {
            let rest = path.strip_prefix(top)?;
            (rest.is_empty() || rest[0] == b'/').then(|| rest.to_vec())
        };
        for (_, operation) in self.owed.iter().rev() {
            match operation {
                NameOperation::Rename { from, to, .. } => {
                    if let Some(rest) = below(&path, to) {
                        path = [&from[..], &rest].concat();
                    }
                }
                NameOperation::Link { from, to, .. } if path == *to => path.clone_from(from),
                NameOperation::Exchange { from, to, .. } => {
                    if let Some(rest) = below(&path, to) {
                        path = [&from[..], &rest].concat();
                    } else if let Some(rest) = below(&path, from) {
                        path = [&to[..], &rest].concat();
                    }
                }
                NameOperation::MakeDirectory { path: made, .. } if below(&path, made).is_some() => {
                    return (path, true);
                }
                _ => {}
            }
        }
        (path, false)
    }

    /// Name operations the backing is owed, in order.
    pub fn owed(&self) -> &VecDeque<(Lsn, NameOperation)> {
        &self.owed
    }

    /// What had the first name of this exchange before it was begun, if it was.
    pub fn exchanging(&self, lsn: Lsn) -> Option<Object> {
        self.exchanging.filter(|(begun, _)| *begun == lsn).map(|(_, object)| object)
    }

    /// Whether the next owed operation may have been done by a server that died.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether this server has begun the next owed operation, and does not know that it is done.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// The next owed operation may have been done in part.
    pub fn may_be_begun(&mut self) {
        (self.resumed, self.begun) = (true, true);
    }

    /// The next owed operation was not begun.
    pub fn is_not_begun(&mut self) {
        (self.resumed, self.begun) = (false, false);
    }

    /// A whole version of which it is not known whether it has got its name.
    pub fn publishing(&self) -> &BTreeMap<Ino, Publishing> {
        &self.publishing
    }

    /// It has not.
    pub fn is_unpublished(&mut self, ino: Ino) {
        self.publishing.remove(&ino);
    }

    /// The backing is owed this operation from now on.
    pub(super) fn owe(&mut self, operation: NameOperation) -> Option<Lsn> {
        if !self.has_backing || (!self.delegated.is_empty() && self.comes_later(&operation)) {
            return None;
        }
        self.ordinal.0 += 1;
        self.owe_as(self.ordinal, operation);
        Some(self.ordinal)
    }

    /// Whether an operation waits until it is known what its file is called there.
    fn comes_later(&mut self, operation: &NameOperation) -> bool {
        let mut operation = operation.clone();
        let its = changed(&mut operation).map(|(ino, _)| ino);
        let waits = its.is_some_and(|ino| self.delegated.contains(&ino));
        if waits {
            self.later.push(operation);
        }
        waits
    }

    /// From a snapshot, or new.
    pub(super) fn owe_as(&mut self, lsn: Lsn, operation: NameOperation) {
        let last = self.owed.back().map(|(last, _)| *last);
        holds("name operations are owed in their order", || last.is_none_or(|last| last < lsn));
        self.owed.push_back((lsn, operation));
    }

    pub(super) fn drained(&mut self, ordinal: Lsn) {
        self.is_not_begun();
        self.exchanging = self.exchanging.filter(|(begun, _)| *begun > ordinal);
        while self.owed.front().is_some_and(|(at, _)| *at <= ordinal) {
            self.owed.pop_front();
        }
        self.hidden.done(ordinal);
    }

    /// Ordinal of the newest owed operation.
    pub fn ordinal(&self) -> Lsn {
        self.ordinal
    }
}
