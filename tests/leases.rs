//! What is borrowed, explored with `loom`: what `terral_format::local::lease` promises of a read, a
//! write and a deferred change holds in every interleaving with the machine that lent and with the
//! server, which has lost something and has it anew, and breaks when a rule is left out.
//!
//! The words are the real ones; the clock is one that the lender moves. The lender goes by it, and
//! asks nobody: what is here when the deadline passes is the last that it takes over.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terral-tests --test leases --target-dir
//! target/loom`; without the flag this file is empty.

#![cfg(loom)]

mod flawed;

use flawed::promise;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use loom::sync::{Arc, Mutex};
use loom::thread::{spawn, yield_now};
use terral_format::ids::PageNumber;
use terral_format::local::deferred::{DeferredTable, Key, WORDS};
use terral_format::local::entry::MapEntry;
use terral_format::local::hazard;
use terral_format::local::lease::Until;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Says success without a look at the clock.
    NeverLooks,
    /// Looks at the clock before what is borrowed is used.
    LooksFirst,
    /// Notes the deadline when what is borrowed was used.
    NotesLast,
    /// Takes for not done what was late.
    ForgetsLate,
    /// The server moves the deadline on before it has taken away what it has lost.
    RenewsFirst,
    /// Looks whether it is borrowed before the claim, or before it notes the deadline.
    MarkFirst,
}

const DEADLINE: u64 = 1;
const RENEWED: u64 = 10;
/// How a directory is marked: not, as borrowed, as elsewhere.
const BORROWED: u64 = 1;
const ELSEWHERE: u64 = 2;
/// What this machine writes, and what others do, once the loan is over.
const OURS: u64 = 1;
const THEIRS: u64 = 2;
const KEY: u32 = 7;

struct Machine {
    flaw: Flaw,
    clock: AtomicU64,
    deadline: AtomicU64,
    entry: AtomicU64,
    slot: AtomicU64,
    /// Two pages, of which the first was lent.
    bytes: [AtomicU64; 2],
    /// The name in the table: nothing, ours, or theirs.
    name: AtomicU64,
    gate: AtomicU64,
    /// Whether the name is in a directory that is borrowed.
    marked: AtomicU64,
    deferred: Vec<AtomicU64>,
    /// What the lender has.
    lender: AtomicU64,
    /// How often something was written here.
    writes: AtomicU64,
    /// Whether the server knows what became of the loan.
    settled: Mutex<bool>,
}

impl Machine {
    fn new(flaw: Flaw) -> Self {
        let word = AtomicU64::new;
        Machine {
            flaw,
            clock: word(0),
            deadline: word(DEADLINE),
            entry: word(MapEntry::new(PageNumber(0), 0, 1).borrowed().0),
            slot: word(0),
            bytes: [word(0), word(0)],
            name: word(0),
            gate: word(0),
            marked: word(BORROWED),
            deferred: (0..WORDS).map(|_| word(0)).collect(),
            lender: word(0),
            writes: word(0),
            settled: Mutex::new(false),
        }
    }

    fn page(&self, entry: MapEntry) -> &AtomicU64 {
        &self.bytes[entry.page().0 as usize]
    }

