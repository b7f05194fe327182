//! The door of a run that spreads: servers of machines that nobody has named come in here while
//! COMMAND runs, as those do that were reached by ssh: what is said to each is the same.
//!
//! Invariants: who does not prove that it has the run's ticket hears nothing, and costs a thread
//! for a bounded time; who was let in and does not come is removed from the partition again; once
//! COMMAND has ended nobody is let in. Not here: who knocks (`join`).

use std::ffi::OsString;
use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, poll};
use terral_client::{Client, Other, Status};
use terral_network::tcp::Private;
use terral_server::{Member, Standing, Verdict};

use crate::instances;
use crate::members::Hosts;
use crate::remote::{Machine, Stage};
use crate::report::{note, say};
use crate::supply::Supply;
use crate::ticket::Ticket;
use crate::words::{Admission, Knock, Order, hear, speak};

/// Who knocks has so long to prove what it has to, and to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// A server that has come up has so long to reach this machine's.
const COMING: Duration = Duration::from_secs(60);
/// Who is told to go has so long.
const GOING: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
/// So many may be at the door at the same time: as many as begin at once on many machines.
const STRANGERS_MAX: usize = 256;

/// What there is behind the door.
pub struct House {
    /// The first machine's instance.
    pub instance: PathBuf,
    /// What has `terral` serve another machine.
    pub words: Vec<OsString>,
    /// This build.
    pub supply: Arc<Supply>,
}

/// Who has come in.
struct Hall {
    machines: Vec<Machine>,
    hosts: Hosts,
    /// Nobody is let in any more.
    over: bool,
}

struct Shared {
    house: House,
    hall: Mutex<Hall>,
    ticket: Ticket,
    /// How many are at the door.
    strangers: AtomicUsize,
    /// How many of those that were let in are being sent away.
    leaving: AtomicUsize,
}

/// A door that is open.
pub struct Door {
    shared: Arc<Shared>,
    /// Where its ticket is.
    pub ticket: PathBuf,
    /// Ends the wait for who knocks.
    stop: UnixStream,
    keeper: JoinHandle<()>,
}

/// What is known of a member.
fn known(status: &Status, member: Member) -> Option<&Other> {
    let mut members = status.partition.iter().flat_map(|partition| &partition.members);
    members.find(|one| one.seat.member == member)
}

/// Whether a member is in: its server and that of this machine have said who they are.
pub fn is_in(status: &Status, member: Member) -> bool {
    known(status, member).is_some_and(|one| one.connected && !one.seat.addresses.is_empty())
}

/// Whether it has reached the others' servers once.
pub fn has_been_in(status: &Status, member: Member) -> bool {
    known(status, member).is_some_and(|one| !one.seat.addresses.is_empty())
}

/// Whether it is a member that was not removed.
pub fn is_seated(status: &Status, member: Member) -> bool {
    known(status, member).is_some_and(|one| matches!(one.seat.standing, Standing::In(_)))
}

/// Whether anything is known of a member.
pub fn is_known(status: &Status, member: Member) -> bool {
    known(status, member).is_some()
}

/// Whether a member has left in order.
pub fn has_left(status: &Status, member: Member) -> bool {
    known(status, member).is_some_and(|one| match one.seat.standing {
        Standing::Removed { verdict, .. } => verdict == Verdict::Left,
        Standing::In(_) => false,
    })
}

impl Door {
    /// Opens it at this address; its ticket is left in the permanent directory. `hosts` are in.
    ///
    /// # Errors
    /// If nobody can listen there, or the ticket cannot be left.
    pub fn open(at: SocketAddr, house: House, directory: &Path, hosts: Hosts) -> Result<Door> {
        let listener =
            TcpListener::bind(at).with_context(|| format!("--spread: listen at {at}"))?;
        listener.set_nonblocking(true)?;
        let ticket = Ticket::new(terral_server::reachable(listener.local_addr()?))?;
        let instance = Client::observe(&house.instance)?.instance_id();
        let left = ticket.leave(directory, instance).context("--spread: the ticket of this run")?;
        let hall = Mutex::new(Hall { machines: Vec::new(), hosts, over: false });
        let [strangers, leaving] = [(); 2].map(|()| AtomicUsize::new(0));
        let shared = Arc::new(Shared { house, hall, ticket, strangers, leaving });
        let (stop, stopped) = UnixStream::pair()?;
        let of_keeper = shared.clone();
        let keeper = std::thread::spawn(move || keep(&listener, &stopped, &of_keeper));
        Ok(Door { shared, ticket: left, stop, keeper })
    }

    /// Closes it. Who has come in.
    pub fn close(self) -> Vec<Machine> {
        let Door { shared, ticket, stop, keeper } = self;
        let _ = std::fs::remove_file(ticket);
        let mut hall = shared.hall();
        hall.over = true;
        let mut machines = std::mem::take(&mut hall.machines);
        drop(hall);
        drop(stop);
        // It does not panic, and waits for nobody.
        let _ = keeper.join();
        // Those on their way have served nobody, and are not waited for.
        let late = machines.extract_if(.., |one| {
            one.hear();
            one.stage != Stage::Serves
        });
        late.for_each(|mut one| one.tell(Order::End));
        // Not for long, as nobody who leaves is waited for longer.
        while shared.leaving.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(POLL);
        }
        machines
    }
}

