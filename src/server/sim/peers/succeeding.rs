//! Servers of a pool whose control is lost: another one takes over. The registry is a table, and
//! its clock the test's. Not here: how others hear of it (`shell/links`), and etcd
//! (`tests/pool.rs`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tempfile::TempDir;
use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::Member;
use terral_format::wire::message::{Reply, Request, Target};
use terral_format::wire::pool::{Generation, Keys, Lost, Machine, Replaced, Stage, read, write};
use terral_format::wire::roster::Roster;
use terral_format::{ErrorKind, Result, frame};
use terral_registry::registry::{Change, Guard, Registry, Revision};
use terral_transport::requests::Taken;

use super::keeping::Trying;
use super::{Handled, PARTITION, Peers, member};
use crate::members::control;
use crate::sharing::{departing, ruling};
use crate::shell::keeping::Keeper;
use crate::shell::options::Pool;

mod authority;
mod machines;

/// Three servers of a pool; the first is the control.
struct Three {
    peers: Peers,
    keepers: Vec<Keeper>,
    registry: Arc<Trying>,
    keys: Keys,
    term_s: u64,
    home: TempDir,
}

pub(super) fn of(at: usize) -> Machine {
    Machine { host: format!("h{at}"), id: String::new(), boot: "b".into(), user: 0, users: false }
}

impl Three {
    fn new(seed: u64) -> Self {
        let (registry, keys) = (Trying::new(), Keys::of("p"));
        let (stage, control) = (Stage::Begun(PARTITION.id), Member::LEAST);
        let generation =
            Generation { number: 1, by: of(0), token: 7, stage, control, replaced: Vec::new() };
        let claim = Change::put(keys.generation(), write(&generation).expect("encodes"));
        let revision = registry.commit(&[], &[claim]).expect("answers").expect("no guard");
        let mut peers = Peers::new(seed, 3);
        let all = super::fencing::roster(3, 2, &Default::default());
        (0..3).for_each(|at| peers.hears_roster(at, &all));
        let home = tempfile::tempdir().expect("a directory");
        let keepers = Vec::new();
        let mut three = Three { peers, keepers, registry, keys, term_s: 60, home };
        for at in 0..3 {
            three.keepers.push(three.keeper(at, &generation, revision));
            three.is_of_the_pool(at);
            three.turns(at);
        }
        three
    }

    /// Where a server writes down on which machines the members are.
    fn machines(&self, at: usize) -> PathBuf {
        self.home.path().join(format!("machines{at}"))
    }

    fn keeper(&self, at: usize, generation: &Generation, revision: Revision) -> Keeper {
        Keeper::new(Pool {
            name: "p".into(),
            keys: self.keys.clone(),
            registry: self.registry.clone(),
            generation: generation.clone(),
            revision,
            machine: of(at),
            instance: "default".into(),
            principals: None,
            list: "/nowhere".into(),
            machines: self.machines(at),
        })
    }

    fn is_of_the_pool(&mut self, at: usize) {
        self.peers.sims[at].with(|server| {
            let mut state = server.lock();
            let members = state.members.as_mut().expect("a member");
            members.is_of_pool(("p".into(), "the registry".into()), 1);
        });
    }

    /// Whoever keeps a server's word in the registry has a turn. Whether there is another one;
    /// nothing if the server dies.
    fn turns(&mut self, at: usize) -> Option<bool> {
        let keeper = &mut self.keepers[at];
        let turned = self.peers.sims[at].with(|server| keeper.turns(server));
        self.peers.collect(at);
        turned
    }

    /// The same, once it looks again at what the registry says.
    fn looks(&mut self, at: usize) -> Option<bool> {
        self.peers.pass(Duration::from_secs(4));
        self.turns(at)
    }

    /// The server is another process, which has killed what was in the one before.
    fn begins_again(&mut self, at: usize) {
        self.peers.reconnect();
        let (generation, revision) = self.generation();
        self.keepers[at] = self.keeper(at, &generation, revision);
        self.is_of_the_pool(at);
    }

    /// Leases of who has no turn are over.
    fn time_passes(&mut self) {
        self.registry.clock_s.fetch_add(self.term_s, Ordering::SeqCst);
    }

