//! `terral serve --users`: all users of this machine see one `/terral`. Root's server decides, and
//! each user who comes gets one of his own, which is his process: his programs share memory with
//! that and with nobody else, and what it says is believed as far as he is.
//!
//! Invariants: who he is the kernel says; one server a user; nothing of root's is his to read. Root
//! opens nothing where he may write: what is looked at there a process of his looks at (`host`).
//! What he can have started is bounded: one start at a time, a second apart, a few members in all.
//! Not here: how that begins (`beginning`), what another user's server is given (`terral_server`),
//! how he asks for his (`knock`), how one is started, and for whom beside him (`starting`,
//! `for_others`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use terral_client::Client;
use terral_server::records::Secret;

use crate::gathering::Gathering;
use crate::hosts::end;
use crate::knock::{DOORS, Reply, door_of};
use crate::limits::Limits;
use crate::machine;
use crate::members::Hosts;
use crate::remote::Machine;
use crate::report::{code, failure, say};
use crate::serve::Arguments;
use crate::server::Server;
use crate::signals::Signals;
use crate::supply::Supply;
use crate::user::User;
use crate::words::{Order, speak};

mod again;
mod beginning;
mod bounds;
mod for_others;
mod kept;
mod last;
mod leaving;
mod places;
mod roots;
mod starting;
mod staying;
mod times;
mod unasked;
mod waited;

use for_others::ForOthers;
use last::Last;
use places::{Places, USERS_MAX};

/// So many processes of one user are answered at the same time.
const TURNS_EACH: usize = 4;
/// One is not started again before.
const APART: Duration = Duration::from_secs(1);
/// Who knocks and does not read his answer is not waited for longer; nor is a server that is told
/// to go.
const PATIENCE: Duration = Duration::from_secs(10);
/// A user's server that says nothing for so long is not waited for in the end.
const DEAF: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// How often it is looked whether a signal has come.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The invitation by which one is a member, whichever process it is; and whether one has come by
/// it.
type Word = (String, bool);

/// What there is of a user's server.
#[derive(Default)]
struct Chair {
    /// Whose it is, by his number.
    user: u32,
    /// If it was begun.
    machine: Option<Machine>,
    /// By what it is a member.
    word: Option<Word>,
    /// The key by which one was asked for, whatever was answered: by that it is the same member.
    secret: Option<Secret>,
    /// When one was started last.
    started: Option<Instant>,
    /// As he has come himself, if he has: else it runs for others.
    himself: Option<(User, Limits)>,
    /// The one that runs, or has run last, began as he had not.
    for_others: bool,
    /// It has died, which nobody told it to, and no other one goes on with what it had.
    died: bool,
    /// No other one goes on with what it owes, as far as it has said.
    owes: bool,
    /// How often one has left in order that was told to go as it started.
    left: usize,
    /// Nobody has asked for the one that is being started: it is to bring what the one before owes.
    for_nobody: bool,
    /// What was written of it last (`kept`).
    kept: Vec<u8>,
}

impl Chair {
    /// Whether another one is not to be yet.
    fn is_just_started(&self) -> bool {
        self.started.is_some_and(|at| at.elapsed() < APART)
    }

    /// Whether none runs, and as far as is known none has come by the invitation.
    fn is_unheard(&self) -> bool {
        self.machine.is_none() && matches!(self.word, Some((_, false)))
    }

    /// Whether the one that runs is as his account says, and he has come.
    fn is_to_be_his(&self) -> bool {
        self.for_others && self.himself.is_some()
    }
}

type Seat = Arc<Mutex<Chair>>;

struct House {
    instance: PathBuf,
    name: String,
    target: PathBuf,
    memory: u64,
    supply: Arc<Supply>,
    seats: Mutex<BTreeMap<u32, Seat>>,
    places: Mutex<Places>,
    hosts: Mutex<Hosts>,
    /// Over which interface others come, if it matters; in a pool.
    interface: Option<String>,
    /// Whether it is one of a pool's machines.
    of_pool: bool,
    /// The partition's number, once a user has come.
    partition: Mutex<u128>,
    /// How many servers of each user have begun with nothing.
    lives: Mutex<BTreeMap<u32, usize>>,
    /// How many who have knocked are being answered, by user.
    answering: Mutex<BTreeMap<u32, usize>>,
    /// Nobody's is begun any more.
    over: AtomicBool,
}

