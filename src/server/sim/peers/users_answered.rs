//! Who answers for users' servers: a machine goes with all of them, and nobody says anything of
//! another's. Not here: how one is let in while members die (`pools/newcomers`).

use std::collections::BTreeMap;

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::wire::answering::Answers;
use terral_format::wire::roster::{Roster, Seat};

use super::users::{ALICE, BOB, certificates_for};
use super::{Peers, fencing, member};
use crate::core::state::State;
use crate::members::control;

mod coming;
mod numbers;
mod places;
mod saying;

/// Root's servers of two machines, alice's and bob's on the second, and alice's on the first.
const USERS: [Option<u32>; 5] = [None, None, Some(ALICE), Some(BOB), Some(ALICE)];

/// Who answers for whom of them.
fn answers() -> Vec<Answers> {
    let of = |(at, by)| Answers { member: member(at), by: member(by), login: format!("{at}") };
    [(2, 1), (3, 1), (4, 0)].map(of).to_vec()
}

/// The control knows all of them.
fn house() -> Peers {
    let mut peers = Peers::new(1, USERS.len());
    let roster = fencing::roster(USERS.len(), 2, &BTreeMap::new());
    let (certificates, answers) = (certificates_for(&USERS), answers());
    let roster = Roster { certificates, answers, ..roster };
    peers.sims[0].with(|server| {
        let mut state = server.lock();
        control::heard(&mut state, roster, member(0));
        state.commit().expect("there is room");
    });
    peers
}

/// How all are, as the control says.
fn standings(peers: &mut Peers) -> (u64, Vec<Standing>) {
    let said = peers.sims[0].with(|server| {
        let state = server.lock();
        let roster = state.members.as_ref().expect("a member").roster();
        (roster.version, roster.seats.iter().map(|seat: &Seat| seat.standing).collect())
    });
    said.expect("it lives")
}

fn removes(peers: &mut Peers, out: usize, verdict: Verdict) -> bool {
    let done = peers.sims[0].with(|server| {
        let mut state = server.lock();
        let done = control::remove(&mut state, member(out), verdict);
        state.commit().expect("there is room");
        done.is_ok()
    });
    done.expect("it lives")
}

#[test]
fn a_machine_goes_with_all_its_users_servers_at_once() {
    for verdict in [Verdict::Dead, Verdict::Fenced] {
        let mut peers = house();
        let (before, _) = standings(&mut peers);
        assert!(removes(&mut peers, 1, verdict));
        let (version, all) = standings(&mut peers);
        assert_eq!(version, before + 1, "in one roster");
        let gone = |heir| Standing::Removed { heir: member(heir), verdict };
        // Alice's other one goes on with hers; nobody is bob's.
        assert_eq!(all[1..4], [gone(0), gone(4), gone(0)]);
        assert!(matches!((all[0], all[4]), (Standing::In(_), Standing::In(_))));
        // That they are dead may be said later, of all of them.
        assert_eq!(removes(&mut peers, 1, Verdict::Dead), verdict == Verdict::Fenced);
        let dead = |heir| Standing::Removed { heir: member(heir), verdict: Verdict::Dead };
        let (_, all) = standings(&mut peers);
        assert_eq!(all[1..4], [dead(0), dead(4), dead(0)]);
        assert!(!removes(&mut peers, 1, Verdict::Fenced), "nothing becomes less");
    }
}

#[test]
fn who_leaves_leaves_for_itself_and_what_stays_goes_as_its_machine_is_lost() {
    let mut peers = house();
    assert!(removes(&mut peers, 1, Verdict::Left));
    let (_, all) = standings(&mut peers);
    assert!(all[2..].iter().all(|it| matches!(it, Standing::In(_))), "{all:?}");
    assert!(removes(&mut peers, 1, Verdict::Dead), "its users' servers are there");
    let (_, all) = standings(&mut peers);
    let verdict = |at: usize| match all[at] {
        Standing::In(_) => None,
        Standing::Removed { verdict, .. } => Some(verdict),
    };
    let dead = Some(Verdict::Dead);
    assert_eq!([1, 2, 3, 4].map(verdict), [Some(Verdict::Left), dead, dead, None]);
}

#[test]
fn who_answers_for_whom_is_known_after_a_death() {
    let mut peers = house();
    let known = |peers: &mut Peers| {
        let known = peers.sims[0].with(|server| {
            let state = server.lock();
            state.members.as_ref().expect("a member").roster().answers.clone()
        });
        known.expect("it lives")
    };
    assert_eq!(known(&mut peers), answers());
    for rewritten in [false, true] {
        if rewritten {
            peers.sims[0].with(|server| server.lock().rewrite_log());
        }
        peers.sims[0].kill();
        assert_eq!(known(&mut peers), answers(), "{rewritten}");
    }
}

/// Something of the control.
fn of<T>(peers: &mut Peers, what: impl FnOnce(&mut State) -> T) -> T {
    let said = peers.sims[0].with(|server| {
        let mut state = server.lock();
        let said = what(&mut state);
        state.commit().expect("there is room");
        said
    });
    said.expect("it lives")
}

fn roster(peers: &mut Peers) -> Roster {
    of(peers, |state| state.members.as_ref().expect("a member").roster().clone())
}
