//! Files that are created in a directory which another server decides and uses, too.

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::ids::SessionSlot;
use terral_format::local::names::flag;
use terral_format::wire::message::{Change, Kind, OpenHow, Reply, Request, Target};
use terral_format::{ErrorKind, frame};
use terral_transport::requests::Taken;

use super::bytes::Open;
use super::{Handled, Peers, dir};
use crate::core::limits::Limits;
use crate::core::limits::tests::with;
use crate::sim::client::CREATE;

/// Has the first use `d`, in which it has made `own`: it is not lent to others then.
fn uses(peers: &mut Peers) {
    peers.make_directory(0, b"d").expect("made");
    peers.pass(Duration::from_secs(3));
    peers.create(0, b"d/own").expect("made");
}

/// A program of a server asks something; it is not carried out yet.
fn asks(peers: &mut Peers, at: usize, request: Request<'_>) -> (usize, SessionSlot, Taken) {
    let client = peers.sims[at].connect();
    let taken = peers.sims[at].asking(client, request).expect("encodes");
    (client, peers.sims[at].clients[client].session, taken)
}

fn names(peers: &mut Peers, at: usize) -> BTreeSet<Vec<u8>> {
    let listed = peers.list(at, b"d").expect("listed");
    listed.into_iter().map(|(name, _)| name).collect()
}

/// How many files the second has of which it does not know whether they have their names.
fn unnamed(peers: &mut Peers) -> usize {
    let count = peers.sims[1].with(|server| {
        let state = server.lock();
        state.members.as_ref().map_or(0, |members| members.unnamed().count())
    });
    count.unwrap_or_default()
}

/// Both see the same, which is in the permanent directory, if there is one; and nothing is left of
/// what has no name. Whether it has.
fn is_created(peers: &mut Peers, name: &[u8]) -> bool {
    for _ in 0..60 {
        peers.pass(Duration::from_secs(1));
    }
    let all = [names(peers, 0), names(peers, 1)];
    assert_eq!(all[0], all[1], "they see one directory");
    let left = peers.sims[1].with(|server| {
        let state = server.lock();
        let files = state.names.inodes().filter(|inode| inode.kind == Kind::File);
        let files = files.filter(|inode| !inode.is(flag::NAMED) && !inode.is(flag::FAR));
        files.count()
    });
    let is = all[0].contains(name);
    if peers.dir.is_some() {
        assert_eq!((left, unnamed(peers)), (Some(0), 0), "nothing is left");
        assert!(!dir::owes(peers), "they owe it for ever");
        let there = dir::there(peers)
            .into_keys()
            .filter_map(|path| Some(path.strip_prefix(b"d/")?.to_vec()));
        assert_eq!(there.collect::<BTreeSet<_>>(), all[0]);
    }
    is
}

#[test]
fn it_costs_one_question_and_one_answer_and_the_file_is_where_it_is_written() {
    let mut peers = Peers::new(21, 2);
    uses(&mut peers);
    peers.create(1, b"d/a").expect("made");
    peers.settle();
    let before = peers.carried;
    let open: Open = peers.open(1, b"d/b", CREATE).expect("made");
    peers.settle();
    // That the answer has come is said with the next word.
    assert_eq!(peers.carried - before, 2);
    peers.write(open, Some(0), b"here").expect("written");
    peers.close(open).expect("closed");
    assert_eq!((peers.carried - before, open.is_far()), (2, false));
    assert_eq!(peers.stat(0, b"d/b").expect("it is there").size, 4);
    for at in [0, 1] {
        let how = OpenHow { exclusive: true, ..CREATE };
        let refused = peers.open(at, b"d/b", how).map(drop).map_err(|error| error.kind);
        assert_eq!(refused, Err(ErrorKind::Exists));
        let open = peers.open(at, b"d/own", CREATE).expect("it is there");
        assert_eq!((open.is_far(), at), (at == 1, at));
        peers.close(open).expect("closed");
    }
}

