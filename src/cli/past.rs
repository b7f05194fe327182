//! What went past Terral in a run: programs into which no library can be loaded, and what appeared
//! under a real directory of the prefix's name.
//!
//! Invariants: an earlier content of that directory is not reported, and a look at it ends after so
//! many names. Not here: what such a program writes to a relative path (`run`, strays).

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::Serialize;

use crate::coverage;
use crate::report::{code, failure, say};

/// Names under a real prefix that are looked at, and told of.
const LOOKED_AT: usize = 100_000;
const TOLD: usize = 20;

/// What went past.
#[derive(Default, Serialize)]
pub struct Past {
    /// Programs that could not be served, each with why.
    pub programs: Vec<String>,
    /// Files that appeared under the prefix on the machine's own disk.
    pub files: Vec<PathBuf>,
}

impl Past {
    /// Lines for a person.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let programs = self.programs.iter().map(|one| format!("{one}: Terral could not serve it"));
        let files = self.files.iter().map(|file| {
            format!("{}: made on this machine by a program Terral cannot see", file.display())
        });
        programs.chain(files)
    }
}

/// Keeps an eye on a run.
pub struct Watch {
    prefix: PathBuf,
    begin_seconds: i64,
    command: Option<String>,
}

impl Watch {
    /// Before COMMAND is started, `inside` telling that it starts under the prefix.
    ///
    /// # Errors
    /// COMMAND cannot be served, and is to be.
    pub fn begin(
        prefix: &Path,
        library: &Path,
        command: &[OsString],
        inside: bool,
        strict: bool,
    ) -> Result<Watch> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begin_seconds = now.as_secs().cast_signed();
        let unseen = command.first().and_then(|program| coverage::unseen(program, library));
        let mut watch = Watch { prefix: prefix.to_path_buf(), begin_seconds, command: None };
        let Some((path, why)) = unseen else { return Ok(watch) };
        let line = format!("{}: {why}", path.display());
        if strict {
            let what = format!("{line}: not started (--strict)");
            return Err(failure(code::NOT_EXECUTABLE, what));
        }
        let prefix = prefix.to_string_lossy();
        let given = command.iter().any(|word| word.to_string_lossy().contains(&*prefix));
        if inside || given {
            say(format_args!("{line}: it does not see {prefix}"));
        }
        watch.command = Some(line);
        Ok(watch)
    }

    /// What has gone past until now; programs are noted in the instance's directory.
    pub fn seen(&self, instance: &Path) -> Past {
        let noted = std::fs::read(instance.join("unserved")).unwrap_or_default();
        let noted = String::from_utf8_lossy(&noted).into_owned();
        let programs = self.command.iter().cloned().chain(noted.lines().map(Into::into));
        Past { programs: programs.collect(), files: self.appeared() }
    }

    fn appeared(&self) -> Vec<PathBuf> {
        let mut directories = vec![self.prefix.clone()];
        let (mut found, mut looked_at) = (Vec::new(), 0);
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                looked_at += 1;
                let Ok(about) = entry.metadata() else { continue };
                if about.is_dir() {
                    directories.push(entry.path());
                } else if about.ctime() >= self.begin_seconds {
                    found.push(entry.path());
                }
                if looked_at >= LOOKED_AT || found.len() >= TOLD {
                    return found;
                }
            }
        }
        found
    }
}