    fn table(&self) -> DeferredTable<'_> {
        DeferredTable::new(&self.deferred)
    }

    // The lender and the server.

    /// The deadline passes; the lender takes what is here, and lets others go on with it.
    fn end(&self, here: impl Fn() -> u64, then: impl Fn(u64) -> u64) {
        self.clock.store(DEADLINE, SeqCst);
        fence(SeqCst);
        self.lender.store(then(here()), SeqCst);
    }

    /// Has the chunk anew, as the lender has it now.
    fn fetch_chunk(&self) {
        self.settle(|| {
            let old = MapEntry::load(&self.entry);
            old.recalled().store(&self.entry);
            fence(SeqCst);
            while hazard::observe(&self.slot).page() == Some(old.page()) {
                yield_now();
            }
            self.bytes[1].store(self.lender.load(SeqCst), SeqCst);
            MapEntry::new(PageNumber(1), 0, 2).borrowed().store(&self.entry);
        });
    }

    /// The directory is this machine's own, and from now on another's: what is committed by then,
    /// that one has.
    fn lend_out(&self) {
        self.marked.store(BORROWED, SeqCst);
        fence(SeqCst);
        self.gate.store(1, SeqCst);
        let (committed, _) = self.table().collect(u64::MAX, true);
        for change in &committed {
            self.name.store(OURS, SeqCst);
            self.table().applied(change, None);
        }
        self.gate.store(0, SeqCst);
    }

    /// Has the directory anew: what was committed, and the lender does not have, never was.
    fn fetch_names(&self) {
        self.settle(|| {
            self.gate.store(1, SeqCst);
            let (committed, _) = self.table().collect(u64::MAX, true);
            self.name.store(self.lender.load(SeqCst), SeqCst);
            committed.iter().for_each(|change| self.table().applied(change, None));
            self.gate.store(0, SeqCst);
        });
    }

    /// Has lost the directory; what another lender has lent is renewed.
    fn lose_names(&self) {
        self.settle(|| self.marked.store(ELSEWHERE, SeqCst));
    }

    fn settle(&self, take: impl Fn()) {
        let mut settled = self.settled.lock().expect("no panic under the lock");
        if self.flaw == Flaw::RenewsFirst {
            self.deadline.store(RENEWED, SeqCst);
        }
        take();
        self.deadline.store(RENEWED, SeqCst);
        *settled = true;
    }

    /// The server's answer, when it knows one, to who was late.
    fn counts(&self, is_there: impl Fn() -> bool) -> bool {
        if self.flaw == Flaw::ForgetsLate {
            return false;
        }
        while !*self.settled.lock().expect("no panic under the lock") {
            yield_now();
        }
        is_there()
    }

    // Clients.

    fn note(&self) -> Until {
        Until::noted(&self.deadline, true)
    }

    fn is_marked(&self) -> bool {
        self.marked.load(SeqCst) != 0
    }

    /// Uses something borrowed; whether the deadline had passed when that was done.
    fn is_late(&self, uses: impl FnOnce()) -> bool {
        let (noted, now) = (self.note(), || self.clock.load(SeqCst));
        let early = (self.flaw == Flaw::LooksFirst).then(|| noted.is_over(now));
        uses();
        fence(SeqCst);
        let noted = if self.flaw == Flaw::NotesLast { self.note() } else { noted };
        self.flaw != Flaw::NeverLooks && early.unwrap_or_else(|| noted.is_over(now))
    }

    fn is_same(&self, entry: MapEntry) -> bool {
        MapEntry::load(&self.entry).is_chunk_of(entry)
    }

    fn read(&self) -> u64 {
        loop {
            let entry = MapEntry::load(&self.entry);
            let (mut read, mut same) = (0, false);
            let late = self.is_late(|| {
                read = self.page(entry).load(Relaxed);
                same = self.is_same(entry);
            });
            if same && (!late || self.counts(|| self.is_same(entry))) {
                return read;
            }
            yield_now();
        }
    }

    fn write(&self) {
        loop {
            let entry = MapEntry::load(&self.entry);
            if entry.is_recalled() {
                yield_now();
                continue;
            }
            let pin = hazard::enter(&self.slot, entry.page(), 1).expect("own slot");
            fence(SeqCst);
            if MapEntry::load(&self.entry) != entry {
                let _ = hazard::leave(&self.slot, pin);
                continue;
            }
            let (mut pin, mut left) = (Some(pin), false);
            let mut leave = || left = pin.take().is_some_and(|pin| hazard::leave(&self.slot, pin));
            let late = self.is_late(|| {
                let bytes = self.page(entry);
                bytes.store(bytes.load(Relaxed) | OURS, SeqCst);
                self.writes.fetch_add(1, SeqCst);
                if self.flaw == Flaw::NotesLast {
                    leave();
                }
            });
            leave();
            let _ = left;
            if !late || self.counts(|| self.is_same(entry)) {
                return;
            }
            yield_now();
        }
    }

    /// Looks for a name in a directory that may be borrowed; else the server asks the lender.
    fn look(&self) -> u64 {
        let early = (self.flaw == Flaw::MarkFirst).then(|| self.marked.load(SeqCst));
        let noted = self.note();
        let mark = early.unwrap_or_else(|| self.marked.load(SeqCst));
        let name = self.name.load(SeqCst);
        fence(SeqCst);
        let over = self.flaw != Flaw::NeverLooks && noted.is_over(|| self.clock.load(SeqCst));
        if mark == BORROWED && !over { name } else { self.lender.load(SeqCst) }
    }

    /// Makes a name in a directory that may come to be another machine's meanwhile.
    fn create_meanwhile(&self) -> bool {
        let early = (self.flaw == Flaw::MarkFirst).then(|| self.is_marked());
        let Some(claim) = self.table().claim(Key::name(KEY), 1, 1, true) else { return false };
        fence(SeqCst);
        let until = Until::noted(&self.deadline, early.unwrap_or_else(|| self.is_marked()));
        if self.gate.load(SeqCst) != 0 || self.name.load(SeqCst) != 0 {
            self.table().withdraw(claim);
            return false;
        }
        let done = self.table().commit(claim, b"ours");
        fence(SeqCst);
        let late = until.is_over(|| self.clock.load(SeqCst));
        done && (!late || self.counts(|| self.name.load(SeqCst) == OURS))
    }

    /// Makes a name. False: others have one, or the server is to be asked.
    fn create(&self) -> bool {
        let Some(claim) = self.table().claim(Key::name(KEY), 1, 1, true) else { return false };
        let (mut claim, mut done) = (Some(claim), false);
        let late = self.is_late(|| {
            let claim = claim.take().expect("once");
            if self.gate.load(SeqCst) != 0 || self.name.load(SeqCst) != 0 {
                self.table().withdraw(claim);
                return;
            }
            done = self.table().commit(claim, b"ours");
        });
        done && (!late || self.counts(|| self.name.load(SeqCst) == OURS))
    }
}

