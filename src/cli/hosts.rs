//! One run over several machines: `terral run --hosts`. A server on this one, to which the others'
//! come, COMMAND, and the end of all of them.
//!
//! Not here: what runs on the others (`host`), and how servers find each other (`server`,
//! `network`).

use std::ffi::OsString;
use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use terral_client::{Client, Member, Status};
use terral_server::{Listing, Standing, Verdict};

use crate::batch;
use crate::claim::Purpose;
use crate::command::{Ended, Surroundings, execute};
use crate::door::{Door, House};
use crate::gathering::{Gathered, Gathering};
use crate::host::is_left;
use crate::instances;
use crate::lost;
use crate::members::{Hosts, this};
use crate::partition;
use crate::remote::{Machine, Service, Stage};
use crate::report::{code, failure, note, say};
use crate::role;
use crate::search::{self, Place};
use crate::server::{self, Part, Server, Start};
use crate::signals::Signals;
use crate::staging;
use crate::strays;
use crate::summary::{Summary, Whereabouts, calls};
use crate::supply::Supply;
use crate::takeover::{self, Earlier};
use crate::units::{bytes, plural};
use crate::words::Order;

/// The others have so long to be reached.
const COMING: Duration = Duration::from_secs(60);
/// They have so long to go.
const GOING: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
/// So long after the first that lacks `terral` it is said which do.
const MOMENT: Duration = Duration::from_millis(300);

/// What a run over several machines is given.
pub struct Wanted<'a> {
    /// The others, and perhaps this one.
    pub hosts: &'a [String],
    /// Those that keep bytes of new files; none: all do.
    pub storage: &'a [String],
    /// The permanent directory, by its path on all of them.
    pub target: Option<PathBuf>,
    /// The name of the instances, if it is to have one.
    pub instance: Option<&'a Path>,
    /// Most memory on each.
    pub memory: Option<u64>,
    /// Who is who, for those who log in here.
    pub principals: Option<Listing>,
    /// Kept ready on each.
    pub ready: Option<u64>,
    /// Whether servers encrypt what they say to each other.
    pub encrypted: bool,
    /// Where the others reach this one; its port is that of all.
    pub listen: SocketAddr,
    /// Over which interface of each they reach each other, if it matters.
    pub interface: Option<&'a str>,
    /// Machines that are not named come in when the first of their programs uses the files.
    pub spreads: bool,
    /// What is owed is brought for so long at most, once COMMAND has ended.
    pub limit: Option<Duration>,
    /// Where programs see the files.
    pub prefix: &'a Path,
    /// The program and its arguments.
    pub command: &'a [OsString],
}

/// Shows what a run did.
pub type Tell<'a> = &'a dyn Fn(&Summary<'_>) -> Result<()>;

/// Whether a name is this machine's.
fn is_this(host: &str) -> bool {
    if batch::here().is_some_and(|here| here == host) {
        return true;
    }
    let own = this();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    host == "localhost" || host == own || short(host) == short(&own)
}

/// An address of a host, or of none.
fn is_known(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok() || (host, 0).to_socket_addrs().is_ok()
}

/// All machines, when COMMAND begins.
struct All<'a> {
    wanted: &'a Wanted<'a>,
    instance: PathBuf,
    client: Client,
    server: Server,
    others: Vec<Machine>,
    supply: Arc<Supply>,
    /// While programs have their library from where it is sent to machines that lack it.
    held: Option<File>,
    earlier: Vec<Earlier>,
    signals: Signals,
}

