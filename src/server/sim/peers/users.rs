//! Members that speak for one user alone: of the first, which is root's, and one each of two users.
//! One of these may say anything: it takes its user for root, and asks for all that there is.

use terral_format::disk::membership::Membership;
use terral_format::ids::Thing;
use terral_format::wire::message::{Change, OpenHow, RenameHow, Request, Target, XattrHow};
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Certificate, Key};
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::Access;
use terral_store::backing::NameSink;
use terral_store::backing::scripted::Scripted;

use super::{Peers, member};
use crate::core::state::State;
use crate::core::world::World;
use crate::sim::Sim;
use crate::sim::client::{CREATE, READ};
use crate::sim::world::Virtual;

pub(super) const ALICE: u32 = 1001;
pub(super) const BOB: u32 = 1002;
const WRITE: OpenHow = OpenHow { create: false, ..CREATE };

pub(super) fn person(user: u32) -> Person {
    Person { user, group: user, groups: Vec::new() }
}

/// A permanent store of root's, with a directory of each user, and one for all.
fn store(seed: u64) -> Scripted {
    let clock = Virtual::new(seed);
    let dir = Scripted::new(move || clock.wall_ns());
    for (path, owner, mode) in
        [(&b"alice"[..], ALICE, 0o700), (b"bob", BOB, 0o755), (b"all", 0, 0o1777)]
    {
        dir.make_directory(path, 0o700).expect("an empty store");
        gives(&dir, path, (owner, mode));
    }
    dir
}

/// Somebody who may all gives something away there.
pub(super) fn gives(dir: &Scripted, path: &[u8], (owner, mode): (u32, u32)) {
    let change = Change { uid: Some(owner), gid: Some(owner), mode: Some(mode), ..NONE };
    dir.change(path, change).expect("it is there");
}

/// Root's server, alice's and bob's. Each touches the store with its user's rights.
pub(super) fn house(seed: u64) -> Peers {
    let dir = store(seed);
    let of_users = [ALICE, BOB].map(|user| dir.clone().of_user(user));
    let handles = std::iter::once(dir.clone().of_roots()).chain(of_users).enumerate();
    let sims = handles.map(|(at, handle)| Sim::sharing(seed * 100 + at as u64, &handle));
    let mut peers = Peers::of(sims.collect(), Some(dir));
    let users = [None, Some(person(ALICE)), Some(person(BOB))];
    let of = |(at, user): (usize, Option<Person>)| Certificate {
        member: member(at),
        key: Key([0; 32]),
        user,
    };
    let certificates: Vec<_> = users.into_iter().enumerate().map(of).collect();
    for sim in &mut peers.sims {
        sim.with(|server| {
            let mut state = server.lock();
            state.record(Membership::Certificates(certificates.clone()));
            state.commit().expect("there is room");
        });
    }
    for (at, user) in [(1, ALICE), (2, BOB)] {
        let client = peers.clients[at];
        peers.sims[at].become_user(client, user);
    }
    peers
}

/// Root's server was to touch nothing in the store that is another's.
pub(super) fn touches_only_roots(peers: &Peers) {
    let touched = peers.dir.as_ref().expect("a store").touched();
    assert!(touched.is_empty(), "{:?}", touched[0]);
}

/// Something that root's server does.
pub(super) fn roots<T>(peers: &mut Peers, what: impl FnOnce(&mut State) -> T) -> T {
    peers.sims[0].with(|server| what(&mut server.lock())).expect("it lives")
}

const NONE: Change =
    Change { mode: None, uid: None, gid: None, accessed_ns: None, modified_ns: None };

/// What is said to who may not.
pub(super) fn is_denied<T>(outcome: Result<T>) -> bool {
    let kinds = [ErrorKind::Denied, ErrorKind::Unauthorized];
    outcome.is_err_and(|Error { kind, .. }| kinds.contains(&kind))
}

pub(super) fn rename<'p>(from: &'p [u8], to: &'p [u8]) -> Request<'p> {
    Request::Rename { from, to, how: RenameHow::Replace }
}

pub(super) fn set_mode(path: &[u8], mode: u32) -> Request<'_> {
    let change = Change { mode: Some(mode), ..NONE };
    Request::Change { target: Target::Path(path), change }
}

pub(super) fn put(peers: &mut Peers, at: usize, path: &[u8], bytes: &[u8]) {
    let open = peers.open(at, path, CREATE).expect("his");
    peers.write(open, Some(0), bytes).expect("written");
    peers.close(open).expect("closed");
}

pub(super) fn got(peers: &mut Peers, at: usize, path: &[u8]) -> Result<Vec<u8>> {
    let open = peers.open(at, path, READ)?;
    let read = peers.read(open, 0, 64);
    peers.close(open)?;
    read
}

/// Whether a server has a directory to change.
fn has(peers: &mut Peers, at: usize, path: &[u8]) -> bool {
    let number = peers.stat(0, path).expect("there").number;
    let has = peers.sims[at].with(|server| {
        let state = server.lock();
        let members = state.members.as_ref().expect("one");
        members.access(Thing::Directory(number), &state) == Access::Change
    });
    has.expect("it lives")
}

