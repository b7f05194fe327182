//! The bytes of files that several machines read and write: they are one file's, whoever dies.

use std::time::Duration;

use terral_format::ids::{DescriptionSlot, FileSlot};
use terral_format::wire::far_files::{CALL_MAX, FarFile, Handle, PIECE_MAX, Piece};
use terral_format::wire::message::{Change, FileRef, OpenFile, OpenHow, Reply, Request, Target};
use terral_format::{ErrorKind, Result};

use super::{Peers, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::far::linking;
use crate::shared::Shared;
use crate::sim::client::{CREATE, Opened};
use crate::sim::world::Virtual;
use crate::sim::writing::{Writing, Wrote};
use crate::storage::eviction;

/// An open file, on one of the machines.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) at: usize,
    pub(super) file: FileRef,
    pub(super) description: DescriptionSlot,
    pub(super) nonce: u32,
}

impl Open {
    pub(super) fn is_far(&self) -> bool {
        self.file.slot == FileSlot::FAR
    }

    pub(super) fn handle(&self) -> Handle {
        Handle { description: self.description, nonce: self.nonce }
    }

    /// As a client of the file's home has it.
    fn here(&self) -> Opened {
        let Open { file, description, nonce, .. } = *self;
        Opened::new(OpenFile { file, description, nonce }, None)
    }
}

