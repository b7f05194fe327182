//! Many requests at once, on all servers: of those who make one name, or take it away or move it,
//! one does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::wire::message::{Kind, OpenHow, RenameHow, Reply, Request};
use terral_format::{Error, ErrorKind, frame};
use terral_transport::requests::Taken;

use super::dir::{owes_nothing, there};
use super::{Handled, Peers, handling, seeds, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::sim::client::CREATE;
use crate::sim::world::Virtual;

/// Where all happens, and who makes it: what is taken first is not what is looked at first.
const DIRECTORIES: [(usize, &str); 4] = [(2, "a"), (1, "b"), (0, "a/c"), (2, "a/c/d")];

/// A request that has no answer yet.
struct Open {
    at: usize,
    client: usize,
    taken: Taken,
    /// The name that it takes away, if it does, and the one that it makes.
    takes: Option<Vec<u8>>,
    makes: Option<Vec<u8>>,
}

/// Requests of many clients of all servers at once.
struct Crowd {
    peers: Peers,
    idle: Vec<(usize, usize)>,
    open: Vec<Open>,
    /// How often each name was made, less how often it was taken away.
    made: BTreeMap<Vec<u8>, i32>,
    /// Names that somebody changed, or not, who died.
    unknown: BTreeSet<Vec<u8>>,
    answered: u64,
    /// Names that were moved to, each another one.
    moves: u64,
    /// Whether names are also moved to such as others use, and files opened that may be there.
    replaces: bool,
    /// Whether names also change places.
    exchanges: bool,
    /// Who has died, if one has, and who does not know yet that it is none any more.
    dead: Option<usize>,
    unaware: Vec<usize>,
}

impl Crowd {
    fn new(mut peers: Peers, seed: u64) -> Self {
        let (replaces, exchanges) = (seed % 2 == 1, seed % 4 == 2);
        for (at, path) in DIRECTORIES {
            peers.make_directory(at, path.as_bytes()).expect("made");
        }
        let mut idle = Vec::new();
        for at in 0..3 {
            idle.extend((0..3).map(|_| (at, peers.sims[at].connect())));
        }
        let (open, made, unknown, answered, moves, dead, unaware) = Default::default();
        Crowd {
            peers,
            idle,
            open,
            made,
            unknown,
            answered,
            moves,
            replaces,
            exchanges,
            dead,
            unaware,
        }
    }

    fn begin(&mut self, draw: &mut impl FnMut(u64) -> u64) {
        let free = self.idle.iter().rposition(|(at, _)| !self.peers.is_stopped(*at));
        let Some((at, client)) = free.map(|free| self.idle.swap_remove(free)) else { return };
        let (what, replaces) = (draw(6), self.replaces && draw(2) == 0);
        let how = OpenHow { exclusive: !replaces, ..CREATE };
        let path = some_name(draw);
        let (path_of, mut to) = (path.clone(), some_name(draw));
        if self.exchanges && draw(3) == 0 {
            let request = Request::Rename { from: &path, to: &to, how: RenameHow::Exchange };
            let taken = self.peers.sims[at].asking(client, request).expect("encodes");
            self.open.push(Open { at, client, taken, takes: None, makes: None });
            return self.poke(self.open.len() - 1);
        }
        if !replaces {
            to.extend(self.moves.to_string().into_bytes());
        }
        let request = match what {
            0 => Request::MakeDirectory { path: &path_of, mode: 0o755 },
            1 => Request::Open { path: &path_of, how },
            2 => Request::RemoveDirectory(&path_of),
            3 => Request::Unlink(&path_of),
            _ => Request::Rename { from: &path_of, to: &to, how: RenameHow::Replace },
        };
        let taken = self.peers.sims[at].asking(client, request).expect("encodes");
        let takes = (what >= 2).then(|| path.clone());
        let makes = match what {
            0 | 1 => Some(path),
            2 | 3 => None,
            _ => Some(to),
        };
        self.moves += 1;
        if replaces {
            // It may have been there before.
            self.unknown.extend(makes.clone());
        }
        self.open.push(Open { at, client, taken, takes, makes });
        self.poke(self.open.len() - 1);
    }

    /// A request is carried out, or tried again.
    fn poke(&mut self, which: usize) {
        let Open { at, client, .. } = self.open[which];
        if self.peers.is_stopped(at) {
            return;
        }
        let session = self.peers.sims[at].clients[client].session;
        let taken = &self.open[which].taken;
        let outcome =
            self.peers.sims[at].with(|server| handling::handle(&mut server.lock(), session, taken));
        self.peers.collect(at);
        self.peers.reconnect();
        let Some(Handled::Answer(reply)) = outcome else { return };
        let Open { takes, makes, .. } = self.open.swap_remove(which);
        self.idle.push((at, client));
        self.answered += 1;
        match frame::decode(&reply).expect("an answer") {
            Reply::Failed(error) => {
                let usual = [
                    ErrorKind::Exists,
                    ErrorKind::NotFound,
                    ErrorKind::IsDirectory,
                    ErrorKind::NotDirectory,
                    ErrorKind::NotEmpty,
                ];
                let lost = self.dead.is_some() && error.kind == ErrorKind::Backing;
                assert!(lost || usual.contains(&error.kind), "{error:?}");
            }
            _ => {
                takes.into_iter().for_each(|path| *self.made.entry(path).or_default() -= 1);
                makes.into_iter().for_each(|path| *self.made.entry(path).or_default() += 1);
            }
        }
    }

    /// A client dies while it waits: nobody knows whether that was done.
    fn end(&mut self, which: usize) {
        if self.peers.is_stopped(self.open[which].at) {
            return;
        }
        let Open { at, client, takes, makes, .. } = self.open.swap_remove(which);
        self.unknown.extend([takes, makes].into_iter().flatten());
        self.peers.sims[at].end(client);
        self.peers.collect(at);
        self.peers.reconnect();
        self.idle.push((at, self.peers.sims[at].connect()));
        self.peers.collect(at);
    }

    fn step(&mut self, draw: &mut impl FnMut(u64) -> u64, wrong: bool) {
        let any = draw(self.open.len().max(1) as u64) as usize;
        let (one, other) = (draw(3) as usize, draw(3) as usize);
        match (draw(8), draw(20)) {
            (0 | 1, _) => self.begin(draw),
            (2 | 3, _) if !self.open.is_empty() => self.poke(any),
            (4..=6, _) => self.peers.carry_any(draw),
            (7, 0) if wrong && !self.open.is_empty() => self.end(any),
            (7, 1) if wrong && one != other => self.peers.cut(one, other),
            (7, 2) if wrong && self.peers.stopped.is_none() => {
                self.peers.stopped = Some((one, Duration::from_secs(draw(20))));
            }
            (7, 3 | 4) => self.peers.pass(Duration::from_millis(draw(2500))),
            _ => {}
        }
    }

    /// A machine is lost, and the others hear of it by and by.
    fn lose(&mut self, out: usize) {
        self.peers.stopped = None;
        self.peers.dies(out);
        self.dead = Some(out);
        self.unaware = (0..3).filter(|at| *at != out).collect();
        self.open.retain(|open| open.at != out);
        self.idle.retain(|(at, _)| *at != out);
    }

    fn hears(&mut self) {
        if let Some((at, dead)) = self.unaware.pop().zip(self.dead) {
            self.peers.hears_of(at, dead);
        }
    }

    fn finish(&mut self) {
        self.peers.stopped = None;
        for _ in 0..2000 {
            let Some(which) = self.open.len().checked_sub(1) else { return };
            (0..=which).rev().for_each(|which| {
                if which < self.open.len() {
                    self.poke(which);
                }
            });
            self.peers.settle();
            self.peers.pass(Duration::from_millis(100));
        }
        panic!("somebody waits for ever");
    }

    /// The permanent store has the names that all see, once nobody owes it anything.
    fn has_arrived(&mut self) {
        let mut seen = BTreeMap::new();
        all_below(&mut self.peers, b"", &mut seen);
        owes_nothing(&mut self.peers);
        assert_eq!(there(&self.peers), seen);
    }

    fn check(&mut self) {
        for directory in DIRECTORIES.map(|(_, directory)| directory.as_bytes()) {
            let there = (0..3).filter(|at| self.dead != Some(*at));
            let all: Vec<_> = there.map(|at| self.peers.list(at, directory)).collect();
            assert!(all.iter().all(|names| *names == all[0]), "{all:?}");
            if self.dead.is_some() {
                // What only the dead one knew of is there for nobody.
                let known = |error: &Error| error.kind == ErrorKind::NotFound;
                assert!(all[0].as_ref().err().is_none_or(known), "{all:?}");
                continue;
            }
            assert!(all[0].is_ok(), "{all:?}");
            let all: Vec<_> = all.into_iter().flatten().collect();
            let known = self.made.iter().filter(|(path, _)| !self.unknown.contains(*path));
            for (path, made) in known {
                let Some(name) = path.strip_prefix(&[directory, b"/"].concat()[..]) else {
                    continue;
                };
                let is = all[0].iter().any(|(known, _)| known == name);
                if !name.contains(&b'/') {
                    assert_eq!(*made, i32::from(is), "{path:?}");
                }
            }
        }
    }
}

/// All names below a directory, and whether they are directories'.
fn all_below(peers: &mut Peers, path: &[u8], into: &mut BTreeMap<Vec<u8>, bool>) {
    for (name, kind) in peers.list(0, path).expect("it is there") {
        let below = if path.is_empty() { name } else { [path, b"/", &name].concat() };
        if kind == Kind::Directory {
            all_below(peers, &below, into);
        }
        into.insert(below, kind == Kind::Directory);
    }
}

/// A name in one of the directories.
fn some_name(draw: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
    let (_, directory) = DIRECTORIES[draw(DIRECTORIES.len() as u64) as usize];
    format!("{directory}/{}", ["x", "y", "z"][draw(3) as usize]).into_bytes()
}

pub(super) fn crowd(seed: u64, brings: bool, kills: bool) -> u64 {
    crowd_with(seed, brings, kills, |_| {})
}

/// The same, where something is begun with the servers before.
fn crowd_with(seed: u64, brings: bool, kills: bool, begin: impl FnOnce(&mut Peers)) -> u64 {
    let mut peers = if brings { Peers::with_dir(seed, 3) } else { Peers::new(seed, 3) };
    begin(&mut peers);
    let mut crowd = Crowd::new(peers, seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for step in 0..1500 {
        if kills && draw(100) == 0 {
            crowd.peers.sims[draw(3) as usize].kill_at(1 + draw(12) as i64);
        }
        if step % 16 == 0 {
            crowd.peers.more_trouble();
        }
        crowd.step(&mut draw, kills);
    }
    crowd.peers.trouble_ends();
    crowd.finish();
    crowd.check();
    if brings {
        crowd.has_arrived();
    }
    crowd.answered
}

/// The same, and one machine is lost in the middle of it: nobody waits for it for ever, and the
/// others see one tree.
fn crowd_that_loses_one(seed: u64, brings: bool, kills: bool) -> u64 {
    let peers = if brings { Peers::with_dir(seed, 3) } else { Peers::new(seed, 3) };
    let mut crowd = Crowd::new(peers, seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let (out, when) = (1 + draw(2) as usize, 300 + draw(700));
    for step in 0..1500 {
        if step == when {
            crowd.lose(out);
        }
        if draw(60) == 0 {
            crowd.hears();
        }
        let one = draw(3) as usize;
        if kills && draw(100) == 0 && crowd.dead != Some(one) {
            crowd.peers.sims[one].kill_at(1 + draw(12) as i64);
        }
        // All machines have their turns.
        let turns = crowd.idle.len().min(1);
        crowd.idle.rotate_left(turns);
        crowd.step(&mut draw, false);
    }
    crowd.hears();
    crowd.hears();
    crowd.finish();
    crowd.check();
    crowd.answered
}

pub(super) fn crowds(most: u64, brings: bool, kills: bool) {
    let walk = |seed| crowd_with(seed, brings, kills, |peers| peers.may_have_trouble(seed));
    let [answered] = walk_all(most, |seed| [walk(seed)]);
    eprintln!("{answered} answers");
}

#[test]
fn of_many_who_make_or_move_a_name_at_once_one_does() {
    crowds(30, false, false);
}

#[test]
fn of_many_who_make_or_move_a_name_one_does_also_if_servers_die_meanwhile() {
    crowds(30, false, true);
}

#[test]
fn of_many_one_does_where_they_bring_all_to_one_directory() {
    crowds(20, true, false);
}

#[test]
fn so_it_is_if_servers_die_meanwhile() {
    crowds(20, true, true);
}

#[test]
fn who_comes_after_a_client_that_died_with_its_server_gets_no_answer_of_its() {
    assert!(crowd(489, true, true) > 0);
}

#[test]
fn those_who_keep_what_they_have_while_they_look_wait_for_each_other() {
    let caught = |seed| {
        let flawed = || without(Step::Release, || crowd(seed, false, false));
        std::panic::catch_unwind(flawed).is_err()
    };
    assert!((0..400).any(caught));
}

fn crowds_that_lose_one(most: u64, brings: bool, kills: bool) {
    for seed in seeds(most) {
        let lost = std::panic::catch_unwind(|| crowd_that_loses_one(seed, brings, kills));
        assert!(lost.is_ok_and(|answered| answered > 0), "TERRAL_SEED={seed}");
    }
}

#[test]
fn of_many_at_once_nobody_waits_for_ever_for_a_machine_that_was_removed() {
    crowds_that_lose_one(15, false, false);
    crowds_that_lose_one(15, true, false);
}

#[test]
fn nor_does_anybody_if_servers_die_meanwhile() {
    crowds_that_lose_one(15, false, true);
    crowds_that_lose_one(15, true, true);
}
