//! Several servers in one test, members of one partition: what each says to the others goes over
//! links as bytes, and scripted clients of any of them use one namespace. None has a permanent
//! store.
//!
//! Not here: what networks do wrong (`terral_network::sim`), and the protocol alone
//! (`terral_partition`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use terral_format::ids::{Epoch, Member, ServerId, SessionSlot};
use terral_format::wire::far::{self, Said};
use terral_format::wire::message::{Kind, Name, OpenHow, Reply, Request, Seen, Target};
use terral_format::wire::peers::Frame;
use terral_format::wire::remembered::Memory;
use terral_format::wire::roster::{self, Certificate, Control, Partition, Secret};
use terral_format::wire::starting::Needed;
use terral_format::{Error, ErrorKind, Result, frame};
use terral_partition::effect::Input;
use terral_partition::members::{Standing, Table};
use terral_store::backing::scripted::Scripted;
use terral_transport::requests::Taken;

use capabilities::Counted;
use relay::Home;
use trouble::Trouble;

use super::Sim;
use super::client::CREATE;
use super::world::Virtual;
use crate::core::state::State;
use crate::core::world::World;
use crate::far::linking;
use crate::members::stepping;
use crate::requests::handling::{self, Outcome as Handled};
use crate::seeds::seeds;
use crate::sharing::{carrying, departing as leaving, letting_go, moving, restoring};

mod authority;
mod bytes;
mod capabilities;
mod committing;
mod counting;
mod creating;
mod crowd;
mod delegating;
mod departing;
mod dir;
mod exchanging;
mod fences;
mod fencing;
mod for_others;
mod for_users;
mod forming;
mod further;
mod garbage;
mod giving;
mod holding;
mod hostile_user;
mod idle;
mod keeping;
mod kept_names;
mod large;
mod lending;
mod let_go;
mod listing;
mod locks;
mod looks;
mod named_again;
mod owners;
mod placing;
mod pools;
mod preparing;
mod relay;
mod replacing;
mod returning;
mod scaling;
mod sessions;
mod succeeding;
mod transacting;
mod tree;
mod trouble;
mod updating;
mod users;
mod users_answered;
mod users_apart;

mod users_beside;
mod users_gone;
mod users_of_machines;
mod waiting;
mod walks;
mod whole;
mod whose;
mod witnessing;

const PARTITION: Partition = Partition { id: 1, secret: Secret([0; 32]), encrypted: false };

/// What frames begin with that are of moves of directories.
const OF_MOVES: &[u8] = b"of moves";
/// And those of directories that dead members had.
const OF_MEMORY: &[u8] = b"of memory";
/// And what members say that leave.
const OF_DEPARTURE: &[u8] = b"of departure";

fn member(at: usize) -> Member {
    Member::new(at as u16).expect("few")
}

/// All of them.
struct Peers {
    /// Their permanent store, if they have one.
    dir: Option<Scripted>,
    sims: Vec<Sim>,
    /// What is on its way, by from and to.
    links: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// A client of each.
    clients: Vec<usize>,
    /// Frames that arrived.
    carried: u64,
    /// The same, by from and to.
    came: BTreeMap<(usize, usize), u64>,
    /// What was asked of capabilities, by from and to.
    authority: BTreeMap<(usize, usize), Counted>,
    /// Servers that were killed, of each, as far as the others have heard.
    killed: Vec<u64>,
    /// Who does nothing for so long, though time passes for it.
    stopped: Option<(usize, Duration)>,
    /// Who does there what others ask of files.
    homes: Vec<Home>,
    /// Reads and writes of them so far.
    calls: u64,
    /// What goes wrong while somebody waits for an answer, if anything does.
    rough: Option<Virtual>,
    /// Who does not hear whom any more, as one of them was removed.
    unheard: BTreeSet<(usize, usize)>,
    /// Who is dead.
    dead: BTreeSet<usize>,
    /// Who says who is in.
    control: usize,
    /// Who inherits, if that is another than the control.
    heir: Option<usize>,
    /// What else goes wrong.
    trouble: Trouble,
    /// For whom those speak that are in.
    certificates: Vec<Certificate>,
    /// Who starts users' servers that are needed.
    starts: Option<fn(&mut State, Needed)>,
    /// Whether each but the first is a user's: who has a session with whom is known then.
    of_users: bool,
}

impl Peers {
    fn new(seed: u64, count: usize) -> Self {
        let sim = |at| Sim::without_dir(seed * 100 + at as u64);
        Peers::of((0..count).map(sim).collect(), None)
    }

