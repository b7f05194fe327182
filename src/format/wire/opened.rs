//! Files as clients and their server speak of them. Not here: what they say (`message`).

use serde::{Deserialize, Serialize};

use crate::ids::{DescriptionSlot, FileSlot, Ino};

/// A file with a record in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// The file.
    pub ino: Ino,
    /// Where its record and header are.
    pub slot: FileSlot,
}

/// An open file, as descriptors of it are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// The file.
    pub file: FileRef,
    /// Its description.
    pub description: DescriptionSlot,
    /// What descriptors of that carry.
    pub nonce: u32,
}
