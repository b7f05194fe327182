//! Programs that wait for locks of each other over files of two homes: who would for ever is told
//! so, and nobody else. Not here: that each lock is granted if nothing is in its way (`locks`).

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::ids::FileSlot;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::locks::{Lock, LockAsk, LockKind, LockRange, Locker};
use terral_format::wire::message::{OpenFile, Reply, Request};
use terral_format::{ErrorKind, Result};

use super::locks::{Locks, Opener, Program, WRITE};
use super::walk_all;
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::sim::client::Opened;
use crate::sim::world::Virtual;

/// The one thread of each.
const THREAD: u32 = 9;

/// What a program waits for: in which file, and which byte of it.
type Wanted = (usize, u64);

/// Programs that take locks of two files, which two machines have, one after the other, and wait
/// for each; the last ones of the three machines, two on each.
struct Waiters {
    locks: Locks,
    /// Of each program the file of the second machine, open.
    second: Vec<Opener>,
    has: Vec<BTreeSet<Wanted>>,
    waits: Vec<Option<(Wanted, u32)>>,
    /// What each has waited for until a moment ago, which its home counts for so long.
    gave_up: Vec<Vec<(Wanted, Duration)>>,
    /// The waits that were in a circle once.
    circles: BTreeSet<u32>,
    begun: u32,
    refused: u64,
    granted: u64,
}

impl Waiters {
    fn new(seed: u64) -> Self {
        let mut locks = Locks::new(seed);
        locks.peers.create(1, b"b").expect("made");
        for sim in &mut locks.peers.sims {
            sim.with(|server| {
                let mut state = server.lock();
                let now = state.world.now();
                let members = state.members.as_mut().expect("it is one");
                members.others().into_iter().for_each(|with| members.connects(with, true, now));
            });
        }
        let second = locks.programs.clone().into_iter().map(|Program { at, client, .. }| {
            let request = Request::Open { path: b"b", how: WRITE };
            match locks.peers.ask_as(at, client, request) {
                Ok(Reply::Opened { description, nonce, file }) => {
                    Opener { file, description, nonce }
                }
                other => panic!("{other:?}"),
            }
        });
        let second = second.collect();
        let (has, waits, gave_up) = (vec![BTreeSet::new(); 6], vec![None; 6], vec![vec![]; 6]);
        let circles = BTreeSet::new();
        Waiters { locks, second, has, waits, gave_up, circles, begun: 0, refused: 0, granted: 0 }
    }

    fn opener(&self, which: usize, of: usize) -> Opener {
        if of == 0 { self.locks.programs[which].open[0] } else { self.second[which] }
    }

    /// Whether a lock was taken, or given back, by a program that waits if need be.
    fn sets(
        &mut self,
        which: usize,
        of: usize,
        (range, kind, wait): (LockRange, LockKind, u32),
    ) -> Result<bool> {
        let Program { at, client, .. } = self.locks.programs[which];
        let Opener { file, description, nonce } = self.opener(which, of);
        let (locker, ino) = (Locker::Process, file.ino);
        let ask = LockAsk { ino, description, nonce, locker, range, kind };
        let peers = &mut self.locks.peers;
        if file.slot == FileSlot::FAR {
            let request = Request::Far(FarFile::Lock { ask, wait });
            return peers.ask_as(at, client, request).map(|_| true);
        }
        let opened = Opened::new(OpenFile { file, description, nonce }, None);
        let owner = peers.sims[at].locker(client, &opened, locker);
        let lock = Lock { ino, owner, range, kind };
        let done = peers.sims[at].lock(client, &opened, (locker, lock));
        peers.collect(at);
        let says = match done {
            true => Request::StopWaiting(THREAD),
            false => Request::LockBlocked { ask, waiter: THREAD },
        };
        peers.ask_as(at, client, says).map(|_| done)
    }

    fn gives_all_back(&mut self, which: usize) {
        for of in [0, 1] {
            let done = self.sets(which, of, (LockRange::ALL, LockKind::Unlock, 0));
            assert_eq!(done, Ok(true));
        }
        self.has[which].clear();
    }

    /// Whether who waits so would for ever, by what each has and waits for. At one home they count
    /// who has just given up waiting there, too.
    fn is_circle(&self, which: usize, at_home: Option<usize>) -> bool {
        let (mut reached, mut next) = (BTreeSet::new(), vec![which]);
        while let Some(at) = next.pop() {
            let gave_up = self.gave_up[at].iter().map(|(wanted, _)| *wanted);
            let gave_up = gave_up.filter(|_| at_home.is_some());
            let its = self.waits[at].map(|(wanted, _)| wanted).into_iter().chain(gave_up);
            let its = its.filter(|(of, _)| at_home.is_none_or(|home| home == *of));
            let holders = its.filter_map(|wanted| self.holder(wanted));
            next.extend(holders.filter(|holder| reached.insert(*holder)));
        }
        reached.contains(&which)
    }