/// Runs.
///
/// # Errors
/// If a machine does not come, and if something is not in the permanent directory in the end;
/// COMMAND's status is given otherwise.
pub fn run(
    wanted: &Wanted<'_>,
    around: impl FnOnce(PathBuf) -> Result<Surroundings>,
    tell: Tell<'_>,
) -> Result<u8> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    let begin = Instant::now();
    let signals = Signals::listen().map_err(not_started)?;
    let others = others(wanted.hosts).map_err(not_started)?;
    for host in wanted.storage {
        if !is_this(host) && !others.contains(&host) {
            let what = format!("--storage-hosts: {host} is not among --hosts");
            return Err(failure(code::NOT_STARTED, what));
        }
    }
    let (place, earlier) = place(wanted, &signals).map_err(not_started)?;
    let Place { instance, memory_bytes, claim: _claim } = place;
    let mut around = around(instance.clone()).map_err(not_started)?;
    let supply = Arc::new(Supply::new(&around.library).map_err(not_started)?);
    let server = Server::start(start(wanted, &instance, memory_bytes)).map_err(|error| {
        server::remove_unused(&instance);
        not_started(error)
    })?;
    let client = Client::observe(&instance)?;
    let (others, held) = (Vec::new(), None);
    let mut all = All { wanted, instance, client, server, others, supply, held, earlier, signals };
    if let Err(error) = all.come() {
        all.dismiss()?;
        return Err(not_started(error));
    }
    if all.held.is_some() {
        around.library = all.supply.ahead.library();
    }
    let door = match all.open_door(&mut around) {
        Ok(door) => door,
        Err(error) => {
            all.dismiss()?;
            return Err(not_started(error));
        }
    };
    let machines = 1 + all.others.len();
    note(format_args!(
        "{} in {} ms: {}",
        plural(machines as u64, "machine", "machines"),
        begin.elapsed().as_millis(),
        what_it_is(&around.prefix, wanted, machines)
    ));
    let ended = execute(&around, wanted.command, &all.signals);
    all.others.extend(door.map(Door::close).into_iter().flatten());
    match ended {
        Ok(ended) if wanted.target.is_some() => all.gather(&ended, tell),
        ended => all.end(ended),
    }
}

fn what_it_is(prefix: &Path, wanted: &Wanted<'_>, machines: usize) -> String {
    let prefix = prefix.display();
    let whose = if machines == 1 { "its" } else { "their" };
    let join = if wanted.spreads { ", and others join by their first program" } else { "" };
    match &wanted.target {
        Some(target) => {
            format!("{whose} memory is one {prefix}, for {}{join}", target.display())
        }
        None => format!("{whose} memory is one {prefix}, and goes with this run"),
    }
}

/// Where this machine's server begins. What an earlier run left here is brought first.
fn place(wanted: &Wanted<'_>, signals: &Signals) -> Result<(Place, Vec<Earlier>)> {
    let instance = wanted.instance.map(|name| instances::locate(name.as_os_str()));
    let Some(target) = &wanted.target else {
        let fresh = || instances::base().join(instances::fresh_name());
        let place = partition::place(&instance.unwrap_or_else(fresh), wanted.memory)?;
        return Ok((place, Vec::new()));
    };
    let search = search::Wanted {
        target,
        prefix: wanted.prefix,
        memory: wanted.memory,
        beside: instance.is_some(),
        instance,
        purpose: Purpose::Run,
        several: true,
        stale: false,
        fresh: false,
        limit: wanted.limit,
    };
    takeover::find(&search, signals)
}

fn start(wanted: &Wanted<'_>, instance: &Path, memory_bytes: u64) -> Start {
    Start {
        instance: instance.into(),
        target: wanted.target.clone(),
        memory_bytes,
        spill: None,
        ready_bytes: wanted.ready,
        principals: wanted.principals.clone(),
        part: Some(Part::First {
            listen: wanted.listen,
            interface: wanted.interface.map(str::to_owned),
            encrypted: wanted.encrypted,
        }),
        ends_with_us: true,
        among_users: false,
    }
}

/// The machines beside this one.
///
/// # Errors
/// If one is named twice.
pub fn others(hosts: &[String]) -> Result<Vec<&String>> {
    let hosts: Vec<&String> = hosts.iter().filter(|host| !is_this(host)).collect();
    for (at, host) in hosts.iter().enumerate() {
        if hosts[..at].contains(host) {
            bail!("--hosts: {host} is named twice");
        }
    }
    Ok(hosts)
}

/// Those that are not in yet.
fn absent<'a>(others: &'a [Machine], status: &Status) -> Vec<&'a str> {
    let members = || status.partition.iter().flat_map(|partition| &partition.members);
    let is_in = |one: &Machine| {
        members().any(|member| {
            let there = member.connected && !member.seat.addresses.is_empty();
            there && member.seat.member == one.invited.me
        })
    };
    others.iter().filter(|one| !is_in(one)).map(|one| &*one.host).collect()
}

