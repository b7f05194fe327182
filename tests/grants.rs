//! The grant protocol explored: what each scenario promises holds in every interleaving that loom
//! finds, and breaks when the step it rests on is left out.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terral-tests --test grants --target-dir
//! target/loom`; without the flag this file is empty.

#![cfg(loom)]

mod exploring;
mod flawed;

use exploring::{explore, explore_to, run};
use flawed::promise;
use loom::sync::Arc;
use terral_tests::model::{Flaw, Machine};
use terral_tests::model_server::Patience;

fn write_and_move(flaw: Flaw, patience: Patience) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let server = run(&machine, move |m| m.relocate(patience));
        let writer = run(&machine, |m| {
            m.write(0, 0, 5);
            assert_eq!(m.read(0), Some(5), "promise: a completed write is seen");
        });
        writer.join().expect("joins");
        server.join().expect("joins");
        assert_eq!(machine.content(), [5, 2], "promise: nothing is lost in a move");
        assert!(machine.is_unharmed(0), "promise: a recycled chunk is another file's alone");
    });
}

promise!(a_completed_write_survives_a_move, |flaw| super::write_and_move(
    flaw, super::Patience::Waits), broken by [
    the_entry_is_read_again_once_pinned: TrustsEntryBeforePin,
]);

promise!(a_stopped_writer_that_wakes_harms_nobody_and_loses_nothing, |flaw| super::write_and_move(
    flaw, super::Patience::Overtakes), broken by [
    the_overtaken_hear_of_it: ForgetsOvertaken,
    quarantine_lasts_until_the_slot_is_idle: RecyclesQuarantined,
]);

/// A write to an empty file with a chunk on its way: its page is a claim until it is published.
fn first_write_and_move(flaw: Flaw) {
    explore(flaw, 2, &[], move |machine| {
        machine.grant();
        let server = run(&machine, move |m| m.relocate(Patience::Overtakes));
        let writer = run(&machine, |m| {
            m.write(0, 1, 5);
            assert_eq!(m.content(), [0, 5], "promise: the write, and zeros before it");
        });
        writer.join().expect("joins");
        server.join().expect("joins");
        assert_eq!(machine.content(), [0, 5], "promise: the write, and zeros before it");
        assert!(machine.is_unharmed(0), "promise: a recycled chunk is another file's alone");
    });
}

promise!(a_first_write_survives_a_move, super::first_write_and_move, broken by [
    the_rest_of_the_page_is_zeroed: LeavesComplement,
    the_overtaken_hear_of_it: ForgetsOvertaken,
]);

/// The size grows only over bytes that are there, whenever a reader looks.
fn size_after_bytes(flaw: Flaw) {
    explore(flaw, 1, &[], move |machine| {
        machine.grant();
        let writer = run(&machine, |m| m.write(0, 0, 5));
        let reader = run(&machine, |m| {
            let seen = m.read(0);
            assert!(matches!(seen, None | Some(5)), "promise: {seen:?} is no state of the file");
        });
        writer.join().expect("joins");
        reader.join().expect("joins");
    });
}

promise!(a_reader_within_the_size_sees_the_bytes, super::size_after_bytes, broken by [
    bytes_come_before_the_size: RaisesBeforeCopy,
]);

/// A writer that was overtaken, raised the size all the same, and died.
fn overtaken_and_dead(flaw: Flaw) {
    explore(flaw, 1, &[], move |machine| {
        machine.grant();
        let writer = run(&machine, |m| {
            m.write_and_die(0, 0, 5);
            m.reap(0);
        });
        let server = run(&machine, |m| m.relocate(Patience::Overtakes));
        writer.join().expect("joins");
        server.join().expect("joins");
        let content = machine.content();
        assert!(content.is_empty() || content == [5], "promise: {content:?} was never written");
    });
}

promise!(an_overtaken_writer_cannot_raise_the_size, super::overtaken_and_dead, broken by [
    overtaking_starts_an_epoch: OvertakesInSilence,
]);

