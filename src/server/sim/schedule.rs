//! A schedule: clients that do what chance says, with a server that is killed now and then, and a
//! permanent store that fails, beside a model of what every answer must be. All that was answered,
//! or committed without asking, must be read again, by anybody, whatever died meanwhile, and in the
//! end the permanent store must have exactly that.

use std::time::Duration;

use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::tables::access;
use terral_format::wire::message::{Kind, Request};
use terral_format::{Error, ErrorKind};

use super::Sim;
use super::client::Opened;
use super::deferring::{Begun, Wish};
use super::disk::SpillDisk;
use super::faults::FAULTS;
use super::flaws::Flaw;
use super::model::{BEGUN_WITH, Content, File, Model, Node, PIECE};
use super::rights::is_refused;
use crate::core::world::World;
use locking::Held;
use mapping::Maps;
use others::Others;
use writing::Copying;

mod attributes;
mod comparing;
mod linking;
mod locking;
mod looking;
mod mapping;
mod opening;
mod others;
mod specials;
mod spilling;
mod transacting;
mod users;
mod wishing;
mod writing;

const DIRECTORIES: [&[u8]; 5] = [b"d/", b"", b"d/e/", b"d/c/", b"c/"];
/// Names that files have mostly, and those of directories.
const NAMES: [[&[u8]; 3]; 2] = [[b"a", b"b", b"f"], [b"c", b"d", b"e"]];
/// Most files that one client has open.
const OPEN_MAX: usize = 4;
const READ: u8 = access::READ as u8;
const BOTH: u8 = (access::READ | access::WRITE) as u8;

fn begun_with() -> Content {
    let pieces = (0..3).map(|at| (at * 200, [at as u8 + 1; PIECE])).collect();
    Content { size: 401 * PAGE_BYTES as u64, pieces, ..Content::default() }
}

/// A file that a client has open.
struct Handle {
    opened: Opened,
    file: File,
    writes: bool,
}

/// Something that a client has begun, and the file that it is about, if it is about an open one.
struct Doing(Begun, Option<File>);

/// A program.
struct Player {
    client: usize,
    user: u32,
    open: Vec<Handle>,
    /// What its other threads were stopped in the middle of.
    stopped: Vec<Doing>,
    /// What others were stopped in the middle of a copy of.
    frozen: Vec<Copying>,
    maps: Maps,
}

impl Player {
    fn new(client: usize, user: u32) -> Self {
        let (open, stopped, frozen, maps) = Default::default();
        Player { client, user, open, stopped, frozen, maps }
    }
}

/// A disk for what does not fit in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disk {
    /// There is none.
    #[default]
    None,
    /// It does what it is told, but may be small.
    Sound,
    /// It fails for a while, or is full.
    Failing,
    /// It gives back something else than what was written to it.
    Corrupting,
}

/// What happens beside what clients do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Servers and clients die.
    pub kills: bool,
    /// Clients do not wait for the server, and are stopped.
    pub defers: bool,
    /// The permanent store fails.
    pub faults: bool,
    /// Files are larger than memory.
    pub cramped: bool,
    /// What does not fit goes to a disk.
    pub disk: Disk,
    /// Files have several names, change places, and are made without any.
    pub links: bool,
    /// Several operations on names come to be at once.
    pub transacts: bool,
    /// There are symbolic links and FIFOs.
    pub specials: bool,
    /// Some clients are another user's, who may do less.
    pub users: bool,
    /// Clients append, and are stopped in the middle of a copy.
    pub freezes: bool,
    /// Files have extended attributes.
    pub xattrs: bool,
    /// Clients lock bytes.
    pub locks: bool,
    /// Clients map files.
    pub maps: bool,
    /// What clients may do ends.
    pub expires: bool,
    /// Clocks jump.
    pub clocks: bool,
    /// Others make, change and remove files in the permanent store.
    pub others: bool,
    /// And directories.
    pub directories: bool,
    /// What the server does wrong.
    pub flaw: Option<Flaw>,
}

/// A run of it.
pub struct Schedule {
    pub sim: Sim,
    model: Model,
    players: Vec<Player>,
    weather: Weather,
    /// What happens is printed.
    traced: bool,
    /// What the permanent store had under names that were made while it was away.
    theirs: Vec<(Vec<u8>, File)>,
    /// It is not known any more what must be.
    over: bool,
    /// The file that was there before anybody came, as long as it has names, and then.
    begun: Option<File>,
    lost: Option<File>,
    /// What others have made there, and done to what is ours.
    others: Others,
    /// Locks that are held.
    locks: Vec<Held>,
    /// So many copies were begun.
    copies: u64,
}

