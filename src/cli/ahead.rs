//! The private place of `terral` and its library on machines that lack them:
//! `/tmp/terral-UID/BUILD/`, the same path on all machines of a run. And `terral arrived`, hidden:
//! what was sent, as it puts itself there.
//!
//! Invariants: what is at a build's place is whole, as it comes by one rename; a place is used, and
//! anything in it executed, only if nobody else can have put it there; one that is in use is never
//! removed. Not here: how bytes travel (`entrance`, `remote`).

use std::ffi::OsString;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::fs::FlockOperation;

use crate::instances;
use crate::origin::Origin;
use crate::report::{code, say};
use crate::same::{self, Build};
use crate::server::LIBRARY;
use crate::words::{Report, report};

/// Names another directory for the places of all users than `/tmp`.
pub const VARIABLE: &str = "TERRAL_AHEAD";
const USUAL: &str = "/tmp";
const PROGRAM: &str = "terral";
/// How what is not whole yet is called.
const NEW: &str = "new-";
/// A build that nobody has begun to use for so long, and nobody holds, is not used.
const UNUSED: Duration = Duration::from_secs(60);
/// What has not become whole for so long never will.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Where a build is to be on machines that do not have it.
pub struct Ahead {
    /// The directory of all builds of this user.
    pub home: PathBuf,
    /// Which one.
    pub id: String,
}

/// Puts what was sent to its place, and goes on as it
#[derive(Args)]
pub struct Arguments {
    /// Where it arrived
    new: PathBuf,
    /// The directory of all builds of this user
    home: PathBuf,
    /// Which one it is
    id: String,
    /// Checksum of the program
    program: String,
    /// Checksum of the library
    library: String,
    /// How it goes on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

/// The directory of this user's builds.
///
/// # Errors
/// If the variable names none.
pub fn home() -> Result<PathBuf> {
    let chosen = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let above = PathBuf::from(chosen.unwrap_or_else(|| USUAL.into()));
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@,".contains(byte);
    if !above.is_absolute() || !above.as_os_str().as_encoded_bytes().iter().all(plain) {
        bail!(
            "{VARIABLE}={}: an absolute path like {USUAL} is needed, of letters and digits",
            above.display()
        );
    }
    // Without doubled and trailing slashes, which shells there would not leave out.
    let above: PathBuf = above.components().collect();
    Ok(above.join(format!("terral-{}", rustix::process::geteuid().as_raw())))
}

impl Ahead {
    fn place(&self) -> PathBuf {
        self.home.join(&self.id)
    }

    /// `terral` there.
    pub fn program(&self) -> PathBuf {
        self.place().join(PROGRAM)
    }

    /// The library there.
    pub fn library(&self) -> PathBuf {
        self.place().join(LIBRARY)
    }

    /// Has it there on this machine, too, from where it is.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn keep(&self, build: &Build) -> Result<File> {
        make_private(&self.home)?;
        if !self.is_whole() {
            let new = self.home.join(format!("{NEW}{}", instances::fresh_name()));
            fs::create_dir(&new).with_context(|| new.display().to_string())?;
            let copied = copy(build, &new).and_then(|()| self.settle(&new));
            copied.inspect_err(|_| remove(&new))?;
        }
        let held = self.hold()?;
        self.tidy();
        Ok(held)
    }

    fn is_whole(&self) -> bool {
        same::id(&self.program(), &self.library()).is_ok_and(|id| id == self.id)
    }

    /// Puts what is whole to its place, unless another run was faster.
    fn settle(&self, new: &Path) -> Result<()> {
        let place = self.place();
        let shown = || place.display().to_string();
        for _ in 0..2 {
            match fs::rename(new, &place) {
                Ok(()) => return Ok(()),
                Err(error) if !is_taken(&error) => return Err(error).with_context(shown),
                Err(_) if self.is_whole() => {
                    remove(new);
                    return Ok(());
                }
                // Somebody has removed a part of it.
                Err(_) => remove(&place),
            }
        }
        bail!("{}: cannot be replaced: remove it", shown())
    }

