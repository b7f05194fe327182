//! `terral host`, hidden: what the launcher of a run over several machines starts on each of the
//! others. A server that joins, is started again if it dies, and ends with the run.
//!
//! Invariants: an invitation comes through a pipe, and is never among arguments; a machine on which
//! the launcher's word ends the run ends it at once, and one that only lost the launcher serves on
//! as long as programs use it, and brings what it owes by itself then.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use terral_client::{Client, ErrorKind, Losses, Membership, Status};
use terral_server::{Standing, Verdict};

use crate::ahead::Ahead;
use crate::claim::{self, Claim, Purpose};
use crate::instances;
use crate::limits::Limits;
use crate::orphans;
use crate::partition;
use crate::progress::{self, Ending, status_when_told};
use crate::report::code;
use crate::same::Build;
use crate::search::{Place, Wanted};
use crate::serve::permanent_directory;
use crate::server::{self, Part, Server, Start};
use crate::signals::Signals;
use crate::strays;
use crate::takeover;
use crate::units::parse_bytes;
use crate::user::User;
use crate::words::{End, Order, Report, hear, report};

/// Who has lost the launcher goes when no program has used it for so long.
const ORPHANED: Duration = Duration::from_secs(60);
/// A server whose `terral host` is gone ends in this time.
const ORPHAN_ENDS: Duration = Duration::from_secs(10);
/// How often a machine looks whether it was told to end by a signal, or has lost the launcher.
const LOOK: Duration = Duration::from_millis(200);
/// After so many it looks whether the others have removed it.
const LOOKS: u32 = 5;

/// Serves one machine of a run, until the launcher says that it is over
#[derive(Args)]
pub struct Arguments {
    /// Name of the instance
    #[arg(long, value_parser = instances::parser())]
    name: PathBuf,
    /// It may serve DIR beside another server
    #[arg(long)]
    beside: bool,
    /// The permanent directory
    #[arg(long)]
    to: Option<PathBuf>,
    /// Where programs see the files
    #[arg(long, default_value = instances::PREFIX)]
    prefix: PathBuf,
    /// Most memory for file contents
    #[arg(long, value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Memory kept ready
    #[arg(long, value_parser = parse_bytes)]
    ready: Option<u64>,
    /// Where others reach it
    #[arg(long)]
    port: u16,
    /// Over which interface
    #[arg(long)]
    interface: Option<String>,
    /// Which build of terral this is
    #[arg(long)]
    build: String,
    /// Where it is put on machines that lack it
    #[arg(long)]
    ahead: PathBuf,
    /// Its library here
    #[arg(long)]
    library: PathBuf,
    /// It serves this user alone, and is his process: USER:GROUP:GROUPS
    #[arg(long, requires = "limits")]
    user: Option<User>,
    /// With these limits
    #[arg(long)]
    limits: Option<Limits>,
    /// It goes on as the member that it was invited as before, with what that had
    #[arg(long, requires = "user")]
    again: bool,
}

/// Serves.
pub fn main(arguments: &Arguments) -> Result<u8> {
    if let Some((user, limits)) = arguments.user.as_ref().zip(arguments.limits.as_ref()) {
        user.become_him(limits).inspect_err(has_failed)?;
    }
    let ahead = Ahead { home: arguments.ahead.clone(), id: arguments.build.clone() };
    let is_there = arguments.library == ahead.library();
    report(&Report::Begins(is_there));
    let held = is_there.then(|| ahead.hold()).transpose();
    let supply = |held| Supply { ahead, held, library: arguments.library.clone() };
    let served = held.and_then(|held| serve(arguments, supply(held))).inspect_err(has_failed);
    Ok(served.unwrap_or(code::NOT_STARTED))
}

fn has_failed(error: &anyhow::Error) {
    report(&Report::Failed(format!("{error:#}")));
}

/// The `terral` and the library of this machine, and where programs look for the library.
struct Supply {
    ahead: Ahead,
    /// While it is used there.
    held: Option<File>,
    library: PathBuf,
}

impl Supply {
    /// Has them where those were sent to that lack them: programs of all machines look there.
    fn be_ahead(&mut self) -> Result<()> {
        if self.held.is_none() {
            self.held = Some(self.ahead.keep(&Build::ours(&self.library)?)?);
        }
        Ok(())
    }
}

