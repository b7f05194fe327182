//! The listener and the connections of an endpoint, by tokens that are not used twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::moment::Moment;

use super::encryption::Keys;
use super::greeting::Said;
use super::ready::{Found, Ready, Token, Watch};
use super::shake::Shake;
use super::stream::{Came, Stream};
use super::waker::Waker;

/// Connections at most that were accepted and have proven nothing. One more, and the oldest is
/// closed: a member is through in one round trip, or two with TLS, so that one would have to be
/// flooded within that.
pub const STRANGERS: usize = 64;
/// Connections that are accepted at once.
const ACCEPTED_AT_ONCE: usize = 16;

/// The listener's.
pub(super) const LISTENER: Token = 0;
/// The waker's.
pub(super) const WAKER: Token = Token::MAX;

/// How far a connection is.
pub(super) enum Phase {
    /// It is not a session yet.
    Shaking(Box<Shake>),
    /// It is the session with this member.
    Open(Member),
}

/// One of them.
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) phase: Phase,
    pub(super) begun: Moment,
    /// Who was dialled, and where.
    pub(super) dialled: Option<(Member, SocketAddr)>,
    /// Whether it is looked at for room to write.
    writes: bool,
}

/// All of them.
pub(super) struct Connections {
    ready: Ready,
    waker: Waker,
    listener: TcpListener,
    /// By which they are encrypted, if they are.
    keys: Option<Keys>,
    /// The system has no descriptor left, or no memory: nobody is accepted for a while.
    pub(super) is_paused: bool,
    list: BTreeMap<Token, Connection>,
    next: Token,
    /// Of which something has come that nobody has taken, so that their sockets may have nothing.
    unread: BTreeSet<Token>,
    /// What somebody has found ready who waited for it.
    found: Found,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, keys: Option<Keys>) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let ready = Ready::new()?;
        ready.add(&listener, LISTENER, false)?;
        let waker = Waker::new()?;
        ready.add(waker.descriptor(), WAKER, false)?;
        let (list, unread, next) = (BTreeMap::new(), BTreeSet::new(), LISTENER + 1);
        let (is_paused, found) = (false, Found::default());
        Ok(Connections { ready, waker, listener, keys, is_paused, list, next, unread, found })
    }

    pub(super) fn watch(&self) -> Watch {
        self.ready.watch()
    }

    /// Whether something has come that no socket says any more.
    pub(super) fn is_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// These are ready: the next wait is over.
    pub(super) fn has_found(&mut self, found: Found) {
        self.found = found;
    }

    /// Waits until one has something to say or room, or for so long.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<Token> {
        let Found(found) = std::mem::take(&mut self.found);
        if self.unread.is_empty() {
            return if found.is_empty() { self.ready.wait(time) } else { found };
        }
        let ready = self.ready.wait(Duration::ZERO);
        ready.into_iter().filter(|at| !self.unread.contains(at)).chain(self.unread()).collect()
    }

    fn unread(&self) -> impl Iterator<Item = Token> {
        self.unread.iter().copied()
    }

    fn add(
        &mut self,
        stream: Stream,
        shake: Shake,
        dialled: Option<(Member, SocketAddr)>,
        begun: Moment,
    ) -> std::io::Result<()> {
        let (token, writes) = (self.next, stream.unsent() > 0);
        self.ready.add(stream.socket(), token, writes)?;
        self.next += 1;
        let phase = Phase::Shaking(Box::new(shake));
        self.list.insert(token, Connection { stream, phase, begun, dialled, writes });
        Ok(())
    }

    fn accepted(&self, socket: TcpStream) -> std::io::Result<Stream> {
        let tls = self.keys.as_ref().map(Keys::accept).transpose()?;
        Stream::new(socket, tls)
    }

    /// Takes one who has dialled; whether there may be another.
    fn accept_one(&mut self, shake: &mut impl FnMut() -> Option<Shake>, now: Moment) -> bool {
        match self.listener.accept() {
            Ok((socket, _)) => {
                if let (Ok(stream), Some(shake)) = (self.accepted(socket), shake()) {
                    // Without room in the set it is closed.
                    _ = self.add(stream, shake, None, now);
                }
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => true,
            Err(_) => {
                self.is_paused = self.ready.pause(&self.listener, LISTENER).is_ok();
                false
            }
        }
    }

    /// Takes who has dialled; how many strangers were closed for that.
    pub(super) fn accept(
        &mut self,
        mut shake: impl FnMut() -> Option<Shake>,
        now: Moment,
    ) -> usize {
        (0..ACCEPTED_AT_ONCE).take_while(|_| self.accept_one(&mut shake, now)).count();
        let is_stranger =
            |one: &Connection| matches!(one.phase, Phase::Shaking(_)) && one.dialled.is_none();
        let strangers = self.list.iter().filter(|(_, one)| is_stranger(one));
        let strangers: Vec<Token> = strangers.map(|(token, _)| *token).collect();
        let over = strangers.len().saturating_sub(STRANGERS);
        strangers[..over].iter().for_each(|token| self.close(*token));
        over
    }

    /// The listener is looked at again.
    pub(super) fn resume(&mut self) {
        self.is_paused = self.ready.set(&self.listener, LISTENER, false).is_err();
    }

    /// Dials a member at an address, unless that is being done.
    pub(super) fn dial(
        &mut self,
        to: (Member, SocketAddr),
        (shake, said): (Shake, Said),
        now: Moment,
    ) -> std::io::Result<()> {
        if self.list.values().any(|one| one.dialled == Some(to) && !one.is_open()) {
            return Ok(());
        }
        let tls = self.keys.as_ref().map(|keys| keys.dial(to.1)).transpose()?;
        let mut stream = Stream::dial(to.1, tls)?;
        stream.write(&[&said])?;
        self.add(stream, shake, Some(to), now)
    }

    pub(super) fn get(&mut self, token: Token) -> Option<&mut Connection> {
        self.list.get_mut(&token)
    }

    /// Those that are not sessions yet.
    pub(super) fn shaking(&self) -> impl Iterator<Item = (Token, &Connection)> {
        let all = self.list.iter().map(|(token, one)| (*token, one));
        all.filter(|(_, one)| !one.is_open())
    }

    /// No attempt to dial a member is gone on with.
    pub(super) fn close_dials(&mut self, member: Member) {
        let is_dial = |one: &Connection| one.dialled.is_some_and(|(to, _)| to == member);
        let dials = self.shaking().filter(|(_, one)| is_dial(one));
        let dials: Vec<Token> = dials.map(|(token, _)| token).collect();
        dials.into_iter().for_each(|token| self.close(token));
    }

    pub(super) fn close(&mut self, token: Token) {
        if let Some(mut one) = self.list.remove(&token) {
            one.stream.say_goodbye();
        }
        self.unread.remove(&token);
    }

    pub(super) fn unsent(&self, token: Token) -> usize {
        self.list.get(&token).map_or(0, |one| one.stream.unsent())
    }

    /// Says something. A connection into which it cannot go is over, and says so when it is read.
    pub(super) fn write(&mut self, token: Token, parts: &[&[u8]]) {
        if let Some(one) = self.list.get_mut(&token)
            && one.stream.write(parts).is_err()
        {
            one.stream.end();
        }
        self.look_for_room(token);
    }

    /// Lets go what can go; how much that was.
    pub(super) fn flush(&mut self, token: Token) -> usize {
        let Some(one) = self.list.get_mut(&token) else { return 0 };
        let went = one.stream.flush().unwrap_or_default();
        self.look_for_room(token);
        went
    }

    /// Gives memory back that was not needed since the last time.
    pub(super) fn rest(&mut self, token: Token) {
        if let Some(one) = self.list.get_mut(&token) {
            one.stream.rest();
        }
    }

    fn look_for_room(&mut self, token: Token) {
        let Some(one) = self.list.get_mut(&token) else { return };
        let writes = one.stream.unsent() > 0;
        if writes != one.writes && self.ready.set(one.stream.socket(), token, writes).is_ok() {
            one.writes = writes;
        }
    }

    /// Reads what has come before there is a session, and lets go what TLS answers.
    pub(super) fn read_first(&mut self, token: Token, into: &mut [u8]) -> Came {
        let Some(one) = self.list.get_mut(&token) else { return Came::Nothing };
        let came = one.stream.read_first(into);
        self.flush(token);
        came
    }

    /// It is a session from now on.
    pub(super) fn begin(&mut self, token: Token, with: Member) {
        let Some(one) = self.list.get_mut(&token) else { return };
        one.phase = Phase::Open(with);
        if one.stream.is_unread() {
            self.unread.insert(token);
        }
    }

    /// Reads what has come in a session, by way of `scratch`, and hands it on.
    pub(super) fn read(
        &mut self,
        token: Token,
        scratch: &mut [u8],
        hand: impl FnMut(&[u8]),
    ) -> Came {
        self.unread.remove(&token);
        let one = self.list.get_mut(&token);
        one.map_or(Came::Nothing, |one| one.stream.read(scratch, hand))
    }

    /// Reads what has come in a session that is not encrypted to the end of `into`, without taking
    /// more memory for it.
    pub(super) fn read_plain(&mut self, token: Token, into: &mut Vec<u8>) -> Came {
        self.list.get_mut(&token).map_or(Came::Nothing, |one| one.stream.read_plain(into))
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }
}
