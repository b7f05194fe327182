//! `terral serve`: a server in the foreground, until a signal ends it or its work is done.
//!
//! A signal is answered by a child process that asks the server as any client does (`terral ask`,
//! hidden): the server leaves once it is alone, which it would never be with a client in itself.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use terral_client::{Client, Status};
use terral_server::Options;

use crate::instances;
use crate::machine;
use crate::report::{code, say};
use crate::units::{bytes, parse_bytes, plural};

/// Starts a server that stays until it is told to end
#[derive(Args)]
#[command(after_help = "\
Ctrl-C or SIGTERM: bring everything to DIR, then end. A second one: end at once; what is owed stays
in memory for `terral recover`.

Example:
  terral serve --to /data/results --memory 8G &
  terral put input.dat input.dat
  terral run --instance default -- ls -l /terral")]
pub struct Arguments {
    /// The permanent directory; made if it is not there
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Most memory for file contents [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Name of the instance, for --instance of the other verbs
    #[arg(long, default_value = "default")]
    name: PathBuf,
    #[arg(long, hide = true, conflicts_with = "name")]
    instance_directory: Option<PathBuf>,
    #[arg(long, hide = true)]
    launcher: Option<u32>,
}

/// Asks a server to end
#[derive(Args)]
pub struct Ask {
    what: Wish,
    instance: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Wish {
    Finish,
    Leave,
}

/// The permanent directory as an absolute path; made if it is not there.
///
/// # Errors
/// If it cannot be made, is no directory or not writable.
pub fn permanent_directory(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => bail!("{shown}: not a directory: give another --to"),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path).with_context(|| format!("--to {shown}"))?;
            say(format_args!("made {shown}"));
        }
        Err(error) => return Err(error).with_context(|| format!("--to {shown}")),
    }
    let absolute = path.canonicalize().with_context(|| format!("--to {shown}"))?;
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(&absolute, wanted)
        .with_context(|| format!("--to {shown}: you may not write there"))?;
    Ok(absolute)
}

/// Serves.
pub fn main(arguments: Arguments) -> Result<u8> {
    let options = match &arguments.instance_directory {
        Some(instance) => Options {
            instance: instance.clone(),
            backing: arguments.to,
            memory_bytes: arguments.memory.unwrap_or(0),
            launcher: arguments.launcher,
        },
        None => prepare(&arguments)?,
    };
    listen(options.instance.clone())?;
    let outcome = terral_server::serve(&options)?;
    Ok(conclude(&options.instance, &outcome.status))
}

/// Makes or finds the instance of a server that a person starts, and says what will be.
fn prepare(arguments: &Arguments) -> Result<Options> {
    let instance = instances::locate(arguments.name.as_os_str());
    let name = instances::name_of(&instance);
    instances::tidy(&instance);
    if terral_server::is_served(&instance) {
        bail!("{name}: a server serves it already: give this one another --name");
    }
    let found = instance.join("log").exists();
    let target = match (&arguments.to, instances::target(&instance).filter(|_| found)) {
        (Some(to), old) => {
            let to = permanent_directory(to)?;
            if let Some(old) = old.filter(|old| *old != to) {
                bail!(
                    "{name}: holds data for {}: `terral recover {name}` first, or another --name",
                    old.display()
                );
            }
            to
        }
        (None, Some(old)) => old,
        (None, None) => bail!("--to DIR is needed: the directory where files are to arrive"),
    };
    let memory_bytes = if found { 0 } else { machine::memory_bound(arguments.memory)? };
    instances::make(&instance)?;
    instances::note_target(&instance, &target)?;
    let shown = target.display();
    if found {
        say(format_args!("{name}: taking over what an earlier server left, for {shown}"));
    } else {
        say(format_args!("{name}: serving {shown} with up to {} of memory", bytes(memory_bytes)));
    }
    say(format_args!("use it: terral run --instance {name} -- COMMAND…   end it: Ctrl-C"));
    Ok(Options { instance, backing: Some(target), memory_bytes, launcher: None })
}

/// Answers signals: the first asks the server to finish, the next to leave.
fn listen(instance: PathBuf) -> Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP];
    let mut signals = signal_hook::iterator::Signals::new(wanted).context("signals")?;
    let program = std::env::current_exe().context("terral: own path")?;
    std::thread::spawn(move || {
        for (count, _) in signals.forever().enumerate() {
            let wish = if count == 0 { "finish" } else { "leave" };
            if count == 0 {
                say("bringing everything to the permanent directory; once more to end at once");
            }
            let mut ask = Command::new(&program);
            ask.arg("ask").arg(wish).arg(&instance).stdin(Stdio::null());
            // The next Ctrl-C is for us, not for the messenger.
            ask.process_group(0);
            match ask.spawn() {
                // Reaped by nobody until we end, which is what was asked for.
                Ok(child) => drop(child),
                Err(error) => say(format_args!("{}: {error}", program.display())),
            }
        }
    });
    Ok(())
}

/// Asks the server.
pub fn ask(arguments: &Ask) -> Result<u8> {
    let client = Client::connect(&arguments.instance)?;
    match arguments.what {
        Wish::Finish => client.finish()?,
        Wish::Leave => client.leave()?,
    }
    Ok(0)
}

fn conclude(instance: &Path, status: &Status) -> u8 {
    let drain = &status.drain;
    if drain.owed_files == 0 && drain.owed_bytes == 0 && drain.owed_names == 0 {
        return 0;
    }
    let name = instances::name_of(instance);
    say(format_args!(
        "{} in {} not yet in {}: kept in memory, `terral recover {name}` brings them there",
        bytes(drain.owed_bytes),
        plural(drain.owed_files, "file", "files"),
        status.backing.as_deref().unwrap_or("a permanent directory"),
    ));
    code::OWED
}
