//! `terral run`: a server for one command, and the wait for what it wrote.
//!
//! Invariants: COMMAND's exit status is ours unless data stays owed; nothing COMMAND wrote is
//! removed from memory before it is in DIR. Not here: what happens inside COMMAND (`preload`).

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use terral_client::{Client, Status, Totals};
use terral_server::EVERYWHERE;

use crate::batch::{self, Allocation};
use crate::claim::Purpose;
use crate::command::{Ended, Surroundings, checked_prefix, execute};
use crate::debt::is_owed;
use crate::hosts;
use crate::instances::{self, PREFIX};
use crate::knock;
use crate::listing::Kerberos;
use crate::partition::{self, parse_address};
use crate::past::Past;
use crate::progress::{self, Ending};
use crate::report::{self, code, failure, note, say};
use crate::search::{Place, Wanted};
use crate::serve::{permanent_directory, spill_directory};
use crate::server::{self, Server, Start};
use crate::signals::Signals;
use crate::staging;
use crate::strays;
use crate::summary::{Summary, Whereabouts, difference};
use crate::takeover::{self, Earlier};
use crate::units::{parse_bytes, parse_duration};

/// Runs a command whose files are served from memory and arrive in DIR
#[derive(Args)]
#[command(after_help = "\
COMMAND finds its files in $TERRAL_DIR (/terral unless --prefix says otherwise), together with what
DIR holds already. When it has ended, the rest is brought to DIR; then terral ends with COMMAND's
status. Ctrl-C and TERM go to COMMAND; while the rest is brought, it takes two of them to stop that
and keep the rest in memory: the next `terral run` to DIR, or `terral recover`, goes on with it.

Examples:
  terral run --to /data/out -- sh -c 'my-simulation --output $TERRAL_DIR/step'
  terral run --to /data/out --cwd -- mpiexec -n 4 lmp -in melt.in
  terral run --hosts a,b,c --to /data/out --cwd -- mpiexec -n 64 -hosts a,b,c ./simulation
  terral run --hosts a,b,c --storage-hosts b,c --to /data/out --cwd -- mpiexec -hosts a ./simulation
  terral run --spread --to /data/out --cwd -- mpiexec -n 64 -hosts a,b,c ./simulation
  terral run --to /data/out --cwd -- srun ./simulation    # in a job of Slurm: all its machines")]
