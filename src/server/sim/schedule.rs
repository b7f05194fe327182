//! A schedule: clients that do what chance says, with a server that is killed now and then, and a
//! permanent store that fails, beside a model of what every answer must be. All that was answered,
//! or committed without asking, must be read again, by anybody, whatever died meanwhile, and in the
//! end the permanent store must have exactly that.

use std::time::Duration;

use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::tables::access;
use terral_format::wire::message::{Change, FileRef, Kind, OpenHow, RenameHow, Request, Target};
use terral_format::{Error, ErrorKind};

use super::Sim;
use super::client::Opened;
use super::deferring::{Begun, Progress, Wish};
use super::faults::FAULTS;
use super::flaws::Flaw;
use super::model::{BEGUN_WITH, Content, File, Model, Node, PIECE};
use crate::core::world::World;
use locking::Held;
use others::Others;
use writing::Copying;

mod attributes;
mod comparing;
mod linking;
mod locking;
mod looking;
mod others;
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
    open: Vec<Handle>,
    /// What its other threads were stopped in the middle of.
    stopped: Vec<Doing>,
    /// What others were stopped in the middle of a copy of.
    frozen: Vec<Copying>,
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
    /// Files have several names, change places, and are made without any.
    pub links: bool,
    /// Clients append, and are stopped in the middle of a copy.
    pub freezes: bool,
    /// Files have extended attributes.
    pub xattrs: bool,
    /// Clients lock bytes.
    pub locks: bool,
    /// Clocks jump.
    pub clocks: bool,
    /// Others make, change and remove files in the permanent store.
    pub others: bool,
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
        let sim = Sim::with_flaw(seed, weather.flaw);
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
            let client = schedule.sim.connect();
            schedule.players.push(Player { client, open: vec![], stopped: vec![], frozen: vec![] });
        }
        for path in [&b"d"[..], b"d/e", b"c"] {
            schedule.ask_for(0, &Wish::MakeDirectory(path.into()), None);
        }
        schedule
    }

    /// A file that the permanent store has before anybody comes.
    fn begin_with(&mut self, path: &[u8]) {
        let file = self.model.open(path).expect("nothing is there yet");
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
            self.step();
            self.forget_attribute();
            if self.over {
                break;
            }
        }
        self.players.clear();
        self.sim.faults.heal();
        self.sim.finish();
        self.compare();
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
        if self.weather.xattrs && self.chance(6) == 0 {
            return if self.chance(2) == 0 {
                self.set_attribute(at)
            } else {
                self.get_attribute(at)
            };
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
        if self.weather.cramped && error.kind == ErrorKind::NoSpace {
            return true;
        }
        self.sim.faults.were() && matches!(error.kind, ErrorKind::Backing | ErrorKind::NoSpace)
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
            (Ok(_), Request::MakeDirectory { path, .. }) => self.contest(path),
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
        assert_eq!(got.is_ok(), change(&mut self.model), "{what}: {got:?}");
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

    // What can be done without waiting.

    fn wish(&mut self, at: usize, wish: Wish, file: Option<File>) {
        if !self.is_clear(&wish) {
            return;
        }
        if self.weather.defers {
            let client = self.players[at].client;
            if self.chance(8) == 0
                && let Err(error) = self.sim.fetch(client)
            {
                assert!(self.excuses(&error), "{error:?}");
            }
            if self.chance(8) != 0
                && let Some(begun) = self.sim.begin(client, wish.clone())
            {
                return self.go_on(at, Doing(begun, file));
            }
        }
        self.ask_for(at, &wish, file);
    }

    fn resume(&mut self, at: usize) {
        let count = self.players[at].stopped.len() as u64;
        if count > 0 {
            let which = self.chance(count) as usize;
            let doing = self.players[at].stopped.swap_remove(which);
            self.go_on(at, doing);
        }
    }

    fn go_on(&mut self, at: usize, mut doing: Doing) {
        loop {
            match self.sim.go_on(&mut doing.0) {
                // What it found is what it opens, whatever becomes of the name.
                Progress::Going => {
                    if let (Some(_), Wish::Open(path, _)) = (doing.0.opened, &doing.0.wish)
                        && doing.1.is_none()
                    {
                        doing.1 = self.model.file(path);
                    }
                }
                Progress::Refused => return self.ask_for(at, &doing.0.wish, doing.1),
                Progress::Over => return self.returned(at, doing),
                Progress::Happened => self.happened(at, &mut doing),
            }
            match self.chance(40) {
                0 | 1 => return self.players[at].stopped.push(doing),
                2 if self.weather.kills => return self.replace(at),
                3 => {
                    self.tell(|| "heard".into());
                    self.sim.hear();
                }
                _ => {}
            }
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.traced {
            eprintln!("{:?} killed {}: {}", self.sim.world.now(), self.sim.killed, what());
        }
    }

    /// A client has committed this.
    fn happened(&mut self, at: usize, doing: &mut Doing) {
        let (model, Doing(begun, about)) = (&mut self.model, doing);
        let mut closed = None;
        let may = match &begun.wish {
            Wish::Create(path) => {
                let free = !model.0.contains_key(path);
                *about = model.open(path);
                free && about.is_some()
            }
            Wish::MakeDirectory(path) => model.make_directory(path),
            Wish::Unlink(path) => model.unlink(path),
            Wish::RemoveDirectory(path) => model.remove_directory(path),
            Wish::Rename(from, to) => model.rename(from, to),
            Wish::Open(..) => about.is_some(),
            Wish::Close(open) => {
                closed = Some((open.description, open.nonce));
                true
            }
            Wish::SetMode(_, mode) => {
                about.iter().for_each(|file| file.borrow_mut().mode = *mode);
                true
            }
        };
        assert!(may, "{:?} was committed", begun.wish);
        closed.into_iter().for_each(|(at, nonce)| self.unlock_closed(at, nonce));
        let (wish, opened) = (&begun.wish, begun.opened);
        self.tell(|| format!("{at}: {wish:?} is committed: {opened:?}"));
    }

    /// A call has come to its end.
    fn returned(&mut self, at: usize, Doing(begun, file): Doing) {
        let writes = !matches!(begun.wish, Wish::Open(_, how) if how == READ);
        if let (Some(opened), Some(file)) = (begun.opened, file) {
            self.players[at].open.push(Handle { opened, file, writes });
        }
    }

    fn opened(&mut self, at: usize, path: &[u8], opened: Opened, writes: bool) {
        let file = self.model.open(path).expect("it was opened");
        self.players[at].open.push(Handle { opened, file, writes });
    }

    fn ask_for(&mut self, at: usize, wish: &Wish, about: Option<File>) {
        match wish {
            Wish::Create(path) => self.ask_open(at, path, BOTH, true),
            Wish::Open(path, how) => self.ask_open(at, path, *how, false),
            Wish::MakeDirectory(path) => {
                let made = Request::MakeDirectory { path, mode: 0o755 };
                self.check(at, made, |model| model.make_directory(path));
            }
            Wish::Unlink(path) => {
                self.check(at, Request::Unlink(path), |model| model.unlink(path));
            }
            Wish::RemoveDirectory(path) => {
                let gone = Request::RemoveDirectory(path);
                self.check(at, gone, |model| model.remove_directory(path));
            }
            Wish::Rename(from, to) => {
                let moved = Request::Rename { from, to, how: RenameHow::Replace };
                self.check(at, moved, |model| model.rename(from, to));
            }
            Wish::Close(open) => {
                let closed = self.sim.close(self.players[at].client, *open);
                assert!(closed.as_ref().is_err_and(|e| self.excuses(e)) || closed.is_ok());
                self.unlock_closed(open.description, open.nonce);
            }
            Wish::SetMode(file, mode) => {
                let change = Change { mode: Some(*mode), ..Change::default() };
                let target = Target::File(*file);
                let open = |handle: &Handle| handle.opened.file == *file;
                if !self.players[at].open.iter().any(open) {
                    // Closed meanwhile, by another thread.
                    return;
                }
                if self.check(at, Request::Change { target, change }, |_| true) {
                    about.iter().for_each(|file| file.borrow_mut().mode = *mode);
                }
            }
        }
    }

    fn ask_open(&mut self, at: usize, path: &[u8], access: u8, create: bool) {
        let how = OpenHow { access, create, mode: 0o644, ..OpenHow::default() };
        let must = match self.model.0.get(path) {
            Some(Node::File(_)) => true,
            Some(Node::Directory) => access == READ && !create,
            None => create && self.model.has_parent(path),
        };
        let unseen = self.sim.faults.unseen();
        let got = self.sim.open(self.players[at].client, path, how);
        self.over |= got.is_ok() && self.sim.faults.unseen() != unseen;
        self.tell(|| format!("{at}: {how:?} {path:?}: {got:?}"));
        match got {
            Ok(opened) if matches!(self.model.0.get(path), Some(Node::Directory)) && must => {
                self.wish(at, Wish::Close(opened), None);
            }
            Ok(opened) if must => {
                let size = |file: &File| file.borrow().size;
                let seen = self.sim.glance(path).and_then(Result::ok);
                if let Some(Node::File(file)) = self.model.0.get(path)
                    && seen.is_some_and(|seen| seen.size == 0 && size(file) > 0)
                {
                    self.contest(path);
                }
                self.opened(at, path, opened, access == BOTH);
            }
            Err(error) if !must || self.excuses(&error) => {}
            got => panic!("{path:?}: {got:?}, {must}"),
        }
    }

    // Open files.

    fn open(&mut self, at: usize) {
        if self.players[at].open.len() >= OPEN_MAX {
            return self.close(at);
        }
        let path = self.file_path();
        let wish = match self.chance(4) {
            0 => Wish::Open(path, READ),
            1 => Wish::Open(path, BOTH),
            _ => Wish::Create(path),
        };
        self.wish(at, wish, None);
    }

    /// Something that a client has open.
    fn handle(&self, at: usize) -> Option<(usize, FileRef, File, bool)> {
        let Player { client, open, .. } = &self.players[at];
        let which = self.chance(open.len().max(1) as u64) as usize;
        let handle = open.get(which)?;
        Some((*client, handle.opened.file, handle.file.clone(), handle.writes))
    }

    fn page(&self) -> u64 {
        let pages = CHUNK_BYTES / PAGE_BYTES as u64;
        if self.weather.cramped && self.chance(4) != 0 {
            // At the end of a chunk, which is whole then.
            return (1 + self.chance(12)) * pages - 1 - self.chance(8);
        }
        let chunk = self.chance(3) * pages;
        if self.chance(2) == 0 { self.chance(6) } else { chunk + self.chance(8) * 60 }
    }

    fn truncate(&mut self, at: usize) {
        let Some((_, opened, file, true)) = self.handle(at) else { return };
        let size = if self.chance(2) == 0 { 0 } else { self.page() * PAGE_BYTES as u64 };
        let target = Target::File(opened);
        if self.check(at, Request::Truncate { target, size }, |_| true) {
            file.borrow_mut().cut(size);
        }
    }

    fn set_mode(&mut self, at: usize) {
        let Some((client, file, content, _)) = self.handle(at) else { return };
        let mode = 0o600 | self.chance(0o200) as u32;
        match self.sim.rouse(client, file) {
            Ok(file) => self.wish(at, Wish::SetMode(file, mode), Some(content)),
            Err(error) => assert!(self.excuses(&error), "{error:?}"),
        }
    }

    fn close(&mut self, at: usize) {
        let Some(handle) = self.players[at].open.pop() else { return };
        if self.is_copying(at, handle.opened.file) {
            // Another thread is just using it.
            self.players[at].open.push(handle);
            return;
        }
        self.unlock_own(at, &handle.opened, &handle.file);
        let Opened { description, nonce, .. } = handle.opened;
        if self.sim.recall(self.players[at].client, &handle.opened) {
            self.unlock_closed(description, nonce);
        } else {
            self.wish(at, Wish::Close(handle.opened), None);
        }
    }

    /// A client dies, with all that it was in the middle of, and another comes.
    fn replace(&mut self, at: usize) {
        self.sim.end(self.players[at].client);
        self.unlock_ended(self.players[at].client);
        let client = self.sim.connect();
        self.players[at] = Player { client, open: vec![], stopped: vec![], frozen: vec![] };
    }
}
