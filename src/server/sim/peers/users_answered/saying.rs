//! What members say to the control of users' servers, and of whose it is believed.

use terral_format::wire::answering::Newcomer;
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Control, Key, Roster};
use terral_format::{Error, ErrorKind};

use super::super::users::{ALICE, BOB, person};
use super::super::{Peers, member};
use super::{house, of, roster, standings};
use crate::members::newcomers;
use crate::sharing::{letting_in, users};

/// What a member says to the control of users' servers.
fn says(peers: &mut Peers, from: usize, said: Control) -> Option<ErrorKind> {
    let heard = of(peers, |state| letting_in::heard(state, member(from), said));
    heard.err().map(|error| error.kind)
}

fn in_groups(groups: &[u32]) -> Person {
    Person { groups: groups.to_vec(), ..person(ALICE) }
}

#[test]
fn a_member_answers_only_for_its_own() {
    let mut peers = house();
    let malformed = Some(ErrorKind::Malformed);
    let (before, _) = standings(&mut peers);
    for (from, gone) in [(1, 4), (1, 0), (1, 1), (0, 2), (1, 77)] {
        let said = Control::Gone { member: member(gone), dead: true };
        assert_eq!(says(&mut peers, from, said), malformed, "{from} of {gone}");
    }
    assert_eq!(standings(&mut peers).0, before, "nothing has changed");
    // Of its own it says whose groups are which, and that it is gone, as often as it likes.
    for _ in 0..2 {
        assert_eq!(says(&mut peers, 1, Control::Speaks(in_groups(&[9]))), None);
    }
    let groups = |of: &Roster, at: usize| {
        let user = of.certificate(member(at)).and_then(|it| it.user.clone());
        user.map(|user| user.groups)
    };
    let now = roster(&mut peers);
    assert_eq!([2, 4].map(|at| groups(&now, at)), [Some(vec![9]), Some(vec![])]);
    assert_eq!(now.version, before + 1, "once");
    let gone = || Control::Gone { member: member(2), dead: true };
    assert_eq!([(); 2].map(|()| says(&mut peers, 1, gone())), [None; 2]);
    let now = roster(&mut peers);
    assert_eq!([2, 3, 4].map(|at| now.is_in(member(at))), [false, true, true]);
}

#[test]
fn a_users_server_answers_for_nobody() {
    let mut peers = house();
    let newcomer = Newcomer { user: person(BOB), login: "bob".into() };
    let why = of(&mut peers, |state| newcomers::let_in(state, member(2), &newcomer, Key([90; 32])));
    assert_eq!(why.map_err(|error| error.kind), Err(ErrorKind::Invalid));
    let whom = Box::new(newcomer);
    for said in [
        Control::Invites { key: Key([90; 32]), whom },
        Control::Invited { key: Key([90; 32]), answer: Err(Error::new(ErrorKind::Invalid, "")) },
        Control::Gone { member: member(3), dead: true },
        Control::Speaks(in_groups(&[0])),
    ] {
        let heard = of(&mut peers, |state| users::says(state, member(2), said.clone()));
        assert_eq!(heard.map_err(|error| error.kind), Err(ErrorKind::Malformed), "{said:?}");
    }
}
