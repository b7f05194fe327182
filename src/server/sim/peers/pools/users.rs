//! Users' servers of a pool, which ask no registry, follow whoever is the control: another one
//! takes over, or is handed that, and they are there, or begin only then, or again.
//!
//! Not here: how they are let in (`newcomers`), and what they have (`users_of_machines`).

use terral_format::ids::Member;
use terral_format::wire::roster::{Invitation, Roster};

use super::super::users::{ALICE, BOB};
use super::entering::of_no_pool;
use super::newcomers::pool;
use super::{Machine, Pools, Step, arm};
use crate::members::following;
use crate::sharing::{carrying, ruling};
use crate::shell::options::Part;
use crate::shell::part;
use crate::sim::Sim;

mod walks;

/// A user's server, as who starts it has it.
pub(super) struct Of {
    invitation: Invitation,
    /// Its process lives.
    pub(super) serves: bool,
}

impl Of {
    /// Which member it is.
    fn who(&self) -> Member {
        self.invitation.me
    }
}

/// Whether a user's server and one of root's have a session: each knows by what the other proves
/// who it is, and one of them where the other is.
pub(super) fn finds((his, known): (Member, &Roster), (roots, by): (Member, &Roster)) -> bool {
    let key = |roster: &Roster, of| roster.certificate(of).map(|it| it.key);
    let is_at = |roster: &Roster, of| roster.seat(of).is_some_and(|it| !it.addresses.is_empty());
    let is_known = key(by, roots).is_some_and(|is| key(known, roots) == Some(is));
    let are_in = known.is_in(roots) && by.is_in(his) && key(by, his).is_some();
    is_known && are_in && (is_at(known, roots) || is_at(by, his))
}

impl Pools {
    /// A user's server begins with what is in its memory, if anything is.
    pub(super) fn begins(&mut self, at: usize) {
        self.drawn += 1;
        let (drawn, dir, wrong) = (self.drawn, self.dir.clone(), self.wrong);
        let began = self.on(at, |machine| {
            let of = machine.user.as_ref()?;
            let options = of_no_pool(Part::Invited(Box::new(of.invitation.clone())));
            let sim = machine.sim.get_or_insert_with(|| {
                let sim = Sim::sharing(drawn * 1000, &dir);
                arm(&sim, wrong, at);
                sim
            });
            sim.with(|server| part::take(&mut server.lock(), &options))
        });
        if let Some(began) = began {
            began.expect("it is that member");
            self.machines[at].user.iter_mut().for_each(|of| of.serves = true);
        }
    }

    /// A server of this user is let in at the word of root's on that machine. Where it will be.
    fn has_user(&mut self, root: usize, user: u32, of: u8) -> usize {
        for _ in 0..200 {
            if let Some(Ok(invitation)) = self.invites(root, user, of) {
                let user = Some(Of { invitation, serves: false });
                self.machines.push(Machine { user, ..Machine::new(None) });
                return self.machines.len() - 1;
            }
            self.round();
        }
        panic!("{root}: never");
    }

    /// Whether it follows this control: it knows what that says, and has a session with it.
    fn follows(&mut self, at: usize, control: usize) -> bool {
        let Some((me, of, roster)) = self.known(control) else { return false };
        let Some((his, followed, known)) = self.known(at) else { return false };
        let connected = |state: &mut crate::core::state::State| {
            state.members.as_ref().is_some_and(|members| members.is_connected(me))
        };
        let is_at = roster.seat(his).is_some_and(|seat| !seat.addresses.is_empty());
        let is_same = known.version == roster.version && known.seats == roster.seats;
        let is_control = me == of && followed == me;
        is_control && is_same && is_at && known.is_in(his) && self.of(at, connected) == Some(true)
    }

    /// The control's machine is lost, and this one takes over.
    fn takes_over(&mut self, lost: usize, by: usize) {
        let (member, ..) = self.known(lost).expect("it lives");
        self.is_lost(lost);
        self.until("another one takes over", |pools| {
            pools.fences(by, member);
            pools.known(by).is_some_and(|(me, control, _)| control == me)
        });
    }

    /// The control leaves. Who is it then.
    fn hands_over(&mut self, from: usize) -> usize {
        self.until("it hands over", |pools| {
            let _ = pools.stops(from);
            !pools.machines[from].is_on
        });
        self.until("another one is", |pools| {
            let all = pools.serving();
            all.into_iter().any(|at| pools.is_control(at))
        });
        let all = self.serving();
        all.into_iter().find(|at| self.is_control(*at)).expect("one is")
    }

    fn is_control(&mut self, at: usize) -> bool {
        self.known(at).is_some_and(|(me, control, _)| me == control)
    }
}

/// Alice's server on the second machine, and bob's on the third, are there.
fn house() -> (Pools, [usize; 2]) {
    let mut pools = pool();
    let users = [(1, ALICE, 1), (2, BOB, 2)].map(|(root, user, of)| pools.has_user(root, user, of));
    pools.are_on(&users);
    pools.until("they come", |pools| users.iter().all(|at| pools.follows(*at, 0)));
    (pools, users)
}