    /// The control is lost, and its lease over.
    fn loses_control(&mut self) {
        self.peers.dies(0);
        self.time_passes();
    }

    /// Somebody wants the control removed, on this server.
    fn wants(&mut self, at: usize) -> Taken {
        self.wants_out(at, 0)
    }

    fn wants_out(&mut self, at: usize, out: usize) -> Taken {
        let client = self.peers.clients[at];
        let request = Request::Fence { member: member(out), dead: true };
        self.peers.sims[at].asking(client, request).expect("encodes")
    }

    /// What is said to that now; nothing if who asked is to wait.
    fn said(&mut self, at: usize, asked: &Taken) -> Option<Result<()>> {
        let session = self.peers.sims[at].clients[self.peers.clients[at]].session;
        match self.peers.handle(at, session, asked)? {
            Handled::Answer(reply) => Some(match frame::decode(&reply).expect("an answer") {
                Reply::Failed(error) => Err(error),
                _ => Ok(()),
            }),
            _ => None,
        }
    }

    /// Who takes over does; whoever asked is answered.
    fn takes_over(&mut self, at: usize) {
        let asked = self.wants(at);
        assert_eq!(self.said(at, &asked), None, "it waits for the registry");
        self.turns(at).expect("it lives");
        assert_eq!(self.said(at, &asked), Some(Ok(())));
        assert_eq!(self.control(at), member(at));
    }

    /// Others hear of it.
    fn tells(&mut self, at: usize) {
        let said = self.peers.sims[at].with(|server| ruling::said(&server.lock()));
        let rule = said.flatten().expect("a member");
        for other in (0..3).filter(|other| *other != at) {
            if !self.peers.is_dead(other) {
                self.peers.sims[other].with(|server| {
                    ruling::heard(&mut server.lock(), rule.clone()).expect("is heard");
                });
                self.peers.collect(other);
            }
        }
        self.peers.settle();
    }

    fn control(&mut self, at: usize) -> Member {
        let control = self.peers.sims[at]
            .with(|server| server.lock().members.as_ref().map(|members| members.control()));
        control.flatten().expect("it lives")
    }

    fn roster(&mut self, at: usize) -> Roster {
        let roster = self.peers.sims[at]
            .with(|server| server.lock().members.as_ref().map(|members| members.roster().clone()));
        roster.flatten().expect("it lives")
    }

    fn generation(&self) -> (Generation, Revision) {
        let view = self.registry.table.below(&self.keys.generation()).expect("answers");
        let entry = &view.entries[0];
        (read(&entry.key, &entry.value).expect("is one"), entry.changed)
    }
}

#[test]
fn another_server_takes_over_from_a_lost_control_and_all_names_are_there() {
    let mut three = Three::new(1);
    three.peers.make_directory(0, b"d").expect("made");
    three.peers.create(1, b"d/one").expect("made");
    three.peers.create(2, b"d/two").expect("made");
    three.peers.pass(Duration::from_secs(3));
    three.loses_control();
    three.takes_over(2);
    three.tells(2);
    assert_eq!(three.control(1), member(2));
    for at in [1, 2] {
        for path in [&b"d/one"[..], b"d/two"] {
            assert!(three.peers.stat(at, path).is_ok(), "{at} {path:?}");
        }
        three.peers.create(at, format!("d/new{at}").as_bytes()).expect("made");
        three.peers.create(at, format!("top{at}").as_bytes()).expect("made");
    }
    // It is the control in all that is written down, too, and decides.
    assert_eq!(three.generation().0.control, member(2));
    three.turns(2);
    let there = three.registry.table.below(&three.keys.control()).expect("answers");
    assert_eq!(there.entries[0].value, b"h2");
    let fenced = Request::Fence { member: member(1), dead: true };
    let client = three.peers.clients[2];
    let asked = three.peers.sims[2].asking(client, fenced).expect("encodes");
    assert_eq!(three.said(2, &asked), None, "it is written down first");
    three.turns(2);
    assert_eq!(three.said(2, &asked), Some(Ok(())));
}

