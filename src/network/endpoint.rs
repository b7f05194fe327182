//! What a member's way to the others offers: frames in sessions, and nothing of what is in them.
//!
//! Invariants, which the suite (`conformance`) holds every implementation to:
//! * of each session there is, in this order, one `Connected`, frames, and one `Lost`; with a
//!   member there is one at a time, and each has a greater number than the one before;
//! * what comes in a session is the beginning of what was sent in it: in order, each frame once,
//!   unchanged; what is missing at the end is lost, and nobody says which;
//! * nobody waits but in `next`.

use std::net::SocketAddr;
use std::time::Duration;

use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;
use terral_format::wire::roster::Key;

/// Longest frame: 1 MiB of a file, and what is said of it.
pub const FRAME_BYTES: usize = (1 << 20) + (4 << 10);
/// What waits to go to a member at most, by [`weight`], beside what the network itself holds.
pub const IN_FLIGHT_BYTES: usize = 4 << 20;
/// The least that a frame counts for, so that empty ones are bounded, too.
const WEIGHT_LEAST: usize = 64;

/// What a frame of so many bytes counts for.
pub const fn weight(bytes: usize) -> usize {
    bytes + WEIGHT_LEAST
}

/// A session with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// With whom.
    pub with: Member,
    /// The same on both sides, and greater than that of any earlier session that either side has
    /// had with the other in this life of its process.
    pub number: u64,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// This side has cut it.
    Cut,
    /// This side has expelled the member.
    Expelled,
    /// The other side has, or its process has ended, or the network says that it is over.
    Closed,
    /// Nothing has come for long, or nothing was taken.
    Silent,
    /// The other side has begun another one: it has lost this one already.
    Replaced,
    /// What came is nothing that a member sends; this is what is wrong with it.
    Garbage(&'static str),
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is a session. Nothing that was sent in an earlier one comes any more.
    Connected(Session),
    /// A frame has come.
    Frame(Session, Box<[u8]>),
    /// A frame was refused as [`Refused::Full`]; there is room again. Said once.
    Room(Session),
    /// It is over: no frame of it comes any more, and what was under way may be lost.
    Lost(Session, Loss),
}

impl Event {
    /// Which session it is of.
    pub fn session(&self) -> Session {
        match self {
            Event::Connected(session)
            | Event::Frame(session, _)
            | Event::Room(session)
            | Event::Lost(session, _) => *session,
        }
    }
}

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// So much is under way that it is to be sent later: [`Event::Room`] says when.
    Full,
    /// The session is over; [`Event::Lost`] says so, or has.
    Over,
    /// It is longer than [`FRAME_BYTES`].
    TooLong,
}

/// A member that may have sessions with this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Which.
    pub member: Member,
    /// Its memory: another server that says it is this member is turned away.
    pub server: ServerId,
    /// By which it proves who it is.
    pub key: Key,
    /// Where it may be found, all of which are tried.
    pub addresses: Vec<SocketAddr>,
}

/// How long things last. The same for all members of a partition, but for the clocks' drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// After so long without a word a session is over. An idle one has four words in that time.
    pub silence: Duration,
    /// So long a connection may take until it has become a session.
    pub handshake: Duration,
    /// So long after the first attempt that failed comes the next; then twice as long, ...
    pub retry_first: Duration,
    /// ... and at most so long.
    pub retry_most: Duration,
}

impl Timing {
    /// Those of every partition.
    pub const USUAL: Timing = Timing {
        silence: Duration::from_secs(10),
        handshake: Duration::from_secs(5),
        retry_first: Duration::from_millis(50),
        retry_most: Duration::from_secs(5),
    };

    /// How often a word is sent where nothing else is.
    pub fn beat(&self) -> Duration {
        self.silence / 4
    }
}

/// A member's way to the others.
pub trait Endpoint {
    /// What time it is by the clock that it was given.
    fn now(&self) -> Moment;

    /// From now on there may be sessions with a member, whoever of the two wants one. One that is
    /// admitted already as another server, or with another key, is expelled first. Without effect
    /// for this one itself.
    fn admit(&mut self, peer: Peer);

    /// From now on there are none; one that there is, is over.
    fn expel(&mut self, member: Member);

    /// A session with a member is wanted: it is tried until there is one, or the member is
    /// expelled. One that is lost is not tried for again unless that is wanted again. Without
    /// effect if there is one, or the member was not admitted.
    fn reach(&mut self, member: Member);

    /// A session is to be over: what came of it and was not taken is dropped, and one
    /// [`Event::Lost`] follows on both sides. Without effect if it is over.
    fn cut(&mut self, session: Session);

    /// Sends a frame of 0 to [`FRAME_BYTES`] bytes. Never waits.
    ///
    /// # Errors
    /// [`Refused`]: nothing of the frame was sent.
    fn send(&mut self, session: Session, frame: &[u8]) -> Result<(), Refused>;

    /// Sends a frame that lies in parts, if nothing waits to go to the member; else it is
    /// [`Refused::Full`], and [`Event::Room`] is said once nothing does. For what is long: it goes
    /// from where it lies, as far as the network takes it now, and what is short and sent meanwhile
    /// waits behind one such frame at most. Never waits.
    ///
    /// # Errors
    /// [`Refused`]: nothing of the frame was sent.
    fn send_now(&mut self, session: Session, parts: &[&[u8]]) -> Result<(), Refused>;

    /// The next event, or none by `until`; a moment that has passed asks for what is there. Members
    /// of whom something waits have their turns. All that is done in the background is done in
    /// here: who does not call it for [`Timing::silence`] is silent to the others.
    fn next(&mut self, until: Moment) -> Option<Event>;
}
