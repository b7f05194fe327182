//! Sessions over TCP. A connection begins with a hand-shake (`shake`) in which both sides prove
//! who they are; then the lesser member says whether there is a session
//! in it, and which number it has. All I/O is done in [`Endpoint::next`] and [`Endpoint::send`], by
//! sockets that never wait: there is no thread.
//!
//! Who connects and proves nothing costs a socket, a few kilobytes and a time-out; there are at
//! most [`STRANGERS`] of them.

mod framing;
mod greeting;
mod ready;
mod signing;

mod waker;

mod encryption;

mod private;

mod backlog;

mod stream;

mod shake;

mod peer;

mod connections;

mod opening;

mod talking;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod beside;

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod away;

#[cfg(test)]
mod between;

#[cfg(test)]
mod sealed;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::moment::Moment;
use terral_format::{Error, ErrorKind, Result};

use crate::chance::Chance;
use crate::endpoint::{
    Endpoint, Event, FRAME_BYTES, IN_FLIGHT_BYTES, Loss, Peer, Refused, Session, Timing, weight,
};
use crate::turns::Turns;

pub use connections::STRANGERS;
pub use greeting::{Encryption, PartitionId, Ticket};
pub use private::Private;
pub use ready::{Found, Watch};
pub use shake::Identity;
pub use signing::public_half;
pub use waker::Waker;

use connections::{Connections, WAKER};
use encryption::Keys;
use peer::Admitted;

/// Bytes that are read of one member at once; of a long frame the rest, too.
const READ_BYTES: usize = 256 << 10;
/// After so many events one looks whether somebody else has something to say.
const TAKEN_AT_MOST: u32 = 16;

/// After so long one looks at everything, if nothing is to be done before.
const LONGEST_IDLE: Duration = Duration::from_secs(3600);
/// So long nobody is accepted where the system has no descriptors or memory for it.
const PAUSE: Duration = Duration::from_millis(100);

/// The clock that an endpoint goes by; it never goes back.
pub type Clock = Box<dyn Fn() -> Moment + Send>;

/// What is the same for all members of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long things last.
    pub timing: Timing,
    /// Whether what they say to each other is encrypted.
    pub encryption: Encryption,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { timing: Timing::USUAL, encryption: Encryption::Tls }
    }
}

/// A member's way to the others, over TCP.
pub struct Tcp {
    identity: Identity,
    timing: Timing,
    encryption: Encryption,
    clock: Clock,
    /// Which life of the process.
    life: u64,
    chance: Chance,
    connections: Connections,
    members: BTreeMap<Member, Admitted>,
    /// The latest session with each that was expelled.
    past: BTreeMap<Member, u64>,
    turns: Turns,
    scratch: Box<[u8]>,
    /// When this was last looked at.
    looked: Moment,
    /// When something is to be done that nobody else begins.
    due: Moment,
    /// How many events were taken since sockets were looked at.
    taken: u32,
    turned_away: BTreeMap<&'static str, u64>,
    /// Somebody has broken off the wait.
    woken: bool,
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::System, format!("random bytes: {error}")))?;
    Ok(bytes)
}

