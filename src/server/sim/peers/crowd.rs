//! Many requests at once, on all servers: of those who make one name, or take it away, one does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::wire::message::{OpenHow, Reply, Request};
use terral_format::{ErrorKind, frame};
use terral_transport::requests::Taken;

use super::{Handled, Peers, handling, seeds};
use crate::sim::client::CREATE;
use crate::sim::world::Virtual;

/// A request that has no answer yet.
struct Open {
    at: usize,
    client: usize,
    taken: Taken,
    path: Vec<u8>,
    /// Whether it makes the name, or takes it away.
    makes: bool,
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
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut peers = Peers::new(seed, 3);
        for (at, path) in [b"a", b"b", b"c"].into_iter().enumerate() {
            peers.make_directory(at, path).expect("made");
        }
        let mut idle = Vec::new();
        for at in 0..3 {
            idle.extend((0..3).map(|_| (at, peers.sims[at].connect())));
        }
        let (open, made, unknown, answered) = Default::default();
        Crowd { peers, idle, open, made, unknown, answered }
    }

    fn begin(&mut self, draw: &mut impl FnMut(u64) -> u64) {
        let free = self.idle.iter().rposition(|(at, _)| !self.peers.is_stopped(*at));
        let Some((at, client)) = free.map(|free| self.idle.swap_remove(free)) else { return };
        let path = vec![b'a' + draw(3) as u8, b'/', b'a' + draw(3) as u8];
        let (what, path_of) = (draw(4), path.clone());
        let how = OpenHow { exclusive: true, ..CREATE };
        let request = match what {
            0 => Request::MakeDirectory { path: &path_of, mode: 0o755 },
            1 => Request::Open { path: &path_of, how },
            2 => Request::RemoveDirectory(&path_of),
            _ => Request::Unlink(&path_of),
        };
        let taken = self.peers.sims[at].asking(client, request).expect("encodes");
        self.open.push(Open { at, client, taken, path, makes: what < 2 });
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
        let Open { path, makes, .. } = self.open.swap_remove(which);
        self.idle.push((at, client));
        self.answered += 1;
        match frame::decode(&reply).expect("an answer") {
            Reply::Failed(error) => {
                let usual = [
                    ErrorKind::Exists,
                    ErrorKind::NotFound,
                    ErrorKind::IsDirectory,
                    ErrorKind::NotDirectory,
                ];
                assert!(usual.contains(&error.kind), "{error:?}");
            }
            _ => *self.made.entry(path).or_default() += if makes { 1 } else { -1 },
        }
    }

    /// A client dies while it waits: nobody knows whether that was done.
    fn end(&mut self, which: usize) {
        if self.peers.is_stopped(self.open[which].at) {
            return;
        }
        let Open { at, client, path, .. } = self.open.swap_remove(which);
        self.unknown.insert(path);
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

    fn check(&mut self) {
        for directory in [b"a", b"b", b"c"] {
            let all: Vec<_> =
                (0..3).map(|at| self.peers.list(at, directory).expect("listed")).collect();
            assert!(all.iter().all(|names| *names == all[0]), "they see one directory");
            let is = |path: &[u8]| all[0].iter().any(|(name, _)| path.ends_with(name));
            let known = self.made.iter().filter(|(path, _)| !self.unknown.contains(*path));
            for (path, made) in known.filter(|(path, _)| path.starts_with(directory)) {
                assert_eq!(*made, i32::from(is(path)), "{path:?}");
            }
        }
    }
}

fn crowd(seed: u64, kills: bool) -> u64 {
    let mut crowd = Crowd::new(seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..1500 {
        if kills && draw(100) == 0 {
            crowd.peers.sims[draw(3) as usize].kill_at(1 + draw(12) as i64);
        }
        crowd.step(&mut draw, kills);
    }
    crowd.finish();
    crowd.check();
    crowd.answered
}

fn crowds(most: u64, kills: bool) {
    let mut answered = 0;
    for seed in seeds(most) {
        match std::panic::catch_unwind(|| crowd(seed, kills)) {
            Ok(more) => answered += more,
            Err(_) => panic!("seed {seed}"),
        }
    }
    eprintln!("{answered} answers");
}

#[test]
fn of_many_who_make_a_name_at_once_one_does() {
    crowds(30, false);
}

#[test]
fn of_many_who_make_a_name_one_does_also_if_servers_die_meanwhile() {
    crowds(30, true);
}
