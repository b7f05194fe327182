//! In what manner something is opened or changed: what that does with, or asks of, what is there
//! already.

use serde::{Deserialize, Serialize};

use crate::ids::Member;

/// How to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenHow {
    /// Bits of [`access`](mod@crate::local::geometry): read 1, write 2, append 4, kernel-held 8, a
    /// link itself 16.
    pub access: u8,
    /// Make the file if there is none.
    pub create: bool,
    /// Fail if there is one.
    pub exclusive: bool,
    /// Make it empty.
    pub truncate: bool,
    /// A directory is asked for, and nothing else will do.
    pub directory: bool,
    /// Make a file without a name in the directory that is named.
    pub unnamed: bool,
    /// Permission bits of a new file, umask already taken off.
    pub mode: u32,
    /// Token of a named lock with which it is made empty; 0: without one.
    pub token: u64,
    /// Of a file that is to be made: which member's server has it, as the server has said it is to
    /// be; `None`: it has not.
    pub on: Option<Member>,
}

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum XattrHow {
    /// Nothing.
    #[default]
    Any,
    /// That there is none of this name (`XATTR_CREATE`).
    Create,
    /// That there is one (`XATTR_REPLACE`).
    Replace,
}
