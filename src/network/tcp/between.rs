//! Somebody on the wire between two members: he reads, changes, cuts off and repeats what goes over
//! it, ends the encryption of each side himself, or takes it away.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::beside::{PATIENCE, dialled, listen_by, peer};
use super::encryption::{Keys, WANTS_ENCRYPTION, WANTS_NONE};
use super::greeting::GREETING_BYTES;
use super::stream::{Came, Stream};
use super::tests::{TIMING, clock, loopback, secret};
use super::{Encryption, Tcp};
use crate::conformance::crowd::member;
use crate::endpoint::{Endpoint, Event, Loss, Session, Timing};

/// Nobody says anything of himself.
const QUIET: Timing = Timing { silence: Duration::from_secs(60), ..TIMING };
const NOT_PROVEN: &str = "a proof that is not by this member's key, or not for this greeting";
const CHANGED: &str = "what was changed on the way, or comes from somebody else";

/// Who sits on the wire.
trait Between {
    fn new(to: SocketAddr) -> Self;
    fn address(&self) -> SocketAddr;
    fn turn(&mut self);
}

/// Member 2, who reaches member 1 only through him.
struct Through<B> {
    one: Tcp,
    two: Tcp,
    between: B,
    /// What either has heard.
    heard: [Vec<Event>; 2],
}

impl<B: Between> Through<B> {
    fn new(one: Encryption, two: Encryption) -> Self {
        let mut one = listen_by(1, (QUIET, one), clock());
        let mut two = listen_by(2, (QUIET, two), clock());
        let between = B::new(one.address().expect("it listens"));
        one.admit(peer(2, Vec::new()));
        two.admit(peer(1, vec![between.address()]));
        two.reach(member(1));
        Through { one, two, between, heard: [Vec::new(), Vec::new()] }
    }

    /// With a session.
    fn talking() -> Self {
        let mut all = Through::new(Encryption::Tls, Encryption::Tls);
        all.until("a session", |all| all.heard.iter().all(|heard| heard.len() == 1));
        all
    }

    fn turn(&mut self) {
        self.between.turn();
        for (endpoint, heard) in [&mut self.one, &mut self.two].into_iter().zip(&mut self.heard) {
            let until = endpoint.now() + Duration::from_micros(200);
            heard.extend(endpoint.next(until));
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE, "in vain: {what}; {:?}", self.one.turned_away());
            self.turn();
        }
    }

    /// Why 1 and 2 do not get a session.
    fn are_refused(&mut self, one: &'static str, two: &'static str) {
        self.until("it is refused", |all| {
            all.one.turned_away().contains_key(one) && all.two.turned_away().contains_key(two)
        });
        assert!(self.heard.iter().all(Vec::is_empty), "{:?}", self.heard);
    }

    /// 2 says that in its session.
    fn say(&mut self, frame: &[u8]) {
        self.two.send(Session { with: member(1), number: 1 }, frame).expect("room");
    }

    /// The frames that 1 has heard.
    fn frames(&self) -> Vec<&[u8]> {
        let frames = self.heard[0].iter().filter_map(|event| match event {
            Event::Frame(_, frame) => Some(&frame[..]),
            _ => None,
        });
        frames.collect()
    }

    /// Why 1 has lost its session.
    fn loses(&mut self) -> Loss {
        self.until("it is lost", |all| matches!(all.heard[0].last(), Some(Event::Lost(..))));
        let Some(Event::Lost(_, why)) = self.heard[0].last() else { panic!("just now") };
        *why
    }
}

fn listener() -> TcpListener {
    let listener = TcpListener::bind(loopback()).expect("the loopback device");
    listener.set_nonblocking(true).expect("a socket");
    listener
}

/// He hands on bytes as they are.
struct Copier {
    listener: TcpListener,
    to: SocketAddr,
    ends: Option<[TcpStream; 2]>,
    /// All that was said by either.
    said: [Vec<u8>; 2],
    /// How much of that was handed on.
    gone: [usize; 2],
    /// Which byte of what the dialler says is changed.
    changes: Option<usize>,
    /// So much of what the dialler says next is handed on, and that is the end.
    cuts: Option<usize>,
}

