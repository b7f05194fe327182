//! What is executed when a program is started by name: the file in `PATH`, for scripts the
//! interpreter behind `#!`, for pyenv's shims and R's script what they start.
//!
//! Not here: what is in the program.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::elf::MAGIC;
use crate::report::{code, failure};
use crate::shim;

/// Bytes of a script that the kernel looks at (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;
/// Interpreters that are scripts themselves, as many as the kernel follows.
const SCRIPTS: usize = 5;
/// What the kernel does not start, the C library hands to this.
const SHELL: &str = "/bin/sh";
/// The attribute that file capabilities are in.
const CAPABILITIES: &str = "security.capability";

/// A program, and the scripts that lead to it.
#[derive(Debug)]
pub struct Executable {
    /// Scripts, the one that was asked for first.
    pub scripts: Vec<PathBuf>,
    /// The file whose code runs.
    pub path: PathBuf,
}

/// Finds `name` as a shell does, and what its scripts are run by.
///
/// # Errors
/// With the exit codes of `terral run`: it is not there, or is no program.
pub fn find(name: &OsStr) -> Result<Executable> {
    let mut scripts = Vec::new();
    let mut path = in_path(name)?;
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(program) = shim::behind(&path, &here) {
        scripts.push(std::mem::replace(&mut path, program));
    }
    while let Some(interpreter) = interpreter(&path)? {
        let script = std::mem::replace(&mut path, in_path(&interpreter)?);
        scripts.push(script);
        if scripts.len() > SCRIPTS {
            let what = format!("{}: scripts run by scripts, without an end", name.display());
            return Err(failure(code::NOT_EXECUTABLE, what));
        }
    }
    Ok(Executable { scripts, path })
}

fn is_program(found: &Metadata) -> bool {
    found.is_file() && found.mode() & 0o111 != 0
}

fn in_path(name: &OsStr) -> Result<PathBuf> {
    let shown = name.display();
    let missing = || failure(code::NOT_FOUND, format!("{shown}: no such program"));
    if name.as_bytes().contains(&b'/') {
        let found = std::fs::metadata(name).map_err(|error| {
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            let code = if is_missing { code::NOT_FOUND } else { code::NOT_EXECUTABLE };
            failure(code, format!("{shown}: {error}"))
        })?;
        if !found.is_file() {
            return Err(failure(code::NOT_EXECUTABLE, format!("{shown}: not a file")));
        }
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut places = std::env::split_paths(&path).map(|place| place.join(name));
    places
        .find(|place| std::fs::metadata(place).is_ok_and(|found| is_program(&found)))
        .ok_or_else(missing)
}

/// What runs a script; none if the file is a program by itself.
fn interpreter(path: &Path) -> Result<Option<std::ffi::OsString>> {
    let head = head(path)
        .map_err(|error| failure(code::NOT_EXECUTABLE, format!("{}: {error}", path.display())))?;
    if head.starts_with(MAGIC) {
        // A library is looked at too; many are not executable.
        return Ok(None);
    }
    if !std::fs::metadata(path).is_ok_and(|found| is_program(&found)) {
        let what = format!("{}: not executable", path.display());
        return Err(failure(code::NOT_EXECUTABLE, what));
    }
    let Some(rest) = head.strip_prefix(b"#!") else {
        if head.contains(&0) {
            let what = format!("{}: neither a program nor a script", path.display());
            return Err(failure(code::NOT_EXECUTABLE, what));
        }
        return Ok(Some(SHELL.into()));
    };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let program = words
        .next()
        .context("no interpreter behind #!")
        .map_err(|error| failure(code::NOT_EXECUTABLE, format!("{}: {error}", path.display())))?;
    if Path::new(OsStr::from_bytes(program)).file_name() != Some(OsStr::new("env")) {
        // The kernel does not look into PATH.
        return Ok(Some(Path::new(".").join(OsStr::from_bytes(program)).into()));
    }
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    Ok(Some(OsStr::from_bytes(named.unwrap_or(program)).to_owned()))
}

fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Why the dynamic linker would ignore a library that is preloaded, if it would.
pub fn privilege(path: &Path) -> Option<&'static str> {
    let found = std::fs::metadata(path).ok()?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if found.mode() & 0o4000 != 0 && found.uid() != user.as_raw() {
        return Some("set-user-id programs do not load the library");
    }
    if found.mode() & 0o2000 != 0 && found.gid() != group.as_raw() {
        return Some("set-group-id programs do not load the library");
    }
    let has_capabilities = rustix::fs::getxattr(path, CAPABILITIES, &mut [0u8; 64]).is_ok();
    (has_capabilities && !user.is_root())
        .then_some("programs with file capabilities do not load the library")
}

#[cfg(test)]
mod tests {
    use super::find;
    use std::ffi::OsStr;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    fn script(directory: &Path, name: &str, text: &[u8]) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn code_of(name: &Path) -> u8 {
        crate::report::conclude(&find(name.as_os_str()).unwrap_err())
    }

    #[test]
    fn scripts_lead_to_what_runs_them() {
        let home = tempfile::tempdir().unwrap();
        let plain = script(home.path(), "plain", b"#! /bin/sh -e\necho\n");
        let found = find(plain.as_os_str()).unwrap();
        assert_eq!((found.path, found.scripts), ("/bin/sh".into(), vec![plain.clone()]));
        let text = format!("#!{}\n", plain.display());
        let nested = script(home.path(), "nested", text.as_bytes());
        assert_eq!(find(nested.as_os_str()).unwrap().scripts, [nested, plain]);
        let env = script(home.path(), "env-script", b"#!/usr/bin/env -S A=1 cat -u\n");
        assert!(find(env.as_os_str()).unwrap().path.ends_with("cat"));
        let bare = script(home.path(), "bare", b"echo\n");
        assert_eq!(find(bare.as_os_str()).unwrap().path, Path::new("/bin/sh"));
    }

    #[test]
    fn what_cannot_run_says_why() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(code_of(Path::new("no-such-program-at-all")), 127);
        assert_eq!(code_of(&home.path().join("none")), 127);
        assert_eq!(code_of(home.path()), 126);
        assert_eq!(code_of(&script(home.path(), "binary", b"\0\0\0")), 126);
        assert_eq!(code_of(&script(home.path(), "empty", b"#!\n")), 126);
        assert_eq!(code_of(Path::new("/etc/passwd")), 126);
        let path = home.path().join("itself");
        script(home.path(), "itself", format!("#!{}\n", path.display()).as_bytes());
        assert_eq!(code_of(&path), 126);
        assert!(find(OsStr::new("cat")).unwrap().scripts.is_empty());
    }
}
