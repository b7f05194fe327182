//! A pool whose first server is an authority, which is killed at each step, or is not answered.

use terral_format::wire::roster::Standing;

use super::super::keeping::Wrong;
use super::super::member;
use super::{AUTHORITY, Pools, STORES, Step, each_kind};

/// Something goes wrong with one of the first two at a step. Whether it did before all was done.
fn begins(at: usize, step: Step, then: impl Fn(&mut Pools) -> Vec<usize>) -> bool {
    let mut pools = Pools::new(&[AUTHORITY, STORES, AUTHORITY]);
    pools.are_on(&[0, 1]);
    pools.goes_wrong(at, step);
    for _ in 0..40 {
        pools.round();
        let is_over = pools.wrong.is_none() && !pools.is_serving(at);
        if is_over || pools.has_come_to_be(&[0, 1]) {
            break;
        }
    }
    let went_wrong = pools.went_wrong();
    let all = then(&mut pools);
    pools.until("the pool comes to be", |pools| pools.has_come_to_be(&all));
    let storage: Vec<usize> = all.iter().copied().filter(|at| *at == 1).collect();
    assert_eq!(pools.roots(&all), storage, "the root is where files are kept");
    let (_, _, roster) = pools.known(1).expect("it lives");
    let root = roster.seat(member(1)).map(|seat| seat.standing);
    // Who was to have it, and was killed before it had come, is removed.
    let is_there = matches!(root, Some(Standing::In(_)));
    assert!(is_there || at == 1, "it was born twice: {root:?}");
    pools.serves(&storage);
    went_wrong
}

/// At each step of each kind, until none is left.
fn at_each_step(at: usize, then: impl Fn(&mut Pools) -> Vec<usize>) {
    for kind in each_kind() {
        let first = (1..200).find(|moment| {
            let step = kind(*moment);
            let went =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| begins(at, step, &then)));
            !went.unwrap_or_else(|why| {
                println!("{step:?}");
                std::panic::resume_unwind(why)
            })
        });
        assert!(first.is_some_and(|first| first > 3), "{:?}: {first:?}", kind(1));
    }
}

#[test]
fn an_authority_that_is_killed_as_it_begins_a_pool_and_started_again_goes_on_with_it() {
    at_each_step(0, |_| vec![0, 1]);
}

#[test]
fn a_storage_server_that_is_killed_as_it_comes_in_has_the_root_in_the_end() {
    at_each_step(1, |_| vec![0, 1]);
}

#[test]
fn so_does_another_one_that_is_started_instead() {
    at_each_step(0, |pools| {
        if pools.is_serving(0) && pools.wrong.is_none() {
            // It was only not answered.
            return vec![0, 1];
        }
        pools.is_lost(0);
        pools.are_on(&[2]);
        pools.rounds(30);
        if pools.has_come_to_be(&[1, 2]) {
            return vec![1, 2];
        }
        // A person says so, on whoever is in, or on who is to begin anew.
        match pools.known(1) {
            Some((_, lost, _)) => pools.until("it takes over", |pools| {
                pools.fences(1, lost);
                pools.known(1).is_some_and(|(_, now, _)| now != lost)
            }),
            None => pools.is_anew(2),
        }
        vec![1, 2]
    });
}

#[test]
fn nobody_is_told_otherwise_where_etcd_denies_what_is_asked_once() {
    for at in 0..30 {
        begins(0, Step::Call(at, Wrong::Denied), |_| vec![0, 1]);
    }
}