    /// Those that have one permanent store.
    fn with_dir(seed: u64, count: usize) -> Self {
        Peers::with_dir_that_is(false, seed, count)
    }

    /// Those whose permanent store is far away, or is not.
    fn with_dir_that_is(far: bool, seed: u64, count: usize) -> Self {
        let clock = std::sync::Arc::new(Virtual::new(seed));
        let dir = Scripted::new(move || clock.wall_ns()).far(far);
        let sim = |at| Sim::sharing(seed * 100 + at as u64, &dir);
        Peers::of((0..count).map(sim).collect(), Some(dir.clone()))
    }

    /// Those that are no members yet.
    fn alone(sims: Vec<Sim>, dir: Option<Scripted>) -> Self {
        let count = sims.len();
        Peers {
            dir,
            sims,
            links: BTreeMap::new(),
            clients: vec![],
            carried: 0,
            came: BTreeMap::new(),
            authority: BTreeMap::new(),
            killed: vec![0; count],
            stopped: None,
            homes: (0..count as u64).map(Home::new).collect(),
            calls: 0,
            rough: None,
            unheard: BTreeSet::new(),
            dead: BTreeSet::new(),
            control: 0,
            heir: None,
            trouble: Trouble::default(),
            certificates: Vec::new(),
            starts: None,
            of_users: false,
        }
    }

    fn of(sims: Vec<Sim>, dir: Option<Scripted>) -> Self {
        let mut peers = Peers::alone(sims, dir);
        let count = peers.sims.len();
        let is_in = |at| (member(at), Standing::In(ServerId(at as u64)));
        let table = Table { epoch: Epoch(1), members: (0..count).map(is_in).collect() };
        for (at, sim) in peers.sims.iter_mut().enumerate() {
            let table = table.clone();
            sim.with(|server| {
                let mut state = server.lock();
                let me = (member(at), ServerId(at as u64));
                stepping::join(&mut state, me, member(0), PARTITION);
                carrying::hear(&mut state, Input::Table(table)).expect("there is room");
            });
        }
        peers.clients = peers.sims.iter_mut().map(Sim::connect).collect();
        peers.meet();
        peers
    }

    fn tell(&mut self, at: usize, input: Input) {
        let heard = self.sims[at].with(|server| carrying::hear(&mut server.lock(), input.clone()));
        assert!(heard.as_ref().is_none_or(|heard| heard.is_ok()), "{at}: {input:?}: {heard:?}");
        if let Input::Connected(with) = input {
            self.has_session(at, with, true);
            self.sims[at].with(|server| linking::connected(&mut server.lock(), with));
        }
        self.collect(at);
    }

    /// What a server wants to be sent goes on its way.
    fn collect(&mut self, at: usize) {
        let frames = self.sims[at].with(|server| {
            let mut state = server.lock();
            let frames = state.members.as_mut().map(|members| members.take_frames());
            let written = |(to, frame): (Member, Frame)| {
                let mut bytes = Vec::new();
                frame.write(&mut bytes).expect("our own frame");
                (to, bytes)
            };
            let frames = frames.unwrap_or_default().into_iter().map(written);
            let said = state.members.as_mut().map(|members| members.take_said());
            let of_moves = |(to, said): (Member, Control)| {
                let frame = said.frame().expect("our own frame");
                (to, [OF_MOVES, &frame].concat())
            };
            let said = said.unwrap_or_default().into_iter().map(of_moves);
            let memories = state.members.as_mut().map(|members| members.take_memories());
            let of_memory = |(to, memory): (Member, Memory)| {
                let frame = memory.frame().expect("our own frame");
                (to, [OF_MEMORY, &frame].concat())
            };
            let memories = memories.unwrap_or_default().into_iter().map(of_memory);
            let leaves = leaving::take_said(&mut state).map(|(to, leaves)| {
                let frame = leaves.frame().expect("our own frame");
                (to, [OF_DEPARTURE, &frame].concat())
            });
            let said = said.chain(memories).chain(leaves);
            let questions = linking::take_questions(&mut state, Vec::new).into_iter();
            let questions = questions.map(|(to, said)| (to, said.whole()));
            frames.chain(said).chain(questions).collect::<Vec<_>>()
        });
        let frames = frames.unwrap_or_default();
        frames.into_iter().for_each(|(to, bytes)| self.send(at, to, bytes));
    }

