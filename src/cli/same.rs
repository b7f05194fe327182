//! Which build of Terral this is: program and preload library together. And `terral same`, hidden:
//! asked on another machine of a run whether it has the very same.
//!
//! Invariant: two that differ have different ids, as versions do not tell: servers of a run
//! speak to each other, and programs to them, in formats of this build.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::elf;
use crate::report::code;

/// The running program's file, be it that its name is another's by now.
const SELF: &str = "/proc/self/exe";
/// Bytes of an id that are told.
const ID_BYTES: usize = 8;

/// One build, on this machine.
pub struct Build {
    /// What it is called.
    pub id: String,
    /// Where `terral` is.
    pub program: PathBuf,
    /// Where the library is that is preloaded.
    pub library: PathBuf,
}

/// Says whether a machine has the build that this id has, with its library there
#[derive(Args)]
pub struct Arguments {
    id: String,
    library: PathBuf,
}

/// What tells a file from that of another build.
fn id_of(path: &Path) -> Result<String> {
    let id = match elf::build_id(path).filter(|id| id.len() >= ID_BYTES) {
        Some(id) => id,
        None => {
            let bytes = fs::read(path).with_context(|| path.display().to_string())?;
            sum(&bytes).to_be_bytes().to_vec()
        }
    };
    Ok(id[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The checksum of what is sent.
pub fn sum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The id of a program and its library.
///
/// # Errors
/// If one cannot be read.
pub fn id(program: &Path, library: &Path) -> Result<String> {
    Ok(format!("{}-{}", id_of(program)?, id_of(library)?))
}

impl Build {
    /// This program, with its library.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn ours(library: &Path) -> Result<Build> {
        let program = std::env::current_exe().context("terral: own path")?;
        Ok(Build { id: id(Path::new(SELF), library)?, program, library: library.into() })
    }

    /// All of the program.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn program_bytes(&self) -> Result<Vec<u8>> {
        fs::read(SELF).with_context(|| self.program.display().to_string())
    }

    /// All of the library.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn library_bytes(&self) -> Result<Vec<u8>> {
        fs::read(&self.library).with_context(|| self.library.display().to_string())
    }
}

/// Says by the exit code whether it is the same.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let ours = id(Path::new(SELF), &arguments.library)?;
    Ok(if ours == arguments.id { 0 } else { code::FAILED })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{id, id_of};

    #[test]
    fn a_build_is_told_from_another_also_without_a_linkers_note() {
        let home = tempfile::tempdir().expect("directory");
        let [one, two] = ["one", "two"].map(|name| home.path().join(name));
        std::fs::write(&one, "x").expect("writes");
        std::fs::write(&two, "y").expect("writes");
        assert_ne!(id(&one, &two).expect("reads"), id(&two, &one).expect("reads"));
        let program = Path::new("/proc/self/exe");
        std::fs::copy(program, &two).expect("copies");
        assert_eq!(id_of(program).expect("reads"), id_of(&two).expect("reads"));
        assert!(id(&one, &home.path().join("none")).is_err());
    }
}