fn serve(arguments: &Arguments, supply: Supply) -> Result<u8> {
    let signals = Signals::listen()?;
    let mut stdin = BufReader::new(std::io::stdin());
    let mut invitation = String::new();
    stdin.read_line(&mut invitation).context("standard input")?;
    let (place, target) = place(arguments, invitation.trim(), &signals)?;
    let Place { instance, memory_bytes, claim: _claim } = place;
    let start = Start {
        instance: instance.clone(),
        target,
        memory_bytes,
        spill: None,
        ready_bytes: arguments.ready,
        principals: None,
        part: Some(Part::Invited {
            invitation: partition::keep_invitation(&instance, &invitation)?,
            port: arguments.port,
            interface: arguments.interface.clone(),
        }),
        ends_with_us: true,
        among_users: arguments.user.is_some(),
    };
    let server = Server::start(start).inspect_err(|_| server::remove_unused(&instance))?;
    let client = Client::observe(&instance)?;
    report(&Report::Serves);
    let (given, orders) = mpsc::channel();
    std::thread::spawn(move || {
        while let Some(order) = hear(&mut stdin) {
            let _ = given.send(order);
        }
    });
    let of_user = arguments.user.is_some();
    let hosted = Hosted { instance, client, server, signals, supply, of_user };
    hosted.obey(&orders)
}

/// A server of this user's whose `terral host` was killed, or has lost who told it what to do, is
/// ended: another one goes on at once, as the same member.
fn end_orphan(name: &Path, instance: &Path) -> Result<()> {
    let served = || terral_server::is_served(instance);
    let claimed = || terral_server::is_claimed(instance);
    let begin = Instant::now();
    // Before its server, which that would start again; who brings what is left is none.
    let runs = claim::holder(instance).filter(|(_, what)| claimed() && *what == Purpose::Run);
    let words = ["host".as_ref(), "--name".as_ref(), name.as_os_str()];
    let ends = orphans::kill(runs.map(|(pid, _)| pid), &words);
    while ends && claimed() && begin.elapsed() < ORPHAN_ENDS {
        std::thread::sleep(LOOK / 20);
    }
    let words = ["serve".as_ref(), "--instance-directory".as_ref(), instance.as_os_str()];
    orphans::kill(terral_server::server_pid(instance).filter(|_| served()), &words);
    while served() {
        ensure!(begin.elapsed() < ORPHAN_ENDS, "the server before does not end");
        std::thread::sleep(LOOK / 20);
    }
    Ok(())
}

/// Where the server begins, and what it brings files to. What an earlier run left here for that is
/// brought first.
fn place(
    arguments: &Arguments,
    invitation: &str,
    signals: &Signals,
) -> Result<(Place, Option<PathBuf>)> {
    let instance = instances::locate(arguments.name.as_os_str());
    if arguments.user.is_some() {
        let same = partition::kept_invitation(&instance).is_some_and(|kept| kept == invitation);
        if is_left(&instance) && same {
            // What the one before had: it goes on as that member.
            end_orphan(&arguments.name, &instance)?;
            let claim = Claim::take(&instance, Purpose::Run)?.context("its memory is in use")?;
            return Ok((Place { instance, claim, memory_bytes: 0 }, arguments.to.clone()));
        }
        if terral_server::is_served(&instance) {
            let name = instances::name_of(&instance);
            bail!("a server of your own has that name: end it with `terral stop {name}`");
        }
        if arguments.again {
            report(&Report::Gone);
            bail!("what the server before had is gone");
        }
    }
    let Some(to) = &arguments.to else {
        return Ok((partition::place(&instance, arguments.memory)?, None));
    };
    // Where a user may write is found out as he does.
    let target = match &arguments.user {
        Some(_) => to.canonicalize().with_context(|| format!("--to {}", to.display()))?,
        None => permanent_directory(to)?,
    };
    let wanted = Wanted {
        target: &target,
        prefix: &arguments.prefix,
        memory: arguments.memory,
        instance: Some(instance),
        beside: arguments.beside,
        purpose: Purpose::Run,
        several: true,
        stale: false,
        fresh: false,
        limit: None,
    };
    let (place, _) = takeover::find(&wanted, signals)?;
    Ok((place, Some(target)))
}

/// A server of this machine.
struct Hosted {
    instance: PathBuf,
    client: Client,
    server: Server,
    signals: Signals,
    supply: Supply,
    of_user: bool,
}