    fn send(&mut self, at: usize, to: Member, bytes: Vec<u8>) {
        let way = (at, to.number().into());
        // Who was invited may not have come.
        let has_come = usize::from(to.number()) < self.sims.len();
        if has_come && !self.trouble.loses(way) {
            self.links.entry(way).or_default().push_back(bytes);
        }
    }

    /// A frame arrives.
    fn arrive(&mut self, (from, to): (usize, usize), bytes: &[u8]) {
        if let Some(bytes) = bytes.strip_prefix(OF_DEPARTURE) {
            return self.hears_of_departure((from, to), bytes);
        }
        if self.unheard.contains(&(to, from)) {
            return;
        }
        if let Some(bytes) = bytes.strip_prefix(OF_MOVES) {
            return self.hears_of_move((from, to), bytes);
        }
        if let Some(bytes) = bytes.strip_prefix(OF_MEMORY) {
            return self.hears_of_memory((from, to), &bytes[1..]);
        }
        match far::said(bytes) {
            Some(Said::Question) => self.is_asked(to, member(from), bytes),
            Some(Said::Answer) => {
                let heard = self.sims[to]
                    .with(|server| linking::answered(&mut server.lock(), member(from), bytes));
                assert!(heard.is_none_or(|heard| heard.is_ok()));
                self.collect(to);
            }
            None => {
                let frame = Frame::read(bytes).expect("what was sent");
                self.count_authority((from, to), &frame);
                self.tell(to, Input::Frame(frame));
            }
        }
    }

    fn hears_of_move(&mut self, (from, to): (usize, usize), bytes: &[u8]) {
        let Ok(roster::Said::Control(said)) = roster::Said::read(bytes) else {
            panic!("nothing else is said");
        };
        self.sims[to].with(|server| {
            let mut state = server.lock();
            let heard = match said.clone() {
                Control::Moving(said) => moving::heard(&mut state, member(from), said),
                Control::LettingGo(said) => letting_go::heard(&mut state, member(from), said),
                other => panic!("{other:?}"),
            };
            heard.expect("there is room");
            carrying::resume(&mut state).expect("it is logged");
        });
        self.collect(to);
    }

    fn hears_of_memory(&mut self, (from, to): (usize, usize), bytes: &[u8]) {
        let memory = Memory::of(bytes).expect("what was sent");
        self.sims[to].with(|server| {
            let mut state = server.lock();
            restoring::heard(&mut state, member(from), memory.clone()).expect("there is room");
            carrying::resume(&mut state).expect("it is logged");
        });
        self.collect(to);
    }

    /// One frame arrives. False: none is on its way.
    fn carry(&mut self) -> bool {
        self.reconnect();
        let stopped = self.stopped.map(|(at, _)| at);
        let trouble = &self.trouble;
        let links = self.links.iter_mut();
        let links = links.filter(|(way, _)| Some(way.1) != stopped && trouble.lets_through(**way));
        let mut next = links.filter_map(|(way, link)| Some((*way, link.pop_front()?)));
        let Some((way, bytes)) = next.next() else { return self.work_any() };
        self.carried += 1;
        *self.came.entry(way).or_default() += 1;
        self.arrive(way, &bytes);
        true
    }

    /// The session of two ends, and another one begins: what is under way in it is lost.
    fn cut(&mut self, one: usize, other: usize) {
        for (at, other) in [(one, other), (other, one)] {
            self.links.remove(&(at, other));
        }
        self.trouble.is_over(one, other);
        for (at, other) in [(one, other), (other, one)] {
            self.tell(at, Input::Connected(member(other)));
        }
    }

    fn is_stopped(&self, at: usize) -> bool {
        self.stopped.is_some_and(|(stopped, _)| stopped == at) || self.is_dead(at)
    }

    /// One frame arrives, of those that may be next.
    fn carry_any(&mut self, draw: &mut impl FnMut(u64) -> u64) {
        let ways: Vec<_> =
            self.links.iter().filter(|(_, link)| !link.is_empty()).map(|(way, _)| *way).collect();
        let goes =
            |way: &(usize, usize)| !self.is_stopped(way.1) && self.trouble.lets_through(*way);
        let ways: Vec<_> = ways.into_iter().filter(goes).collect();
        if ways.is_empty() {
            return;
        }
        let way = ways[draw(ways.len() as u64) as usize];
        if let Some(bytes) = self.links.get_mut(&way).and_then(VecDeque::pop_front) {
            self.arrive(way, &bytes);
            self.reconnect();
        }
    }

