//! What the servers of a partition say to each other: messages, which are taken once and in order,
//! in frames, which may be lost, doubled, or late.
//!
//! A frame of these is one of [`crate::frame`], with a bound and a version of its own. Whatever the
//! bytes are, reading them ends in a [`Frame`] or an error, takes memory as there are bytes, and
//! passes over none. Not here: when which is said, and what is believed of whom (`partition`).

use serde::{Deserialize, Serialize};

use super::body::Body;
use super::list;
use crate::frame::{self, HEADER_BYTES};
use crate::ids::{Epoch, Loan, Member, Operation, ServerId, Thing};
use crate::moment::Moment;
use crate::{Error, ErrorKind, Result};

/// Version of what servers say to each other; all members of a partition have the same.
pub const PEERS: u16 = 15;
/// Longest payload of a frame: one message with the longest body.
pub const FRAME_MAX: usize = Body::MAX + (64 << 10);
/// A frame with more than one message is no longer.
const FRAME_FULL: usize = 960 << 10;
/// Most things of which one message says that they are held.
pub const HOLDS_MAX: usize = 1024;

/// `EIO`.
const EIO: i32 = 5;
/// `EXDEV`: who moves a file copies it then.
pub const EXDEV: i32 = 18;

/// What is to be done to a thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// It is looked at: a stat, a listing, a read.
    Look(Body),
    /// It is changed, or taken in use for that.
    Change(Body),
    /// It is changed together with another thing: it is to be lent, whoever else changes it.
    Take,
    /// It is looked at by who has it: for what a copy cannot say, as names that are missing in one.
    Find(Body),
}

impl Work {
    /// Bytes of what is to be done.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Look(body) | Work::Change(body) | Work::Find(body) => body.bytes().len(),
            Work::Take => 0,
        }
    }
}

/// Why something is not done: what it needs is another member's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// It was removed, and nobody else has it.
    Removed(Member),
    /// It has not answered for long. Whether a change was made may be unknown.
    Silent(Member),
    /// It is more than one member gives another, and what is to be done needs it.
    TooLarge,
    /// It is not given to a server of this user, who may not change it.
    NotYours,
    /// The right to move directories is given to no user's server.
    NotMoved,
}

impl Failure {
    /// What the client is told.
    pub fn error(self) -> Error {
        let context = match self {
            Failure::Removed(member) => {
                format!("{member} was removed from the partition, and only it had this")
            }
            Failure::Silent(member) => format!("{member} of the partition does not answer"),
            Failure::TooLarge => {
                let context = "a directory with more names than one machine gives another";
                return Error { errno: EXDEV, ..Error::new(ErrorKind::Unsupported, context) };
            }
            Failure::NotYours => {
                return Error::new(ErrorKind::Denied, "a directory that others have");
            }
            Failure::NotMoved => {
                let context = "a directory that gets another parent, by a user's server";
                return Error { errno: EXDEV, ..Error::new(ErrorKind::Unsupported, context) };
            }
        };
        Error { errno: EIO, ..Error::new(ErrorKind::Backing, context) }
    }
}

/// What an operation came to.
pub type Answer = std::result::Result<Body, Failure>;

/// What a member has of a removed one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Holding {
    /// The loan to change it.
    Whole(Loan),
    /// A copy that was good when it heard of the removal, which nobody changes without it.
    Kept(Loan),
}

