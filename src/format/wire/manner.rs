//! In what manner a change is made: what it does with, or asks of, what is there already.

use serde::{Deserialize, Serialize};

/// What a rename does with what is at the new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameHow {
    /// It is replaced.
    #[default]
    Replace,
    /// The rename fails.
    Keep,
    /// The two change places.
    Exchange,
}

/// What setting an extended attribute asks of what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrHow {
    /// Nothing.
    #[default]
    Any,
    /// That there is none of this name (`XATTR_CREATE`).
    Create,
    /// That there is one (`XATTR_REPLACE`).
    Replace,
}
