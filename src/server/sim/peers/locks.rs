//! Locks of one file, by programs on the machine where it was born and on two others: each is
//! granted if, and only if, nobody has one that is in its way, whoever dies.

use std::time::Duration;

use terral_format::ids::{DescriptionSlot, FileSlot};
use terral_format::wire::far::{Act, Answer, Question, What};
use terral_format::wire::far_files::FarFile;
use terral_format::wire::locks::{Lock, LockAsk, LockKind, LockRange, Locker};
use terral_format::wire::message::{FileRef, OpenFile, OpenHow, RenameHow, Reply, Request};
use terral_format::{Error, ErrorKind, Result};
use terral_store::memory::Memory;

use super::{Peers, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::sim::client::{CREATE, Opened};
use crate::sim::world::Virtual;

pub(super) const WRITE: OpenHow = OpenHow { create: false, ..CREATE };

/// Bytes of the file that are locked.
const BYTES: u64 = 6;

/// A program, with the file open twice.
#[derive(Clone, Copy)]
pub(super) struct Program {
    pub at: usize,
    pub client: usize,
    pub open: [Opener; 2],
}

#[derive(Clone, Copy)]
pub(super) struct Opener {
    pub file: FileRef,
    pub description: DescriptionSlot,
    pub nonce: u32,
}

/// Whose a lock is: which program's, and of which of its descriptions, unless it is its own.
type Owner = (usize, Option<usize>);

/// A byte that is locked; by `flock` all are.
#[derive(Clone, Copy)]
struct Held {
    owner: Owner,
    flock: bool,
    byte: u64,
    kind: LockKind,
}

pub(super) struct Locks {
    pub peers: Peers,
    pub programs: Vec<Program>,
    held: Vec<Held>,
    granted: [u64; 2],
    blocked: [u64; 2],
}

impl Locks {
    pub(super) fn new(seed: u64) -> Self {
        let mut peers = Peers::new(seed, 3);
        peers.create(0, b"a").expect("made");
        let (granted, blocked) = Default::default();
        let mut locks = Locks { peers, programs: vec![], held: vec![], granted, blocked };
        for at in [0, 0, 1, 1, 2, 2] {
            let program = locks.begin(at);
            locks.programs.push(program);
        }
        locks
    }

    fn begin(&mut self, at: usize) -> Program {
        let client = self.peers.sims[at].connect();
        let open = [0, 1].map(|_| self.open(at, client));
        Program { at, client, open }
    }

    fn open(&mut self, at: usize, client: usize) -> Opener {
        match self.peers.ask_as(at, client, Request::Open { path: b"a", how: WRITE }) {
            Ok(Reply::Opened { description, nonce, file }) => Opener { file, description, nonce },
            other => panic!("{other:?}"),
        }
    }

    /// Takes a lock, changes one, or gives it back. False: another is in the way.
    fn lock(
        &mut self,
        (which, through): (usize, usize),
        (locker, range, kind): (Locker, LockRange, LockKind),
    ) -> Result<bool> {
        let Program { at, client, open } = self.programs[which];
        let Opener { file, description, nonce } = open[through];
        if file.slot != FileSlot::FAR {
            let opened = Opened::new(OpenFile { file, description, nonce }, None);
            let owner = self.peers.sims[at].locker(client, &opened, locker);
            let lock = Lock { ino: file.ino, owner, range, kind };
            let sim = &mut self.peers.sims[at];
            let mut done = sim.lock(client, &opened, (locker, lock));
            if !done && locker == Locker::Flock {
                sim.lock(client, &opened, (locker, Lock { kind: LockKind::Unlock, ..lock }));
                done = sim.lock(client, &opened, (locker, lock));
            }
            self.peers.collect(at);
            return Ok(done);
        }
        let ask = LockAsk { ino: file.ino, description, nonce, locker, range, kind };
        let request = Request::Far(FarFile::Lock { ask, wait: 0 });
        match self.peers.ask_as(at, client, request) {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn step(&mut self, draw: &mut impl FnMut(u64) -> u64) -> Result<()> {
        let (which, through) = (draw(6) as usize, draw(2) as usize);
        match draw(20) {
            0..=14 => {
                let kinds = [LockKind::Unlock, LockKind::Shared, LockKind::Exclusive];
                let kind = kinds[draw(3) as usize];
                let locker =
                    [Locker::Process, Locker::Description, Locker::Flock][draw(3) as usize];
                let (one, other) = (draw(BYTES), draw(BYTES));
                let range = match locker {
                    Locker::Flock => LockRange::ALL,
                    _ => LockRange { first: one.min(other), last: one.max(other) },
                };
                self.try_lock((which, through), (locker, range, kind))?;
            }
            15 | 16 => {
                // A process has no locks of a file any more once it has closed it.
                let all = (Locker::Process, LockRange::ALL, LockKind::Unlock);
                self.lock((which, through), all)?;
                let Program { at, client, open } = self.programs[which];
                let Opener { description, nonce, .. } = open[through];
                let close = Request::Close { description, nonce };
                self.peers.ask_as(at, client, close)?;
                let gone = [(which, None), (which, Some(through))];
                self.held.retain(|held| !gone.contains(&held.owner));
                self.programs[which].open[through] = self.open(at, client);
            }
            17 => {
                let Program { at, client, .. } = self.programs[which];
                self.peers.sims[at].end(client);
                self.peers.collect(at);
                self.peers.settle();
                self.held.retain(|held| held.owner.0 != which);
                self.programs[which] = self.begin(at);
            }
            18 => self.peers.cut(draw(3) as usize, draw(3) as usize),
            _ => self.peers.pass(Duration::from_millis(draw(4000))),
        }
        Ok(())
    }

    fn try_lock(
        &mut self,
        (which, through): (usize, usize),
        (locker, range, kind): (Locker, LockRange, LockKind),
    ) -> Result<()> {
        let owner = (which, (locker != Locker::Process).then_some(through));
        let flock = locker == Locker::Flock;
        let within = |held: &Held| held.flock == flock && range.first <= held.byte;
        let within = |held: &Held| within(held) && held.byte <= range.last;
        let in_the_way = |held: &Held| {
            let both = held.kind == LockKind::Shared && kind == LockKind::Shared;
            within(held) && held.owner != owner && kind != LockKind::Unlock && !both
        };
        let blocks = self.held.iter().any(in_the_way);
        let done = self.lock((which, through), (locker, range, kind))?;
        let far = usize::from(self.programs[which].at > 0);
        assert_eq!(done, !blocks, "{owner:?} {locker:?} {range:?} {kind:?}");
        if done || flock {
            self.held.retain(|held| !(held.owner == owner && within(held)));
        }
        if !done {
            self.blocked[far] += 1;
            return Ok(());
        }
        self.granted[far] += 1;
        if kind != LockKind::Unlock {
            let bytes = range.first..=range.last.min(BYTES);
            self.held.extend(bytes.map(|byte| Held { owner, flock, byte, kind }));
        }
        Ok(())
    }
}

fn walk(seed: u64, kills: bool) -> [u64; 4] {
    let mut locks = Locks::new(seed);
    locks.peers.rough = kills.then(|| Virtual::new(seed + 1));
    locks.peers.may_have_trouble(seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..200 {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            locks.peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        locks.step(&mut draw).expect("somebody answers");
        locks.peers.reconnect();
    }
    let ([home, elsewhere], [blocked, blocked_elsewhere]) = (locks.granted, locks.blocked);
    [home, elsewhere, blocked, blocked_elsewhere]
}

fn walks(kills: bool) {
    let all = walk_all(20, |seed| walk(seed, kills));
    eprintln!("granted at home and elsewhere, and not: {all:?}");
    assert!(all.iter().all(|count| *count > 0));
}

#[test]
fn a_lock_is_granted_on_any_machine_if_nobody_has_one_that_is_in_its_way() {
    walks(false);
}

#[test]
fn nobody_loses_a_lock_or_keeps_one_after_his_end_whoever_dies() {
    walks(true);
}

#[test]
fn a_server_that_does_not_mark_who_may_have_locks_elsewhere_is_caught() {
    let flawed = |seed| without(Step::MarkLocks, || walk(seed, false));
    let caught = |seed| std::panic::catch_unwind(|| flawed(seed)).is_err();
    assert!((0..20).any(caught));
}

#[test]
fn who_would_wait_for_ever_for_a_lock_is_told_so_on_whichever_machine_he_is() {
    let mut locks = Locks::new(7);
    let byte = |at| LockRange { first: at, last: at };
    let exclusive = |at| (Locker::Process, byte(at), LockKind::Exclusive);
    // One on each of the two other machines has a byte, and waits for the other's.
    for (which, at) in [(2, 0), (4, 1)] {
        assert_eq!(locks.lock((which, 0), exclusive(at)), Ok(true));
    }
    let waits = |locks: &mut Locks, which: usize, range: LockRange| -> Result<Reply> {
        let Program { at, client, open } = locks.programs[which];
        let Opener { file, description, nonce } = open[0];
        let (locker, kind) = (Locker::Process, LockKind::Exclusive);
        let ask = LockAsk { ino: file.ino, description, nonce, locker, range, kind };
        locks.peers.ask_as(at, client, Request::Far(FarFile::Lock { ask, wait: 1 }))
    };
    let kind = |done: Result<Reply>| done.map_err(|error: Error| error.kind);
    assert_eq!(kind(waits(&mut locks, 2, byte(1))), Err(ErrorKind::WouldBlock));
    assert_eq!(kind(waits(&mut locks, 4, byte(0))), Err(ErrorKind::Deadlock));
    assert_eq!(kind(waits(&mut locks, 2, byte(1))), Err(ErrorKind::WouldBlock));
    // Who was interrupted asks no more.
    locks.peers.pass(Duration::from_millis(600));
    assert_eq!(kind(waits(&mut locks, 4, byte(0))), Err(ErrorKind::WouldBlock));
}

#[test]
fn one_file_takes_as_many_locks_as_a_list_holds_and_others_have_theirs() {
    let mut locks = Locks::new(8);
    let every_other = |at| LockRange { first: 2 * at, last: 2 * at };
    let exclusive = |at| (Locker::Process, every_other(at), LockKind::Exclusive);
    let most = (0..5000).take_while(|at| locks.lock((2, 0), exclusive(*at)).is_ok()).count();
    assert_eq!(most, 3840);
    let full = |done: Result<bool>| done.map_err(|error| (error.kind, error.errno));
    for at in most..most + 200 {
        let done = locks.lock((2, 0), exclusive(at as u64));
        assert_eq!(full(done), Err((ErrorKind::TooMany, 37)));
    }
    locks.peers.create(0, b"b").expect("made");
    let Program { at, client, .. } = locks.programs[4];
    let open = match locks.peers.ask_as(at, client, Request::Open { path: b"b", how: WRITE }) {
        Ok(Reply::Opened { description, nonce, file }) => Opener { file, description, nonce },
        other => panic!("{other:?}"),
    };
    locks.programs[4].open[0] = open;
    assert_eq!(locks.lock((4, 0), exclusive(0)), Ok(true));
    assert_eq!(locks.lock((2, 0), (Locker::Process, LockRange::ALL, LockKind::Unlock)), Ok(true));
}

/// Who has locked it elsewhere closes it without a word, the last that had it open there.
#[test]
fn of_a_file_that_nobody_uses_any_more_no_lock_is_left_in_the_table_elsewhere() {
    for (replaces, first) in [(0, true), (0, false), (1, true), (2, true)] {
        let mut locks = Locks::new(9);
        let Program { at, open, .. } = locks.programs[2];
        let flock = (Locker::Flock, LockRange::ALL, LockKind::Exclusive);
        assert_eq!(locks.lock((2, 0), flock), Ok(true));
        let replace = |peers: &mut Peers| {
            peers.create(0, b"b").expect("made");
            let (from, to, how) = (&b"b"[..], &b"a"[..], RenameHow::Replace);
            peers.ask(replaces, Request::Rename { from, to, how }).expect("renamed");
            // By now the name stands for another file there.
            peers.stat(at, b"a").expect("it is there");
        };
        if first {
            replace(&mut locks.peers);
        }
        for program in locks.programs.clone().into_iter().filter(|program| program.at == at) {
            for Opener { description, nonce, .. } in program.open {
                let close = Request::Close { description, nonce };
                locks.peers.ask_as(at, program.client, close).expect("closed");
            }
        }
        locks.peers.settle();
        if !first {
            replace(&mut locks.peers);
        }
        locks.peers.pass(Duration::from_secs(3));
        let is_free = |memory: &Memory| memory.locks().is_free(open[0].file.ino);
        assert!(is_free(&locks.peers.sims[at].memory), "{replaces} {first}");
    }
}

/// Its home cannot take note of an end, and by the time it is told again another program has the
/// place of the description.
#[test]
fn an_end_that_is_said_again_takes_no_lock_of_who_has_come_since() {
    let mut locks = Locks::new(10);
    let flock = (Locker::Flock, LockRange::ALL, LockKind::Exclusive);
    assert_eq!(locks.lock((2, 0), flock), Ok(true));
    let Program { at, client, open } = locks.programs[2];
    let close = |locks: &mut Locks, opener: Opener| {
        let Opener { description, nonce, .. } = opener;
        let close = Request::Close { description, nonce };
        let taken = locks.peers.sims[at].asking(client, close).expect("encodes");
        let session = locks.peers.sims[at].clients[client].session;
        locks.peers.handle(at, session, &taken);
    };
    close(&mut locks, open[0]);
    let frames = locks.peers.links.get_mut(&(at, 0)).map(std::mem::take).unwrap_or_default();
    let questions = frames.iter().map(|frame| Question::read(frame).expect("a question").0);
    let ends: Vec<Question> = questions.filter(|it| matches!(it.what, What::File(..))).collect();
    let [Question { id, what: What::File(file, Act::Lock(_)), .. }] = ends[..] else {
        panic!("{ends:?}");
    };
    let failed = Err(Error { errno: 37, ..Error::new(ErrorKind::TooMany, "locks") });
    let answer = Answer { id, file: Some(file), life: 1, result: failed };
    let answer = answer.write(Vec::new()).expect("encodes").whole();
    locks.peers.arrive((0, at), &answer);
    locks.programs[2].open[0] = locks.open(at, client);
    assert_eq!(locks.programs[2].open[0].description, open[0].description, "it has the place");
    assert_eq!(locks.lock((2, 0), flock), Ok(true));
    locks.peers.pass(Duration::from_secs(1));
    locks.peers.pass(Duration::from_secs(1));
    assert_eq!(locks.lock((4, 0), flock), Ok(false), "somebody has it");
}
