//! The kernel's objects of FIFOs and sockets: `nodes/terral-INSTANCE-INODE` in the instance's
//! directory, with eight digits of the one number and all of the other.
//!
//! Invariants: a name says whose object it is, wherever the kernel shows it. Not here: who makes
//! and removes them, and who may use them.

use std::path::{Path, PathBuf};

use terral_format::ids::{Ino, InstanceId};

use crate::kept;

/// The directory of the objects, in that of the instance.
pub const DIRECTORY: &str = "nodes";
/// What a kernel's name ends with when nothing has it any more.
const DELETED: &[u8] = b" (deleted)";

/// What the object of inode `ino` is called.
pub fn name(instance: InstanceId, ino: Ino) -> String {
    format!("terral-{:08x}-{:x}", instance.0 as u32, ino.0)
}

/// Whose object has this path, or this address, if it is one of `instance`.
pub fn ino_of(instance: InstanceId, path: &[u8]) -> Option<Ino> {
    let path = path.strip_suffix(DELETED).unwrap_or(path);
    let last = path.rsplit(|byte| *byte == b'/').next()?;
    let (of, ino) = parse(last)?;
    (of == instance.0 as u32).then_some(ino)
}

/// The number of the instance, and the inode, in a name as [`name`] makes them.
fn parse(text: &[u8]) -> Option<(u32, Ino)> {
    let digits = std::str::from_utf8(text).ok()?.strip_prefix("terral-")?;
    let (of, ino) = digits.split_once('-')?;
    let of = u32::from_str_radix(of, 16).ok()?;
    let ino = Ino(u64::from_str_radix(ino, 16).ok()?);
    (text == name(InstanceId(of.into()), ino).as_bytes()).then_some((of, ino))
}

/// Whether a name is one of an object, of whatever instance.
pub fn is_name(text: &[u8]) -> bool {
    parse(text).is_some()
}

/// The directory of the objects, as this process reaches it.
pub fn directory(instance: &Path) -> PathBuf {
    kept::reach(instance, |instance| instance.join(DIRECTORY))
}

#[cfg(test)]
mod tests {
    use super::{InstanceId, ino_of, name};
    use terral_format::ids::Ino;

    #[test]
    fn a_name_says_whose_object_it_is() {
        let ours = InstanceId(0x1234_5678_9abc_def0);
        let named = name(ours, Ino(0x4_0000_0007));
        assert_eq!(named, "terral-9abcdef0-400000007");
        for path in [&named, &format!("/x/{named}"), &format!("/y/{named} (deleted)")] {
            assert_eq!(ino_of(ours, path.as_bytes()), Some(Ino(0x4_0000_0007)));
        }
        assert_eq!(ino_of(InstanceId(1), named.as_bytes()), None);
        for other in ["", "/", "terral-9abcdef0-", "terral-9abcdef0-0400000007", "terral-+-1"] {
            assert_eq!(ino_of(ours, other.as_bytes()), None, "{other}");
        }
    }
}
