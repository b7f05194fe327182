//! Deferred changes explored with `loom`: what `terral_format::local::deferred` promises holds in
//! every interleaving of the clients of two names, of a file and of a directory with their server,
//! and breaks when a rule is left out.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terral-tests --test deferral --target-dir
//! target/loom`; without the flag this file is empty.

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::thread::spawn;
use terral_format::local::deferred::{CHANGE_BYTES, Claim, DeferredTable, Key, Pending, WORDS};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The client commits without a look at the gate.
    NoGate,
    /// The client looks at the gate when it has looked whether the name is there.
    GateLast,
    /// The server clears the word before it changes the table.
    ClearsFirst,
    /// The server takes whatever it finds, also what came while it looked.
    NoLimit,
    /// Who moves a name commits before the old name has its shadow.
    ShadowLate,
    /// The server takes a file's memory without a look who is just opening it.
    NoBar,
    /// Who opens looks at the file before the claim only.
    LooksBefore,
    /// Who creates does not look whether the directory goes.
    NoRemoval,
    /// Who has opened a file at rest goes by the memory that it had before the claim.
    FindsBefore,
    /// Who closes a file goes by having recalled its open, also if the server has taken it.
    RecallsTooLate,
}

/// Two names and what they stand for (0: nothing), whether a file has its memory, whether a
/// directory is there, and everything that was applied, in order.
struct Machine {
    flaw: Flaw,
    words: Vec<AtomicU64>,
    gate: AtomicU64,
    name: AtomicU64,
    other: AtomicU64,
    memory: AtomicU64,
    closing: AtomicU64,
    /// How many the server knows to have the file open.
    openers: AtomicU64,
    applied: std::sync::Mutex<Vec<u64>>,
}

const NAME: u32 = 7;
const OTHER: u32 = 8;
const FILE: u32 = 9;
const DIRECTORY: u32 = 10;

// What is done, beside the number of what is created.
const MOVE: u64 = 1 << 8;
const UNLINK: u64 = 2 << 8;
const OPEN: u64 = 3 << 8;
const REMOVE: u64 = 4 << 8;
const OPEN_AT_REST: u64 = 5 << 8;

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("a number"))
}

/// What the change is about whose shadow says this.
fn master(bytes: &[u8]) -> Option<Key> {
    (number(bytes) & MOVE != 0).then(|| Key::name(OTHER))
}

impl Machine {
    fn new(flaw: Flaw) -> Self {
        Machine {
            flaw,
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            gate: AtomicU64::new(0),
            name: AtomicU64::new(0),
            other: AtomicU64::new(0),
            memory: AtomicU64::new(1),
            closing: AtomicU64::new(0),
            openers: AtomicU64::new(0),
            applied: std::sync::Mutex::default(),
        }
    }

