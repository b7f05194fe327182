//! The control changes at random, while users' servers and root's die and begin again.

use super::super::super::users::{ALICE, BOB};
use super::super::super::walk_all;
use super::super::newcomers::pool;
use super::super::{Pools, Step};
use crate::sim::world::Virtual;

/// Root's servers.
const ROOTS: usize = 4;

/// The control is lost or leaves, and another one is it then. Whether one could be.
fn changes(pools: &mut Pools, draw: &mut impl FnMut(u64) -> u64) -> bool {
    pools.went_wrong();
    let there: Vec<usize> = (0..ROOTS).filter(|at| pools.is_serving(*at)).collect();
    let control = there.iter().copied().find(|at| pools.is_control(*at));
    let others: Vec<usize> = there.into_iter().filter(|at| Some(*at) != control).collect();
    let Some(control) = control.filter(|_| !others.is_empty()) else { return false };
    if draw(2) == 0 {
        pools.takes_over(control, others[draw(others.len() as u64) as usize]);
    } else {
        pools.hands_over(control);
    }
    true
}

/// Something happens to somebody.
fn act(pools: &mut Pools, users: &[usize], draw: &mut impl FnMut(u64) -> u64) {
    let his = users[draw(users.len() as u64) as usize];
    match draw(6) {
        0 | 1 => {
            pools.dies(his);
            pools.machines[his].is_on ^= true;
        }
        2 => pools.dies(draw(ROOTS as u64) as usize),
        3 => pools.loses = Some(1 + draw(4)),
        4 if pools.wrong.is_none() => pools.goes_wrong(his, Step::Record(1 + draw(12))),
        _ => {}
    }
}

/// Gives how often another one was the control, and how many users' servers were left.
fn walk(seed: u64) -> [u64; 2] {
    let mut pools = pool();
    pools.are_on(&[3]);
    pools.until("all are in", |pools| pools.has_come_to_be(&[0, 1, 2, 3]));
    let users = [(1, ALICE, 1), (2, BOB, 2), (3, ALICE, 3), (2, ALICE, 4)];
    let users = users.map(|(root, user, of)| pools.has_user(root, user, of));
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let mut changed = 0;
    for _ in 0..40 {
        act(&mut pools, &users, &mut draw);
        if changed < 2 && draw(12) == 0 {
            changed += u64::from(changes(&mut pools, &mut draw));
        }
        pools.rounds(draw(4) as usize);
    }
    pools.went_wrong();
    pools.loses = None;
    pools.are_on(&users);
    pools.rounds(20);
    let control = (0..ROOTS).find(|at| pools.is_control(*at)).expect("there is one");
    let (.., roster) = pools.known(control).expect("it lives");
    let member = |pools: &Pools, at: usize| pools.machines[at].user.as_ref().map(|of| of.who());
    // Nobody starts one for the first time where root's has left.
    let mut may = |at: usize| {
        let member = member(&pools, at).filter(|member| roster.is_in(*member))?;
        let by = roster.answers_for(member).filter(|by| roster.is_in(*by));
        let has_begun = pools.known(at).is_some_and(|(.., known)| known.version > 0);
        (by.is_some() || has_begun).then_some(at)
    };
    let left: Vec<usize> = users.into_iter().filter_map(&mut may).collect();
    for at in &left {
        pools.until("all who are in follow", |pools| pools.follows(*at, control));
    }
    [changed, left.len() as u64]
}

#[test]
fn whoever_dies_while_the_control_changes_users_servers_follow() {
    let [changed, left] = walk_all(30, walk);
    assert!(changed > 30 && left > 60, "hardly anything changed: {changed}, {left}");
}
