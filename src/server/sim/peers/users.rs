//! Members that speak for one user alone: of the first, which is root's, and one each of two users.
//! One of these may say anything: it takes its user for root, and asks for all that there is.

use terral_format::disk::membership::Membership;
use terral_format::wire::message::{Change, OpenHow, RenameHow, Request, Target, XattrHow};
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Certificate, Key};
use terral_format::{Error, ErrorKind, Result};
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

/// A permanent store of root's, with a directory of each user, and one that others may write to.
pub(super) fn store(seed: u64) -> Scripted {
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
    house_of(seed, &[ALICE, BOB])
}

/// The same for these users.
pub(super) fn house_of(seed: u64, users: &[u32]) -> Peers {
    let of_users = users.iter().copied().map(Some);
    house_for(seed, &std::iter::once(None).chain(of_users).collect::<Vec<_>>())
}

/// A server for each of these, who is root if he is nobody alone.
pub(super) fn house_for(seed: u64, users: &[Option<u32>]) -> Peers {
    house_on(store(seed), seed, users)
}

/// The same on this store.
pub(super) fn house_on(dir: Scripted, seed: u64, users: &[Option<u32>]) -> Peers {
    let handle = |user: &Option<u32>| match user {
        None => dir.clone().of_roots(),
        Some(user) => dir.clone().of_user(*user),
    };
    let handles = users.iter().map(handle).enumerate();
    let sims = handles.map(|(at, handle)| Sim::sharing(seed * 100 + at as u64, &handle));
    let mut peers = Peers::of(sims.collect(), Some(dir));
    peers.of_users = true;
    peers.meet();
    peers.certificates = certificates_for(users);
    peers.know_certificates();
    for (at, user) in users.iter().enumerate() {
        let client = peers.clients[at];
        user.iter().for_each(|user| peers.sims[at].become_user(client, *user));
    }
    peers
}

impl Peers {
    /// Each knows for whom all speak.
    pub(super) fn know_certificates(&mut self) {
        for sim in &mut self.sims {
            sim.with(|server| {
                let mut state = server.lock();
                state.record(Membership::Certificates(self.certificates.clone()));
                state.commit().expect("there is room");
            });
        }
    }
}

/// Of root's server, and one each of these users.
pub(super) fn certificates(users: &[u32]) -> Vec<Certificate> {
    let of_users = users.iter().copied().map(Some);
    certificates_for(&std::iter::once(None).chain(of_users).collect::<Vec<_>>())
}

pub(super) fn certificates_for(users: &[Option<u32>]) -> Vec<Certificate> {
    let of = |(at, user): (usize, &Option<u32>)| Certificate {
        member: member(at),
        key: Key([0; 32]),
        user: user.map(person),
    };
    users.iter().enumerate().map(of).collect()
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

#[test]
fn a_user_has_his_own_directories_and_in_others_what_bits_let_him() {
    let mut peers = house(1);
    put(&mut peers, 1, b"alice/f", b"secret");
    peers.ask(1, rename(b"alice/f", b"alice/g")).expect("her own");
    peers.make_directory(1, b"alice/d").expect("her own");
    for path in [&b"alice/d"[..], b"alice/g"] {
        assert_eq!(peers.stat(1, path).expect("there").number.born(), member(1));
    }
    assert_eq!(got(&mut peers, 0, b"alice/g"), Ok(b"secret".to_vec()), "root reads all");
    // Bob.
    for path in [&b"alice/g"[..], b"alice/none"] {
        assert!(is_denied(peers.stat(2, path)), "{path:?}");
    }
    assert!(is_denied(peers.list(2, b"alice")));
    assert!(is_denied(peers.create(2, b"alice/x")) && is_denied(peers.create(2, b"x")));
    // She lets him in.
    peers.ask(1, set_mode(b"alice", 0o755)).expect("her own");
    assert_eq!(peers.list(2, b"alice").expect("he may").len(), 2);
    assert_eq!(got(&mut peers, 2, b"alice/g"), Ok(b"secret".to_vec()));
    assert!(is_denied(peers.open(2, b"alice/g", WRITE)));
    peers.ask(1, set_mode(b"alice/g", 0o600)).expect("her own");
    assert!(is_denied(got(&mut peers, 2, b"alice/g")));
    peers.ask(1, set_mode(b"alice", 0o700)).expect("her own");
    assert!(is_denied(peers.stat(2, b"alice/d")));
}

/// All that changes a name of a directory: of `own`, which is his who asks, and of what the
/// directory has, a file and a directory.
fn changes_of_names(directory: &[u8], own: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let at = |name: &[u8]| [directory, b"/", name].concat();
    let kinds = [&b"directory"[..], b"link", b"unlink", b"rmdir", b"in", b"out", b"over", b"swap"];
    let names = [&b"new"[..], b"new", b"f", b"d", b"new", b"f", b"f", b"f"];
    let both = kinds.into_iter().zip(names);
    both.map(|(kind, name)| vec![kind.to_vec(), at(name), own.to_vec()]).collect()
}

fn request(change: &[Vec<u8>]) -> Request<'_> {
    let (path, own) = (&*change[1], &*change[2]);
    match &*change[0] {
        b"directory" => Request::MakeDirectory { path, mode: 0o700 },
        b"link" => Request::MakeLink { path, target: b"there" },
        b"unlink" => Request::Unlink(path),
        b"rmdir" => Request::RemoveDirectory(path),
        b"in" | b"over" => rename(own, path),
        b"out" => rename(path, own),
        _ => Request::Rename { from: own, to: path, how: RenameHow::Exchange },
    }
}