    fn holder(&self, wanted: Wanted) -> Option<usize> {
        self.has.iter().position(|has| has.contains(&wanted))
    }

    /// Who of those that wait would for ever, if nobody gave up.
    fn notes_circles(&mut self) {
        let all = self.waits.iter().enumerate();
        let waits = all.filter_map(|(which, wait)| Some((which, (*wait)?.1)));
        let new: Vec<_> = waits.filter(|(which, _)| self.is_circle(*which, None)).collect();
        self.circles.extend(new.into_iter().map(|(_, wait)| wait));
    }

    /// A signal handler has run, and the program does something else.
    fn gives_up(&mut self, which: usize) {
        let Some((wanted, _)) = self.waits[which].take() else { return };
        let Program { at, client, .. } = self.locks.programs[which];
        let stops = Request::StopWaiting(THREAD);
        self.locks.peers.ask_as(at, client, stops).expect("heard");
        if self.opener(which, wanted.0).file.slot == FileSlot::FAR {
            self.gave_up[which].push((wanted, Duration::from_millis(500)));
        }
    }

    fn pass(&mut self, time: Duration) {
        self.locks.peers.pass(time);
        for gave_up in &mut self.gave_up {
            gave_up.retain_mut(|(_, left)| {
                *left = left.saturating_sub(time);
                !left.is_zero()
            });
        }
    }

    /// A program takes one more, or goes on waiting, or has had enough.
    fn step(&mut self, which: usize, draw: &mut impl FnMut(u64) -> u64) {
        let (wanted, wait) = match self.waits[which] {
            Some(_) if draw(12) == 0 => return self.gives_up(which),
            Some(waits) => waits,
            None if draw(4) == 0 => return self.gives_all_back(which),
            None => {
                self.begun += 1;
                ((draw(2) as usize, draw(3)), self.begun)
            }
        };
        self.waits[which] = Some((wanted, wait));
        self.notes_circles();
        let range = LockRange { first: wanted.1, last: wanted.1 };
        match self.sets(which, wanted.0, (range, LockKind::Exclusive, wait)) {
            Ok(true) => {
                let others = self.has.iter().enumerate().filter(|(other, _)| *other != which);
                assert!(others.into_iter().all(|(_, has)| !has.contains(&wanted)), "{wanted:?}");
                self.has[which].insert(wanted);
                self.waits[which] = None;
                self.granted += 1;
            }
            Ok(false) => {}
            Err(error) if error.kind == ErrorKind::WouldBlock => {}
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Deadlock);
                let mut homes = [Some(0), Some(1)].into_iter();
                let is = homes.any(|at_home| self.is_circle(which, at_home));
                let was = self.circles.contains(&wait);
                assert!(is || was, "{which} was told so, and there was none");
                self.refused += 1;
                self.waits[which] = None;
                // It gives up what it has, as programs do.
                self.gives_all_back(which);
            }
        }
    }
}

/// All take locks, and wait, for a while; then all who wait get what they wait for, or are told
/// that they never would.
fn waits_walk(seed: u64) -> [u64; 2] {
    let mut all = Waiters::new(seed);
    all.locks.peers.may_have_trouble(seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..150 {
        let which = draw(6) as usize;
        all.step(which, &mut draw);
        // Who waits says so again in time.
        for which in 0..6 {
            if all.waits[which].is_some() {
                all.step(which, &mut draw);
            }
        }
        all.pass(Duration::from_millis(draw(150)));
    }
    all.locks.peers.trouble_ends();
    for round in 0.. {
        assert!(round < 200, "they wait for ever: {:?} {:?}", all.waits, all.has);
        for which in 0..6 {
            match all.waits[which] {
                Some(_) => all.step(which, &mut |of| draw(of).max(1)),
                None => all.gives_all_back(which),
            }
        }
        if all.waits.iter().all(Option::is_none) {
            break;
        }
        all.pass(Duration::from_millis(100));
    }
    [all.granted, all.refused]
}

#[test]
fn who_waits_for_ever_over_files_of_several_machines_is_told_so_and_nobody_else() {
    let all = walk_all(20, waits_walk);
    eprintln!("granted and refused: {all:?}");
    assert!(all.iter().all(|count| *count > 0));
}

#[test]
fn a_server_that_believes_in_a_circle_at_once_is_caught() {
    let flawed = |seed| without(Step::SayTwice, || waits_walk(seed));
    let caught = |seed| std::panic::catch_unwind(|| flawed(seed)).is_err();
    assert!((0..40).any(caught));
}
