//! The naming role: FIFOs and sockets. Their names, owners and modes are inodes; what they carry
//! goes through objects of the kernel's in the instance's directory `nodes`, which clients open and
//! bind by themselves once they are told the inode's number.
//!
//! Invariants: nobody is told that who may not use it by the inode's permission bits. The object of
//! a FIFO is made when somebody is about to open it and it is not there, so one that was lost is
//! made again; that of a socket is made by who binds it. An object goes with its inode. Not here:
//! waiting for the other end, which no server does.

use terral_format::local::names::Inode;
use terral_format::wire::message::{Kind, Reply};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::making;

/// Longest address of a socket (unix(7)).
const ADDRESS_MAX: usize = 108;
/// Makes a FIFO or a socket.
pub fn make_node(
    state: &mut State,
    caller: &Caller,
    path: &[u8],
    how: (Kind, u32),
    address: &[u8],
) -> Result<Reply> {
    let (kind, mode) = how;
    let addressed = kind == Kind::Socket || address.is_empty();
    if !kind.is_node() || !addressed || address.len() > ADDRESS_MAX {
        return Err(Error::new(ErrorKind::Invalid, shown(path)));
    }
    making::make_at(state, caller, path, (kind, mode, address)).map(Reply::Node)
}

/// What an open of a FIFO or a socket for reading or writing gives, which is allowed.
pub fn open_node(state: &State, inode: &Inode, path: &[u8]) -> Result<Reply> {
    if inode.kind == Kind::Socket {
        return Err(Error::new(ErrorKind::Special, shown(path)));
    }
    state.machine.make_fifo(inode.ino)?;
    Ok(Reply::Node(inode.ino))
}

/// The inode has lost its last name. Who still has the object open finds its owner and mode
/// there from now on.
pub fn remove_node(state: &State, inode: &Inode) {
    if inode.kind.is_node() {
        state.machine.remove_node(inode);
    }
}
