//! The verbs on files: `ls`, `put`, `get`, `mkdir`, `cat`, `rm`. All but `ls` go to the server as
//! any program does.

use std::ffi::OsStr;
use std::fs::File as LocalFile;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use terral_client::{Client, Kind, Seen};

use crate::copies::{Tree, copy_in, copy_out, make_directory, shown};
use crate::instances::{Which, join, place};
use crate::report::{self, code, say};
use crate::shown::{add_name, tame_name};
use crate::units::time;

/// Lists a directory
#[derive(Args)]
#[command(after_help = "\
Example:
  terral ls -l /terral/results
  terral ls -R")]
pub struct Ls {
    #[command(flatten)]
    which: Which,
    /// Mode, links, owner, group, bytes, time of modification (UTC) and name
    #[arg(short)]
    long: bool,
    /// With all directories below
    #[arg(short = 'R')]
    recursive: bool,
    /// A list of objects; a name that is no UTF-8 is in `name_bytes` as well, with %XX for what is
    /// not ASCII
    #[arg(long)]
    json: bool,
    /// As the program sees it, or relative to that place
    #[arg(default_value = ".")]
    path: PathBuf,
}

/// Copies a local file, or a directory, into Terral
#[derive(Args)]
#[command(after_help = "\
Examples:
  terral put input.dat /terral/input.dat
  terral put -r case/ /terral/case
  tar c conf | terral put - conf.tar")]
pub struct Put {
    #[command(flatten)]
    which: Which,
    /// A directory, with all that is in it
    #[arg(short)]
    recursive: bool,
    /// One object at the end
    #[arg(long)]
    json: bool,
    /// A local file; `-` is standard input
    local: PathBuf,
    /// Where to; into it if it is a directory
    path: PathBuf,
}

/// Copies a file, or a directory, out of Terral
#[derive(Args)]
#[command(after_help = "\
Examples:
  terral get /terral/log.lammps .
  terral get -r /terral/results /data/copy
  terral get dump.gz - | zcat | head")]
pub struct Get {
    #[command(flatten)]
    which: Which,
    /// A directory, with all that is in it
    #[arg(short)]
    recursive: bool,
    /// One object at the end
    #[arg(long)]
    json: bool,
    /// As the program sees it, or relative to that place
    path: PathBuf,
    /// A local file or directory; `-` is standard output
    local: PathBuf,
}

/// Makes directories
#[derive(Args)]
#[command(after_help = "\
Example:
  terral mkdir -p /terral/results/2026")]
pub struct Mkdir {
    #[command(flatten)]
    which: Which,
    /// Those above, too; one that is there is no error
    #[arg(short)]
    parents: bool,
    /// As the program sees them, or relative to that place
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
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

// Listing.

/// A name as it is listed, what it is, and more if that was asked for.
type Entry = (Vec<u8>, Kind, Option<Seen>);

/// Lists.
pub fn ls(arguments: &Ls) -> Result<u8> {
    let client = arguments.which.observe()?;
    let path = place(&arguments.path)?;
    let own = client.stat_through(&path)?;
    let mut entries: Vec<Entry> = Vec::new();
    if own.kind != Kind::Directory {
        entries.push((arguments.path.as_os_str().as_bytes().to_vec(), own.kind, Some(own)));
    } else {
        list(arguments, &client, &path, b"", &mut entries)?;
    }
    if arguments.json {
        let list = entries.iter().map(|(name, kind, attributes)| {
            add_name(json!({ "kind": kind, "attributes": attributes }), "name", name)
        });
        report::json(&list.collect::<Vec<_>>())?;
        return Ok(0);
    }
    let width = entries.iter().filter_map(|entry| entry.2).map(|found| found.size).max();
    let width = width.unwrap_or(0).to_string().len();
    let is_terminal = std::io::stdout().is_terminal();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (name, kind, attributes) in &entries {
        if let Some(found) = attributes.as_ref().filter(|_| arguments.long) {
            write!(out, "{} ", long(found, width))?;
        }
        match is_terminal {
            true => out.write_all(tame_name(name).as_bytes())?,
            false => out.write_all(name)?,
        }
        out.write_all(if *kind == Kind::Directory { b"/\n" } else { b"\n" })?;
    }
    out.flush()?;
    Ok(0)
}

/// Lists a directory as `above`, which is empty for the one that was asked for.
fn list(
    arguments: &Ls,
    client: &Client,
    path: &[u8],
    above: &[u8],
    entries: &mut Vec<Entry>,
) -> Result<()> {
    for name in client.through(path, true, |path| client.list(path))? {
        let wanted = arguments.long || arguments.json;
        let (below, shown) = (join(path, &name.name), join(above, &name.name));
        // One that goes away meanwhile is listed without attributes.
        let found = wanted.then(|| client.stat(&below).ok()).flatten();
        entries.push((shown.clone(), name.kind, found));
        if arguments.recursive && name.kind == Kind::Directory {
            list(arguments, client, &below, &shown, entries)?;
        }
    }
    Ok(())
}

fn long(found: &Seen, width: usize) -> String {
    let kind = match found.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
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
            return put_tree(&client, arguments, &path);
        }
        let mode = found.permissions().mode() & 0o777;
        (copy_in(&client, &path, &mut local, mode)?, mode)
    };
    if arguments.json {
        let seconds = begin.elapsed().as_secs_f64();
        let done = json!({ "bytes": bytes, "mode": mode, "seconds": seconds });
        report::json(&add_name(done, "path", &path))?;
    }
    Ok(0)
}