#[test]
fn a_successor_that_is_lost_before_others_have_heard_of_it_is_replaced_in_turn() {
    let mut three = Three::new(9);
    three.peers.create(2, b"f").expect("made");
    three.loses_control();
    three.takes_over(1);
    three.peers.dies(1);
    // It is there until its lease is over; who has not heard of it reads of it.
    three.time_passes();
    three.looks(2);
    assert_eq!(three.control(2), member(1), "the registry says so");
    let asked = three.wants(2);
    let said = three.said(2, &asked).expect("is answered").expect_err("it is the control no more");
    assert!(said.context.contains("member 1"), "{said}");
    let asked = three.wants_out(2, 1);
    assert_eq!(three.said(2, &asked), None, "it waits for the registry");
    three.turns(2);
    assert_eq!(three.said(2, &asked), Some(Ok(())));
    assert_eq!(three.control(2), member(2));
    let roster = three.roster(2);
    for out in [0, 1] {
        let standing = roster.seat(member(out)).expect("is known").standing;
        assert!(matches!(standing, Standing::Removed { heir, .. } if heir == member(2)), "{out}");
    }
    assert!(three.peers.stat(2, b"f").is_ok());
    three.peers.create(2, b"g").expect("made");
}

#[test]
fn who_was_away_as_its_next_control_came_in_finds_it_in_the_registry() {
    let mut three = Three::new(10);
    // A fourth one has come in, which the last of the three has not heard of.
    let four = super::fencing::roster(4, 9, &Default::default());
    three.peers.hears_roster(0, &four);
    three.turns(0);
    three.loses_control();
    let (before, revision) = three.generation();
    let gone = Replaced { member: member(0), verdict: Some(Verdict::Dead) };
    let next = Generation { by: of(3), control: member(3), replaced: vec![gone], ..before };
    let put = Change::put(three.keys.generation(), write(&next).expect("encodes"));
    let guard = Guard::Unchanged(three.keys.generation(), revision);
    three.registry.commit(&[guard], &[put]).expect("answers").expect("is as it was");
    assert!(three.roster(2).seat(member(3)).is_none());
    three.looks(2);
    assert_eq!(three.control(2), member(3));
    assert!(three.roster(2).seat(member(3)).is_some(), "so it may have a session");
}

#[test]
fn a_registry_from_before_a_takeover_ends_nobody_and_is_mended_by_the_control() {
    let mut three = Three::new(11);
    let (before, _) = three.generation();
    three.loses_control();
    three.takes_over(1);
    three.tells(1);
    three.turns(1);
    let (after, revision) = three.generation();
    let put = Change::put(three.keys.generation(), write(&before).expect("encodes"));
    let guard = Guard::Unchanged(three.keys.generation(), revision);
    three.registry.commit(&[guard], &[put]).expect("answers").expect("is as it was");
    three.looks(2);
    assert_eq!(three.control(2), member(1), "who is not there any more is followed by nobody");
    three.time_passes();
    for at in [1, 2, 1, 2] {
        assert_eq!(three.looks(at), Some(true));
    }
    assert_eq!(three.generation().0, after);
    assert_eq!([three.control(1), three.control(2)], [member(1); 2]);
}

#[test]
fn where_the_controls_machine_is_there_again_without_its_memory_another_takes_over_by_itself() {
    let mut three = Three::new(12);
    let says_lost = |three: &mut Three| {
        let lost = Lost { token: 7, member: member(0), verdict: Verdict::Dead };
        let put = Change::put(three.keys.lost(), write(&lost).expect("encodes"));
        three.registry.commit(&[], &[put]).expect("answers").expect("no guard");
        three.looks(1);
        three.looks(1);
    };
    says_lost(&mut three);
    assert_eq!(three.control(1), member(0), "it is there");
    three.loses_control();
    says_lost(&mut three);
    assert_eq!(three.control(1), member(1));
    three.looks(2);
    assert_eq!(three.control(2), member(1));
    three.looks(2);
    assert_eq!(three.generation().0.control, member(1), "and nobody else does");
}

/// The control is told to end; whoever keeps its word has turns. Whether it was not killed.
fn hands_over(three: &mut Three) -> bool {
    let told = three.peers.sims[0].with(|server| {
        let mut state = server.lock();
        let now = state.world.now();
        for members in state.members.iter_mut() {
            members.others().into_iter().for_each(|with| members.connects(with, true, now));
        }
        departing::may_end(&state, false).expect("another one may be the control");
        (state.departs, state.finishing) = (true, true);
        assert!(departing::must_hand_over(&state));
    });
    told.is_some() && (0..3).all(|_| three.turns(0).is_some())
}

