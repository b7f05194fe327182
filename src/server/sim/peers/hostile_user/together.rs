//! What a user has under way at a server is counted for all his servers together: on many machines
//! he has no more than on one, and who is beside him has his own.

use terral_format::ids::{Operation, ServerId, Thing};
use terral_format::wire::far::Act;
use terral_format::wire::peers::{Frame, Message, Work};
use terral_format::wire::person::Person;
use terral_format::wire::things::{By, Look};

use super::super::users::{ALICE, BOB, house_for, put, roots};
use super::super::{Peers, member};
use super::{frame, questions};
use crate::core::world::Tick;
use crate::far::desk::{Admitted, Desk, Heard};
use crate::sharing::users;

/// Bob is on two machines, and alice on one.
const USERS: [Option<u32>; 4] = [None, Some(ALICE), Some(BOB), Some(BOB)];

/// How many of so many things that one of them wants are heard.
fn heard(peers: &mut Peers, from: u16, number: u64) -> usize {
    let all = Thing::Directory(peers.stat(0, b"all").expect("there").number);
    let look = By { person: Person::default(), what: Look::Attributes }.body().expect("fits");
    let from = member(from.into());
    let operation = Operation { by: from, number };
    let want = Message::Want { operation, thing: all, work: Work::Look(look) };
    let said = frame(vec![want; 1000]);
    let said = Frame { from, server: ServerId(u64::from(from.number())), ..said };
    let heard = roots(peers, |state| users::admit(state, said)).expect("no garbage");
    heard.messages.len()
}

#[test]
fn he_has_no_more_on_many_machines() {
    let mut peers = house_for(51, &USERS);
    let his = (0..20).map(|number| heard(&mut peers, 2 + number as u16 % 2, number));
    let his: Vec<usize> = his.collect();
    assert_eq!((his.iter().sum(), his[15], his[16]), (16_000_usize, 1000, 0), "{his:?}");
    assert_eq!(heard(&mut peers, 1, 30), 1000, "she has her own");
    // What is done does not count, on whichever it was.
    peers.pass(std::time::Duration::from_secs(1));
    assert_eq!((heard(&mut peers, 3, 31), heard(&mut peers, 2, 32)), (1000, 1000));
}

#[test]
fn nor_does_he_ask_more_of_files_there() {
    let mut peers = house_for(52, &USERS);
    put(&mut peers, 0, b"all/file", b"root's");
    let file = peers.stat(0, b"all/file").expect("there").number;
    let act = Act::Read { at: 0, bytes: 1, kept: false, direct: false };
    let mut desk = Desk::new(1);
    let mut is_heard = |from: u16, user: u32, sequence: u64| {
        let from = member(from.into());
        let question = questions(from, file, act, sequence);
        let admitted = Admitted { user: Some(user), ..Admitted::whole(question) };
        let heard = desk.hear((member(0), from), admitted, Tick(0)).expect("a question");
        matches!(heard, Heard::Job(_))
    };
    let asked = (0..20_000).take_while(|it| is_heard(2 + *it as u16 % 2, BOB, *it)).count();
    assert_eq!(asked, 16_384);
    assert!(!is_heard(2, BOB, 30_000) && !is_heard(3, BOB, 30_001));
    assert!(is_heard(1, ALICE, 30_002), "she has her own");
}