    fn table(&self) -> DeferredTable<'_> {
        DeferredTable::new(&self.words)
    }

    /// A client's create, deferred. False: it has to ask.
    fn create(&self, session: u16, ino: u64) -> bool {
        let Some(claim) = self.table().claim(Key::name(NAME), session, ino, true) else {
            return false;
        };
        let early = (self.flaw == Flaw::GateLast).then(|| self.look());
        let open = self.flaw == Flaw::NoGate || self.gate.load(SeqCst) == 0;
        let goes = self.table().is_claimed(Key::removal(DIRECTORY));
        let stays = !goes || self.flaw == Flaw::NoRemoval;
        if early.unwrap_or_else(|| self.look()) != Some(0) || !open || !stays {
            self.table().withdraw(claim);
            return false;
        }
        self.commit(claim.within([DIRECTORY; 2]), ino)
    }

    /// A client's unlink of what it created, deferred.
    fn unlink(&self, session: u16, ino: u64) -> bool {
        let claim = self.table().claim(Key::name(NAME), session, 9, true);
        let Some(claim) = claim else { return false };
        if self.look() != Some(ino) {
            self.table().withdraw(claim);
            return false;
        }
        self.commit(claim, UNLINK)
    }

    /// A client's rename of the one name to the other, deferred.
    fn rename(&self, ino: u64) -> bool {
        let (session, count) = (1, 3);
        let [to, from] = [OTHER, NAME].map(Key::name).map(|key| {
            self.table().claim(key, session, count, true).expect("nobody is in the way")
        });
        let bytes = (MOVE | ino).to_ne_bytes();
        if self.flaw == Flaw::ShadowLate {
            return self.table().commit(to, &bytes) && self.table().shadow(from, &bytes);
        }
        let done = self.table().shadow(from, &bytes) && self.table().commit(to, &bytes);
        self.table().cast(from);
        done
    }

    /// A client's open of the file, deferred.
    fn open(&self) -> bool {
        let before = self.memory.load(SeqCst);
        let claim = self.table().claim(Key::opening(FILE), 1, 4, false).expect("two words");
        let closing = self.closing.load(SeqCst) != 0;
        let memory = if self.flaw == Flaw::LooksBefore { before } else { self.memory.load(SeqCst) };
        if closing || memory == 0 {
            self.table().withdraw(claim);
            return false;
        }
        self.commit(claim, OPEN)
    }

    /// A client opens the file, whether it has its memory or is at rest, and uses the memory if it
    /// finds some then; what it does not find it would ask for.
    fn open_at_rest(&self) {
        let before = self.memory.load(SeqCst);
        let claim = self.table().claim(Key::opening(FILE), 1, 4, false).expect("two words");
        if self.closing.load(SeqCst) != 0 || !self.commit(claim, OPEN_AT_REST) {
            self.table().withdraw(claim);
            return;
        }
        let found = if self.flaw == Flaw::FindsBefore { before } else { self.memory.load(SeqCst) };
        if found != 0 {
            assert_eq!(self.memory.load(SeqCst), found, "promise: it keeps what was found");
        }
    }

    /// A client opens the file, and gives it back: whether the server never heard of it.
    fn open_and_recall(&self, count: u64) -> bool {
        let claim = self.table().claim(Key::opening(FILE), 1, count, false).expect("two words");
        let open = self.table().commit_open(claim, &(OPEN | count).to_ne_bytes());
        let open = open.expect("nobody revokes");
        self.table().recall(open) || self.flaw == Flaw::RecallsTooLate
    }

    /// The server takes the memory of the file if nobody has it open.
    fn take_memory(&self) {
        self.closing.store(1, SeqCst);
        let opened = self.flaw != Flaw::NoBar && self.table().revoke(Key::opening(FILE));
        if !opened && self.openers.load(SeqCst) == 0 {
            self.memory.store(0, SeqCst);
        }
        self.closing.store(0, SeqCst);
    }

    /// A client removes the directory that the name is in, if it is empty, deferred.
    fn remove_directory(&self) -> bool {
        let claim = self.table().claim(Key::removal(DIRECTORY), 2, 5, true).expect("two words");
        let comes = !self.table().names_are(Some(claim), DIRECTORY, |_| false);
        if comes || self.name.load(SeqCst) != 0 {
            self.table().withdraw(claim);
            return false;
        }
        self.commit(claim, REMOVE)
    }

    fn commit(&self, claim: Claim, what: u64) -> bool {
        self.table().commit(claim, &what.to_ne_bytes())
    }

    /// What any client finds under the name; `None`: it has to ask.
    fn look(&self) -> Option<u64> {
        let mut buffer = [0; CHANGE_BYTES];
        match self.table().latest(Key::name(NAME), master, &mut buffer) {
            Pending::Nothing => Some(self.name.load(SeqCst)),
            Pending::Change(bytes) if number(bytes) < MOVE => Some(number(bytes)),
            Pending::Change(_) => Some(0),
            Pending::Unsure => None,
        }
    }

    /// The same of the other name.
    fn look_there(&self) -> Option<u64> {
        let mut buffer = [0; CHANGE_BYTES];
        match self.table().latest(Key::name(OTHER), master, &mut buffer) {
            Pending::Nothing => Some(self.other.load(SeqCst)),
            Pending::Change(bytes) => Some(number(bytes) & !MOVE),
            Pending::Unsure => None,
        }
    }

    fn apply(&self, limit: u64, revoke: bool) {
        let (found, _) = self.table().collect(limit, revoke);
        for change in found {
            let mut buffer = [0; CHANGE_BYTES];
            let bytes = self.table().read(&change, &mut buffer);
            let what = number(bytes);
            let shadow = (what & MOVE != 0).then(|| Key::name(NAME));
            if self.flaw == Flaw::ClearsFirst {
                self.table().applied(&change, shadow);
            }
            match what {
                what if what & !0xff == OPEN => {
                    assert_eq!(self.memory.load(SeqCst), 1, "promise: it has its memory")
                }
                OPEN_AT_REST => self.openers.store(1, SeqCst),
                UNLINK => self.name.store(0, SeqCst),
                REMOVE => {}
                what if what & MOVE != 0 => {
                    self.other.store(what & !MOVE, SeqCst);
                    self.name.store(0, SeqCst);
                }
                what if self.name.load(SeqCst) == 0 => self.name.store(what, SeqCst),
                _ => {}
            }
            self.applied.lock().expect("no panic").push(what);
            self.table().applied(&change, shadow);
        }
    }

    /// The server's usual round.
    fn round(&self) {
        let limit = self.table().next_stamp();
        self.apply(if self.flaw == Flaw::NoLimit { u64::MAX } else { limit }, false);
    }

    /// The server creates the name for somebody who waits. False: it is there.
    fn create_asked(&self, ino: u64) -> bool {
        self.gate.store(1, SeqCst);
        self.apply(u64::MAX, true);
        let missing = self.name.load(SeqCst) == 0;
        if missing {
            self.name.store(ino, SeqCst);
        }
        self.gate.store(0, SeqCst);
        missing
    }
}

