//! Files that are replaced while another machine is about to open them, or to look at them.

use std::time::Duration;

use terral_format::frame;
use terral_format::ids::{Number, Thing};
use terral_format::wire::message::{OpenHow, RenameHow, Reply, Request};

use super::bytes::Open;
use super::{Handled, Peers, member};
use crate::shared::Shared;
use crate::sharing::leaving;
use crate::sim::client::{CREATE, READ};
use crate::sim::deferring::{Progress, Wish};

/// A file is opened on another machine, and replaced after so many steps of that; who does so there
/// then has all names of the directory. False: it was open by then.
fn replaced_while_it_is_opened(steps: u64, written: bool) -> bool {
    let mut peers = Peers::new(9, 2);
    let mut homes = Vec::new();
    for (path, kind) in [(b"a", 1), (b"b", 2)] {
        peers.create(1, path).expect("made");
        let home = peers.open(1, path, OpenHow { create: false, ..CREATE }).expect("opened");
        peers.write(home, Some(0), &[kind; 100]).expect("written");
        homes.push(home);
    }
    // What somebody writes is not shown, but asked for.
    let (begin, end) = homes.split_at(if written { 0 } else { homes.len() });
    begin.iter().for_each(|home| peers.close(*home).expect("closed"));
    let opener = peers.sims[0].connect();
    let request = Request::Open { path: b"a", how: READ };
    let taken = peers.sims[0].asking(opener, request).expect("encodes");
    let session = peers.sims[0].clients[opener].session;
    let mut opened = None;
    for step in 0..1000 {
        if step == steps {
            let (from, to, how) = (&b"b"[..], &b"a"[..], RenameHow::Replace);
            peers.ask(1, Request::Rename { from, to, how }).expect("renamed");
            peers.make_directory(0, b"d").expect("made");
        }
        if let Some(Handled::Answer(reply)) = peers.handle(0, session, &taken) {
            opened = Some(frame::decode(&reply).expect("an answer"));
            break;
        }
        peers.carry();
    }
    if peers.stat(1, b"b").is_ok() {
        return false;
    }
    let Some(Reply::Opened { description, nonce, file }) = opened else {
        panic!("after {steps} steps: {opened:?}");
    };
    let far = Open { at: 0, file, description, nonce };
    // Its home takes the name away, and has nothing open.
    peers.create(1, b"c").expect("made");
    let (from, to, how) = (&b"c"[..], &b"a"[..], RenameHow::Replace);
    peers.ask(1, Request::Rename { from, to, how }).expect("renamed");
    end.iter().for_each(|home| peers.close(*home).expect("closed"));
    peers.settle();
    peers.pass(Duration::from_secs(3));
    let read = peers.read(far, 0, 100).expect("it is open");
    assert!([1, 2].iter().any(|kind| read == [*kind; 100]), "after {steps} steps: {read:?}");
    peers.close(far).expect("closed");
    peers.make_directory(0, b"e").expect("made");
    peers.settle();
    peers.pass(Duration::from_secs(7));
    let places = |shared: &Shared| {
        let state = shared.lock();
        state.members.iter().flat_map(|members| members.foreign()).count()
    };
    let places = peers.sims[0].with(places);
    assert_eq!(places, Some(1), "after {steps} steps: only what has a name needs a place");
    true
}

#[test]
fn what_is_opened_elsewhere_stays_open_whatever_takes_its_name_meanwhile() {
    for written in [false, true] {
        let late = (0..100).find(|steps| !replaced_while_it_is_opened(*steps, written));
        assert!(late.is_some_and(|steps| steps > 3), "{late:?}: it takes some steps to open it");
    }
}

/// The process that had it open for others is no more.
#[test]
fn what_is_open_only_elsewhere_stays_when_it_is_replaced_after_its_homes_server_has_died() {
    let mut peers = Peers::new(12, 2);
    for (path, kind) in [(b"a", 1), (b"b", 2)] {
        peers.create(1, path).expect("made");
        let home = peers.open(1, path, OpenHow { create: false, ..CREATE }).expect("opened");
        peers.write(home, Some(0), &[kind; 100]).expect("written");
        peers.close(home).expect("closed");
    }
    let far = peers.open(0, b"a", READ).expect("opened");
    peers.sims[1].kill();
    peers.settle();
    let (from, to, how) = (&b"b"[..], &b"a"[..], RenameHow::Replace);
    peers.ask(1, Request::Rename { from, to, how }).expect("renamed");
    peers.settle();
    peers.pass(Duration::from_secs(3));
    assert_eq!(peers.read(far, 0, 100).expect("it is open"), [1; 100]);
    peers.close(far).expect("closed");
}

/// Who has renamed has been told so, before the server has heard of it.
#[test]
fn a_file_that_goes_as_others_want_to_look_at_it_is_given_back_as_gone() {
    let mut peers = Peers::new(10, 2);
    for path in [b"a", b"b"] {
        peers.create(0, path).expect("made");
    }
    let counted = peers.stat(0, b"a").expect("it is there").ino.0;
    let (client, sim) = (peers.clients[0], &mut peers.sims[0]);
    sim.fetch(client).expect("there is room for it");
    let rename = Wish::Rename(b"b".into(), b"a".into());
    let mut begun = sim.begin(client, rename).expect("it may");
    while !matches!(sim.go_on(&mut begun), Progress::Happened) {}
    let file = Thing::File(Number::new(member(0), counted).expect("50 bits"));
    let left = sim.with(|server| leaving::leave(&mut server.lock(), vec![file]));
    assert_eq!(left, Some(Ok(())));
}