/// Copies out.
pub fn get(arguments: &Get) -> Result<u8> {
    let client = arguments.which.connect()?;
    if arguments.local == Path::new("-") {
        if arguments.json {
            bail!("--json: standard output is the file's here");
        }
        let path = place(&arguments.path)?;
        copy_out(&client, &path, &mut std::io::stdout().lock())?;
        return Ok(0);
    }
    let path = place(&arguments.path)?;
    let found = client.stat_through(&path)?;
    if found.kind == Kind::Directory {
        return get_tree(&client, arguments, &path);
    }
    let local = local_place(arguments, &path);
    let begin = Instant::now();
    let mut to = LocalFile::create(&local).with_context(shown(&local))?;
    let bytes = copy_out(&client, &path, &mut to).with_context(shown(&local))?;
    if arguments.json {
        let seconds = begin.elapsed().as_secs_f64();
        let done = json!({ "bytes": bytes, "seconds": seconds });
        report::json(&add_name(done, "local", local.as_os_str().as_bytes()))?;
    }
    Ok(0)
}

/// Where a local copy comes: below a directory that is there.
fn local_place(arguments: &Get, path: &[u8]) -> PathBuf {
    let mut local = arguments.local.clone();
    if local.is_dir() {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        local.push(OsStr::from_bytes(name));
    }
    local
}

fn put_tree(client: &Client, arguments: &Put, path: &[u8]) -> Result<u8> {
    let shown = arguments.local.display();
    if !arguments.recursive {
        bail!("{shown}: a directory: -r copies it with all that is in it");
    }
    let mut tree = Tree::default();
    tree.put(client, &arguments.local, path)?;
    tree.conclude(arguments.json)
}

fn get_tree(client: &Client, arguments: &Get, path: &[u8]) -> Result<u8> {
    if !arguments.recursive {
        bail!("{}: a directory: -r copies it with all that is in it", arguments.path.display());
    }
    let mut tree = Tree::default();
    tree.get(client, path, &local_place(arguments, path))?;
    tree.conclude(arguments.json)
}

/// Makes directories.
pub fn mkdir(arguments: &Mkdir) -> Result<u8> {
    let client = arguments.which.connect()?;
    for path in &arguments.paths {
        let placed = place(path)?;
        let ends = placed.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.filter(|_| arguments.parents) {
            make_directory(&client, &placed[..end], true)?;
        }
        make_directory(&client, &placed, arguments.parents)?;
    }
    Ok(0)
}

/// Shows.
pub fn cat(arguments: &Cat) -> Result<u8> {
    let client = arguments.which.connect()?;
    let mut out = std::io::stdout().lock();
    for path in &arguments.paths {
        copy_out(&client, &place(path)?, &mut out)?;
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