/// Explores a client against the lender and the server.
fn explore(
    flaw: Flaw,
    client: impl Fn(&Machine) + Sync + Send + Copy + 'static,
    others: impl Fn(&Machine) + Sync + Send + Copy + 'static,
    judge: impl Fn(&Machine) + Sync + Send + 'static,
) {
    explore_from(flaw, |_| (), client, others, judge);
}

/// The same, of a machine that is as `begin` says.
fn explore_from(
    flaw: Flaw,
    begin: impl Fn(&Machine) + Sync + Send + 'static,
    client: impl Fn(&Machine) + Sync + Send + Copy + 'static,
    others: impl Fn(&Machine) + Sync + Send + Copy + 'static,
    judge: impl Fn(&Machine) + Sync + Send + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(5);
    model.max_branches = 50_000;
    model.check(move || {
        let machine = Arc::new(Machine::new(flaw));
        begin(&machine);
        let (ours, theirs) = (machine.clone(), machine.clone());
        let client = spawn(move || client(&ours));
        let others = spawn(move || others(&theirs));
        client.join().expect("joins");
        others.join().expect("joins");
        judge(&machine);
    });
}

/// The loan is over, others change the chunk, and this machine has it anew.
fn chunk_is_lost(machine: &Machine) {
    machine.end(|| machine.bytes[0].load(SeqCst), |here| here | THEIRS);
    machine.fetch_chunk();
}

fn read(flaw: Flaw) {
    let client = |machine: &Machine| {
        let before = machine.lender.load(SeqCst);
        let read = machine.read();
        assert!(read & before == before, "promise: no read is older than its call");
    };
    explore(flaw, client, chunk_is_lost, |_| ());
}

