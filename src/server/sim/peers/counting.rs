//! Many at once on all servers who count by transactions, in directories of all three, and others
//! who look: each count counts once, nobody sees a part of one, and all get their turns.

use std::time::Duration;

use terral_format::ids::SessionSlot;
use terral_format::wire::message::{RenameHow, Reply, Request};
use terral_format::wire::transactions::Operation;
use terral_format::{ErrorKind, frame};
use terral_transport::requests::Taken;

use super::further::makes;
use super::{Handled, Peers, handling, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::sim::world::Virtual;

/// Where there is one name, which is the count; the second one is another server's.
const COUNTED: [(usize, &str); 2] = [(2, "a"), (1, "b")];
/// Where there is one for each count.
const LOG: (usize, &str) = (0, "c");

/// What somebody is at.
#[derive(Clone, Copy)]
enum Doing {
    /// He looks at the first directory.
    First,
    /// Then at the other one.
    Second(u64),
    /// And at the first one again.
    Again(u64, u64),
    /// He counts on from here.
    Counts(u64),
}

/// Somebody, who always asks for something.
struct Player {
    at: usize,
    client: usize,
    doing: Doing,
    taken: Option<Taken>,
    counts: bool,
    /// In which order.
    turned: bool,
}

/// All of them.
struct Counters {
    peers: Peers,
    players: Vec<Player>,
    /// How often each server's programs counted.
    counted: [u64; 3],
    /// How many died who may have counted.
    unknown: u64,
    looks: u64,
    /// Nobody begins anything.
    over: bool,
}

fn count_in(names: &[u8]) -> u64 {
    let digits = std::str::from_utf8(names).expect("digits");
    digits.parse().expect("a number")
}

impl Counters {
    fn new(seed: u64) -> Self {
        let mut peers = Peers::new(seed, 3);
        for (at, path) in COUNTED.into_iter().chain([LOG]) {
            peers.make_directory(at, path.as_bytes()).expect("made");
        }
        makes(&mut peers, 0, b"a/0", b"it counts");
        makes(&mut peers, 2, b"b/0", b"it counts, too");
        let mut players = Vec::new();
        for (at, which) in (0..3).flat_map(|at| (0..3).map(move |which| (at, which))) {
            let client = peers.sims[at].connect();
            let (doing, counts, turned) = (Doing::First, which > 0, which > 1);
            players.push(Player { at, client, doing, taken: None, counts, turned });
        }
        Counters { peers, players, counted: [0; 3], unknown: 0, looks: 0, over: false }
    }

    /// What somebody asks next.
    fn asks(&mut self, which: usize) -> Taken {
        let Player { at, client, doing, turned, .. } = self.players[which];
        let [one, other] = COUNTED.map(|(_, directory)| directory);
        let of = |directory: &str, count: u64| format!("{directory}/{count}").into_bytes();
        let sim = &mut self.peers.sims[at];
        let count = match doing {
            Doing::First | Doing::Again(..) => {
                let list = Request::List { path: one.as_bytes(), after: b"" };
                return sim.asking(client, list).expect("encodes");
            }
            Doing::Second(_) => {
                let list = Request::List { path: other.as_bytes(), after: b"" };
                return sim.asking(client, list).expect("encodes");
            }
            Doing::Counts(count) => count,
        };
        let moved = |directory| Operation::Rename {
            from: of(directory, count),
            to: of(directory, count + 1),
            how: RenameHow::Keep,
        };
        let made = Operation::MakeDirectory { path: of(LOG.1, count), mode: 0o755 };
        let mut steps = vec![moved(one), moved(other), made];
        if turned {
            steps.reverse();
        }
        let encoded = frame::encode(&steps).expect("it is short");
        sim.asking(client, Request::Transact(&encoded)).expect("encodes")
    }

    /// Somebody's request is carried out, or tried again.
    fn poke(&mut self, which: usize) {
        if self.peers.is_stopped(self.players[which].at) {
            return;
        }
        if self.players[which].taken.is_none() {
            if self.over {
                return;
            }
            let taken = self.asks(which);
            self.players[which].taken = Some(taken);
        }
        let Player { at, client, .. } = self.players[which];
        let session: SessionSlot = self.peers.sims[at].clients[client].session;
        let taken = self.players[which].taken.as_ref().expect("it was asked");
        let outcome =
            self.peers.sims[at].with(|server| handling::handle(&mut server.lock(), session, taken));
        self.peers.collect(at);
        self.peers.reconnect();
        if let Some(Handled::Answer(reply)) = outcome {
            self.players[which].taken = None;
            self.answered(which, frame::decode(&reply).expect("an answer"));
        }
    }

    fn answered(&mut self, which: usize, reply: Reply) {
        let Player { at, doing, counts, .. } = self.players[which];
        let next = match (doing, reply) {
            (Doing::Counts(_), Reply::Done) => {
                self.counted[at] += 1;
                Doing::First
            }
            (Doing::Counts(_), Reply::Failed(error)) => {
                // Somebody else has counted.
                let usual = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Exists);
                assert!(usual, "{error}");
                Doing::First
            }
            (doing, Reply::Names { names, .. }) => {
                let [name] = &names[..] else { panic!("{names:?}") };
                let count = count_in(&name.name);
                match doing {
                    Doing::First => Doing::Second(count),
                    Doing::Second(first) => Doing::Again(first, count),
                    Doing::Again(first, other) => {
                        let parts = first <= other && other <= count;
                        assert!(parts, "{at}: {first}, then {other}, then {count}");
                        self.looks += 1;
                        if counts { Doing::Counts(count) } else { Doing::First }
                    }
                    Doing::Counts(_) => panic!("names of a transaction"),
                }
            }
            (_, reply) => panic!("{reply:?}"),
        };
        self.players[which].doing = next;
    }

    /// Somebody dies, and another one comes.
    fn end(&mut self, which: usize) {
        let Player { at, client, doing, .. } = self.players[which];
        if self.peers.is_stopped(at) {
            return;
        }
        let counts = matches!(doing, Doing::Counts(_)) && self.players[which].taken.is_some();
        self.unknown += u64::from(counts);
        self.peers.sims[at].end(client);
        self.peers.collect(at);
        self.peers.reconnect();
        let client = self.peers.sims[at].connect();
        let player = &mut self.players[which];
        (player.client, player.doing, player.taken) = (client, Doing::First, None);
        self.peers.collect(at);
    }

    fn step(&mut self, draw: &mut impl FnMut(u64) -> u64, wrong: bool) {
        let which = draw(self.players.len() as u64) as usize;
        let (one, other) = (draw(3) as usize, draw(3) as usize);
        match (draw(8), draw(20)) {
            (0..=3, _) => self.poke(which),
            (4..=6, _) => self.peers.carry_any(draw),
            (7, 0) if wrong => self.end(which),
            (7, 1) if wrong && one != other => self.peers.cut(one, other),
            (7, 2) if wrong && self.peers.stopped.is_none() => {
                self.peers.stopped = Some((one, Duration::from_secs(draw(20))));
            }
            (7, 3) => self.peers.pass(Duration::from_millis(draw(1000))),
            _ => {}
        }
    }

    /// All that was begun comes to its end.
    fn finish(&mut self) {
        self.over = true;
        self.peers.stopped = None;
        for _ in 0..2000 {
            if self.players.iter().all(|player| player.taken.is_none()) {
                return;
            }
            (0..self.players.len()).for_each(|which| self.poke(which));
            self.peers.settle();
            self.peers.pass(Duration::from_millis(100));
        }
        panic!("somebody waits for ever");
    }

    /// All see the same count, which is how often somebody counted.
    fn check(&mut self) {
        let counted: u64 = self.counted.iter().sum();
        for at in 0..3 {
            let log = self.peers.list(at, LOG.1.as_bytes()).expect("it is there").len() as u64;
            assert!((counted..=counted + self.unknown).contains(&log), "{log}, not {counted}");
            for (_, directory) in COUNTED {
                let names = self.peers.list(at, directory.as_bytes()).expect("it is there");
                let [(name, _)] = &names[..] else { panic!("{names:?}") };
                assert_eq!(count_in(name), log, "{directory} on {at}");
            }
        }
    }
}

