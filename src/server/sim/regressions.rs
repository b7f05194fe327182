//! What schedules have found, in as few steps as it takes.

use std::time::Duration;

use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_PAGES, PAGE_BYTES};
use terral_format::wire::locks::{Lock, LockKind, LockRange, Locker};
use terral_format::wire::message::{OpenHow, RenameHow, Reply, Request, Target};
use terral_store::backing::{NameSink, Source};

use super::Sim;
use super::client::{CREATE, Opened, READ};
use super::deferring::{Begun, Progress, Wish};
use super::faults::Fault;
use super::writing::{Writing, Wrote};

fn go_on_until(sim: &mut Sim, begun: &mut Begun, until: impl Fn(&Progress) -> bool) {
    for _ in 0..20 {
        let progress = sim.go_on(begun);
        assert!(!matches!(progress, Progress::Refused), "{begun:?}");
        if until(&progress) {
            return;
        }
    }
    panic!("it never comes to that: {begun:?}");
}

#[test]
fn who_asks_sees_what_was_committed_by_a_client_that_was_stopped_before_it_rang() {
    let mut sim = Sim::new(1);
    let (one, other) = (sim.connect(), sim.connect());
    let made = Request::MakeDirectory { path: b"d", mode: 0o755 };
    sim.ask(one, made).expect("a free name");
    sim.fetch(one).expect("there is room for it");
    let mut begun = sim.begin(one, Wish::MakeDirectory(b"d/new".into())).expect("it may");
    go_on_until(&mut sim, &mut begun, |progress| matches!(progress, Progress::Happened));
    match sim.ask(other, Request::List { path: b"d", after: b"" }) {
        Ok(Reply::Names { names, .. }) => assert_eq!(names.len(), 1, "{names:?}"),
        got => panic!("{got:?}"),
    }
}

#[test]
fn a_writer_waits_for_the_chunk_that_he_needs_and_not_for_those_after_it() {
    // Its store is far.
    let mut sim = Sim::new(2);
    sim.dir.put(b"large", &vec![7; 3 * CHUNK_BYTES as usize]).expect("an empty store");
    let one = sim.connect();
    let how = OpenHow { access: 3, ..OpenHow::default() };
    let file = sim.open(one, b"large", how).expect("it is there").file;
    let asked = Request::Grant { file, first: 0, count: 3, pages: CHUNK_PAGES };
    sim.ask(one, asked).expect("there is room for it");
    let here = [0, 1, 2].map(|index| !sim.memory.entry(file.slot, index).is_absent());
    assert_eq!(here, [true, false, false]);
}

#[test]
fn a_file_that_gets_a_name_again_after_its_last_one_was_removed_is_brought_whoever_dies() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    let written = sim.open(one, b"first", CREATE).expect("an empty store");
    sim.write(one, written.file, 0, b"all of it").expect("there is room for it");
    sim.close(one, written).expect("it is open");
    let file = sim.open(one, b"first", READ).expect("it is there").file;
    sim.pass(Duration::from_secs(20));
    sim.ask(one, Request::Unlink(b"first")).expect("it is there");
    let again = Request::Link { target: Target::File(file), path: b"again" };
    sim.ask(one, again).expect("it is open");
    sim.kill();
    sim.finish();
    assert_eq!(sim.dir.files().into_keys().collect::<Vec<_>>(), [b"again"]);
}

#[test]
fn what_an_append_left_that_lost_its_ticket_is_not_in_the_permanent_store() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    let file = sim.open(one, b"log", CREATE).expect("an empty store").file;
    let mut append = sim.appending(one, file, b"never published");
    while sim.go_on_writing(&mut append).expect("there is room for it") != Wrote::Shown {}
    // Its writer is stopped there, and the drain copies what it sees.
    sim.pass(Duration::from_secs(5));
    let page = CHUNK_BYTES + PAGE_BYTES as u64;
    sim.write(one, file, page, b"elsewhere").expect("there is room for it");
    sim.finish();
    let (_, filled) = &sim.dir.files()[&b"log"[..]];
    assert_eq!(filled.keys().collect::<Vec<_>>(), [&(page / PAGE_BYTES as u64)]);
}

