//! Finding instances: directories `/dev/shm/terral-UID/NAME`, and paths in them.
//!
//! Invariant: the directory above them is ours and closed to others. Not here: what is in them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use terral_client::{Client, is_his};

use crate::knock;
use crate::machine::SHARED_MEMORY;
use crate::report::{code, failure};

/// Where programs under `terral run` see their files, unless told otherwise.
pub const PREFIX: &str = "/terral";
/// The name of a server that stays, unless it has another one.
pub const DEFAULT: &str = "default";
/// So often a user's directory is tried to be made.
const TRIES: usize = 8;
/// File in an instance that says which permanent directory it was made for.
const TARGET: &str = "to";

/// The directory of this user's instances.
pub fn base() -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("terral-{}", rustix::process::geteuid().as_raw()))
}

/// Makes a directory for a new instance, or accepts one that is there.
///
/// # Errors
/// If the directory above is not ours alone: somebody else may have put it there.
pub fn make(path: &Path) -> Result<()> {
    let base = base();
    let mut maker = fs::DirBuilder::new();
    maker.mode(0o700);
    if path.starts_with(&base) {
        if let Err(error) = maker.create(&base)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(error).with_context(|| base.display().to_string());
        }
        let found = fs::symlink_metadata(&base).with_context(|| base.display().to_string())?;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_dir() || !ours || found.permissions().mode() & 0o077 != 0 {
            bail!("{}: not a directory of yours alone (0700): remove it", base.display());
        }
    }
    match maker.create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Makes the directory of a user's instances, for root, who may: what somebody else has put there
/// goes aside. What is his stays as it is.
///
/// # Errors
/// If it cannot be made.
pub fn make_base_of((user, group): (u32, u32)) -> Result<()> {
    let all = Path::new(SHARED_MEMORY);
    let base = all.join(format!("terral-{user}"));
    for _ in 0..TRIES {
        match fs::symlink_metadata(&base) {
            Ok(found) if found.is_dir() && found.uid() == user => return Ok(()),
            Ok(_) => {
                let aside = all.join(format!(".terral-aside-{:016x}", random()));
                fs::rename(&base, &aside).with_context(|| base.display().to_string())?;
            }
            Err(_) => {}
        }
        let new = all.join(format!(".terral-new-{:016x}", random()));
        fs::DirBuilder::new().mode(0o700).create(&new).with_context(|| SHARED_MEMORY.to_owned())?;
        let given = lchown(&new, Some(user), Some(group)).and_then(|()| {
            // Where somebody was faster nothing of his is taken for this.
            Ok(renameat_with(CWD, &new, CWD, &base, RenameFlags::NOREPLACE)?)
        });
        if given.is_ok() {
            return Ok(());
        }
        let _ = fs::remove_dir(&new);
    }
    bail!("{}: somebody else makes it again and again", base.display())
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// A name that no other instance has.
pub fn fresh_name() -> String {
    format!("run-{}-{:04x}", std::process::id(), random() & 0xffff)
}

/// What names an instance on the command line: one name, or an absolute path.
pub fn parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(checked)
}

fn checked(text: OsString) -> Result<PathBuf, &'static str> {
    let bytes = text.as_bytes();
    if bytes.iter().any(u8::is_ascii_control) {
        return Err("has control characters");
    }
    let climbs = || Path::new(&text).components().any(|part| part == Component::ParentDir);
    let named = match bytes.first() {
        Some(b'/') => !climbs() && Path::new(&text).file_name().is_some(),
        Some(b'.') | None => false,
        Some(_) => !bytes.contains(&b'/'),
    };
    named.then(|| PathBuf::from(&text)).ok_or("neither a name nor an absolute path of an instance")
}

/// Where an instance with this name, or at this path, is.
pub fn locate(name: &OsStr) -> PathBuf {
    if name.as_bytes().contains(&b'/') { PathBuf::from(name) } else { base().join(name) }
}