fn look(flaw: Flaw) {
    let client = |machine: &Machine| {
        let before = machine.lender.load(SeqCst);
        let seen = machine.look();
        assert!(seen >= before, "promise: what is seen of names is not older than the call");
    };
    let others = |machine: &Machine| {
        machine.end(|| 0, |_| THEIRS);
        machine.lose_names();
    };
    explore(flaw, client, others, |_| ());
}

promise!(a_look_at_names_is_not_older_than_its_call, super::look, broken by [
    the_clock_is_looked_at: NeverLooks,
    the_deadline_is_noted_before_the_mark_is_seen: MarkFirst,
    what_is_lost_is_taken_away_before_the_deadline_moves: RenewsFirst,
]);

promise!(a_read_is_not_older_than_its_call, super::read, broken by [
    the_clock_is_looked_at: NeverLooks,
    the_deadline_is_noted_before: NotesLast,
    what_is_lost_is_taken_away_before_the_deadline_moves: RenewsFirst,
]);

fn write(flaw: Flaw) {
    explore(flaw, Machine::write, chunk_is_lost, |machine| {
        let content = machine.page(MapEntry::load(&machine.entry)).load(SeqCst);
        assert!(content == OURS | THEIRS, "promise: what both have written is there");
    });
}

promise!(a_write_that_says_success_is_there, super::write, broken by [
    the_clock_is_looked_at: NeverLooks,
    the_clock_is_looked_at_when_all_is_copied: LooksFirst,
    the_deadline_is_noted_before_and_looked_at_inside: NotesLast,
]);

fn prolonged(flaw: Flaw) {
    let others = |machine: &Machine| {
        machine.clock.store(DEADLINE, SeqCst);
        machine.settle(|| ());
    };
    explore(flaw, Machine::write, others, |machine| {
        let writes = machine.writes.load(SeqCst);
        assert!(writes == 1, "promise: written once, not {writes} times");
    });
}

promise!(a_late_write_whose_loan_lasts_is_not_done_twice, super::prolonged, broken by [
    the_server_says_what_counts: ForgetsLate,
]);

fn create(flaw: Flaw) {
    let client = |machine: &Machine| {
        let made = machine.create();
        machine.writes.store(u64::from(made), SeqCst);
    };
    let others = |machine: &Machine| {
        let here = || machine.table().is_pending(Key::name(KEY));
        machine.end(|| here().into(), |ours| if ours == OURS { OURS } else { THEIRS });
        machine.fetch_names();
    };
    explore(flaw, client, others, |machine| {
        let (made, ours) = (machine.writes.load(SeqCst), machine.name.load(SeqCst) == OURS);
        assert!(made == u64::from(ours), "promise: made is what is there, and nothing else");
    });
}

promise!(a_name_that_is_said_to_be_made_is_there, super::create, broken by [
    the_clock_is_looked_at: NeverLooks,
    the_clock_is_looked_at_when_it_is_committed: LooksFirst,
    the_deadline_is_noted_before: NotesLast,
    the_server_says_what_counts: ForgetsLate,
]);

fn create_meanwhile(flaw: Flaw) {
    let client = |machine: &Machine| {
        let made = machine.create_meanwhile();
        machine.writes.store(u64::from(made), SeqCst);
    };
    let others = |machine: &Machine| {
        machine.lend_out();
        let (key, own) = (Key::name(KEY), || machine.name.load(SeqCst) == OURS);
        let here = || (machine.table().is_pending(key) || own()).into();
        machine.end(here, |ours| if ours == OURS { OURS } else { THEIRS });
        machine.fetch_names();
    };
    let own = |machine: &Machine| machine.marked.store(0, SeqCst);
    explore_from(flaw, own, client, others, |machine| {
        let (made, ours) = (machine.writes.load(SeqCst), machine.name.load(SeqCst) == OURS);
        assert!(made == u64::from(ours), "promise: made is what is there, and nothing else");
    });
}

promise!(a_name_made_as_its_directory_is_given_away_is_there, super::create_meanwhile, broken by [
    the_mark_is_looked_at_after_the_claim: MarkFirst,
]);