/// What one server says to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// To the decider: this is to be done; by you, or lend or show it. There is one answer: `Lend`,
    /// `Show` or `Done`.
    Want {
        /// Done once, or not at all.
        operation: Operation,
        /// On what.
        thing: Thing,
        /// What.
        work: Work,
    },
    /// Do it yourself: the thing is yours to change. No body: you have it, by this loan.
    Lend {
        /// What was wanted.
        operation: Operation,
        /// What is lent.
        thing: Thing,
        /// By this loan.
        loan: Loan,
        /// As it is.
        body: Option<Body>,
    },
    /// Look yourself: it stays as it is, until the lease is over or it is recalled.
    Show {
        /// What was wanted.
        operation: Operation,
        /// What is shown.
        thing: Thing,
        /// By this loan.
        loan: Loan,
        /// As it is.
        body: Option<Body>,
    },
    /// It has been done, or is not.
    Done {
        /// What was wanted.
        operation: Operation,
        /// What came of it.
        answer: Answer,
    },
    /// To who has it: give it back.
    Recall {
        /// What.
        thing: Thing,
        /// Only if it is by this loan.
        loan: Loan,
    },
    /// To who has it to change: somebody wants to look.
    Ask {
        /// Whose operation, and which.
        operation: Operation,
        /// At what.
        thing: Thing,
        /// Only if it is by this loan.
        loan: Loan,
        /// How.
        look: Body,
    },
    /// The answer to `Ask` of one that goes on changing it.
    Looked {
        /// Of the question.
        operation: Operation,
        /// Of the question.
        thing: Thing,
        /// What was seen.
        answer: Body,
    },
    /// To the decider: a loan that is over, with what the thing is now.
    Return {
        /// What.
        thing: Thing,
        /// Which.
        loan: Loan,
        /// As it is.
        body: Body,
        /// Whether somebody there is still changing it.
        in_use: bool,
    },
    /// To the decider: a copy that is no more.
    Dropped {
        /// Of what.
        thing: Thing,
        /// Which.
        loan: Loan,
    },
    /// To the heir: what the sender has of what a removed member decided.
    Holds {
        /// The removed one.
        removed: Member,
        /// By thing. A machine says at most [`HOLDS_MAX`]; others are bound by the frame's length
        /// only.
        #[serde(deserialize_with = "list::deserialize")]
        held: Vec<(Thing, Holding)>,
        /// It has more of it, of which the next message is.
        more: bool,
    },
}

/// What goes over a connection at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Who sends it.
    pub from: Member,
    /// Of which memory it is.
    pub server: ServerId,
    /// Which table the sender goes by.
    pub epoch: Epoch,
    /// How many of the receiver's messages the sender has taken.
    pub taken: u64,
    /// How many the sender has said before these.
    pub before: u64,
    /// What it says now.
    #[serde(deserialize_with = "list::deserialize")]
    pub messages: Vec<Message>,
    /// When it was sent, by the sender's clock.
    pub sent: Moment,
    /// The latest `sent` of the receiver's that the sender knows: what it has shown may be used for
    /// a term from then, once `before` and all these messages are taken.
    pub renewed: Option<Moment>,
    /// Whether the sender asks for that.
    pub renew: bool,
}

impl Message {
    /// Bytes that a message takes beside its bodies and what it holds, at most.
    const FIXED_MAX: usize = 64;
    /// Bytes of one thing that is held, at most.
    const HELD_MAX: usize = 32;

    /// Bytes that it takes in a frame, at most.
    pub fn bytes_at_most(&self) -> usize {
        let inside = match self {
            Message::Want {
                work: Work::Look(body) | Work::Change(body) | Work::Find(body),
                ..
            } => body.bytes().len(),
            Message::Want { work: Work::Take, .. } => 0,
            Message::Lend { body, .. } | Message::Show { body, .. } => {
                body.as_ref().map_or(0, |body| body.bytes().len())
            }
            Message::Done { answer, .. } => answer.as_ref().map_or(0, |body| body.bytes().len()),
            Message::Ask { look: body, .. }
            | Message::Looked { answer: body, .. }
            | Message::Return { body, .. } => body.bytes().len(),
            Message::Recall { .. } | Message::Dropped { .. } => 0,
            Message::Holds { held, .. } => held.len() * Self::HELD_MAX,
        };
        Self::FIXED_MAX + inside
    }
}