#[test]
fn who_gives_back_a_ticket_that_was_taken_from_him_gives_back_no_others() {
    let mut sim = Sim::new(1);
    let (one, other) = (sim.connect(), sim.connect());
    let file = sim.open(one, b"log", CREATE).expect("an empty store").file;
    let mine = sim.open(other, b"log", CREATE).expect("it is there").file;
    // A thread is stopped with the ticket; it is taken from it, and another thread appends.
    let mut grows = Writing::new(one, file, 0, b"first");
    let grown = |wrote| matches!(wrote, Wrote::Grown(_));
    while !grown(sim.go_on_writing(&mut grows).expect("there is room for it")) {}
    let page = PAGE_BYTES as u64;
    sim.write(other, mine, page, b"second").expect("there is room for it");
    let mut append = sim.appending(one, file, b"never published");
    while sim.go_on_writing(&mut append).expect("there is room for it") != Wrote::Shown {}
    while sim.go_on_writing(&mut grows).expect("there is room for it") != Wrote::Over {}
    sim.write(other, mine, 4 * page, b"beyond").expect("there is room for it");
    sim.finish();
    let (_, filled) = &sim.dir.files()[&b"log"[..]];
    assert_eq!(filled.keys().collect::<Vec<_>>(), [&0, &1, &4]);
}

#[test]
fn a_lock_ends_with_the_close_that_was_committed_though_nobody_has_heard_of_it() {
    let mut sim = Sim::new(1);
    let (one, other) = (sim.connect(), sim.connect());
    let [held, wanted] = [one, other].map(|at| sim.open(at, b"file", CREATE).expect("may be"));
    sim.fetch(one).expect("there is room for it");
    let whole = |sim: &Sim, at, open: &Opened| {
        let owner = sim.locker(at, open, Locker::Description);
        let (range, kind) = (LockRange::ALL, LockKind::Exclusive);
        (Locker::Description, Lock { ino: open.file.ino, owner, range, kind })
    };
    let (his, mine) = (whole(&sim, one, &held), whole(&sim, other, &wanted));
    assert!(sim.lock(one, &held, his));
    assert!(!sim.lock(other, &wanted, mine));
    let mut begun = sim.begin(one, Wish::Close(held)).expect("it may");
    go_on_until(&mut sim, &mut begun, |progress| matches!(progress, Progress::Happened));
    assert!(sim.lock(other, &wanted, mine));
}

#[test]
fn a_rename_over_a_file_that_has_not_arrived_keeps_what_others_have_under_its_name() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    sim.ask(one, Request::MakeDirectory { path: b"d", mode: 0o755 }).expect("a free name");
    let known = sim.open(one, b"d/known", CREATE).expect("may be");
    sim.close(one, known).expect("it is open");
    sim.pass(Duration::from_secs(20));
    sim.dir.put(b"d/new", b"theirs").expect("its directory is there");
    let new = sim.open(one, b"d/new", CREATE).expect("may be");
    sim.close(one, new).expect("it is open");
    let (from, to) = (b"d/known", b"d/new");
    sim.ask(one, Request::Rename { from, to, how: RenameHow::Replace }).expect("both are there");
    sim.finish();
    let there = sim.dir.files().into_keys().collect::<Vec<_>>();
    assert_eq!(there, [&b"d/new"[..], b"d/new.theirs-1"]);
}

#[test]
fn a_directory_that_was_made_where_an_unseen_file_was_arrives_and_the_file_is_kept() {
    let mut sim = Sim::new(1);
    sim.dir.put(b"name", b"theirs").expect("an empty store");
    sim.faults.begin(Fault::Away, Duration::from_secs(5));
    let one = sim.connect();
    let made = Request::MakeDirectory { path: b"name", mode: 0o755 };
    sim.ask(one, made).expect("it counts as new");
    sim.pass(Duration::from_secs(6));
    sim.finish();
    assert_eq!(sim.dir.directories(), [b"name"]);
    assert_eq!(sim.dir.files().into_keys().collect::<Vec<_>>(), [b"name.theirs-1"]);
}

#[test]
fn a_file_that_is_brought_whole_over_one_that_changed_there_keeps_its_attributes() {
    let mut sim = Sim::new(1);
    sim.dir.put(b"name", b"before").expect("an empty store");
    let one = sim.connect();
    let file = sim.open(one, b"name", CREATE).expect("it is there");
    sim.write(one, file.file, 0, b"ours").expect("there is room for it");
    sim.dir.set_xattr(b"name", b"user.x", Some(b"kept")).expect("it is there");
    sim.close(one, file).expect("it is open");
    sim.finish();
    let there = sim.dir.xattrs(b"name").expect("it is there");
    assert_eq!(there, [(b"user.x".to_vec(), b"kept".to_vec())]);
    assert_eq!(sim.dir.files().into_keys().collect::<Vec<_>>(), [&b"name"[..], b"name.theirs-1"]);
}
