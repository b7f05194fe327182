//! `terral run`: a server for one command, and the wait for what it wrote.
//!
//! Invariants: COMMAND's exit status is ours unless data stays owed; nothing COMMAND wrote is
//! removed from memory before it is in DIR. Not here: what happens inside COMMAND (`preload`).

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use terral_client::{Client, Status};

use crate::instances::{self, PREFIX};
use crate::machine;
use crate::progress::{self, Ending};
use crate::report::{self, code, failure, say};
use crate::serve::permanent_directory;
use crate::server::{self, Server, Start};
use crate::signals::Signals;
use crate::status::is_owed;
use crate::summary::{Summary, Whereabouts, difference};
use crate::units::parse_bytes;

/// Runs a command whose files are served from memory and arrive in DIR
#[derive(Args)]
#[command(after_help = "\
COMMAND finds its files in $TERRAL_DIR (/terral unless --prefix says otherwise), together with what
DIR holds already. When it has ended, the rest is brought to DIR; then terral ends with COMMAND's
status. Ctrl-C goes to COMMAND; while the rest is brought, Ctrl-C twice stops that and keeps the
rest in memory (`terral recover` brings it later).

Examples:
  terral run --to /data/out -- sh -c 'my-simulation --output $TERRAL_DIR/step'
  terral run --to /data/out --cwd -- mpiexec -n 4 lmp -in melt.in")]
pub struct Arguments {
    /// The permanent directory; made if it is not there
    #[arg(long, value_name = "DIR", required_unless_present = "instance")]
    to: Option<PathBuf>,
    /// Use a server that runs already (`terral serve`, `terral run --keep`) instead of a new one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["to", "memory", "keep"])]
    instance: Option<PathBuf>,
    /// Most memory for file contents [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Where COMMAND sees the files
    #[arg(long, value_name = "PATH", default_value = PREFIX)]
    prefix: PathBuf,
    /// Start COMMAND in that place
    #[arg(long)]
    cwd: bool,
    /// Leave the server up when COMMAND has ended
    #[arg(long, conflicts_with = "no_wait")]
    keep: bool,
    /// Do not wait: the server brings the rest in the background and ends by itself
    #[arg(long)]
    no_wait: bool,
    /// The summary as one line of JSON, the last on standard output
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// What a command runs in.
struct Surroundings {
    instance: PathBuf,
    library: PathBuf,
    prefix: PathBuf,
    cwd: bool,
}

/// How a command ended.
struct Ended {
    code: u8,
    seconds: f64,
    at: Instant,
}

/// Runs.
pub fn main(arguments: Arguments) -> Result<u8> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    if let Some(name) = &arguments.instance {
        return beside(&arguments, &instances::locate(name.as_os_str()));
    }
    let (start, surroundings) = prepare(&arguments).map_err(not_started)?;
    let instance = &surroundings.instance;
    let signals = Signals::listen().map_err(not_started)?;
    let server = Server::start(start).map_err(|error| {
        server::remove_unused(instance);
        not_started(error)
    })?;
    let ended = execute(&surroundings, &arguments.command, &signals);
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            // Nothing ran, so nothing is owed.
            server.dismiss(&Client::connect(instance)?)?;
            return Err(error);
        }
    };
    let run = Run { arguments: &arguments, surroundings: &surroundings, ended, signals };
    run.conclude(server)
}

fn checked_prefix(prefix: &Path) -> Result<PathBuf> {
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

fn prepare(arguments: &Arguments) -> Result<(Start, Surroundings)> {
    let prefix = checked_prefix(&arguments.prefix)?;
    let library = server::preload_library()?;
    let target = permanent_directory(arguments.to.as_deref().unwrap_or(Path::new(".")))?;
    if target.starts_with(&prefix) {
        bail!("--to {}: lies under --prefix, which hides it", target.display());
    }
    let memory_bytes = machine::memory_bound(arguments.memory)?;
    let instance = instances::base().join(instances::fresh_name());
    instances::make(&instance)?;
    instances::note_target(&instance, &target)?;
    let ends_with_us = !arguments.keep;
    let start =
        Start { instance: instance.clone(), target: Some(target), memory_bytes, ends_with_us };
    Ok((start, Surroundings { instance, library, prefix, cwd: arguments.cwd }))
}

fn execute(around: &Surroundings, command: &[OsString], signals: &Signals) -> Result<Ended> {
    let Some((program, arguments)) = command.split_first() else { bail!("no COMMAND") };
    let list = server::preload_list(&around.library, std::env::var_os("LD_PRELOAD"));
    let mut child = Command::new(program);
    child.args(arguments);
    child.env("LD_PRELOAD", list).env("TERRAL_INSTANCE", &around.instance);
    child.env("TERRAL_PREFIX", &around.prefix).env("TERRAL_DIR", &around.prefix);
    if around.cwd {
        child.env("TERRAL_CWD", &around.prefix).env("PWD", &around.prefix);
        child.current_dir(around.instance.join("shadow"));
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
    let status = child.wait().context("waiting for COMMAND")?;
    signals.keep();
    let at = Instant::now();
    Ok(Ended { code: exit_code(status), seconds: (at - begin).as_secs_f64(), at })
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.saturating_add(signal as u8),
        (None, None) => code::FAILED,
    }
}

/// How a run ended.
struct End<'a> {
    name: &'a str,
    state: Whereabouts,
    wait_seconds: f64,
    restarts: u32,
    strays: &'a [String],
}

/// A run whose command has ended.
struct Run<'a> {
    arguments: &'a Arguments,
    surroundings: &'a Surroundings,
    ended: Ended,
    signals: Signals,
}