fn explore(flaw: Flaw, scenario: impl Fn(Arc<Machine>) + Sync + Send + 'static) {
    explore_within(4, flaw, scenario);
}

fn explore_within(
    preemptions: usize,
    flaw: Flaw,
    scenario: impl Fn(Arc<Machine>) + Sync + Send + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 50_000;
    model.check(move || scenario(Arc::new(Machine::new(flaw))));
}

/// A deferred create and one that is asked for: one of them finds the other's file.
fn only_one_creates(flaw: Flaw) {
    explore(flaw, |machine| {
        let (one, other) = (machine.clone(), machine.clone());
        let client = spawn(move || one.create(1, 5));
        let server = spawn(move || other.create_asked(6));
        let (deferred, asked) = (client.join().expect("joins"), server.join().expect("joins"));
        machine.round();
        let there = machine.name.load(SeqCst);
        assert!(!(deferred && asked), "promise: a name is created once");
        assert!(!deferred || there == 5, "promise: what was committed is there");
        assert!(!asked || there == 6, "promise: what was answered is there");
    });
}

/// Two deferred creates of one name.
fn only_one_commits(flaw: Flaw) {
    explore(flaw, |machine| {
        let (one, other) = (machine.clone(), machine.clone());
        let first = spawn(move || one.create(1, 5));
        let second = spawn(move || other.create(2, 6));
        let done = [first.join().expect("joins"), second.join().expect("joins")];
        assert!(done != [true, true], "promise: a name is created once");
    });
}

/// Whoever looks after a create finds it, or asks.
fn who_looks_later_sees(flaw: Flaw) {
    explore(flaw, |machine| {
        assert!(machine.create(1, 5), "nobody is in the way");
        let (one, other) = (machine.clone(), machine.clone());
        let server = spawn(move || one.round());
        let reader = spawn(move || {
            let found = other.look();
            assert!(matches!(found, None | Some(5)), "promise: it is seen");
        });
        reader.join().expect("joins");
        server.join().expect("joins");
    });
}

/// Of two changes one after the other, the later is never applied alone.
fn order_is_kept(flaw: Flaw) {
    explore(flaw, |machine| {
        let (one, other) = (machine.clone(), machine.clone());
        let client = spawn(move || {
            for (what, key) in [(1, Key::attributes(3)), (2, Key::attributes(3))] {
                let claim = one.table().claim(key, 1, what, false).expect("two words");
                assert!(one.commit(claim, what));
            }
        });
        let server = spawn(move || other.round());
        client.join().expect("joins");
        server.join().expect("joins");
        machine.apply(u64::MAX, false);
        let applied = machine.applied.lock().expect("no panic").clone();
        assert_eq!(applied, [1, 2], "promise: in order");
    });
}