#[test]
fn a_control_that_is_to_end_hands_over_and_leaves_as_any_other() {
    let mut three = Three::new(13);
    three.peers.make_directory(0, b"d").expect("made");
    three.peers.create(1, b"d/one").expect("made");
    three.peers.create(2, b"top").expect("made");
    three.peers.pass(Duration::from_secs(3));
    assert!(hands_over(&mut three));
    assert_eq!(three.control(0), member(1), "by what the registry says");
    three.looks(1);
    three.turns(1);
    assert_eq!(three.control(1), member(1));
    three.tells(1);
    three.peers.control = 1;
    let is_in = |three: &mut Three| {
        let standing = three.roster(1).seat(member(0)).map(|seat| seat.standing);
        matches!(standing, Some(Standing::In(_)))
    };
    assert!(is_in(&mut three), "it has what was born there");
    // Once nothing of it is used nobody can hand over to it any more.
    let key = three.keys.server(1, member(0));
    let is_there =
        |three: &Three| !three.registry.table.below(&key).expect("answers").entries.is_empty();
    assert_eq!(three.looks(0), Some(true));
    assert!(is_there(&three), "a program uses it");
    let client = three.peers.clients[0];
    three.peers.sims[0].end(client);
    for _ in 0..8 {
        assert_eq!(three.looks(0), Some(true));
    }
    assert!(!is_there(&three));
    three.peers.leaves(0, |_| ());
    assert!(!is_in(&mut three));
    for at in [1, 2] {
        for path in [&b"d/one"[..], b"top"] {
            assert!(three.peers.stat(at, path).is_ok(), "{at} {path:?}");
        }
        three.peers.create(at, format!("d/new{at}").as_bytes()).expect("made");
        three.peers.create(at, format!("top{at}").as_bytes()).expect("made");
    }
}

#[test]
fn who_is_killed_while_it_hands_over_has_handed_over_or_not() {
    for step in 1..40 {
        let mut three = Three::new(14);
        three.peers.create(1, b"one").expect("made");
        three.peers.sims[0].kill_at(step);
        let lives = hands_over(&mut three);
        three.peers.sims[0].kill_at(0);
        if !lives {
            three.begins_again(0);
        }
        for at in [0, 1, 0, 1] {
            three.looks(at);
        }
        let control = three.generation().0.control;
        assert_eq!([three.control(0), three.control(1)], [control; 2], "{step}");
        three.tells(usize::from(control.number()));
        assert!(three.peers.stat(2, b"one").is_ok(), "{step}");
        three.peers.create(0, b"two").expect("it is in");
        if lives {
            assert!(step > 1, "it is killed somewhere");
            return;
        }
    }
    panic!("it never gets through");
}

#[test]
fn nobody_takes_over_while_the_control_says_that_it_is_there() {
    let mut three = Three::new(2);
    let asked = three.wants(1);
    assert_eq!(three.said(1, &asked), None);
    three.turns(1);
    let said = three.said(1, &asked).expect("is answered").expect_err("it is there");
    assert!(said.kind == ErrorKind::Busy && said.context.contains("h0"), "{said}");
    assert_eq!(three.control(1), member(0));
    assert_eq!(three.generation().0.control, member(0));
}

#[test]
fn of_two_that_take_over_at_once_one_does() {
    let mut three = Three::new(3);
    three.loses_control();
    let asked = [three.wants(1), three.wants(2)];
    assert!(three.said(1, &asked[0]).is_none() && three.said(2, &asked[1]).is_none());
    three.turns(1);
    three.turns(2);
    assert_eq!(three.said(1, &asked[0]), Some(Ok(())));
    let said = three.said(2, &asked[1]).expect("is answered").expect_err("the other was faster");
    assert_eq!(said.kind, ErrorKind::Busy);
    three.tells(1);
    assert_eq!([three.control(1), three.control(2)], [member(1); 2]);
}

