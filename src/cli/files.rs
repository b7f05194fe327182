//! The verbs on files: `ls`, `put`, `get`, `cat`, `rm`. They go to the server as any program does.

use std::ffi::OsStr;
use std::fs::File as LocalFile;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use terral_client::{Attributes, Client, File, Kind, OpenHow, access};

use crate::instances::{Which, join, place};
use crate::report::{self, code, say};
use crate::units::time;

const BUFFER_BYTES: usize = 4 << 20;

/// Lists a directory
#[derive(Args)]
#[command(after_help = "\
Example:
  terral ls -l /terral/results")]
pub struct Ls {
    #[command(flatten)]
    which: Which,
    /// Mode, links, owner, group, bytes, time of modification (UTC) and name
    #[arg(short)]
    long: bool,
    /// A list of objects
    #[arg(long)]
    json: bool,
    /// As the program sees it, or relative to that place
    #[arg(default_value = ".")]
    path: PathBuf,
}

/// Copies a local file into Terral
#[derive(Args)]
#[command(after_help = "\
Examples:
  terral put input.dat /terral/input.dat
  tar c conf | terral put - conf.tar")]
pub struct Put {
    #[command(flatten)]
    which: Which,
    /// One object at the end
    #[arg(long)]
    json: bool,
    /// A local file; `-` is standard input
    local: PathBuf,
    /// Where to; into it if it is a directory
    path: PathBuf,
}

/// Copies a file out of Terral
#[derive(Args)]
#[command(after_help = "\
Examples:
  terral get /terral/log.lammps .
  terral get dump.gz - | zcat | head")]
pub struct Get {
    #[command(flatten)]
    which: Which,
    /// One object at the end
    #[arg(long)]
    json: bool,
    /// As the program sees it, or relative to that place
    path: PathBuf,
    /// A local file or directory; `-` is standard output
    local: PathBuf,
}

/// Writes files to standard output
#[derive(Args)]
#[command(after_help = "\
Example:
  terral cat /terral/log.lammps | tail")]
