//! How much the names of each directory are, and which are more than they are to be. Counted only
//! where somebody asks for it, as names come and go.

use std::collections::{BTreeMap, BTreeSet};

use terral_format::local::names::Inode;

/// What a name counts for beside its bytes and what a link says: the number and kind of what it
/// stands for, and the lengths of these.
const EACH: u64 = 16;

/// Of all directories, by slot.
pub(crate) struct Weights {
    most: u64,
    of: BTreeMap<u32, u64>,
    large: BTreeSet<u32>,
}

fn weight(child: &Inode) -> u64 {
    let text = if child.kind.has_text() { child.size } else { 0 };
    EACH + u64::from(child.name_bytes) + text
}

impl Weights {
    /// Of these names; a directory with more than `most` is large.
    pub(crate) fn new(most: u64, named: impl Iterator<Item = Inode>) -> Self {
        let mut weights = Weights { most, of: BTreeMap::new(), large: BTreeSet::new() };
        named.for_each(|child| weights.comes(&child));
        weights
    }

    /// A name comes.
    pub(crate) fn comes(&mut self, child: &Inode) {
        let bytes = self.of.entry(child.parent).or_default();
        *bytes += weight(child);
        if *bytes > self.most {
            self.large.insert(child.parent);
        }
    }

    /// A name goes.
    pub(crate) fn goes(&mut self, child: &Inode) {
        let Some(bytes) = self.of.get_mut(&child.parent) else { return };
        *bytes = bytes.saturating_sub(weight(child));
        if *bytes <= self.most {
            self.large.remove(&child.parent);
        }
        if *bytes == 0 {
            self.of.remove(&child.parent);
        }
    }

    /// Bytes of a directory's names.
    pub(crate) fn of(&self, directory: u32) -> u64 {
        self.of.get(&directory).copied().unwrap_or_default()
    }

    /// Those that are large.
    pub(crate) fn large(&self) -> impl Iterator<Item = u32> + '_ {
        self.large.iter().copied()
    }
}
