//! `terral serve --users`: all users of this machine see one `/terral`. Root's server decides, and
//! each user who comes gets one of his own, which is his process: his programs share memory with
//! that and with nobody else, and what it says is believed as far as he is.
//!
//! Invariants: who he is the kernel says; one server a user; nothing of root's is his to read. Not
//! here: what another user's server is given (`terral_server`), and how he asks for his (`knock`).

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use terral_client::{Client, ErrorKind};

use crate::claim::{Claim, Purpose};
use crate::door::is_in;
use crate::gathering::Gathering;
use crate::hosts::end;
use crate::instances::{self, PREFIX};
use crate::knock::{DOORS, Reply, door_of};
use crate::machine::{self, SHARED_MEMORY};
use crate::members::Hosts;
use crate::remote::{Machine, Service, Stage};
use crate::report::{code, failure, note, say};
use crate::search::{Place, Wanted};
use crate::serve::{Arguments, permanent_directory};
use crate::server::{self, Part, Server, Start};
use crate::signals::Signals;
use crate::supply::Supply;
use crate::takeover;
use crate::units::bytes;
use crate::user::User;
use crate::words::{Order, speak};

/// Most users at the same time.
const USERS_MAX: usize = 64;
/// A user's server has so long to come.
const COMING: Duration = Duration::from_secs(60);
/// Who knocks and does not read his answer is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// How often it is looked whether a signal has come.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// A user's server has that part of root's bound, unless told otherwise.
const SHARE: u64 = 8;

/// A user's server, if one was begun.
type Seat = Arc<Mutex<Option<Machine>>>;

struct House {
    instance: PathBuf,
    name: String,
    target: PathBuf,
    memory: u64,
    supply: Arc<Supply>,
    seats: Mutex<BTreeMap<u32, Seat>>,
    hosts: Mutex<Hosts>,
    /// The partition's number, once a user has come.
    partition: Mutex<u128>,
}

/// How his server is called among others.
fn host_of(user: &User) -> String {
    format!("user-{}", user.0.user)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The socket at which users knock. It goes when this does.
struct Door(UnixListener, PathBuf);

impl Door {
    fn open(name: &str) -> Result<Door> {
        let doors = Path::new(DOORS);
        std::fs::create_dir_all(doors).with_context(|| DOORS.to_owned())?;
        std::fs::set_permissions(doors, PermissionsExt::from_mode(0o755))?;
        let path = door_of(name);
        let shown = path.display();
        // Who served by this name is gone: the instance is ours.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| shown.to_string())?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok(Door(listener, path))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

/// Serves until a signal comes.
///
/// # Errors
/// If it cannot begin, or not all is in the permanent directory in the end.
pub fn serve(arguments: &Arguments) -> Result<u8> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    machine::raise_descriptors().map_err(not_started)?;
    let signals = Signals::listen().map_err(not_started)?;
    let (house, server, door, _claim) = begin(arguments, &signals).map_err(not_started)?;
    let house = Arc::new(house);
    house.open(&door, &server, &signals);
    drop(door);
    house.close(server, &signals, arguments.wait_timeout)
}

fn begin(arguments: &Arguments, signals: &Signals) -> Result<(House, Server, Door, Claim)> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "--users needs root, as each user's server is his process; without it `terral serve` \
             serves you alone"
        );
    }
    let wanted = arguments.name.as_deref().unwrap_or(Path::new(instances::DEFAULT));
    ensure!(!wanted.is_absolute(), "--users: --name is a name, by which users find it");
    let wanted = instances::locate(wanted.as_os_str());
    let name = instances::name_of(&wanted);
    let needed = "--users needs --to DIR, where files of all of them are to arrive";
    let target = permanent_directory(arguments.to.as_deref().context(needed)?)?;
    let wanted = Wanted {
        target: &target,
        prefix: Path::new(PREFIX),
        memory: arguments.memory,
        instance: Some(wanted),
        beside: arguments.name.is_some(),
        purpose: Purpose::Stay,
        several: true,
        fresh: arguments.fresh,
        limit: arguments.wait_timeout,
    };
    let Place { instance, memory_bytes, claim } = takeover::find(&wanted, signals)?.0;
    let supply = Arc::new(Supply::new(&server::preload_library()?)?);
    let server = Server::start(Start {
        instance: instance.clone(),
        target: Some(target.clone()),
        memory_bytes,
        spill: None,
        ready_bytes: arguments.ready,
        principals: arguments.kerberos.checked(arguments.principals.as_deref())?,
        part: Some(Part::First {
            listen: ([127, 0, 0, 1], 0).into(),
            interface: None,
            // Nobody but root reads what goes over this machine's loopback device.
            encrypted: false,
        }),
        ends_with_us: true,
    });
    let server = server.inspect_err(|_| server::remove_unused(&instance))?;
    let bound = Client::observe(&instance)?.status()?.memory_bound_bytes;
    let memory = arguments.user_memory.unwrap_or((bound / SHARE).max(machine::LEAST_BYTES));
    let door = Door::open(&name)?;
    let shown = target.display();
    note(format_args!(
        "{name}: serving {shown} for all users of this machine, with up to {} for root and {} each",
        bytes(bound),
        bytes(memory)
    ));
    note(format_args!("they use it: terral run --instance {name} -- COMMAND…"));
    let (seats, hosts, partition) = Default::default();
    let house = House { instance, name, target, memory, supply, seats, hosts, partition };
    Ok((house, server, door, claim))
}

