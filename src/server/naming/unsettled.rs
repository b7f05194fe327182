//! What it is not known that the backing has just now: under names that are just being moved there,
//! or may have been, by an attempt whose answer was lost or a server that died; and under those of
//! versions that were announced. Whoever needs that waits, and what depends on it is not done.
//!
//! Not here: who finds it out (`owed_names`, `publishing`).

use terral_format::disk::NameOperation;
use terral_format::ids::Ino;
use terral_format::wire::moving::Moving;

use crate::core::left_out::{Step, does};
use crate::naming::names::Names;
use crate::needs::fetching::are_near;

/// Whether an operation changes what the backing has under a name that stays.
pub(crate) fn moves(operation: &NameOperation) -> bool {
    matches!(operation, NameOperation::Rename { .. } | NameOperation::Exchange { .. })
}

/// Whether it moves or takes what has this path in the backing.
fn takes(operation: &NameOperation, path: &[u8]) -> bool {
    let removes =
        matches!(operation, NameOperation::Unlink { .. } | NameOperation::RemoveDirectory { .. });
    (removes || moves(operation)) && operation.paths().iter().any(|at| are_near(at, path))
}

impl Names {
    /// Whether the next operation moves names, and it is not known whether it was done.
    pub(crate) fn is_next_unsure(&self) -> bool {
        let next = self.owed().front().filter(|_| self.is_resumed());
        next.is_some_and(|(_, operation)| moves(operation))
    }

    /// Whether another member may just be moving something in the backing, as far as is known here:
    /// it was told that nothing is brought, or may have been, by a server that died. What is owed
    /// is by names as they were, or as they will be.
    pub(crate) fn may_rest(&self) -> bool {
        let known = |moving: &Moving| moving.back.as_ref().is_none_or(|back| back.is_known);
        self.resting().values().any(|moving| moving.brings && known(moving))
    }

    /// Whether it is not known what the backing has at a path of its own just now: a name above,
    /// below or at it is just being moved, or may have been.
    pub(crate) fn is_unsettled(&self, path: &[u8]) -> bool {
        let next = self.owed().front().filter(|_| self.is_next_unsure());
        let moving = next.is_some_and(|(_, operation)| takes(operation, path));
        let rests = does(Step::Rest);
        let theirs = self.resting().values().filter(|moving| moving.brings && rests);
        let theirs = theirs.flat_map(|moving| [&moving.from, &moving.to]);
        let moving = moving || theirs.into_iter().any(|at| are_near(at, path));
        let moving = moving || self.delegated_at(path).is_some();
        moving || self.publishing().values().any(|version| are_near(&version.path, path))
    }

    /// Whether a name operation must wait until it is known what became of a version: that, or what
    /// is above it or below, would change its name.
    pub(crate) fn is_unsure(&self, operation: &NameOperation) -> bool {
        let paths = operation.paths();
        self.publishing().iter().any(|(ino, version)| {
            let named = self.path(*ino).unwrap_or_default();
            let near = |path: &&[u8]| are_near(&version.path, path) || are_near(&named, path);
            paths.iter().any(near)
        })
    }

    /// Whether a file was moved, or lost its name, since it was announced under this one, when no
    /// operation was owed.
    pub(crate) fn is_moved(&self, ino: Ino, path: &[u8]) -> bool {
        let elsewhere = self.path(ino).as_deref() != Some(path);
        elsewhere || self.owed().iter().any(|(_, operation)| takes(operation, path))
    }
}
