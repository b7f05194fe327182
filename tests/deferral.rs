//! Deferred changes explored with `loom`: what `terral_format::deferred` promises holds in every
//! interleaving of one name's clients and its server, and breaks when a rule is left out.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terral-tests --test deferral --target-dir
//! target/loom`; without the flag this file is empty.

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::thread::spawn;
use terral_format::deferred::{CHANGE_BYTES, Claim, DeferredTable, Key, WORDS};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The client commits without a look at the gate.
    NoGate,
    /// The server clears the word before it changes the table.
    ClearsFirst,
    /// The server takes whatever it finds, also what came while it looked.
    NoLimit,
}

/// One name, what it stands for (0: nothing), and everything that was applied, in order.
struct Machine {
    flaw: Flaw,
    words: Vec<AtomicU64>,
    gate: AtomicU64,
    name: AtomicU64,
    applied: std::sync::Mutex<Vec<u64>>,
}

const NAME: u32 = 7;

impl Machine {
    fn new(flaw: Flaw) -> Self {
        Machine {
            flaw,
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            gate: AtomicU64::new(0),
            name: AtomicU64::new(0),
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
        let open = self.flaw == Flaw::NoGate || self.gate.load(SeqCst) == 0;
        if self.name.load(SeqCst) != 0 || !open {
            self.table().withdraw(claim);
            return false;
        }
        self.commit(claim, ino)
    }

    fn commit(&self, claim: Claim, what: u64) -> bool {
        self.table().commit(claim, &what.to_ne_bytes())
    }

    /// What any client finds under the name; `None`: it has to ask.
    fn look(&self) -> Option<u64> {
        (!self.table().is_pending(Key::name(NAME))).then(|| self.name.load(SeqCst))
    }

    fn apply(&self, limit: u64, revoke: bool) {
        let (found, _) = self.table().collect(limit, revoke);
        for change in found {
            let mut buffer = [0; CHANGE_BYTES];
            let bytes = self.table().read(&change, &mut buffer);
            let what = u64::from_ne_bytes(bytes.try_into().expect("a number"));
            if self.flaw == Flaw::ClearsFirst {
                self.table().applied(&change);
            }
            if self.name.load(SeqCst) == 0 {
                self.name.store(what, SeqCst);
            }
            self.applied.lock().expect("no panic").push(what);
            self.table().applied(&change);
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
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
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