impl Hosted {
    /// Does what the launcher says, until the run is over.
    fn obey(mut self, orders: &mpsc::Receiver<Order>) -> Result<u8> {
        let (mut told, mut looks) = (None, 0_u32);
        let mut unused: Option<Instant> = None;
        let mut leaves = None;
        loop {
            if let Some(told) = &mut leaves
                && let Err(error) = self.leave(told)
            {
                report(&Report::Failed(format!("{error:#}")));
                return self.end(false);
            }
            match orders.recv_timeout(LOOK) {
                Ok(Order::Finish) => {
                    match status_when_told(&self.client, Client::finish, &mut told) {
                        Ok(status) if self.is_removed(&status) => return self.end_removed(),
                        Ok(status) => report(&Report::Far(Box::new(in_short(status)))),
                        Err(error) if error.kind == ErrorKind::Unanswered => {
                            report(&Report::Silent);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(Order::Ahead) => match self.supply.be_ahead() {
                    Ok(()) => report(&Report::Ahead),
                    Err(error) => report(&Report::Failed(format!("{error:#}"))),
                },
                Ok(Order::Leave) => leaves = leaves.or(Some(None)),
                Ok(Order::End) => return self.end(true),
                Ok(Order::Keep) => return self.end(false),
                Err(RecvTimeoutError::Timeout) => {
                    looks += 1;
                    let looks_now = looks % LOOKS == 0;
                    let status = looks_now.then(|| self.client.status().ok()).flatten();
                    if status.is_some_and(|status| self.is_removed(&status)) {
                        return self.end_removed();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(LOOK);
                    let status = self.client.status().ok();
                    if status.as_ref().is_some_and(|status| self.is_removed(status)) {
                        return self.end_removed();
                    }
                    let used = status.is_some_and(|status| status.sessions > 0);
                    unused = if used { None } else { unused.or(Some(Instant::now())) };
                }
            }
            if self.server.is_given_up() {
                return Ok(self.end_given_up());
            }
            let alone = unused.is_some_and(|since| since.elapsed() > ORPHANED);
            if alone || self.signals.count() > 0 || !self.instance.join("log").exists() {
                return self.end_alone();
            }
        }
    }

    /// Has its server leave the others in order, which ends it; one that was started again
    /// meanwhile is told again. Says how far that is.
    fn leave(&self, told: &mut Option<u64>) -> Result<()> {
        match status_when_told(&self.client, |client| client.stop(false), told) {
            Ok(status) => report(&Report::Far(Box::new(in_short(status)))),
            Err(error) if error.kind == ErrorKind::Unanswered => report(&Report::Silent),
            // It has left, or the next one is told.
            Err(error) if error.kind == ErrorKind::Unreachable => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether its server was removed from its partition; a user's may leave that by itself.
    fn is_removed(&self, status: &Status) -> bool {
        let Some(partition) = &status.partition else { return false };
        let own = partition.members.iter().find(|member| member.seat.member == partition.me);
        own.is_some_and(|own| match own.seat.standing {
            Standing::Removed { verdict, .. } => !self.of_user || verdict != Verdict::Left,
            Standing::In(_) => false,
        })
    }

    /// The others go on without this machine.
    fn end_removed(self) -> Result<u8> {
        let name = instances::name_of(&self.instance);
        let left = "what it had not brought stays in its memory";
        report(&Report::Failed(format!(
            "was removed from the run (`terral fence`): {left}: `terral recover {name}` there"
        )));
        self.end(false)
    }

    /// The server dies as it starts, and is not started again. Whoever starts users' servers takes
    /// a user's for one that was killed: another one goes on with what it had, when it is due.
    fn end_given_up(self) -> u8 {
        let name = instances::name_of(&self.instance);
        let left = "what it had not brought stays in its memory";
        if !self.of_user {
            report(&Report::Failed(format!(
                "its server dies each time it starts: {left}: `terral recover {name}` there"
            )));
        }
        code::NOT_STARTED
    }

    /// Nobody says what is to be done.
    fn end_alone(self) -> Result<u8> {
        if self.client.status().is_ok_and(|status| self.is_removed(&status)) {
            return self.end_removed();
        }
        let bears = self.instance.join("log").exists() && self.client.status()?.backing.is_some();
        if !bears {
            return self.end(true);
        }
        let ending = progress::pay_off(&self.client, &self.signals, None)?;
        self.end(matches!(ending, Ending::Paid(_)))
    }

    /// Ends the server: `whole` if it is expected to owe nothing.
    fn end(self, whole: bool) -> Result<u8> {
        let name = instances::name_of(&self.instance);
        let saved = self.client.status().map_err(anyhow::Error::from);
        let strays = saved.and_then(|status| strays::save(&self.instance, &status, &name));
        let restarts = self.server.restarts();
        let dismissed = match whole {
            true => self.server.dismiss(&self.client),
            false => self.server.dismiss_soon(&self.client),
        };
        let owes = is_left(&self.instance);
        // One that has ended meanwhile need not be told.
        dismissed.err().iter().filter(|_| owes).for_each(has_failed);
        report(&Report::Ended(End { owes, restarts, strays: strays.unwrap_or_default() }));
        Ok(if owes { code::OWED } else { 0 })
    }
}

/// What the launcher is to know: it has a list of all members of its own, and each of all would be
/// long.
fn in_short(status: Status) -> Status {
    let lost = status.partition.filter(|partition| partition.losses != Losses::default());
    let partition = lost.map(|partition| Membership { members: Vec::new(), ..partition });
    Status { partition, ..status }
}

/// Whether a server that has ended left something.
pub fn is_left(instance: &Path) -> bool {
    instance.join("log").exists()
}