/// A writer that extends the file meets a truncate, and dies.
fn dead_and_truncated(flaw: Flaw) {
    explore(flaw, 2, &[1], move |machine| {
        let writer = run(&machine, |m| {
            m.write_and_die(0, 1, 5);
            m.reap(0);
        });
        let server = run(&machine, |m| m.truncate(0, Patience::Overtakes));
        writer.join().expect("joins");
        server.join().expect("joins");
        let content = machine.content();
        assert!(content.is_empty() || content == [0, 5], "promise: {content:?} is neither order");
    });
}

promise!(a_dead_writer_cannot_undo_a_truncate, super::dead_and_truncated, broken by [
    the_epoch_is_read_before_the_entry: ReadsEpochAfterEntry,
]);

fn truncate_to_nothing(flaw: Flaw, patience: Patience) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let server = run(&machine, move |m| m.truncate(0, patience));
        let writer = run(&machine, |m| m.write(0, 0, 5));
        server.join().expect("joins");
        writer.join().expect("joins");
        let content = machine.content();
        assert!(content.is_empty() || content == [5], "promise: {content:?} is neither order");
        assert!(machine.is_unharmed(0), "promise: a recycled chunk is another file's alone");
    });
}

promise!(a_write_comes_before_or_after_a_truncate, |flaw| super::truncate_to_nothing(
    flaw, super::Patience::Waits), broken by [
    the_entry_is_read_again_once_pinned: TrustsEntryBeforePin,
]);

promise!(a_stopped_write_comes_before_or_after_a_truncate, |flaw| super::truncate_to_nothing(
    flaw, super::Patience::Overtakes), broken by [
    quarantine_lasts_until_the_slot_is_idle: RecyclesQuarantined,
]);

/// Truncated in the middle of a page, then long again: what was cut off is zero.
fn truncate_in_a_page(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let server = run(&machine, move |m| m.truncate(1, Patience::Overtakes));
        let writer = run(&machine, |m| m.write(0, 1, 5));
        server.join().expect("joins");
        writer.join().expect("joins");
        let content = machine.content();
        assert!(content == [1] || content == [1, 5], "promise: {content:?} is neither order");
        machine.truncate(2, Patience::Waits);
        let grown = if content == [1] { [1, 0] } else { [1, 5] };
        assert_eq!(machine.content(), grown, "promise: what was cut off is gone");
    });
}

promise!(what_a_truncate_cuts_off_is_gone, super::truncate_in_a_page, broken by [
    what_lies_beyond_the_size_is_dropped: KeepsLostBytes,
]);

/// A writer and a truncate both make the file longer.
fn grow_and_truncate(flaw: Flaw, patience: Patience) {
    explore(flaw, 2, &[1], move |machine| {
        let server = run(&machine, move |m| m.truncate(2, patience));
        let writer = run(&machine, |m| m.write(0, 1, 5));
        server.join().expect("joins");
        writer.join().expect("joins");
        assert_eq!(machine.content(), [1, 5], "promise: a completed write is not cut off");
    });
}

promise!(a_truncate_that_grows_the_file_cuts_off_nothing, |flaw| super::grow_and_truncate(
    flaw, super::Patience::Waits), broken by [
    what_was_written_until_it_took_hold_counts: CutsAtFirstLook,
]);

promise!(a_truncate_that_overtakes_and_grows_cuts_off_nothing, |flaw| super::grow_and_truncate(
    flaw, super::Patience::Overtakes), broken by []);

fn read_and_truncate(flaw: Flaw) {
    explore(flaw, 1, &[1], move |machine| {
        let server = run(&machine, move |m| m.truncate(0, Patience::Waits));
        let reader = run(&machine, |m| {
            let seen = m.read(0);
            assert!(matches!(seen, None | Some(1)), "promise: {seen:?} is neither order");
        });
        server.join().expect("joins");
        reader.join().expect("joins");
    });
}

