//! `terral serve`: a server in the foreground, until a signal ends it or its work is done.
//!
//! A signal is answered by a child process that asks the server as any client does (`terral ask`,
//! hidden): the server leaves once it is alone, which it would never be with a client in itself.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use terral_client::Client;
use terral_relay::AtHome;
use terral_server::{Listing, Options, Outcome, Part, Pool};

use crate::claim::{Claim, Purpose};
use crate::debt::debt;
use crate::instances::{self, PREFIX};
use crate::listing::Kerberos;
use crate::machine;
use crate::partition::{self, Partition};
use crate::pool;
use crate::report::{code, failure, note, say};
use crate::search::{Place, Wanted};
use crate::signals::Signals;
use crate::staging;
use crate::takeover;
use crate::units::{bytes, duration, parse_bytes, parse_duration};

/// Starts a server that stays until it is told to end
#[derive(Args)]
#[command(after_help = "\
Ctrl-C, SIGTERM or `terral stop`: bring everything to DIR, then end. A second signal: end at once;
what is owed stays in memory for `terral recover`. Without --to it only goes on with what an earlier
server of this name left.

Example:
  terral serve --to /data/results --memory 8G &
  terral put input.dat input.dat
  terral run --instance default -- ls -l /terral

Others than you, who have tickets of Kerberos:
  terral serve --to /data/results --principals who.txt --keytab terral.keytab

A pool that stays: the same on each of its machines
  terral serve --to /data/results --control etcd://db1:2379 --pool cfd

The same with roles: who may what, files, and programs, each on machines of their own
  terral serve --to /data/results --control etcd://db1:2379 --pool cfd --role authn,authz
  terral serve --to /data/results --control etcd://db1:2379 --pool cfd --role storage
  terral serve --to /data/results --control etcd://db1:2379 --pool cfd --role compute

All users of this machine, each with a server that is his own process (as root):
  terral serve --users --to /scratch
  terral run --instance default -- ./simulation       (as any of them)
The same for all users of several machines, on each of them
  terral serve --users --to /scratch --control etcd://db1:2379 --pool cfd

Several machines, by hand (`terral run --hosts` does it for a run):
  terral serve --to /data/results --listen &
  terral invite | ssh other terral serve --to /data/results --join -")]
pub struct Arguments {
    /// The permanent directory; made if it is not there. Needed, but for what an earlier server of
    /// this name left
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Most memory for file contents [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Memory kept ready for writers [default: an eighth of --memory, at most 2G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub ready: Option<u64>,
    /// A directory on a disk of this machine: what does not fit in memory and is not in DIR yet
    /// goes there, so that a slow DIR keeps no program waiting
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// Name of the instance, for --instance of the other verbs [default: default]; with one, it may
    /// serve DIR beside another server
    #[arg(long, value_parser = instances::parser())]
    pub name: Option<PathBuf>,
    /// Begin with nothing in memory; refused if an earlier server left there what DIR does not have
    #[arg(long)]
    pub fresh: bool,
    /// From Ctrl-C or SIGTERM on, bring for so long at most (30, 90s, 10m, 2h)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub wait_timeout: Option<Duration>,
    /// Who others than you are, by what they prove it, and what they may (`terral login`). A line
    /// each: NAME OPERATIONS [below=/PATH] [for=TIME] key ssh-ed25519 KEY | gss NAME@REALM
    #[arg(long, value_name = "FILE")]
    pub principals: Option<PathBuf>,
    #[command(flatten)]
    pub kerberos: Kerberos,
    /// Serve all users of this machine: each sees one /terral, with a directory of his own, and of
    /// others what permission bits let him; his files are his, also in DIR. Needs root, and --to.
    /// With --control and --pool: those of all its machines, which trust root of each
    #[arg(long, conflicts_with_all = ["spill", "listen", "join", "principals", "keytab",
        "role"])]
    pub users: bool,
    /// With --users: most memory for each user's files [default: an eighth of --memory, 128M at
    /// least]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "users")]
    pub user_memory: Option<u64>,
    #[command(flatten)]
    pub partition: Partition,
    #[command(flatten)]
    pub pool: pool::Arguments,
    #[arg(long, hide = true, conflicts_with = "name")]
    instance_directory: Option<PathBuf>,
    #[arg(long, hide = true)]
    launcher: Option<u32>,
    #[arg(long, hide = true)]
    among_users: bool,
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
            note(format_args!("made {shown}"));
        }
        Err(error) => return Err(error).with_context(|| format!("--to {shown}")),
    }
    let absolute = path.canonicalize().with_context(|| format!("--to {shown}"))?;
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(&absolute, wanted)
        .with_context(|| format!("--to {shown}: you may not write there"))?;
    Ok(absolute)
}