/// How many of these go into one frame, from the first on: one at least, if there is one.
pub fn fitting(messages: &[Message]) -> usize {
    let mut room = FRAME_FULL - Frame::FIXED_MAX;
    let fits = |message: &&Message| {
        let bytes = message.bytes_at_most();
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    };
    messages.iter().take_while(fits).count().max(1).min(messages.len())
}

impl Frame {
    /// Bytes that a frame takes beside its messages, at most.
    const FIXED_MAX: usize = 96;

    /// Whether all that it says takes no more bytes than this.
    pub fn is_within(&self, bytes: usize) -> bool {
        self.messages.iter().map(Message::bytes_at_most).sum::<usize>() <= bytes
    }

    /// Appends its bytes to `out`. Its messages are as many as are [`fitting`].
    ///
    /// # Errors
    /// None, of what this program has made.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let payload = frame::encode(self)?;
        assert!(payload.len() <= FRAME_MAX, "our own frames are bounded");
        frame::write(out, PEERS, &payload);
        Ok(())
    }

    /// The frame whose bytes are all of these.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] if it is of another version, [`ErrorKind::Corrupt`] if its bytes are
    /// not what was sent, [`ErrorKind::Malformed`] for anything else that no member sends.
    pub fn read(bytes: &[u8]) -> Result<Frame> {
        payload_bytes(bytes)?;
        let frame = frame::read(bytes)?;
        if !frame.rest.is_empty() {
            return Err(Error::new(ErrorKind::Malformed, "frame of a member: bytes left over"));
        }
        frame::decode(frame.payload)
    }
}