#[test]
fn names_in_a_directory_are_changed_by_its_owner_alone_whatever_its_bits_say() {
    let mut peers = house(5);
    let dir = peers.dir.clone().expect("a store");
    for (at, path) in [(1, &b"alice/open"[..]), (2, b"bob/open")] {
        peers.make_directory(at, path).expect("his own");
        peers.ask(at, set_mode(path, 0o777)).expect("his own");
    }
    peers.ask(1, set_mode(b"alice", 0o755)).expect("her own");
    peers.make_directory(0, b"own").expect("root may");
    for (at, directory) in [(0, &b"all"[..]), (1, b"alice/open"), (2, b"bob/open")] {
        put(&mut peers, at, &[directory, b"/f"].concat(), b"his");
        peers.make_directory(at, &[directory, b"/d"].concat()).expect("his own");
    }
    // What of hers is in root's directory is known by her server, and has its name from root.
    dir.put(b"all/hers", b"hers").expect("put");
    gives(&dir, b"all/hers", (ALICE, 0o666));
    assert_eq!(got(&mut peers, 2, b"all/hers"), Ok(b"hers".to_vec()));
    super::dir::owes_nothing(&mut peers);
    let names = |peers: &Peers| -> Vec<Vec<u8>> {
        let tree = peers.dir.as_ref().expect("a store").tree();
        tree.into_keys().filter(|path| !path.starts_with(b".terral")).collect()
    };
    let before = names(&peers);
    for (at, own) in [(0, &b"own/mine"[..]), (1, b"alice/mine"), (2, b"bob/mine")] {
        put(&mut peers, at, own, b"his own");
        for (of, directory) in [(0, &b"all"[..]), (1, b"alice/open"), (2, b"bob/open")] {
            for change in changes_of_names(directory, own) {
                if of != at {
                    let done = peers.ask(at, request(&change));
                    assert!(is_denied(done), "{at}: {:?}", request(&change));
                }
            }
            let new = [directory, b"/new"].concat();
            assert!(of == at || is_denied(peers.create(at, &new)), "{at}: {new:?}");
            let link = Request::Link { target: Target::Path(own), path: &new };
            assert!(of == at || is_denied(peers.ask(at, link)), "{at}: a link in {directory:?}");
        }
        // No new version of it could get its name, whoever may write to it.
        assert!(is_denied(peers.open(at, b"all/hers", WRITE)), "{at}");
        // Nor by him whose it is, nor by whose directory it is.
        for request in [Request::Unlink(b"all/hers"), rename(b"all/hers", b"all/else")] {
            assert!(is_denied(peers.ask(at, request)), "{at}: {request:?}");
        }
        let link = Request::Link { target: Target::Path(b"all/hers"), path: own };
        assert!(at == 1 || peers.ask(at, link).is_err(), "{at}");
        peers.ask(at, Request::Unlink(own)).expect("his own");
    }
    super::dir::owes_nothing(&mut peers);
    assert_eq!(names(&peers), before);
    touches_only_roots(&peers);
}

#[test]
fn who_may_write_to_anothers_file_does_and_nobody_else() {
    let mut peers = house(2);
    put(&mut peers, 2, b"bob/a", b"robert");
    peers.ask(2, set_mode(b"bob/a", 0o666)).expect("his own");
    let open = peers.open(1, b"bob/a", WRITE).expect("she may");
    peers.write(open, Some(0), b"alicia").expect("she may");
    assert_eq!(got(&mut peers, 2, b"bob/a"), Ok(b"alicia".to_vec()));
    // What she has open is looked at when she uses it.
    peers.ask(2, set_mode(b"bob/a", 0o644)).expect("his own");
    assert!(is_denied(peers.write(open, Some(0), b"again")));
    assert_eq!(got(&mut peers, 2, b"bob/a"), Ok(b"alicia".to_vec()));
    peers.close(open).expect("closed");
}

#[test]
fn a_directory_of_his_is_moved_and_all_others_find_it() {
    let mut peers = house(3);
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
    assert!(is_denied(peers.ask(2, rename(b"bob", b"bobby"))), "its name is root's to give");
    let error = peers.ask(1, rename(b"alice/in", b"alice/in/in")).expect_err("below itself");
    assert_eq!(error.kind, ErrorKind::Invalid);
    // Root moves what hers lie in.
    let dir = peers.dir.clone().expect("a store");
    dir.make_directory(b"home", 0o755).expect("put");
    dir.make_directory(b"home/hers", 0o755).expect("put");
    gives(&dir, b"home/hers", (ALICE, 0o755));
    put(&mut peers, 1, b"home/hers/g", b"hers");
    peers.ask(0, rename(b"home", b"homes")).expect("root's own");
    put(&mut peers, 1, b"homes/hers/h", b"more");
    for at in 0..3 {
        assert_eq!(got(&mut peers, at, b"homes/hers/h"), Ok(b"more".to_vec()), "{at}");
    }
    super::dir::owes_nothing(&mut peers);
    touches_only_roots(&peers);
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
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"all/a", b"for all").expect("put");
    gives(&dir, b"all/a", (ALICE, 0o644));
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
        let done = peers.ask(2, request);
        assert!(done.is_err(), "{request:?}: {done:?}");
        let all = [&b"all/a"[..], b"all"];
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
