//! Servers that wait for something of their pool, and what is not believed of others. Not here: who
//! is killed meanwhile (`beginning`, `passing_on`).

use std::sync::atomic::Ordering;

use terral_format::ErrorKind;
use terral_format::disk::partition::Verdict;
use terral_format::wire::pool::{Lost, Wanted, write};
use terral_format::wire::roster::{Key, Standing};
use terral_registry::registry::{Change, Registry};

use super::super::succeeding::of;
use super::{AUTHORITY, Pools, Role, STORES};
use crate::members::{control, following};

/// More than are answered at a time.
const MANY: u64 = 70;

#[test]
fn however_many_wait_for_the_root_the_first_that_keeps_files_comes_in() {
    let mut pools = Pools::new(&[AUTHORITY, STORES]);
    pools.are_on(&[0]);
    pools.until("it begins", |pools| pools.known(0).is_some());
    for at in 0..MANY {
        let key = Key([at as u8; 32]);
        let wanted = Wanted { machine: of(2), key, role: Some(Role::Compute) };
        // They are asked in this order.
        let name = format!("{}{at:032x}", pools.keys.wanted());
        let put = Change::put(name, write(&wanted).expect("encodes"));
        pools.registry.commit(&[], &[put]).expect("answers").expect("no guard");
    }
    let answered = |pools: &Pools| {
        pools.registry.table.below(&pools.keys.invited()).expect("answers").entries.len() as u64
    };
    pools.rounds(20);
    assert_eq!(answered(&pools), 0, "nobody has the root");
    pools.are_on(&[1]);
    let mut rounds = 0;
    pools.until("who keeps files comes in", |pools| {
        rounds += 1;
        pools.is_serving(1)
    });
    assert!(rounds < 8, "{rounds}");
    let came = |pools: &mut Pools| pools.known(0).map_or(0, |(.., roster)| roster.seats.len());
    pools.until("all others do", |pools| came(pools) as u64 == MANY + 2);
    assert_eq!(answered(&pools), MANY);
}

#[test]
fn no_program_is_served_before_a_server_has_heard_who_is_in() {
    let mut pools = Pools::new(&[AUTHORITY, STORES]);
    pools.are_on(&[0, 1]);
    // Whoever is in says nothing meanwhile.
    pools.until_silently("it is let in", |pools| pools.is_serving(1));
    let said = pools.machines[1].sim.as_mut().expect("it lives").try_connect();
    let said = said.expect_err("it knows nobody");
    assert!(said.kind == ErrorKind::Busy && said.context.contains("not come into"), "{said}");
    pools.until("it hears it", |pools| pools.has_come_to_be(&[0, 1]));
    pools.machines[1].sim.as_mut().expect("it lives").try_connect().expect("it is in");
}

#[test]
fn who_may_not_take_over_asks_seldom_and_says_so() {
    let mut pools = Pools::new(&[AUTHORITY, STORES, STORES]);
    pools.are_on(&[0, 1, 2]);
    pools.until("it begins", |pools| pools.has_come_to_be(&[0, 1, 2]));
    let (lost, ..) = pools.known(0).expect("it lives");
    pools.is_lost(0);
    pools.rounds(15);
    let (generation, _) = pools.generation().expect("is there");
    let says = Lost { token: generation.token, member: lost, verdict: Verdict::Dead };
    let put = Change::put(pools.keys.lost(), write(&says).expect("encodes"));
    pools.registry.commit(&[], &[put]).expect("answers").expect("no guard");
    pools.registry.denies(true);
    let before = pools.registry.calls.load(Ordering::SeqCst);
    pools.rounds(60);
    let calls = pools.registry.calls.load(Ordering::SeqCst) - before;
    // Each looks, keeps its lease, reads all, and tries, each time that it says that it is there.
    assert!(calls <= 2 * 20 * 6, "{calls}");
    let said = pools.of(1, |state| state.warnings.clone()).expect("it lives");
    assert!(said.iter().any(|one| one.contains("cannot take over")), "{said:?}");
    assert_eq!(pools.generation().map(|(now, _)| now.control), Some(lost));
    pools.registry.denies(false);
    pools.until("one does", |pools| pools.has_come_to_be(&[1, 2]));
}

#[test]
fn a_control_that_nobody_may_take_over_from_asks_seldom_and_goes_on() {
    let mut pools = Pools::new(&[STORES, AUTHORITY, STORES]);
    pools.are_on(&[0]);
    pools.until("it begins", |pools| pools.has_come_to_be(&[0]));
    pools.are_on(&[1]);
    pools.until("another one comes", |pools| pools.is_serving(1));
    // The authority is there, and the registry does not say so.
    let silent = pools.known(1).expect("it lives").0;
    let calls = |pools: &Pools| pools.registry.calls.load(Ordering::SeqCst);
    pools.machines[1].is_still = true;
    let key = pools.keys.server(1, silent);
    let gone = Change::Remove(key);
    pools.registry.commit(&[], std::slice::from_ref(&gone)).expect("answers").expect("no guard");
    let before = calls(&pools);
    for _ in 0..60 {
        let _ = pools.registry.commit(&[], std::slice::from_ref(&gone));
        pools.round();
    }
    // Who wants to come in is looked for four times a second.
    let asked = calls(&pools) - before - 60;
    assert!(asked <= 60 * 4 + 20 * 6, "{asked}");
    pools.are_on(&[2]);
    pools.until("others come in meanwhile", |pools| pools.is_serving(2));
}

#[test]
fn what_a_storage_server_says_of_others_changes_nothing() {
    let mut pools = Pools::new(&[AUTHORITY, STORES, AUTHORITY, STORES, AUTHORITY]);
    let all = [0, 1, 2, 3, 4];
    for at in all {
        pools.are_on(&[at]);
        pools.until("it comes", |pools| pools.is_serving(at) && pools.known(at).is_some());
    }
    pools.until("all are in", |pools| pools.has_come_to_be(&all));
    let (lost, ..) = pools.known(0).expect("it lives");
    pools.is_lost(0);
    pools.until("another one takes over", |pools| {
        pools.fences(2, lost);
        pools.has_come_to_be(&[1, 2, 3, 4])
    });
    let [hostile, control, other, authority] = [1, 2, 3, 4].map(|at| {
        let (me, ..) = pools.known(at).expect("it lives");
        me
    });
    let says = |pools: &mut Pools, by, gone| {
        let dead = Standing::Removed { heir: by, verdict: Verdict::Dead };
        pools.of(2, |state| control::were_removed(state, by, vec![(gone, dead)]));
        let (.., roster) = pools.known(2).expect("it lives");
        roster.is_in(gone)
    };
    for gone in [other, authority, control] {
        assert!(says(&mut pools, hostile, gone), "{gone}");
    }
    // Nor that it is the control, by its own word.
    let rule = pools.of(1, |state| crate::sharing::ruling::said(state)).flatten();
    let mut rule = rule.expect("it is a member");
    (rule.control, rule.roster.version) = (Some(hostile), u64::MAX);
    for at in [2, 3, 4] {
        let believes = pools.of(at, |state| following::is_taken_over(state, hostile, &rule));
        assert_eq!(believes, Some(false), "{at}");
    }
    rule.control = Some(authority);
    let believes = pools.of(3, |state| following::is_taken_over(state, authority, &rule));
    assert_eq!(believes, Some(true), "an authority is");
    assert!(!says(&mut pools, authority, other), "what an authority knows counts");
}