#[test]
fn who_is_killed_meanwhile_leaves_it_everywhere_or_nowhere() {
    let mut created = BTreeSet::new();
    let creates = Request::Open { path: b"d/a", how: CREATE };
    for (heard, dies) in (0..8).flat_map(|heard| (0..4).map(move |dies| (heard, dies))) {
        let mut peers = Peers::with_dir(22, 2);
        uses(&mut peers);
        let (client, session, taken) = asks(&mut peers, 1, creates);
        for _ in 0..heard {
            if matches!(peers.handle(1, session, &taken), Some(Handled::Answer(_))) {
                break;
            }
            if !peers.carry() {
                peers.behind();
            }
        }
        match dies {
            1 => peers.sims[1].kill(),
            2 => peers.sims[0].kill(),
            3 => peers.cut(0, 1),
            _ => {}
        }
        peers.sims[1].end(client);
        peers.collect(1);
        created.insert(is_created(&mut peers, b"a"));
    }
    assert_eq!(created.len(), 2, "some are, and some are not");
}

#[test]
fn who_gets_no_answer_is_told_so_and_what_comes_of_it_arrives() {
    let mut peers = Peers::with_dir(23, 2);
    uses(&mut peers);
    let creates = Request::Open { path: b"d/a", how: CREATE };
    let (_, session, taken) = asks(&mut peers, 1, creates);
    let mut answer = None;
    while answer.is_none() {
        if let Some(Handled::Answer(reply)) = peers.handle(1, session, &taken) {
            answer = Some(frame::decode::<Reply>(&reply).expect("an answer"));
        } else if unnamed(&mut peers) == 0 {
            assert!(peers.carry(), "it has what it needs");
        } else {
            peers.stopped = Some((0, Duration::from_secs(300)));
            peers.pass(Duration::from_secs(1));
        }
    }
    assert!(matches!(&answer, Some(Reply::Failed(error)) if error.errno == 5), "{answer:?}");
    peers.stopped = None;
    peers.create(0, b"d/other").expect("made");
    peers.settle();
    // It was asked for twice by now.
    assert!(is_created(&mut peers, b"a"));
}

#[test]
fn a_name_that_was_just_taken_away_is_the_new_files_in_the_permanent_directory() {
    let mut peers = Peers::with_dir(24, 2);
    uses(&mut peers);
    peers.create(0, b"d/a").expect("made");
    for _ in 0..10 {
        peers.pass(Duration::from_secs(1));
    }
    // The way is known.
    peers.stat(1, b"d/own").expect("it is there");
    peers.create(0, b"d/z").expect("made");
    peers.ask(0, Request::Unlink(b"d/a")).expect("removed");
    let open = peers.open(1, b"d/a", CREATE).expect("made");
    peers.write(open, Some(0), b"new").expect("written");
    peers.close(open).expect("closed");
    // It is brought as soon as may be.
    (0..5).for_each(|_| peers.sims[1].pass(Duration::from_secs(1)));
    assert!(is_created(&mut peers, b"a"));
    assert_eq!(peers.stat(0, b"d/a").expect("it is there").size, 3);
}

#[test]
fn it_has_the_group_of_a_directory_that_says_so() {
    // Where that is used by others, and where it comes to who creates it.
    for seconds in [0, 3] {
        let mut peers = Peers::new(25, 2);
        uses(&mut peers);
        let change = Change { mode: Some(0o2775), gid: Some(7), ..Change::default() };
        peers.ask(0, Request::Change { target: Target::Path(b"d"), change }).expect("changed");
        peers.pass(Duration::from_secs(seconds));
        for path in [b"d/a", b"d/b"] {
            peers.create(1, path).expect("made");
            for at in [0, 1] {
                assert_eq!(peers.stat(at, path).expect("it is there").gid, 7, "{seconds}");
            }
        }
    }
}

#[test]
fn a_directory_that_is_too_large_to_be_given_takes_files_from_everywhere() {
    with(Limits { given: 40, lent: 20, borrowed: 40 }, || {
        let mut peers = Peers::new(26, 3);
        peers.make_directory(0, b"d").expect("made");
        for name in 0..30 {
            peers.create(name % 3, format!("d/{name}").as_bytes()).expect("made");
        }
        for at in 0..3 {
            assert_eq!(peers.list(at, b"d").expect("listed").len(), 30);
        }
    });
}

