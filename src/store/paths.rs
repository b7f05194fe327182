//! Paths of inodes, from the table of names: the server asks for one at each change of a directory.

use terral_format::ids::ROOT;
use terral_format::local::names::flag;

use crate::inodes::Inodes;

impl Inodes {
    /// The path of what is in slot `index` from the root, if all above it have names.
    pub fn path(&self, mut index: u32) -> Option<Vec<u8>> {
        let (table, mut names, mut bytes) = (self.table(), Vec::with_capacity(8), 0);
        loop {
            // As of `at`.
            let (ino, parent, name, flags) =
                (index < self.room.slots).then(|| table.place(index))?;
            if ino == ROOT {
                break;
            }
            if flags & flag::NAMED == 0 {
                return None;
            }
            names.push(name);
            bytes += usize::from(name.1) + 1;
            index = parent;
        }
        let mut path = vec![b'/'; bytes.saturating_sub(1)];
        let mut end = path.len();
        for (granule, length) in names {
            let start = end - usize::from(length);
            table.text(granule, &mut path[start..end]);
            end = start.saturating_sub(1);
        }
        Some(path)
    }
}