/// Who looks at two names while the one becomes the other finds neither both nor none.
fn a_name_moves_in_one_step(flaw: Flaw, old_first: bool) {
    explore_within(3, flaw, move |machine| {
        machine.name.store(5, SeqCst);
        let (one, other) = (machine.clone(), machine.clone());
        let client = spawn(move || {
            assert!(one.rename(5) || one.flaw != Flaw::None, "nobody revokes");
        });
        let server = spawn(move || other.round());
        let looks = machine.clone();
        let reader = spawn(move || {
            if old_first {
                let found = (looks.look(), looks.look_there());
                assert!(found != (Some(0), Some(0)), "promise: never gone");
            } else {
                let found = (looks.look_there(), looks.look());
                assert!(found != (Some(5), Some(5)), "promise: never twice");
            }
        });
        reader.join().expect("joins");
        client.join().expect("joins");
        server.join().expect("joins");
        machine.apply(u64::MAX, true);
        let there = (machine.name.load(SeqCst), machine.other.load(SeqCst));
        assert!(there == (0, 5) && !machine.table().is_any_name_pending(), "promise: it has moved");
    });
}

/// Whoever has a file open finds its memory.
fn what_is_open_keeps_its_memory(flaw: Flaw) {
    explore(flaw, |machine| {
        let (one, other) = (machine.clone(), machine.clone());
        let client = spawn(move || one.open());
        let server = spawn(move || other.take_memory());
        client.join().expect("joins");
        server.join().expect("joins");
        machine.round();
    });
}

/// Whoever has opened a file at rest keeps the memory that he finds, as the server gives it some
/// for another and takes it again.
fn what_was_at_rest_keeps_the_memory_that_is_found(flaw: Flaw) {
    explore(flaw, |machine| {
        let (one, other) = (machine.clone(), machine.clone());
        let client = spawn(move || one.open_at_rest());
        let server = spawn(move || {
            other.take_memory();
            other.round();
            // Not the number that it had: nobody may use what is another's by then.
            if other.memory.load(SeqCst) == 0 {
                other.memory.store(2, SeqCst);
            }
            other.take_memory();
        });
        client.join().expect("joins");
        server.join().expect("joins");
    });
}

/// An open that is given back at once was never there, or the server applies it: never both.
fn what_is_recalled_is_not_applied(flaw: Flaw) {
    explore(flaw, |machine| {
        let other = machine.clone();
        let server = spawn(move || other.round());
        let recalled = [machine.open_and_recall(1), machine.open_and_recall(2)];
        server.join().expect("joins");
        machine.apply(u64::MAX, false);
        let applied = machine.applied.lock().expect("no panic").clone();
        for (count, recalled) in [(1, recalled[0]), (2, recalled[1])] {
            let times = applied.iter().filter(|what| **what == OPEN | count).count();
            assert_eq!(times, usize::from(!recalled), "promise: once, or recalled");
        }
        assert!(!machine.table().is_claimed(Key::opening(FILE)), "promise: nothing is left");
    });
}

/// What is created in a directory keeps it.
fn only_what_is_empty_is_removed(flaw: Flaw) {
    explore(flaw, |machine| {
        let (one, other) = (machine.clone(), machine.clone());
        let creates = spawn(move || one.create(1, 5));
        let removes = spawn(move || other.remove_directory());
        let done = [creates.join().expect("joins"), removes.join().expect("joins")];
        assert!(done != [true, true], "promise: nothing is in it");
    });
}

