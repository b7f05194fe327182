//! Pools with servers that are their authority and nothing else: one of them is the control.

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::Member;
use terral_format::wire::pool::{Lost, write};
use terral_format::wire::roster::{Certificate, Key, Roster};
use terral_format::{ErrorKind, Result};
use terral_registry::registry::{Change, Registry};

use super::{Three, member};
use crate::members::{control, following};
use crate::sharing::ruling;

/// Three members that each have a key, and these of the authority.
fn known(authorities: Vec<Member>) -> Roster {
    let of = |at: usize| Certificate { member: member(at), key: Key([at as u8; 32]), user: None };
    let certificates = (0..3).map(of).collect();
    let roster = super::super::fencing::roster(3, 4, &Default::default());
    Roster { authorities, certificates, ..roster }
}

impl Three {
    /// Whether one believes another that it has taken over, by its word alone.
    fn believes(&mut self, at: usize, by: usize) -> bool {
        let said = self.peers.sims[by].with(|server| ruling::said(&server.lock())).flatten();
        let rule = said.expect("a member");
        let believes = self.peers.sims[at]
            .with(|server| following::is_taken_over(&server.lock(), member(by), &rule));
        believes.expect("it lives")
    }

    /// These are of the authority from now on, and all know each other.
    fn with_authorities(seed: u64, authorities: &[usize]) -> Self {
        let mut three = Three::new(seed);
        let authorities = authorities.iter().copied().map(member).collect();
        let roster = known(authorities);
        (0..3).for_each(|at| three.peers.hears_roster(at, &roster));
        three.peers.settle();
        for at in 0..3 {
            three.peers.sims[at].with(|server| {
                let mut state = server.lock();
                let now = state.world.now();
                for members in state.members.iter_mut() {
                    members.others().into_iter().for_each(|it| members.connects(it, true, now));
                }
            });
        }
        // The registry has it.
        (0..2).for_each(|_| assert_eq!(three.looks(0), Some(true)));
        three
    }

    fn heir_of(&mut self, at: usize, gone: usize) -> Option<usize> {
        match self.roster(at).seat(member(gone))?.standing {
            Standing::Removed { heir, .. } => Some(heir.number().into()),
            Standing::In(_) => None,
        }
    }

    fn asks_to_succeed(&mut self, at: usize, out: usize) -> Result<()> {
        let asked = self.wants_out(at, out);
        self.said(at, &asked).unwrap_or_else(|| {
            self.turns(at);
            self.said(at, &asked).expect("is answered")
        })
    }
}

#[test]
fn the_control_hands_over_to_an_authority_and_goes_on_as_any_other() {
    let mut three = Three::with_authorities(1, &[2]);
    three.peers.create(1, b"before").expect("made");
    for at in [0, 0, 0, 2, 0, 2] {
        three.looks(at);
    }
    assert_eq!([0, 2].map(|at| three.control(at)), [member(2); 2]);
    three.tells(2);
    three.peers.control = 2;
    assert_eq!(three.control(1), member(2));
    assert_eq!(three.heir_of(1, 0), None, "it has not left");
    for at in [0, 1] {
        assert!(three.peers.stat(at, b"before").is_ok());
        three.peers.create(at, format!("of{at}").as_bytes()).expect("made");
    }
    // It decides nothing any more, and takes nothing over as long as an authority is there.
    let decided = three.peers.sims[0].with(|server| control::tell_all(&mut server.lock()));
    assert_eq!(decided.expect("it lives").expect_err("another one does").kind, ErrorKind::Invalid);
    assert_eq!([0, 2, 1].map(|at| three.looks(at)), [Some(true); 3]);
    assert_eq!(three.generation().0.control, member(2));
}

#[test]
fn only_an_authority_takes_over_as_long_as_one_is_in() {
    let mut three = Three::with_authorities(2, &[0, 2]);
    three.peers.create(1, b"one").expect("made");
    three.loses_control();
    three.looks(2);
    let lost = Lost { token: 7, member: member(0), verdict: Verdict::Dead };
    let put = Change::put(three.keys.lost(), write(&lost).expect("encodes"));
    three.registry.commit(&[], &[put]).expect("answers").expect("no guard");
    assert_eq!([0; 2].map(|_| three.looks(1)), [Some(true); 2]);
    assert_eq!(three.generation().0.control, member(0), "by itself it does not");
    let said = three.asks_to_succeed(1, 0).expect_err("another one is to");
    assert!(said.context.contains("member 2 is of this pool's authority"), "{said}");
    assert_eq!([0; 2].map(|_| three.looks(2)), [Some(true); 2]);
    assert_eq!(three.control(2), member(2));
    assert!(three.believes(1, 2));
    three.tells(2);
    assert_eq!(three.heir_of(1, 0), Some(1), "who keeps files decides what that has decided");
    assert!(three.peers.stat(1, b"one").is_ok());
    three.peers.create(1, b"two").expect("made");
}

#[test]
fn without_any_authority_left_a_person_has_another_server_take_over() {
    let mut three = Three::with_authorities(3, &[0]);
    three.loses_control();
    assert_eq!(three.asks_to_succeed(1, 0), Ok(()));
    assert_eq!(three.control(1), member(1));
    // The others go by the registry, and by nobody's word.
    assert!(!three.believes(2, 1));
    three.looks(2);
    assert_eq!(three.control(2), member(1));
}

#[test]
fn where_all_authorities_are_lost_at_once_another_server_takes_over() {
    let mut three = Three::with_authorities(4, &[0, 2]);
    three.peers.create(1, b"one").expect("made");
    three.peers.dies(2);
    three.loses_control();
    assert_eq!(three.asks_to_succeed(1, 0), Ok(()), "nobody says that the other one is there");
    assert_eq!(three.control(1), member(1));
    assert!(three.peers.stat(1, b"one").is_ok());
}

#[test]
fn who_takes_over_goes_by_the_authorities_that_the_registry_knows() {
    let mut three = Three::with_authorities(5, &[0]);
    // Another one has come, of which a storage server has not heard.
    let later = Roster { version: 9, ..known(vec![member(0), member(2)]) };
    [0, 2].into_iter().for_each(|at| three.peers.hears_roster(at, &later));
    three.looks(0);
    three.loses_control();
    three.looks(2);
    let said = three.asks_to_succeed(1, 0).expect_err("another one is to");
    assert!(said.context.contains("member 2 is of this pool's authority"), "{said}");
    assert_eq!(three.generation().0.control, member(0), "nothing was written");
    assert_eq!(three.asks_to_succeed(2, 0), Ok(()));
}