    /// From now on it is in use, as long as what is given lives.
    ///
    /// # Errors
    /// If it is not there.
    pub fn hold(&self) -> Result<File> {
        let place = self.place();
        let shown = || place.display().to_string();
        let held = File::open(&place).with_context(shown)?;
        rustix::fs::flock(&held, FlockOperation::LockShared).with_context(shown)?;
        // Where that is not permitted it is younger by its making.
        let _ = held.set_times(FileTimes::new().set_modified(SystemTime::now()));
        let of = |found: fs::Metadata| (found.dev(), found.ino());
        let there = fs::symlink_metadata(&place).map(of).ok();
        if there != held.metadata().map(of).ok() {
            bail!("{}: another run has just removed it: try again", shown());
        }
        Ok(held)
    }

    /// Removes other builds that nobody uses: what was made here stays one, and those in use.
    fn tidy(&self) {
        let made_by: Vec<PathBuf> = instances::directories()
            .iter()
            .filter_map(|instance| Some(Origin::read(instance)?.program))
            .collect();
        for entry in fs::read_dir(&self.home).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_new = entry.file_name().as_encoded_bytes().starts_with(NEW.as_bytes());
            // What an instance was made by may be needed to bring what that holds.
            let needed = made_by.iter().any(|program| program.starts_with(&path));
            let age = if is_new { ABANDONED } else { UNUSED };
            if path != self.place() && !needed && is_old(&path, age) {
                self.discard(&path);
            }
        }
    }

    /// Removes what nobody holds; who begins to use it meanwhile finds that it has gone.
    fn discard(&self, path: &Path) {
        let Ok(held) = File::open(path) else { return remove(path) };
        if rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let gone = self.home.join(format!("{NEW}{}", instances::fresh_name()));
            remove(if fs::rename(path, &gone).is_ok() { &gone } else { path });
        }
    }
}

/// Whether a rename found something in its way.
fn is_taken(error: &std::io::Error) -> bool {
    use ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    [AlreadyExists, DirectoryNotEmpty, NotADirectory].contains(&error.kind())
}

/// Whether it, and what is in it, was last touched before so long.
fn is_old(path: &Path, age: Duration) -> bool {
    let young = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|since| since < age))
    };
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    !young(path) && !inside.into_iter().any(|entry| young(&entry.path()))
}

/// Removes a directory, or what stands for one.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_err() {
        let _ = fs::remove_file(path);
    }
}

fn copy(build: &Build, new: &Path) -> Result<()> {
    let parts =
        [(PROGRAM, build.program_bytes()?, 0o700), (LIBRARY, build.library_bytes()?, 0o600)];
    for (name, bytes, mode) in parts {
        let path = new.join(name);
        let written = fs::write(&path, bytes)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)));
        written.with_context(|| path.display().to_string())?;
    }
    executes(&new.join(PROGRAM))
}

/// An error if programs may not be executed there.
fn executes(program: &Path) -> Result<()> {
    let shown = program.parent().and_then(Path::parent).unwrap_or(program).display();
    let begun = Command::new(program).arg("--version").output();
    begun.map(|_| ()).with_context(|| {
        format!("{shown}: programs cannot be executed there (noexec?): {ELSEWHERE}")
    })
}

/// What one can do about a place that cannot be used.
pub const ELSEWHERE: &str =
    "name a directory that can be used on all machines with TERRAL_AHEAD=DIRECTORY";

/// Makes the directory of all builds, or accepts it if it is nobody else's.
fn make_private(home: &Path) -> Result<()> {
    let shown = home.display();
    let made = fs::DirBuilder::new().mode(0o700).create(home);
    if let Err(error) = made
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("{shown}: {ELSEWHERE}"));
    }
    let me = rustix::process::geteuid().as_raw();
    let found = fs::symlink_metadata(home).with_context(|| shown.to_string())?;
    let above = home.parent().unwrap_or(home);
    let above = fs::metadata(above).with_context(|| above.display().to_string())?;
    let alone = found.is_dir() && found.uid() == me && found.mode() & 0o077 == 0;
    let guarded =
        [0, me].contains(&above.uid()) && (above.mode() & 0o022 == 0 || above.mode() & 0o1000 != 0);
    if !alone || !guarded {
        bail!(
            "{shown}: not a directory of yours alone (0700) in one where nobody else can replace \
             it: remove it, or {ELSEWHERE}"
        );
    }
    Ok(())
}

