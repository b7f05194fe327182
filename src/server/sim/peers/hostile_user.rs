//! What a user may have his server say that no server says: each is refused, or comes to nothing,
//! and takes no more memory than it may.

use terral_format::ids::{Ino, Member, NUMBERS, Number, Operation, ServerId, Thing};
use terral_format::moment::Moment;
use terral_format::wire::attributes::{Attributes, Kind};
use terral_format::wire::body::Body;
use terral_format::wire::far::{Act, Id, Question, What};
use terral_format::wire::locks::{FarOwner, Locker, Waiting};
use terral_format::wire::message::{OpenHow, Request};
use terral_format::wire::moving::{Moving, Of};
use terral_format::wire::peers::{Frame, Message, Work};
use terral_format::wire::person::Person;
use terral_format::wire::roster::Control;
use terral_format::wire::things::{By, Change as Changed, Child, Directory, Look, Made, Outcome};
use terral_format::{Error, ErrorKind, Result};

use super::users::{BOB, house, person, put, roots, set_mode};
use super::{Peers, member};
use crate::core::world::Tick;
use crate::far;
use crate::far::desk::{Admitted, Desk, Heard, Payload};
use crate::naming::elsewhere;
use crate::sharing::{bodies, serving, user_wants, users};
use crate::sim::client::{CREATE, READ};

mod together;

/// What bob's server sends.
pub(super) fn frame(messages: Vec<Message>) -> Frame {
    let (taken, before, epoch) = (0, 0, terral_format::ids::Epoch(1));
    let (sent, renewed, renew) = (Moment(0), None, false);
    let (from, server) = (member(2), ServerId(1));
    Frame { from, server, epoch, taken, before, messages, sent, renewed, renew }
}

pub(super) fn want(number: u64, by: Member, thing: Thing) -> Message {
    let person = Person::default();
    let look = By { person, what: Look::Attributes }.body().expect("fits");
    Message::Want { operation: Operation { by, number }, thing, work: Work::Look(look) }
}

fn admitted(peers: &mut Peers, message: Message) -> Result<Message> {
    let mut frame = roots(peers, |state| users::admit(state, frame(vec![message])))?;
    Ok(frame.messages.remove(0))
}

/// A question, and three bytes to be written.
fn question(by: Member, file: Number, act: Act) -> Payload {
    questions(by, file, act, 1)
}

/// One of several.
fn questions(by: Member, file: Number, act: Act, sequence: u64) -> Payload {
    let (pid, started_ticks, session) = (1, 1, Id::NOBODY);
    let id = Id { by, session, pid, started_ticks, index: 0, sequence, step: 0 };
    let question = Question { id, life: 1, number: 1, past: 0, what: What::File(file, act) };
    let bytes = if act.has_bytes() { b"new".to_vec() } else { Vec::new() };
    Payload::new(question.write(bytes).expect("fits").whole().into(), 0)
}

#[test]
fn two_directories_are_not_each_in_the_other_whatever_their_owner_says() {
    let mut peers = house(11);
    let [x, y] = [7, 8].map(|counted| Number::new(member(2), counted).expect("few"));
    let said = |of: Number, is: Number| {
        let child = Child { name: b"in".to_vec(), number: is, kind: Kind::Directory, text: vec![] };
        (Thing::Directory(of), [(child.name.clone(), child)].into())
    };
    roots(&mut peers, |state| {
        for (thing, names) in [said(x, y), said(y, x), said(x, x), said(y, y)] {
            let (name, number, text) = (Vec::new(), thing.number(), Vec::new());
            let child = Child { name, number, kind: Kind::Directory, text };
            let parent = elsewhere::place(state, &child).expect("there is room");
            bodies::has_names(state, parent, names).expect("there is room");
            // All that leads to the root, or to nothing, ends.
            let mut at = Some(parent);
            let steps = std::iter::from_fn(|| {
                at = at.and_then(|ino| state.names.above(ino));
                at
            });
            assert!(steps.take(100).count() < 100, "a circle");
        }
    });
}

