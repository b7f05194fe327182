//! Files that lose their names while they are open, on any machine: they stay as long as somebody
//! has them open, whoever dies, is cut off or is stopped, and no longer.

use std::time::Duration;

use terral_format::ErrorKind;
use terral_format::ids::{Ino, Number};
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{OpenHow, RenameHow, Reply, Request, Target};

use super::bytes::Open;
use super::{Peers, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::sim::client::{CREATE, READ};
use crate::sim::world::Virtual;
use crate::storage::eviction;

const PATHS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
/// Descriptions that are open at once, at most.
const OPEN_MAX: usize = 8;

/// Three machines, their files, and who has which open.
struct Holding {
    peers: Peers,
    /// What each name stands for: where it was born, as what, and its bytes.
    names: [Option<(usize, Ino, u64)>; PATHS.len()],
    open: Vec<(Open, u64)>,
    born: Vec<(usize, Ino)>,
    made: u64,
    /// How often a file was opened elsewhere, and its home not asked.
    alone: u64,
}

impl Holding {
    fn new(peers: Peers) -> Self {
        let (names, open, born, made, alone) = Default::default();
        Holding { peers, names, open, born, made, alone }
    }

    fn make(&mut self, at: usize, path: usize) {
        self.peers.create(at, PATHS[path]).expect("made");
        let open = self.peers.open(at, PATHS[path], OpenHow { create: false, ..CREATE });
        let open = open.expect("opened");
        self.made += 1;
        self.peers.write(open, Some(0), &self.made.to_le_bytes()).expect("written");
        self.peers.close(open).expect("closed");
        self.names[path] = Some((at, open.file.ino, self.made));
        self.born.push((at, open.file.ino));
    }

    fn open(&mut self, at: usize, path: usize) {
        let Some((home, _, bytes)) = self.names[path] else { return };
        let asked = self.peers.homes.iter().map(|home| home.done).sum::<u64>();
        let open = self.peers.open(at, PATHS[path], READ).expect("opened");
        let asks = self.peers.homes.iter().map(|home| home.done).sum::<u64>() != asked;
        self.alone += u64::from(home != at && !asks);
        self.open.push((open, bytes));
    }

    fn read(&mut self, which: usize) {
        let (open, bytes) = self.open[which];
        let read = self.peers.read(open, 0, 100).expect("it is open");
        assert_eq!(read, bytes.to_le_bytes(), "on {}", open.at);
    }

    fn close(&mut self, which: usize) {
        let (open, _) = self.open.swap_remove(which);
        self.peers.close(open).expect("closed");
    }

    /// What a name stood for has lost it, to another one or to none.
    fn rename(&mut self, at: usize, from: usize, to: usize) {
        let (old, new, how) = (PATHS[from], PATHS[to], RenameHow::Replace);
        let request = Request::Rename { from: old, to: new, how };
        self.peers.ask(at, request).expect("renamed");
        self.names[to] = self.names[from].take();
    }

    fn step(&mut self, draw: &mut impl FnMut(u64) -> u64) {
        let (at, path) = (draw(3) as usize, draw(PATHS.len() as u64) as usize);
        match draw(14) {
            0 | 1 if self.names[path].is_none() => self.make(at, path),
            2..=4 if self.open.len() < OPEN_MAX => self.open(at, path),
            5 | 6 if !self.open.is_empty() => self.read(draw(self.open.len() as u64) as usize),
            7 if !self.open.is_empty() => self.close(draw(self.open.len() as u64) as usize),
            8 if self.names[path].is_some() => {
                self.peers.ask(at, Request::Unlink(PATHS[path])).expect("removed");
                self.names[path] = None;
            }
            9 => {
                let to = draw(PATHS.len() as u64) as usize;
                if self.names[path].is_some() && to != path {
                    self.rename(at, path, to);
                }
            }
            10 => drop(self.peers.stat(at, PATHS[path])),
            11 => self.peers.cut(at, (at + 1) % 3),
            12 => self.peers.settle(),
            _ => self.peers.pass(Duration::from_millis(draw(4000))),
        }
    }

    /// All that is open is what it was, and seen without a name if it has none; what is not, and
    /// has none, is no more.
    fn check(&mut self) {
        self.peers.settle();
        (0..4).for_each(|_| self.peers.pass(Duration::from_secs(1)));
        for which in 0..self.open.len() {
            self.read(which);
            let (open, bytes) = self.open[which];
            let is_named = self.names.iter().flatten().any(|name| name.2 == bytes);
            let target = Target::File(open.file);
            let seen = self.peers.ask(open.at, Request::Stat(target)).expect("it is open");
            let Reply::Attributes(seen) = seen else { panic!("{seen:?}") };
            assert_eq!(seen.links, u32::from(is_named), "on {}", open.at);
        }
        while !self.open.is_empty() {
            self.close(0);
        }
        for _ in 0..4 {
            self.peers.settle();
            self.peers.pass(Duration::from_secs(3));
        }
        for (at, ino) in self.born.clone() {
            let is_named = self.names.iter().flatten().any(|name| (name.0, name.1) == (at, ino));
            let inode = self.peers.sims[at].with(|server| server.lock().names.inode(ino));
            assert_eq!(inode.expect("it lives").is_some(), is_named, "{ino} on {at}");
        }
    }
}

fn walk(seed: u64, kills: bool, brings: bool) -> [u64; 2] {
    let peers = if brings { Peers::with_dir(seed, 3) } else { Peers::new(seed, 3) };
    let mut holding = Holding::new(peers);
    holding.peers.rough = kills.then(|| Virtual::new(seed + 1));
    holding.peers.may_have_trouble(seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..150 {
        if kills && draw(6) == 0 {
            let at = draw(3) as usize;
            holding.peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        holding.step(&mut draw);
        holding.peers.reconnect();
    }
    holding.peers.rough = None;
    holding.peers.trouble_ends();
    holding.check();
    let killed = holding.peers.sims.iter().map(|sim| sim.killed).sum();
    [holding.alone, killed]
}

/// Gives how often a file was opened without a word.
fn walks(most: u64, kills: bool, brings: bool) -> u64 {
    let [alone, killed] = walk_all(most, |seed| walk(seed, kills, brings));
    eprintln!("{alone} opened without a word, {killed} servers killed");
    alone
}

#[test]
fn a_file_without_a_name_is_whole_for_all_that_have_it_open_and_goes_then() {
    assert!(walks(20, false, false) > 50);
}

#[test]
fn so_it_is_whoever_dies() {
    assert!(walks(20, true, false) > 50);
}

#[test]
fn so_it_is_with_a_permanent_directory_too() {
    assert!(walks(20, false, true) > 20);
    walks(10, true, true);
}

#[test]
fn it_stays_for_a_machine_that_is_stopped_too() {
    let mut peers = Peers::new(10, 2);
    peers.create(0, b"a").expect("made");
    let home = peers.open(0, b"a", OpenHow { create: false, ..CREATE }).expect("opened");
    peers.write(home, Some(0), b"abc").expect("written");
    peers.close(home).expect("closed");
    peers.stat(1, b"a").expect("it is there");
    let asked = peers.homes[0].done;
    let far = peers.open(1, b"a", READ).expect("opened");
    assert_eq!(peers.homes[0].done, asked, "nobody was asked");
    peers.stopped = Some((1, Duration::from_secs(30)));
    // What it was shown is so no more by then.
    peers.pass(Duration::from_secs(6));
    peers.ask(0, Request::Unlink(b"a")).expect("removed");
    peers.pass(Duration::from_secs(20));
    assert!(!peers.is_freed(home), "it may be open");
    peers.pass(Duration::from_secs(6));
    assert_eq!(peers.read(far, 0, 10).expect("it is open"), b"abc");
    peers.close(far).expect("closed");
    (0..3).for_each(|_| peers.pass(Duration::from_secs(3)));
    assert!(peers.is_freed(home), "nobody has it open");
}

/// What the home is told, though nobody waits for it.
#[test]
fn bytes_that_only_the_permanent_directory_has_stay_for_who_opened_them_elsewhere() {
    let mut peers = Peers::with_dir(11, 2);
    peers.create(0, b"a").expect("made");
    let home = peers.open(0, b"a", OpenHow { create: false, ..CREATE }).expect("opened");
    peers.write(home, Some(0), &[7; 30_000]).expect("written");
    peers.close(home).expect("closed");
    (0..8).for_each(|_| peers.pass(Duration::from_secs(3)));
    let left = peers.sims[0].with(|server| {
        let mut state = server.lock();
        eviction::make_room(&mut state).expect("it is in the directory");
        state.storage.used_bytes()
    });
    assert_eq!(left, Some(0), "nothing of it is in memory");
    peers.stat(1, b"a").expect("it is there");
    let far = peers.open(1, b"a", READ).expect("opened");
    peers.settle();
    peers.ask(0, Request::Unlink(b"a")).expect("removed");
    (0..4).for_each(|_| peers.pass(Duration::from_secs(3)));
    assert_eq!(peers.read(far, 29_990, 100).expect("it is open"), [7; 10]);
}

#[test]
fn a_server_that_does_not_ask_who_has_a_file_open_is_caught() {
    let caught =
        |seed| std::panic::catch_unwind(|| without(Step::AskHolders, || walk(seed, false, false)));
    assert!((0..20).any(|seed| caught(seed).is_err()));
}

#[test]
fn a_file_without_a_name_stays_as_long_as_somebody_far_has_it_open_and_no_longer() {
    let mut peers = Peers::new(3, 3);
    peers.create(0, b"a").expect("made");
    let how = OpenHow { create: false, ..CREATE };
    let home = peers.open(0, b"a", how).expect("opened");
    let far = peers.open(1, b"a", how).expect("opened");
    peers.write(far, Some(0), b"abc").expect("written");
    peers.close(home).expect("closed");
    peers.ask(2, Request::Unlink(b"a")).expect("removed");
    peers.settle();
    peers.pass(Duration::from_secs(3));
    assert!(peers.open(0, b"a", how).is_err() && !peers.is_freed(home));
    assert_eq!(peers.read(far, 0, 10).expect("it is open"), b"abc");
    peers.close(far).expect("closed");
    peers.settle();
    peers.pass(Duration::from_secs(3));
    assert!(peers.is_freed(home), "nobody can reach it");
}

#[test]
fn only_the_server_itself_opens_a_file_by_its_number() {
    let mut peers = Peers::new(5, 2);
    peers.create(0, b"a").expect("made");
    let ino = peers.stat(0, b"a").expect("there").ino;
    let number = Number::new(super::member(0), ino.0).expect("few");
    for request in [FarFile::Open { ino, access: 3 }, FarFile::IsOpen(number)] {
        let refused = peers.ask(0, Request::Far(request)).map_err(|error| error.kind);
        assert_eq!(refused, Err(ErrorKind::Denied), "{request:?}");
    }
}
