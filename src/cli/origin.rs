//! What an instance was made for, and by which program: for the next `terral`, also one of another
//! version. In its file `origin`: `name=value`, each ended by a zero byte.
//!
//! Invariant: written before its server starts, and again only by who is in charge of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags};

const FILE: &str = "origin";

/// A directory as what it is, however it is called: device, inode, and when that was made, if the
/// file system says so, since numbers of removed ones are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: (u32, u32),
    inode: u64,
    born_ns: u64,
}

impl Identity {
    /// Of the directory at this path.
    pub fn of(directory: &Path) -> Result<Identity> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(CWD, directory, AtFlags::empty(), wanted)
            .with_context(|| directory.display().to_string())?;
        let born = found.stx_btime;
        let known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born_ns = born.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
        Ok(Identity {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born_ns: if known { born_ns.wrapping_add(born.tv_nsec.into()) } else { 0 },
        })
    }

    fn text(&self) -> String {
        let ((major, minor), inode) = (self.device, self.inode);
        format!("{major}:{minor} {inode} {}", self.born_ns)
    }
}

/// What an instance was made for, and by whom.
pub struct Origin {
    /// Text of the permanent directory's [`Identity`].
    directory: OsString,
    /// Where its programs see the files.
    pub prefix: PathBuf,
    /// The program that made it.
    pub program: PathBuf,
    /// The version of that.
    pub version: String,
}

impl Origin {
    /// Of an instance of this program, now.
    pub fn new(directory: &Identity, prefix: &Path) -> Origin {
        Origin {
            directory: directory.text().into(),
            prefix: prefix.to_path_buf(),
            program: std::env::current_exe().unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Whether it was made for this directory.
    pub fn is_for(&self, directory: &Identity) -> bool {
        self.directory.as_bytes() == directory.text().as_bytes()
    }

    /// Says it in an instance.
    pub fn note(&self, instance: &Path) -> Result<()> {
        let fields: [(&str, &OsStr); 4] = [
            ("directory", &self.directory),
            ("prefix", self.prefix.as_os_str()),
            ("program", self.program.as_os_str()),
            ("version", OsStr::new(&self.version)),
        ];
        let mut bytes = Vec::new();
        for (name, value) in fields {
            bytes.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
        }
        let path = instance.join(FILE);
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())
    }

    /// What an instance says; `None` if it says nothing, as those of earlier versions.
    pub fn read(instance: &Path) -> Option<Origin> {
        let bytes = std::fs::read(instance.join(FILE)).ok()?;
        let value = |name: &str| {
            let fields = bytes.split(|byte| *byte == 0);
            let mut values = fields.filter_map(|field| {
                field.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec)
            });
            values.next().map(OsString::from_vec)
        };
        Some(Origin {
            directory: value("directory")?,
            prefix: value("prefix")?.into(),
            program: value("program")?.into(),
            version: value("version")?.to_string_lossy().into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, Origin};
    use std::path::Path;

    #[test]
    fn a_directory_is_known_by_what_it_is() {
        let home = tempfile::tempdir().expect("directory");
        let (old, new) = (home.path().join("old"), home.path().join("new"));
        std::fs::create_dir(&old).expect("makes");
        let identity = Identity::of(&old).expect("is there");
        Origin::new(&identity, Path::new("/x")).note(home.path()).expect("writes");
        std::fs::rename(&old, &new).expect("renames");
        std::fs::create_dir(&old).expect("makes");
        let origin = Origin::read(home.path()).expect("was written");
        assert!(origin.is_for(&Identity::of(&new).expect("is there")));
        assert!(!origin.is_for(&Identity::of(&old).expect("is there")));
        assert_eq!(origin.prefix, Path::new("/x"));
        assert!(Origin::read(&new).is_none());
    }
}
