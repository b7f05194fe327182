//! What of a call others see in one step, and what piece by piece: real processes at once, each
//! kind of call with a reader that looks at any moment. Not here: overwrites of the same bytes
//! (`overwrites`), names (`deferred`, `differential`).
#![cfg(not(loom))]

mod beside;
mod launched;

use beside::{compiled, on_path, text_of};
use launched::run_to;

/// Runs one of `tests/programs/steps.c`'s words under Terral, which must have served it.
fn promised(word: &str) {
    if !on_path("gcc") {
        return;
    }
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let program = compiled("steps", home.path());
    let mut run = run_to(to.path(), &["--json", "--cwd", "--memory", "1G"]);
    let output = run.arg("--").arg(program).arg(word).output().expect("terral");
    let text = text_of(&output);
    let (said, summary) = text.trim_end().rsplit_once('\n').expect("two lines");
    assert_eq!(said, "as promised");
    let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
    let total = |of: &str| summary["totals"][of].as_u64().unwrap_or_default();
    assert!(total("opens") > 1 && total("writes") > 50, "{summary}");
}

#[test]
fn an_append_of_any_length_is_seen_whole_and_never_mixed_with_another() {
    promised("appends");
}

#[test]
fn an_append_whose_process_is_killed_is_there_whole_or_not_at_all() {
    promised("killed");
}

#[test]
fn a_write_that_makes_a_file_longer_inside_a_chunk_is_seen_whole() {
    promised("growth");
}

#[test]
fn a_write_across_borders_of_chunks_is_seen_piece_by_piece_in_order() {
    promised("borders");
}

#[test]
fn a_long_vector_is_seen_buffer_by_buffer() {
    promised("vectors");
}

#[test]
fn a_page_that_was_never_written_shows_zeros_or_its_first_writer_and_nobody_elses_bytes() {
    promised("fresh");
}
