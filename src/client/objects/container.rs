//! Containers: what objects are in, and may be used by the same users. A container is a directory,
//! in the one that no listing shows until it is given a name, and then with that.
//!
//! Invariant: only who creates on a server makes names in that server's directory of it.

use terral_format::ids::Member;
use terral_format::wire::message::{Attributes, Safety};
use terral_format::wire::placed::{COPIED_MAX, Placing};
use terral_format::{Error, ErrorKind, Result};

use super::address::{Address, ObjectId, invalid};
use super::clearing::{clear, names_of};
use super::copying;
use super::object::Object;
use super::striped::Within;
use crate::client::Client;
use crate::file::File;
pub use crate::names::RESERVED;
use crate::{Kind, Name, OpenHow, RenameHow, access};

/// Most bytes of a container's name.
const NAME_MAX: usize = 200;
/// Who may have a container: everybody, and only its owner removes it.
const MODE_OF_ALL: u32 = 0o1777;
/// So often somebody else removes what was just made.
const TRIES: u32 = 100;
/// What of a container's mode its objects have.
const OBJECT_MODE: u32 = 0o666;
/// Bits of who may write.
pub(super) const WRITERS: u32 = 0o222;

/// A container that is at hand. Cheap to clone.
#[derive(Clone)]
pub struct Container {
    pub(super) client: Client,
    /// Where it is, from the root.
    path: Vec<u8>,
    /// Permission bits.
    mode: u32,
}

/// How an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStatus {
    /// Bytes, from the first to the last that was written.
    pub bytes: u64,
    /// Last write, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Whether nobody can change it any more.
    pub sealed: bool,
    /// Bytes in the memory of the machine that has it.
    pub memory_bytes: u64,
    /// Bytes of those that the permanent directory does not have yet.
    pub owed_bytes: u64,
    /// Whether the permanent directory has it, whole, as it is now.
    pub in_backing: bool,
}

pub(super) fn status(safety: &Safety) -> ObjectStatus {
    ObjectStatus {
        bytes: safety.attributes.size,
        modified_ns: safety.attributes.modified_ns,
        sealed: is_sealed(&safety.attributes),
        memory_bytes: safety.memory_bytes,
        owed_bytes: safety.owed_bytes,
        in_backing: safety.in_backing,
    }
}

pub(super) fn is_sealed(attributes: &Attributes) -> bool {
    attributes.mode & WRITERS == 0
}

/// A name that a container can have: one component, without a dot in front.
fn check(name: &[u8]) -> Result<()> {
    let length = !name.is_empty() && name.len() <= NAME_MAX;
    let plain = !name.starts_with(b".") && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if length && plain { Ok(()) } else { Err(invalid("name of a container")) }
}

/// Removes the directory of all containers, if it is empty.
pub(crate) fn tidy(client: &Client) {
    // Whoever makes one there makes it anew, and others' are in the way of this: no failure.
    let _ = client.remove_directory(RESERVED);
}

/// All containers that have no name yet.
pub(crate) fn all_containers(client: &Client) -> Result<Vec<Vec<u8>>> {
    let all = names_of(client, RESERVED)?.into_iter().map(|name| name.name);
    // Others than containers have a dot in front.
    Ok(all.filter(|name| !name.starts_with(b".")).collect())
}

/// Makes a directory in that of all containers, and that if it is missing.
pub(crate) fn make(client: &Client, path: &[u8], mode: u32) -> Result<()> {
    for _ in 0..TRIES {
        match client.make_directory(path, mode) {
            Err(error) if error.kind == ErrorKind::NotFound => {}
            done => return done,
        }
        match client.make_directory(RESERVED, MODE_OF_ALL) {
            Err(error) if error.kind != ErrorKind::Exists => return Err(error),
            _ => {}
        }
    }
    Err(Error::new(ErrorKind::Busy, "directory of the containers"))
}