pub struct Arguments {
    /// The permanent directory; made if it is not there
    #[arg(long, value_name = "DIR", required_unless_present_any = ["instance", "hosts"])]
    to: Option<PathBuf>,
    /// Run over these machines, and this one: all show the same files. They are reached by ssh, or
    /// what TERRAL_RSH says; DIR must be at the same path on each. One that does not have this
    /// terral is sent it, to /tmp/terral-UID or below what TERRAL_AHEAD names. Without --to the
    /// files lie in their memory only, and go with the run [default: all machines of a job of
    /// Slurm, which are reached by srun, or PBS; `--hosts localhost` is this one alone]
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', value_parser = batch::parse_host)]
    #[arg(conflicts_with_all = ["fresh", "spill", "keep", "no_wait"])]
    hosts: Vec<String>,
    /// Of --hosts, those that keep the bytes of new files, by the names given there; the others,
    /// and those that come by --spread, keep none: what their programs create is created on one of
    /// these [default: all]
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', value_parser = batch::parse_host)]
    storage_hosts: Vec<String>,
    /// A machine on which a program of COMMAND uses the files, and that is not named, comes in by
    /// itself, where the environment comes through (MPICH, Open MPI). This terral must be at
    /// the same path there; --hosts needs nothing there, and starts all before COMMAND
    #[arg(long, requires = "to")]
    #[arg(conflicts_with_all = ["instance", "fresh", "spill", "keep", "no_wait"])]
    spread: bool,
    /// Over several machines: do not encrypt what they say to each other, also bytes of files. Only
    /// where nobody else is on the network
    #[arg(long)]
    no_encryption: bool,
    /// Over several machines: where they reach each other. A PORT is the same on all of them; an
    /// ADDRESS, or ADDRESS:PORT, is this machine's [default: all addresses, any port that is free]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Over several machines: they reach each other at the address that this network interface has
    /// on each of them (ib0); --listen says the port
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Without --to: use this server, which runs already (`terral serve`, `terral run --keep`).
    /// With --to: the name of a new one, which may serve DIR beside another
    #[arg(long, value_name = "NAME", value_parser = instances::parser())]
    instance: Option<PathBuf>,
    /// Begin with nothing in memory; refused if an earlier run left there what DIR does not have
    #[arg(long, requires = "to")]
    fresh: bool,
    /// Most memory for file contents [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Memory kept ready for writers [default: an eighth of --memory, at most 2G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    ready: Option<u64>,
    /// A directory on a disk of this machine: what does not fit in memory and is not in DIR yet
    /// goes there, so that a slow DIR keeps no program waiting
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// Who others than you are, by what they prove it, and what they may (`terral login`)
    #[arg(long, value_name = "FILE", requires = "to")]
    principals: Option<PathBuf>,
    #[command(flatten)]
    kerberos: Kerberos,
    /// Where COMMAND sees the files
    #[arg(long, value_name = "PATH", default_value = PREFIX)]
    prefix: PathBuf,
    /// Start COMMAND in that place
    #[arg(long)]
    cwd: bool,
    /// Start no program into which the library cannot be loaded (static, Go, set-user-id), and end
    /// those that make system calls which cannot be caught
    #[arg(long)]
    strict: bool,
    /// Of which processes to catch system calls that are made past the C library: those where an
    /// object with such instructions was "found", "all" (programs that write code as they run), or
    /// "never"
    #[arg(long, value_name = "WHICH", default_value = "found", value_parser = CATCH)]
    catch: String,
    /// Leave the server up when COMMAND has ended
    #[arg(long, conflicts_with = "no_wait")]
    keep: bool,
    /// Do not wait: the server brings the rest in the background and ends by itself
    #[arg(long)]
    no_wait: bool,
    /// Wait for so long at most when COMMAND has ended (30, 90s, 10m, 2h); then the rest stays in
    /// memory
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait_timeout: Option<Duration>,
    /// The summary as one line of JSON, the last on standard output
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl Arguments {
    /// What is not there over several machines, if it is asked for.
    fn one_machine(&self) -> Option<&'static str> {
        let asked = [
            ("--fresh", self.fresh),
            ("--spill", self.spill.is_some()),
            ("--keep", self.keep),
            ("--no-wait", self.no_wait),
        ];
        asked.into_iter().find(|(_, is)| *is).map(|(option, _)| option)
    }
}

/// A server of a pool has heard of the others in this time.
const COMING: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// Values of `--catch`; the first is what the library does by itself.
const CATCH: [&str; 3] = ["found", "all", "never"];

/// Runs.
pub fn main(arguments: Arguments) -> Result<u8> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    if !arguments.hosts.is_empty() {
        return over_hosts(&arguments, &arguments.hosts);
    }
    if arguments.to.is_some()
        && let Some(Allocation { system, hosts }) = batch::allocation().map_err(not_started)?
    {
        match arguments.one_machine() {
            None => return over_hosts(&arguments, &hosts),
            Some(option) => note(format_args!(
                "{option} is for one machine: of the {} of this job of {system}, programs on the \
                 others do not see these files",
                hosts.len()
            )),
        }
    }
    if arguments.spread {
        return over_hosts(&arguments, &[]);
    }
    if let (Some(name), None) = (&arguments.instance, &arguments.to) {
        let new = [arguments.memory, arguments.ready].into_iter().flatten().next().is_some();
        if new || arguments.spill.is_some() || arguments.keep {
            let what = "--memory, --ready, --spill and --keep are for a new server, and want --to";
            return Err(failure(code::NOT_STARTED, what));
        }
        return beside(&arguments, &instances::locate(name.as_os_str()));
    }
    let signals = Signals::listen().map_err(not_started)?;
    let (start, surroundings, place, earlier) =
        prepare(&arguments, &signals).map_err(not_started)?;
    let instance = &surroundings.instance;
    let server = Server::start(start).map_err(|error| {
        server::remove_unused(instance);
        not_started(error)
    })?;
    let before = match earlier.iter().any(|earlier| earlier.taken_over) {
        true => Client::observe(instance).and_then(|client| client.status())?.totals,
        false => Totals::default(),
    };
    let ended = execute(&surroundings, &arguments.command, &signals);
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            // Nothing ran, so nothing new is owed.
            server.dismiss(&Client::observe(instance)?)?;
            return Err(error);
        }
    };
    let (arguments, surroundings, earlier) = (&arguments, &surroundings, &*earlier);
    let concluded =
        Run { arguments, surroundings, ended, signals, before, earlier }.conclude(server);
    drop(place.claim);
    concluded
}