promise!(a_read_comes_before_or_after_a_truncate, super::read_and_truncate, broken by [
    the_epoch_is_looked_at_again: IgnoresEpoch,
    the_size_goes_before_the_chunk: ResetsAfterPublishing,
]);

fn read_and_move(flaw: Flaw) {
    explore(flaw, 1, &[1], move |machine| {
        let server = run(&machine, move |m| m.relocate(Patience::Waits));
        let reader = run(&machine, |m| {
            assert_eq!(m.read(0), Some(1), "promise: no other file's bytes are read");
        });
        server.join().expect("joins");
        reader.join().expect("joins");
    });
}

promise!(a_reader_never_sees_another_files_bytes, super::read_and_move, broken by [
    the_entry_is_looked_at_again: LooksOnce,
]);

fn two_writers(flaw: Flaw) {
    explore(flaw, 3, &[], move |machine| {
        machine.grant();
        let other = run(&machine, |m| m.write(1, 2, 6));
        let first = run(&machine, |m| m.write(0, 0, 5));
        other.join().expect("joins");
        first.join().expect("joins");
        assert_eq!(machine.content(), [5, 0, 6], "promise: both writes, zeros between");
    });
}

promise!(two_partial_writers_share_a_page, super::two_writers, broken by [
    the_rest_of_the_page_is_zeroed: LeavesComplement,
    bytes_come_before_their_mark: PublishesBeforeCopy,
]);

/// A claimer dies; the second writer goes on, and nothing of the first is seen.
fn dead_claimer(flaw: Flaw) {
    explore(flaw, 2, &[], move |machine| {
        machine.grant();
        machine.store_and_die(0, 0, 5);
        let server = run(&machine, |m| m.reap(0));
        let second = run(&machine, |m| m.write(1, 1, 6));
        server.join().expect("joins");
        second.join().expect("joins");
        assert_eq!(machine.content(), [0, 6], "promise: a dead claimer leaves a hole");
    });
}

promise!(a_dead_claimer_leaves_a_hole, super::dead_claimer, broken by [
    the_rest_of_the_page_is_zeroed: LeavesComplement,
]);

fn two_appenders(flaw: Flaw) {
    explore(flaw, 3, &[1], move |machine| {
        let other = run(&machine, |m| m.append(1, 6));
        let first = run(&machine, |m| m.append(0, 5));
        other.join().expect("joins");
        first.join().expect("joins");
        let content = machine.content();
        let whole = content == [1, 5, 6] || content == [1, 6, 5];
        assert!(whole, "promise: {content:?} is not both records");
    });
}

promise!(two_appenders_follow_each_other, super::two_appenders, broken by []);

/// A ticket is taken away at any moment of its holder's work, and the holder wakes.
fn revoked_appender(flaw: Flaw) {
    explore_to(6, flaw, 3, &[1], move |machine| {
        let stopped = run(&machine, |m| m.append(0, 5));
        let other = run(&machine, |m| {
            m.revoke(0);
            m.append(1, 6);
        });
        stopped.join().expect("joins");
        other.join().expect("joins");
        let content = machine.content();
        let whole = content == [1, 5, 6] || content == [1, 6, 5];
        assert!(whole, "promise: {content:?} is not both records");
        assert!(machine.is_unharmed_if_left(0), "promise: a recycled chunk is another's");
    });
}

promise!(a_revoked_appender_wakes_and_appends_once, super::revoked_appender, broken by [
    the_ticket_is_checked_once_pinned: TrustsTicketBeforePin,
    the_chunk_is_recalled_before_the_ticket: RevokesUnderPin,
]);

/// An append and a truncate that makes the file longer: one of the two orders.
fn append_and_truncate(flaw: Flaw) {
    explore(flaw, 4, &[1], move |machine| {
        let server = run(&machine, |m| m.truncate(2, Patience::Overtakes));
        let appender = run(&machine, |m| m.append(0, 5));
        server.join().expect("joins");
        appender.join().expect("joins");
        let content = machine.content();
        let ordered = content == [1, 5] || content == [1, 0, 5];
        assert!(ordered, "promise: {content:?} is neither order");
    });
}