#[test]
fn a_users_server_has_his_own_directories_and_does_elsewhere_what_bits_let_him() {
    let mut peers = house(1);
    put(&mut peers, 1, b"alice/f", b"secret");
    peers.ask(1, rename(b"alice/f", b"alice/g")).expect("her own");
    peers.make_directory(1, b"alice/d").expect("her own");
    assert!(has(&mut peers, 1, b"alice"));
    assert_eq!(peers.stat(1, b"alice/d").expect("there").number.born(), member(1));
    put(&mut peers, 1, b"all/a", b"for all");
    assert!(!has(&mut peers, 1, b"all"), "it is nobody's");
    assert_eq!(peers.stat(0, b"all/a").expect("there").uid, ALICE);
    assert_eq!(got(&mut peers, 0, b"alice/g"), Ok(b"secret".to_vec()), "root reads all");
    // Bob.
    for path in [&b"alice/g"[..], b"alice/none"] {
        assert!(is_denied(peers.stat(2, path)), "{path:?}");
    }
    assert!(is_denied(peers.list(2, b"alice")));
    assert_eq!(peers.list(2, b"all").expect("he may").len(), 1);
    assert_eq!(got(&mut peers, 2, b"all/a"), Ok(b"for all".to_vec()));
    assert!(is_denied(peers.open(2, b"all/a", WRITE)));
    assert!(is_denied(peers.ask(2, Request::Unlink(b"all/a"))), "it is hers");
    assert!(is_denied(peers.ask(2, rename(b"all/a", b"all/b"))), "it is hers");
    assert!(is_denied(peers.ask(2, set_mode(b"all/a", 0o777))));
    assert!(is_denied(peers.create(2, b"alice/x")) && is_denied(peers.create(2, b"x")));
    put(&mut peers, 2, b"all/b", b"bob");
    assert!(is_denied(peers.ask(1, Request::Unlink(b"all/b"))));
    peers.ask(2, Request::Unlink(b"all/b")).expect("his");
    // She lets him in.
    peers.ask(1, set_mode(b"alice", 0o755)).expect("her own");
    assert_eq!(got(&mut peers, 2, b"alice/g"), Ok(b"secret".to_vec()));
    peers.ask(1, set_mode(b"alice/g", 0o600)).expect("her own");
    assert!(is_denied(got(&mut peers, 2, b"alice/g")));
    peers.ask(1, set_mode(b"alice", 0o700)).expect("her own");
    assert!(is_denied(peers.stat(2, b"alice/d")));
}

#[test]
fn who_may_write_to_anothers_file_does_and_nobody_else() {
    let mut peers = house(2);
    put(&mut peers, 1, b"all/a", b"alice");
    peers.ask(1, set_mode(b"all/a", 0o666)).expect("her own");
    let open = peers.open(2, b"all/a", WRITE).expect("he may");
    peers.write(open, Some(0), b"bobby").expect("he may");
    assert_eq!(got(&mut peers, 1, b"all/a"), Ok(b"bobby".to_vec()));
    // What he has open is looked at when he uses it.
    peers.ask(1, set_mode(b"all/a", 0o644)).expect("her own");
    assert!(is_denied(peers.write(open, Some(0), b"again")));
    assert_eq!(got(&mut peers, 1, b"all/a"), Ok(b"bobby".to_vec()));
    peers.close(open).expect("closed");
}

#[test]
fn a_directory_of_his_is_moved_and_all_others_find_it() {
    {
        let mut peers = house(5);
        // Where nobody else may look.
        peers.make_directory(1, b"alice/c").expect("her own");
        put(&mut peers, 1, b"alice/c/f", b"hidden");
        peers.make_directory(1, b"alice/b").expect("her own");
        peers.ask(1, rename(b"alice/c", b"alice/b/c")).expect("her own");
        assert_eq!(got(&mut peers, 0, b"alice/b/c/f"), Ok(b"hidden".to_vec()));
        peers.ask(1, set_mode(b"alice", 0o755)).expect("her own");
        peers.make_directory(1, b"alice/d").expect("her own");
        put(&mut peers, 1, b"alice/d/f", b"moved");
        assert_eq!(got(&mut peers, 2, b"alice/d/f"), Ok(b"moved".to_vec()));
        // To another name, and to another directory.
        peers.ask(1, rename(b"alice/d", b"alice/e")).expect("her own");
        peers.make_directory(1, b"alice/in").expect("her own");
        peers.ask(1, rename(b"alice/e", b"alice/in/e")).expect("her own");
        for at in 0..3 {
            assert_eq!(got(&mut peers, at, b"alice/in/e/f"), Ok(b"moved".to_vec()), "{at}");
            for gone in [&b"alice/d"[..], b"alice/e"] {
                assert!(peers.stat(at, gone).is_err(), "{at}: {gone:?}");
            }
        }
        // To what is for all, and from there; others may not.
        peers.ask(1, rename(b"alice/in", b"all/in")).expect("she may");
        assert!(is_denied(peers.ask(2, rename(b"all/in", b"bob/in"))), "it is hers");
        assert!(is_denied(peers.ask(2, rename(b"all/in", b"all/out"))), "it is hers");
        assert!(is_denied(peers.ask(2, rename(b"bob", b"bobby"))), "its name is root's to give");
        assert_eq!(got(&mut peers, 2, b"all/in/e/f"), Ok(b"moved".to_vec()));
        peers.ask(1, rename(b"all/in", b"alice/out")).expect("hers");
        let error = peers.ask(1, rename(b"alice/out", b"alice/out/in")).expect_err("below itself");
        assert_eq!(error.kind, ErrorKind::Invalid);
        put(&mut peers, 1, b"alice/out/e/g", b"more");
        assert_eq!(got(&mut peers, 0, b"alice/out/e/g"), Ok(b"more".to_vec()));
    }
}