impl Peers {
    pub(super) fn open(&mut self, at: usize, path: &[u8], how: OpenHow) -> Result<Open> {
        match self.ask(at, Request::Open { path, how })? {
            Reply::Opened { description, nonce, file } => Ok(Open { at, file, description, nonce }),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn close(&mut self, open: Open) -> Result<()> {
        let Open { description, nonce, .. } = open;
        self.ask(open.at, Request::Close { description, nonce }).map(drop)
    }

    /// Which process of a server this is.
    fn starts(&mut self, at: usize) -> u64 {
        self.sims[at].with(|server| server.lock().starts).expect("it lives")
    }

    /// How often bytes were used here that are kept of others.
    fn lent(&mut self, at: usize) -> u64 {
        self.sims[at].with(|server| server.lock().storage.lent()).unwrap_or_default()
    }

    fn new_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    pub(super) fn read(&mut self, open: Open, at: u64, bytes: usize) -> Result<Vec<u8>> {
        if !open.is_far() {
            let client = self.clients[open.at];
            let read = self.sims[open.at].read_all(client, open.here(), at, bytes);
            self.collect(open.at);
            return read;
        }
        let (mut call, mut begin, mut all) = (self.new_call(), 0, Vec::new());
        while all.len() < bytes {
            let count = (bytes - all.len()).min(PIECE_MAX);
            let more = (bytes - all.len() - count) as u32;
            let piece = Piece { call, within: (all.len() - begin) as u32, more };
            let (of, at) = (open.handle(), at + all.len() as u64);
            let request = FarFile::Read { of, at, bytes: count as u32, piece };
            let starts = self.starts(open.at);
            let read = match self.ask(open.at, Request::Far(request))? {
                Reply::Extent(read) => read,
                Reply::Stored { places, ends } => {
                    let stored = |shared: &Shared| shared.lock().storage.copy_blocks(&places);
                    let read = self.sims[open.at].with(stored).expect("it lives")?;
                    let counts = self.starts(open.at) == starts;
                    let _ = self.ask(open.at, Request::Far(FarFile::Through { call }))?;
                    // Another process of the server may have given the memory to others.
                    all.extend(read.iter().filter(|_| counts));
                    if ends && counts {
                        break;
                    }
                    (call, begin) = (self.new_call(), all.len());
                    continue;
                }
                other => panic!("{other:?}"),
            };
            all.extend(&read);
            if read.len() < count {
                break;
            }
        }
        Ok(all)
    }

    /// Writes, or appends. Gives where.
    pub(super) fn write(&mut self, open: Open, at: Option<u64>, bytes: &[u8]) -> Result<u64> {
        if !open.is_far() {
            let client = self.clients[open.at];
            let at = at.unwrap_or_else(|| self.sims[open.at].size_of(open.here()));
            let written = self.sims[open.at].write(client, open.file, at, bytes);
            self.collect(open.at);
            return written.map(|()| at);
        }
        if bytes.len() > PIECE_MAX
            && let Some(at) = self.ship(open, at, bytes)?
        {
            return Ok(at);
        }
        'call: loop {
            let (call, mut within) = (self.new_call(), 0);
            loop {
                let piece = &bytes[within..bytes.len().min(within + PIECE_MAX)];
                let more = (bytes.len() - within - piece.len()) as u32;
                let which = Piece { call, within: within as u32, more };
                let (of, bytes) = (open.handle(), piece);
                let request = FarFile::Write { of, at, piece: which, bytes };
                within += piece.len();
                match self.ask(open.at, Request::Far(request))? {
                    Reply::Done => {}
                    Reply::At(at) => return Ok(at),
                    Reply::Again => continue 'call,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// By way of a file of this machine, another one each time. `None`: it is not in memory.
    fn ship(&mut self, open: Open, at: Option<u64>, bytes: &[u8]) -> Result<Option<u64>> {
        let from = self.bounce(open.at, bytes)?;
        let (of, by) = (open.handle(), from.handle());
        let request = FarFile::Ship { of, at, from: by, bytes: bytes.len() as u32 };
        let shipped = match self.ask(open.at, Request::Far(request))? {
            Reply::At(at) => Some(at),
            Reply::Again => None,
            other => panic!("{other:?}"),
        };
        self.close(from)?;
        Ok(shipped)
    }

    /// A file that has these, for what is to be shipped.
    fn bounce(&mut self, at: usize, bytes: &[u8]) -> Result<Open> {
        let Reply::Preallocated(files) = self.ask(at, Request::Far(FarFile::Bounce))? else {
            panic!("a file");
        };
        let OpenFile { file, description, nonce } = files[0];
        let client = self.clients[at];
        self.sims[at].write(client, file, 0, bytes)?;
        self.collect(at);
        Ok(Open { at, file, description, nonce })
    }

    fn cut_to(&mut self, open: Open, size: u64) -> Result<()> {
        let target = Target::File(open.file);
        self.ask(open.at, Request::Truncate { target, size, token: 0 }).map(drop)
    }

    /// Whether a file is no more where it was born.
    pub(super) fn is_freed(&mut self, open: Open) -> bool {
        let here = |server: &crate::shared::Shared| server.lock().names.inode(open.file.ino);
        self.sims[open.at].with(here).is_some_and(|inode| inode.is_none())
    }
}

/// Three machines, and a file that was born on each and is open on all.
struct Files {
    peers: Peers,
    /// By file and machine.
    open: Vec<Vec<Open>>,
    /// What they must be.
    bytes: Vec<Vec<u8>>,
    tokens: u64,
    /// Appends of which nobody knows.
    unknown: u64,
    /// At home they are open for reading, but while they are written there.
    calm: bool,
}

const TO_READ: OpenHow = OpenHow { create: false, access: 1, ..CREATE };

const PATHS: [&[u8]; 3] = [b"a", b"b", b"c"];

impl Files {
    fn new(seed: u64, calm: bool) -> Self {
        let mut peers = Peers::new(seed, 3);
        let open = PATHS.iter().enumerate().map(|(home, path)| {
            peers.create(home, path).expect("made");
            let how =
                |at| if calm && at == home { TO_READ } else { OpenHow { create: false, ..CREATE } };
            let opened = |at| peers.open(at, path, how(at));
            let open: Vec<_> = (0..3).map(opened).collect::<Result<_>>().expect("opened");
            assert!((0..3).all(|at| open[at].is_far() == (at != home)), "it is where it was born");
            open
        });
        let open = open.collect();
        Files { peers, open, bytes: vec![Vec::new(); 3], tokens: 0, unknown: 0, calm }
    }

    /// Has a file open for writing where it is done, as it may not be at home.
    fn open_to_write(&mut self, which: usize, at: usize) -> Open {
        if !self.calm || at != which {
            return self.open[which][at];
        }
        let how = OpenHow { create: false, ..CREATE };
        self.peers.open(at, PATHS[which], how).expect("opened")
    }

    fn is_through(&mut self, which: usize, open: Open) {
        if self.calm && open.at == which {
            self.peers.close(open).expect("closed");
        }
    }

    /// Bytes that are nowhere else.
    fn token(&mut self, length: usize) -> Vec<u8> {
        self.tokens += 1;
        let word = self.tokens.to_le_bytes();
        word.iter().map(|byte| byte | 1).cycle().take(length.max(8)).collect()
    }

    fn step(&mut self, draw: &mut impl FnMut(u64) -> u64) {
        let (which, at) = (draw(3) as usize, draw(3) as usize);
        let open = self.open[which][at];
        let length = if draw(4) == 0 { draw(50_000) } else { draw(300) } as usize + 1;
        let place = draw(60_000);
        match draw(12) {
            0..=2 => {
                let bytes = self.token(length);
                let open = self.open_to_write(which, at);
                let written = self.peers.write(open, Some(place), &bytes);
                assert_eq!(written, Ok(place));
                self.was_written(which, place, &bytes);
                self.is_through(which, open);
            }
            3 | 4 => {
                let open = self.open_to_write(which, at);
                self.append(which, open, length);
                self.is_through(which, open);
            }
            5 => {
                let open = self.open_to_write(which, at);
                self.peers.cut_to(open, place).expect("cut");
                self.bytes[which].resize(place as usize, 0);
                self.is_through(which, open);
            }
            6 | 7 => {
                let read = self.peers.read(open, place, length).expect("read");
                let is = &self.bytes[which];
                let begin = is.len().min(place as usize);
                let end = is.len().min(place as usize + length);
                assert!(read == is[begin..end], "{which} on {at}: {place}, {length}");
            }
            8 => {
                let seen = self.peers.stat(at, PATHS[which]).expect("it is there");
                assert_eq!(seen.size, self.bytes[which].len() as u64, "{which} on {at}");
            }
            9 => {
                self.peers.close(open).expect("closed");
                let truncate = draw(4) == 0;
                let access = if self.calm && !truncate && at == which { 1 } else { CREATE.access };
                let how = OpenHow { create: false, truncate, access, ..CREATE };
                self.open[which][at] = self.peers.open(at, PATHS[which], how).expect("opened");
                if truncate {
                    self.bytes[which].clear();
                }
            }
            10 => self.peers.cut(at, (at + 1) % 3),
            _ => self.peers.pass(Duration::from_millis(draw(4000))),
        }
    }

    fn append(&mut self, which: usize, open: Open, length: usize) {
        let bytes = self.token(length);
        let end = self.bytes[which].len() as u64;
        let before = self.peers.deaths();
        match self.peers.write(open, None, &bytes) {
            // Both may have died, who asked and who was asked.
            Ok(at) if at != end && self.peers.deaths() > before + 1 => {
                let all = self.peers.read(open, 0, 1 << 20).expect("read");
                assert_eq!(all.len() as u64, at + bytes.len() as u64);
                assert!(all[end as usize..at as usize] == bytes, "twice, and nothing else");
                self.bytes[which] = all;
            }
            Ok(at) => {
                assert_eq!(at, end, "appended at the end, once");
                self.was_written(which, at, &bytes);
            }
            // Its home has died meanwhile.
            Err(error) => {
                assert_eq!((error.kind, error.errno), (ErrorKind::Backing, 5), "{error:?}");
                self.unknown += 1;
                let all = self.peers.read(self.open[which][open.at], 0, 1 << 20).expect("read");
                let [without, with] = [&self.bytes[which][..], &bytes].map(<[u8]>::len);
                assert!([without, without + with].contains(&all.len()), "at most once");
                assert!(
                    all[..without] == self.bytes[which],
                    "{}",
                    differ(&all, &self.bytes[which])
                );
                let added = &bytes[..all.len() - without];
                assert!(all[without..] == *added, "{}", differ(&all[without..], added));
                self.bytes[which] = all;
            }
        }
    }

    fn was_written(&mut self, which: usize, at: u64, bytes: &[u8]) {
        let (at, is) = (at as usize, &mut self.bytes[which]);
        is.resize(is.len().max(at + bytes.len()), 0);
        is[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn check(&mut self) {
        for which in 0..3 {
            for at in 0..3 {
                let open = self.open[which][at];
                let all = self.peers.read(open, 0, 1 << 20).expect("read");
                assert!(all == self.bytes[which], "{which} on {at}");
            }
        }
    }
}

/// Where two files differ first.
fn differ(one: &[u8], other: &[u8]) -> String {
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    format!("{} bytes and {}: differ at {at:?}", one.len(), other.len())
}

fn walk(seed: u64, kills: bool, calm: bool) -> [u64; 3] {
    let mut files = Files::new(seed, calm);
    files.peers.rough = kills.then(|| Virtual::new(seed + 1));
    files.peers.may_have_trouble(seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..150 {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            files.peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        files.step(&mut draw);
        files.peers.reconnect();
    }
    files.peers.rough = None;
    files.peers.trouble_ends();
    files.check();
    files.check();
    let killed = files.peers.sims.iter().map(|sim| sim.killed).sum();
    let lent: u64 = (0..3).map(|at| files.peers.lent(at)).sum();
    [files.unknown, killed, lent]
}

/// Gives how often bytes were used that were kept.
fn walks(most: u64, kills: bool, calm: bool) -> u64 {
    let [unknown, killed, kept] = walk_all(most, |seed| walk(seed, kills, calm));
    eprintln!("{unknown} appends unknown, {killed} servers killed, {kept} reads of what is kept");
    kept
}

#[test]
fn all_machines_read_what_any_of_them_has_written() {
    walks(20, false, false);
}

#[test]
fn what_was_written_elsewhere_is_there_and_what_was_appended_once_whoever_dies() {
    walks(20, true, false);
}

#[test]
fn what_is_kept_of_other_machines_files_is_never_older_than_what_was_written() {
    assert!(walks(20, false, true) > 100);
}

#[test]
fn a_server_that_keeps_what_is_shown_no_more_is_caught() {
    let flawed = |seed| without(Step::ForgetKept, || walk(seed, false, true));
    let caught = |seed| std::panic::catch_unwind(|| flawed(seed)).is_err();
    assert!((0..20).any(caught));
}

/// A file of so many bytes on another machine, at rest there, and open here.
fn read_elsewhere(bytes: usize) -> (Peers, Open) {
    let mut peers = Peers::new(8, 2);
    peers.create(1, b"a").expect("made");
    let home = peers.open(1, b"a", OpenHow { create: false, ..CREATE }).expect("opened");
    peers.write(home, Some(0), &vec![7; bytes]).expect("written");
    peers.close(home).expect("closed");
    let here = peers.open(0, b"a", TO_READ).expect("opened");
    (peers, here)
}

#[test]
fn what_a_call_was_told_of_is_nobody_elses_until_it_is_through() {
    let (mut peers, here) = read_elsewhere(300_000);
    assert_eq!(peers.read(here, 0, 300_000).expect("read").len(), 300_000);
    let (call, piece) = (peers.new_call(), PIECE_MAX as u32);
    let piece = Piece { call, within: 0, more: 300_000 - piece };
    let request = FarFile::Read { of: here.handle(), at: 0, bytes: PIECE_MAX as u32, piece };
    let Reply::Stored { places, .. } = peers.ask(0, Request::Far(request)).expect("read") else {
        panic!("it is kept");
    };
    // It is written, so it is shown no more: what is read by then stays all the same.
    let home = peers.open(1, b"a", OpenHow { create: false, ..CREATE }).expect("opened");
    peers.write(home, Some(0), &[8; 100]).expect("written");
    let used = |peers: &mut Peers| {
        let used = peers.sims[0].with(|server| server.lock().storage.used_bytes());
        used.expect("it lives")
    };
    let looked_at = used(&mut peers);
    let seen = peers.sims[0].with(|server| server.lock().storage.copy_blocks(&places));
    assert!(seen.expect("it lives").expect("read").iter().all(|byte| *byte == 7));
    peers.ask(0, Request::Far(FarFile::Through { call })).expect("told");
    assert!(used(&mut peers) < looked_at, "its memory is free");
    assert_eq!(peers.read(here, 0, 1).expect("read"), [8]);
}

/// One thread writes while another closes the descriptor: who is in the chunk by then goes on.
#[test]
fn a_write_that_is_under_way_when_its_file_is_closed_is_read_elsewhere_once_it_is_done() {
    const ENTERS: usize = 2;
    for steps in ENTERS..12 {
        let (mut peers, here) = read_elsewhere(300_000);
        let home = peers.open(1, b"a", OpenHow { create: false, ..CREATE }).expect("opened");
        let client = peers.clients[1];
        let mut writing = Writing::new(client, home.file, 0, &[8; 5000]);
        let mut is_over = false;
        for _ in 0..steps {
            is_over = is_over || peers.sims[1].go_on_writing(&mut writing) == Ok(Wrote::Over);
        }
        peers.close(home).expect("closed");
        peers.read(here, 0, 300_000).expect("read");
        while !is_over {
            is_over = peers.sims[1].go_on_writing(&mut writing) == Ok(Wrote::Over);
        }
        assert!(peers.read(here, 0, 1).expect("read") == [8], "after {steps} steps");
    }
}

#[test]
fn nobody_ships_what_another_one_has_open() {
    let mut peers = Peers::new(8, 2);
    peers.create(1, b"a").expect("made");
    let far = peers.open(0, b"a", OpenHow { create: false, ..CREATE }).expect("opened");
    let from = peers.bounce(0, &[7; 100]).expect("written").handle();
    let ship = |from, bytes| FarFile::Ship { of: far.handle(), at: Some(0), from, bytes };
    let other = peers.sims[0].connect();
    for (from, bytes) in [
        (Handle { nonce: from.nonce ^ 1, ..from }, 100),
        (far.handle(), 100),
        (from, CALL_MAX as u32 + 1),
    ] {
        let refused = peers.ask(0, Request::Far(ship(from, bytes)));
        assert_eq!(refused.map_err(|e| e.kind), Err(ErrorKind::Malformed), "{from:?} {bytes}");
    }
    let blind = OpenHow { access: 2, ..CREATE };
    let blind = peers.open(0, b"mine", blind).expect("made").handle();
    let refused = peers.ask(0, Request::Far(ship(blind, 1))).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::Malformed), "it is not open for reading");
    let others = peers.sims[0].ask(other, Request::Far(ship(from, 100)));
    assert_eq!(others.map_err(|error| error.kind), Err(ErrorKind::Malformed));
    assert_eq!(peers.ask(0, Request::Far(ship(from, 100))), Ok(Reply::At(0)));
    // Memory that it has not written may have what others had there.
    assert_eq!(peers.ask(0, Request::Far(ship(from, 101))), Ok(Reply::Again));
    let holed = peers.bounce(0, b"").expect("made");
    let client = peers.clients[0];
    peers.sims[0].write(client, holed.file, 40_000, b"a").expect("written");
    assert_eq!(peers.ask(0, Request::Far(ship(holed.handle(), 40_001))), Ok(Reply::Again));
    assert_eq!(peers.read(far, 0, 200), Ok(vec![7; 100]));
}

#[test]
fn what_is_kept_goes_before_anybody_waits_for_memory() {
    let (mut peers, here) = read_elsewhere(300_000);
    peers.read(here, 0, 300_000).expect("read");
    let freed = peers.sims[0].with(|server| {
        let mut state = server.lock();
        eviction::make_room(&mut state).expect("there is what can go");
        state.storage.used_bytes()
    });
    assert_eq!(freed, Some(0));
    assert_eq!(peers.read(here, 299_999, 9).expect("read"), [7]);
}

#[test]
fn nor_is_it_whoever_dies() {
    assert!(walks(20, true, true) > 50);
}

#[test]
fn who_waits_for_a_member_that_is_removed_or_does_not_answer_is_told_so() {
    let mut peers = Peers::new(4, 3);
    let how = OpenHow { create: false, ..CREATE };
    let mut open = Vec::new();
    for (home, path) in PATHS.iter().enumerate().skip(1) {
        peers.create(home, path).expect("made");
        open.push(peers.open(0, path, how).expect("opened"));
    }
    peers.stopped = Some((1, Duration::from_secs(600)));
    // What it has shown is so no more by then.
    peers.pass(Duration::from_secs(6));
    let silent = peers.read(open[0], 0, 10).expect_err("nobody answers");
    assert_eq!((silent.errno, silent.context.contains("member 1")), (5, true), "{silent:?}");
    peers.sims[0].with(|server| linking::removed(&mut server.lock(), super::member(2)));
    let removed = peers.read(open[1], 0, 10).expect_err("it is none any more");
    assert_eq!((removed.errno, removed.context.contains("member 2")), (5, true), "{removed:?}");
}

#[test]
fn times_that_are_set_elsewhere_are_those_of_the_file_whoever_has_it_open() {
    for open in [true, false] {
        let mut peers = Peers::new(6, 2);
        peers.create(0, b"a").expect("made");
        let how = OpenHow { create: false, ..CREATE };
        let home = peers.open(0, b"a", how).expect("opened");
        peers.write(home, Some(0), b"abc").expect("written");
        if !open {
            peers.close(home).expect("closed");
        }
        let target = Target::Path(b"a");
        let change = Change { modified_ns: Some(5), accessed_ns: Some(6), ..Change::default() };
        peers.ask(1, Request::Change { target, change }).expect("changed");
        peers.open(0, b"a", how).expect("opened");
        for at in 0..2 {
            let seen = peers.stat(at, b"a").expect("it is there");
            assert_eq!((seen.modified_ns, seen.accessed_ns, seen.size), (5, 6, 3), "{open} {at}");
        }
    }
}

#[test]
fn a_directory_that_was_made_elsewhere_is_opened() {
    let mut peers = Peers::new(7, 2);
    peers.make_directory(0, b"d").expect("made");
    let how = OpenHow { access: 1, directory: true, ..OpenHow::default() };
    let open = peers.open(1, b"d", how).expect("opened");
    assert_eq!(open.file.slot, FileSlot::NONE);
    peers.close(open).expect("closed");
}
