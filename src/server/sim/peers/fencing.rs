//! Members that are removed: what only they had is an error, all else goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Epoch, ServerId};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Change, Kind, OpenHow, RenameHow, Request, Target};
use terral_format::wire::placement::Placement;
use terral_format::wire::roster::{Roster, Seat};
use terral_format::{ErrorKind, Result};

use super::dir::{owes_one, there};
use super::tree::Tree;
use super::walks::act;
use super::{Peers, member, walk_all};
use crate::far::linking;
use crate::members::control;
use crate::shared::Shared;
use crate::sharing::carrying;
use crate::sim::client::CREATE;
use crate::sim::world::Virtual;

/// The members' roster after some were removed, each with a verdict.
pub(super) fn roster(count: usize, version: u64, removed: &BTreeMap<usize, Verdict>) -> Roster {
    roster_by(0, (count, version), removed)
}

/// The same, where this member inherits.
fn roster_by(
    heir: usize,
    (count, version): (usize, u64),
    removed: &BTreeMap<usize, Verdict>,
) -> Roster {
    let seat = |at: usize| {
        let heir = member(heir);
        let removed = removed.get(&at).map(|verdict| Standing::Removed { heir, verdict: *verdict });
        let standing = removed.unwrap_or(Standing::In(ServerId(at as u64)));
        Seat { member: member(at), standing, addresses: vec![([127, 0, 0, 1], 1).into()] }
    };
    let (seats, policies) = ((0..count).map(seat).collect(), Vec::new());
    let (certificates, placement) = (Vec::new(), Placement::default());
    let (epoch, authorities, answers) = (Epoch(version), Vec::new(), Vec::new());
    Roster { version, epoch, seats, policies, certificates, placement, authorities, answers }
}

impl Peers {
    /// A member that is dead does nothing any more.
    pub(super) fn is_dead(&self, at: usize) -> bool {
        self.dead.contains(&at)
    }

    /// One hears who is in; if it dies as it does, it is told again.
    pub(super) fn hears_roster(&mut self, at: usize, roster: &Roster) {
        let out = |seat: &&Seat| matches!(seat.standing, Standing::Removed { .. });
        let out: Vec<_> = roster.seats.iter().filter(out).map(|seat| seat.member).collect();
        let control = member(self.control);
        let heard = |server: &Shared| {
            let mut state = server.lock();
            control::heard(&mut state, roster.clone(), control);
            carrying::resume(&mut state).expect("it is logged");
            out.iter().for_each(|other| linking::removed(&mut state, *other));
        };
        while self.sims[at].with(heard).is_none() {}
        let deaf = out.iter().map(|other| (at, usize::from(other.number())));
        self.unheard.extend(deaf);
        self.collect(at);
        self.reconnect();
    }

    /// One is dead: what it has said may still be on its way.
    pub(super) fn dies(&mut self, out: usize) {
        self.dead.insert(out);
        self.links.retain(|(_, to), _| *to != out);
        self.unheard.extend((0..self.sims.len()).map(|from| (out, from)));
    }

    /// One hears that a dead one is none any more.
    pub(super) fn hears_of(&mut self, at: usize, dead: usize) {
        let removed = [(dead, Verdict::Dead)].into();
        let heir = self.heir.unwrap_or(self.control);
        let roster = roster_by(heir, (self.sims.len(), 2), &removed);
        let certificates = self.certificates.clone();
        self.hears_roster(at, &Roster { certificates, ..roster });
    }

    /// Those that are in hear that another one is none any more.
    pub(super) fn remove(&mut self, out: usize, verdict: Verdict, version: u64) {
        self.remove_too(out, verdict, (version, BTreeMap::new()));
    }

    /// The same, where others were removed before.
    pub(super) fn remove_too(
        &mut self,
        out: usize,
        verdict: Verdict,
        (version, mut removed): (u64, BTreeMap<usize, Verdict>),
    ) {
        let count = self.sims.len();
        match verdict {
            Verdict::Dead => self.dies(out),
            Verdict::Fenced => self.unheard.extend((0..count).map(|from| (out, from))),
            Verdict::Left => panic!("it says so itself"),
        }
        if out == self.control {
            self.control = (out + 1) % count;
        }
        removed.insert(out, verdict);
        let heir = self.heir.unwrap_or(self.control);
        let roster = roster_by(heir, (count, version), &removed);
        let roster = Roster { certificates: self.certificates.clone(), ..roster };
        for at in (0..count).filter(|at| !removed.contains_key(at)) {
            self.hears_roster(at, &roster);
        }
        self.settle();
    }