impl House {
    /// Lets in who knocks, until a signal comes or root's server was told to end.
    fn open(self: &Arc<Self>, door: &Door, server: &Server, signals: &Signals) {
        while signals.count() == 0 && !server.has_ended() {
            let _ = poll(&mut [PollFd::new(&door.0, PollFlags::IN)], Some(&LOOK));
            let Ok((stream, _)) = door.0.accept() else { continue };
            let house = self.clone();
            std::thread::spawn(move || house.answer(stream));
        }
    }

    fn answer(&self, mut stream: UnixStream) {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let user = User::of_peer(&stream);
        let reply = match user.and_then(|user| self.serve_him(&user)) {
            Ok(()) => Reply::Serves,
            Err(error) => Reply::Refused(format!("{error:#}")),
        };
        // He may have gone.
        let _ = speak(&mut stream, &reply);
    }

    /// Has his server run; who comes meanwhile waits for it, too.
    fn serve_him(&self, user: &User) -> Result<()> {
        let id = user.0.user;
        ensure!(id != 0, "root's server is there: no other one is needed");
        let seat = {
            let mut seats = lock(&self.seats);
            let full = seats.len() >= USERS_MAX && !seats.contains_key(&id);
            ensure!(!full, "{USERS_MAX} users are served, and no more");
            seats.entry(id).or_default().clone()
        };
        let mut seat = lock(&seat);
        let gone = seat.as_mut().is_some_and(|machine| !machine.hear());
        if seat.is_some() && !gone {
            return self.await_his(id);
        }
        if let Some(dead) = seat.take() {
            // Another one goes on with what it has left, as the same member.
            say(format_args!("{}: its server is gone; starting another one", dead.host));
            self.kill(id);
            *seat = Some(self.start(user, dead.word()?)?);
        } else {
            *seat = Some(self.start(user, self.invite(user)?)?);
        }
        let Some(Err(error)) = seat.as_mut().map(|machine| self.accompany(machine)) else {
            return Ok(());
        };
        if let Some(failed) = seat.take() {
            self.remove(id, failed);
        }
        Err(error)
    }

    /// Where a user's server has its memory. He may do there what he likes.
    fn instance_of(&self, user: u32) -> PathBuf {
        Path::new(SHARED_MEMORY).join(format!("terral-{user}")).join(&self.name)
    }

