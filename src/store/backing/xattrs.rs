//! Extended attributes of what is under a name, found before as an open `O_PATH` file.

use std::fs::File;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::Xattrs;
use super::attributes::by_name;

/// Longest name list and value the operating system has.
const LONGEST: usize = 64 << 10;

/// Sets one, or removes it; one that is missing is no error.
pub(super) fn set(file: &File, name: &[u8], value: Option<&[u8]>) -> Result<(), Errno> {
    let path = by_name(file);
    match value {
        Some(value) => rustix::fs::setxattr(path, name, value, XattrFlags::empty()),
        None => match rustix::fs::removexattr(path, name) {
            Err(Errno::NODATA) => Ok(()),
            done => done,
        },
    }
}

/// Whether it has a POSIX ACL: then its group's permission bits are a mask, and say nothing of what
/// the group may (acl(5)).
pub(super) fn has_acl(file: &File) -> Result<bool, Errno> {
    match rustix::fs::getxattr(by_name(file), "system.posix_acl_access", &mut [0; 0][..]) {
        Ok(_) | Err(Errno::RANGE) => Ok(true),
        // A file system without any, or a symbolic link.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All `user.*` ones with their values.
pub(super) fn all(file: &File) -> Result<Xattrs, Errno> {
    let path = by_name(file);
    let mut names = [0; LONGEST];
    let length = rustix::fs::listxattr(&path, &mut names[..])?;
    let mut found = Vec::new();
    let mut value = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|n| n.starts_with(b"user.")) {
        value.resize(LONGEST, 0);
        match rustix::fs::getxattr(&path, name, &mut value[..]) {
            Ok(length) => found.push((name.to_vec(), value[..length].to_vec())),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
