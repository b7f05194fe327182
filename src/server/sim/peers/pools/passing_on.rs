//! The control of a pool with authorities is lost, or told to end, and whoever is to be the next
//! one, or that one itself, is killed at each step, or is not answered.

use terral_format::wire::pool::Stage;

use super::super::keeping::Wrong;
use super::super::walk_all;
use super::{AUTHORITY, Pools, STORES, Step, at_each_step, each_kind};
use crate::sim::world::Virtual;

/// Two authorities, and one server that keeps files; the first is the control.
fn pool() -> Pools {
    let mut pools = Pools::new(&[AUTHORITY, STORES, AUTHORITY, AUTHORITY]);
    pools.are_on(&[0, 1]);
    pools.until("it begins", |pools| pools.has_come_to_be(&[0, 1]));
    pools.are_on(&[2]);
    pools.until("another one comes", |pools| pools.has_come_to_be(&[0, 1, 2]));
    pools.rounds(4);
    pools
}

/// A person says so until it is so.
fn until(pools: &mut Pools, all: &[usize], says: impl Fn(&mut Pools)) {
    for _ in 0..60 {
        says(pools);
        pools.round();
        if pools.has_come_to_be(all) {
            return;
        }
    }
    pools.until("they are one pool", |pools| pools.has_come_to_be(all));
}

#[test]
fn who_takes_over_and_is_killed_at_any_step_is_the_control_in_the_end() {
    at_each_step(pool, 2, |pools| {
        let (lost, ..) = pools.known(0).expect("it lives");
        pools.is_lost(0);
        until(pools, &[1, 2], |pools| drop(pools.fences(2, lost)));
        let went_wrong = pools.went_wrong();
        let (me, control, roster) = pools.known(2).expect("it lives");
        assert!(me == control && !roster.is_in(lost));
        assert_eq!(pools.roots(&[1, 2]), [1]);
        pools.take().serves(&[1]);
        went_wrong
    });
}

#[test]
fn so_is_a_storage_server_until_there_is_an_authority_again() {
    at_each_step(pool, 1, |pools| {
        let (lost, ..) = pools.known(0).expect("it lives");
        [0, 2].into_iter().for_each(|at| pools.is_lost(at));
        until(pools, &[1], |pools| drop(pools.fences(1, lost)));
        let went_wrong = pools.went_wrong();
        pools.are_on(&[3]);
        let is_control = |pools: &mut Pools| {
            let known = pools.known(3);
            pools.has_come_to_be(&[1, 3]) && known.is_some_and(|(me, control, _)| me == control)
        };
        pools.until("the next authority is the control", is_control);
        assert_eq!(pools.roots(&[1, 3]), [1]);
        pools.take().serves(&[1]);
        went_wrong
    });
}

/// The first authority is stopped, as often as it takes.
fn stops_first(pools: &mut Pools) -> bool {
    let is_gone = |pools: &mut Pools| {
        // Who was killed after it had left is only to hear so.
        !pools.machines[0].is_on && pools.has_come_to_be(&[1, 2])
    };
    for _ in 0..200 {
        if is_gone(pools) {
            break;
        }
        let _ = pools.stops(0);
        pools.round();
    }
    assert!(is_gone(pools), "{:?} {:?}", pools.generation(), pools.known(2));
    let went_wrong = pools.went_wrong();
    let (me, control, _) = pools.known(2).expect("it lives");
    assert_eq!(me, control);
    pools.take().serves(&[1]);
    went_wrong
}

#[test]
fn an_authority_that_is_stopped_and_killed_at_any_step_hands_over_in_the_end() {
    at_each_step(pool, 0, stops_first);
}

#[test]
fn so_it_does_where_who_it_hands_over_to_is_killed() {
    at_each_step(pool, 2, stops_first);
}

/// Both are stopped, and wait for another one, or for all others to end.
fn stops_both(pools: &mut Pools) -> Vec<usize> {
    for _ in 0..40 {
        [0, 2].into_iter().for_each(|at| drop(pools.stops(at)));
        pools.round();
    }
    let there: Vec<usize> = [0, 2].into_iter().filter(|at| pools.machines[*at].is_on).collect();
    assert_eq!(there.len(), 1, "one has left, and the other one stays");
    there
}

