//! Batches of what is to be committed, explored with `loom`: what is answered is sent, whole and
//! once, whenever the server seals a batch, and breaks when a rule is left out.
//!
//! The words are the real ones of `terral_format::local::size`; a record is two cells. Who is
//! stopped while it adds is overtaken, as the server does after a while. Not here: where the bytes
//! lie (`grants`), and a server that dies.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terral-tests --test batches --target-dir
//! target/loom`; without the flag this file is empty.

#![cfg(loom)]

mod flawed;

use flawed::promise;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread::{spawn, yield_now};
use terral_format::ids::Owner;
use terral_format::local::size::{self, SizeWord};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The server sends what is there, and does not seal it.
    SendsUnsealed,
    /// It takes the ticket from who adds, and starts no epoch.
    OvertakesInSilence,
    /// Who adds says so before the bytes are there.
    PublishesFirst,
    /// Who adds does not look whether it counted.
    AnswersAnyway,
    /// Who adds takes no ticket.
    TakesNoTicket,
    /// Who adds does not look, when he may write to the chunk, whether the ticket is his yet.
    TrustsTicket,
    /// The server takes the ticket from who adds, and does not recall the chunk first.
    RevokesUnderPin,
}

/// Cells of a record.
const CELLS: u64 = 2;
const BATCHES: usize = 2;
/// So often a chunk may be moved.
const EPOCHS: usize = 8;

/// A batch.
struct Batch {
    size: AtomicU64,
    ticket: AtomicU64,
    /// Whether its chunk is recalled: who wants to write there asks the server, which is busy.
    recalled: AtomicU64,
    /// By epoch: who is overtaken writes to where the chunk was.
    cells: Vec<Vec<AtomicU64>>,
}

struct Machine {
    flaw: Flaw,
    batches: Vec<Batch>,
    /// What the server has sent.
    sent: Mutex<Vec<u64>>,
}

impl Machine {
    fn new(flaw: Flaw) -> Self {
        let word = AtomicU64::new;
        let batch = || Batch {
            size: word(SizeWord::new(0, 0).0),
            ticket: word(0),
            recalled: word(0),
            cells: (0..EPOCHS).map(|_| (0..2 * CELLS).map(|_| word(0)).collect()).collect(),
        };
        let batches = (0..BATCHES).map(|_| batch()).collect();
        Machine { flaw, batches, sent: Mutex::new(Vec::new()) }
    }

    /// Adds a record to the first batch that takes it. The last one is never sealed meanwhile.
    fn add(&self, owner: Owner, value: u64) {
        let mut batches = self.batches.iter();
        let mut batch = batches.next().expect("some");
        loop {
            let taken =
                self.flaw == Flaw::TakesNoTicket || size::take_ticket(&batch.ticket, owner).is_ok();
            if !taken {
                if size::is_sealed(&batch.ticket) {
                    batch = batches.next().expect("the last one takes it");
                }
                yield_now();
                continue;
            }
            let seen = SizeWord::load(&batch.size);
            while batch.recalled.load(SeqCst) > 0 {
                yield_now();
            }
            let trusts = matches!(self.flaw, Flaw::TakesNoTicket | Flaw::TrustsTicket);
            if !trusts && !size::holds_ticket(&batch.ticket, owner) {
                continue;
            }
            let end = seen.size() + CELLS;
            let mut counts = true;
            if self.flaw == Flaw::PublishesFirst {
                counts = size::append(&batch.size, seen, end);
            }
            for cell in seen.size()..end {
                batch.cells[usize::from(seen.epoch())][cell as usize].store(value, Relaxed);
            }
            if self.flaw != Flaw::PublishesFirst {
                counts = size::append(&batch.size, seen, end);
            }
            size::drop_ticket(&batch.ticket, owner);
            if counts || self.flaw == Flaw::AnswersAnyway {
                return;
            }
        }
    }

    /// A batch goes. `overtakes`: who adds does not move.
    fn send(&self, batch: &Batch, overtakes: bool) {
        while self.flaw != Flaw::SendsUnsealed
            && let Err(owner) = size::seal(&batch.ticket)
        {
            if !overtakes {
                yield_now();
            } else if self.flaw == Flaw::OvertakesInSilence {
                size::drop_ticket(&batch.ticket, owner);
            } else {
                let recalls = u64::from(self.flaw != Flaw::RevokesUnderPin);
                batch.recalled.store(recalls, SeqCst);
                let kept = size::revoke_ticket(&batch.size, &batch.ticket, owner);
                let epoch = usize::from(SizeWord::load(&batch.size).epoch());
                let moved = batch.cells[epoch - 1].iter().zip(&batch.cells[epoch]);
                for (from, to) in moved.take(kept as usize) {
                    to.store(from.load(Relaxed), Relaxed);
                }
                batch.recalled.store(0, SeqCst);
            }
        }
        let seen = SizeWord::load(&batch.size);
        let cells = &batch.cells[usize::from(seen.epoch())];
        let mut sent = self.sent.lock().expect("none panics");
        for record in cells[..seen.size() as usize].chunks(CELLS as usize) {
            let cells: Vec<u64> = record.iter().map(|cell| cell.load(Relaxed)).collect();
            assert!(cells.iter().all(|cell| *cell == cells[0] && *cell > 0), "promise: whole");
            sent.push(cells[0]);
        }
    }
}

fn one(flaw: Flaw) {
    adding_and_sending(flaw, 1, false);
}

fn one_who_is_overtaken(flaw: Flaw) {
    adding_and_sending(flaw, 1, true);
}

fn two(flaw: Flaw) {
    adding_and_sending(flaw, 2, true);
}

/// One or two add a record, and the server sends the batch; then what is in the next one.
fn adding_and_sending(flaw: Flaw, writers: u16, overtakes: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if writers > 1 { 2 } else { 5 });
    model.max_branches = 50_000;
    model.check(move || {
        let machine = Arc::new(Machine::new(flaw));
        let server = {
            let machine = machine.clone();
            spawn(move || machine.send(&machine.batches[0], overtakes))
        };
        let writers: Vec<_> = (1..=writers)
            .map(|at| {
                let machine = machine.clone();
                spawn(move || machine.add(Owner(at), at.into()))
            })
            .collect();
        let count = writers.len() as u64;
        server.join().expect("joins");
        writers.into_iter().for_each(|writer| writer.join().expect("joins"));
        machine.send(&machine.batches[1], true);
        let mut sent = machine.sent.lock().expect("none panics").clone();
        sent.sort_unstable();
        let all: Vec<u64> = (1..=count).collect();
        assert_eq!(sent, all, "promise: what is answered is sent, once");
    });
}

promise!(what_is_answered_is_sent_once, super::one, broken by [
    nothing_is_added_to_what_was_sent: SendsUnsealed,
    who_adds_is_waited_for: TakesNoTicket,
]);

promise!(who_is_overtaken_adds_anew, super::one_who_is_overtaken, broken by [
    he_hears_of_it: OvertakesInSilence,
    he_looks_whether_the_ticket_is_his: TrustsTicket,
    he_does_not_write_meanwhile: RevokesUnderPin,
    the_bytes_are_there_before_the_record_counts: PublishesFirst,
    he_looks_whether_it_counted: AnswersAnyway,
]);

promise!(two_that_add_are_both_sent, super::two, broken by [
    they_hear_of_it: OvertakesInSilence,
]);
