//! The naming role: FIFOs and sockets. Their names, owners and modes are inodes; what they carry
//! goes through objects of the kernel's in the instance's directory `nodes`, which clients open and
//! bind by themselves once they are told the inode's number.
//!
//! Invariants: nobody is told that who may not use it by the inode's permission bits. The object of
//! a FIFO is made when somebody is about to open it and it is not there, so one that was lost is
//! made again; that of a socket is made by who binds it. An object goes with its inode. Not here:
//! waiting for the other end, which no server does.

use std::fs::{File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use terral_format::ids::{Ino, InstanceId};
use terral_format::message::{Kind, Reply};
use terral_format::names::Inode;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::nodes;

use crate::lookup::shown;
use crate::state::State;

/// Longest address of a socket (unix(7)).
const ADDRESS_MAX: usize = 108;
/// Whoever reaches the directory was let in by the permission bits of the inode.
const ALL: u32 = 0o666;

fn object(instance: &Path, id: InstanceId, ino: Ino) -> PathBuf {
    instance.join(nodes::DIRECTORY).join(nodes::name(id, ino))
}

/// Changes an object by `change`, which is given a name that leads nowhere else: programs that are
/// not of this user may have put anything into the directory.
fn dress(
    object: &Path,
    kind: Kind,
    change: impl Fn(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits().cast_signed();
    let held = File::options().read(true).custom_flags(flags).open(object)?;
    let found = held.metadata()?.file_type();
    if if kind == Kind::Fifo { found.is_fifo() } else { found.is_socket() } {
        return change(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd())));
    }
    Err(Errno::EXIST.into())
}

impl State {
    /// Makes a FIFO or a socket.
    pub fn make_node(&mut self, path: &[u8], how: (Kind, u32), address: &[u8]) -> Result<Reply> {
        let (kind, mode) = how;
        let addressed = kind == Kind::Socket || address.is_empty();
        if !kind.is_node() || !addressed || address.len() > ADDRESS_MAX {
            return Err(Error::new(ErrorKind::Invalid, shown(path)));
        }
        let (parent, name) = self.resolve_parent(path)?;
        if self.child_or_new(parent, name)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, shown(path)));
        }
        self.permit_change_in(parent, path)?;
        Ok(Reply::Node(self.make(parent, name, kind, mode, address)))
    }

    /// What an open of a FIFO or a socket for reading or writing gives, which is allowed.
    pub(crate) fn open_node(&self, inode: &Inode, path: &[u8]) -> Result<Reply> {
        if inode.kind == Kind::Socket {
            return Err(Error::new(ErrorKind::Special, shown(path)));
        }
        let object = object(&self.instance, self.began.instance, inode.ino);
        let failed = |error: std::io::Error| Error::system(&error, object.display().to_string());
        match rustix::fs::mknodat(CWD, &object, FileType::Fifo, Mode::from_raw_mode(ALL), 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        // Whoever made it may have been killed before this.
        let open = |name: &Path| std::fs::set_permissions(name, Permissions::from_mode(ALL));
        dress(&object, Kind::Fifo, open).map_err(failed)?;
        Ok(Reply::Node(inode.ino))
    }

    /// The inode has lost its last name. Who still has the object open finds its owner and mode
    /// there from now on.
    pub(crate) fn bury_node(&self, inode: &Inode) {
        if !inode.kind.is_node() {
            return;
        }
        let object = object(&self.instance, self.began.instance, inode.ino);
        // There may be none; what stays goes with the instance.
        let _ = dress(&object, inode.kind, |name| {
            let _ = chown(name, Some(inode.uid), Some(inode.gid));
            std::fs::set_permissions(name, Permissions::from_mode(inode.mode.into()))
        });
        let _ = std::fs::remove_file(&object);
    }
}
