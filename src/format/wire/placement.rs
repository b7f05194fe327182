//! What members are for: which keep bytes of new files and objects, and where those of some paths
//! are created.
//! Not here: what that means for a file (`server/naming/placement`).

use serde::{Deserialize, Serialize};

use crate::ids::Member;

/// Parts of striped files are so many bytes, or several times that.
pub const STRIPE_UNIT: u64 = 2 << 20;

/// What a server was started for, if something was said of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// *authn* and *authz*, and nothing else: who is in, who somebody is, and what he may. It keeps
    /// no bytes, decides no names, and serves no programs.
    Authority,
    /// It keeps bytes of new files.
    Storage,
    /// It keeps none.
    Compute,
}

/// Where a new file is created, and its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// On the server of the machine whose program creates it, if that keeps bytes.
    Here,
    /// On the server that has most room, of two that are chosen at random.
    LeastLoaded,
    /// On this one, as long as it is in and keeps bytes; else as [`Layout::LeastLoaded`].
    One(Member),
    /// As [`Layout::Here`]; its parts lie round over several that keep bytes.
    Stripe {
        /// So many; 0: all.
        count: u16,
        /// Each part is so many chunks, at least 1.
        chunks: u32,
    },
}

/// Over which members a file's parts lie, round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stripe {
    /// They, from that of the first part on; at least one.
    #[serde(deserialize_with = "super::list::deserialize")]
    pub over: Vec<Member>,
    /// Chunks of each part, at least 1.
    pub chunks: u32,
}

impl Stripe {
    /// Where a chunk is to be, and where, one after the other, if that cannot be.
    pub fn holders(&self, index: u64) -> impl Iterator<Item = Member> + '_ {
        let part = index / u64::from(self.chunks.max(1));
        let first = (part % self.over.len().max(1) as u64) as usize;
        self.over.iter().cycle().skip(first).take(self.over.len()).copied()
    }
}

/// What was said of new files whose paths a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutPolicy {
    /// As that of a [`Policy`](super::roster::Policy).
    pub pattern: String,
    /// Where they are created.
    pub layout: Layout,
}

/// Where new bytes are in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Members with the role *storage*, in order; `None`: all, also those that come later.
    pub storage: Option<Vec<Member>>,
    /// The last one that matches a path counts.
    pub layouts: Vec<LayoutPolicy>,
}

impl Placement {
    /// Whether a member keeps bytes of new files.
    pub fn stores(&self, member: Member) -> bool {
        self.storage.as_ref().is_none_or(|storage| storage.contains(&member))
    }
}
