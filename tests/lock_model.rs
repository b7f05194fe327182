//! Locks in shared memory explored with `loom`: what `terral_format::local::lock_table` promises
//! holds in every interleaving of a file's lockers and the server, also when they fork, exec and
//! die, and breaks when a rule is left out.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terral-tests --test lock_model --target-dir
//! target/loom`; without the flag this file is empty.

#![cfg(loom)]

use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread::spawn;
use terral_format::ids::Ino;
use terral_format::local::lock_table::{LockTable, Outcome, Pool, WORDS};
use terral_format::wire::locks::{Lock, LockKind, LockOwner, LockRange};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Who waits sleeps without a mark on the head.
    SleepsUnmarked,
    /// Who gives a lock back wakes nobody.
    WakesNobody,
    /// A forked child goes on writing into its parent's blocks.
    ChildKeepsBlocks,
    /// A forked child takes itself for its parent.
    ChildKeepsOwner,
    /// The server takes the locks of a process when a session of it ends.
    EndsWithSession,
    /// The server forgets what a dead process held.
    LeavesDead,
}

const INO: Ino = Ino(7);

/// The memory, and the kernel's futex on the head.
struct Machine {
    flaw: Flaw,
    words: Vec<AtomicU64>,
    /// Wake-ups so far.
    woken: Mutex<u64>,
    /// The other thread is through: nobody wakes any more.
    over: AtomicU64,
    /// Who holds byte 0 exclusively, as the holders themselves see it.
    inside: std::sync::atomic::AtomicU64,
}

/// A process: who it is, and its session's blocks.
struct Process {
    owner: LockOwner,
    pool: Pool,
}

impl Process {
    fn new(machine: &Machine, pid: u32, session: u16) -> Self {
        let pool = Pool::default();
        let group = machine.free_group().expect("a group for each");
        machine.table().give_group(group, Some(session));
        assert!(pool.add(group));
        Process { owner: LockOwner::process(pid, 1), pool }
    }

    /// Blocks that somebody else has, too.
    fn beside(pid: u32, group: u32) -> Self {
        let pool = Pool::default();
        assert!(pool.add(group));
        Process { owner: LockOwner::process(pid, 1), pool }
    }

    fn lock(&self, at: u64, kind: LockKind) -> Lock {
        Lock { ino: INO, owner: self.owner, range: LockRange { first: at, last: at }, kind }
    }
}

impl Machine {
    fn new(flaw: Flaw) -> Self {
        Machine {
            flaw,
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            woken: Mutex::new(0),
            over: AtomicU64::new(0),
            inside: Default::default(),
        }
    }

