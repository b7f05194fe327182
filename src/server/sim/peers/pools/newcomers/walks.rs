//! Users' servers come and go at random, while anybody dies and the control is lost.

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::partition::Verdict;
use terral_format::ids::Member;
use terral_format::wire::roster::Key;

use super::super::super::users::ALICE;
use super::super::super::walk_all;
use super::super::{Pools, each_kind};
use super::{key, pool};
use crate::sharing::newcomers;
use crate::sim::world::Virtual;

/// Which were answered: by key, where, whose, and who they are.
type Came = BTreeMap<u8, (usize, u32, Member)>;

/// The control is lost, and another one takes over.
fn loses_control(pools: &mut Pools) {
    pools.went_wrong();
    let known = (0..3).find_map(|at| pools.known(at));
    let Some((lost, at)) = known.and_then(|(_, lost, _)| Some((lost, pools.at_of(lost)?))) else {
        return;
    };
    pools.is_lost(at);
    let next = (at + 1) % 3;
    pools.until("another one takes over", |pools| {
        pools.fences(next, lost);
        (0..3)
            .filter(|other| *other != at)
            .all(|other| pools.known(other).is_some_and(|(_, control, _)| control != lost))
    });
}

/// Somebody asks for a server of somebody, or says that one is gone.
fn act(pools: &mut Pools, came: &mut Came, draw: &mut impl FnMut(u64) -> u64) {
    let (at, user, life) = (draw(3) as usize, draw(3) as u8, draw(3) as u8);
    let of = at as u8 * 9 + user * 3 + life;
    if draw(5) == 0
        && let Some((.., member)) = came.get(&of).copied()
    {
        let _ =
            pools.at_door((at, 100 + of), |state| newcomers::remove(state, member, Verdict::Dead));
        return;
    }
    let user = ALICE + u32::from(user);
    if let Some(Ok(invitation)) = pools.invites(at, user, of) {
        assert_eq!(pools.written(of), [invitation.me], "it is in the registry before");
        let before = came.insert(of, (at, user, invitation.me));
        assert!(before.is_none_or(|(.., before)| before == invitation.me), "{before:?}");
    }
}

fn walk(seed: u64) -> [u64; 2] {
    let mut pools = pool();
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let (mut came, mut went_wrong) = (Came::new(), 0);
    let lost = 10 + draw(40);
    for turn in 0..50 {
        if pools.wrong.is_none() {
            let kind = each_kind()[draw(5) as usize];
            pools.goes_wrong(draw(3) as usize, kind(1 + draw(20)));
        }
        if draw(5) == 0 {
            pools.loses = Some(1 + draw(3));
        }
        act(&mut pools, &mut came, &mut draw);
        if turn == lost {
            loses_control(&mut pools);
        }
        (0..draw(4)).for_each(|_| pools.round());
        went_wrong += u64::from(pools.wrong.is_none());
    }
    pools.went_wrong();
    pools.loses = None;
    pools.rounds(30);
    let there: Vec<usize> = (0..3).filter(|at| pools.is_serving(*at)).collect();
    let first = pools.known(there[0]).expect("it lives").2;
    for at in &there {
        let roster = pools.known(*at).expect("it lives").2;
        assert_eq!((roster.answers, roster.seats), (first.answers.clone(), first.seats.clone()));
    }
    for (of, (at, user, member)) in &came {
        let (own, by) = (first.certificate(*member), first.answers_for(*member));
        assert!(own.is_some_and(|it| it.key == key(*of)), "{of}: {own:?}");
        let by = by.expect("somebody answers for it");
        assert!(first.is_in(by) || !first.is_in(*member), "it goes with its machine");
        if first.is_in(*member) {
            assert_eq!(pools.has_in(*at, *user, *of).0, *member);
        }
    }
    let users = first.certificates.iter().filter(|it| it.user.is_some());
    let keys: BTreeSet<Key> = users.clone().map(|it| it.key).collect();
    let members: BTreeSet<Member> = users.clone().map(|it| it.member).collect();
    assert_eq!([keys.len(), members.len()], [users.count(); 2], "each is one member");
    assert_eq!(members, first.answers.iter().map(|it| it.member).collect());
    [went_wrong, came.len() as u64]
}

#[test]
fn whoever_dies_while_users_come_each_is_who_it_was_said_to_be() {
    let [went_wrong, came] = walk_all(20, walk);
    assert!(went_wrong > 20 && came > 20, "hardly anything came: {went_wrong}, {came}");
}