/// Over several machines.
fn over_hosts(arguments: &Arguments, hosts: &[String]) -> Result<u8> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    let prefix = checked_prefix(&arguments.prefix).map_err(not_started)?;
    let to = arguments.to.as_deref();
    if to.is_none() && (arguments.json || arguments.wait_timeout.is_some()) {
        let what = "--hosts without --to brings nothing: leave --json and --wait-timeout out";
        return Err(failure(code::NOT_STARTED, what));
    }
    let target = to.map(|to| target(to, &prefix, arguments)).transpose().map_err(not_started)?;
    let listen = arguments.listen.unwrap_or(EVERYWHERE);
    if arguments.interface.is_some() {
        partition::is_port(listen).map_err(not_started)?;
    }
    let wanted = hosts::Wanted {
        hosts,
        storage: &arguments.storage_hosts,
        target,
        instance: arguments.instance.as_deref(),
        memory: arguments.memory,
        ready: arguments.ready,
        principals: arguments
            .kerberos
            .checked(arguments.principals.as_deref())
            .map_err(not_started)?,
        encrypted: !arguments.no_encryption,
        listen,
        interface: arguments.interface.as_deref(),
        spreads: arguments.spread,
        limit: arguments.wait_timeout,
        prefix: &prefix,
        command: &arguments.command,
    };
    let tell = |summary: &Summary<'_>| tell(summary, arguments.json);
    let around = |instance| {
        let around = surroundings(arguments, instance)?;
        Ok(Surroundings { spreads: true, ..around })
    };
    hosts::run(&wanted, around, &tell)
}

fn surroundings(arguments: &Arguments, instance: PathBuf) -> Result<Surroundings> {
    Ok(Surroundings {
        catch: arguments.catch.clone(),
        instance,
        library: server::preload_library()?,
        prefix: checked_prefix(&arguments.prefix)?,
        cwd: arguments.cwd,
        strict: arguments.strict,
        spreads: false,
        joins: None,
    })
}

/// Refuses what only the programs of an outer `terral run` can see: where the files are to go, and
/// where COMMAND would stand.
fn check_outer(to: &Path, arguments: &Arguments) -> Result<()> {
    let outer = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (Some(_), Some(prefix)) = (outer("TERRAL_INSTANCE"), outer("TERRAL_PREFIX")) else {
        return Ok(());
    };
    let (to, prefix) = (std::path::absolute(to)?, PathBuf::from(prefix));
    let shown = prefix.display();
    if to.starts_with(&prefix) {
        bail!(
            "--to {}: lies in the memory of the `terral run` around this one: name a directory \
             that is not under {shown}",
            to.display()
        );
    }
    if !arguments.cwd && std::env::current_dir().is_ok_and(|here| here.starts_with(&prefix)) {
        bail!(
            "the working directory lies under {shown} of the `terral run` around this one, where \
             COMMAND has another: give --cwd, or cd elsewhere first"
        );
    }
    Ok(())
}