/// Hears who knocks, until the other end of `stopped` is gone.
fn keep(listener: &TcpListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let mut watched =
            [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        let _ = poll(&mut watched, None);
        if !watched[1].revents().is_empty() {
            return;
        }
        let Ok((socket, _)) = listener.accept() else {
            // Nothing, or no descriptor for it.
            std::thread::sleep(POLL);
            continue;
        };
        if shared.strangers.fetch_add(1, Ordering::SeqCst) >= STRANGERS_MAX {
            shared.strangers.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let shared = shared.clone();
        std::thread::spawn(move || {
            let knocked = shared.meet(socket);
            shared.strangers.fetch_sub(1, Ordering::SeqCst);
            if let Some((private, from, knock)) = knocked {
                shared.answer(private, from, &knock);
            }
        });
    }
}

type Met = (Private, BufReader<UnixStream>, Knock);

impl Shared {
    fn hall(&self) -> MutexGuard<'_, Hall> {
        // Whoever panics with it ends the process.
        self.hall.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Who it is, once it has proven that it has the ticket.
    fn meet(&self, socket: TcpStream) -> Option<Met> {
        socket.set_nonblocking(false).ok()?;
        let private = Private::accept(socket, &self.ticket.secret(), PATIENCE).ok()?;
        private.stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut from = BufReader::new(private.stream.try_clone().ok()?);
        let knock = hear(&mut from)?;
        private.stream.set_read_timeout(None).ok()?;
        Some((private, from, knock))
    }

    fn answer(&self, mut private: Private, from: BufReader<UnixStream>, knock: &Knock) {
        match self.let_in(&mut private, from, knock) {
            Ok((machine, begin)) => self.accompany(&knock.host, machine, begin),
            Err(why) => {
                let why = format!("{why:#}");
                let _ = speak(&mut private.stream, &Admission::Refused(why.clone()));
                if !self.hall().over {
                    say(format_args!("{}: not let in: {why}", knock.host));
                }
                private.close();
            }
        }
    }

    fn let_in(
        &self,
        private: &mut Private,
        from: BufReader<UnixStream>,
        knock: &Knock,
    ) -> Result<(Member, Instant)> {
        let House { instance, words, supply } = &self.house;
        crate::batch::parse_host(&knock.host).map_err(|why| anyhow!(why))?;
        if knock.build != supply.build.id {
            let program = supply.build.program.display();
            anyhow::bail!(
                "{program} there is another build than here: have the same there, or name the \
                 machine with `terral run --hosts`, which sends this one"
            );
        }
        let mut hall = self.hall();
        anyhow::ensure!(!hall.over, "the run is over");
        let invitation = Client::observe(instance)?.invite()?;
        let machine = Machine::come(
            &knock.host,
            &instances::name_of(instance),
            (from, private.stream.try_clone()?),
            supply,
            invitation.clone(),
        )?;
        let member = machine.invited.me;
        hall.hosts.invited(&invitation, &knock.host);
        hall.hosts.keep(instance);
        hall.machines.push(machine);
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        speak(&mut private.stream, &Admission::Serve(words))?;
        Ok((member, Instant::now()))
    }

    /// Waits until it is in. One that cannot come is none any more.
    fn accompany(&self, host: &str, member: Member, begin: Instant) {
        let mut serves = None;
        let why = loop {
            std::thread::sleep(POLL);
            let mut hall = self.hall();
            if hall.over {
                return;
            }
            let mut all = hall.machines.iter_mut();
            let Some(machine) = all.find(|one| one.invited.me == member) else { return };
            let there = machine.hear();
            if let Some(why) = &machine.failed {
                break why.clone();
            }
            if !there {
                break "its `terral` has ended".into();
            }
            if machine.stage != Stage::Serves {
                continue;
            }
            drop(hall);
            let status = Client::observe(&self.house.instance).and_then(|client| client.status());
            if status.is_ok_and(|status| is_in(&status, member)) {
                let took = begin.elapsed().as_millis();
                return note(format_args!("{host}: has joined, in {took} ms"));
            }
            if serves.get_or_insert_with(Instant::now).elapsed() > COMING {
                break "no connection between its server and that of this machine: is a firewall \
                       between them? (--listen PORT)"
                    .into();
            }
        };
        say(format_args!("{host}: cannot join: {why}"));
        self.dismiss(member);
    }

    /// Ends what was let in and has served nobody.
    fn dismiss(&self, member: Member) {
        let mut hall = self.hall();
        let Some(at) = hall.machines.iter().position(|one| one.invited.me == member) else {
            return;
        };
        let mut machine = hall.machines.remove(at);
        self.leaving.fetch_add(1, Ordering::SeqCst);
        drop(hall);
        machine.tell(Order::End);
        machine.outwait(Instant::now() + GOING);
        let removed =
            Client::observe(&self.house.instance).and_then(|client| client.fence(member, true));
        if let Err(error) = removed {
            say(format_args!("{}: {error}", machine.host));
        }
        drop(machine);
        self.leaving.fetch_sub(1, Ordering::SeqCst);
    }
}
