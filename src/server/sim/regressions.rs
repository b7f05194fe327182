//! What schedules have found, in as few steps as it takes.

use terral_format::geometry::{CHUNK_BYTES, CHUNK_PAGES};
use terral_format::message::{OpenHow, Reply, Request};

use super::Sim;
use super::deferring::{Begun, Progress, Wish};

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