/// The permanent directory, where COMMAND's files can go.
fn target(to: &Path, prefix: &Path, arguments: &Arguments) -> Result<PathBuf> {
    check_outer(to, arguments)?;
    let target = permanent_directory(to)?;
    if target.starts_with(prefix) {
        bail!("--to {}: lies under --prefix, which hides it", target.display());
    }
    Ok(target)
}

type Prepared = (Start, Surroundings, Place, Vec<Earlier>);

fn prepare(arguments: &Arguments, signals: &Signals) -> Result<Prepared> {
    let prefix = checked_prefix(&arguments.prefix)?;
    let library = server::preload_library()?;
    let target = target(arguments.to.as_deref().unwrap_or(Path::new(".")), &prefix, arguments)?;
    let spill = spill_directory(arguments.spill.as_deref(), &target)?;
    let purpose = if arguments.keep { Purpose::Stay } else { Purpose::Run };
    let named = arguments.instance.as_ref();
    let (place, earlier) = takeover::find(
        &Wanted {
            target: &target,
            prefix: &prefix,
            memory: arguments.memory,
            instance: named.map(|name| instances::locate(name.as_os_str())),
            beside: named.is_some(),
            purpose,
            several: false,
            stale: false,
            fresh: arguments.fresh,
            limit: arguments.wait_timeout,
        },
        signals,
    )?;
    let instance = place.instance.clone();
    let (memory_bytes, ends_with_us) = (place.memory_bytes, !arguments.keep);
    let start = Start {
        instance: instance.clone(),
        target: Some(target),
        memory_bytes,
        spill,
        ready_bytes: arguments.ready,
        principals: arguments.kerberos.checked(arguments.principals.as_deref())?,
        part: None,
        ends_with_us,
        among_users: false,
    };
    Ok((
        start,
        Surroundings {
            catch: arguments.catch.clone(),
            instance,
            library,
            prefix,
            cwd: arguments.cwd,
            strict: arguments.strict,
            spreads: false,
            joins: None,
        },
        place,
        earlier,
    ))
}

/// How a run ended.
struct End<'a> {
    name: &'a str,
    state: Whereabouts,
    wait_seconds: f64,
    restarts: u32,
    strays: &'a [String],
    past: &'a Past,
}

/// A run whose command has ended.
struct Run<'a> {
    arguments: &'a Arguments,
    surroundings: &'a Surroundings,
    ended: Ended,
    signals: Signals,
    /// What had been counted when COMMAND began.
    before: Totals,
    earlier: &'a [Earlier],
}

impl Run<'_> {
    fn conclude(&self, server: Server) -> Result<u8> {
        let instance = &self.surroundings.instance;
        let name = instances::name_of(instance);
        let client = Client::observe(instance)?;
        if self.arguments.keep {
            return self.keep(&name, &client, server.restarts());
        }
        if self.arguments.no_wait {
            client.finish()?;
            note(format_args!("{name} goes on in the background: `terral status`"));
            return Ok(self.ended.code);
        }
        let paid_off = progress::pay_off(&client, &self.signals, self.arguments.wait_timeout)
            .with_context(|| {
                format!(
                    "what is not in the permanent directory is in memory: `terral recover {name}`"
                )
            });
        let wait_seconds = self.ended.at.elapsed().as_secs_f64();
        let (status, paid) = match paid_off? {
            Ending::Paid(status) => (status, true),
            Ending::Broken(status) => (status, false),
        };
        let strays = strays::save(instance, &status, &name)?;
        let past = self.ended.watch.seen(instance);
        let restarts = server.restarts();
        if paid {
            server.dismiss(&client)?;
        } else {
            server.dismiss_soon(&client)?;
        }
        // A server that owes nothing has removed the instance.
        let paid = paid || !instance.join("log").exists();
        let state = if paid { Whereabouts::Arrived } else { Whereabouts::Owed };
        let strays = &strays;
        let end = End { name: &name, state, wait_seconds, restarts, strays, past: &past };
        self.tell(&end, &status)?;
        if paid && instance.join("log").exists() {
            say(format_args!(
                "no server lives long here: `terral recover {name}` frees the memory"
            ));
        }
        if paid {
            let directory = status.backing.as_deref().map(Path::new);
            return Ok(staging::code(directory, instance, self.ended.code));
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
        let past = &self.ended.watch.seen(&self.surroundings.instance);
        self.tell(&End { name, state, wait_seconds: 0.0, restarts, strays: &[], past }, &status)?;
        note(format_args!(
            "{name} stays: `terral ls --instance {name}`; `terral stop --instance {name}` brings \
             all and ends it"
        ));
        Ok(self.ended.code)
    }

    fn tell(&self, end: &End<'_>, status: &Status) -> Result<()> {
        let directory = status.backing.clone().unwrap_or_default();
        let summary = Summary {
            instance: end.name,
            directory: Path::new(&directory),
            command_status: self.ended.code,
            command_seconds: self.ended.seconds,
            wait_seconds: end.wait_seconds,
            restarts: end.restarts,
            state: end.state,
            totals: difference(&status.totals, &self.before),
            server: status,
            strays: end.strays,
            past: end.past,
            earlier: self.earlier,
            machines: &[],
            lost: &[],
        };
        tell(&summary, self.arguments.json)
    }
}