    fn table(&self) -> LockTable<'_> {
        LockTable::new(&self.words)
    }

    fn free_group(&self) -> Option<u32> {
        self.table().unowned().find(|group| !self.table().has_list(*group))
    }

    fn sleep(&self, expected: u32) {
        let before = self.woken.lock().map(|woken| *woken).expect("no panic");
        if self.table().head(INO).load(SeqCst) as u32 != expected {
            return;
        }
        loop {
            let over = self.over.load(SeqCst) != 0;
            if *self.woken.lock().expect("no panic") != before {
                return;
            }
            assert!(!over, "promise: who sleeps is woken");
            loom::thread::yield_now();
        }
    }

    fn wake(&self) {
        *self.woken.lock().expect("no panic") += 1;
    }

    /// `F_SETLK`; whether it was had.
    fn try_lock(&self, process: &Process, at: u64, kind: LockKind) -> bool {
        match self.table().set(&process.lock(at, kind), &process.pool).expect("blocks") {
            Outcome::Blocked { .. } => false,
            Outcome::Set { wakes } => {
                if wakes && self.flaw != Flaw::WakesNobody {
                    self.wake();
                }
                true
            }
        }
    }

    /// `F_SETLKW`.
    fn take(&self, process: &Process, at: u64) {
        let lock = process.lock(at, LockKind::Exclusive);
        loop {
            match self.table().set(&lock, &process.pool).expect("blocks") {
                Outcome::Set { .. } => return,
                Outcome::Blocked { seen, .. } if self.flaw == Flaw::SleepsUnmarked => {
                    self.sleep(seen.low());
                }
                Outcome::Blocked { seen, .. } => {
                    if let Some(expected) = self.table().wait(INO, seen) {
                        self.sleep(expected);
                    }
                }
            }
        }
    }

    fn give_back(&self, process: &Process, at: u64) {
        assert!(self.try_lock(process, at, LockKind::Unlock));
    }

    /// Something that only one may do at a time.
    fn work(&self, process: &Process) {
        self.take(process, 0);
        self.enter();
        loom::thread::yield_now();
        self.leave();
        self.give_back(process, 0);
    }

    fn enter(&self) {
        let alone = self.inside.swap(1, SeqCst) == 0;
        assert!(alone, "promise: an exclusive lock is one process's");
    }

    fn leave(&self) {
        self.inside.store(0, SeqCst);
    }

    fn holds(&self, process: &Process, at: u64) -> bool {
        let (_, locks) = self.table().locks(INO);
        locks.iter().any(|lock| lock.owner == process.owner && lock.range.first == at)
    }

    /// The server: a session ended. `alive`: its process goes on with another one.
    fn session_ended(&self, owner: LockOwner, alive: bool, live: &[u16]) {
        let own = Pool::default();
        if let Some(group) = self.free_group() {
            self.table().give_group(group, None);
            assert!(own.add(group));
        }
        let takes = !alive || self.flaw == Flaw::EndsWithSession;
        if takes && self.flaw != Flaw::LeavesDead {
            let its = |lock: &Lock| lock.owner == owner;
            if self.table().release(INO, &own, its).expect("blocks") {
                self.wake();
            }
        }
        self.table().reclaim(false, |session| live.contains(&session));
    }
}

fn explore(flaw: Flaw, scenario: impl Fn(Arc<Machine>) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(5);
    model.max_branches = 100_000;
    model.check(move || scenario(Arc::new(Machine::new(flaw))));
}

/// A thread of the model. The first thread only sets up, joins and judges: loom explores what it
/// does between spawn and join less than it does the spawned.
fn run<T: 'static>(
    machine: &Arc<Machine>,
    part: impl FnOnce(&Machine) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let machine = machine.clone();
    spawn(move || part(&machine))
}

/// Two processes want the same byte, one of them twice.
fn excludes(flaw: Flaw) {
    explore(flaw, move |machine| {
        let (first, second) = (Process::new(&machine, 1, 1), Process::new(&machine, 2, 2));
        let first = run(&machine, move |m| {
            m.work(&first);
            m.work(&first);
            m.over.store(1, SeqCst);
        });
        let second = run(&machine, move |m| {
            m.work(&second);
            m.over.store(1, SeqCst);
        });
        second.join().expect("joins");
        first.join().expect("joins");
        assert!(machine.table().is_free(INO), "promise: all was given back");
    });
}

/// Locks of different bytes, taken and given back at once, are each their owner's.
fn loses_nothing(flaw: Flaw) {
    explore(flaw, move |machine| {
        let first = Process::new(&machine, 1, 1);
        let second = match flaw {
            Flaw::ChildKeepsBlocks => Process::beside(2, 0),
            _ => Process::new(&machine, 2, 2),
        };
        assert!(machine.try_lock(&first, 5, LockKind::Shared));
        let other = run(&machine, move |m| {
            assert!(m.try_lock(&second, 1, LockKind::Exclusive));
            assert!(m.try_lock(&second, 5, LockKind::Shared));
            second
        });
        let one = run(&machine, move |m| {
            assert!(m.try_lock(&first, 0, LockKind::Exclusive));
            m.give_back(&first, 5);
            first
        });
        let first = one.join().expect("joins");
        let second = other.join().expect("joins");
        assert!(machine.holds(&first, 0) && machine.holds(&second, 1), "promise: both hold");
        assert!(machine.holds(&second, 5), "promise: a lock is there until it is given back");
        assert!(!machine.holds(&first, 5), "promise: what was given back is gone");
    });
}