/// Changes of one name one after the other: the last counts at each moment.
fn the_last_change_counts(flaw: Flaw) {
    explore(flaw, |machine| {
        let (one, other) = (machine.clone(), machine.clone());
        let server = spawn(move || {
            other.round();
            other.round();
        });
        // Not by the first thread: what that does is hardly explored beside what it has spawned.
        let client = spawn(move || {
            assert!(one.create(1, 5), "nobody is in the way");
            assert!(matches!(one.look(), None | Some(5)), "promise: it is seen");
            let unlinked = one.unlink(1, 5);
            assert!(!unlinked || matches!(one.look(), None | Some(0)), "promise: it is gone");
            unlinked
        });
        let unlinked = client.join().expect("joins");
        server.join().expect("joins");
        machine.round();
        assert!(!unlinked || machine.name.load(SeqCst) == 0, "promise: it is gone");
    });
}

/// Whoever looks after two changes of a name finds what the later one left, also while the server
/// applies both.
fn what_is_over_does_not_come_back(flaw: Flaw) {
    explore(flaw, |machine| {
        assert!(machine.create(1, 5) && machine.unlink(1, 5), "nobody is in the way");
        let (one, other) = (machine.clone(), machine.clone());
        let server = spawn(move || one.round());
        let reader = spawn(move || {
            let found = other.look();
            assert!(matches!(found, None | Some(0)), "promise: it is gone");
        });
        reader.join().expect("joins");
        server.join().expect("joins");
        assert_eq!(machine.look(), Some(0), "promise: it is gone");
    });
}

#[test]
fn of_two_changes_that_are_being_applied_the_first_is_never_the_last() {
    what_is_over_does_not_come_back(Flaw::None);
}

#[test]
fn what_moves_is_seen_once_at_any_moment() {
    a_name_moves_in_one_step(Flaw::None, true);
    a_name_moves_in_one_step(Flaw::None, false);
}

#[test]
#[should_panic(expected = "promise:")]
fn without_a_shadow_before_it_is_seen_twice() {
    a_name_moves_in_one_step(Flaw::ShadowLate, false);
}

#[test]
fn a_file_that_is_just_opened_keeps_its_memory() {
    what_is_open_keeps_its_memory(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn without_a_look_at_who_opens_it_loses_its_memory() {
    what_is_open_keeps_its_memory(Flaw::NoBar);
}

#[test]
#[should_panic(expected = "promise:")]
fn looked_at_before_the_claim_it_has_lost_its_memory() {
    what_is_open_keeps_its_memory(Flaw::LooksBefore);
}

#[test]
fn a_file_that_was_opened_at_rest_keeps_the_memory_that_it_is_given() {
    what_was_at_rest_keeps_the_memory_that_is_found(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn found_before_the_claim_its_memory_is_another_ones() {
    what_was_at_rest_keeps_the_memory_that_is_found(Flaw::FindsBefore);
}

#[test]
fn an_open_is_recalled_or_applied() {
    what_is_recalled_is_not_applied(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn recalled_too_late_it_is_applied() {
    what_is_recalled_is_not_applied(Flaw::RecallsTooLate);
}

#[test]
fn a_directory_goes_only_when_nothing_comes() {
    only_what_is_empty_is_removed(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn without_a_look_at_its_removal_something_comes_into_it() {
    only_what_is_empty_is_removed(Flaw::NoRemoval);
}

#[test]
fn of_changes_of_one_name_the_last_counts() {
    the_last_change_counts(Flaw::None);
}

#[test]
fn a_name_is_created_once() {
    only_one_creates(Flaw::None);
    only_one_commits(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn without_a_look_at_the_gate_it_is_created_twice() {
    only_one_creates(Flaw::NoGate);
}

#[test]
#[should_panic(expected = "promise:")]
fn with_a_look_at_the_gate_at_last_it_is_created_twice() {
    only_one_creates(Flaw::GateLast);
}

#[test]
fn what_is_committed_is_seen() {
    who_looks_later_sees(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn cleared_before_it_is_applied_it_is_not_seen() {
    who_looks_later_sees(Flaw::ClearsFirst);
}

#[test]
fn changes_are_applied_in_their_order() {
    order_is_kept(Flaw::None);
}

#[test]
#[should_panic(expected = "promise:")]
fn taken_while_they_come_they_are_applied_out_of_order() {
    order_is_kept(Flaw::NoLimit);
}