#[test]
fn he_asks_in_nobody_elses_name_and_for_nothing_that_he_makes_up() {
    let mut peers = house(12);
    let known = Thing::Directory(peers.stat(0, b"all").expect("there").number);
    for (number, by) in [(NUMBERS, member(2)), (u64::MAX, member(2)), (1, member(1))] {
        let error = admitted(&mut peers, want(number, by, known)).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Malformed);
    }
    let is = |message: Message| match message {
        Message::Want { thing, .. } => thing,
        other => panic!("{other:?}"),
    };
    assert_eq!(admitted(&mut peers, want(1, member(2), known)).map(is), Ok(known));
    // However many there are, it is always the same one that is not there.
    let made_up =
        (0..100).map(|it| Thing::File(Number::new(member(0), 1 << 40 | it).expect("one")));
    let all: std::collections::BTreeSet<_> = made_up
        .map(|thing| admitted(&mut peers, want(1, member(2), thing)).map(is).expect("heard"))
        .collect();
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn he_moves_no_directory_and_hands_none_over() {
    let mut peers = house(13);
    let way = vec![(Number::new(member(0), 9).expect("few"), b"alice".to_vec())];
    let (id, from, to) = (1, b"alice".to_vec(), b"bob/alice".to_vec());
    let (brings, done, back) = (true, false, None);
    let moving = Moving { id, from, to, way, brings, done, back };
    roots(&mut peers, |state| {
        for from in [member(2), member(1)] {
            assert_eq!(users::moves(state, from, Of::Moves(Some(moving.clone()))), None);
        }
        assert_eq!(users::moves(state, member(2), Of::Rests(1)), Some(Of::Rests(1)));
        let numbers =
            (1 << 40..(1 << 40) + 1000).map(|it| Number::new(member(2), it).expect("one"));
        match users::says(state, member(2), Control::Hands(numbers.collect())) {
            Ok(Control::Hands(left)) => assert!(left.is_empty()),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn nothing_is_made_for_him_which_root_would_have_to_bring() {
    let mut peers = house(14);
    let all = Thing::Directory(peers.stat(0, b"all").expect("there").number);
    let mut makes = |kind, text: Vec<u8>| {
        let what = Changed::Make(b"n".to_vec(), Made { kind, mode: 0o644, text });
        let body = By { person: person(BOB), what }.body().expect("fits");
        roots(&mut peers, |state| {
            user_wants::change_of(state, (false, Some(&person(BOB))), all, &body).map(drop)
        })
    };
    for (kind, text) in [
        (Kind::Symlink, b"there".to_vec()),
        (Kind::Directory, Vec::new()),
        (Kind::File, Vec::new()),
        (Kind::Symlink, Vec::new()),
        (Kind::Symlink, vec![b'a'; 1 << 19]),
        (Kind::Directory, b"text".to_vec()),
        (Kind::Fifo, vec![b'a'; 1 << 19]),
    ] {
        assert!(makes(kind, text).is_err(), "{kind:?}");
    }
}

#[test]
fn what_he_writes_takes_set_id_bits_off_though_he_says_that_he_is_root() {
    let mut peers = house(15);
    put(&mut peers, 0, b"all/tool", b"root's");
    peers.ask(0, set_mode(b"all/tool", 0o4777)).expect("root may");
    let file = peers.stat(0, b"all/tool").expect("there").number;
    let token = 0;
    for (act, stripping) in [
        (
            Act::Write { at: Some(0), strips: false, token },
            Act::Write { at: Some(0), strips: true, token },
        ),
        (
            Act::Truncate { size: 0, strips: false, token },
            Act::Truncate { size: 0, strips: true, token },
        ),
        (Act::Merge { strips: false }, Act::Merge { strips: true }),
    ] {
        for (at, is) in [(2, stripping), (1, stripping), (0, act)] {
            let frame = question(member(at), file, act);
            let admitted = roots(&mut peers, |state| far::users::admit(state, member(at), frame));
            let admitted = admitted.expect("a question");
            assert!(admitted.said.is_none() && admitted.user.is_some() == (at > 0));
            let mut desk = Desk::new(1);
            // Of one that is trusted it is as he says.
            let heard = desk.hear((member(0), member(at)), admitted, Tick(0)).expect("a question");
            assert!(matches!(heard, Heard::Job(job) if job.act == is), "{at}: {act:?}");
        }
    }
}

#[test]
fn of_others_files_he_has_no_memory_for_himself() {
    let mut peers = house(20);
    put(&mut peers, 0, b"all/roots", b"root's");
    peers.ask(0, set_mode(b"all/roots", 0o666)).expect("root may");
    let (by, first, count, index, strips) = (member(2), 0, 1, 0, true);
    for act in [
        Act::Borrow { by, first, count, strips },
        Act::Offer { by, index, strips },
        Act::Accept { by, index, stamp: 1 },
        Act::Grow { by, to: 1 << 20 },
        Act::Return { by, first, count, leaves: false },
        Act::Wrote { at_ns: 1 },
    ] {
        let file = peers.stat(0, b"all/roots").expect("there").number;
        let frame = question(by, file, act);
        let admitted = roots(&mut peers, |state| far::users::admit(state, by, frame));
        assert!(admitted.expect("a question").said.is_some(), "{act:?}");
    }
    // What he writes there counts as long as he may, and no longer.
    let how = OpenHow { create: false, ..CREATE };
    let open = peers.open(2, b"all/roots", how).expect("he may");
    peers.write(open, Some(0), b"bob was").expect("he may");
    peers.ask(0, set_mode(b"all/roots", 0o644)).expect("root may");
    assert!(peers.write(open, Some(0), b"bob is!").is_err());
    let read = peers.open(0, b"all/roots", READ).expect("root may");
    assert_eq!(peers.read(read, 0, 64), Ok(b"bob was".to_vec()));
    peers.close(read).expect("closed");
    peers.close(open).expect("closed");
}

#[test]
fn a_file_without_a_name_he_has_only_if_he_had_it_open() {
    let mut peers = house(16);
    peers.make_directory(0, b"shut").expect("made");
    peers.ask(0, set_mode(b"shut", 0o700)).expect("root may");
    put(&mut peers, 0, b"shut/hidden", b"secret");
    put(&mut peers, 0, b"all/seen", b"for all");
    for path in [&b"shut/hidden"[..], b"all/seen"] {
        peers.ask(0, set_mode(path, 0o644)).expect("root may");
    }
    let read = |peers: &mut Peers, file: Number| {
        let payload =
            question(member(2), file, Act::Read { at: 0, bytes: 16, kept: false, direct: false });
        let admitted = roots(peers, |state| far::users::admit(state, member(2), payload));
        let admitted = admitted.expect("a question");
        (admitted.said.is_some(), admitted.if_open)
    };
    let number = |peers: &mut Peers, path: &[u8]| peers.stat(0, path).expect("there").number;
    let hidden = number(&mut peers, b"shut/hidden");
    let seen = number(&mut peers, b"all/seen");
    assert_eq!([read(&mut peers, hidden), read(&mut peers, seen)], [(true, false), (false, false)]);
    let kept: Vec<_> = [&b"shut/hidden"[..], b"all/seen"]
        .map(|path| peers.open(0, path, READ).expect("root may"))
        .into();
    for path in [&b"shut/hidden"[..], b"all/seen"] {
        peers.ask(0, Request::Unlink(path)).expect("root may");
    }
    for file in [hidden, seen] {
        assert!(read(&mut peers, file).1, "only if it was open");
        // Nor does he look at it, or give it a name.
        let looked = roots(&mut peers, |state| {
            user_wants::may_look(state, &person(BOB), Thing::File(file), &mut Look::Attributes)
        });
        assert!(looked.is_err(), "{looked:?}");
    }
    kept.into_iter().for_each(|open| peers.close(open).expect("closed"));
}

#[test]
fn of_others_he_is_told_no_paths_and_of_links_nothing_that_he_may_not_read() {
    let mut peers = house(17);
    peers.make_directory(0, b"shut").expect("made");
    peers.ask(0, Request::MakeLink { path: b"shut/link", target: b"secret" }).expect("made");
    peers.ask(0, set_mode(b"shut", 0o704)).expect("root may");
    let shut = Thing::Directory(peers.stat(0, b"shut").expect("there").number);
    let look = By { person: person(BOB), what: Look::Names(Vec::new()) }.body().expect("fits");
    let told = roots(&mut peers, |state| serving::look(state, Some(&person(BOB)), shut, &look));
    match told.expect("he may list it") {
        Outcome::Names(names, _) => {
            assert_eq!(names.len(), 1);
            assert!(names.iter().all(|child| child.text.is_empty()), "{names:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_he_says_of_himself_does_nothing_to_a_terminal() {
    let mut peers = house(18);
    let mut status = roots(&mut peers, |state| {
        crate::sharing::everywhere::here(state, false).expect("it is one of several")
    });
    status.host = "bob\u{1b}[2J".into();
    status.drain.failures = vec!["\u{7}\r/x".into(); 100];
    let body = Outcome::Server(Box::new(status)).body().expect("fits");
    let operation = Operation { by: member(0), number: 1 };
    let done = admitted(&mut peers, Message::Done { operation, answer: Ok(body) });
    let Ok(Message::Done { answer: Ok(body), .. }) = done else { panic!("heard") };
    match Outcome::of(&body) {
        Ok(Outcome::Server(status)) => {
            assert_eq!(status.host, "bob[2J");
            assert_eq!(status.drain.failures, vec!["/x".to_owned(); 16]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn he_wants_no_parts_of_files_and_nothing_of_files_that_there_are_not() {
    let mut peers = house(21);
    put(&mut peers, 0, b"all/file", b"root's");
    let file = peers.stat(0, b"all/file").expect("there").number;
    let none = Number::new(member(1), 0).expect("few");
    for thing in [Thing::Chunk(file, 0), Thing::Chunk(none, 7), Thing::Directory(none)] {
        let error = admitted(&mut peers, want(1, member(2), thing)).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Malformed, "{thing:?}");
    }
    let made_up = Number::new(member(0), 1 << 40).expect("few");
    let (by, first, count) = (member(2), 0, u32::MAX);
    for act in [
        Act::Return { by, first, count, leaves: false },
        Act::Open,
        Act::Offer { by, index: u64::MAX, strips: true },
    ] {
        let frame = question(by, made_up, act);
        let admitted = roots(&mut peers, |state| far::users::admit(state, by, frame));
        let said = admitted.expect("a question").said;
        assert!(matches!(said, Some(Err(error)) if error.kind == ErrorKind::NotFound), "{act:?}");
    }
}

#[test]
fn he_says_which_programs_of_his_own_wait_and_why_he_fails_and_keeps_nobody_waiting_by_it() {
    let mut peers = house(22);
    let wait = |at: usize| {
        let waiter = FarOwner { by: member(at), locker: Locker::Flock, number: 1 };
        Waiting { waiter, since_ns: 1, holders: vec![waiter] }
    };
    let mut heard = |outcome: Outcome| {
        let answer = Ok(outcome.body().expect("fits"));
        let operation = Operation { by: member(0), number: 1 };
        match admitted(&mut peers, Message::Done { operation, answer }) {
            Ok(Message::Done { answer: Ok(body), .. }) => Outcome::of(&body).expect("one"),
            other => panic!("{other:?}"),
        }
    };
    match heard(Outcome::Waits(vec![wait(1), wait(2), wait(0)])) {
        Outcome::Waits(waits) => assert_eq!(waits, [wait(2)]),
        other => panic!("{other:?}"),
    }
    let error = Error { errno: 9999, ..Error::new(ErrorKind::NoSpace, "full\u{1b}[2J") };
    match heard(Outcome::Failed(error)) {
        Outcome::Failed(error) => {
            assert_eq!((error.kind, error.errno), (ErrorKind::Backing, 0));
            assert_eq!(error.context, "full[2J");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn he_has_so_much_under_way_and_no_more() {
    let mut peers = house(23);
    put(&mut peers, 0, b"all/file", b"root's");
    let file = peers.stat(0, b"all/file").expect("there").number;
    let act = Act::Read { at: 0, bytes: 1, kept: false, direct: false };
    let mut desk = Desk::new(1);
    let mut hears = |sequence: u64, is_users: bool| {
        let frame = questions(member(2), file, act, sequence);
        let admitted = Admitted { user: is_users.then_some(BOB), ..Admitted::whole(frame) };
        desk.hear((member(0), member(2)), admitted, Tick(0)).expect("a question")
    };
    let asked = (0..20_000).take_while(|it| matches!(hears(*it, true), Heard::Job(_))).count();
    assert_eq!(asked, 16_384);
    assert!(matches!(hears(30_000, false), Heard::Job(_)), "one that is trusted asks on");
}

#[test]
fn he_has_nothing_of_others_nor_anybody_anything_of_his() {
    let mut peers = house(47);
    let directory = |path: &[u8], peers: &mut Peers| {
        Thing::Directory(peers.stat(0, path).expect("there").number)
    };
    let all = [&b""[..], b"all", b"bob"].map(|path| directory(path, &mut peers));
    for thing in all {
        let loan = terral_format::ids::Loan { by: member(0), number: 1 };
        let operation = Operation { by: member(0), number: 1 };
        let answer = Outcome::Names(Vec::new(), true).body().expect("fits");
        for message in [
            Message::Return { thing, loan, body: Body::default(), in_use: false },
            Message::Lend { operation, thing, loan, body: None },
            Message::Looked { operation, thing, answer },
        ] {
            let heard = admitted(&mut peers, message).map(drop);
            assert_eq!(heard.map_err(|error| error.kind), Err(ErrorKind::Malformed), "{thing:?}");
        }
        // What a member had lent that is removed goes to its heir: that is nothing to anybody.
        let loan = terral_format::ids::Loan { by: member(7), number: 1 };
        let back = Message::Return { thing, loan, body: Body::default(), in_use: false };
        let heard = admitted(&mut peers, back).expect("it may be honest");
        assert_eq!(heard, Message::Dropped { thing, loan });
        // Nor does he show what is not his.
        let show = Message::Show { operation, thing, loan, body: Some(Body::default()) };
        assert_eq!(admitted(&mut peers, show).is_ok(), thing == all[2], "{thing:?}");
        // He is lent nothing, whatever he asks for.
        let lent = roots(&mut peers, |state| {
            let members = state.members.as_ref().expect("one");
            [1, 2].map(|to| members.may_lend(thing, member(to), state))
        });
        assert_eq!(lent, [false; 2], "{thing:?}");
    }
}

#[test]
fn what_his_directories_have_was_born_at_his_server() {
    let mut peers = house(49);
    put(&mut peers, 0, b"all/roots", b"root's");
    let [roots_file, bob] =
        [&b"all/roots"[..], b"bob"].map(|path| peers.stat(0, path).expect("there").number);
    let child = |name: &[u8], number, kind| {
        let (name, text) = (name.to_vec(), Vec::new());
        Child { name, number, kind, text }
    };
    let his = |counted| Number::new(member(2), counted).expect("few");
    let attributes = Attributes { ino: Ino(0), mode: 0o777, ..*peers.stat(0, b"").expect("there") };
    let names = vec![
        child(b"a", roots_file, Kind::File),
        child(b"b", his(77), Kind::Directory),
        child(b"c", his(77), Kind::Directory),
        child(b"d", Number::new(member(1), 5).expect("few"), Kind::File),
        child(b"e", his(0), Kind::File),
        child(b"f/..", his(78), Kind::File),
        child(b"g", his(79), Kind::File),
        // It is a directory, as is known.
        child(b"h", bob, Kind::File),
    ];
    let body = Directory { attributes, names, whole: true }.body().expect("fits");
    let loan = terral_format::ids::Loan { by: member(2), number: 1 };
    let (operation, thing) = (Operation { by: member(0), number: 1 }, Thing::Directory(bob));
    let show = Message::Show { operation, thing, loan, body: Some(body) };
    let Ok(Message::Show { body: Some(body), .. }) = admitted(&mut peers, show) else {
        panic!("heard");
    };
    let heard = Directory::of(&body).expect("one");
    let names: Vec<&[u8]> = heard.names.iter().map(|child| &*child.name).collect();
    assert_eq!(names, [&b"b"[..], b"g"]);
    assert_eq!((heard.attributes.uid, heard.attributes.gid), (BOB, BOB));
}