/// Where what does not fit in memory may go, as an absolute path.
///
/// # Errors
/// If it may not; says why.
pub fn spill_directory(spill: Option<&Path>, target: &Path) -> Result<Option<PathBuf>> {
    let check = |spill| terral_server::check_spill(spill, Some(target));
    Ok(spill.map(check).transpose()?)
}

/// Files in shared memory are shorter than this.
const FILE_BYTES: u64 = 2 << 30;

/// Serves.
pub fn main(arguments: Arguments) -> Result<u8> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    machine::raise_descriptors().map_err(not_started)?;
    let is_watched = arguments.instance_directory.is_some();
    let (options, claim) = match &arguments.instance_directory {
        Some(instance) => {
            let (partition, pool, principals) = enter(&arguments, instance)?;
            let listen = arguments.address().map_err(not_started)?;
            let options = Options {
                instance: instance.clone(),
                backing: arguments.to,
                memory_bytes: arguments.memory.unwrap_or(0),
                spill: arguments.spill,
                ready_bytes: arguments.ready,
                partition,
                pool,
                listen,
                principals,
                launcher: arguments.launcher,
                among_users: arguments.among_users,
            };
            (options, None)
        }
        None => {
            let place = prepare(&arguments).map_err(not_started)?;
            (place.0, Some(place.1))
        }
    };
    let brings = options.backing.is_some() || claim.is_none();
    listen(options.instance.clone(), arguments.wait_timeout, brings)?;
    // Its files are not the program's, for which the launcher's limit is meant.
    terral_client::limit::raise(FILE_BYTES)?;
    let relay = Arc::new(AtHome::new(options.instance.clone()));
    let outcome = terral_server::serve_with(&options, Some(relay))?;
    drop(claim);
    if let Some(why) = outcome.refused {
        return Err(failure(if is_watched { code::REMOVED } else { code::NOT_STARTED }, why));
    }
    Ok(conclude(&options.instance, &outcome))
}

/// What a server becomes, of which pool, and who others are to it.
type Entered = (Option<Part>, Option<Pool>, Option<Listing>);

/// What a server becomes whose instance another process of ours has made.
fn enter(arguments: &Arguments, instance: &Path) -> Result<Entered> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    let principals = arguments.kerberos.listing(arguments.principals.clone());
    let entrance = arguments.pool.entrance(instance, arguments.among_users);
    let Some(entrance) = entrance.map_err(not_started)? else {
        return Ok((arguments.partition.part().map_err(not_started)?, None, principals));
    };
    let goes_on = instance.join("log").exists();
    if let Some(why) = entrance.is_over_for(goes_on).map_err(not_started)? {
        return Err(failure(code::REMOVED, why));
    }
    let (part, pool, principals) = entrance.through(goes_on, principals).map_err(not_started)?;
    Ok((part, Some(pool), principals))
}

impl Arguments {
    /// Where it listens.
    ///
    /// # Errors
    /// If the interface that is named has no address, or is not all that is named.
    fn address(&self) -> Result<SocketAddr> {
        self.partition.address(self.pool.control.is_some())
    }
}

/// Makes or finds the instance of a server that a person starts, and says what will be.
fn prepare(arguments: &Arguments) -> Result<(Options, Claim)> {
    let wanted = arguments.name.as_deref().unwrap_or(Path::new(instances::DEFAULT));
    let wanted = instances::locate(wanted.as_os_str());
    let name = instances::name_of(&wanted);
    let principals = arguments.kerberos.checked(arguments.principals.as_deref())?;
    let entrance = arguments.pool.entrance(&wanted, false)?;
    let stale = pool::is_stale(entrance.as_ref(), &wanted)?;
    let part = entrance.is_none().then(|| arguments.partition.part()).transpose()?.flatten();
    let listen = arguments.address()?;
    if let Some(Part::Invited(invitation)) = &part {
        let knows = arguments.to.is_some() || instances::target(&wanted).is_some();
        partition::is_to_bring(invitation, knows)?;
    }
    if arguments.to.is_none() && (part.is_some() || partition::is_left(&wanted)) {
        let place = partition::place(&wanted, arguments.memory)?;
        if part.is_none() {
            note(format_args!("{name}: goes on as the member that it was"));
        }
        say_part(&name, part.as_ref());
        return Ok(options(arguments, place, (part, listen), (None, None), principals));
    }
    let target = match &arguments.to {
        Some(to) => permanent_directory(to)?,
        None => instances::target(&wanted)
            .filter(|_| wanted.join("log").exists())
            .context("--to DIR is needed: the directory where files are to arrive")?,
    };
    let spill = spill_directory(arguments.spill.as_deref(), &target)?;
    let prefix = Path::new(PREFIX);
    let (place, earlier) = takeover::find(
        &Wanted {
            target: &target,
            prefix,
            memory: arguments.memory,
            instance: Some(wanted),
            beside: arguments.name.is_some(),
            purpose: Purpose::Stay,
            several: part.is_some() || entrance.is_some(),
            stale,
            fresh: arguments.fresh,
            limit: arguments.wait_timeout,
        },
        &Signals::listen()?,
    )?;
    if terral_server::is_among_users(&place.instance) {
        bail!("{name}: it served all users: `terral serve --users` goes on, or `terral recover`");
    }
    let (shown, memory) = (target.display(), bytes(place.memory_bytes));
    if place.memory_bytes > 0 {
        note(format_args!("{name}: serving {shown} with up to {memory} of memory"));
    } else {
        note(format_args!("{name}: serving {shown}"));
    }
    let Some(entrance) = entrance else {
        say_part(&name, part.as_ref());
        return Ok(options(arguments, place, (part, listen), (Some(target), spill), principals));
    };
    let taken = earlier.iter().any(|one| one.taken_over);
    let (part, pool, principals) = entrance.through(taken, principals)?;
    say_part(&name, part.as_ref().filter(|part| matches!(part, Part::Invited(_))));
    let (options, claim) =
        options(arguments, place, (part, listen), (Some(target), spill), principals);
    Ok((Options { pool: Some(pool), ..options }, claim))
}