/// Moves a directory out of sight, to be removed there, in one step: nothing of its name is left,
/// whoever is killed. Gives the directory in which it is then.
///
/// # Errors
/// Those of a rename.
pub(crate) fn set_aside(client: &Client, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let aside = [RESERVED, name].join(&b'/');
    // Made first, so that nobody finds the directory of all empty meanwhile and removes it.
    make(client, &aside, 0o700)?;
    client.rename(path, &[&aside[..], b"it"].join(&b'/'), RenameHow::Keep)?;
    Ok(aside)
}

impl Container {
    /// Makes a container; who may use it, its mode says (that of a directory, umask taken off).
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if there is one of this name, [`ErrorKind::Invalid`] for a name of no
    /// or more than 200 bytes, with a slash or zero in it or a dot in front.
    pub fn create(client: &Client, name: &[u8], mode: u32) -> Result<Self> {
        check(name)?;
        let path = [RESERVED, name].join(&b'/');
        make(client, &path, mode)?;
        Ok(Container { client: client.clone(), path, mode })
    }

    /// A container that was made, and has no other name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none; as [`Container::create`].
    pub fn open(client: &Client, name: &[u8]) -> Result<Self> {
        check(name)?;
        Container::at(client, &[RESERVED, name].join(&b'/'))
    }

    /// A container that was given a name, or any directory of this form.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`].
    pub fn at(client: &Client, path: &[u8]) -> Result<Self> {
        let seen = client.stat_through(path)?;
        if seen.kind != Kind::Directory {
            return Err(Error::new(ErrorKind::NotDirectory, "container"));
        }
        Ok(Container { client: client.clone(), path: path.to_vec(), mode: seen.mode & 0o7777 })
    }

    /// One that is there and has these permission bits, as somebody else has seen it.
    pub fn known(client: &Client, path: &[u8], mode: u32) -> Self {
        Container { client: client.clone(), path: path.to_vec(), mode: mode & 0o7777 }
    }

    /// Where it is, from the root.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The path of an object, as programs that know nothing of objects can open it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is no such server.
    pub fn path_of(&self, address: Address) -> Result<Vec<u8>> {
        Ok([&self.path, address.checked()?.path().as_bytes()].join(&b'/'))
    }

    /// Creates an object on this machine's server; it is open for reading and writing. Nobody is
    /// asked, but for the first here. Where this machine keeps no files, or they are laid out in
    /// another way there, it is created where it is to be: its address says so.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if there is one of this id on this server, [`ErrorKind::NotFound`] if
    /// the container is no more.
    pub fn create_object(&self, id: ObjectId) -> Result<Object> {
        match self.create_or_elsewhere(id, None)? {
            Ok(object) => Ok(object),
            Err(on) if on == self.client.member() => self.create_object_here(id),
            Err(on) => self.create_object_on(on.number(), id),
        }
    }

    /// Creates an object on the server of the run that has most room, of two chosen at random
    /// ([`Client::least_loaded`]); its address says which.
    ///
    /// # Errors
    /// As [`Container::create_object_on`]; `ENOSPC` if no server keeps files any more.
    pub fn create_object_least_loaded(&self, id: ObjectId) -> Result<Object> {
        self.create_object_on(self.client.least_loaded()?, id)
    }

    /// Creates an object on this machine's server, whatever is said of such files.
    ///
    /// # Errors
    /// As [`Container::create_object`]; [`ErrorKind::Unsupported`] if it keeps no files.
    pub fn create_object_here(&self, id: ObjectId) -> Result<Object> {
        let none =
            |_| Error::new(ErrorKind::Unsupported, "objects on a server that keeps no files");
        self.create_or_elsewhere(id, Some(self.client.member()))?.map_err(none)
    }