pub struct Cat {
    #[command(flatten)]
    which: Which,
    /// As the program sees them, or relative to that place
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Removes files
#[derive(Args)]
#[command(after_help = "\
Example:
  terral rm /terral/core.1234
  terral rm -r /terral/scratch")]
pub struct Rm {
    #[command(flatten)]
    which: Which,
    /// Directories too, with all that is in them
    #[arg(short)]
    recursive: bool,
    /// One object at the end
    #[arg(long)]
    json: bool,
    /// As the program sees them, or relative to that place
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

fn shown(path: &Path) -> impl FnOnce() -> String {
    let shown = path.display().to_string();
    move || shown
}

fn reading() -> OpenHow {
    OpenHow { access: access::READ as u8, ..OpenHow::default() }
}

// Listing.

/// Lists.
pub fn ls(arguments: &Ls) -> Result<u8> {
    let client = arguments.which.connect()?;
    let path = place(&arguments.path)?;
    let own = client.stat_through(&path)?;
    let mut entries: Vec<(Vec<u8>, Kind, Option<Attributes>)> = Vec::new();
    if own.kind == Kind::File {
        entries.push((arguments.path.as_os_str().as_bytes().to_vec(), own.kind, Some(own)));
    } else {
        for name in client.through(&path, true, |path| client.list(path))? {
            let wanted = arguments.long || arguments.json;
            // One that goes away meanwhile is listed without attributes.
            let found = wanted.then(|| client.stat(&join(&path, &name.name)).ok()).flatten();
            entries.push((name.name, name.kind, found));
        }
    }
    if arguments.json {
        let list = entries.iter().map(|(name, kind, attributes)| {
            json!({
                "name": String::from_utf8_lossy(name), "kind": kind, "attributes": attributes,
            })
        });
        report::json(&list.collect::<Vec<_>>())?;
        return Ok(0);
    }
    let width = entries.iter().filter_map(|entry| entry.2).map(|found| found.size).max();
    let width = width.unwrap_or(0).to_string().len();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (name, kind, attributes) in &entries {
        if let Some(found) = attributes.as_ref().filter(|_| arguments.long) {
            write!(out, "{} ", long(found, width))?;
        }
        out.write_all(name)?;
        out.write_all(if *kind == Kind::Directory { b"/\n" } else { b"\n" })?;
    }
    out.flush()?;
    Ok(0)
}

fn long(found: &Attributes, width: usize) -> String {
    let kind = match found.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
    };
    format!(
        "{kind}{} {:>2} {} {} {:>width$} {}",
        permissions(found.mode),
        found.links,
        found.uid,
        found.gid,
        found.size,
        time(found.modified_ns)
    )
}

/// `rwxr-x---`, as `ls` has it but for the set-id and sticky bits, which Terral has no use for.
fn permissions(mode: u32) -> String {
    let bit = |at: u32| if mode >> (8 - at) & 1 == 1 { b"rwx"[at as usize % 3] } else { b'-' };
    (0..9).map(|at| char::from(bit(at))).collect()
}

// Copying.

fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Copies in.
pub fn put(arguments: &Put) -> Result<u8> {
    let client = arguments.which.connect()?;
    let mut path = place(&arguments.path)?;
    let is_stdin = arguments.local == Path::new("-");
    if client.stat_through(&path).is_ok_and(|found| found.kind == Kind::Directory) {
        match arguments.local.file_name().filter(|_| !is_stdin) {
            Some(name) => path = join(&path, name.as_bytes()),
            None => bail!("{}: a directory: name the file", arguments.path.display()),
        }
    }
    let begin = Instant::now();
    let (bytes, mode) = if is_stdin {
        (copy_in(&client, &path, &mut std::io::stdin().lock(), 0o644)?, 0o644)
    } else {
        let mut local = LocalFile::open(&arguments.local).with_context(shown(&arguments.local))?;
        let found = local.metadata().with_context(shown(&arguments.local))?;
        if found.is_dir() {
            bail!("{}: a directory: put its files one by one", arguments.local.display());
        }
        let mode = found.permissions().mode() & 0o777;
        (copy_in(&client, &path, &mut local, mode)?, mode)
    };
    if arguments.json {
        let seconds = begin.elapsed().as_secs_f64();
        let path = String::from_utf8_lossy(&path);
        report::json(&json!({ "path": path, "bytes": bytes, "mode": mode, "seconds": seconds }))?;
    }
    Ok(0)
}

fn copy_in(client: &Client, path: &[u8], from: &mut impl Read, mode: u32) -> Result<u64> {
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

fn copy_out(client: &Client, path: &Path, to: &mut impl Write) -> Result<u64> {
    let placed = place(path)?;
    let file: File = client.through(&placed, true, |path| client.open(path, reading()))?;
    if file.is_directory() {
        bail!("{}: is a directory", path.display());
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

/// Copies out.
pub fn get(arguments: &Get) -> Result<u8> {
    let client = arguments.which.connect()?;
    if arguments.local == Path::new("-") {
        if arguments.json {
            bail!("--json: standard output is the file's here");
        }
        copy_out(&client, &arguments.path, &mut std::io::stdout().lock())?;
        return Ok(0);
    }
    let path = place(&arguments.path)?;
    let found = client.stat_through(&path)?;
    if found.kind == Kind::Directory {
        bail!("{}: a directory: get its files one by one", arguments.path.display());
    }
    let mut local = arguments.local.clone();
    if local.is_dir() {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        local.push(OsStr::from_bytes(name));
    }
    let begin = Instant::now();
    let mut to = LocalFile::create(&local).with_context(shown(&local))?;
    let bytes = copy_out(&client, &arguments.path, &mut to).with_context(shown(&local))?;
    if arguments.json {
        let seconds = begin.elapsed().as_secs_f64();
        let local = local.display().to_string();
        report::json(&json!({ "local": local, "bytes": bytes, "seconds": seconds }))?;
    }
    Ok(0)
}

/// Shows.
pub fn cat(arguments: &Cat) -> Result<u8> {
    let client = arguments.which.connect()?;
    let mut out = std::io::stdout().lock();
    for path in &arguments.paths {
        copy_out(&client, path, &mut out)?;
    }
    out.flush()?;
    Ok(0)
}

// Removing.

/// Removes.
pub fn rm(arguments: &Rm) -> Result<u8> {
    let client = arguments.which.connect()?;
    let (mut removed, mut worst) = (0, 0);
    for path in &arguments.paths {
        let done = place(path).and_then(|placed| {
            if placed.is_empty() {
                bail!("the root stays: name what is in it");
            }
            remove(&client, &placed, arguments.recursive, &mut removed)
        });
        if let Err(error) = done {
            say(format_args!("{}: {error:#}", path.display()));
            worst = code::FAILED;
        }
    }
    if arguments.json {
        report::json(&json!({ "removed": removed }))?;
    }
    Ok(worst)
}

fn remove(client: &Client, path: &[u8], recursive: bool, removed: &mut u64) -> Result<()> {
    if client.stat(path)?.kind == Kind::Directory {
        if !recursive {
            bail!("is a directory: -r removes it with all that is in it");
        }
        for name in client.list(path)? {
            remove(client, &join(path, &name.name), recursive, removed)?;
        }
        client.remove_directory(path)?;
    } else {
        client.unlink(path)?;
    }
    *removed += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::permissions;

    #[test]
    fn permissions_as_ls_has_them() {
        assert_eq!(permissions(0o755), "rwxr-xr-x");
        assert_eq!(permissions(0o640), "rw-r-----");
        assert_eq!(permissions(0), "---------");
        assert_eq!(permissions(0o1777), "rwxrwxrwx");
    }
}