#[test]
fn what_root_gives_away_of_a_file_that_his_server_has_is_refused() {
    let mut peers = house(6);
    put(&mut peers, 1, b"alice/f", b"hers");
    let give = |uid| Request::Change {
        target: Target::Path(b"alice/f"),
        change: Change { uid: Some(uid), ..NONE },
    };
    assert!(is_denied(peers.ask(0, give(BOB))));
    peers.ask(0, give(ALICE)).expect("it is hers");
    assert_eq!(peers.stat(0, b"alice/f").map(|is| is.uid), Ok(ALICE));
}

/// Bob's server takes him for root.
fn lies(peers: &mut Peers) {
    let client = peers.clients[2];
    peers.sims[2].become_user(client, 0);
}

#[test]
fn a_server_that_takes_its_user_for_root_gets_no_more_than_he_does() {
    gets_no_more(house(3));
}

fn gets_no_more(mut peers: Peers) {
    put(&mut peers, 1, b"alice/f", b"secret");
    put(&mut peers, 1, b"all/a", b"for all");
    let open = peers.open(2, b"all/a", READ).expect("he may");
    peers.close(open).expect("closed");
    lies(&mut peers);
    assert!(is_denied(peers.stat(2, b"alice/f")) && is_denied(peers.list(2, b"alice")));
    for request in [
        Request::Unlink(b"all/a"),
        Request::Unlink(b"alice/f"),
        rename(b"all/a", b"bob/a"),
        rename(b"all/a", b"all/b"),
        rename(b"bob", b"all/b"),
        set_mode(b"all/a", 0o666),
        set_mode(b"all", 0o777),
        set_mode(b"alice", 0o777),
        Request::MakeDirectory { path: b"alice/x", mode: 0o777 },
        Request::MakeDirectory { path: b"x", mode: 0o777 },
        Request::RemoveDirectory(b"alice"),
        Request::Link { target: Target::Path(b"alice/f"), path: b"bob/f" },
        Request::SetXattr {
            target: Target::Path(b"all/a"),
            name: b"user.a",
            value: Some(b"b"),
            how: XattrHow::Any,
        },
        Request::Change {
            target: Target::Path(b"all/a"),
            change: Change { uid: Some(BOB), ..NONE },
        },
    ] {
        // What it says of that counts nowhere else: in directories in which he may have names, it
        // does what it likes, until somebody looks there.
        let done = peers.ask(2, request);
        let all = [&b"all/a"[..], b"all"];
        let in_all = |path: &[u8]| path.starts_with(b"all/");
        let lies = match request {
            Request::Unlink(path) | Request::Rename { from: path, .. } => in_all(path),
            _ => false,
        };
        assert!(done.is_err() || lies, "{request:?}: {done:?}");
        for path in all {
            assert!(peers.stat(0, path).is_ok(), "after {request:?}");
        }
    }
    assert!(peers.create(2, b"alice/x").is_err());
    // It opens what it likes, and hears at the first write.
    if let Ok(open) = peers.open(2, b"all/a", WRITE) {
        assert!(is_denied(peers.write(open, Some(0), b"bob was here")));
        peers.close(open).expect("closed");
    }
    for at in [0, 1] {
        assert_eq!(got(&mut peers, at, b"alice/f"), Ok(b"secret".to_vec()));
        assert_eq!(got(&mut peers, at, b"all/a"), Ok(b"for all".to_vec()));
        assert_eq!(peers.stat(at, b"alice").map(|is| (is.uid, is.mode)), Ok((ALICE, 0o700)));
        assert_eq!(peers.stat(at, b"all/a").map(|is| (is.uid, is.mode)), Ok((ALICE, 0o644)));
    }
    // What is his may be root's by his word, and is not by anybody else's.
    put(&mut peers, 2, b"bob/f", b"x");
    let change = Change { uid: Some(0), gid: Some(0), mode: Some(0o4755), ..NONE };
    let target = Target::Path(b"bob/f");
    peers.ask(2, Request::Change { target, change }).expect("it believes so");
    for at in [0, 1] {
        assert_eq!(peers.stat(at, b"bob/f").map(|is| (is.uid, is.gid)), Ok((BOB, BOB)));
    }
}