/// A forked child does not have its parent's locks, and takes none away.
fn a_child_is_another(flaw: Flaw) {
    explore(flaw, move |machine| {
        let parent = Process::new(&machine, 1, 1);
        let child = Process::new(&machine, if flaw == Flaw::ChildKeepsOwner { 1 } else { 2 }, 2);
        machine.take(&parent, 0);
        machine.enter();
        let child = run(&machine, move |m| m.work(&child));
        let parent = run(&machine, move |m| {
            loom::thread::yield_now();
            m.leave();
            m.give_back(&parent, 0);
            m.over.store(1, SeqCst);
        });
        parent.join().expect("joins");
        child.join().expect("joins");
    });
}

/// A holder dies, also in the middle of a change; its blocks go to a newcomer.
fn the_dead_let_go(flaw: Flaw) {
    explore(flaw, move |machine| {
        let (dead, waiter) = (Process::new(&machine, 1, 1), Process::new(&machine, 2, 2));
        assert!(machine.try_lock(&dead, 0, LockKind::Exclusive));
        machine.table().set_and_die(&dead.lock(3, LockKind::Exclusive), &dead.pool);
        let server = run(&machine, move |m| {
            m.session_ended(dead.owner, false, &[2]);
            let newcomer = Process::new(m, 3, 1);
            assert!(m.try_lock(&newcomer, 7, LockKind::Exclusive));
            assert!(m.holds(&newcomer, 7), "promise: a newcomer's lock is its own");
            m.over.store(1, SeqCst);
        });
        let waits = run(&machine, move |m| {
            m.take(&waiter, 0);
            waiter
        });
        let waiter = waits.join().expect("joins");
        server.join().expect("joins");
        assert!(machine.holds(&waiter, 0), "promise: who waited for the dead has the lock");
        assert!(!machine.holds(&waiter, 3), "promise: what was not published is not there");
    });
}

/// A process that execs keeps its locks: another session gives them back.
fn exec_keeps(flaw: Flaw) {
    explore(flaw, move |machine| {
        let before = Process::new(&machine, 1, 1);
        let other = Process::new(&machine, 2, 2);
        machine.take(&before, 0);
        machine.enter();
        let waiter = run(&machine, move |m| m.work(&other));
        let changed = run(&machine, move |m| {
            m.session_ended(before.owner, true, &[2]);
            let after = Process { owner: before.owner, pool: Pool::default() };
            loom::thread::yield_now();
            m.leave();
            m.give_back(&after, 0);
            m.over.store(1, SeqCst);
        });
        changed.join().expect("joins");
        waiter.join().expect("joins");
    });
}

#[test]
fn a_lock_is_one_processs_and_who_waits_is_woken() {
    excludes(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn without_a_mark_who_waits_sleeps_for_ever() {
    excludes(Flaw::SleepsUnmarked);
}

#[test]
#[should_panic(expected = "promise:")]
fn unwoken_he_sleeps_for_ever() {
    excludes(Flaw::WakesNobody);
}

#[test]
fn no_lock_is_lost_and_none_stays() {
    loses_nothing(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn with_its_parents_blocks_a_child_destroys_lists() {
    loses_nothing(Flaw::ChildKeepsBlocks);
}

#[test]
fn a_forked_child_waits_for_its_parent() {
    a_child_is_another(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn a_child_with_its_parents_name_would_not() {
    a_child_is_another(Flaw::ChildKeepsOwner);
}

#[test]
fn a_dead_holder_is_in_nobodys_way_and_changed_nothing_half() {
    the_dead_let_go(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn who_waits_for_the_dead_would_wait_for_ever() {
    the_dead_let_go(Flaw::LeavesDead);
}

#[test]
fn a_process_keeps_its_locks_through_exec() {
    exec_keeps(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn taken_with_the_session_they_would_be_lost_in_exec() {
    exec_keeps(Flaw::EndsWithSession);
}
