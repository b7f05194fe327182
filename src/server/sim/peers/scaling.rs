//! What a partition does in a second as it grows: a server does one thing at a time, a request or a
//! frame, each for as long, and a frame is under way for as long; no time passes but that.
//!
//! Not here: how long these are in truth (`terral bench --hosts`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::frame;
use terral_format::ids::DescriptionSlot;
use terral_format::wire::message::{OpenHow, Reply, Request};
use terral_transport::requests::Taken;

use super::{Handled, Peers};
use crate::sim::client::CREATE;

/// Nanoseconds that one thing takes a server.
const SERVICE: u64 = 10_000;
/// Nanoseconds that a frame is under way.
const DELAY: u64 = 50_000;
/// Files that each server's program makes in the directory that it has made before.
const FILES: u32 = 400;

/// Nobody takes a directory for busy any more after that.
const AT_REST: Duration = Duration::from_secs(3);

/// What happens at a server.
enum Event {
    /// Its program asks, or may go on.
    Request,
    /// Something comes from another one.
    Frame(usize, Vec<u8>),
}

/// A program that makes a directory and files in it, one after the other.
struct Program {
    made: u32,
    /// So many things it is to have made.
    goal: u32,
    /// The request that has no answer yet.
    asks: Option<Taken>,
    /// What is to be closed before the next.
    opened: Option<(DescriptionSlot, u32)>,
    waits: bool,
}

struct Scaled {
    peers: Peers,
    /// The directories of all are in one: as objects of one container are, which is the first
    /// server's.
    container: bool,
    programs: Vec<Program>,
    /// Until when each server is busy.
    busy: Vec<u64>,
    /// By time, and by order among those of one time.
    events: BTreeMap<(u64, u64), (usize, Event)>,
    order: u64,
    frames: u64,
}

impl Scaled {
    fn new(servers: usize) -> Self {
        let program = |_| Program { made: 0, goal: 0, asks: None, opened: None, waits: false };
        Scaled {
            peers: Peers::new(1, servers),
            container: false,
            programs: (0..servers).map(program).collect(),
            busy: vec![0; servers],
            events: BTreeMap::new(),
            order: 0,
            frames: 0,
        }
    }

    fn at(&mut self, time: u64, server: usize, event: Event) {
        self.order += 1;
        self.events.insert((time, self.order), (server, event));
    }

    /// What a program asks next; `None`: it is through.
    fn next(&mut self, at: usize) -> Option<Taken> {
        let program = &mut self.programs[at];
        if program.asks.is_none() && program.opened.is_none() && program.made == program.goal {
            return None;
        }
        if program.asks.is_none() {
            let above = if self.container { "container/" } else { "d" };
            let path = match program.made {
                0 => format!("{above}{at}"),
                file => format!("{above}{at}/{file:032x}"),
            };
            let request = match (program.opened.take(), program.made) {
                (Some((description, nonce)), _) => Request::Close { description, nonce },
                (None, 0) => Request::MakeDirectory { path: path.as_bytes(), mode: 0o755 },
                (None, _) => {
                    let how = OpenHow { exclusive: true, ..CREATE };
                    Request::Open { path: path.as_bytes(), how }
                }
            };
            let client = self.peers.clients[at];
            let taken = self.peers.sims[at].asking(client, request).expect("encodes");
            program.asks = Some(taken);
        }
        let asks = program.asks.as_ref()?;
        let (index, sequence, told) = (asks.index, asks.sequence, asks.told);
        Some(Taken { index, sequence, told, message: asks.message.clone() })
    }

    /// Whether the program goes on.
    fn ask(&mut self, at: usize) -> bool {
        let Some(taken) = self.next(at) else { return false };
        let session = self.peers.sims[at].clients[self.peers.clients[at]].session;
        let handled = self.peers.handle(at, session, &taken);
        let program = &mut self.programs[at];
        match handled.expect("it lives") {
            Handled::Answer(reply) => {
                program.asks = None;
                match frame::decode(&reply).expect("an answer") {
                    Reply::Opened { description, nonce, .. } => {
                        program.opened = Some((description, nonce));
                    }
                    Reply::Failed(error) => panic!("{at}: {error}"),
                    _ => program.made += 1,
                }
                true
            }
            // What it waits for may be here: it looks once more.
            Handled::Fetch => {
                let news = self.peers.sims[at].with(|server| {
                    server.lock().members.as_mut().is_some_and(|members| members.take_news())
                });
                program.waits = news != Some(true);
                !program.waits
            }
            Handled::Park => panic!("there is memory"),
        }
    }

