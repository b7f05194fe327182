//! `terral lock`: a command that runs while nobody else has a lock.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use terral_client::{Client, ErrorKind, LockHow, NamedLock, News, OpenHow, TOKEN, access};

use crate::command::exit_code;
use crate::instances::{Which, place};
use crate::report::{code, failure, say};
use crate::signals::Signals;
use crate::units::parse_duration;

/// Runs a command while it has a lock that all machines of the run know
#[derive(Args)]
#[command(after_help = "\
Who has the lock alone has a token, a number greater than those of all before it, which COMMAND
finds in TERRAL_LOCK_TOKEN: what programs of the run write, they write with that. A file that is
named with --fence is written with this token or a greater one from then on: should this holder be
stopped, and go on when another has the lock, its writes fail (ESTALE). Whoever writes there later
does it under `terral lock`, too.

The lock ends with this `terral`, however that ends. If it is lost, as its machine was stopped or
cut off for longer than the lease while somebody else wanted it, COMMAND is sent SIGTERM.

Exit codes: that of COMMAND, or 128 + the signal that ended it; 75 if others have the lock for
longer than --timeout, if its holder waits for this process, or if it was lost meanwhile.

Examples:
  terral lock results -- ./append-to results.csv
  terral lock --timeout 0 nightly -- ./nightly.sh    (not if it runs already)
  terral lock --fence /terral/state.db state -- ./update /terral/state.db
  terral lock --shared mesh -- ./read-mesh")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Others may have it so at the same time
    #[arg(long, short)]
    shared: bool,
    /// Give up waiting after this, as 0, 5s or 2m
    #[arg(long, short, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Who is not heard of for so long may lose it, 100ms to 60m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    lease: Duration,
    /// A file that is written with the token from now on; as the program sees it
    #[arg(long, value_name = "FILE", conflicts_with = "shared")]
    fence: Vec<PathBuf>,
    /// 1 to 200 bytes, without a slash
    name: OsString,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

fn acquire(client: &Client, arguments: &Arguments) -> Result<NamedLock> {
    let Arguments { shared, timeout, lease, name, .. } = arguments;
    let how = LockHow { shared: *shared, timeout: *timeout, lease: *lease };
    NamedLock::acquire(client, name.as_bytes(), how).map_err(|error| {
        let shown = name.to_string_lossy();
        match error.kind {
            ErrorKind::WouldBlock => failure(code::NOT_HELD, format!("{shown}: others have it")),
            ErrorKind::Deadlock => {
                failure(code::NOT_HELD, format!("{shown}: its holder waits for this process"))
            }
            _ => anyhow::Error::new(error).context(shown.into_owned()),
        }
    })
}

fn fence(client: &Client, lock: &NamedLock, arguments: &Arguments) -> Result<()> {
    for path in &arguments.fence {
        let rights = access::READ | access::WRITE;
        let how = OpenHow { access: rights as u8, ..OpenHow::default() };
        let fenced = client.through(&place(path)?, true, |path| {
            let file = client.open(path, how)?;
            let fenced = lock.fence(&file);
            file.close();
            fenced
        });
        fenced.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn spawn(arguments: &Arguments, lock: &NamedLock) -> Result<Child> {
    let program = &arguments.command[0];
    let mut command = Command::new(program);
    command.args(&arguments.command[1..]);
    if !arguments.shared {
        command.env(TOKEN, lock.token().to_string());
    }
    command.spawn().map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => code::NOT_FOUND,
            _ => code::NOT_EXECUTABLE,
        };
        failure(code, format!("{}: {error}", program.display()))
    })
}

/// Runs it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let client = arguments.which.connect()?;
    let lock = acquire(&client, arguments)?;
    fence(&client, &lock, arguments)?;
    let signals = Signals::listen()?;
    let mut child = spawn(arguments, &lock)?;
    signals.pass_to(child.id());
    let lost = Arc::new(AtomicBool::new(false));
    let (seen, name) = (lost.clone(), arguments.name.to_string_lossy().into_owned());
    // Held by a descriptor, so that no stranger gets the signal.
    let pid = Pid::from_raw(child.id() as i32).context("COMMAND")?;
    let command = pidfd_open(pid, PidfdFlags::empty()).context("COMMAND")?;
    lock.tell(move |news| {
        if news == News::Lost && !seen.swap(true, Ordering::SeqCst) {
            say(format_args!("{name}: the lock is lost: COMMAND is sent SIGTERM"));
            // One that has just ended needs it no more.
            let _ = pidfd_send_signal(&command, Signal::TERM);
        }
    });
    let status = child.wait().context("waiting for COMMAND")?;
    signals.keep();
    match lock.release() {
        Err(error) if error.kind == ErrorKind::Stale || lost.load(Ordering::SeqCst) => {
            let shown = arguments.name.to_string_lossy();
            Err(failure(code::NOT_HELD, format!("{shown}: the lock was lost before COMMAND ended")))
        }
        // What COMMAND did it did under the lock.
        _ => Ok(exit_code(status)),
    }
}
