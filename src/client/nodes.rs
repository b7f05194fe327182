//! FIFOs and sockets: names like any other, for objects of the kernel's that programs open and bind
//! by themselves.
//!
//! Not here: the calls of the kernel on these objects, which may wait for ever.

use std::path::PathBuf;

use terral_format::ids::{FileSlot, Ino};
use terral_format::wire::message::{Change, FileRef, Kind, OpenHow, Reply, Request, Seen, Target};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::nodes;

use crate::file::File;
use crate::session::{Connection, unexpected};

/// What was opened.
pub enum Opened {
    /// A file, a directory, or anything to be looked at.
    File(File),
    /// A FIFO, which may be opened so: the caller opens its object.
    Fifo(Ino),
}

impl Opened {
    /// The file.
    ///
    /// # Errors
    /// [`ErrorKind::Special`] if it is none.
    pub fn into_file(self) -> Result<File> {
        match self {
            Opened::File(file) => Ok(file),
            Opened::Fifo(ino) => Err(Error::new(ErrorKind::Special, format!("file {ino}"))),
        }
    }
}

impl File {
    /// Opens the same once more, with a description of its own; nothing is made.
    pub fn reopen(&self, how: OpenHow) -> Result<Opened> {
        Ok(self.open_again(how)?.map_or_else(Opened::Fifo, Opened::File))
    }
}

/// Something without a record in shared memory, by its number.
fn by_number(ino: Ino) -> Target<'static> {
    Target::File(FileRef { ino, slot: FileSlot::NONE })
}

impl Connection {
    pub(crate) fn make_node(
        &self,
        path: &[u8],
        (kind, mode): (Kind, u32),
        address: &[u8],
    ) -> Result<Ino> {
        match self.call(Request::MakeNode { path, kind, mode, address })? {
            Reply::Node(ino) => Ok(ino),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<Seen> {
        if let Some(attributes) = self.memory.attributes_of(ino) {
            return Ok(attributes);
        }
        match self.call(Request::Stat(by_number(ino)))? {
            Reply::Attributes(seen) => Ok(seen),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn change_node(&self, ino: Ino, change: Change) -> Result<()> {
        match self.call(Request::Change { target: by_number(ino), change })? {
            Reply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Looks for something of an inode in the table, which may be just being changed.
    fn look_for<T>(&self, ino: Ino, look: impl Fn() -> Option<T>) -> Option<T> {
        let asked = || self.call(Request::Stat(by_number(ino))).is_ok();
        look().or_else(|| (0..3).find_map(|_| asked().then(&look)?))
    }

    pub(crate) fn address(&self, ino: Ino) -> Option<Vec<u8>> {
        self.look_for(ino, || self.memory.look(|table| table.target(ino)))
    }

    pub(crate) fn node_path(&self, ino: Ino) -> Option<Vec<u8>> {
        self.look_for(ino, || self.memory.path_of(ino))
    }

    /// The directory of the objects, as this process reaches it.
    pub(crate) fn nodes(&self) -> PathBuf {
        nodes::directory(self.instance())
    }
}
