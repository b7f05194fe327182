//! Users' servers that come into a pool at the word of root's server of their machine, which asks
//! the control: whoever is killed when, and whatever is not answered. Not here: who answers for
//! which (`users_answered`).

use terral_format::disk::partition::Verdict;
use terral_format::ids::{Member, ServerId};
use terral_format::wire::answering::Newcomer;
use terral_format::wire::message::Reply;
use terral_format::wire::pool::rule;
use terral_format::wire::roster::{Invitation, Key, Standing};
use terral_format::{Error, ErrorKind, Result, frame};
use terral_registry::registry::Registry;

use super::super::users::{ALICE, BOB, person};
use super::{Pools, Step, at_each_step};
use crate::requests::handling;
use crate::sharing::newcomers;

mod walks;

/// A user, as his machine knows him.
fn whom(user: u32) -> Newcomer {
    Newcomer { user: person(user), login: format!("u{user}") }
}

fn key(of: u8) -> Key {
    // Servers' own are drawn otherwise.
    let mut key = [of; 32];
    key[0] = 255 - of;
    Key(key)
}

/// Three machines; the first one's is the control.
pub(super) fn pool() -> Pools {
    let mut pools = Pools::new(&[None; 4]);
    for at in [0, 1, 2] {
        pools.are_on(&[at]);
        pools.until("it comes", |pools| pools.is_serving(at) && pools.known(at).is_some());
    }
    pools.until("all are in", |pools| pools.has_come_to_be(&[0, 1, 2]));
    pools.rounds(2);
    pools
}

impl Pools {
    /// A program of root's there does something, and asks again if it must wait: then nothing.
    fn at_door<T>(
        &mut self,
        (at, number): (usize, u8),
        act: impl FnOnce(&mut crate::core::state::State) -> Result<T>,
    ) -> Option<Result<T>> {
        self.of(at, |state| {
            state.fetches.let_wait(true);
            let done = handling::at_the_door(state, number.into(), act);
            let waits = state.fetches.must_wait();
            state.fetches.let_wait(false);
            (!waits).then_some(done)
        })?
    }

    /// Root's server of this machine is asked to have a server of a user let in.
    pub(super) fn invites(&mut self, at: usize, user: u32, of: u8) -> Option<Result<Invitation>> {
        let asked = frame::encode(&(whom(user), key(of))).expect("encodes");
        let said = self.at_door((at, 10 + of), |state| newcomers::invite(state, &asked))?;
        Some(said.and_then(|reply| match reply {
            Reply::Invitation(text) => Invitation::of(&text),
            other => panic!("{other:?}"),
        }))
    }

    /// The same until it is: who it is then. What was answered the registry has.
    fn has_in(&mut self, at: usize, user: u32, of: u8) -> (Member, ServerId) {
        for _ in 0..200 {
            if let Some(Ok(invitation)) = self.invites(at, user, of) {
                assert_eq!(self.written(of), [invitation.me], "it is in the registry before");
                return (invitation.me, invitation.server);
            }
            self.round();
        }
        panic!("{at}: never: {:?}", self.invites(at, user, of));
    }

    /// Who has this key, as the registry says, and is answered for.
    fn written(&self, of: u8) -> Vec<Member> {
        let keys = &self.keys;
        let view = self.registry.table.below(keys.all()).expect("answers");
        let rule = rule(&keys.parts(view.pairs())).expect("whole");
        let has = rule.certificates.iter().filter(|it| it.key == key(of)).map(|it| it.member);
        has.filter(|it| rule.answers.iter().any(|one| one.member == *it)).collect()
    }

    /// Who answers for a member, as this server knows.
    fn answers(&mut self, at: usize, member: Member) -> Option<Member> {
        self.known(at)?.2.answers_for(member)
    }
}

/// Whoever asks again is the same, also once the control is lost, and one more is another.
fn goes_on(pools: &mut Pools, first: (Member, ServerId)) {
    let one = pools.known(1).expect("it lives").0;
    assert_eq!(pools.has_in(1, ALICE, 1), first);
    let other = pools.has_in(1, BOB, 2);
    assert_ne!(other.0, first.0);
    let (lost, ..) = pools.known(0).expect("it lives");
    pools.is_lost(0);
    pools.until("another one takes over", |pools| {
        pools.fences(2, lost);
        pools.known(1).is_some_and(|(_, control, _)| control != lost)
            && pools.known(2).is_some_and(|(me, control, _)| control == me)
    });
    assert_eq!([pools.has_in(1, ALICE, 1), pools.has_in(1, BOB, 2)], [first, other]);
    let (.., roster) = pools.known(2).expect("it lives");
    let with = |of: u8| roster.certificates.iter().filter(|it| it.key == key(of)).count();
    assert_eq!([with(1), with(2)], [1, 1], "each is one member");
    assert_eq!([first.0, other.0].map(|it| roster.answers_for(it)), [Some(one); 2]);
}

/// One comes, whatever goes wrong meanwhile. Whether it did.
fn asks_once(pools: &mut Pools) -> bool {
    let first = pools.has_in(1, ALICE, 1);
    let went_wrong = pools.went_wrong();
    pools.until("all are there", |pools| (0..3).all(|at| pools.known(at).is_some()));
    goes_on(pools, first);
    went_wrong
}

