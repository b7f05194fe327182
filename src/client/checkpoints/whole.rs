//! A checkpoint that is whole, to be read.

use terral_format::{Error, ErrorKind, Result};

use super::copies::{Finder, check_size};
use super::manifest::{BYTES_MAX, Manifest, Part};
use crate::client::Client;
use crate::objects::{Address, Container, ObjectId};
use crate::{File, OpenHow, access};

/// What the file in a checkpoint that says what belongs to it is called.
pub(super) const MANIFEST: &[u8] = b"manifest";
/// The object that says the same, where there are copies; no process's bytes have this id.
pub(super) const MANIFEST_COPY: ObjectId = ObjectId(u128::MAX);

/// A checkpoint that is whole.
pub struct Whole {
    client: Client,
    container: Container,
    manifest: Manifest,
}

fn read_manifest(client: &Client, container: &Container) -> Result<Manifest> {
    let how = OpenHow { access: access::READ as u8, ..OpenHow::default() };
    let file = client.open(&[container.path(), MANIFEST].join(&b'/'), how)?;
    let read = read_text(&file);
    file.close();
    Manifest::read(&read?)
}

fn read_text(file: &File) -> Result<Vec<u8>> {
    let size = file.size();
    if size > BYTES_MAX {
        return Err(Error::new(ErrorKind::Malformed, "manifest of a checkpoint: too long"));
    }
    let mut text = vec![0; size as usize];
    let read = file.read_at(&mut text, 0)?;
    text.truncate(read);
    Ok(text)
}

/// What some server has a copy of.
fn copied_manifest(container: &Container) -> Option<Manifest> {
    container.servers().ok()?.into_iter().find_map(|server| {
        let object = container.open_object(Address { server, id: MANIFEST_COPY }, false).ok()?;
        let read = read_text(object.file());
        object.close().ok()?;
        Manifest::read(&read.ok()?).ok()
    })
}

impl Whole {
    /// The checkpoint in this directory, after a look whether all that belongs to it is there.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if something is missing, [`ErrorKind::Malformed`] if it is not what
    /// the manifest says.
    pub(super) fn open(client: &Client, path: &[u8]) -> Result<Self> {
        let container = Container::at(client, path)?;
        let read = read_manifest(client, &container);
        let mut manifest = read.or_else(|error| copied_manifest(&container).ok_or(error))?;
        let mut finder = Finder::new(&container);
        for part in &mut manifest.parts {
            part.address = finder.find(part)?;
        }
        Ok(Whole { client: client.clone(), container, manifest })
    }

    /// Which step of the computation it is of.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// Bytes of all processes together.
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes()
    }

    /// Objects that it consists of.
    pub fn parts(&self) -> usize {
        self.manifest.parts.len()
    }

    /// Reads at `at`, of all bytes, whoever wrote them. Fewer than asked for only at the end.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it has been removed meanwhile, as newer ones came.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let mut done = 0;
        for part in self.manifest.from(at) {
            let from = at + done as u64;
            let count =
                (part.at + part.bytes).saturating_sub(from).min((buffer.len() - done) as u64);
            if count == 0 && done == buffer.len() {
                break;
            }
            let into = &mut buffer[done..done + count as usize];
            if let Err(error) = self.read_part(part.address, into, from - part.at) {
                // The machine that has it may have gone since.
                let copy = Finder::new(&self.container).copy_of(part).ok_or(error)?;
                self.read_part(copy, into, from - part.at)?;
            }
            done += count as usize;
        }
        Ok(done)
    }

    fn read_part(&self, address: Address, into: &mut [u8], at: u64) -> Result<()> {
        let object = self.container.open_object(address, false)?;
        let read = object.read(into, at);
        object.close()?;
        if read? == into.len() {
            return Ok(());
        }
        let what = format!("checkpoint: object {} is cut", address.id);
        Err(Error::new(ErrorKind::Malformed, what))
    }

    /// Whether the permanent directory has all of it.
    pub(super) fn is_in_backing(&self) -> Result<bool> {
        let manifest = [self.container.path(), MANIFEST].join(&b'/');
        if !self.client.safety(&manifest)?.in_backing {
            return Ok(false);
        }
        for part in &self.manifest.parts {
            if !self.container.status(part.address)?.in_backing {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Looks whether each object is as long as it is said to be.
pub(super) fn check_sizes(container: &Container, manifest: &Manifest) -> Result<()> {
    let check = |part: &Part| check_size(container, part.address, part.bytes);
    manifest.parts.iter().try_for_each(check)
}