#[test]
fn who_is_killed_while_it_takes_over_has_taken_over_or_not() {
    for step in 1..40 {
        let mut three = Three::new(4);
        three.peers.create(1, b"one").expect("made");
        three.loses_control();
        let asked = three.wants(1);
        assert_eq!(three.said(1, &asked), None);
        three.peers.sims[1].kill_at(step);
        let lives = three.turns(1).is_some();
        if lives {
            three.peers.sims[1].kill_at(0);
        } else {
            three.begins_again(1);
        }
        // It finds in the registry what it has become.
        for _ in 0..3 {
            three.turns(1);
        }
        assert_eq!(three.control(1), three.generation().0.control, "{step}");
        let control = usize::from(three.control(1).number());
        if control != 1 {
            three.time_passes();
            three.takes_over(1);
        }
        three.tells(1);
        assert!(three.peers.stat(2, b"one").is_ok(), "{step}");
        three.peers.create(2, b"two").expect("made");
        if lives {
            assert!(step > 1, "it is killed somewhere");
            return;
        }
    }
    panic!("it never gets through");
}

#[test]
fn a_control_that_stood_still_and_was_replaced_ends() {
    let mut three = Three::new(5);
    three.time_passes();
    three.takes_over(1);
    // It decides something, and finds that it may not.
    three.peers.sims[0].with(|server| control::tell_all(&mut server.lock()).expect("it thinks so"));
    let goes_on = (0..3).all(|_| three.turns(0) == Some(true));
    assert!(!goes_on, "it goes on beside the other");
    let replaced = three.generation();
    let first = three.keepers.remove(0);
    first.close(true);
    assert_eq!(three.generation(), replaced, "it ends the pool, which is not its any more");
    let why = three.peers.sims[0].with(|server| server.lock().refused.clone()).flatten();
    assert!(why.as_ref().is_some_and(|why| why.contains("h1 has taken over")), "{why:?}");
}

#[test]
fn without_the_registry_nobody_takes_over() {
    let mut three = Three::new(6);
    three.loses_control();
    three.registry.is_away(true);
    let asked = three.wants(1);
    assert_eq!(three.said(1, &asked), None);
    three.turns(1);
    let said = three.said(1, &asked).expect("is answered").expect_err("it is away");
    assert_eq!(said.kind, ErrorKind::Unreachable);
    three.registry.is_away(false);
    three.takes_over(1);
}

#[test]
fn what_a_member_knows_to_be_removed_stays_so_under_a_control_that_has_not_heard_of_it() {
    let mut three = Three::new(7);
    // The control has said so to one of the others only, and is lost.
    let gone = super::fencing::roster(3, 3, &[(2, Verdict::Dead)].into());
    three.peers.dies(2);
    three.peers.hears_roster(1, &gone);
    three.loses_control();
    let standing = |three: &mut Three| {
        let seat = three.peers.sims[1].with(|server| {
            let state = server.lock();
            let members = state.members.as_ref().expect("a member");
            members.roster().seat(member(2)).map(|seat| seat.standing)
        });
        seat.flatten().expect("is known")
    };
    three.takes_over(1);
    assert!(matches!(standing(&mut three), Standing::Removed { verdict: Verdict::Dead, .. }));
}

#[test]
fn what_a_lost_control_has_handed_out_is_good_nowhere_from_then_on() {
    let mut three = Three::new(8);
    three.peers.create(1, b"f").expect("made");
    let whole = three.peers.got(0);
    let client = three.peers.sims[1].connect();
    let may = |three: &mut Three| {
        let looked = Request::Stat(Target::Path(b"f"));
        three.peers.ask_as(1, client, looked).map(drop).map_err(|error| error.kind)
    };
    three.peers.presents(1, client, &whole).expect("it is good");
    assert_eq!(may(&mut three), Ok(()));
    three.loses_control();
    three.takes_over(2);
    three.tells(2);
    assert_eq!(may(&mut three), Err(ErrorKind::Unauthorized));
    for at in [1, 2] {
        let client = three.peers.sims[at].connect();
        let refused = three.peers.presents(at, client, &whole).expect_err("it is over");
        assert_eq!(refused.kind, ErrorKind::Unauthorized, "{at}");
    }
    // Another one is good everywhere.
    let new = three.peers.got(2);
    three.peers.presents(1, client, &new).expect("it is good");
    assert_eq!(may(&mut three), Ok(()));
}