/// Shows a run, and says what may be wrong with it.
fn tell(summary: &Summary<'_>, json: bool) -> Result<()> {
    show(summary, json)?;
    warn(summary);
    Ok(())
}

fn show(summary: &Summary<'_>, json: bool) -> Result<()> {
    if json {
        return report::json(summary);
    }
    if !report::is_quiet() || summary.matters() {
        let _ = std::io::stderr().lock().write_all(summary.text().as_bytes());
    }
    Ok(())
}

fn warn(summary: &Summary<'_>) {
    if summary.totals.opens == 0 {
        say("no file was opened through Terral: did COMMAND use $TERRAL_DIR? A static or setuid \
             program cannot be served: `terral doctor -- PROGRAM` says more");
    }
    summary.past.lines().for_each(say);
    for stray in summary.strays {
        say(format_args!("{stray}: written past Terral by a program it cannot see; saved there"));
    }
}

/// How a server is, once it has heard who else is in its pool.
fn once_it_is_in(client: &Client) -> Result<Status> {
    let begin = Instant::now();
    loop {
        let status = client.status()?;
        let waits = status.partition.as_ref().is_some_and(|it| it.epoch.0 == 0);
        if !waits || begin.elapsed() > COMING {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
}

/// A command beside a server that stays: what it owes afterwards is the server's business.
fn beside(arguments: &Arguments, instance: &Path) -> Result<u8> {
    let name = instances::name_of(instance);
    knock::come_in(instance, &name)?;
    if !terral_server::is_served(instance) {
        bail!(failure(code::NO_SERVER, format!("{name}: no server there: `terral status`")));
    }
    let client = Client::observe(instance)?;
    let before = once_it_is_in(&client)?;
    if before.partition.as_ref().is_some_and(|its| its.authorities.contains(&its.me)) {
        let why = "says who may what in its pool, and serves no programs: start them on another \
                   machine of the pool";
        bail!(failure(code::NO_SERVER, format!("{name}: this machine's server {why}")));
    }
    let surroundings = surroundings(arguments, instance.to_path_buf())?;
    let signals = Signals::listen()?;
    let ended = execute(&surroundings, &arguments.command, &signals)?;
    client.flush()?;
    let after = client.status()?;
    let totals = difference(&after.totals, &before.totals);
    if arguments.json {
        let told = serde_json::json!({
            "instance": name, "command_status": ended.code,
            "command_seconds": ended.seconds, "totals": totals, "server": after,
            "past": ended.watch.seen(instance),
        });
        report::json(&told)?;
    } else {
        let (calls, owed) = (crate::summary::calls(&totals), after.drain.owed_bytes);
        note(format_args!("{calls}; {name} owes {}", crate::units::bytes(owed)));
        ended.watch.seen(instance).lines().for_each(say);
    }
    Ok(ended.code)
}
