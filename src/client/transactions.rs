//! Transactions: operations on names and objects that come to be all together or not at all.
//!
//! What they are about may be prepared before: bytes are written into objects, which no listing
//! shows, and the transaction gives them their names. It is one message; until its commit nothing
//! of it has happened, and whoever is killed when, all of it has or nothing. Not here: who carries
//! it out.

use terral_format::local::geometry::MESSAGE_BYTES;
use terral_format::wire::message::{RenameHow, Reply, Request, XattrHow};
use terral_format::wire::transactions::{self, Operation};
use terral_format::{Error, ErrorKind, Result};

pub use terral_format::wire::transactions::{OPERATIONS_MAX, TRANSACTION_BYTES, Version};

use crate::client::Client;
use crate::named::NamedLock;
use crate::names::{Followed, RESERVED};
use crate::objects::{Address, Container, Value, attribute_of, tidy};
use crate::session::unexpected;

const _: () = assert!(TRANSACTION_BYTES + 64 <= MESSAGE_BYTES, "with what a request has besides");

/// So often links that are on the way are followed anew, as others change them.
const TRIES: u32 = 8;

/// A transaction that is being made. It is given up by being dropped.
///
/// Each operation sees what those before it have done. Paths are as those of [`Client::stat`]; of
/// links on their way, [`Transaction::commit`] follows all but the last component.
#[derive(Clone)]
pub struct Transaction {
    client: Client,
    operations: Vec<Operation<Vec<u8>>>,
    copies: u8,
}

impl Transaction {
    /// One without operations.
    pub fn begin(client: &Client) -> Self {
        Transaction { client: client.clone(), operations: Vec::new(), copies: 1 }
    }

    /// The same, of which so many servers, 1 or 2, know whether it came to be, where other machines
    /// set a part of it: with 2 they agree, and nobody has to say, if this one is lost for good.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for another number.
    pub fn copies(&mut self, servers: usize) -> Result<&mut Self> {
        self.copies = match servers {
            1 => 1,
            2 => 2,
            _ => return Err(Error::new(ErrorKind::Invalid, "a transaction: copies: 1 or 2")),
        };
        Ok(self)
    }

    /// Moves a name.
    pub fn rename(&mut self, from: &[u8], to: &[u8], how: RenameHow) -> &mut Self {
        self.add(Operation::Rename { from: from.into(), to: to.into(), how })
    }

    /// Gives a file a further name, which must be free.
    pub fn link(&mut self, from: &[u8], to: &[u8]) -> &mut Self {
        self.add(Operation::Link { from: from.into(), to: to.into() })
    }

    /// Removes a file's name.
    pub fn unlink(&mut self, path: &[u8]) -> &mut Self {
        self.add(Operation::Unlink(path.into()))
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, path: &[u8], mode: u32) -> &mut Self {
        self.add(Operation::MakeDirectory { path: path.into(), mode })
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, path: &[u8]) -> &mut Self {
        self.add(Operation::RemoveDirectory(path.into()))
    }

    /// Gives an object a name beside its address, which must be free.
    ///
    /// # Errors
    /// Of this and the next ones: [`ErrorKind::Invalid`] for an address that there cannot be.
    pub fn bind(
        &mut self,
        container: &Container,
        address: Address,
        name: &[u8],
    ) -> Result<&mut Self> {
        Ok(self.link(&container.path_of(address)?, name))
    }

    /// Makes an object a file of this name, in the place of what has it; it has no address then.
    pub fn move_object(
        &mut self,
        container: &Container,
        address: Address,
        name: &[u8],
    ) -> Result<&mut Self> {
        Ok(self.rename(&container.path_of(address)?, name, RenameHow::Replace))
    }

    /// Removes an object.
    pub fn remove_object(&mut self, container: &Container, address: Address) -> Result<&mut Self> {
        Ok(self.unlink(&container.path_of(address)?))
    }

    /// Gives a container with all that is in it a name, which must be free: from then on it is
    /// found by [`Container::at`].
    pub fn bind_container(&mut self, container: &Container, name: &[u8]) -> &mut Self {
        self.rename(container.path(), name, RenameHow::Keep)
    }