impl Schedule {
    /// With this many clients.
    pub fn new(seed: u64, clients: usize, weather: Weather) -> Self {
        let sim = Sim::made(seed, weather.flaw, spilling::room(seed, weather.disk));
        let (model, players, theirs) = (Model::default(), vec![], vec![]);
        let (traced, over, begun, lost, others, locks, copies) = Default::default();
        let mut schedule = Schedule {
            sim,
            model,
            players,
            weather,
            traced,
            theirs,
            over,
            begun,
            lost,
            others,
            locks,
            copies,
        };
        schedule.traced = std::env::var_os("TERRAL_TRACE").is_some();
        schedule.begin_with(BEGUN_WITH);
        schedule.begin_beside();
        if weather.xattrs {
            schedule.begin_with_attribute();
        }
        for _ in 0..clients {
            let player = schedule.player();
            schedule.players.push(player);
        }
        for path in [&b"d"[..], b"d/e", b"c"] {
            schedule.ask_for(0, &Wish::MakeDirectory(path.into()), None);
        }
        if weather.users {
            schedule.share();
        }
        schedule
    }

    /// A file that the permanent store has before anybody comes.
    fn begin_with(&mut self, path: &[u8]) {
        let file = self.model.open(path, 0).expect("nothing is there yet");
        *file.borrow_mut() = begun_with();
        self.sim.dir.put(path, &begun_with().bytes()).expect("an empty store");
    }

    fn chance(&self, of: u64) -> u64 {
        self.sim.world.one_of(of)
    }

    /// Of what is mostly a directory, or a file.
    fn path(&self, kind: Kind) -> Vec<u8> {
        let directory = DIRECTORIES[self.chance(9).saturating_sub(4) as usize];
        let is_directory = (kind == Kind::Directory) != (self.chance(10) == 0);
        let name = NAMES[usize::from(is_directory)][self.chance(3) as usize];
        [directory, name].concat()
    }

    fn file_path(&self) -> Vec<u8> {
        self.path(Kind::File)
    }

    fn any_path(&self) -> Vec<u8> {
        self.path(if self.chance(3) == 0 { Kind::Directory } else { Kind::File })
    }

    /// So many steps; then everything ends, and the permanent store has what it must have.
    pub fn run(mut self, steps: usize) -> Sim {
        for _ in 0..steps {
            if self.weather.kills && self.chance(16) == 0 {
                self.sim.kill_at(1 + self.chance(12) as i64);
            }
            if self.weather.faults && self.chance(40) == 0 {
                let fault = FAULTS[self.chance(4) as usize];
                self.sim.faults.begin(fault, Duration::from_millis(self.chance(8000)));
            }
            if self.weather.clocks && self.chance(12) == 0 {
                self.jump();
            }
            if self.weather.others && self.chance(8) == 0 {
                self.interfere();
            }
            self.strain();
            self.step();
            self.forget_attribute();
            if self.over {
                break;
            }
        }
        self.players.clear();
        self.sim.faults.heal();
        self.sim.disk.iter().for_each(SpillDisk::heal);
        self.sim.finish();
        self.compare();
        self.compare_spill();
        self.sim
    }

    fn step(&mut self) {
        let at = self.chance(self.players.len() as u64) as usize;
        if self.weather.cramped && self.chance(2) == 0 {
            return if self.chance(4) == 0 { self.open(at) } else { self.write(at) };
        }
        if self.weather.links && self.chance(5) == 0 {
            return self.relate(at);
        }
        if self.weather.transacts && self.chance(3) == 0 {
            return self.transact(at);
        }
        if self.weather.specials && self.chance(6) == 0 {
            return self.use_specials(at);
        }
        if self.weather.xattrs && self.chance(6) == 0 {
            return if self.chance(2) == 0 {
                self.set_attribute(at)
            } else {
                self.get_attribute(at)
            };
        }
        if self.weather.expires && self.chance(10) == 0 {
            return self.renew(at);
        }
        if self.weather.maps && self.chance(3) == 0 {
            return self.use_maps(at);
        }
        if self.weather.locks && self.chance(3) == 0 {
            return self.lock(at);
        }
        match self.chance(28) {
            0..=3 => self.open(at),
            4..=8 => self.write(at),
            9..=11 => self.read(at),
            12 => self.truncate(at),
            13 | 14 => self.close(at),
            15 | 16 => self.wish(at, Wish::MakeDirectory(self.path(Kind::Directory)), None),
            17 => self.wish(at, Wish::RemoveDirectory(self.path(Kind::Directory)), None),
            18 => self.wish(at, Wish::Unlink(self.file_path()), None),
            19 => self.wish(at, Wish::Rename(self.file_path(), self.file_path()), None),
            20 => self.wish(at, Wish::Rename(self.any_path(), self.any_path()), None),
            21 => self.list(at),
            22 => self.sim.pass(Duration::from_millis(1 + self.chance(3000))),
            23 if self.weather.kills && self.chance(4) == 0 => self.replace(at),
            24 => self.set_mode(at),
            25 => {
                self.tell(|| "heard".into());
                self.sim.hear();
            }
            26 if self.weather.freezes && self.chance(2) == 0 => self.thaw(at),
            26 => self.resume(at),
            _ => self.stat(at),
        }
    }

