//! Programs of root's that act as others, in directories of other machines: whose something is, is
//! known where it counts, though nobody has looked at it before.

use terral_format::ErrorKind;
use terral_format::wire::message::{Change, RenameHow, Request, Target};

use super::Peers;

#[test]
fn in_anothers_sticky_directory_one_removes_ones_own_though_nobody_has_looked_at_it() {
    const OWNER: u32 = 1000;
    let mut peers = Peers::new(5, 3);
    let (mode, target) = (Some(0o1777), Target::Path(b"all"));
    peers.make_directory(0, b"all").expect("made");
    let change = Change { mode, ..Change::default() };
    peers.ask(0, Request::Change { target, change }).expect("root may");
    for at in [1, 2] {
        let client = peers.clients[at];
        peers.sims[at].become_user(client, OWNER);
    }
    // It is in use where it is, so that is where it is done.
    peers.create(0, b"all/root").expect("made");
    peers.create(1, b"all/own").expect("made");
    peers.ask(1, Request::Unlink(b"all/own")).expect("his own");
    let refused = peers.ask(1, Request::Unlink(b"all/root")).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::Unauthorized), "root's");
    // The directory comes here, and what he made elsewhere is not known here.
    peers.create(2, b"all/far").expect("made");
    let how = RenameHow::Replace;
    peers.ask(1, Request::Rename { from: b"all/far", to: b"all/moved", how }).expect("his own");
}

#[test]
fn one_moves_ones_own_directory_of_another_machine_though_nobody_has_looked_at_it() {
    let mut peers = Peers::new(6, 2);
    peers.make_directory(0, b"all").expect("made");
    let (mode, target) = (Some(0o777), Target::Path(b"all"));
    let change = Change { mode, ..Change::default() };
    peers.ask(0, Request::Change { target, change }).expect("root may");
    for (at, owner) in [(0, 1000), (1, 1000)] {
        let client = peers.clients[at];
        peers.sims[at].become_user(client, owner);
    }
    for path in [&b"all/d"[..], b"all/e", b"all/e/in"] {
        peers.make_directory(1, path).expect("made");
    }
    let how = RenameHow::Replace;
    peers.ask(0, Request::Rename { from: b"all/d", to: b"all/e/d", how }).expect("his own");
    peers.ask(0, Request::Rename { from: b"all/e/in", to: b"all/in", how }).expect("his own");
    // Who does not own it may not: it is changed by that.
    let client = peers.clients[0];
    peers.sims[0].become_user(client, 1001);
    let refused = Request::Rename { from: b"all/e/d", to: b"all/d", how };
    assert_eq!(peers.ask(0, refused).map_err(|error| error.kind), Err(ErrorKind::Denied));
}
