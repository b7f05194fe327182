//! What the launcher sends to machines without `terral`: this build, read when the first wants it.
//!
//! Not here: where it is put (`ahead`), and who wants it (`hosts`).

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Result;

use crate::ahead::{Ahead, home};
use crate::same::{Build, sum};
use crate::words::Part;

/// A file as it is sent.
#[derive(Clone)]
pub struct Sealed {
    /// All of it.
    pub bytes: Arc<Vec<u8>>,
    /// Its checksum.
    pub sum: u64,
}

/// This build, and where it is to be.
pub struct Supply {
    /// Which it is.
    pub build: Build,
    /// Where it is to be.
    pub ahead: Ahead,
    program: OnceLock<Sealed>,
    library: OnceLock<Sealed>,
}

impl Supply {
    /// Of this program, with this library.
    ///
    /// # Errors
    /// If they cannot be read, or have no place.
    pub fn new(library: &Path) -> Result<Supply> {
        let build = Build::ours(library)?;
        let ahead = Ahead { home: home()?, id: build.id.clone() };
        Ok(Supply { build, ahead, program: OnceLock::new(), library: OnceLock::new() })
    }

    /// A part of it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn part(&self, part: Part) -> Result<Sealed> {
        let cell = match part {
            Part::Program => &self.program,
            Part::Library => &self.library,
        };
        if let Some(sealed) = cell.get() {
            return Ok(sealed.clone());
        }
        let bytes = match part {
            Part::Program => self.build.program_bytes()?,
            Part::Library => self.build.library_bytes()?,
        };
        let sealed = Sealed { sum: sum(&bytes), bytes: Arc::new(bytes) };
        Ok(cell.get_or_init(|| sealed).clone())
    }

    /// How many bytes that are; what cannot be read is none.
    pub fn bytes(&self) -> u64 {
        let parts = [Part::Program, Part::Library].map(|part| self.part(part));
        parts.iter().flatten().map(|part| part.bytes.len() as u64).sum()
    }
}