    /// A client presents something anew, which runs out soon, or does not.
    fn renew(&mut self, at: usize) {
        if self.chance(6) == 0 {
            return self.revoke(at);
        }
        let for_s = (self.chance(4) != 0).then(|| self.chance(8));
        let presented = self.sim.present(self.players[at].client, for_s);
        self.tell(|| format!("{at}: presents something for {for_s:?} s: {presented:?}"));
        // For no time at all it is refused.
        assert!(presented.is_ok() || for_s.is_some(), "{presented:?}");
    }

    /// A client's capability is revoked by another one that may, and it gets a new one.
    fn revoke(&mut self, at: usize) {
        let client = self.players[at].client;
        let mut others = self.players.iter().map(|player| player.client);
        let may = |other: &usize| *other != client && !self.sim.is_over(*other);
        let Some(by) = others.find(may) else { return };
        let revoked = self.sim.revoke(by, client);
        self.tell(|| format!("{at}: what it has is revoked: {revoked:?}"));
        if let Err(error) = revoked {
            assert!(self.excuses(&error), "{error:?}");
        }
    }

    /// A machine sleeps, or somebody sets its clock.
    fn jump(&mut self) {
        let by = self.chance(86_400_000_000_000) >> self.chance(40);
        match self.chance(3) {
            0 => self.sim.world.pass(Duration::from_nanos(by)),
            1 => self.sim.world.set_wall(by as i64),
            _ => self.sim.world.set_wall(-(by as i64)),
        }
    }

    /// Whether this may be, as the permanent store has failed, or what is to be kept of open files
    /// does not fit in memory.
    fn excuses(&self, error: &Error) -> bool {
        // Who is stopped in a chunk that is mapped is in the way for so long.
        let stays = self.weather.maps && self.weather.freezes;
        if stays && error.kind == ErrorKind::Busy {
            return true;
        }
        if self.weather.expires && is_refused(error) {
            return true;
        }
        if self.weather.cramped && error.kind == ErrorKind::NoSpace {
            return true;
        }
        self.excuses_disk(error)
            || self.sim.faults.were()
                && matches!(error.kind, ErrorKind::Backing | ErrorKind::NoSpace)
    }

    /// Whether a request succeeds as it must; what `change` does is done by it.
    fn check(
        &mut self,
        at: usize,
        request: Request<'_>,
        change: impl FnOnce(&mut Model) -> bool,
    ) -> bool {
        let what = format!("{request:?}");
        let unseen = self.sim.faults.unseen();
        let got = self.sim.ask(self.players[at].client, request);
        self.over |= got.is_ok() && self.sim.faults.unseen() != unseen;
        self.tell(|| format!("{at}: {what}: {got:?}"));
        if got.as_ref().is_err_and(|error| self.excuses(error)) {
            return false;
        }
        match (&got, &request) {
            (
                Ok(_),
                Request::MakeDirectory { path, .. }
                | Request::MakeLink { path, .. }
                | Request::MakeNode { path, .. },
            ) => self.contest(path),
            // What comes to be under the name of a further link is not kept.
            (Ok(_), Request::Link { path, .. }) if self.is_contested(path) => {
                self.over = true;
                self.model.0.clear();
                return true;
            }
            (Ok(_), Request::Rename { .. }) if self.over => {
                // What has the name now is whatever can be brought there: no more than that it
                // comes to an end is to be said.
                self.model.0.clear();
                return true;
            }
            _ => {}
        }
        let must = self.may(at, &request) && change(&mut self.model);
        assert_eq!(got.is_ok(), must, "{what}: {got:?}");
        got.is_ok()
    }

    /// A name that only the permanent store had was made while that was away: then both are kept.
    fn contest(&mut self, path: &[u8]) {
        if self.is_contested(path)
            && let Some(Node::File(file)) = self.model.0.remove(path)
        {
            self.theirs.push((path.to_vec(), file));
            self.over = true;
        }
    }

    fn is_contested(&self, path: &[u8]) -> bool {
        path == BEGUN_WITH && self.sim.faults.were() && self.model.file(path).is_some()
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.traced {
            eprintln!("{:?} killed {}: {}", self.sim.world.now(), self.sim.killed, what());
        }
    }
}