#[test]
fn of_two_authorities_that_are_stopped_together_one_stays_until_another_one_comes() {
    for victim in [0, 2] {
        at_each_step(pool, victim, |pools| {
            let left = stops_both(pools);
            let went_wrong = pools.went_wrong();
            pools.are_on(&[3]);
            for _ in 0..100 {
                if !pools.machines[left[0]].is_on && pools.has_come_to_be(&[1, 3]) {
                    break;
                }
                let _ = pools.stops(left[0]);
                pools.round();
            }
            assert!(!pools.machines[left[0]].is_on, "it never leaves");
            pools.until("there is one pool", |pools| pools.has_come_to_be(&[1, 3]));
            pools.take().serves(&[1]);
            went_wrong
        });
    }
}

#[test]
fn of_two_authorities_that_are_stopped_together_one_ends_the_pool_once_all_others_have_left() {
    let mut pools = pool();
    let left = stops_both(&mut pools);
    for _ in 0..60 {
        [1, left[0]].into_iter().for_each(|at| drop(pools.stops(at)));
        pools.round();
    }
    let on: Vec<usize> = (0..4).filter(|at| pools.machines[*at].is_on).collect();
    assert!(on.is_empty(), "{on:?} {:?}", pools.known(left[0]));
    assert_eq!(pools.generation().map(|(now, _)| now.stage), Some(Stage::Ended));
}

#[test]
fn of_two_authorities_that_are_stopped_one_after_the_other_the_second_says_why_it_stays() {
    let mut pools = pool();
    pools.stops(2).expect("another one is the control");
    for _ in 0..60 {
        pools.round();
    }
    assert!(!pools.machines[2].is_on, "it has left");
    let said = pools.stops(0).expect_err("others need it");
    assert!(said.context.contains("start another one of --role authn,authz"), "{said}");
    pools.are_on(&[3]);
    pools.until("another one comes", |pools| pools.has_come_to_be(&[0, 1, 3]));
    pools.stops(0).expect("it is there");
    pools.until("it has left", |pools| !pools.machines[0].is_on);
    pools.until("there is one pool", |pools| pools.has_come_to_be(&[1, 3]));
    pools.take().serves(&[1]);
}

#[test]
fn where_etcd_denies_a_step_once_the_pool_goes_on() {
    for at in 0..20 {
        let mut pools = pool();
        pools.goes_wrong(0, Step::Call(at, Wrong::Denied));
        stops_first(&mut pools);
    }
}

/// Servers of a pool are killed, stopped, and not answered, more than one at a time.
fn walk(seed: u64) -> [u64; 1] {
    let mut pools = pool();
    let world = Virtual::new(seed);
    let draw = |of| world.one_of(of);
    pools.are_on(&[3]);
    let mut left: Vec<usize> = vec![0, 2, 3];
    let mut went_wrong = 0;
    for _ in 0..40 {
        let at = draw(4) as usize;
        if pools.wrong.is_none() {
            let kind = each_kind()[draw(5) as usize];
            pools.goes_wrong(at, kind(1 + draw(30)));
        }
        // One authority is told to end, and told again if it was killed.
        if left.len() > 2 && draw(6) == 0 {
            left.remove(draw(left.len() as u64) as usize);
        }
        let leaves = [0, 2, 3].into_iter().filter(|at| !left.contains(at));
        leaves.for_each(|at| drop(pools.stops(at)));
        (0..1 + draw(4)).for_each(|_| pools.round());
        went_wrong += u64::from(pools.wrong.is_none());
    }
    pools.went_wrong();
    let all: Vec<usize> = [left, vec![1]].concat();
    for _ in 0..200 {
        let leaves = [0, 2, 3].into_iter().filter(|at| !all.contains(at));
        let leaves: Vec<usize> = leaves.filter(|at| pools.machines[*at].is_on).collect();
        if leaves.is_empty() && pools.has_come_to_be(&all) {
            break;
        }
        leaves.into_iter().for_each(|at| drop(pools.stops(at)));
        pools.round();
    }
    pools.until("there is one pool", |pools| pools.has_come_to_be(&all));
    assert_eq!(pools.roots(&all), [1], "what it decides stays where files are kept");
    pools.serves(&[1]);
    [went_wrong]
}

#[test]
fn whatever_goes_wrong_there_is_one_pool_in_the_end() {
    let [went_wrong] = walk_all(40, walk);
    assert!(went_wrong > 40, "hardly anything went wrong: {went_wrong}");
}
