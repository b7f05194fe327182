//! Where the permanent store cannot give a name so that what others have just made there stays:
//! what is refused in root's directories in which others make names, as it is asked.

use terral_format::wire::message::{OpenHow, RenameHow, Request, Target};
use terral_format::{ErrorKind, Result};
use terral_store::backing::BesideOthers;

use super::Peers;
use super::dir::owes_nothing;
use super::transacting::{moved, transact};
use super::users::{
    ALICE, got, house_on, is_denied, put, rename, set_mode, store, touches_only_roots,
};
use crate::sim::client::CREATE;

fn house(seed: u64, beside: BesideOthers) -> Peers {
    house_on(store(seed).beside(beside), seed, &[None, Some(ALICE)])
}

fn kind<T>(done: Result<T>) -> std::result::Result<(), ErrorKind> {
    done.map(drop).map_err(|error| error.kind)
}

fn exchange<'p>(from: &'p [u8], to: &'p [u8]) -> Request<'p> {
    Request::Rename { from, to, how: RenameHow::Exchange }
}

#[test]
fn what_is_moved_to_where_others_make_names_is_refused_as_it_is_asked_and_made_there() {
    let mut peers = house(60, BesideOthers::Made);
    peers.make_directory(0, b"own").expect("root may");
    peers.make_directory(0, b"all/d").expect("made");
    for path in [&b"own/f"[..], b"own/g", b"all/f"] {
        put(&mut peers, 0, path, path);
    }
    let refused = Err(ErrorKind::CrossDevice);
    for settled in [false, true] {
        for (from, to) in [
            (&b"own/f"[..], &b"all/new"[..]),
            (b"own/f", b"all/f"),
            (b"all/f", b"all/new"),
            (b"all/d", b"all/e"),
        ] {
            assert_eq!(kind(peers.ask(0, rename(from, to))), refused, "{settled}");
            assert_eq!(kind(transact(&mut peers, 0, &[moved(from, to)])), refused, "{settled}");
        }
        for (one, other) in [(&b"own/f"[..], &b"all/f"[..]), (b"all/f", b"own/f")] {
            assert_eq!(kind(peers.ask(0, exchange(one, other))), refused, "{settled}");
        }
        owes_nothing(&mut peers);
    }
    peers.ask(0, exchange(b"own/f", b"own/g")).expect("root's alone");
    peers.ask(0, rename(b"all/f", b"own/new")).expect("to where nobody else makes names");
    peers.ask(0, Request::Unlink(b"own/f")).expect("root's");
    peers.ask(0, Request::RemoveDirectory(b"all/d")).expect("root's");
    let link = Request::Link { target: Target::Path(b"own/g"), path: b"all/second" };
    peers.ask(0, link).expect("it is made");
    // A user's own, whatever its bits: he may take away what others make in it.
    peers.ask(1, set_mode(b"alice", 0o1777)).expect("hers");
    put(&mut peers, 1, b"alice/f", b"hers");
    peers.ask(1, rename(b"alice/f", b"alice/g")).expect("hers");
    owes_nothing(&mut peers);
    assert_eq!(got(&mut peers, 0, b"all/second"), Ok(b"own/f".to_vec()));
    assert_eq!(got(&mut peers, 1, b"alice/g"), Ok(b"hers".to_vec()));
    touches_only_roots(&peers);
}

/// What is asked before the bits change is brought before they do.
#[test]
fn what_was_moved_before_others_could_make_names_arrives() {
    let mut peers = house(61, BesideOthers::Made);
    peers.make_directory(0, b"own").expect("root may");
    put(&mut peers, 0, b"own/f", b"f");
    owes_nothing(&mut peers);
    peers.ask(0, rename(b"own/f", b"own/g")).expect("root's alone");
    peers.ask(0, set_mode(b"own", 0o1777)).expect("root may");
    assert_eq!(kind(peers.ask(0, rename(b"own/g", b"own/f"))), Err(ErrorKind::CrossDevice));
    owes_nothing(&mut peers);
    assert_eq!(got(&mut peers, 0, b"own/g"), Ok(b"f".to_vec()));
}

#[test]
fn where_files_have_no_second_names_none_is_made_there() {
    let mut peers = house(62, BesideOthers::NoFiles);
    peers.make_directory(0, b"all/d").expect("made");
    peers.make_directory(0, b"own").expect("root may");
    put(&mut peers, 0, b"own/f", b"f");
    put(&mut peers, 0, b"all/d/f", b"f");
    assert!(is_denied(peers.open(0, b"all/f", CREATE)));
    let link = Request::Link { target: Target::Path(b"own/f"), path: b"all/f" };
    assert!(is_denied(peers.ask(0, link)));
    owes_nothing(&mut peers);
    touches_only_roots(&peers);
}

/// Also where it has a name, and still the one under which it grew.
#[test]
fn a_server_that_dies_as_it_gives_a_file_its_name_there_takes_nothing_of_its_own_for_anothers() {
    for moment in 1..40 {
        let mut peers = house(63, BesideOthers::Made);
        put(&mut peers, 0, b"all/f", b"one");
        peers.sims[0].kill_at(moment);
        owes_nothing(&mut peers);
        let anew = OpenHow { truncate: true, ..CREATE };
        let open = peers.open(0, b"all/f", anew).expect("root's");
        peers.write(open, Some(0), b"longer").expect("written");
        peers.close(open).expect("closed");
        owes_nothing(&mut peers);
        let tree = peers.dir.as_ref().expect("a store").tree();
        let all: Vec<_> = tree.into_keys().filter(|path| path.starts_with(b"all/")).collect();
        assert_eq!(all, [b"all/f".to_vec()], "killed at {moment}");
        assert_eq!(got(&mut peers, 0, b"all/f"), Ok(b"longer".to_vec()), "killed at {moment}");
    }
}