impl All<'_> {
    /// All come, with the library at one path.
    fn come(&mut self) -> Result<()> {
        self.invite()?;
        self.await_all()?;
        self.be_ahead()?;
        self.give_roles()
    }

    /// Before any program begins.
    fn give_roles(&self) -> Result<()> {
        let of = |host: &String| {
            let other = self.others.iter().find(|one| one.host == *host);
            other.map_or(Member::LEAST, |one| one.invited.me)
        };
        let storage: Vec<Member> = self.wanted.storage.iter().map(of).collect();
        if storage.is_empty() { Ok(()) } else { role::give(&self.client, &storage) }
    }

    /// What another machine is to serve.
    fn service<'s>(&'s self, name: &'s str) -> Service<'s> {
        Service {
            name,
            named: self.wanted.instance.is_some(),
            target: self.wanted.target.as_deref(),
            prefix: self.wanted.prefix,
            memory: self.wanted.memory,
            ready: self.wanted.ready,
            port: self.wanted.listen.port(),
            interface: self.wanted.interface,
        }
    }

    fn invite(&mut self) -> Result<()> {
        let name = instances::name_of(&self.instance);
        let mut hosts = Hosts::default();
        let mut invited = Vec::new();
        for host in others(self.wanted.hosts)? {
            let invitation = self.invitation()?;
            hosts.invited(&invitation, host);
            let service = self.service(&name);
            invited.push(Machine::start(host, &service, &self.supply, invitation)?);
        }
        self.others = invited;
        hosts.keep(&self.instance);
        Ok(())
    }

    /// Lets others in from now on, if they are to come by themselves.
    fn open_door(&self, around: &mut Surroundings) -> Result<Option<Door>> {
        let Some(directory) = self.wanted.target.as_deref().filter(|_| self.wanted.spreads) else {
            return Ok(None);
        };
        let listen = self.wanted.listen;
        // That port itself is the server's.
        let port = if listen.port() == 0 { Some(0) } else { listen.port().checked_add(1) };
        let port = port.context("--listen: the port after it is needed, too, with --spread")?;
        let at = match self.wanted.interface {
            Some(interface) => terral_server::of_interface(interface, port)?,
            None => SocketAddr::new(listen.ip(), port),
        };
        let program = match &self.held {
            Some(_) => self.supply.ahead.program(),
            None => self.supply.build.program.clone(),
        };
        let words = self.service(&instances::name_of(&self.instance)).words(&self.supply);
        let house = House { instance: self.instance.clone(), words, supply: self.supply.clone() };
        let door = Door::open(at, house, directory, Hosts::of(&self.instance))?;
        around.joins = Some((program, door.ticket.clone()));
        Ok(Some(door))
    }

    /// The server listens a moment after it can be asked.
    fn invitation(&self) -> Result<String> {
        let begin = Instant::now();
        loop {
            match self.client.invite() {
                Err(error) if error.kind == terral_client::ErrorKind::Busy => {}
                invitation => return Ok(invitation?),
            }
            if begin.elapsed() > COMING {
                bail!("the server does not listen");
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until each serves its machine, and all are in. One that was reached may have to bring
    /// first what an earlier run left there.
    fn await_all(&mut self) -> Result<()> {
        let (mut serve_since, mut sent) = (None, Sent::default());
        loop {
            self.hear()?;
            sent.say(&self.others, &self.supply);
            let of = |stage| self.others.iter().filter(move |one| one.stage == stage);
            if of(Stage::Serves).count() == self.others.len() {
                let absent = absent(&self.others, &self.client.status()?);
                if absent.is_empty() {
                    return Ok(());
                }
                if serve_since.get_or_insert_with(Instant::now).elapsed() > COMING {
                    bail!(
                        "{}: no connection between its server and that of this machine: is a \
                         firewall between them? (--listen PORT)",
                        absent.join(", ")
                    );
                }
            }
            if self.signals.count() > 0 {
                bail!("a signal came before all machines did");
            }
            let late = self
                .others
                .iter_mut()
                .filter_map(|one| (one.waited() > COMING).then_some(&*one.host));
            let late: Vec<&str> = late.collect();
            if !late.is_empty() {
                bail!("{}: not reached in {} s", late.join(", "), COMING.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Takes in what the others have said. An error if one of them cannot go on.
    fn hear(&mut self) -> Result<()> {
        for one in &mut self.others {
            if !one.hear() || one.failed.is_some() {
                bail!(why_not(one));
            }
        }
        Ok(())
    }

    /// Where one machine lacked `terral`, the library is on all of them where it was sent to.
    fn be_ahead(&mut self) -> Result<()> {
        if self.others.iter().all(|one| !one.ahead) {
            return Ok(());
        }
        let Supply { ahead, build, .. } = &*self.supply;
        self.held = Some(ahead.keep(build).with_context(this)?);
        self.others.iter_mut().filter(|one| !one.ahead).for_each(|one| one.tell(Order::Ahead));
        while self.others.iter().any(|one| !one.ahead) {
            self.hear()?;
            if self.signals.count() > 0 {
                bail!("a signal came before all machines did");
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Nothing of it is wanted, or nothing stays.
    fn dismiss(mut self) -> Result<()> {
        end(&mut self.others, Order::End);
        self.server.dismiss(&self.client)
    }

    /// Ends a run without a permanent directory, or one that has not begun.
    fn end(mut self, ended: Result<Ended>) -> Result<u8> {
        let lost: Vec<Machine> = self.others.extract_if(.., |one| !one.hear()).collect();
        if !lost.is_empty() && ended.is_ok() {
            let lost: Vec<String> = lost.into_iter().map(Machine::gone).collect();
            say(format_args!("what only the memory of {} had is lost", lost.join(", ")));
        }
        if let Ok(status) = self.client.status() {
            note(format_args!("on this machine: {}", calls(&status.totals)));
        }
        let instance = self.instance.clone();
        self.dismiss()?;
        let ended = ended?;
        ended.watch.seen(&instance).lines().for_each(say);
        Ok(ended.code)
    }

    /// Waits until all is in the permanent directory, then ends all.
    fn gather(mut self, ended: &Ended, tell: Tell<'_>) -> Result<u8> {
        let others = self.others.iter().map(|one| one.host.clone());
        let machines: Vec<String> = std::iter::once(this()).chain(others).collect();
        let (client, others, signals) = (&self.client, &mut self.others, &self.signals);
        let (limit, deaf) = (self.wanted.limit, None);
        let gathering = Gathering { client, others, signals, limit, deaf };
        let Gathered { mut status, paid, mut lost } = gathering.pay_off().with_context(|| {
            let name = instances::name_of(&self.instance);
            format!("what is not in the permanent directory is in memory: `terral recover {name}`")
        })?;
        lost::forget_arrived(&mut status, self.wanted.target.as_deref());
        let wait_seconds = ended.at.elapsed().as_secs_f64();
        let name = instances::name_of(&self.instance);
        let mut strays = strays::save(&self.instance, &status, &name)?;
        let past = ended.watch.seen(&self.instance);
        let mut restarts = self.server.restarts();
        end(&mut self.others, if paid { Order::End } else { Order::Keep });
        if paid {
            self.server.dismiss(&self.client)?;
        } else {
            self.server.dismiss_soon(&self.client)?;
        }
        let mut owe: Vec<String> = is_left(&self.instance).then(this).into_iter().collect();
        let program = match &self.held {
            Some(_) => self.supply.ahead.program().display().to_string(),
            None => "terral".into(),
        };
        for one in self.others {
            let Some(end) = &one.end else {
                lost.push(one.gone());
                continue;
            };
            restarts += end.restarts;
            strays.extend(end.strays.iter().cloned());
            owe.extend(end.owes.then_some(one.host));
        }
        let arrived = owe.is_empty() && lost.is_empty();
        let directory = self.wanted.target.as_deref().unwrap_or(Path::new(""));
        tell(&Summary {
            instance: &name,
            directory,
            command_status: ended.code,
            command_seconds: ended.seconds,
            wait_seconds,
            restarts,
            state: if arrived { Whereabouts::Arrived } else { Whereabouts::Owed },
            totals: status.totals,
            server: &status,
            strays: &strays,
            past: &past,
            earlier: &self.earlier,
            machines: &machines,
            lost: &lost,
        })?;
        let brings = format!("{program} recover {name}");
        let left = what_is_left(&brings, directory, (&owe, &lost), is_any_dead(&status));
        if !left.is_empty() {
            return Err(failure(code::OWED, left.join("; ")));
        }
        Ok(staging::code(self.wanted.target.as_deref(), &self.instance, ended.code))
    }
}

/// Which machines this `terral` is sent to, for people.
#[derive(Default)]
struct Sent {
    said: Vec<String>,
    since: Option<Instant>,
}

impl Sent {
    /// Says it once all have wanted it who do, or a moment has gone.
    fn say(&mut self, others: &[Machine], supply: &Supply) {
        let of = |stage| others.iter().filter(move |one| one.stage == stage);
        let hosts = of(Stage::Sent).map(|one| &one.host).filter(|host| !self.said.contains(host));
        let hosts: Vec<String> = hosts.cloned().collect();
        if hosts.is_empty() {
            return;
        }
        let since = self.since.get_or_insert_with(Instant::now);
        if of(Stage::Dialed).count() == 0 || since.elapsed() > MOMENT {
            let (all, bytes) = (hosts.join(", "), bytes(supply.bytes()));
            let place = supply.ahead.home.display();
            note(format_args!("{all}: terral is not there: sending it to {place}, {bytes}"));
            self.said.extend(hosts);
            self.since = None;
        }
    }
}

/// What the permanent directory does not have, for people.
fn what_is_left(
    brings: &str,
    directory: &Path,
    (owe, lost): (&[String], &[String]),
    is_dead: bool,
) -> Vec<String> {
    let directory = directory.display();
    let mut left = Vec::new();
    if !owe.is_empty() {
        left.push(format!(
            "the rest for {directory} stays in the memory of {} until they go down: `{brings}` on \
             each of them brings it",
            owe.join(", ")
        ));
    }
    if !lost.is_empty() {
        left.push(format!(
            "what only the memory of {} had is not in {directory}: {}",
            lost.join(", "),
            what_can_be_done(brings, is_dead)
        ));
    }
    left
}

/// Whether somebody has said of a machine that it is dead.
fn is_any_dead(status: &Status) -> bool {
    let members = status.partition.iter().flat_map(|partition| &partition.members);
    let dead = |standing| matches!(standing, Standing::Removed { verdict: Verdict::Dead, .. });
    members.map(|member| member.seat.standing).any(dead)
}

/// What can be done about a lost machine's memory. Others may have made again what it removed.
fn what_can_be_done(brings: &str, is_dead: bool) -> String {
    match is_dead {
        false => {
            format!("once a machine is back, `{brings}` there brings what is left")
        }
        true => format!(
            "if its memory is there all the same, though it was said to be dead, `{brings}` there \
             brings that, and does its last removals and renames there, too: keep a copy of the \
             directory before"
        ),
    }
}

/// Why a machine did not come.
fn why_not(one: &Machine) -> String {
    let host = &one.host;
    if let Some(why) = &one.failed {
        return format!("{host}: {why}");
    }
    let unknown = if is_known(host) { "" } else { "no such host is known here; " };
    format!(
        "{host}: no server came up there ({unknown}what it said is above; {} must get there \
         without a question)",
        if batch::is_slurm() { "TERRAL_RSH or srun" } else { "TERRAL_RSH or ssh" }
    )
}

/// Tells them to go, and waits until they have, or for long.
pub fn end(others: &mut [Machine], order: Order) {
    others.iter_mut().for_each(|one| one.tell(order));
    let until = Instant::now() + GOING;
    others.iter_mut().for_each(|one| one.outwait(until));
}

#[cfg(test)]
mod tests {
    use super::is_this;

    #[test]
    fn a_host_may_be_this() {
        assert!(is_this("localhost") && !is_this("surely-another"));
    }
}