    /// A directory that this one was moving, from where to where, as others know: it may be in both
    /// places.
    fn moves_of(&mut self, out: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let others = (0..self.sims.len()).filter(|at| *at != out);
        let mut moves = Vec::new();
        for at in others {
            let moving = self.sims[at]
                .with(|server| server.lock().names.resting().get(&member(out)).cloned());
            moves.extend(moving.flatten().map(|moving| (moving.from, moving.to)));
        }
        moves
    }

    /// Looks at what may have been moved back.
    fn finds(&mut self, at: usize, path: &[u8], moves: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<u8>> {
        let found = self.stat(at, path).map(|_| path.to_vec());
        let back = moves.iter().find_map(|(from, to)| {
            let rest = path.strip_prefix(&to[..])?;
            Some([from, rest].concat())
        });
        match back {
            Some(back) if found.is_err() => self.stat(at, &back).map(|_| back),
            _ => found,
        }
    }

    fn lists(&mut self, at: usize, path: &[u8]) -> Result<BTreeSet<Vec<u8>>> {
        Ok(self.list(at, path)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Files that were born on a server, by the names that its tables have, or all others.
    fn files_of(&mut self, at: usize, own: bool) -> BTreeSet<Vec<u8>> {
        let files = self.sims[at].with(|server| {
            let state = server.lock();
            let files = state.names.inodes().filter(|inode| {
                let is = inode.kind == Kind::File && inode.is(flag::NAMED);
                is && inode.is(flag::FAR) != own
            });
            files.filter_map(|inode| state.names.path(inode.ino)).collect()
        });
        files.unwrap_or_default()
    }
}

fn kind_of<T>(done: Result<T>) -> std::result::Result<T, ErrorKind> {
    done.map_err(|error| error.kind)
}

#[test]
fn what_a_dead_member_borrowed_is_there_again_and_what_only_it_had_is_an_error() {
    for brings in [false, true] {
        let mut peers = if brings { Peers::with_dir(1, 3) } else { Peers::new(1, 3) };
        peers.make_directory(0, b"d").expect("made");
        peers.create(0, b"d/here").expect("made");
        peers.create(2, b"d/there").expect("made");
        peers.pass(Duration::from_secs(3));
        // It changes the root, and the directory, last.
        peers.make_directory(1, b"own").expect("made");
        peers.create(1, b"d/lost").expect("made");
        peers.create(2, b"own/of2").expect("made");
        peers.stat(2, b"d/lost").expect("there");
        peers.remove(1, Verdict::Dead, 2);
        let names = BTreeSet::from([&b"here"[..], b"lost", b"there"].map(<[u8]>::to_vec));
        for at in [2, 0] {
            assert_eq!(peers.lists(at, b"d").as_ref(), Ok(&names), "{brings} {at}");
        }
        for at in [2, 0] {
            for path in [&b"d/here"[..], b"d/there", b"own/of2"] {
                assert!(peers.stat(at, path).is_ok(), "{brings} {at} {path:?}");
            }
            let how = OpenHow { create: false, ..CREATE };
            let lost = peers.open(at, b"d/lost", how).map(drop);
            let said = lost.expect_err("its bytes are lost").to_string();
            assert!(said.contains("member 1"), "{said}");
            let name = format!("d/new{at}");
            peers.create(at, name.as_bytes()).expect("made");
            peers.create(at, format!("new{at}").as_bytes()).expect("made");
        }
        if brings {
            (0..30).for_each(|_| peers.pass(Duration::from_secs(1)));
            let there = there(&peers);
            for path in [&b"d/here"[..], b"d/there", b"own/of2", b"d/new0", b"new2"] {
                assert!(there.contains_key(path), "{path:?}");
            }
        }
    }
}

#[test]
fn of_two_machines_the_one_that_is_left_goes_on_alone() {
    for brings in [false, true] {
        let mut peers = if brings { Peers::with_dir(4, 2) } else { Peers::new(4, 2) };
        peers.make_directory(0, b"d").expect("made");
        peers.create(0, b"d/here").expect("made");
        peers.pass(Duration::from_secs(3));
        peers.create(1, b"d/lost").expect("made");
        peers.make_directory(1, b"own").expect("made");
        peers.stat(0, b"d/lost").expect("there");
        // It was made by the one, and is used by the other.
        peers.make_directory(1, b"own/sub").expect("made");
        peers.create(0, b"own/sub/f").expect("made");
        let mode = Some(0o600);
        let change = Change { mode, ..Change::default() };
        peers.ask(1, Request::Change { target: Target::Path(b"d/here"), change }).expect("made");
        peers.remove(1, Verdict::Dead, 2);
        for path in [&b"d/here"[..], b"own/sub/f"] {
            assert!(peers.stat(0, path).is_ok(), "{brings} {path:?}");
        }
        let how = OpenHow { create: false, ..CREATE };
        assert_eq!(kind_of(peers.open(0, b"d/lost", how).map(drop)), Err(ErrorKind::Backing));
        for path in [&b"top"[..], b"d/new", b"own/new", b"own/sub/new"] {
            peers.create(0, path).expect("made");
        }
        let (from, to, how) = (&b"own"[..], &b"d/own"[..], RenameHow::Replace);
        peers.ask(0, Request::Rename { from, to, how }).expect("moved");
        assert!(peers.stat(0, b"d/own/sub/f").is_ok());
        if brings {
            (0..30).for_each(|_| peers.pass(Duration::from_secs(1)));
            assert!(!owes_one(&mut peers.sims[0]));
            let there = there(&peers);
            for path in [&b"d/here"[..], b"d/own/sub/f", b"d/own/sub/new", b"top"] {
                assert!(there.contains_key(path), "{path:?}");
            }
        }
    }
}

/// A file has arrived; then it is written again, which somebody `sees` or nobody, and its machine
/// is dead. What it looks like where its directory is, which was not that one's.
fn written_again(sees: bool) -> Result<u64> {
    let mut peers = Peers::with_dir(5, 3);
    peers.make_directory(0, b"d").expect("made");
    for (at, path) in [(1, &b"d/f"[..]), (2, b"d/g"), (0, b"d/h")] {
        peers.create(at, path).expect("made");
    }
    let how = OpenHow { create: false, ..CREATE };
    let write = |peers: &mut Peers, at| {
        let open = peers.open(1, b"d/f", how).expect("opened");
        peers.write(open, Some(at), b"four").expect("written");
        peers.close(open).expect("closed");
    };
    write(&mut peers, 0);
    (0..20).for_each(|_| peers.pass(Duration::from_secs(1)));
    assert!(there(&peers).contains_key(&b"d/f"[..]));
    write(&mut peers, 4);
    if sees {
        assert_eq!(peers.stat(2, b"d/f").expect("there").size, 8);
    }
    peers.remove(1, Verdict::Dead, 2);
    peers.open(0, b"d/f", how)?;
    peers.stat(0, b"d/f").map(|attributes| attributes.size)
}

#[test]
fn a_lost_file_that_another_machine_has_seen_newer_is_not_shown_older() {
    let said = written_again(true).expect_err("the store has it older").to_string();
    assert!(said.contains("member 1"), "{said}");
    assert_eq!(kind_of(written_again(false)), Ok(4), "nobody has seen it newer");
}

#[test]
fn a_name_that_a_file_has_lost_at_home_does_not_come_back_from_who_saw_it_before() {
    for brings in [false, true] {
        let mut peers = if brings { Peers::with_dir(3, 3) } else { Peers::new(3, 3) };
        peers.make_directory(2, b"d").expect("made");
        for path in [&b"d/f"[..], b"d/g"] {
            peers.create(2, path).expect("made");
            peers.stat(0, path).expect("there");
        }
        peers.ask(2, Request::Unlink(b"d/f")).expect("removed");
        let (from, to, how) = (&b"d/g"[..], &b"d/h"[..], RenameHow::Replace);
        peers.ask(2, Request::Rename { from, to, how }).expect("moved");
        peers.pass(Duration::from_secs(3));
        peers.create(1, b"d/own").expect("it has the directory");
        peers.remove(1, Verdict::Dead, 2);
        for at in [0, 2] {
            let names = peers.lists(at, b"d").expect("listed");
            assert!(names.contains(&b"h"[..]), "{brings} {at}");
            assert!(![&b"f"[..], b"g"].iter().any(|name| names.contains(*name)), "{brings} {at}");
        }
    }
}

#[test]
fn who_is_removed_alive_undoes_nothing_and_is_told_so_once_it_hears() {
    for brings in [false, true] {
        let mut peers = if brings { Peers::with_dir(2, 3) } else { Peers::new(2, 3) };
        for (at, path) in [(0, &b"d"[..]), (1, b"e")] {
            peers.make_directory(at, path).expect("made");
        }
        peers.create(2, b"d/there").expect("made");
        peers.pass(Duration::from_secs(3));
        let open = peers.open(1, b"e/own", CREATE).expect("made");
        peers.pass(Duration::from_secs(3));
        // The root is not its.
        peers.create(0, b"top").expect("made");
        peers.pass(Duration::from_secs(3));
        assert!(peers.stat(1, b"e").is_ok() && looked_at(&mut peers, 1) > 0);
        peers.remove(1, Verdict::Fenced, 2);
        for at in [2, 0] {
            assert!(peers.stat(at, b"d/there").is_ok(), "{brings} {at}");
            assert!(peers.stat(at, b"top").is_ok(), "{brings} {at}");
            let said = peers.stat(at, b"e/own").expect_err("nobody else has it").to_string();
            assert!(said.contains("member 1 was removed"), "{said}");
            // It may still be told of changes there: nobody else makes any.
            let made = kind_of(peers.create(at, b"e/new"));
            assert_eq!(made, Err(ErrorKind::Backing), "{brings} {at}");
        }
        assert!(peers.write(open, Some(0), b"x").is_ok(), "it does not know yet");
        peers.hears_roster(1, &roster(3, 2, &[(1, Verdict::Fenced)].into()));
        for path in [&b"e/own"[..], b"e/new", b"d/there"] {
            let said = peers.stat(1, path).expect_err("it is none any more").to_string();
            assert!(said.contains("member 1 was removed"), "{said}");
        }
        assert_eq!(looked_at(&mut peers, 1), 0, "nor do programs see it without asking");
        assert_eq!(kind_of(peers.create(1, b"e/new")), Err(ErrorKind::Backing), "{brings}");
        peers.close(open).expect("it is its own");
        (0..30).for_each(|_| peers.pass(Duration::from_secs(1)));
        let brought = peers.dir.is_some() && there(&peers).contains_key(&b"e/own"[..]);
        assert!(!brought, "it stays in its memory");
        // Once it is sure that it does nothing any more, its directories are used again.
        peers.remove(1, Verdict::Dead, 3);
        for at in [2, 0] {
            peers.create(at, format!("e/new{at}").as_bytes()).expect("made");
        }
    }
}

/// At how much that others have, or may, clients of a server look by themselves.
fn looked_at(peers: &mut Peers, at: usize) -> usize {
    let marked = |inode: &Inode| inode.flags & (flag::SHOWN | flag::BORROWED) != 0;
    let count = peers.sims[at].with(|shared| shared.lock().names.inodes().filter(marked).count());
    count.unwrap_or_default()
}

/// What is left of the tree once one is removed.
struct Left {
    /// Who is in.
    others: [usize; 2],
    /// Files that were born on those, where they are.
    own: BTreeSet<Vec<u8>>,
    /// Other files that they know.
    known: BTreeSet<Vec<u8>>,
    /// Directories, of the others and of the dead one.
    directories: BTreeSet<Vec<u8>>,
    /// What the dead one was moving may be where it was.
    moves: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Left {
    fn of(peers: &mut Peers, tree: &Tree, out: usize) -> Self {
        let all = tree.all();
        let others = [(out + 1) % 3, (out + 2) % 3];
        let mut files = |own| -> BTreeSet<Vec<u8>> {
            let files = others.iter().flat_map(|at| peers.files_of(*at, own));
            files.filter(|path| all.get(path) == Some(&false)).collect()
        };
        let (own, known) = (files(true), files(false));
        let directories = all.into_iter().filter_map(|(path, is)| is.then_some(path)).collect();
        Left { others, own, known, directories, moves: peers.moves_of(out) }
    }

    /// Each machine finds the files of both; of the dead one's it is told that they are lost, or
    /// finds what has arrived.
    fn look(&mut self, peers: &mut Peers) {
        let mut found = BTreeSet::new();
        for at in self.others {
            for path in &self.own {
                match peers.finds(at, path, &self.moves) {
                    Ok(there) => drop(found.insert(there)),
                    Err(error) => panic!("{at}: {} {error}", String::from_utf8_lossy(path)),
                }
            }
            for path in &self.known {
                let seen = kind_of(peers.finds(at, path, &self.moves)).map(drop);
                let says = seen.is_ok() || seen == Err(ErrorKind::Backing);
                assert!(says, "{at}: {} {seen:?}", String::from_utf8_lossy(path));
            }
        }
        let mut numbers = BTreeMap::new();
        for path in &self.directories {
            let [one, other] = self.others.map(|at| kind_of(peers.lists(at, path)));
            assert_eq!(one, other, "{}", String::from_utf8_lossy(path));
            // A name stands for something, or for what is lost.
            for (name, at) in one.iter().flatten().flat_map(|name| self.others.map(|at| (name, at)))
            {
                let path = [path, &b"/"[..], name].concat();
                let seen = kind_of(peers.stat(at, &path)).map(|seen| seen.number);
                let shown = String::from_utf8_lossy(&path);
                assert_ne!(seen, Err(ErrorKind::NotFound), "{at}: {shown} is listed");
                if let Ok(number) = seen {
                    let other = *numbers.entry(path.clone()).or_insert(number);
                    assert_eq!(number, other, "{at}: {shown} is another one");
                }
            }
        }
        self.own = found;
    }

    /// New files are made beside those that are there.
    fn go_on(&mut self, peers: &mut Peers) {
        let above = |path: &Vec<u8>| {
            let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |end| end + 1);
            path[..end].to_vec()
        };
        let directories: BTreeSet<_> = self.own.iter().map(above).collect();
        for at in self.others {
            for directory in &directories {
                let path = [&directory[..], format!("new{at}").as_bytes()].concat();
                peers.create(at, &path).expect("made");
                self.own.insert(path);
            }
        }
    }
}

/// Random requests, then one is removed, and all that is left is looked at.
fn walk(seed: u64, steps: usize, kills: bool) -> usize {
    let mut peers = Peers::with_dir(seed, 3);
    peers.may_have_trouble(seed);
    let mut tree = Tree::default();
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..steps {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        act(&mut peers, &mut tree, &mut draw);
    }
    peers.trouble_ends();
    let out = draw(3) as usize;
    let mut left = Left::of(&mut peers, &tree, out);
    // The control goes on with what it had, or somebody else does.
    let control = usize::from(out == 0);
    peers.heir = left.others.into_iter().find(|at| *at != control && seed.is_multiple_of(2));
    peers.remove(out, Verdict::Dead, 2);
    if kills {
        peers.sims[left.others[draw(2) as usize]].kill_at(1 + draw(12) as i64);
    }
    left.look(&mut peers);
    left.go_on(&mut peers);
    for _ in 0..200 {
        if !owes_any(&mut peers, &left.others) {
            break;
        }
        peers.pass(Duration::from_secs(1));
    }
    assert!(!owes_any(&mut peers, &left.others), "they owe it for ever");
    let there = there(&peers);
    for path in &left.own {
        assert!(there.contains_key(path), "{}", String::from_utf8_lossy(path));
    }
    left.own.len()
}

fn owes_any(peers: &mut Peers, others: &[usize]) -> bool {
    others.iter().any(|at| owes_one(&mut peers.sims[*at]))
}

fn all_walk(most: u64, kills: bool) {
    let [found] = walk_all(most, |seed| [walk(seed, 100, kills) as u64]);
    assert!(found > 0, "there is something to be lost");
}

#[test]
fn files_of_the_others_are_there_wherever_a_member_dies() {
    all_walk(30, false);
}

#[test]
fn so_they_are_if_servers_die_meanwhile() {
    all_walk(30, true);
}