#[test]
fn who_asks_again_by_the_same_key_is_the_same_member() {
    at_each_step(pool, 0, asks_once);
}

#[test]
fn so_it_is_where_who_asks_is_killed_as_it_writes_anything() {
    let first = (1..50).find(|moment| {
        let mut pools = pool();
        pools.goes_wrong(1, Step::Record(*moment));
        !asks_once(&mut pools)
    });
    assert!(first.is_some_and(|first| first > 2), "{first:?}");
}

#[test]
fn so_it_is_whichever_message_is_lost() {
    for at in 1..3 {
        let mut pools = pool();
        pools.loses = Some(at);
        let first = pools.has_in(1, ALICE, 1);
        assert_eq!(pools.loses, None, "it was lost");
        goes_on(&mut pools, first);
    }
}

#[test]
fn where_the_control_is_lost_as_it_lets_one_in_the_next_one_does() {
    at_each_step(pool, 0, |pools| {
        let (lost, ..) = pools.known(0).expect("it lives");
        let mut answered = None;
        for _ in 0..20 {
            let said = pools.invites(1, ALICE, 1).and_then(Result::ok);
            answered = answered.or(said.map(|it| (it.me, it.server)));
            pools.round();
            if pools.wrong.is_none() {
                break;
            }
        }
        let went_wrong = pools.went_wrong();
        pools.is_lost(0);
        pools.until("another one takes over", |pools| {
            pools.fences(2, lost);
            pools.known(1).is_some_and(|(_, control, _)| control != lost)
                && pools.known(2).is_some_and(|(me, control, _)| control == me)
        });
        let first = pools.has_in(1, ALICE, 1);
        assert!(answered.is_none_or(|answered| answered == first), "{answered:?} {first:?}");
        assert_eq!(pools.has_in(1, ALICE, 1), first);
        went_wrong
    });
}

/// What is said to who asks for a server for alice, and has not got one for long.
fn hears_why(pools: &mut Pools) -> Error {
    let why = (0..20).find_map(|_| {
        let said = pools.invites(1, ALICE, 1);
        pools.round();
        said
    });
    let why = why.expect("he hears why").expect_err("nobody comes");
    assert_eq!(why.kind, ErrorKind::Unanswered);
    why
}

#[test]
fn who_asks_while_the_registry_is_away_is_told_so_and_is_let_in_later() {
    let mut pools = pool();
    pools.registry.is_away(true);
    pools.rounds(4);
    let why = hears_why(&mut pools);
    assert!(why.context.contains("the registry, which keeps it, does not answer"), "{why}");
    pools.registry.is_away(false);
    pools.has_in(1, ALICE, 1);
}

#[test]
fn who_asks_where_the_control_is_not_there_is_told_so() {
    let mut pools = pool();
    pools.is_lost(0);
    let why = hears_why(&mut pools);
    assert!(why.context.contains("the control of this pool"), "{why}");
}

#[test]
fn what_a_user_has_on_a_machine_goes_at_the_word_of_its_roots_server_and_comes_anew() {
    at_each_step(pool, 0, |pools| {
        let (first, _) = pools.has_in(1, ALICE, 1);
        let out = |pools: &mut Pools, at| {
            let seat = pools.known(at).and_then(|(.., roster)| roster.seat(first).cloned());
            matches!(seat.map(|it| it.standing), Some(Standing::Removed { .. }))
        };
        pools.until("its root's server hears that it is gone", |pools| {
            let said =
                pools.at_door((1, 1), |state| newcomers::remove(state, first, Verdict::Dead));
            matches!(said, Some(Ok(()))) || out(pools, 1)
        });
        let went_wrong = pools.went_wrong();
        pools.until("all know", |pools| out(pools, 0) && out(pools, 2));
        let refused = (0..40).find_map(|_| {
            pools.round();
            pools.invites(1, ALICE, 1)?.err()
        });
        assert_eq!(refused.map(|it| it.kind), Some(ErrorKind::Exists), "that one is gone");
        assert_ne!(pools.has_in(1, ALICE, 3).0, first);
        went_wrong
    });
}

#[test]
fn users_of_a_lost_control_go_with_it_as_another_one_takes_over() {
    let mut pools = pool();
    let [own, others] = [(0, 1), (1, 2)].map(|(at, of)| pools.has_in(at, ALICE, of).0);
    let (lost, ..) = pools.known(0).expect("it lives");
    assert_eq!(pools.answers(0, own), Some(lost));
    pools.is_lost(0);
    pools.until("another one takes over", |pools| {
        pools.fences(2, lost);
        pools.has_come_to_be(&[1, 2]) || pools.known(2).is_some_and(|(me, c, _)| me == c)
    });
    let (.., roster) = pools.known(2).expect("it lives");
    let verdict = |member| match roster.seat(member).expect("it was in").standing {
        Standing::Removed { verdict, .. } => Some(verdict),
        Standing::In(_) => None,
    };
    let dead = Some(Verdict::Dead);
    assert_eq!([lost, own, others].map(verdict), [dead, dead, None]);
}