impl Tcp {
    /// A member that listens at an address; port 0 is any that is free.
    ///
    /// # Errors
    /// As the system has them: the address is in use, or not this machine's; no random bytes.
    pub fn listen(
        at: SocketAddr,
        identity: Identity,
        settings: Settings,
        clock: Clock,
    ) -> Result<Self> {
        let Settings { timing, encryption } = settings;
        let failed = |error: &std::io::Error| Error::system(error, format!("listen at {at}"));
        let listener = TcpListener::bind(at).map_err(|error| failed(&error))?;
        let keys = (encryption == Encryption::Tls).then(Keys::make).transpose()?;
        let connections = Connections::new(listener, keys).map_err(|error| failed(&error))?;
        let (life, chance) =
            (u64::from_le_bytes(random()?), Chance::new(u64::from_le_bytes(random()?)));
        let now = clock();
        Ok(Tcp {
            identity,
            timing,
            encryption,
            clock,
            life,
            chance,
            connections,
            members: BTreeMap::new(),
            past: BTreeMap::new(),
            turns: Turns::default(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            looked: now,
            due: now,
            taken: 0,
            turned_away: BTreeMap::new(),
            woken: false,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As the system has them.
    pub fn address(&self) -> Result<SocketAddr> {
        self.connections.address().map_err(|error| Error::system(&error, "the listener's address"))
    }

    /// What breaks off a wait in [`Endpoint::next`].
    pub fn waker(&self) -> Waker {
        self.connections.waker().clone()
    }

    /// By which one waits until [`Endpoint::next`] has something, while others may use it.
    pub fn watch(&self) -> Watch {
        self.connections.watch()
    }

    /// What such a wait has found: nobody asks the system for it once more. To be said before the
    /// next [`Endpoint::next`].
    pub fn has_found(&mut self, found: Found) {
        self.connections.has_found(found);
    }

    /// Until when one may wait so: it has something to do then though nothing comes.
    pub fn due(&self) -> Moment {
        let now = self.woken || !self.turns.is_empty() || self.connections.is_unread();
        if now { Moment(0) } else { self.due }
    }

    /// How many connections were turned away before they were a session, by what was wrong.
    pub fn turned_away(&self) -> &BTreeMap<&'static str, u64> {
        &self.turned_away
    }

    /// Sends a frame if no more than `most` waits; if more does, there is room when no more than
    /// `room` waits.
    fn send_if(
        &mut self,
        session: Session,
        parts: &[&[u8]],
        (most, room): (usize, usize),
    ) -> std::result::Result<(), Refused> {
        if parts.iter().map(|part| part.len()).sum::<usize>() > FRAME_BYTES {
            return Err(Refused::TooLong);
        }
        let now = self.now();
        let token = self.open(session).ok_or(Refused::Over)?.token;
        let unsent = self.connections.unsent(token);
        let open = self.open(session).ok_or(Refused::Over)?;
        if unsent > most {
            open.room = open.room.max(Some(room));
            return Err(Refused::Full);
        }
        open.said = now;
        if unsent == 0 {
            open.moved = now;
        }
        let header = framing::frame_header(self.encryption, parts);
        let all: Vec<&[u8]> = std::iter::once(&header[..]).chain(parts.iter().copied()).collect();
        self.connections.write(token, &all);
        Ok(())
    }

    /// Does what can be done now, or waits for that until then. What has come is read before
    /// anybody is called silent, and who has not looked himself for long gives the others time.
    fn look(&mut self, until: Moment) {
        let before = self.now();
        let wait = Duration::from_nanos(until.min(self.due).0.saturating_sub(before.0));
        let mut ready = self.connections.wait(wait);
        self.taken = 0;
        let (now, beat) = (self.now(), self.timing.beat());
        let was_away = before > self.looked + beat || now > before + wait + beat;
        if was_away {
            // A wait that was broken off has found nothing, whatever has come.
            ready = self.connections.wait(Duration::ZERO);
        }
        for token in ready {
            if token == WAKER {
                self.connections.waker().rest();
                self.woken = true;
            } else {
                self.serve(token, now);
            }
        }
        if was_away {
            self.forgive(now);
        }
        if now >= self.due {
            self.tend(now);
        }
        self.looked = now;
    }
}

impl Endpoint for Tcp {
    fn now(&self) -> Moment {
        (self.clock)()
    }

    fn admit(&mut self, peer: Peer) {
        if peer.member == self.identity.member {
            return;
        }
        if self
            .members
            .get(&peer.member)
            .is_some_and(|known| (known.server, known.key) != (peer.server, peer.key))
        {
            self.expel(peer.member);
        }
        let latest = self.past.get(&peer.member).copied().unwrap_or_default();
        let known = self.members.entry(peer.member);
        let known =
            known.or_insert_with(|| Admitted::new((peer.server, peer.key), latest, &self.timing));
        known.addresses = peer.addresses;
    }

    fn expel(&mut self, member: Member) {
        self.lose(member, Loss::Expelled);
        self.connections.close_dials(member);
        if let Some(known) = self.members.remove(&member) {
            self.past.insert(member, known.latest);
        }
    }

    fn reach(&mut self, member: Member) {
        let now = self.now();
        let Some(known) = self.members.get_mut(&member) else { return };
        if known.open.is_none() && known.next.is_none() {
            let next = now.max(known.earliest);
            known.next = Some(next);
            self.due = self.due.min(next);
        }
    }

    fn cut(&mut self, session: Session) {
        if self.open(session).is_some() {
            self.turns.drop_frames(session);
            self.lose(session.with, Loss::Cut);
        }
    }

    fn send(&mut self, session: Session, frame: &[u8]) -> std::result::Result<(), Refused> {
        let most = IN_FLIGHT_BYTES.saturating_sub(weight(frame.len()));
        self.send_if(session, &[frame], (most, IN_FLIGHT_BYTES / 2))
    }

    fn send_now(&mut self, session: Session, parts: &[&[u8]]) -> std::result::Result<(), Refused> {
        self.send_if(session, parts, (0, 0))
    }

    fn next(&mut self, until: Moment) -> Option<Event> {
        loop {
            let something_waits = !self.turns.is_empty();
            let is_due = self.taken >= TAKEN_AT_MOST || self.now() >= self.due;
            if is_due || !something_waits {
                self.look(if something_waits { Moment(0) } else { until });
            }
            if let Some(event) = self.turns.pop() {
                self.taken += 1;
                return Some(event);
            }
            if std::mem::take(&mut self.woken) || self.now() >= until {
                return None;
            }
        }
    }
}