/// Length of the payload that the header of a member's frame announces: asked before memory is
/// taken for it.
///
/// # Errors
/// As [`Frame::read`]'s.
pub fn payload_bytes(header: &[u8]) -> Result<usize> {
    let length = frame::payload_bytes(header)?;
    if let Some(header) = header.first_chunk::<HEADER_BYTES>() {
        frame::is_of(frame::version(header), PEERS)?;
    }
    if length > FRAME_MAX {
        let context = format!("frame of a member: absurd length {length}");
        return Err(Error::new(ErrorKind::Malformed, context));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::{
        Body, FRAME_MAX, Frame, HOLDS_MAX, Holding, Message, Work, fitting, payload_bytes,
    };
    use crate::frame::{self, HEADER_BYTES};
    use crate::ids::{Epoch, Loan, Member, NUMBERS, Number, Operation, ServerId, Thing};
    use crate::moment::Moment;
    use crate::{Error, ErrorKind};

    /// The values that take most bytes.
    fn last() -> (Member, Thing, Loan, Operation, Body) {
        let by = Member::new(Member::MAX - 1).expect("14 bits");
        let number = Number::new(by, NUMBERS - 1).expect("50 bits");
        let thing = Thing::Chunk(number, u32::MAX);
        let (loan, operation) = (Loan { by, number: u64::MAX }, Operation { by, number: u64::MAX });
        (by, thing, loan, operation, Body::new(vec![0xff; Body::MAX]).expect("not too long"))
    }

    fn longest() -> Vec<Message> {
        let (by, thing, loan, operation, body) = last();
        let (some, held) = (Some(body.clone()), vec![(thing, Holding::Kept(loan)); HOLDS_MAX]);
        vec![
            Message::Want { operation, thing, work: Work::Change(body.clone()) },
            Message::Lend { operation, thing, loan, body: some.clone() },
            Message::Show { operation, thing, loan, body: some },
            Message::Done { operation, answer: Ok(body.clone()) },
            Message::Recall { thing, loan },
            Message::Ask { operation, thing, loan, look: body.clone() },
            Message::Looked { operation, thing, answer: body.clone() },
            Message::Return { thing, loan, body, in_use: true },
            Message::Dropped { thing, loan },
            Message::Holds { removed: by, held, more: true },
        ]
    }

    fn frame_of(messages: Vec<Message>) -> Frame {
        let most = u64::MAX;
        Frame {
            from: last().0,
            server: ServerId(most),
            epoch: Epoch(most),
            taken: most,
            before: most,
            messages,
            sent: Moment(most),
            renewed: Some(Moment(most)),
            renew: true,
        }
    }

    fn written(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("encodes");
        bytes
    }

    #[test]
    fn no_message_takes_more_than_is_counted_for_it_and_each_fits_a_frame() {
        for message in longest() {
            let bytes = frame::encode(&message).expect("encodes").len();
            let counted = message.bytes_at_most();
            assert!((bytes..bytes + 4096).contains(&counted), "{bytes} of {counted}");
            assert_eq!(fitting(std::slice::from_ref(&message)), 1);
        }
        let empty = frame::encode(&frame_of(Vec::new())).expect("encodes").len();
        assert!(empty + 4 <= Frame::FIXED_MAX, "{empty}");
    }

    #[test]
    fn what_fits_is_in_frames_that_are_read_however_much_there_is() {
        let short = Message::Recall { thing: last().1, loan: last().2 };
        let many = std::iter::repeat_n(short, 9000).chain(longest()).collect::<Vec<_>>();
        let (mut rest, mut frames) = (many.as_slice(), 0);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(fitting(rest));
            let frame = frame_of(now.to_vec());
            let bytes = written(&frame);
            assert!(bytes.len() <= HEADER_BYTES + FRAME_MAX);
            assert_eq!(Frame::read(&bytes), Ok(frame));
            (rest, frames) = (later, frames + 1);
        }
        assert!((8..20).contains(&frames), "{frames}");
    }

    #[test]
    fn what_no_member_sends_is_an_error_that_says_why() {
        let bytes = written(&frame_of(longest()[4..5].to_vec()));
        let kind = |bytes: &[u8]| Frame::read(bytes).map_err(|Error { kind, .. }| kind);
        let changed = |at: usize, by: u8| {
            let mut bytes = bytes.clone();
            bytes[at] ^= by;
            bytes
        };
        assert_eq!(kind(&bytes[..HEADER_BYTES - 1]), Err(ErrorKind::Malformed));
        assert_eq!(kind(&bytes[..bytes.len() - 1]), Err(ErrorKind::Malformed));
        assert_eq!(kind(&[&bytes[..], &[0]].concat()), Err(ErrorKind::Malformed));
        assert_eq!(kind(&changed(4, 1)), Err(ErrorKind::Version));
        assert_eq!(kind(&changed(7, 1)), Err(ErrorKind::Malformed));
        assert_eq!(kind(&changed(HEADER_BYTES, 1)), Err(ErrorKind::Corrupt));
        let mut more = Vec::new();
        frame::write(&mut more, super::PEERS, &[&bytes[HEADER_BYTES..], &[0]].concat());
        assert_eq!(kind(&more), Err(ErrorKind::Malformed));
    }

    #[test]
    fn a_longer_frame_than_any_is_refused_by_its_header() {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, super::PEERS, &vec![0; FRAME_MAX]);
        assert_eq!(payload_bytes(&bytes[..HEADER_BYTES]), Ok(FRAME_MAX));
        bytes[..4].copy_from_slice(&(FRAME_MAX as u32 + 1).to_le_bytes());
        let refused = payload_bytes(&bytes[..HEADER_BYTES]).map_err(|Error { kind, .. }| kind);
        assert_eq!(refused, Err(ErrorKind::Malformed));
    }

    #[test]
    fn no_member_beyond_the_last_is_read() {
        for (number, is_one) in [(Member::MAX - 1, true), (Member::MAX, false)] {
            let bytes = frame::encode(&number).expect("encodes");
            assert_eq!(frame::decode::<Member>(&bytes).ok(), Member::new(number));
            assert_eq!(frame::decode::<Member>(&bytes).is_ok(), is_one);
        }
    }
}
