//! Two members who talk to each other, beside whom a test plays strangers and a third member.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use terral_format::ids::Member;

use super::Tcp;
use super::shake::{Identity, Known, Next, Shake};
use super::tests::{TIMING, clock, identity, loopback};
use crate::conformance::crowd::{member, server};
use crate::endpoint::{Endpoint, Event, Loss, Peer, Refused, Session};

pub(super) fn known(of: u16) -> (Member, Known) {
    (member(of), Known { server: server(of), latest: 0 })
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
}

pub(super) fn peer(number: u16, addresses: Vec<SocketAddr>) -> Peer {
    Peer { member: member(number), server: server(number), addresses }
}

pub(super) fn listen(number: u16) -> Tcp {
    let who = identity(member(number), server(number));
    Tcp::listen(loopback(), who, TIMING, clock()).expect("the loopback device")
}

impl Two {
    pub(super) fn new() -> Self {
        let (mut one, mut two) = (listen(1), listen(2));
        one.admit(peer(2, Vec::new()));
        one.admit(peer(3, Vec::new()));
        two.admit(peer(1, vec![one.address().expect("it listens")]));
        two.reach(member(1));
        let talk = Session { with: member(1), number: 1 };
        let mut two = Two { one, two, talk, heard: 0, others: Vec::new() };
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
        let stream = TcpStream::connect(self.one.address().expect("it listens")).expect("connect");
        stream.set_nonblocking(true).expect("a socket");
        stream
    }

    /// What 1 says, so many bytes of it; none if it closes the connection.
    pub(super) fn read(&mut self, from: &mut TcpStream, count: usize) -> Option<Vec<u8>> {
        let (mut bytes, end) = (Vec::new(), self.one.now() + PATIENCE);
        while bytes.len() < count {
            assert!(self.one.now() < end, "neither said nor closed");
            let mut more = vec![0; count - bytes.len()];
            match from.read(&mut more) {
                Ok(0) => return None,
                Ok(some) => bytes.extend_from_slice(&more[..some]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.turn(),
                Err(_) => return None,
            }
        }
        Some(bytes)
    }

    /// 1 closes it without having said anything, and why.
    pub(super) fn is_turned_away(&mut self, mut stream: TcpStream, why: &'static str) {
        assert_eq!(self.read(&mut stream, 1), None);
        self.until(why, |two| two.one.turned_away().contains_key(why));
        self.still_talk();
        assert!(self.others.is_empty());
    }

    /// Somebody who says that he is this shakes hands with 1; none if he is turned away.
    pub(super) fn shaken(&mut self, who: &Identity, to: u16) -> Option<TcpStream> {
        let mut stream = self.dialled();
        let to = (member(to), Known { server: server(to), latest: 0 });
        let (mut shake, said) = Shake::dial(who, 77, [9; 32], to);
        stream.write_all(&said).expect("a greeting");
        let answer = self.read(&mut stream, shake.wants())?;
        let known = |_: Member| Some(to.1);
        let Ok(Next::Proven(proof)) = shake.take(&answer, known) else { return None };
        stream.write_all(&proof).expect("a proof");
        self.read(&mut stream, shake.wants())?;
        Some(stream)
    }

    /// Member 3, played by the test, has a session.
    pub(super) fn third(&mut self) -> TcpStream {
        let third = self.shaken(&identity(member(3), server(3)), 1).expect("a session");
        self.until("member 3", |two| two.others.len() == 1);
        third
    }

    /// Member 3 has said something, and its session is lost; what else was heard of it.
    pub(super) fn loses_third(&mut self, said: &[u8]) -> (Vec<Event>, Loss) {
        let mut third = self.third();
        third.write_all(said).expect("it is read");
        let is_lost = |two: &Self| matches!(two.others.last(), Some(Event::Lost(..)));
        self.until("it is lost", is_lost);
        assert_eq!(self.read(&mut third, 1), None);
        self.still_talk();
        let Some(Event::Lost(_, why)) = self.others.pop() else { panic!("just now") };
        (self.others.split_off(1), why)
    }
}
