//! Objects whose bytes go round over several servers: each has a file of their own, the first of
//! which is the object itself, by its address; it says where the others are.
//!
//! Invariants: an object has its address once all its parts are there, in one step, so of two who
//! create it one has it, and nobody sees half of one; it loses its address before it loses a part.
//! Parts are called after random bits, too: what a creator has left that was killed is nobody
//! else's, and goes with the container. Not here: what is in which part (`stripes`).

use terral_format::ids::Member;
use terral_format::wire::message::Attributes;
use terral_format::wire::roster::Standing;
use terral_format::{Error, ErrorKind, Result};

use super::address::{Address, ObjectId, invalid};
use super::clearing::unless_gone;
use super::container::{Container, ObjectStatus, WRITERS, status};
use super::object::Object;
use super::parts::Parts;
use super::striped::lost;
use super::stripes::{STRIPES_MAX, Stripes, Striping};
use crate::file::File;
use crate::{Change, Opened, RenameHow};

impl Container {
    /// Creates an object whose bytes go round over several servers that keep files, from this
    /// machine's on, in the order of their numbers; from the one with more room on if this machine
    /// keeps none. It is open for reading and writing, and all calls on it are as on others, but
    /// that a call on bytes of several parts is not done in one step.
    ///
    /// # Errors
    /// As [`Container::create_object_on`]; [`ErrorKind::Invalid`] for stripes that cannot be.
    pub fn create_striped(&self, id: ObjectId, stripes: Stripes) -> Result<Object> {
        stripes.check()?;
        let servers = self.servers_from(stripes.count)?;
        let ObjectId(random) = ObjectId::random()?;
        let striping = Striping { bytes: stripes.bytes, nonce: random as u64, servers };
        let (mut files, mut failed) = (Vec::new(), None);
        for part in 0..striping.servers.len() {
            match self.create_part(id, &striping, part) {
                Ok(file) => files.push(file),
                Err(error) => failed = Some(error),
            }
            if failed.is_some() {
                break;
            }
        }
        let address = Address { server: striping.servers[0], id };
        let done = failed.map_or_else(|| self.name_striped(address, &striping, &files), Err);
        if let Err(error) = done {
            for (part, file) in files.iter().enumerate() {
                file.close();
                let _ = self.client.unlink(&self.within().below(&striping.path(id, part)));
            }
            return Err(error);
        }
        let parts = Parts::new(striping, files.iter().cloned().map(Ok).collect());
        Ok(Object::striped(files.swap_remove(0), address, parts))
    }

    /// Servers that keep files and can be reached, of which so many.
    fn servers_from(&self, count: u16) -> Result<Vec<u16>> {
        let own = self.client.member();
        let Some(partition) = self.client.status()?.partition else {
            return Ok(vec![own.number()]);
        };
        let stores = |member: Member| partition.placement.stores(member);
        let is_in = partition.members.iter().filter(|it| {
            it.connected && matches!(it.seat.standing, Standing::In(_)) && stores(it.seat.member)
        });
        let mut all: Vec<u16> = is_in.map(|it| it.seat.member.number()).collect();
        all.sort_unstable();
        let first = if stores(own) { own.number() } else { self.client.least_loaded()? };
        let from = all.iter().position(|server| *server == first).unwrap_or(0);
        all.rotate_left(from);
        all.truncate(if count == 0 { all.len() } else { count.into() });
        all.truncate(STRIPES_MAX);
        let none = || Error::new(ErrorKind::NotFound, "no server that keeps files");
        if all.is_empty() { Err(none()) } else { Ok(all) }
    }

    fn create_part(&self, id: ObjectId, striping: &Striping, part: usize) -> Result<File> {
        let server = striping.servers[part];
        let on = Member::new(server).ok_or_else(|| invalid("number of a server"))?;
        let (path, how) =
            (self.within().below(&striping.path(id, part)), self.how_to_create(Some(on)));
        let opened = match self.client.open_or_elsewhere(&path, how) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.make_room(server)?;
                self.client.open_or_elsewhere(&path, how)
            }
            opened => opened,
        };
        let gone = |_| Error::new(ErrorKind::NotFound, format!("server {server} keeps no files"));
        opened?.map_err(gone).and_then(Opened::into_file)
    }

    /// Gives it its address, if nothing has that.
    fn name_striped(&self, at: Address, striping: &Striping, files: &[File]) -> Result<()> {
        let path = self.within().below(&striping.path(at.id, 0));
        self.within().mark(&files[0], &path, striping)?;
        self.client.rename(&path, &self.path_of(at)?, RenameHow::Keep)
    }

    /// How an object is, and where it is safe: all its parts. Their homes are asked.
    pub fn status(&self, address: Address) -> Result<ObjectStatus> {
        let safety = self.client.safety(&self.path_of(address)?)?;
        let mut all = status(&safety);
        let Some(striping) = self.within().striping_of(address, &safety.attributes)? else {
            return Ok(all);
        };
        all.bytes = striping.end(all.bytes, 0);
        for part in 1..striping.servers.len() {
            let safety = self.client.safety(&self.within().below(&striping.path(address.id, part)));
            let of = status(&safety.map_err(|error| lost(&striping, (address, part), error))?);
            all.bytes = all.bytes.max(striping.end(of.bytes, part));
            all.modified_ns = all.modified_ns.max(of.modified_ns);
            all.memory_bytes += of.memory_bytes;
            all.owed_bytes += of.owed_bytes;
            all.in_backing &= of.in_backing;
        }
        Ok(all)
    }

    /// How many bytes an object has.
    pub fn size(&self, address: Address) -> Result<u64> {
        let seen = self.client.stat(&self.path_of(address)?)?;
        let Some(striping) = self.within().striping_of(address, &seen)? else {
            return Ok(seen.size);
        };
        let size = |part: usize| {
            let seen = self.client.stat(&self.within().below(&striping.path(address.id, part)));
            let seen = seen.map_err(|error| lost(&striping, (address, part), error))?;
            Ok(striping.end(seen.size, part))
        };
        let first = striping.end(seen.size, 0);
        (1..striping.servers.len())
            .map(size)
            .try_fold(first, |most, end: Result<u64>| Ok(most.max(end?)))
    }

    /// Removes an object; who has it open keeps it. Once it has no address, nothing fails any more.
    pub fn remove_object(&self, address: Address) -> Result<()> {
        let path = self.path_of(address)?;
        let seen = self.client.stat(&path)?;
        let striping = self.within().striping_of(address, &seen)?;
        self.client.unlink(&path)?;
        if let Some(striping) = striping {
            for part in 1..striping.servers.len() {
                let part = self.within().below(&striping.path(address.id, part));
                let _ = unless_gone(self.client.unlink(&part));
            }
        }
        Ok(())
    }

    /// The parts of an object beside its own are nobody's to change any more.
    pub(super) fn seal_parts(&self, address: Address, seen: &Attributes) -> Result<()> {
        let Some(striping) = self.within().striping_of(address, seen)? else { return Ok(()) };
        let mode = Some(seen.mode & 0o777 & !WRITERS);
        (1..striping.servers.len()).try_for_each(|part| {
            let part = self.within().below(&striping.path(address.id, part));
            self.client.change(&part, Change { mode, ..Change::default() })
        })
    }
}