    /// All programs make so much, beginning at once. Gives how long that takes, and how many frames
    /// come.
    fn make(&mut self, goal: u32) -> (Duration, u64) {
        let (begin, frames) = (self.busy.iter().copied().max().unwrap_or_default(), self.frames);
        for at in 0..self.programs.len() {
            self.programs[at].goal = goal;
            self.at(begin, at, Event::Request);
        }
        self.run();
        assert!(self.programs.iter().all(|program| program.made == goal));
        let end = self.busy.iter().copied().max().unwrap_or_default();
        (Duration::from_nanos(end - begin), self.frames - frames)
    }

    /// Everything happens.
    fn run(&mut self) {
        while let Some(((time, _), (at, event))) = self.events.pop_first() {
            let begin = time.max(self.busy[at]);
            let end = begin + SERVICE;
            self.busy[at] = end;
            let goes_on = match event {
                Event::Request => self.ask(at),
                Event::Frame(from, bytes) => {
                    self.frames += 1;
                    self.peers.arrive((from, at), &bytes);
                    self.peers.work(at);
                    std::mem::take(&mut self.programs[at].waits)
                }
            };
            if goes_on {
                self.at(end, at, Event::Request);
            }
            self.fly(end, at);
        }
    }

    /// What a server has said goes on its way.
    fn fly(&mut self, now: u64, from: usize) {
        let its = self.peers.links.iter_mut().filter(|((by, _), _)| *by == from);
        let said: Vec<_> = its
            .flat_map(|((_, to), link)| std::mem::take(link).into_iter().map(|bytes| (*to, bytes)))
            .collect();
        for (to, bytes) in said {
            self.at(now + DELAY, to, Event::Frame(from, bytes));
        }
    }
}

/// Files made in a second by all, frames that came for the directories, and for the files.
fn rate(servers: usize, container: bool) -> (f64, [u64; 2]) {
    let mut scaled = Scaled::new(servers);
    if container {
        scaled.container = true;
        scaled.peers.make_directory(0, b"container").expect("made");
    }
    let (_, for_directories) = scaled.make(1);
    // Where they are is asked for as long as others may make some.
    scaled.peers.pass(AT_REST);
    let before = scaled.peers.carried;
    let (took, for_files) = scaled.make(1 + FILES);
    assert_eq!(scaled.peers.carried, before, "all frames are counted");
    let files = servers as f64 * f64::from(FILES);
    (files / took.as_secs_f64(), [for_directories, for_files])
}

#[test]
fn eight_times_as_many_machines_make_seven_times_as_many_files_in_directories_of_their_own() {
    let [(few, _), (many, [for_directories, for_files])] =
        [8, 64].map(|servers| rate(servers, false));
    println!(
        "8 servers: {few:.0} files a second; 64: {many:.0}, {:.2} times as many; \
         {for_directories} frames for 64 directories, {for_files} for the files",
        many / few
    );
    assert!(many >= 7.0 * few, "{many:.0} and {few:.0} a second");
    assert!(for_directories <= 64 * 8, "{for_directories} frames for 64 directories");
    // Where its directory is each asks once, and of the files nothing.
    assert!(for_files <= 64 * 4, "{for_files} frames for files in directories of one's own");
}

#[test]
fn eight_storage_servers_create_seven_and_a_half_times_as_many_objects_as_one() {
    let [(one, _), (eight, [for_directories, for_objects])] =
        [1, 8].map(|servers| rate(servers, true));
    println!(
        "1 server: {one:.0} objects of one container a second; 8: {eight:.0}, {:.2} times as \
         many; {for_directories} frames for the servers' directories, {for_objects} for {} objects",
        eight / one,
        8 * FILES
    );
    assert!(eight >= 7.5 * one, "{eight:.0} and {one:.0} a second");
}