    /// All that is on its way arrives, and what that leads to.
    fn settle(&mut self) {
        for _ in 0..5_000 * self.sims.len() {
            if !self.carry() {
                return;
            }
        }
        panic!("they never stop talking");
    }

    /// What servers do in the background, and what it leads to between them.
    fn work_behind(&mut self, passes: Duration) {
        for at in 0..self.sims.len() {
            let time = self.trouble.by_clock(at, passes);
            match self.dir {
                Some(_) if !self.is_stopped(at) => self.sims[at].pass(time),
                _ => self.sims[at].world.pass(time),
            }
            if self.dir.is_some() && !self.is_stopped(at) {
                let done = self.sims[at].with(|server| carrying::resume(&mut server.lock()));
                assert!(done.is_none_or(|done| done.is_ok()));
                self.collect(at);
            }
        }
        self.trouble_passes(passes);
    }

    /// Time passes for all of them.
    fn pass(&mut self, time: Duration) {
        self.work_behind(time);
        self.start_needed();
        for at in 0..self.sims.len() {
            if !self.is_stopped(at) {
                self.tell(at, Input::Tick);
                self.sims[at].with(|server| linking::tick(&mut server.lock()));
                self.close_unused(at);
            }
        }
        self.stopped = self.stopped.filter(|(_, left)| *left > time);
        if let Some((_, left)) = &mut self.stopped {
            *left -= time;
        } else {
            self.settle();
        }
    }

    /// A server carries a request out, as far as it can.
    fn handle(&mut self, at: usize, session: SessionSlot, taken: &Taken) -> Option<Handled> {
        let handled =
            self.sims[at].with(|server| handling::handle(&mut server.lock(), session, taken));
        self.collect(at);
        handled
    }

    /// Asks a server, and waits for the answer.
    fn ask(&mut self, at: usize, request: Request<'_>) -> Result<Reply> {
        self.ask_as(at, self.clients[at], request)
    }

    /// The same, by another of its clients.
    fn ask_as(&mut self, at: usize, client: usize, request: Request<'_>) -> Result<Reply> {
        self.more_trouble();
        let taken = self.sims[at].asking(client, request)?;
        let session = self.sims[at].clients[client].session;
        let before = self.deaths();
        for _ in 0..1000 {
            let outcome = self.handle(at, session, &taken);
            self.go_wrong(before);
            self.reconnect();
            match outcome {
                Some(Handled::Answer(reply)) => {
                    return match frame::decode(&reply)? {
                        Reply::Failed(error) => Err(error),
                        reply => Ok(reply),
                    };
                }
                Some(Handled::Fetch) if self.carry() => {}
                Some(Handled::Fetch) if self.dir.is_some() && self.behind() => {}
                Some(Handled::Fetch) => self.pass(Duration::from_millis(200)),
                Some(Handled::Park) => panic!("there is memory"),
                None => {}
            }
        }
        Err(Error::new(ErrorKind::System, "it waits for ever"))
    }

    /// A step of what servers do in the background. Whether something is on its way then.
    fn behind(&mut self) -> bool {
        self.work_behind(Duration::from_millis(20));
        let mut links = self.links.iter().filter(|(way, _)| !self.is_stopped(way.1));
        links.any(|(way, link)| !link.is_empty() && self.trouble.lets_through(*way))
    }

    /// Servers that were killed so far.
    fn deaths(&self) -> u64 {
        self.sims.iter().map(|sim| sim.killed).sum()
    }

    /// Now and then a session is cut, or a server dies: one while somebody waits, as what both that
    /// ask and are asked forget, nobody knows.
    fn go_wrong(&mut self, before: u64) {
        let Some(rough) = &self.rough else { return };
        let count = self.sims.len() as u64;
        let one = rough.one_of(count) as usize;
        let other = (one + 1) % self.sims.len();
        match rough.one_of(40) {
            0 if self.deaths() == before => self.sims[one].kill(),
            1 | 2 => self.cut(one, other),
            _ => {}
        }
    }

    fn make_directory(&mut self, at: usize, path: &[u8]) -> Result<()> {
        self.ask(at, Request::MakeDirectory { path, mode: 0o755 }).map(drop)
    }

    fn create(&mut self, at: usize, path: &[u8]) -> Result<()> {
        let how = OpenHow { exclusive: true, ..CREATE };
        match self.ask(at, Request::Open { path, how })? {
            Reply::Opened { description, nonce, .. } => {
                self.ask(at, Request::Close { description, nonce }).map(drop)
            }
            other => panic!("{other:?}"),
        }
    }