impl Between for Copier {
    fn new(to: SocketAddr) -> Self {
        let (listener, said) = (listener(), Default::default());
        Copier { listener, to, ends: None, said, gone: [0; 2], changes: None, cuts: None }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it listens")
    }

    fn turn(&mut self) {
        if let Ok((from, _)) = self.listener.accept() {
            let to = TcpStream::connect(self.to).expect("it listens");
            [&from, &to].into_iter().for_each(|end| end.set_nonblocking(true).expect("a socket"));
            (self.ends, self.said, self.gone) = (Some([from, to]), Default::default(), [0; 2]);
        }
        (0..2).for_each(|way| self.copy(way));
    }
}

impl Copier {
    fn copy(&mut self, way: usize) {
        let (Some(ends), said) = (&mut self.ends, &mut self.said[way]) else { return };
        let mut some = [0; 10_000];
        while let Ok(count) = ends[way].read(&mut some)
            && count > 0
        {
            said.extend_from_slice(&some[..count]);
        }
        if let (0, Some(at)) = (way, self.changes)
            && let Some(byte) = said.get_mut(at)
        {
            *byte ^= 1;
            self.changes = None;
        }
        let most = self.cuts.filter(|_| way == 0).unwrap_or(usize::MAX);
        let end = said.len().min(self.gone[way].saturating_add(most));
        // Who has closed his end takes no more.
        let went = ends[1 - way].write(&said[self.gone[way]..end]).unwrap_or_default();
        self.gone[way] += went;
        if let (0, Some(left)) = (way, &mut self.cuts) {
            *left -= went;
            if *left == 0 {
                ends[1].shutdown(Shutdown::Write).expect("a connection");
            }
        }
    }
}

/// He has a connection of his own with each side, and hands on what they say.
struct Ender<const DIALLER: bool, const ACCEPTOR: bool> {
    listener: TcpListener,
    to: SocketAddr,
    keys: Keys,
    ends: Option<[Stream; 2]>,
    /// How much he has read of what either has said.
    read: [usize; 2],
}

impl<const DIALLER: bool, const ACCEPTOR: bool> Between for Ender<DIALLER, ACCEPTOR> {
    fn new(to: SocketAddr) -> Self {
        let (listener, keys) = (listener(), Keys::make().expect("random bytes"));
        Ender { listener, to, keys, ends: None, read: [0; 2] }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it listens")
    }

    fn turn(&mut self) {
        if let (None, Ok((from, _))) = (&self.ends, self.listener.accept()) {
            let tls = [
                DIALLER.then(|| self.keys.accept().expect("it is ready")),
                ACCEPTOR.then(|| self.keys.dial(self.to).expect("it is ready")),
            ];
            let [accepts, dials] = tls;
            let from = Stream::new(from, accepts).expect("a socket");
            self.ends = Some([from, Stream::dial(self.to, dials).expect("it listens")]);
        }
        (0..2).for_each(|way| self.hand_on(way));
    }
}

impl<const DIALLER: bool, const ACCEPTOR: bool> Ender<DIALLER, ACCEPTOR> {
    fn hand_on(&mut self, way: usize) {
        let Some(ends) = &mut self.ends else { return };
        let mut some = [0; 1000];
        // Who has closed his end says no more.
        _ = ends[way].flush();
        if let Came::Bytes(count) = ends[way].read_first(&mut some) {
            self.read[way] += count;
            _ = ends[1 - way].write(&[&some[..count]]);
        }
    }
}

#[test]
fn who_ends_the_encryption_of_either_side_himself_is_noticed() {
    let mut all = Through::<Ender<true, true>>::new(Encryption::Tls, Encryption::Tls);
    all.until("it is refused", |all| all.two.turned_away().contains_key(NOT_PROVEN));
    let [dialler, acceptor] = all.between.read;
    assert!(dialler == GREETING_BYTES && acceptor > GREETING_BYTES, "he has read what they said");
    assert!(all.heard.iter().all(Vec::is_empty), "{:?}", all.heard);
}

