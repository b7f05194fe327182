//! Where a benchmark's files are: a directory, by POSIX calls, or a server, through the client
//! library.
//!
//! Invariant: the POSIX face goes through libc, so that the preload library can stand in. Not here:
//! what is done with the files, and for how long.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use terral_client::{Client, File, OpenHow, RenameHow, access, by_fcntl};

/// What is done with locks on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Locking {
    /// Takes a byte of one's own file, and gives it back.
    Fcntl,
    /// The same of the whole file, by `flock`.
    Flock,
    /// Waits for the byte of a shared file that the other process had.
    Pass,
}

/// Where files are.
pub enum Place {
    /// In a directory, by POSIX calls.
    Directory(PathBuf),
    /// With a server, through the client library.
    Terral(Client),
}

/// An open file there.
pub enum Handle {
    /// By POSIX calls.
    Posix(std::fs::File),
    /// Through the client library.
    Terral(File),
}

fn how(access: u64, create: bool) -> OpenHow {
    let access = access as u8;
    OpenHow { access, create, exclusive: create, mode: 0o600, ..OpenHow::default() }
}

impl Place {
    /// A new file, for writing.
    pub fn create(&self, name: &str) -> Result<Handle> {
        Ok(match self {
            Place::Directory(at) => {
                let mut options = OpenOptions::new();
                Handle::Posix(options.write(true).create_new(true).open(at.join(name))?)
            }
            Place::Terral(client) => {
                Handle::Terral(client.open(name.as_bytes(), how(access::WRITE, true))?)
            }
        })
    }

    /// A file that exists.
    pub fn open(&self, name: &str, write: bool) -> Result<Handle> {
        Ok(match self {
            Place::Directory(at) => {
                let mut options = OpenOptions::new();
                Handle::Posix(options.read(!write).write(write).open(at.join(name))?)
            }
            Place::Terral(client) => {
                let access = if write { access::WRITE } else { access::READ };
                Handle::Terral(client.open(name.as_bytes(), how(access, false))?)
            }
        })
    }

    /// Takes and gives back locks on a file, which is made if it is missing.
    pub fn lock_many(&self, name: &str, how: Locking, process: u8, count: u64) -> Result<()> {
        let Place::Directory(at) = self else { bail!("locks: by POSIX calls only") };
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(at.join(name))?;
        // Each holds one of three bytes and waits for the one that the other leaves next.
        let mut held = process % 3;
        if how == Locking::Pass {
            by_fcntl(&file, held, true)?;
        }
        for _ in 0..count {
            match how {
                Locking::Fcntl => {
                    by_fcntl(&file, 0, true)?;
                    by_fcntl(&file, 0, false)?;
                }
                Locking::Flock => {
                    file.lock()?;
                    file.unlock()?;
                }
                Locking::Pass => {
                    let next = (held + 2) % 3;
                    by_fcntl(&file, next, true)?;
                    by_fcntl(&file, held, false)?;
                    held = next;
                }
            }
        }
        Ok(())
    }

    /// Asks for its attributes.
    pub fn stat(&self, name: &str) -> Result<()> {
        match self {
            Place::Directory(at) => std::fs::metadata(at.join(name)).map(|_| ())?,
            Place::Terral(client) => client.stat(name.as_bytes()).map(|_| ())?,
        }
        Ok(())
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> Result<()> {
        match self {
            Place::Directory(at) => std::fs::remove_file(at.join(name))?,
            Place::Terral(client) => client.unlink(name.as_bytes())?,
        }
        Ok(())
    }

    /// Gives it another name.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        match self {
            Place::Directory(at) => std::fs::rename(at.join(from), at.join(to))?,
            Place::Terral(client) => {
                client.rename(from.as_bytes(), to.as_bytes(), RenameHow::Replace)?;
            }
        }
        Ok(())
    }

    /// Makes a directory.
    pub fn make_directory(&self, name: &str) -> Result<()> {
        match self {
            Place::Directory(at) => std::fs::create_dir(at.join(name))?,
            Place::Terral(client) => client.make_directory(name.as_bytes(), 0o755)?,
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, name: &str) -> Result<()> {
        match self {
            Place::Directory(at) => std::fs::remove_dir(at.join(name))?,
            Place::Terral(client) => client.remove_directory(name.as_bytes())?,
        }
        Ok(())
    }
}

impl Handle {
    /// Writes all of `bytes` at the offset.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Handle::Posix(file) => file.write_all(bytes)?,
            Handle::Terral(file) => ensure!(file.write(bytes)? == bytes.len(), "a short write"),
        }
        Ok(())
    }

    /// Writes all of `bytes` there.
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        match self {
            Handle::Posix(file) => file.write_all_at(bytes, offset)?,
            Handle::Terral(file) => {
                ensure!(file.write_at(bytes, offset)? == bytes.len(), "a short write");
            }
        }
        Ok(())
    }

    /// Reads some bytes; 0 at the end.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        Ok(match self {
            Handle::Posix(file) => file.read(into)?,
            Handle::Terral(file) => file.read(into)?,
        })
    }

    /// The end of it.
    pub fn close(self) {
        match self {
            Handle::Posix(file) => drop(file),
            Handle::Terral(file) => file.close(),
        }
    }
}