#[test]
fn a_users_server_follows_who_takes_over() {
    let (mut pools, users) = house();
    pools.takes_over(0, 2);
    pools.until("they follow", |pools| users.iter().all(|at| pools.follows(*at, 2)));
}

#[test]
fn a_users_server_follows_who_is_handed_it() {
    let (mut pools, users) = house();
    let control = pools.hands_over(0);
    pools.until("they follow", |pools| users.iter().all(|at| pools.follows(*at, control)));
}

#[test]
fn one_that_begins_again_finds_whom_it_has_never_heard_of() {
    for hands_over in [false, true] {
        let (mut pools, [hers, his]) = house();
        // Its machine is down, and so is nobody else's.
        pools.dies(his);
        pools.machines[his].is_on = false;
        pools.are_on(&[3]);
        pools.until("one more comes", |pools| pools.has_come_to_be(&[0, 1, 2, 3]));
        let before = if hands_over { pools.hands_over(0) } else { 0 };
        pools.takes_over(before, 3);
        pools.are_on(&[his]);
        pools.until("it follows", |pools| pools.follows(his, 3));
        // Hers has gone with its machine, if that was the one.
        assert_eq!(pools.follows(hers, 3), before != 1);
    }
}

#[test]
fn one_that_begins_when_who_invited_it_is_gone_finds_the_next() {
    for takes_over in [true, false] {
        let mut pools = pool();
        let his = pools.has_user(2, ALICE, 1);
        let control = match takes_over {
            true => {
                pools.takes_over(0, 1);
                1
            }
            false => pools.hands_over(0),
        };
        pools.are_on(&[his]);
        pools.until("it follows", |pools| pools.follows(his, control));
    }
}

#[test]
fn so_it_is_where_it_is_killed_as_it_writes_anything() {
    let first = (1..60).find(|moment| {
        let (mut pools, users) = house();
        pools.goes_wrong(users[0], Step::Record(*moment));
        pools.takes_over(0, 2);
        pools.until("they follow", |pools| users.iter().all(|at| pools.follows(*at, 2)));
        !pools.went_wrong()
    });
    assert!(first.is_some_and(|first| first > 1), "{first:?}");
}

#[test]
fn so_it_is_where_it_or_who_tells_it_is_killed_as_it_begins() {
    for of_root in [false, true] {
        let first = (1..60).find(|moment| {
            let mut pools = pool();
            let his = pools.has_user(1, ALICE, 1);
            pools.takes_over(0, 2);
            if of_root {
                pools.goes_wrong(1, Step::Record(*moment));
            } else {
                // Its first server begins with no memory at all.
                pools.wrong = Some((his, Step::Record(*moment)));
            }
            pools.are_on(&[his]);
            pools.until("it follows", |pools| pools.follows(his, 2));
            !pools.went_wrong()
        });
        assert!(first.is_some_and(|first| first > 2), "{of_root}: {first:?}");
    }
}

#[test]
fn so_it_is_whatever_of_that_is_lost() {
    for at in 1..12 {
        let mut pools = pool();
        let his = pools.has_user(1, ALICE, 1);
        pools.takes_over(0, 2);
        pools.loses = Some(at);
        pools.are_on(&[his]);
        pools.until("it follows", |pools| pools.follows(his, 2));
    }
}

#[test]
fn a_users_server_is_led_by_no_users_server_nor_to_one() {
    let (mut pools, [hers, his]) = house();
    let [root, alice, bob] = [1, hers, his].map(|at| pools.known(at).expect("it lives").0);
    let rule = pools.of(0, |state| ruling::said(state)).flatten().expect("the control");
    let believes = |pools: &mut Pools, by, control, newer| {
        let mut rule = rule.clone();
        rule.control = Some(control);
        rule.roster.version += newer;
        pools.of(hers, |state| following::is_taken_over(state, by, &rule)).expect("it lives")
    };
    assert!(believes(&mut pools, root, root, 1));
    assert!(!believes(&mut pools, root, root, 0), "it knows that already");
    for control in [root, alice, bob] {
        assert!(!believes(&mut pools, bob, control, 1) && !believes(&mut pools, alice, control, 1));
    }
    for control in [alice, bob] {
        assert!(!believes(&mut pools, root, control, 1), "{control}");
    }
    // Nor does it say that it is, or that anybody is.
    let said = terral_format::wire::roster::Control::Roster(Box::new(rule.clone()));
    for at in [0, 1, hers] {
        let heard =
            pools.of(at, |state| crate::sharing::users::says(state, bob, said.clone()).map(drop));
        assert!(heard.expect("it lives").is_err(), "{at}");
    }
}

#[test]
fn a_takeover_removes_no_users_server_of_who_is_there() {
    let (mut pools, users) = house();
    pools.takes_over(0, 2);
    pools.until("they follow", |pools| users.iter().all(|at| pools.follows(*at, 2)));
    let (.., roster) = pools.known(2).expect("it lives");
    for at in users {
        let (me, ..) = pools.known(at).expect("it lives");
        assert!(roster.is_in(me), "{at}");
    }
    let alive = pools.of(users[0], |state| carrying::resume(state).is_ok());
    assert_eq!(alive, Some(true));
}
