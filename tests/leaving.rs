//! Chunks that leave memory, for the spill or because the permanent store has them, explored: what
//! each scenario promises holds in every interleaving that loom finds, and breaks when the step it
//! rests on is left out. As `grants`, it is empty without `--cfg loom`.

#![cfg(loom)]

mod exploring;
mod flawed;

use exploring::{explore, run};
use flawed::promise;
use loom::sync::atomic::Ordering;
use terral_format::local::size::SizeWord;
use terral_tests::model::{Flaw, Machine};

/// A write to a chunk that is just going to the spill.
fn write_and_spill(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let spiller = run(&machine, Machine::spill);
        let writer = run(&machine, |m| {
            m.write(0, 0, 5);
            assert_eq!(m.read(0), Some(5), "promise: a completed write is seen");
        });
        writer.join().expect("joins");
        spiller.join().expect("joins");
        assert_eq!(machine.content(), [5, 2], "promise: nothing is lost on the way");
        assert!(machine.is_unharmed_if_left(0), "promise: a freed chunk is another file's alone");
    });
}

promise!(what_is_written_while_its_chunk_is_spilled_is_kept, super::write_and_spill, broken by [
    nobody_is_writing_to_it: SpillsUnderWriters,
    it_is_as_it_was_copied: SpillsWhatChanged,
]);

/// A reader for whom memory has no room gets extents, one after the other, while the chunk comes,
/// is written to, drained, and evicted.
fn extents_and_eviction(flaw: Flaw) {
    explore(flaw, 2, &[], move |machine| {
        for (word, value) in machine.backing.iter().zip([1, 2]) {
            word.store(value, Ordering::Relaxed);
        }
        machine.size.store(SizeWord::new(2, 0).0, Ordering::Relaxed);
        let writer = run(&machine, |m| {
            m.write_all(0, 0, &[5, 6]);
            m.drain();
            m.evict();
        });
        let reader = run(&machine, |m| {
            let seen = m.read_extents(2);
            let whole = seen.as_ref().is_none_or(|seen| *seen == [1, 2] || *seen == [5, 6]);
            assert!(whole, "promise: {seen:?} is no state of the file");
        });
        writer.join().expect("joins");
        reader.join().expect("joins");
        assert_eq!(machine.read_extents(2), Some(vec![5, 6]), "promise: what was written is there");
    });
}

promise!(extents_are_of_one_moment, super::extents_and_eviction, broken by [
    evictions_are_counted: EvictsUncounted,
    the_reader_looks_at_the_count: IgnoresEvictions,
]);
