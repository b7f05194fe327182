//! A checkpoint that is whole, to be read.

use terral_format::{Error, ErrorKind, Result};

use super::manifest::{BYTES_MAX, Manifest};
use crate::client::Client;
use crate::objects::Container;
use crate::{OpenHow, access};

/// What the file in a checkpoint that says what belongs to it is called.
pub(super) const MANIFEST: &[u8] = b"manifest";

/// A checkpoint that is whole.
pub struct Whole {
    client: Client,
    container: Container,
    manifest: Manifest,
}

fn read_manifest(client: &Client, path: &[u8]) -> Result<Manifest> {
    let how = OpenHow { access: access::READ as u8, ..OpenHow::default() };
    let file = client.open(path, how)?;
    let size = file.size();
    if size > BYTES_MAX {
        file.close();
        return Err(Error::new(ErrorKind::Malformed, "manifest of a checkpoint: too long"));
    }
    let mut text = vec![0; size as usize];
    let read = file.read_at(&mut text, 0);
    file.close();
    Manifest::read(&text[..read?])
}

impl Whole {
    /// The checkpoint in this directory, after a look whether all that belongs to it is there.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if something is missing, [`ErrorKind::Malformed`] if it is not what
    /// the manifest says.
    pub(super) fn open(client: &Client, path: &[u8]) -> Result<Self> {
        let container = Container::at(client, path)?;
        let manifest = read_manifest(client, &[path, MANIFEST].join(&b'/'))?;
        check_sizes(&container, &manifest)?;
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
            let object = self.container.open_object(part.address, false)?;
            let into = &mut buffer[done..done + count as usize];
            let read = object.read(into, from - part.at);
            object.close()?;
            if read? != into.len() {
                let what = format!("checkpoint: object {} is cut", part.address.id);
                return Err(Error::new(ErrorKind::Malformed, what));
            }
            done += count as usize;
        }
        Ok(done)
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
    for part in &manifest.parts {
        let bytes = container.size(part.address)?;
        if bytes != part.bytes {
            let (id, said) = (part.address.id, part.bytes);
            let what = format!("checkpoint: object {id} has {bytes} bytes, not {said}");
            return Err(Error::new(ErrorKind::Malformed, what));
        }
    }
    Ok(())
}
