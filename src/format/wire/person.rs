//! A user with the groups he is in. Not here: what he may do (`permission`).

use serde::{Deserialize, Serialize};

/// Most groups of one person; Linux has 65,536.
pub const GROUPS_MAX: usize = 1024;

/// A user, his group, and the other groups he is in, as Linux checks them for files: `fsuid` and
/// `fsgid` (credentials(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Owner of what he makes.
    pub user: u32,
    /// Group of what he makes.
    pub group: u32,
    /// The other groups.
    pub groups: Vec<u32>,
}

impl Person {
    /// Whether nothing is refused to him.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Whether he is in a group.
    pub fn is_in(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(&group)
    }
}
