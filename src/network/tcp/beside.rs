//! Two members who talk to each other, beside whom a test plays strangers and a third member.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use terral_format::ids::Member;
use terral_format::moment::Moment;

use super::encryption::{Keys, NO_ENCRYPTION};
use super::shake::{Identity, Known, Next, Shake};
use super::stream::{Came, Stream};
use super::tests::{TIMING, clock, identity, key, loopback};
use super::{Clock, Encryption, Settings, Tcp};
use crate::conformance::crowd::{member, server};
use crate::endpoint::{Endpoint, Event, Loss, Peer, Refused, Session, Timing};

pub(super) fn known(of: u16) -> (Member, Known) {
    (member(of), Known { server: server(of), latest: 0, key: key(member(of)) })
}

/// How long a test waits for what is to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Members 1 and 2, who talk to each other; 1 has admitted member 3, whom tests play.
pub(super) struct Two {
    pub(super) one: Tcp,
    pub(super) two: Tcp,
    talk: Session,
    /// How much of that 1 has heard.
    heard: usize,
    /// What 1 has heard of others.
    pub(super) others: Vec<Event>,
    /// How far 1's clock has jumped ahead.
    pub(super) ahead: Arc<AtomicU64>,
}

pub(super) fn peer(number: u16, addresses: Vec<SocketAddr>) -> Peer {
    Peer { member: member(number), server: server(number), key: key(member(number)), addresses }
}

pub(super) fn listen(number: u16, encryption: Encryption) -> Tcp {
    listen_by(number, (TIMING, encryption), clock())
}

pub(super) fn listen_by(
    number: u16,
    (timing, encryption): (Timing, Encryption),
    clock: Clock,
) -> Tcp {
    let who = identity(member(number), server(number));
    let settings = Settings { timing, encryption };
    Tcp::listen(loopback(), who, settings, clock).expect("the loopback device")
}

/// A test's end of a connection to an endpoint.
pub(super) struct Line(pub(super) Stream, Encryption);

impl Line {
    pub(super) fn dial(to: &Tcp) -> Line {
        let at = to.address().expect("it listens");
        let keys = Keys::make().expect("random bytes");
        let tls = (to.encryption == Encryption::Tls).then(|| keys.dial(at).expect("it is ready"));
        Line(Stream::dial(at, tls).expect("connect"), to.encryption)
    }

    /// What waits goes when it reads.
    pub(super) fn say(&mut self, what: &[u8]) {
        self.0.write(&[what]).expect("a connection");
    }

    /// What the other side says, so many bytes of it; none if it closes the connection.
    pub(super) fn read(&mut self, count: usize, mut turn: impl FnMut()) -> Option<Vec<u8>> {
        let (mut bytes, begin) = (Vec::new(), Instant::now());
        while bytes.len() < count {
            assert!(begin.elapsed() < PATIENCE, "neither said nor closed");
            let mut more = vec![0; count - bytes.len()];
            _ = self.0.flush();
            match self.0.read_first(&mut more) {
                Came::Bytes(some) => bytes.extend_from_slice(&more[..some]),
                Came::Nothing => turn(),
                Came::End | Came::Wrong(_) => return None,
            }
        }
        Some(bytes)
    }
}