/// Settles, and goes on.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let ahead = Ahead { home: arguments.home.clone(), id: arguments.id.clone() };
    let settled = arrived(arguments, &ahead).inspect_err(|_| remove(&arguments.new));
    if let Err(error) = settled {
        report(&Report::Failed(format!("{error:#}")));
        return Ok(code::NOT_STARTED);
    }
    ahead.tidy();
    let mut next = Command::new(ahead.program());
    next.args(&arguments.words).arg("--library").arg(ahead.library());
    let error = next.exec();
    say(format_args!("{}: {error}", ahead.program().display()));
    Ok(code::NOT_STARTED)
}

fn arrived(arguments: &Arguments, ahead: &Ahead) -> Result<()> {
    let parts = [(PROGRAM, &arguments.program), (LIBRARY, &arguments.library)];
    for (name, wanted) in parts {
        let path = arguments.new.join(name);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        if format!("{:016x}", same::sum(&bytes)) != *wanted {
            bail!("{}: not what was sent: try again", path.display());
        }
    }
    make_private(&ahead.home)?;
    ahead.settle(&arguments.new)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    use super::{Ahead, LIBRARY, make_private};
    use crate::same::Build;

    fn ours(home: &Path) -> (Build, Ahead) {
        let library = std::env::current_exe().expect("own path");
        let build = Build::ours(&library).expect("reads");
        let ahead = Ahead { home: home.join("terral"), id: build.id.clone() };
        (build, ahead)
    }

    /// A directory with a file, last touched before so many seconds.
    fn touched(home: &Path, name: &str, seconds: u64) -> PathBuf {
        let place = home.join(name);
        fs::create_dir(&place).expect("makes");
        fs::write(place.join("terral"), "").expect("writes");
        let at = SystemTime::now() - Duration::from_secs(seconds);
        for path in [&place.join("terral"), &place] {
            let times = FileTimes::new().set_modified(at);
            File::open(path).expect("opens").set_times(times).expect("sets");
        }
        place
    }

    #[test]
    fn a_build_is_kept_whole_and_one_that_nobody_uses_goes() {
        let home = tempfile::tempdir().expect("directory");
        let (build, ahead) = ours(home.path());
        make_private(&ahead.home).expect("makes");
        let [used, old, young, dead, comes] =
            [("used", 9000), ("old", 90), ("young", 9), ("new-1", 9000), ("new-2", 900)]
                .map(|(name, seconds)| touched(&ahead.home, name, seconds));
        let other = Ahead { home: ahead.home.clone(), id: "used".into() };
        let held = other.hold().expect("is there");
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        held.set_times(times).expect("sets");
        let _held = ahead.keep(&build).expect("keeps");
        assert!(ahead.is_whole());
        let mode = fs::metadata(&ahead.home).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let there = [used, old, young, dead, comes].map(|path| path.exists());
        assert_eq!(there, [true, false, true, false, true]);
    }

    #[test]
    fn a_build_of_which_a_part_was_removed_is_made_whole_again() {
        let home = tempfile::tempdir().expect("directory");
        let (build, ahead) = ours(home.path());
        drop(ahead.keep(&build).expect("keeps"));
        fs::remove_file(ahead.place().join(LIBRARY)).expect("removes");
        assert!(!ahead.is_whole());
        drop(ahead.keep(&build).expect("keeps"));
        assert!(ahead.is_whole());
        assert_eq!(fs::read_dir(&ahead.home).expect("lists").count(), 1);
    }

    #[test]
    fn a_directory_that_others_can_change_is_no_place_for_programs() {
        let home = tempfile::tempdir().expect("directory");
        let permit = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("sets");
        };
        let [real, link] = ["real", "link"].map(|name| home.path().join(name));
        make_private(&real).expect("makes");
        std::os::unix::fs::symlink(&real, &link).expect("links");
        assert!(make_private(&link).is_err());
        permit(&real, 0o750);
        assert!(make_private(&real).is_err());
        permit(&real, 0o700);
        for (mode, good) in [(0o777, false), (0o770, false), (0o1777, true), (0o755, true)] {
            permit(home.path(), mode);
            assert_eq!(make_private(&real).is_ok(), good, "{mode:o}");
        }
    }
}