promise!(an_append_comes_before_or_after_a_truncate, super::append_and_truncate, broken by [
    the_size_is_checked_once_pinned: TrustsSizeBeforePin,
]);

/// A move overtakes an appender whose ticket stays its own.
fn overtaken_appender(flaw: Flaw) {
    explore(flaw, 3, &[1], move |machine| {
        let server = run(&machine, |m| m.relocate(Patience::Overtakes));
        let first = run(&machine, |m| m.append(0, 5));
        server.join().expect("joins");
        first.join().expect("joins");
        let content = machine.content();
        assert!(content == [1, 5], "promise: {content:?} is not the record once");
        assert!(machine.is_unharmed(0), "promise: a recycled chunk is another file's alone");
    });
}

promise!(an_overtaken_appender_appends_once, super::overtaken_appender, broken by [
    an_append_is_published_when_it_has_left: PublishesAppendPinned,
    the_overtaken_hear_of_it: ForgetsOvertaken,
]);

/// An append and a write beyond the end: one of the two orders.
fn append_and_extend(flaw: Flaw) {
    explore(flaw, 3, &[], move |machine| {
        machine.grant();
        let appender = run(&machine, |m| m.append(0, 5));
        let second = run(&machine, |m| m.write(1, 1, 6));
        appender.join().expect("joins");
        second.join().expect("joins");
        let content = machine.content();
        let ordered = content == [5, 6] || content == [0, 6, 5];
        assert!(ordered, "promise: {content:?} is neither order");
    });
}

promise!(an_append_comes_before_or_after_a_write_beyond, super::append_and_extend, broken by [
    the_size_is_raised_under_the_ticket: RaisesWithoutTicket,
]);

/// An append and a write to the very place it takes: the later of the two orders' last word stands.
fn append_and_overwrite(flaw: Flaw) {
    explore(flaw, 3, &[], move |machine| {
        machine.grant();
        let appender = run(&machine, |m| m.append(0, 5));
        let writer = run(&machine, |m| {
            m.write(1, 0, 6);
            assert!(matches!(m.read(0), Some(5 | 6)), "promise: written, so seen");
        });
        appender.join().expect("joins");
        writer.join().expect("joins");
        let content = machine.content();
        let ordered = content == [6] || content == [6, 5] || content == [5];
        assert!(ordered, "promise: {content:?} is neither order");
    });
}

promise!(an_append_and_a_write_at_its_place_both_count, super::append_and_overwrite, broken by [
    the_size_is_raised_under_the_ticket: RaisesWithoutTicket,
]);

/// An append is lost while it is copied, then the file grows over the place by a truncate.
fn lost_append_and_growth(flaw: Flaw) {
    explore(flaw, 3, &[1], move |machine| {
        let appender = run(&machine, |m| m.append(0, 5));
        let other = run(&machine, |m| {
            m.revoke(0);
            m.write(1, 2, 6);
        });
        appender.join().expect("joins");
        other.join().expect("joins");
        let content = machine.content();
        let ordered = content == [1, 5, 6] || content == [1, 0, 6, 5];
        assert!(ordered || content == [1, 0, 6], "promise: {content:?} is neither order");
    });
}

promise!(a_lost_append_leaves_nothing_behind, super::lost_append_and_growth, broken by [
    what_lies_beyond_the_size_is_dropped: KeepsLostBytes,
]);

fn write_and_drain(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let writer = run(&machine, |m| m.write(0, 0, 5));
        let server = run(&machine, |m| m.drain());
        writer.join().expect("joins");
        server.join().expect("joins");
        assert!(machine.is_drained_or_dirty(), "promise: clean means that the backing has it");
        machine.drain();
        assert!(machine.is_drained_or_dirty(), "promise: clean means that the backing has it");
    });
}

promise!(what_is_clean_is_in_the_backing, super::write_and_drain, broken by [
    marks_are_cleared_before_the_bytes_are_read: DrainsBeforeTaking,
    bytes_come_before_their_mark: PublishesBeforeCopy,
]);