/// Notes for which permanent directory an instance is.
pub fn note_target(instance: &Path, target: &Path) -> Result<()> {
    let path = instance.join(TARGET);
    fs::write(&path, target.as_os_str().as_bytes()).with_context(|| path.display().to_string())
}

/// The permanent directory noted for an instance.
pub fn target(instance: &Path) -> Option<PathBuf> {
    let bytes = fs::read(instance.join(TARGET)).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// An instance on this machine.
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Whether a server serves it now.
    pub served: bool,
}

/// Removes what is rubbish beside an instance.
pub fn tidy(instance: &Path) {
    if let Some(home) = instance.parent() {
        terral_server::tidy(home);
    }
}

/// What looks like an instance of this user, with a server or without, also one just begun.
pub fn directories() -> Vec<PathBuf> {
    if is_his(&base()).is_err() {
        return Vec::new();
    }
    terral_server::tidy(&base());
    let entries = fs::read_dir(base()).into_iter().flatten().flatten();
    let known = entries.filter(|entry| !terral_server::is_rubbish(&entry.file_name()));
    known.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// All instances of this user, by name. Rubbish among them is removed.
pub fn all() -> Vec<Found> {
    let begun = directories().into_iter().filter(|path| path.join("log").exists());
    let mut found: Vec<Found> = begun
        .map(|path| Found { name: name_of(&path), served: terral_server::is_served(&path), path })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The name by which people call the instance at `path`.
pub fn name_of(path: &Path) -> String {
    match path.strip_prefix(base()) {
        Ok(name) => name.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

fn names(found: &[&Found]) -> String {
    found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether a directory is an instance: whoever names one by its path may have mistaken it, and what
/// is none is neither used nor removed.
pub fn is_one(path: &Path) -> bool {
    let is_file = |name| fs::symlink_metadata(path.join(name)).is_ok_and(|found| found.is_file());
    ["lock", "log", "tables", "headers"].into_iter().all(is_file)
}

/// Whether a directory holds what is not Terral's, for all that is known: not one among the
/// instances of this user, and not empty.
pub fn is_foreign(path: &Path) -> bool {
    let named = path.file_name().is_some();
    let ours = named && path.parent().is_some_and(|above| above == base());
    let some = || fs::read_dir(path).map_or(path.exists(), |mut names| names.next().is_some());
    !ours && some() && !is_one(path)
}

/// Which server to ask.
#[derive(Args)]
pub struct Which {
    /// Name or directory of the instance; not needed if only one server runs
    #[arg(long, value_name = "NAME", env = "TERRAL_INSTANCE", value_parser = parser())]
    instance: Option<PathBuf>,
}

impl Which {
    /// The instance that was named, if one was.
    pub fn named(&self) -> Option<PathBuf> {
        self.instance.as_ref().map(|name| locate(name.as_os_str()))
    }

    /// The instance meant.
    ///
    /// # Errors
    /// If none was named and not exactly one is served.
    pub fn path(&self) -> Result<PathBuf> {
        if let Some(path) = self.named() {
            return Ok(path);
        }
        let all = all();
        let served: Vec<&Found> = all.iter().filter(|found| found.served).collect();
        match served.as_slice() {
            [only] => Ok(only.path.clone()),
            [] if all.is_empty() && knock::is_open(DEFAULT) => Ok(base().join(DEFAULT)),
            [] if all.is_empty() => Err(failure(
                code::NO_SERVER,
                "no server runs here: start one with `terral serve --to DIR`",
            )),
            [] => Err(failure(
                code::NO_SERVER,
                format!(
                    "no server runs here, but data of {} is in memory: `terral recover` pays it",
                    names(&all.iter().collect::<Vec<_>>())
                ),
            )),
            many => bail!("several servers run here: say --instance {}", names(many)),
        }
    }

    /// A connection to it, as programs have one.
    pub fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.served()?)?)
    }

    /// A way to ask it, without being one of its programs; as little as they may if
    /// `TERRAL_CAPABILITY`, or `TERRAL_CREDENTIAL`, says so.
    pub fn observe(&self) -> Result<Client> {
        let path = self.served()?;
        let shows = terral_client::of_environment_at(&path)?;
        Ok(Client::observe_with(&path, shows)?)
    }

    /// Its directory, if it is served.
    pub fn served(&self) -> Result<PathBuf> {
        let path = self.path()?;
        knock::come_in(&path, &name_of(&path))?;
        if !terral_server::is_served(&path) {
            let name = name_of(&path);
            let what = if path.join("log").exists() {
                format!("{name}: its server is gone: `terral recover {name}` saves its data")
            } else {
                format!("{name}: no such instance: `terral status` shows those there are")
            };
            return Err(failure(code::NO_SERVER, what));
        }
        Ok(path)
    }
}

/// A path as Terral has it: relative, without dots, from `x/y` or `/terral/x/y`.
///
/// # Errors
/// If it is absolute and elsewhere, or climbs with `..`.
pub fn place(path: &Path) -> Result<Vec<u8>> {
    let prefix = std::env::var_os("TERRAL_PREFIX").unwrap_or_else(|| PREFIX.into());
    place_under(path, Path::new(&prefix))
}

fn place_under(path: &Path, prefix: &Path) -> Result<Vec<u8>> {
    let inside = if path.is_absolute() {
        let Ok(inside) = path.strip_prefix(prefix) else {
            bail!(
                "{}: not under {}: give the path as the program sees it, or relative to it",
                path.display(),
                prefix.display()
            );
        };
        inside
    } else {
        path
    };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in inside.components() {
        match part {
            Component::Normal(name) => parts.push(name.as_bytes()),
            Component::CurDir => {}
            _ => bail!("{}: leave `..` out", path.display()),
        }
    }
    Ok(parts.join(&b'/'))
}

/// The path of a name in a directory of a partition.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::{base, checked, locate, name_of, place_under};

    fn placed(path: &str) -> Option<String> {
        let place = place_under(Path::new(path), Path::new("/terral")).ok()?;
        Some(String::from_utf8(place).unwrap())
    }

    #[test]
    fn paths_are_taken_with_and_without_prefix() {
        assert_eq!(placed("/terral/a/b").unwrap(), "a/b");
        assert_eq!(placed("a/b").unwrap(), "a/b");
        assert_eq!(placed("./a//b/.").unwrap(), "a/b");
        assert_eq!(placed("/terral").unwrap(), "");
        assert_eq!(placed("/terral/").unwrap(), "");
        assert_eq!(placed(".").unwrap(), "");
    }

    #[test]
    fn paths_elsewhere_are_refused() {
        assert_eq!(placed("/tmp/a"), None);
        assert_eq!(placed("/terralx/a"), None);
        assert_eq!(placed("../a"), None);
        assert_eq!(placed("a/../../b"), None);
    }

    #[test]
    fn an_instance_is_named_by_one_name_or_an_absolute_path() {
        for name in ["default", "run-1-0a3f", "a.b", "-", "/x/y", "/x/./y", "/x/.y"] {
            assert_eq!(checked(name.into()).unwrap(), Path::new(name));
        }
        for none in ["", ".", "..", ".lock", "../x", "a/b", "a/..", "./a", "/", "/x/..", "/../x"] {
            assert!(checked(none.into()).is_err(), "{none}");
        }
        assert!(checked("a\x1b[2J".into()).is_err());
    }

    #[test]
    fn names_and_paths_of_instances() {
        assert_eq!(locate(OsStr::new("default")), base().join("default"));
        assert_eq!(locate(OsStr::new("/x/y")), Path::new("/x/y"));
        assert_eq!(name_of(&base().join("run-1")), "run-1");
        assert_eq!(name_of(Path::new("/x/y")), "/x/y");
    }
}