    pub(super) fn within(&self) -> Within<'_> {
        Within { client: &self.client, path: &self.path }
    }

    /// How a file of an object is created, on a server if that is said.
    pub(super) fn how_to_create(&self, on: Option<Member>) -> OpenHow {
        OpenHow {
            access: (access::READ | access::WRITE) as u8,
            create: true,
            exclusive: true,
            mode: self.mode & OBJECT_MODE,
            on,
            ..OpenHow::default()
        }
    }

    /// Creates an object on this machine's server, or gives the one on which it is to be.
    fn create_or_elsewhere(
        &self,
        id: ObjectId,
        on: Option<Member>,
    ) -> Result<std::result::Result<Object, Member>> {
        let address = Address { server: self.client.member().number(), id };
        let path = self.path_of(address)?;
        let how = self.how_to_create(on);
        let opened = match self.client.open_or_elsewhere(&path, how) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.make_room(address.server)?;
                self.client.open_or_elsewhere(&path, how)
            }
            opened => opened,
        };
        match opened? {
            Ok(opened) => Ok(Ok(Object::new(opened.into_file()?, address))),
            Err(on) => Ok(Err(on)),
        }
    }

    /// Creates an object on another server of the run, which is asked: there its bytes are, once
    /// who has written them has closed it. It is open for reading and writing.
    ///
    /// # Errors
    /// As [`Container::create_object`]; [`ErrorKind::NotFound`] if there is no such server, too;
    /// `EIO` if that was killed meanwhile, and may have created it.
    pub fn create_object_on(&self, server: u16, id: ObjectId) -> Result<Object> {
        if server == self.client.member().number() {
            return self.create_object_here(id);
        }
        let address = Address { server, id }.checked()?;
        let created = self.place(address, Placing::Create { mode: self.mode })?;
        let missing = || Error::new(ErrorKind::Malformed, "what is said of an object");
        let created = created.ok_or_else(missing)?;
        if self.client.0.is_contained()? {
            // In which container it is, its name says, which has to be known here.
            created.close();
            return self.open_object(address, true);
        }
        Ok(Object::new(created, address))
    }

    /// Has an object on another server as well, with the bytes that it has now: an object of the
    /// same id there, whose bytes are replaced if there is one. Gives its address.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such object or server; [`ErrorKind::NoSpace`] if
    /// memory is full there.
    pub fn copy_object(&self, of: Address, to: u16) -> Result<Address> {
        self.within().must_be_whole(of)?;
        let address = Address { server: to, id: of.id }.checked()?;
        let (size, mut at) = (self.size(of)?, 0);
        // Once for an empty one, too.
        while at == 0 || at < size {
            let bytes = (size - at).min(COPIED_MAX);
            if to == self.client.member().number() {
                self.copy_here(of, (at, bytes))?;
            } else {
                drop(self.place(address, Placing::Copy { of: of.server, at, bytes })?);
            }
            at += bytes.max(1);
        }
        Ok(address)
    }

    /// Has some bytes of another server's object in one of this machine's, which is created if
    /// there is none.
    ///
    /// # Errors
    /// As [`Container::copy_object`].
    pub fn copy_here(&self, of: Address, (at, bytes): (u64, u64)) -> Result<()> {
        let here = Address { server: self.client.member().number(), ..of };
        if here == of {
            return Err(Error::new(ErrorKind::Exists, format!("object {}", of.id)));
        }
        let from = self.open_object(of, false)?;
        let to = match self.create_object_here(of.id) {
            Err(error) if error.kind == ErrorKind::Exists => self.open_object(here, true),
            created => created,
        };
        let copied = to.and_then(|to| {
            let copied = copying::copy(&from, &to, (at, bytes));
            to.close().and(copied)
        });
        from.close().and(copied)
    }

    /// Servers that have created objects in it, in order.
    pub(crate) fn servers(&self) -> Result<Vec<u16>> {
        let names = self.client.list(&self.path)?;
        let mut all: Vec<u16> =
            names.iter().filter_map(|name| Address::server_of(&name.name)).collect();
        all.sort_unstable();
        Ok(all)
    }

    fn place(&self, on: Address, what: Placing) -> Result<Option<File>> {
        let server = Member::new(on.server).ok_or_else(|| invalid("number of a server"))?;
        self.client.place(server, what, (&self.path, on.id.0))
    }

    /// The directory in which a server's objects are.
    pub(super) fn make_room(&self, server: u16) -> Result<()> {
        let path = [&self.path, server.to_string().as_bytes()].join(&b'/');
        match self.client.make_directory(&path, self.mode) {
            Err(error) if error.kind == ErrorKind::Exists => Ok(()),
            made => made,
        }
    }

    /// Opens an object, of whatever server, to be read or to be written as well.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Denied`] if it is to be written and is sealed, or this
    /// user may not.
    pub fn open_object(&self, address: Address, writes: bool) -> Result<Object> {
        let rights = if writes { access::READ | access::WRITE } else { access::READ };
        let how = OpenHow { access: rights as u8, ..OpenHow::default() };
        let file = self.client.open(&self.path_of(address)?, how)?;
        // After the open, as who seals looks for writers after he has sealed.
        if writes && is_sealed(&file.attributes()?.attributes) {
            file.close();
            return Err(Error::new(ErrorKind::Denied, format!("sealed object {}", address.id)));
        }
        match self.within().parts_of(&file, address, rights as u8) {
            Ok(None) => Ok(Object::new(file, address)),
            Ok(Some(parts)) => Ok(Object::striped(file, address, parts)),
            Err(error) => {
                file.close();
                Err(error)
            }
        }
    }

    /// Addresses of all objects, of all servers, in order.
    pub fn list(&self) -> Result<Vec<Address>> {
        let mut all = Vec::new();
        for of in self.client.list(&self.path)? {
            let Some(server) = Address::server_of(&of.name) else { continue };
            let names = names_of(&self.client, &[&self.path[..], &of.name].join(&b'/'))?;
            let id = |name: &Name| std::str::from_utf8(&name.name).ok()?.parse().ok();
            all.extend(names.iter().filter_map(id).map(|id| Address { server, id }));
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Gives an object a name, by which it is a file; its address stays.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if the name is taken; [`ErrorKind::Unsupported`] of a striped one;
    /// those of a link.
    pub fn bind_object(&self, address: Address, name: &[u8]) -> Result<()> {
        self.within().must_be_whole(address)?;
        self.client.link(&self.path_of(address)?, name)
    }

    /// Makes an object a file of this name, in the place of what has it, in one step; it has no
    /// address any more.
    ///
    /// # Errors
    /// Those of a rename; [`ErrorKind::Unsupported`] of a striped one.
    pub fn move_object(&self, address: Address, name: &[u8]) -> Result<()> {
        self.within().must_be_whole(address)?;
        self.client.rename(&self.path_of(address)?, name, RenameHow::Replace)
    }

    /// Gives the container, with all that is in it, a name in one step: from then on it is found
    /// by [`Container::at`], and what is open in it stays open.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if the name is taken; those of a rename.
    pub fn bind(self, name: &[u8]) -> Result<Self> {
        self.client.rename(&self.path, name, RenameHow::Keep)?;
        tidy(&self.client);
        Ok(Container { path: name.to_vec(), ..self })
    }

    /// Removes the container with all objects that are in it.
    ///
    /// # Errors
    /// [`ErrorKind::NotEmpty`] if somebody goes on creating objects there.
    pub fn remove(self) -> Result<()> {
        clear(&self.client, &self.path)?;
        tidy(&self.client);
        Ok(())
    }

    /// Has the drain take up everything written so far.
    pub fn flush(&self) -> Result<()> {
        self.client.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        assert!(check(b"run-7").is_ok() && check(&[b'x'; 200]).is_ok());
        for wrong in [&b""[..], b".", b"..", b".x", b"a/b", b"/", b"a\0b", &[b'x'; 201]] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