/// A writer is overtaken half-way through a clean page, and dies.
fn half_written_and_moved(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let writer = run(&machine, |m| {
            m.store_and_die(0, 0, 5);
            m.reap(0);
        });
        let server = run(&machine, |m| m.relocate(Patience::Overtakes));
        writer.join().expect("joins");
        server.join().expect("joins");
        machine.drain();
        assert!(machine.is_drained_or_dirty(), "promise: clean means that the backing has it");
    });
}

promise!(a_half_written_page_is_owed, super::half_written_and_moved, broken by [
    a_page_moved_from_under_a_writer_is_dirty: MovesAsClean,
]);

/// Two overwrites of the same bytes and a reader: no bytes of one among those of another.
fn overlapping_overwrites(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let other = run(&machine, |m| m.write_all(1, 0, &[6, 6]));
        let first = run(&machine, |m| m.write_all(0, 0, &[5, 5]));
        other.join().expect("joins");
        first.join().expect("joins");
        let content = machine.content();
        assert!(content == [5, 5] || content == [6, 6], "promise: {content:?} is neither order");
    });
}

promise!(overlapping_overwrites_follow_each_other, super::overlapping_overwrites, broken by [
    an_overwriter_holds_its_pages: OverwritesUnheld,
]);

fn overwrite_and_read(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let writer = run(&machine, |m| m.write_all(0, 0, &[5, 5]));
        let reader = run(&machine, |m| {
            let seen = m.read_all(0, 2);
            assert!(seen == [1, 2] || seen == [5, 5], "promise: {seen:?} is half of each");
        });
        writer.join().expect("joins");
        reader.join().expect("joins");
    });
}

promise!(a_reader_sees_an_overwrite_whole_or_not, super::overwrite_and_read, broken by [
    an_overwriter_holds_its_pages: OverwritesUnheld,
    overwrites_are_counted: CountsNothing,
    the_pages_are_looked_at_again: LooksAtPagesOnce,
    what_is_held_is_waited_for: ReadsHeldPages,
]);

/// The same in two steps that overlap in one cell, with two writers.
fn overwrites_and_read(flaw: Flaw) {
    explore_to(2, flaw, 2, &[1, 2], move |machine| {
        let other = run(&machine, |m| m.write(1, 1, 6));
        let first = run(&machine, |m| m.write_all(0, 0, &[5, 5]));
        let seen = machine.read_all(0, 2);
        let states = [[1, 2], [5, 5], [1, 6], [5, 6]];
        assert!(states.iter().any(|state| seen == state), "promise: {seen:?} is no order");
        other.join().expect("joins");
        first.join().expect("joins");
        let content = machine.content();
        assert!(content == [5, 5] || content == [5, 6], "promise: {content:?} is neither order");
    });
}

promise!(a_reader_sees_two_overwrites_in_an_order, super::overwrites_and_read, broken by [
    overwrites_are_counted: CountsNothing,
]);

/// A reader that writers disturb takes a turn among them.
fn read_in_turn(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let writer = run(&machine, |m| m.write_all(0, 0, &[5, 5]));
        let reader = run(&machine, |m| {
            let seen = m.read_in_turn(1, 0, 2);
            assert!(seen == [1, 2] || seen == [5, 5], "promise: {seen:?} is half of each");
        });
        writer.join().expect("joins");
        reader.join().expect("joins");
        assert_eq!(machine.content(), [5, 5], "promise: a reader changes nothing");
    });
}

promise!(a_reader_in_turn_sees_an_overwrite_whole_or_not, super::read_in_turn, broken by [
    an_overwriter_holds_its_pages: OverwritesUnheld,
]);