impl Run<'_> {
    fn conclude(&self, server: Server) -> Result<u8> {
        let instance = &self.surroundings.instance;
        let name = instances::name_of(instance);
        let client = Client::connect(instance)?;
        if self.arguments.keep {
            return self.keep(&name, &client, server.restarts());
        }
        if self.arguments.no_wait {
            client.finish()?;
            say(format_args!("{name} goes on in the background: `terral status`"));
            return Ok(self.ended.code);
        }
        let paid_off = progress::pay_off(&client, &self.signals).with_context(|| {
            format!("what is not in the permanent directory is in memory: `terral recover {name}`")
        });
        let wait_seconds = self.ended.at.elapsed().as_secs_f64();
        let (status, paid) = match paid_off? {
            Ending::Paid(status) => (status, true),
            Ending::Broken(status) => (status, false),
        };
        let strays = save_strays(instance, &status, &name)?;
        let restarts = server.restarts();
        if paid {
            server.dismiss(&client)?;
        } else {
            server.dismiss_soon(&client)?;
        }
        // A server that owes nothing has removed the instance.
        let paid = paid || !instance.join("log").exists();
        let state = if paid { Whereabouts::Arrived } else { Whereabouts::Owed };
        let end = End { name: &name, state, wait_seconds, restarts, strays: &strays };
        self.tell(&end, &status)?;
        if paid && instance.join("log").exists() {
            say(format_args!(
                "no server lives long here: `terral recover {name}` frees the memory"
            ));
        }
        if paid {
            return Ok(self.ended.code);
        }
        let directory = status.backing.as_deref().unwrap_or("the permanent directory");
        let what = format!(
            "the rest for {directory} stays in memory until this machine goes down: \
             `terral recover {name}` brings it"
        );
        Err(failure(code::OWED, what))
    }

    fn keep(&self, name: &str, client: &Client, restarts: u32) -> Result<u8> {
        client.flush()?;
        let status = client.status()?;
        let owed = is_owed(&status.drain);
        let state = if owed { Whereabouts::OnItsWay } else { Whereabouts::Arrived };
        self.tell(&End { name, state, wait_seconds: 0.0, restarts, strays: &[] }, &status)?;
        say(format_args!(
            "{name} stays: `terral ls --instance {name}`; `kill {}` brings all and ends it",
            status.pid
        ));
        Ok(self.ended.code)
    }

    fn tell(&self, end: &End<'_>, status: &Status) -> Result<()> {
        let mut totals = status.totals;
        // Our own session, which asked for the status.
        totals.sessions = totals.sessions.saturating_sub(1);
        let directory = status.backing.clone().unwrap_or_default();
        let summary = Summary {
            instance: end.name,
            directory: Path::new(&directory),
            command_status: self.ended.code,
            command_seconds: self.ended.seconds,
            wait_seconds: end.wait_seconds,
            restarts: end.restarts,
            state: end.state,
            totals,
            server: status,
            strays: end.strays,
        };
        show(&summary, self.arguments.json)?;
        warn(&summary);
        Ok(())
    }
}

fn show(summary: &Summary<'_>, json: bool) -> Result<()> {
    if json {
        return report::json(summary);
    }
    let _ = std::io::stderr().lock().write_all(summary.text().as_bytes());
    Ok(())
}

fn warn(summary: &Summary<'_>) {
    if summary.totals.opens == 0 {
        say("no file was opened through Terral: did COMMAND use $TERRAL_DIR? A static or setuid \
             program cannot be served: `terral doctor -- PROGRAM` says more");
    }
    for stray in summary.strays {
        say(format_args!("{stray}: written past Terral by a program it cannot see; saved there"));
    }
}

/// A command beside a server that stays: what it owes afterwards is the server's business.
fn beside(arguments: &Arguments, instance: &Path) -> Result<u8> {
    let name = instances::name_of(instance);
    if !terral_server::is_served(instance) {
        bail!(failure(code::NO_SERVER, format!("{name}: no server there: `terral status`")));
    }
    let client = Client::connect(instance)?;
    let before = client.status()?;
    let surroundings = Surroundings {
        instance: instance.to_path_buf(),
        library: server::preload_library()?,
        prefix: checked_prefix(&arguments.prefix)?,
        cwd: arguments.cwd,
    };
    let signals = Signals::listen()?;
    let ended = execute(&surroundings, &arguments.command, &signals)?;
    client.flush()?;
    let after = client.status()?;
    let totals = difference(&after.totals, &before.totals);
    if arguments.json {
        let told = serde_json::json!({
            "instance": name, "command_status": ended.code,
            "command_seconds": ended.seconds, "totals": totals, "server": after,
        });
        report::json(&told)?;
    } else {
        let (calls, owed) = (crate::summary::calls(&totals), after.drain.owed_bytes);
        say(format_args!("{calls}; {name} owes {}", crate::units::bytes(owed)));
    }
    Ok(ended.code)
}

/// Brings what programs wrote into the shadow directory, past Terral, to the permanent directory.
fn save_strays(instance: &Path, status: &Status, name: &str) -> Result<Vec<String>> {
    let shadow = instance.join("shadow");
    let is_empty = std::fs::read_dir(&shadow).is_ok_and(|mut entries| entries.next().is_none());
    let (false, Some(directory)) = (is_empty, &status.backing) else { return Ok(Vec::new()) };
    let mut saved = Vec::new();
    copy_tree(&shadow, &Path::new(directory).join(format!("strays-of-{name}")), &mut saved)?;
    Ok(saved)
}

fn copy_tree(from: &Path, to: &Path, saved: &mut Vec<String>) -> Result<()> {
    let shown = || to.display().to_string();
    std::fs::create_dir_all(to).with_context(shown)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target, saved)?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), &target).with_context(shown)?;
            saved.push(target.display().to_string());
        }
    }
    Ok(())
}