/// What the server is to be of several machines, and how it is used.
fn say_part(name: &str, part: Option<&Part>) {
    match part {
        Some(Part::Control { .. }) => {
            note(format_args!("{name}: the first of several; let others in: terral invite"));
        }
        Some(Part::Invited(invitation)) => {
            let control = &invitation.control.member;
            note(format_args!("{name}: {}, invited by {control}", invitation.me));
        }
        None => {}
    }
    note(format_args!("use it: terral run --instance {name} -- COMMAND…   end it: terral stop"));
}

fn options(
    arguments: &Arguments,
    place: Place,
    (partition, listen): (Option<Part>, SocketAddr),
    (backing, spill): (Option<PathBuf>, Option<PathBuf>),
    principals: Option<Listing>,
) -> (Options, Claim) {
    let Place { instance, memory_bytes, claim } = place;
    let options = Options {
        instance,
        backing,
        memory_bytes,
        spill,
        ready_bytes: arguments.ready,
        partition,
        pool: None,
        listen,
        principals,
        launcher: None,
        among_users: false,
    };
    (options, claim)
}

/// Answers signals: the first asks the server to finish, the next, or its time being over, to
/// leave.
fn listen(instance: PathBuf, limit: Option<Duration>, brings: bool) -> Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP];
    let mut signals = signal_hook::iterator::Signals::new(wanted).context("signals")?;
    let program = std::env::current_exe().context("terral: own path")?;
    std::thread::spawn(move || {
        for (count, _) in signals.forever().enumerate() {
            if count > 0 {
                tell(&program, "leave", &instance);
                continue;
            }
            say(if brings {
                "bringing everything to the permanent directory; once more to end at once"
            } else {
                "ends once no program uses it, and its files with it; once more to end at once"
            });
            tell(&program, "finish", &instance);
            if let Some(limit) = limit {
                let (program, instance) = (program.clone(), instance.clone());
                std::thread::spawn(move || {
                    std::thread::sleep(limit);
                    say(format_args!("{} are over (--wait-timeout)", duration(limit)));
                    tell(&program, "leave", &instance);
                });
            }
        }
    });
    Ok(())
}

fn tell(program: &Path, wish: &str, instance: &Path) {
    let mut ask = Command::new(program);
    ask.arg("ask").arg(wish).arg(instance).stdin(Stdio::null());
    // The next Ctrl-C is for us, not for the messenger.
    ask.process_group(0);
    match ask.spawn() {
        // Reaped by nobody until we end, which is what was asked for.
        Ok(child) => drop(child),
        Err(error) => say(format_args!("{}: {error}", program.display())),
    }
}

/// Asks the server.
pub fn ask(arguments: &Ask) -> Result<u8> {
    let client = Client::observe(&arguments.instance)?;
    match arguments.what {
        // Who serves without a permanent directory was told what becomes of its files.
        Wish::Finish => client.stop(client.status()?.backing.is_none())?,
        Wish::Leave => client.leave()?,
    }
    Ok(0)
}

fn conclude(instance: &Path, outcome: &Outcome) -> u8 {
    let status = &outcome.status;
    let drain = &status.drain;
    if drain.owed_files == 0 && drain.owed_bytes == 0 && drain.owed_names == 0 {
        let directory = status.backing.as_deref().map(Path::new);
        let left = || Some(format!("not all could be removed: {}", outcome.left.as_ref()?));
        let Some(why) = staging::remains(directory, instance).or_else(left) else { return 0 };
        say(why);
        return code::FAILED;
    }
    let name = instances::name_of(instance);
    say(format_args!(
        "{} not yet in {}: kept in memory, `terral recover {name}` brings it there",
        debt(drain),
        status.backing.as_deref().unwrap_or("a permanent directory"),
    ));
    code::OWED
}