    /// A server that was killed is started again by the user's `terral host`.
    fn await_his(&self, user: u32) -> Result<()> {
        let (instance, begin) = (self.instance_of(user), Instant::now());
        while !terral_server::is_served(&instance) || terral_server::is_dying(&instance) {
            ensure!(begin.elapsed() < COMING, "your server does not come up again");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// What is there of a user's server is ended: its process, if it is his.
    fn kill(&self, user: u32) {
        let instance = self.instance_of(user);
        let pid = terral_server::server_pid(&instance).and_then(|pid| Pid::from_raw(pid as i32));
        let Some(pid) = pid else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // He may have written there whatever he likes.
        let owner = std::fs::metadata(format!("/proc/{}", pid.as_raw_nonzero()));
        if owner.is_ok_and(|found| found.uid() == user) {
            let _ = pidfd_send_signal(&handle, Signal::KILL);
        }
        let begin = Instant::now();
        while terral_server::is_served(&instance) && begin.elapsed() < PATIENCE {
            std::thread::sleep(POLL);
        }
    }

    /// A server that does not come is a member no more: what only its memory had is lost to others.
    fn remove(&self, user: u32, mut failed: Machine) {
        failed.tell(Order::Keep);
        failed.outwait(Instant::now() + PATIENCE);
        self.kill(user);
        let fenced = Client::observe(&self.instance)
            .and_then(|client| client.fence(failed.invited.me, true));
        if let Err(error) = fenced {
            say(format_args!("{}: {error}", failed.host));
        }
    }

    /// The server listens a moment after it can be asked.
    fn invite(&self, user: &User) -> Result<String> {
        let (client, begin) = (Client::observe(&self.instance)?, Instant::now());
        loop {
            match client.invite(Some(&user.0)) {
                Err(error) if error.kind == ErrorKind::Busy && begin.elapsed() < COMING => {}
                invitation => {
                    let invitation = invitation?;
                    let mut hosts = lock(&self.hosts);
                    hosts.invited(&invitation, &host_of(user));
                    hosts.keep(&self.instance);
                    return Ok(invitation);
                }
            }
            std::thread::sleep(POLL);
        }
    }

    fn start(&self, user: &User, invitation: String) -> Result<Machine> {
        let number = terral_server::Invitation::of(&invitation)?.partition.id;
        *lock(&self.partition) = number;
        terral_server::stage_for(&self.target, (user.0.user, user.0.group), number)?;
        let service = Service {
            name: &self.name,
            named: true,
            target: Some(&self.target),
            prefix: Path::new(PREFIX),
            memory: Some(self.memory),
            ready: None,
            port: 0,
            interface: Some("lo"),
        };
        let mut command = Command::new(&self.supply.build.program);
        command.args(service.words(&self.supply)).arg("--library").arg(&self.supply.build.library);
        command.arg("--user").arg(user.to_string());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.current_dir("/").process_group(0);
        let host = host_of(user);
        Machine::begun_by(command, (&host, &self.name), &self.supply, invitation)
    }

    /// Waits until it serves, and is in.
    fn accompany(&self, machine: &mut Machine) -> Result<()> {
        let (member, begin) = (machine.invited.me, Instant::now());
        loop {
            let there = machine.hear();
            if let Some(why) = &machine.failed {
                bail!("your server: {why}");
            }
            ensure!(there, "your server has ended as it started");
            if machine.stage == Stage::Serves {
                let status = Client::observe(&self.instance).and_then(|client| client.status());
                if status.is_ok_and(|status| is_in(&status, member)) {
                    let took = begin.elapsed().as_millis();
                    note(format_args!("{}: served, after {took} ms", machine.host));
                    return Ok(());
                }
            }
            ensure!(begin.elapsed() < COMING, "your server does not reach root's");
            std::thread::sleep(POLL);
        }
    }

    /// All bring what they owe, then all go.
    fn close(&self, server: Server, signals: &Signals, limit: Option<Duration>) -> Result<u8> {
        let seats = std::mem::take(&mut *lock(&self.seats));
        let users: Vec<u32> = seats.keys().copied().collect();
        let mut others: Vec<Machine> =
            seats.into_values().filter_map(|seat| lock(&seat).take()).collect();
        if server.has_ended() {
            end(&mut others, Order::Keep);
            let name = &self.name;
            let what = "root's server was stopped: what users' servers owe stays in their memory";
            return Err(failure(code::OWED, format!("{name}: {what}: `terral recover {name}`")));
        }
        let client = Client::observe(&self.instance)?;
        say("bringing everything to the permanent directory; twice more to end at once");
        let gathering = Gathering { client: &client, others: &mut others, signals, limit };
        let gathered = gathering.pay_off()?;
        end(&mut others, if gathered.paid { Order::End } else { Order::Keep });
        match gathered.paid {
            true => server.dismiss(&client)?,
            false => server.dismiss_soon(&client)?,
        }
        // What else is in one is its user's, who says so.
        let number = *lock(&self.partition);
        for user in users {
            let _ = terral_server::unstage_for(&self.target, user, number);
        }
        let owes = others.iter().any(|one| one.end.as_ref().is_none_or(|end| end.owes));
        if gathered.paid && !owes && gathered.lost.is_empty() {
            return Ok(0);
        }
        let (name, target) = (&self.name, self.target.display());
        Err(failure(
            code::OWED,
            format!(
                "not all is in {target}: it is in memory: `terral recover {name}`, by each whose \
                 it is, brings it"
            ),
        ))
    }
}
