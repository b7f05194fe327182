//! Who is at the other end of a local socket, as proc(5) shows that process: by descriptors that
//! are opened once, so that all of what is read is of one process, and of that one.
//!
//! Invariant: from Linux 6.5 on it is the process that has connected, or it is an error; before, it
//! is one that has its number. Not here: what is made of what it says.

use std::fs::File;
use std::io::{Read, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// `SO_PEERPIDFD` of Linux.
const PEER_PIDFD: libc::c_int = 77;

/// That process.
pub struct PeerProcess {
    /// `/proc/PID`, of this process and of none after it.
    there: File,
}

impl PeerProcess {
    /// The process `pid`, as the kernel said of who has connected.
    ///
    /// # Errors
    /// If it is gone.
    pub fn of(socket: impl AsFd, pid: i32) -> Result<Self> {
        let there = File::open(format!("/proc/{pid}"))?;
        match connected(socket.as_fd()) {
            // Its number was nobody else's as long as it lives.
            Ok(process) if is_over(&process) => Err(gone()),
            Ok(_) => Ok(PeerProcess { there }),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                Ok(PeerProcess { there })
            }
            Err(error) => Err(error),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.there.as_raw_fd()))
    }

    /// A file of it.
    ///
    /// # Errors
    /// If it is gone.
    pub fn read(&self, name: &str) -> Result<String> {
        let mut text = String::new();
        File::open(self.path(name))?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// What a link of it says.
    ///
    /// # Errors
    /// If it is gone.
    pub fn link(&self, name: &str) -> Result<PathBuf> {
        std::fs::read_link(self.path(name))
    }
}

fn gone() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::ESRCH)
}

/// A descriptor of the process that has connected.
fn connected(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    let (mut found, mut bytes) = (-1 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: an integer, and how long that is; both live through the call.
    let done = unsafe {
        let into = (&raw mut found).cast();
        let socket = socket.as_raw_fd();
        libc::getsockopt(socket, libc::SOL_SOCKET, PEER_PIDFD, into, &raw mut bytes)
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor of ours.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

fn is_over(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives through the call.
    unsafe { libc::poll(&mut poll, 1, 0) != 0 }
}

#[cfg(test)]
mod tests {
    use super::PeerProcess;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    #[test]
    fn who_has_connected_is_looked_at_and_no_other_process() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("socket");
        let listener = UnixListener::bind(&path).expect("binds");
        let _own = UnixStream::connect(&path).expect("connects");
        let (stream, _) = listener.accept().expect("is there");
        let own = PeerProcess::of(&stream, std::process::id() as i32).expect("this process");
        assert!(own.read("status").expect("lives").contains("Uid:"));
        assert_eq!(own.link("ns/user").ok(), std::fs::read_link("/proc/self/ns/user").ok());
        // It has connected, and is gone; its number is another process's.
        let connect = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let mut comes = Command::new("python3");
        assert!(comes.args(["-c", connect]).arg(&path).status().expect("runs").success());
        let (stream, _) = listener.accept().expect("it was there");
        let mut other = Command::new("sleep").arg("60").spawn().expect("runs");
        assert!(PeerProcess::of(&stream, other.id() as i32).is_err(), "another process");
        // What was opened is not another one's, once it is gone.
        let seen =
            PeerProcess { there: super::File::open(format!("/proc/{}", other.id())).unwrap() };
        other.kill().expect("runs");
        other.wait().expect("ends");
        assert!(seen.read("status").is_err() && seen.link("ns/user").is_err());
    }
}