/// An overwriter dies half-way: what it left is there, owed, and in nobody's way.
fn dead_overwriter(flaw: Flaw) {
    explore(flaw, 2, &[1, 2], move |machine| {
        machine.store_and_die(0, 0, 5);
        let server = run(&machine, |m| m.reap(0));
        let second = run(&machine, |m| {
            assert_eq!(m.read_all(0, 2), [5, 2], "promise: half an overwrite, and no hole");
            m.write(1, 1, 6);
        });
        server.join().expect("joins");
        second.join().expect("joins");
        assert_eq!(machine.content(), [5, 6], "promise: half an overwrite, and no hole");
        machine.drain();
        assert!(machine.is_drained_or_dirty(), "promise: clean means that the backing has it");
    });
}

promise!(a_dead_overwriter_leaves_half_and_no_hole, super::dead_overwriter, broken by [
    valid_pages_stay_valid: BuriesAsHole,
]);

/// An overwriter stops half-way, is overtaken, and wakes; a reader is not kept waiting.
fn stopped_overwriter(flaw: Flaw) {
    explore_to(2, flaw, 2, &[1, 2], move |machine| {
        let server = run(&machine, |m| m.relocate(Patience::Overtakes));
        let writer = run(&machine, |m| {
            m.write_all(0, 0, &[5, 5]);
            assert_eq!(m.read_all(0, 2), [5, 5], "promise: a completed write is seen");
        });
        let seen = machine.read_all(0, 2);
        let known = [1, 5].contains(&seen[0]) && [2, 5].contains(&seen[1]);
        assert!(known, "promise: {seen:?} was never written");
        server.join().expect("joins");
        writer.join().expect("joins");
        assert_eq!(machine.content(), [5, 5], "promise: an overtaken overwrite is redone");
        assert!(machine.is_unharmed(0), "promise: a recycled chunk is another file's alone");
        machine.drain();
        assert!(machine.is_drained_or_dirty(), "promise: clean means that the backing has it");
    });
}

promise!(a_stopped_overwriter_is_overtaken, super::stopped_overwriter, broken by [
    the_overtaken_hear_of_it: ForgetsOvertaken,
]);

/// An earlier holder of a lock writes while a later one fences the file, and then looks at it.
fn fenced(flaw: Flaw, patience: Patience, write: fn(&Machine) -> bool) {
    explore(flaw, 2, &[1, 2], move |machine| {
        let earlier = run(&machine, move |m| write(m));
        let later = run(&machine, move |m| {
            m.raise_fence(2, patience);
            m.content()
        });
        let (written, seen) = (earlier.join().expect("joins"), later.join().expect("joins"));
        assert_eq!(machine.content(), seen, "promise: nothing comes after the fence");
        assert!(!written || seen != [1, 2], "promise: what was answered is there");
        assert!(
            machine.is_unharmed_if_left(0),
            "promise: a recycled chunk is another file's alone"
        );
        assert!(machine.write_as(0, 2, 0, &[7]), "promise: the later one writes");
    });
}

fn write_of_an_earlier_one(m: &Machine) -> bool {
    m.write_as(0, 1, 0, &[5])
}

fn append_of_an_earlier_one(m: &Machine) -> bool {
    m.append_as(0, 1, 5)
}

promise!(no_write_of_an_earlier_holder_comes_after_the_fence, |flaw| super::fenced(
    flaw, super::Patience::Waits, super::write_of_an_earlier_one), broken by [
    the_fence_is_looked_at_once_pinned: LooksAtFenceBeforePin,
    the_server_waits_for_who_writes: FencesUnderWriters,
]);

promise!(no_stopped_write_of_an_earlier_holder_comes_after_the_fence, |flaw| super::fenced(
    flaw, super::Patience::Overtakes, super::write_of_an_earlier_one), broken by [
    the_fence_is_looked_at_once_pinned: LooksAtFenceBeforePin,
    the_server_waits_for_who_writes: FencesUnderWriters,
]);

promise!(no_append_of_an_earlier_holder_comes_after_the_fence, |flaw| super::fenced(
    flaw, super::Patience::Overtakes, super::append_of_an_earlier_one), broken by [
    the_fence_is_looked_at_once_pinned: LooksAtFenceBeforePin,
    the_server_waits_for_who_writes: FencesUnderWriters,
]);