/// One of these, of a user.
struct Turn(Arc<House>, u32);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = lock(&self.0.answering);
        if let Entry::Occupied(mut of) = all.entry(self.1) {
            *of.get_mut() -= 1;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

/// How his server is called among others.
fn host_of(user: &User) -> String {
    host_of_number(user.0.user)
}

/// The same, by his number.
fn host_of_number(user: u32) -> String {
    format!("user-{user}")
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
        // It gets its name once it is heard there. Who served by that is gone, as we are here.
        let next = doors.join(format!(".{name}"));
        let _ = std::fs::remove_file(&next);
        let listener = UnixListener::bind(&next).with_context(|| shown.to_string())?;
        std::fs::set_permissions(&next, PermissionsExt::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        std::fs::rename(&next, &path).with_context(|| shown.to_string())?;
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
    let wanted = beginning::found(arguments).map_err(not_started)?;
    // Until here one ends it at once.
    let signals = Signals::listen().map_err(not_started)?;
    let (house, server, door, _claim) =
        beginning::begin(arguments, wanted, &signals).map_err(not_started)?;
    let house = Arc::new(house);
    house.sit_as_before();
    let others = ForOthers::begin(house.clone()).map_err(not_started)?;
    house.open(&door, &server, &signals);
    drop(door);
    house.over.store(true, Ordering::SeqCst);
    let mut last = Last::new(&signals, arguments.wait_timeout);
    others.end();
    if !server.has_ended() {
        house.begin_the_last(&mut last);
    }
    match house.of_pool {
        true => house.leave(server, &mut last),
        false => house.close(server, &signals, arguments.wait_timeout),
    }
}

impl House {
    /// Lets in who knocks, until a signal comes or root's server was told to end.
    fn open(self: &Arc<Self>, door: &Door, server: &Server, signals: &Signals) {
        while signals.count() == 0 && !server.has_ended() {
            let _ = poll(&mut [PollFd::new(&door.0, PollFlags::IN)], Some(&LOOK));
            let Ok((mut stream, _)) = door.0.accept() else { continue };
            let Some(turn) = self.turn(&stream) else {
                // What nobody reads is lost.
                let _ = stream.set_nonblocking(true);
                let _ = speak(&mut stream, &Reply::Starting);
                continue;
            };
            let house = self.clone();
            // Without a thread he hears nothing, and comes again.
            let _ = std::thread::Builder::new().spawn(move || {
                house.answer(stream);
                drop(turn);
            });
        }
    }

    /// One of those that are answered at the same time, a few of each user; nobody waits in it, but
    /// who is waited for to start. Who gets none comes again.
    fn turn(self: &Arc<Self>, stream: &UnixStream) -> Option<Turn> {
        let user = rustix::net::sockopt::socket_peercred(stream).ok()?.uid.as_raw();
        let mut all = lock(&self.answering);
        let of = all.get(&user).copied().unwrap_or(0);
        let may = of < TURNS_EACH && all.values().sum::<usize>() < USERS_MAX;
        may.then(|| all.insert(user, of + 1))?;
        drop(all);
        Some(Turn(self.clone(), user))
    }

    fn answer(&self, mut stream: UnixStream) {
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let user = User::of_peer(&stream);
        let reply = user.and_then(|(user, limits)| self.serve_him(&user, &limits));
        let reply = reply.unwrap_or_else(|error| Reply::Refused(format!("{error:#}")));
        // He may have gone.
        let _ = speak(&mut stream, &reply);
    }

    /// Has his server run; who comes meanwhile comes again.
    fn serve_him(&self, user: &User, limits: &Limits) -> Result<Reply> {
        let id = user.0.user;
        ensure!(id != 0, "root's server is there: no other one is needed");
        let seat = self.seat_of(user)?;
        let Ok(mut seat) = seat.try_lock() else { return Ok(Reply::Starting) };
        if seat.for_others && seat.is_just_started() {
            return Ok(Reply::Starting);
        }
        let is_new = lock(&self.places).take(id)?;
        let came = seat.himself.replace((user.clone(), limits.clone()));
        let reply = self.has_it_run((user, limits), &mut seat);
        if !matches!(reply, Ok(Reply::Serves)) {
            // Who has none has not come.
            seat.himself = came;
            if is_new {
                lock(&self.places).give_back(id);
            }
        }
        reply
    }

    /// The seat of a user, if there may be one for him.
    fn seat_of(&self, user: &User) -> Result<Seat> {
        let id = user.0.user;
        let is_new = !lock(&self.seats).contains_key(&id);
        ensure!(!is_new || !user.is_of_a_range(), "{id}: a number that was given to another user");
        let new = || Arc::new(Chair { user: id, ..Chair::default() }.into());
        Ok(lock(&self.seats).entry(id).or_insert_with(new).clone())
    }

    /// Has the server of this seat run, if it does not.
    fn has_it_run(&self, who: (&User, &Limits), seat: &mut Chair) -> Result<Reply> {
        let runs = seat.machine.as_mut().is_some_and(|machine| machine.hear());
        if runs && !seat.is_to_be_his() {
            return Ok(Reply::Serves);
        }
        if seat.is_just_started() {
            return Ok(Reply::Starting);
        }
        if !runs {
            self.has_gone(seat);
        }
        self.begin_his(who, seat)?;
        Ok(Reply::Serves)
    }

    /// The process of a seat is gone: another one goes on with what it has left, as the same
    /// member.
    fn has_gone(&self, seat: &mut Chair) {
        let Some(dead) = seat.machine.take() else { return };
        seat.owes = dead.end.as_ref().is_none_or(|end| end.owes);
        // One that says why it has ended, or that it has, did so by itself.
        seat.died = dead.end.is_none() && dead.failed.is_none();
        if seat.died {
            say(format_args!("{}: its server is gone; starting another one", dead.host));
        }
        // What is not written down costs the next process of root's a start.
        let _ = self.keep(seat);
    }

    /// Nothing more is begun.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// All bring what they owe, then all go.
    fn close(&self, server: Server, signals: &Signals, limit: Option<Duration>) -> Result<u8> {
        let seats = std::mem::take(&mut *lock(&self.seats));
        let users: Vec<u32> = seats.keys().copied().collect();
        let (mut others, mut left) = (Vec::new(), false);
        for seat in seats.into_values() {
            let mut chair = lock(&seat);
            others.extend(chair.machine.take());
            left |= chair.owes;
        }
        if server.has_ended() {
            end(&mut others, Order::Keep);
            let name = &self.name;
            let what = "root's server was stopped: what users' servers owe stays in their memory";
            return Err(failure(code::OWED, format!("{name}: {what}: `terral recover {name}`")));
        }
        let client = Client::observe(&self.instance)?;
        say("bringing everything to the permanent directory; twice more to end at once");
        let deaf = Some(DEAF);
        let gathering = Gathering { client: &client, others: &mut others, signals, limit, deaf };
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
        let owes = left || others.iter().any(|one| one.end.as_ref().is_none_or(|end| end.owes));
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
