//! What every backing must do, told through its three traits alone. A failed promise panics.

use terral_format::ErrorKind;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Kind};

use super::{Backing, Published, STAGING, Source};

mod attributes;

mod links;

mod name_sinks;

mod paths;

mod renames;

mod sinks;

mod sources;

mod updates;

mod versions;

const INSTANCE: InstanceId = InstanceId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
const OTHER: InstanceId = InstanceId(7);
const TIME_NS: u64 = 1_234_567_890_123_456_789;

/// Runs the whole suite; `make` gives a new, empty backing each time.
pub fn check<B: Backing>(make: impl Fn() -> B) {
    paths::hostile_names_are_refused(&make());
    paths::any_name_of_255_bytes_works(&make());
    source(&make);
    sink(&make);
    name_sink(&make);
}

/// What is promised of a [`Source`], once something was brought there.
fn source<B: Backing>(make: impl Fn() -> B) {
    sources::reads_are_short_only_at_the_end(&make());
    sources::it_says_what_it_is_and_has(&make());
}

/// What is promised of one whose clock goes on.
pub fn check_looks<B: Backing>(make: impl Fn() -> B) {
    sources::names_are_read_again_only_if_the_directory_looks_otherwise(&make());
}

/// What is promised of a [`Sink`](super::Sink), as a source shows it.
fn sink<B: Backing>(make: impl Fn() -> B) {
    make().sync().expect("sync");
    sinks::a_new_file_appears_whole_or_not_at_all(&make());
    sinks::a_replaced_file_stays_until_the_new_one_is_whole(&make());
    sinks::a_conflict_keeps_both(&make());
    sinks::publishing_the_same_bytes_again_is_no_conflict(&make());
    sinks::staging_resumes(&make());
    sinks::a_discarded_version_leaves_nothing(&make());
    sinks::cleaning_spares_others(&make());
    sinks::a_sign_is_found_until_it_is_cleaned_away(&make());
    updates::an_update_touches_only_what_it_writes(&make());
    updates::an_update_of_a_changed_file_is_refused(&make());
    updates::an_update_of_a_file_that_was_replaced_meanwhile_does_not_count(&make());
    updates::readers_see_an_update_at_once_and_dropped_it_stays(&make());
    versions::the_announcement_comes_before_the_name(&make());
    versions::a_version_that_is_refused_stays_staged(&make());
    versions::a_published_version_can_be_taken_back(&make());
    versions::a_version_with_another_name_is_left_as_it_is(&make());
    versions::what_is_new_in_a_version_reads_as_zeros(&make());
    versions::what_is_cleared_reads_as_zeros_and_makes_nothing_longer(&make());
}

/// What is promised of a [`NameSink`](super::NameSink).
fn name_sink<B: Backing>(make: impl Fn() -> B) {
    name_sinks::names_can_be_repeated(&make());
    name_sinks::fifos_are_names_without_bytes(&make());
    name_sinks::a_file_gets_further_names(&make());
    name_sinks::names_change_places(&make());
    name_sinks::a_foreign_version_is_kept_once(&make());
    links::symbolic_links_are_themselves(&make());
    links::any_target_can_be_linked_to(&make());
    links::a_symbolic_link_is_a_version_like_any(&make());
    attributes::attributes_are_kept(&make());
    attributes::extended_attributes_belong_to_the_file(&make());
    attributes::a_change_is_of_the_file(&make());
    renames::a_rename_replaces_only_its_like(&make());
}

/// Attributes of a file of this process's user.
fn attributes(backing: &dyn Source, mode: u32) -> Attributes {
    let root = backing.stat(b"").expect("root").attributes;
    let (accessed_ns, modified_ns) = (TIME_NS + 5, TIME_NS);
    Attributes { kind: Kind::File, mode, links: 1, size: 0, accessed_ns, modified_ns, ..root }
}

fn put(backing: &dyn Backing, path: &[u8], bytes: &[u8], expect: Option<Fingerprint>) -> Published {
    let mut staged = backing.stage(Ino(9), INSTANCE).expect("stage");
    staged.truncate(0).expect("truncate");
    staged.write(0, bytes).expect("write");
    let attributes = attributes(backing, 0o640);
    staged.publish(path, &attributes, bytes.len() as u64, expect, &mut |_| Ok(())).expect("publish")
}

fn bytes(backing: &dyn Source, path: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let count = backing.read(path, 0, &mut buffer).expect("read");
    buffer.truncate(count);
    buffer
}

fn kind<T>(result: Result<T, terral_format::Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

fn names(backing: &dyn Source, path: &[u8]) -> Vec<Vec<u8>> {
    let names = backing.list(path).expect("list");
    assert!(names.iter().all(|name| name.number.is_none()));
    names.into_iter().map(|name| name.name).collect()
}