    /// Sets an attribute of an object, or removes it (`None`).
    ///
    /// # Errors
    /// Also [`ErrorKind::Invalid`] for a key of no or more than 200 bytes.
    pub fn set_attribute(
        &mut self,
        container: &Container,
        address: Address,
        key: &[u8],
        value: Option<&Value>,
    ) -> Result<&mut Self> {
        let (name, value) = attribute_of(key, value)?;
        let (path, how) = (container.path_of(address)?, XattrHow::Any);
        Ok(self.add(Operation::SetXattr { path, name, value, how }))
    }

    /// All fails if nothing has this name.
    pub fn must_exist(&mut self, path: &[u8]) -> &mut Self {
        self.add(Operation::Exists(path.into()))
    }

    /// All fails if something has this name.
    pub fn must_not_exist(&mut self, path: &[u8]) -> &mut Self {
        self.add(Operation::Missing(path.into()))
    }

    /// All fails with [`ErrorKind::Stale`] if a later holder has had this lock.
    pub fn must_hold(&mut self, lock: &NamedLock) -> &mut Self {
        self.add(Operation::Holds { path: lock.path(), token: lock.token() })
    }

    /// All fails if what has this name is not what was seen, or has another size, or was written to
    /// since.
    pub fn must_be_unchanged(&mut self, path: &[u8], version: Version) -> &mut Self {
        self.add(Operation::Unchanged { path: path.into(), version })
    }

    fn add(&mut self, operation: Operation<Vec<u8>>) -> &mut Self {
        self.operations.push(operation);
        self
    }

    /// Has all of it done.
    ///
    /// # Errors
    /// Nothing is done then. What the first operation fails with that cannot be done, after its
    /// number, from 0: the errors of the call of the same name; [`ErrorKind::Changed`] for what is
    /// not as it was seen. [`ErrorKind::TooBig`] for more than [`OPERATIONS_MAX`] operations or
    /// [`TRANSACTION_BYTES`]; [`ErrorKind::Unsupported`] where another machine's server alone
    /// changes something of it, as a further name of its file, and if two servers are to know of it
    /// and the run has no other one. [`ErrorKind::Backing`] (`EIO`), with its name, if that one
    /// does not answer: it is undone, unless this machine is lost before that one does.
    pub fn commit(self) -> Result<()> {
        let mut operations = self.operations;
        if self.copies > 1 {
            operations.push(Operation::Copies(self.copies));
        }
        let done = self.client.transact(&mut operations);
        if done.is_ok() && operations.iter().any(empties) {
            tidy(&self.client);
        }
        done
    }
}

/// Whether the directory of all containers may be empty after it.
fn empties(operation: &Operation<Vec<u8>>) -> bool {
    let (Operation::Rename { from: path, .. } | Operation::RemoveDirectory(path)) = operation
    else {
        return false;
    };
    let rest = path.strip_prefix(RESERVED).and_then(|rest| rest.strip_prefix(b"/"));
    rest.is_some_and(|name| !name.contains(&b'/'))
}

impl Client {
    fn transact(&self, operations: &mut [Operation<Vec<u8>>]) -> Result<()> {
        for _ in 0..TRIES {
            let encoded = transactions::encode(operations)?;
            match self.0.call(Request::Transact(&encoded)) {
                Ok(Reply::Done) => return Ok(()),
                Ok(_) => return Err(unexpected()),
                Err(error) if error.kind == ErrorKind::Link => self.follow_all(operations)?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Loop, "links on the way of a transaction"))
    }

    /// Has all paths lead where the links on their way do.
    fn follow_all(&self, operations: &mut [Operation<Vec<u8>>]) -> Result<()> {
        let paths = operations.iter_mut().flat_map(Operation::paths_mut).flatten();
        for path in paths {
            *path = match self.follow(path, false)? {
                Followed::Here(path) => path,
                Followed::Outside(path) => {
                    let path = String::from_utf8_lossy(&path).into_owned();
                    return Err(Error::new(ErrorKind::Link, path));
                }
            };
        }
        Ok(())
    }
}
