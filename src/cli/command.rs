//! The command of a run: what it is started with, and how it ended. Not here: its server.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::batch;
use crate::bypass;
use crate::instances::PREFIX;
use crate::launchers;
use crate::past::Watch;
use crate::report::{code, failure};
use crate::server;
use crate::signals::Signals;
use crate::waits::Waits;

/// Names `terral` and the ticket to join, with a colon between.
pub const SPREAD: &str = "TERRAL_SPREAD";

/// What a command runs in.
pub struct Surroundings {
    /// Of which processes system calls are caught.
    pub catch: String,
    /// The directory of its server.
    pub instance: PathBuf,
    /// What is loaded into programs.
    pub library: PathBuf,
    /// Where they see the files.
    pub prefix: PathBuf,
    /// It starts there.
    pub cwd: bool,
    /// No program is started that cannot be served.
    pub strict: bool,
    /// It may start programs on other machines that have the same files.
    pub spreads: bool,
    /// With what they begin a server where there is none: `terral`, and the ticket to join.
    pub joins: Option<(PathBuf, PathBuf)>,
}

/// How a command ended.
pub struct Ended {
    /// Its status, as `terral run` gives it on.
    pub code: u8,
    /// How long it ran.
    pub seconds: f64,
    /// When it ended.
    pub at: Instant,
    /// What it did past the library.
    pub watch: Watch,
}

/// The prefix as the library compares it.
///
/// # Errors
/// If it is no place for files.
pub fn checked_prefix(prefix: &Path) -> Result<PathBuf> {
    let plain = prefix.is_absolute()
        && prefix.parent().is_some()
        && prefix.as_os_str().len() < 1024
        && prefix.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    if !plain {
        bail!("--prefix {}: an absolute path like {PREFIX} is needed", prefix.display());
    }
    // Without doubled and trailing slashes, which the preload library compares literally.
    Ok(prefix.components().collect())
}

/// Runs a command, and waits for it.
///
/// # Errors
/// If it cannot be started; with the code for that.
pub fn execute(around: &Surroundings, command: &[OsString], signals: &Signals) -> Result<Ended> {
    let Some((program, arguments)) = command.split_first() else { bail!("no COMMAND") };
    let Surroundings { prefix, library, cwd, strict, .. } = around;
    let watch = Watch::begin(prefix, library, command, *cwd, *strict)?;
    let list = server::preload_list(&around.library, std::env::var_os("LD_PRELOAD"));
    let mut child = Command::new(program);
    child.args(arguments);
    child.env("LD_PRELOAD", list).env("TERRAL_INSTANCE", &around.instance);
    child.env("TERRAL_PREFIX", &around.prefix).env("TERRAL_DIR", &around.prefix);
    child.envs(bypass::variable());
    if around.strict {
        child.env("TERRAL_STRICT", "1");
    }
    child.env("TERRAL_CATCH", &around.catch);
    match &around.joins {
        Some((program, ticket)) => {
            let both = [program.as_os_str(), ticket.as_os_str()].join(OsStr::new(":"));
            child.env(SPREAD, both)
        }
        // Of a run around this one.
        None => child.env_remove(SPREAD),
    };
    if around.spreads {
        let given = child.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let variable = launchers::open_mpi(given);
        child.envs(variable).envs(launchers::mpich(&around.instance));
    }
    if around.cwd {
        child.env("TERRAL_CWD", &around.prefix).env("PWD", &around.prefix);
        let shadow = around.instance.join("shadow");
        if batch::is_slurm() {
            // Its daemons enter a task's directory without the library, and have this one.
            child.env("SLURM_WORKING_DIR", &shadow);
        }
        child.current_dir(shadow);
    } else {
        child.env_remove("TERRAL_CWD");
    }
    let begin = Instant::now();
    let mut child = child.spawn().map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => code::NOT_FOUND,
            _ => code::NOT_EXECUTABLE,
        };
        failure(code, format!("{}: {error}", program.display()))
    })?;
    signals.pass_to(child.id());
    let waits = Waits::watch(&around.instance);
    let status = child.wait().context("waiting for COMMAND")?;
    signals.keep();
    let at = Instant::now();
    drop(waits);
    Ok(Ended { code: exit_code(status), seconds: (at - begin).as_secs_f64(), at, watch })
}

/// The exit code that says how a command ended.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.saturating_add(signal as u8),
        (None, None) => code::FAILED,
    }
}
