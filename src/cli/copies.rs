//! Copies of files and trees between Terral and local directories.

use std::ffi::OsStr;
use std::fs::{self, File as LocalFile};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{FileType, Mode};
use serde_json::json;
use terral_client::{Client, ErrorKind, File, Kind, OpenHow, access};

use crate::instances::join;
use crate::report::{self, code, say};

const BUFFER_BYTES: usize = 4 << 20;

/// What an error happened to.
pub fn shown(path: &Path) -> impl FnOnce() -> String {
    let shown = path.display().to_string();
    move || shown
}

fn reading() -> OpenHow {
    OpenHow { access: access::READ as u8, ..OpenHow::default() }
}

fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Writes what there is to read into the file at `path`.
///
/// # Errors
/// Of reading, and of Terral.
pub fn copy_in(client: &Client, path: &[u8], from: &mut impl Read, mode: u32) -> Result<u64> {
    let access = access::WRITE as u8;
    let how = OpenHow { access, create: true, truncate: true, mode, ..OpenHow::default() };
    let file = client.through(path, true, |path| client.open(path, how))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut sum = 0;
    loop {
        let count = read_some(from, &mut buffer).context("reading")?;
        if count == 0 {
            file.close();
            return Ok(sum);
        }
        file.write(&buffer[..count])?;
        sum += count as u64;
    }
}

/// Writes the file at `path` out.
///
/// # Errors
/// Of writing, and of Terral; and if it is a directory.
pub fn copy_out(client: &Client, path: &[u8], to: &mut impl Write) -> Result<u64> {
    let file: File = client.through(path, true, |path| client.open(path, reading()))?;
    if file.is_directory() {
        bail!("{}: is a directory", String::from_utf8_lossy(path));
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut sum = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            file.close();
            return Ok(sum);
        }
        to.write_all(&buffer[..count])?;
        sum += count as u64;
    }
}

/// Makes a directory; one that is there is no error if it `may_be`.
///
/// # Errors
/// If it cannot be made.
pub fn make_directory(client: &Client, path: &[u8], may_be: bool) -> Result<()> {
    match client.make_directory(path, 0o755) {
        Err(error) if error.kind == ErrorKind::Exists && may_be => {
            match client.stat_through(path)?.kind {
                Kind::Directory => Ok(()),
                _ => Err(error.into()),
            }
        }
        done => Ok(done?),
    }
}

/// Makes a local FIFO.
fn make_fifo(path: &Path, mode: u32) -> std::io::Result<()> {
    let only = Mode::from_raw_mode(mode);
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, only, 0)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// A copy of a directory and all that is in it.
pub struct Tree {
    begin: Instant,
    files: u64,
    bytes: u64,
    skipped: u64,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { begin: Instant::now(), files: 0, bytes: 0, skipped: 0 }
    }
}

impl Tree {
    /// Copies a local directory into Terral, as `path`.
    ///
    /// # Errors
    /// The first that something cannot be copied for; what can be no file there is said and left.
    pub fn put(&mut self, client: &Client, local: &Path, path: &[u8]) -> Result<()> {
        if !path.is_empty() {
            make_directory(client, path, true)?;
        }
        for entry in fs::read_dir(local).with_context(shown(local))? {
            let entry = entry.with_context(shown(local))?;
            let (from, to) = (entry.path(), join(path, entry.file_name().as_bytes()));
            let kind = entry.file_type().with_context(shown(&from))?;
            if kind.is_dir() {
                self.put(client, &from, &to)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&from).with_context(shown(&from))?;
                client.make_link(&to, target.as_os_str().as_bytes())?;
                self.files += 1;
            } else if kind.is_file() {
                let mut file = LocalFile::open(&from).with_context(shown(&from))?;
                let found = file.metadata().with_context(shown(&from))?;
                let mode = found.permissions().mode() & 0o777;
                self.bytes += copy_in(client, &to, &mut file, mode).with_context(shown(&from))?;
                self.files += 1;
            } else if kind.is_fifo() {
                let mode = entry.metadata().with_context(shown(&from))?.permissions().mode();
                client.make_node(&to, Kind::Fifo, mode & 0o777, b"")?;
                self.files += 1;
            } else {
                self.leave(&from, "a device or a socket");
            }
        }
        Ok(())
    }

    fn leave(&mut self, what: &Path, why: &str) {
        say(format_args!("{}: {why}: left out", what.display()));
        self.skipped += 1;
    }

    /// Copies the directory at `path` out of Terral, as `local`.
    ///
    /// # Errors
    /// The first that something cannot be copied for.
    pub fn get(&mut self, client: &Client, path: &[u8], local: &Path) -> Result<()> {
        if !local.is_dir() {
            fs::create_dir(local).with_context(shown(local))?;
        }
        for name in client.through(path, true, |path| client.list(path))? {
            let (from, to) = (join(path, &name.name), local.join(OsStr::from_bytes(&name.name)));
            match name.kind {
                Kind::Directory => self.get(client, &from, &to)?,
                Kind::Symlink => {
                    let target = client.read_link(&from)?;
                    symlink(OsStr::from_bytes(&target), &to).with_context(shown(&to))?;
                    self.files += 1;
                }
                Kind::Fifo => {
                    let mode = client.stat(&from)?.mode & 0o777;
                    make_fifo(&to, mode).with_context(shown(&to))?;
                    self.files += 1;
                }
                Kind::Socket => self.leave(&to, "a socket"),
                Kind::File => {
                    let mode = client.stat(&from)?.mode & 0o777;
                    let mut file = LocalFile::create(&to).with_context(shown(&to))?;
                    self.bytes += copy_out(client, &from, &mut file).with_context(shown(&to))?;
                    let permissions = fs::Permissions::from_mode(mode);
                    file.set_permissions(permissions).with_context(shown(&to))?;
                    self.files += 1;
                }
            }
        }
        Ok(())
    }

    /// The exit code, after saying what was done, if that was asked for.
    pub fn conclude(&self, json: bool) -> Result<u8> {
        if json {
            let seconds = self.begin.elapsed().as_secs_f64();
            let Tree { files, bytes, skipped, .. } = self;
            report::json(&json!({
                "files": files, "bytes": bytes, "skipped": skipped, "seconds": seconds,
            }))?;
        }
        Ok(if self.skipped > 0 { code::FAILED } else { 0 })
    }
}