/// All that `from` says on the wire before it closes the connection.
pub(super) fn read_all(from: &mut TcpStream, mut turn: impl FnMut()) -> Vec<u8> {
    let (mut bytes, begin) = (Vec::new(), Instant::now());
    loop {
        assert!(begin.elapsed() < PATIENCE, "it is not closed");
        let mut more = [0; 1000];
        match from.read(&mut more) {
            Ok(some) if some > 0 => bytes.extend_from_slice(&more[..some]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => turn(),
            _ => return bytes,
        }
    }
}

/// Who dials says who he is and proves it; how long the word is that he then waits for.
pub(super) fn prove(
    line: &mut Line,
    who: &Identity,
    (life, to): (u64, (Member, Known)),
    turn: impl FnMut(),
) -> Option<usize> {
    let (proof, wants) = proof(line, who, (life, to), turn)?;
    line.say(&proof);
    Some(wants)
}

/// As [`prove`]; gives what is then to be said.
pub(super) fn proof(
    line: &mut Line,
    who: &Identity,
    (life, to): (u64, (Member, Known)),
    turn: impl FnMut(),
) -> Option<(Vec<u8>, usize)> {
    let (mut shake, said) = Shake::dial(who, line.1, (life, [9; 32]), to);
    line.say(&said);
    let answer = line.read(shake.wants(), turn)?;
    let channel = line.0.channel().expect("an answer has come");
    let Ok(Next::Proven(proof)) = shake.take(&answer, &channel, |_| Some(to.1)) else {
        return None;
    };
    Some((proof, shake.wants()))
}

pub(super) fn dialled(to: &Tcp) -> TcpStream {
    let stream = TcpStream::connect(to.address().expect("it listens")).expect("connect");
    stream.set_nonblocking(true).expect("a socket");
    stream
}

impl Two {
    pub(super) fn new(encryption: Encryption) -> Self {
        Two::with(TIMING, encryption)
    }

    pub(super) fn with(timing: Timing, encryption: Encryption) -> Self {
        let (ahead, time) = (Arc::new(AtomicU64::new(0)), clock());
        let jumps = ahead.clone();
        let jumping = Box::new(move || Moment(time().0 + jumps.load(Ordering::SeqCst)));
        let settings = (timing, encryption);
        let mut one = listen_by(1, settings, jumping);
        let mut two = listen_by(2, settings, clock());
        one.admit(peer(2, Vec::new()));
        one.admit(peer(3, Vec::new()));
        two.admit(peer(1, vec![one.address().expect("it listens")]));
        two.reach(member(1));
        let talk = Session { with: member(1), number: 1 };
        let mut two = Two { one, two, talk, heard: 0, others: Vec::new(), ahead };
        two.until("they talk", |two| two.heard > 0);
        two
    }

    /// Lets both do what they have to; 2 goes on talking, and nothing is lost of that.
    pub(super) fn turn(&mut self) {
        while let Some(event) = self.two.next(self.two.now()) {
            assert!(matches!(event, Event::Connected(_) | Event::Room(_)), "{event:?}");
        }
        if self.two.send(self.talk, b"talk") == Err(Refused::TooLong) {
            panic!("a short frame");
        }
        let mut until = self.one.now() + Duration::from_millis(1);
        while let Some(event) = self.one.next(until) {
            until = self.one.now();
            match event {
                Event::Frame(session, frame) if session.with == member(2) => {
                    assert_eq!(&frame[..], b"talk");
                    self.heard += 1;
                }
                Event::Lost(session, why) if session.with == member(2) => panic!("lost: {why:?}"),
                event if event.session().with == member(2) => {}
                event => self.others.push(event),
            }
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.one.now() + time;
        while self.one.now() < end {
            self.turn();
        }
    }

    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = self.one.now() + PATIENCE;
        while !is_so(self) {
            assert!(self.one.now() < end, "in vain: {what}; {:?}", self.one.turned_away());
            self.turn();
        }
    }

    /// 2 is heard of after all that has come before.
    pub(super) fn still_talk(&mut self) {
        let before = self.heard;
        self.until("they go on talking", |two| two.heard > before + 10);
    }

    pub(super) fn dialled(&self) -> TcpStream {
        dialled(&self.one)
    }

    /// What 1 says, so many bytes of it; none if it closes the connection.
    pub(super) fn read(&mut self, from: &mut Line, count: usize) -> Option<Vec<u8>> {
        from.read(count, || self.turn())
    }

    /// 1 closes it without having said anything but that, and why.
    pub(super) fn is_turned_away(&mut self, mut stream: TcpStream, why: &'static str) {
        let said = read_all(&mut stream, || self.turn());
        let is_alert = said.len() == NO_ENCRYPTION.len() && said[0] == NO_ENCRYPTION[0];
        assert!(said.is_empty() || is_alert && self.one.encryption == Encryption::Tls);
        self.until(why, |two| two.one.turned_away().contains_key(why));
        self.still_talk();
        assert!(self.others.is_empty());
    }

    /// Somebody who says that he is this shakes hands with 1; none if he is turned away.
    pub(super) fn shaken(&mut self, who: &Identity, to: u16) -> Option<Line> {
        let mut line = Line::dial(&self.one);
        let to = known(to);
        let wants = prove(&mut line, who, (77, to), || self.turn())?;
        self.read(&mut line, wants)?;
        Some(line)
    }

    /// Member 3, played by the test, has a session.
    pub(super) fn third(&mut self) -> Line {
        let third = self.shaken(&identity(member(3), server(3)), 1).expect("a session");
        self.until("member 3", |two| two.others.len() == 1);
        third
    }

    /// Member 3 has said something, and its session is lost; what else was heard of it.
    pub(super) fn loses_third(&mut self, said: &[u8]) -> (Vec<Event>, Loss) {
        let mut third = self.third();
        third.say(said);
        let is_lost = |two: &Self| matches!(two.others.last(), Some(Event::Lost(..)));
        self.until("it is lost", is_lost);
        assert_eq!(self.read(&mut third, 1), None);
        self.still_talk();
        let Some(Event::Lost(_, why)) = self.others.pop() else { panic!("just now") };
        (self.others.split_off(1), why)
    }
}