/// Gives how often each server's programs counted, and how often somebody looked.
fn count(seed: u64, wrong: bool) -> [u64; 4] {
    let mut counters = Counters::new(seed);
    if wrong {
        counters.peers.may_have_trouble(seed);
    }
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for step in 0..if wrong { 6000 } else { 3000 } {
        if wrong && draw(100) == 0 {
            counters.peers.sims[draw(3) as usize].kill_at(1 + draw(12) as i64);
        }
        if wrong && step % 16 == 0 {
            counters.peers.more_trouble();
        }
        counters.step(&mut draw, wrong);
    }
    counters.peers.trouble_ends();
    counters.finish();
    counters.check();
    let [one, other, third] = counters.counted;
    [one, other, third, counters.looks]
}

fn all_count(most: u64, wrong: bool) {
    let all = walk_all(most, |seed| count(seed, wrong));
    eprintln!("counted by each, and looks: {all:?}");
    assert!(all.iter().all(|count| *count > 0), "{all:?}");
}

#[test]
fn of_many_on_all_machines_each_counts_once_and_nobody_sees_a_part() {
    all_count(20, false);
}

#[test]
fn so_it_is_if_servers_and_programs_die_meanwhile() {
    all_count(20, true);
}

#[test]
fn servers_that_do_one_operation_after_the_other_are_caught() {
    let flawed = |seed| without(Step::Together, || count(seed, false));
    let caught = |seed| std::panic::catch_unwind(|| flawed(seed)).is_err();
    assert!((0..20).any(caught));
}