    fn stat(&mut self, at: usize, path: &[u8]) -> Result<Seen> {
        match self.ask(at, Request::Stat(Target::Path(path)))? {
            Reply::Attributes(seen) => Ok(seen),
            other => panic!("{other:?}"),
        }
    }

    fn list(&mut self, at: usize, path: &[u8]) -> Result<Vec<(Vec<u8>, Kind)>> {
        let names = self.listing(at, path)?;
        Ok(names.into_iter().map(|name| (name.name, name.kind)).collect())
    }

    fn listing(&mut self, at: usize, path: &[u8]) -> Result<Vec<Name>> {
        match self.ask(at, Request::List { path, after: b"" })? {
            Reply::Names { names, last: true } => Ok(names),
            other => panic!("{other:?}"),
        }
    }
}

/// Walks with so many seeds, or those of the environment, and names one with which that fails.
/// Gives what was counted, in all.
fn walk_all<const N: usize>(
    most: u64,
    walk: impl Fn(u64) -> [u64; N] + std::panic::RefUnwindSafe,
) -> [u64; N] {
    seeds(most).fold([0; N], |all, seed| {
        let one = std::panic::catch_unwind(|| walk(seed));
        let one = one.unwrap_or_else(|_| panic!("TERRAL_SEED={seed}"));
        std::array::from_fn(|at| all[at] + one[at])
    })
}

#[test]
fn a_link_that_another_machine_makes_says_here_what_it_says_there() {
    let mut peers = Peers::new(2, 2);
    // The root is in use where it was born, so that is where the link is made.
    peers.make_directory(0, b"a").expect("made");
    let (path, target) = (&b"link"[..], &b"a/b"[..]);
    peers.ask(1, Request::MakeLink { path, target }).expect("made");
    for at in [1, 0] {
        let said = peers.ask(at, Request::ReadLink(path)).expect("it says something");
        assert_eq!(said, Reply::LinkTarget(target.to_vec()), "on {at}");
    }
}

/// Programs of root's that act as others.
#[test]
fn what_one_machine_makes_another_sees() {
    let mut peers = Peers::new(1, 3);
    peers.make_directory(1, b"a").expect("made");
    assert_eq!(peers.stat(2, b"a").expect("there").kind, Kind::Directory);
    peers.make_directory(2, b"a/b").expect("made");
    peers.make_directory(0, b"a/c").expect("made");
    let names = [(b"b".to_vec(), Kind::Directory), (b"c".to_vec(), Kind::Directory)];
    for at in 0..3 {
        assert_eq!(peers.list(at, b"a").expect("listed"), names, "{at}");
    }
}

/// What a client of a server asks, and whose it is.
fn asked(peers: &mut Peers, at: usize, path: &[u8], told: bool) -> (SessionSlot, Taken) {
    let client = peers.clients[at];
    let request = Request::MakeDirectory { path, mode: 0o755 };
    let taken = peers.sims[at].asking(client, request).expect("encodes");
    (peers.sims[at].clients[client].session, Taken { told, ..taken })
}

#[test]
fn who_waits_for_no_answer_has_nothing_done_elsewhere() {
    let mut peers = Peers::new(1, 3);
    peers.make_directory(1, b"a").expect("made");
    // What is at rest is shown, and counts until it is known that it was recalled.
    peers.pass(Duration::from_secs(2));
    for at in [0, 2] {
        peers.list(at, b"a").expect("listed");
    }
    let (waits, one) = asked(&mut peers, 0, b"a/c", false);
    assert!(matches!(peers.handle(0, waits, &one), Some(Handled::Fetch)));
    while let Some(bytes) = peers.links.get_mut(&(0, 1)).and_then(VecDeque::pop_front) {
        peers.tell(1, Input::Frame(Frame::read(&bytes).expect("what was sent")));
    }
    let (tells, other) = asked(&mut peers, 2, b"a/b", true);
    let sent = |peers: &Peers| peers.links.get(&(2, 1)).map_or(0, VecDeque::len);
    let before = sent(&peers);
    assert!(matches!(peers.handle(2, tells, &other), Some(Handled::Answer(_))));
    assert_eq!(sent(&peers), before, "nobody is asked");
    peers.settle();
    while !matches!(peers.handle(0, waits, &one), Some(Handled::Answer(_))) {
        assert!(peers.carry(), "it has what it needs");
    }
    peers.settle();
    for at in 0..3 {
        assert_eq!(peers.list(at, b"a").expect("listed"), [(b"c".to_vec(), Kind::Directory)]);
    }
}
