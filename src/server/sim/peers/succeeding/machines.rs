//! On which machines the members of a pool are, as their servers write it down for people.

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::wire::pool::{Machine, Server, write};
use terral_registry::registry::{Change, Registry};

use super::{Three, member, of};
use crate::shell::keeping::written;

impl Three {
    fn written(&self, at: usize) -> String {
        written(&self.machines(at))
    }

    /// Nothing is written down any more.
    fn is_lost(&mut self) {
        self.home = tempfile::tempdir().expect("a directory");
    }

    fn all_look(&mut self, all: &[usize]) {
        for at in all {
            self.looks(*at);
        }
    }

    /// A server says that it is there.
    fn says(&self, at: usize, host: &str) {
        let machine = Machine { host: host.into(), ..of(at) };
        let (instance, generation) = ("default".into(), 1);
        let server = Server { machine, instance, generation, member: member(at), leaves: false };
        let key = self.keys.server(1, member(at));
        let said = Change::put(key, write(&server).expect("encodes"));
        self.registry.table.commit(&[], &[said]).expect("answers").expect("no guard");
    }
}

const ALL: &str = "0 h0\n1 h1\n2 h2\n";

#[test]
fn each_server_writes_down_on_which_machines_the_others_are() {
    let mut three = Three::new(41);
    for at in 0..3 {
        three.looks(at);
        assert_eq!(three.written(at), ALL, "{at}");
    }
}

#[test]
fn what_was_known_stays_without_the_registry_and_after_another_one_has_taken_over() {
    let mut three = Three::new(42);
    three.all_look(&[0, 1, 2]);
    three.registry.is_away(true);
    three.all_look(&[0, 1, 2]);
    assert_eq!([0, 1, 2].map(|at| three.written(at)), [ALL; 3]);
    three.registry.is_away(false);
    three.loses_control();
    three.takes_over(2);
    three.tells(2);
    // The keys of all are over, and a new process knows what the one before has written.
    three.begins_again(1);
    three.all_look(&[1, 2]);
    assert_eq!([1, 2].map(|at| three.written(at)), [ALL; 2]);
}

#[test]
fn where_all_are_known_nobody_asks_for_more() {
    let mut three = Three::new(43);
    three.all_look(&[0, 1, 2]);
    let calls = |three: &mut Three| {
        let before = three.registry.calls.load(Ordering::SeqCst);
        three.all_look(&[1; 20]);
        three.registry.calls.load(Ordering::SeqCst) - before
    };
    let known = calls(&mut three);
    // One that is in, and never says where: it is asked for less and less often.
    three.is_lost();
    three.time_passes();
    three.begins_again(1);
    three.looks(1);
    assert_eq!(three.written(1), "1 h1\n", "the others' keys are over");
    let unknown = calls(&mut three);
    assert!((1..=6).contains(&(unknown - known)), "{unknown} and {known} calls in 80 s");
    three.says(0, "h0");
    three.says(2, "h2");
    three.peers.pass(Duration::from_secs(60));
    three.turns(1);
    assert_eq!(three.written(1), ALL);
}

#[test]
fn what_makes_no_sense_in_the_registry_is_not_written_down() {
    let mut three = Three::new(44);
    let key = three.keys.server(1, member(2));
    for bad in ["h2\n0 other", "a b", "", "\u{1b}[2J", &"x".repeat(300)] {
        three.is_lost();
        three.begins_again(1);
        three.says(2, bad);
        three.looks(1);
        assert_eq!(three.written(1), "0 h0\n1 h1\n", "{bad:?}");
    }
    let garbage = [Change::put(key.clone(), b"garbage".to_vec())];
    three.registry.table.commit(&[], &garbage).expect("answers").expect("no guard");
    three.is_lost();
    three.begins_again(1);
    three.looks(1);
    assert_eq!(three.written(1), "0 h0\n1 h1\n");
    // Another one's words under its key.
    three.says(0, "h0");
    let view = three.registry.table.below(&three.keys.server(1, member(0))).expect("answers");
    let stolen = [Change::put(key, view.entries[0].value.clone())];
    three.registry.table.commit(&[], &stolen).expect("answers").expect("no guard");
    three.is_lost();
    three.begins_again(1);
    three.looks(1);
    assert_eq!(three.written(1), "0 h0\n1 h1\n");
}