/// A program of the decider looks at the directory, and goes on after another machine changed it.
#[test]
fn what_was_seen_before_a_change_undoes_nothing_of_it() {
    for looked in 0..8 {
        let mut peers = Peers::new(28, 2);
        uses(&mut peers);
        peers.create(1, b"d/a").expect("made");
        let request = Request::Stat(Target::Path(b"d/a"));
        let (_, session, taken) = asks(&mut peers, 0, request);
        for _ in 0..looked {
            peers.handle(0, session, &taken);
        }
        let change = Change { mode: Some(0o701), ..Change::default() };
        let other = peers.sims[1].connect();
        let changes = Request::Change { target: Target::Path(b"d"), change };
        peers.ask_as(1, other, changes).expect("changed");
        while !matches!(peers.handle(0, session, &taken), Some(Handled::Answer(_))) {
            peers.carry();
        }
        for at in [0, 1] {
            assert_eq!(peers.stat(at, b"d").expect("it is there").mode & 0o777, 0o701, "{looked}");
        }
    }
}

/// Somebody there has seen that there was none, and has not gone on since.
#[test]
fn what_was_seen_before_it_was_created_takes_no_name_from_it() {
    for heard in 0..8 {
        let mut peers = Peers::with_dir(29, 2);
        uses(&mut peers);
        peers.create(1, b"d/b").expect("made");
        let request = Request::Stat(Target::Path(b"d/a"));
        let (_, session, taken) = asks(&mut peers, 1, request);
        for _ in 0..heard {
            peers.handle(1, session, &taken);
            peers.carry();
        }
        let open = peers.open(1, b"d/a", CREATE).expect("made");
        while !matches!(peers.handle(1, session, &taken), Some(Handled::Answer(_))) {
            if !peers.carry() {
                peers.behind();
            }
        }
        peers.write(open, Some(0), b"bytes").expect("written");
        peers.close(open).expect("closed");
        assert!(is_created(&mut peers, b"a"), "{heard}");
    }
}

/// What is created in a directory by its path, and that it is removed, in any order.
fn is_removed_meanwhile(heard: usize, makes: bool) -> bool {
    let mut peers = Peers::new(27, 2);
    peers.make_directory(0, b"d").expect("made");
    peers.pass(Duration::from_secs(3));
    peers.make_directory(0, b"d/s").expect("made");
    peers.create(0, b"d/s/own").expect("made");
    peers.ask(0, Request::Unlink(b"d/s/own")).expect("removed");
    let path = &b"d/s/a"[..];
    let request = match makes {
        true => Request::MakeDirectory { path, mode: 0o755 },
        false => Request::Open { path, how: CREATE },
    };
    let (_, session, taken) = asks(&mut peers, 1, request);
    let handle = |peers: &mut Peers| match peers.handle(1, session, &taken) {
        Some(Handled::Answer(reply)) => Some(frame::decode::<Reply>(&reply).expect("an answer")),
        _ => None,
    };
    let mut answer = handle(&mut peers);
    for _ in 0..heard {
        peers.carry();
        answer = answer.or_else(|| handle(&mut peers));
    }
    let removed = peers.ask(0, Request::RemoveDirectory(b"d/s")).map_err(|error| error.kind);
    for _ in 0..20 {
        peers.pass(Duration::from_millis(300));
        answer = answer.or_else(|| handle(&mut peers));
    }
    let there = peers.stat(0, path).is_ok();
    match answer.expect("it is answered") {
        Reply::Failed(error) => assert_eq!((error.kind, there), (ErrorKind::NotFound, false)),
        _ => assert!(there, "what was created is there"),
    }
    assert_eq!(removed.map(drop), if there { Err(ErrorKind::NotEmpty) } else { Ok(()) });
    there
}

#[test]
fn nothing_is_created_in_a_directory_that_was_removed_since_it_was_looked_up() {
    for makes in [false, true] {
        let all: BTreeSet<_> = (0..16).map(|heard| is_removed_meanwhile(heard, makes)).collect();
        assert_eq!(all.len(), 2, "in either order");
    }
}
