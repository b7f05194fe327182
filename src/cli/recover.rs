//! `terral recover`: brings to the permanent directory what a server that is gone left in memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use terral_client::{Client, Status};

use crate::instances;
use crate::progress::{self, Ending};
use crate::report::{self, code, say};
use crate::server::{Server, Start};
use crate::signals::Signals;
use crate::units::{bytes, plural};

/// How long a killed process may take to be gone.
const DYING: Duration = Duration::from_secs(30);

/// Brings what servers that are gone left in memory to its permanent directory
#[derive(Args)]
#[command(after_help = "\
After a batch system, or you, killed program, server and launcher at once, their data is still in
memory. This starts a server on it, brings it to the directory it was meant for, and frees the
memory. It ends with 74 if something could not be brought: that stays in memory.

Examples:
  terral recover
  terral recover run-4711-0a3f
  terral recover --forget run-4711-0a3f    (its data is lost)")]
pub struct Arguments {
    /// Free the memory without bringing anything: what is only there is lost
    #[arg(long, requires = "names")]
    forget: bool,
    /// A list of objects, one for each instance
    #[arg(long)]
    json: bool,
    /// Instances; all whose server is gone if none is named
    #[arg(value_name = "NAME")]
    names: Vec<PathBuf>,
}

/// Recovers.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let paths: Vec<PathBuf> = if arguments.names.is_empty() {
        let gone = instances::all().into_iter().filter(|found| !found.served);
        gone.map(|found| found.path).collect()
    } else {
        arguments.names.iter().map(|name| instances::locate(name.as_os_str())).collect()
    };
    if paths.is_empty() && !arguments.json {
        say("nothing to recover");
    }
    let signals = Signals::listen()?;
    let mut worst = 0;
    let mut told = Vec::new();
    for path in &paths {
        let name = instances::name_of(path);
        let done = if arguments.forget { forget(path, &name) } else { recover(path, &signals) };
        match done {
            Ok((status, 0)) => told.push(tell(&name, &status, true, arguments.json)),
            Ok((status, code)) => {
                told.push(tell(&name, &status, false, arguments.json));
                worst = worst.max(code);
            }
            Err(error) => {
                say(format_args!("{name}: {error:#}"));
                told.push(json!({ "instance": name, "error": format!("{error:#}") }));
                worst = worst.max(code::FAILED);
            }
        }
    }
    if arguments.json {
        report::json(&told)?;
    }
    Ok(worst)
}

fn check(path: &Path) -> Result<()> {
    // A server that was killed a moment ago holds its lock until the kernel has taken it apart.
    let begin = std::time::Instant::now();
    while terral_server::is_dying(path) && begin.elapsed() < DYING {
        std::thread::sleep(Duration::from_millis(10));
    }
    if terral_server::is_served(path) {
        bail!("its server runs and brings its data by itself: `terral wait` waits for that");
    }
    if !path.join("log").exists() {
        bail!("no such instance: `terral status` shows those there are");
    }
    Ok(())
}

/// Brings one instance's data. The last status, and the exit code.
fn recover(path: &Path, signals: &Signals) -> Result<(Option<Status>, u8)> {
    check(path)?;
    // Were it to end with us, it would take an instance without permanent directory with it.
    let ends_with_us = instances::target(path).is_some();
    let start = Start { instance: path.to_path_buf(), target: None, memory_bytes: 0, ends_with_us };
    let server = Server::start(start)?;
    let client = Client::connect(path)?;
    if client.status()?.backing.is_none() {
        bail!("has no permanent directory; its server runs now: `terral get` fetches its files");
    }
    let paid_off = progress::pay_off(&client, signals).context("its data is still in memory")?;
    let (status, code) = match paid_off {
        Ending::Paid(status) => (status, 0),
        Ending::Broken(status) => (status, code::OWED),
    };
    if code == 0 {
        server.dismiss(&client)?;
    } else {
        server.dismiss_soon(&client)?;
    }
    let code = if path.join("log").exists() { code } else { 0 };
    Ok((Some(*status), code))
}

fn forget(path: &Path, name: &str) -> Result<(Option<Status>, u8)> {
    check(path)?;
    std::fs::remove_dir_all(path).with_context(|| name.to_owned())?;
    Ok((None, 0))
}

fn tell(name: &str, status: &Option<Status>, paid: bool, quiet: bool) -> Value {
    let Some(status) = status else {
        if !quiet {
            say(format_args!("{name}: forgotten"));
        }
        return json!({ "instance": name, "forgotten": true });
    };
    let drain = &status.drain;
    if !quiet {
        let to = status.backing.as_deref().unwrap_or_default();
        let files = plural(drain.files, "file", "files");
        if paid {
            let brought = bytes(drain.bytes);
            say(format_args!("{name}: {files}, {brought} brought to {to}; all is there now"));
        } else {
            let owed = bytes(drain.owed_bytes);
            say(format_args!("{name}: {owed} still to bring to {to}: kept in memory"));
        }
        for conflict in &drain.conflicts {
            say(format_args!("{name}: conflict: {conflict}"));
        }
        for failure in drain.failures.iter().filter(|_| !paid) {
            say(format_args!("{name}: {failure}"));
        }
    }
    json!({ "instance": name, "paid": paid, "status": status })
}