#[test]
fn who_takes_the_encryption_away_is_noticed() {
    let mut taken = Through::<Ender<true, false>>::new(Encryption::None, Encryption::Tls);
    taken.until("it is refused", |all| all.one.turned_away().contains_key(WANTS_ENCRYPTION));
    assert_eq!(taken.between.read[0], GREETING_BYTES, "he has read what was said");
    let mut given = Through::<Ender<false, true>>::new(Encryption::Tls, Encryption::None);
    given.until("it is refused", |all| all.one.turned_away().contains_key(WANTS_NONE));
    assert!([taken.heard, given.heard].iter().flatten().all(Vec::is_empty));
}

/// Neither side goes over to the other's kind, and both know why.
#[test]
fn who_encrypts_and_who_does_not_refuse_each_other() {
    let refuses = "the other side refuses or has given up the encryption";
    Through::<Copier>::new(Encryption::None, Encryption::Tls)
        .are_refused(WANTS_ENCRYPTION, refuses);
    Through::<Copier>::new(Encryption::Tls, Encryption::None)
        .are_refused(WANTS_NONE, WANTS_ENCRYPTION);
}

/// Whether `said` has it somewhere.
fn has(said: &[Vec<u8>; 2], what: &[u8]) -> bool {
    said.iter().any(|said| said.windows(what.len()).any(|at| at == what))
}

#[test]
fn who_reads_has_nothing_of_it_and_a_key_in_no_case() {
    for encryption in [Encryption::Tls, Encryption::None] {
        let mut all = Through::<Copier>::new(encryption, encryption);
        all.until("a session", |all| all.heard.iter().all(|heard| heard.len() == 1));
        all.say(b"nobody else's");
        all.until("a frame", |all| all.frames() == [b"nobody else's"]);
        let is_plain = encryption == Encryption::None;
        assert_eq!(has(&all.between.said, b"nobody else's"), is_plain);
        assert_eq!(has(&all.between.said, b"terral"), is_plain);
        assert!(!has(&all.between.said, &secret(member(1)).0), "it is never sent");
    }
}

/// Wherever it is, but for the first three of a record, which say nothing.
#[test]
fn a_changed_byte_ends_the_session_and_nothing_of_it_comes() {
    for at in [3, 5, 9, 100, 20_000, 40_000] {
        let mut all = Through::<Copier>::talking();
        all.say(b"right");
        all.until("a frame", |all| all.frames() == [b"right"]);
        all.between.changes = Some(all.between.said[0].len() + at);
        all.say(&[7; 40_000]);
        let why = all.loses();
        assert!(matches!(why, Loss::Garbage(what) if at < 5 || what == CHANGED), "{at}: {why:?}");
        assert_eq!(all.frames(), [b"right"]);
    }
}

/// Also between two records, so that it looks as if all had been said.
#[test]
fn what_is_cut_off_is_no_frame() {
    const RECORD: usize = 16_384 + 22;
    for at in [1, 5, 100, RECORD, 2 * RECORD, 40_000] {
        let mut all = Through::<Copier>::talking();
        all.say(b"right");
        all.until("a frame", |all| all.frames() == [b"right"]);
        all.between.cuts = Some(at);
        all.say(&[7; 40_000]);
        assert_eq!(all.loses(), Loss::Closed, "{at}");
        assert_eq!(all.frames(), [b"right"]);
    }
}

#[test]
fn what_is_said_again_to_another_connection_says_nothing() {
    let mut all = Through::<Copier>::talking();
    all.say(b"once");
    all.until("a frame", |all| all.frames() == [b"once"]);
    let mut again = dialled(&all.one);
    again.write_all(&all.between.said[0]).expect("there is room");
    all.until("it is refused", |all| all.one.turned_away().contains_key(CHANGED));
    all.say(b"twice");
    all.until("a frame", |all| all.frames().len() > 1);
    assert_eq!(all.frames(), [&b"once"[..], b"twice"]);
}
