//! What a server asks of the one where a file was born, whose bytes are there, and what that one
//! answers: one frame of [`crate::frame`] each, with a version of its own, and behind it bytes of
//! the file as they are. Of these the frame says only how many they are: that they are what was
//! sent, the network sees to, which sums up all that it carries.
//!
//! Invariants: as those of [`super::peers`]: whatever the bytes are, reading them ends in a
//! question, an answer, or an error, and takes memory as there are bytes. Not here: what is done
//! once, and by whom (`server/far`).

use serde::{Deserialize, Serialize};

use super::fencing::{Fenced, Fencing};
use super::list;
use super::locks::{FarLock, FarOwner, HeldLock};
use super::placed::Placing;
use super::updates::{Attempt, Update};
use crate::frame::{self, HEADER_BYTES};
use crate::ids::{Member, Number, SessionSlot};
use crate::{Error, ErrorKind, Result};

/// Version of a question's frame. It differs from that of an answer, and from
/// [`super::peers::PEERS`], so that a frame says what it is.
pub const QUESTIONS: u16 = 0x010f;
/// Version of an answer's frame.
pub const ANSWERS: u16 = 0x020f;
/// Longest frame, with its header: the network takes none that is longer than 4 KiB more than 1
/// MiB, in which there is something before it.
pub const FRAME_MAX: usize = BYTES_MAX + (4 << 10) - 64;
/// Most bytes of a file in one frame.
pub const BYTES_MAX: usize = 1 << 20;
/// Most files of which one question says that they are open.
pub const OPEN_MAX: usize = 64 << 10;

/// Which of the two a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// A question, to who has the file.
    Question,
    /// An answer, to who has asked.
    Answer,
}

/// What a frame is, by its header; none of these: it is of [`super::peers`].
pub fn said(frame: &[u8]) -> Option<Said> {
    match frame::version(frame.first_chunk::<HEADER_BYTES>()?) {
        QUESTIONS => Some(Said::Question),
        ANSWERS => Some(Said::Answer),
        _ => None,
    }
}

/// Which question it is: the same if the request that needs the answer is carried out anew, also
/// by the next process of the server that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id {
    /// Who asks.
    pub by: Member,
    /// For which session; [`Id::NOBODY`] if for none.
    pub session: SessionSlot,
    /// Whose that is.
    pub pid: u32,
    /// When that process started; of a question for nobody, the life of the server's process.
    pub started_ticks: u64,
    /// In which slot of the session the request is.
    pub index: u8,
    /// Which request of that slot; of a question for nobody, its number.
    pub sequence: u64,
    /// Which question of that request.
    pub step: u8,
}

impl Id {
    /// No session has this number.
    pub const NOBODY: SessionSlot = SessionSlot(u16::MAX);
}

/// Something to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// It is open there from now on, and stays if it loses its last name.
    Open,
    /// Nobody has it open there any more.
    Close,
    /// These bytes of it are read: fewer at its end.
    Read {
        /// From here on.
        at: u64,
        /// So many, at most [`BYTES_MAX`].
        bytes: u32,
        /// They are kept there as long as the file is shown. [`ErrorKind::Busy`] if it may be
        /// changed without anybody asking.
        kept: bool,
        /// [`Done::With`] is an answer.
        direct: bool,
    },
    /// The bytes behind the words are written.
    Write {
        /// From here on; `None`: at its end, wherever that is.
        at: Option<u64>,
        /// By somebody who takes set-id bits off.
        strips: bool,
        /// With this token of a named lock; 0: without one.
        token: u64,
    },
    /// It is to be this long.
    Truncate {
        /// Bytes.
        size: u64,
        /// By somebody who takes set-id bits off.
        strips: bool,
        /// As that of [`Act::Write`].
        token: u64,
    },
    /// Nothing is done: what came of the question of the same request with this step?
    Recall {
        /// [`Id::step`] of that.
        step: u8,
    },
    /// A lock is taken, changed or given back, for who asks. [`ErrorKind::WouldBlock`] if another
    /// one is in the way, [`ErrorKind::Deadlock`] if who waits for it would for ever.
    Lock(FarLock),
    /// Which lock would be in the way of this one?
    TestLock(FarLock),
    /// Asked of a member that may have been shown a file of who asks: has it that open, now that it
    /// has lost its last name? If so it says [`Act::Open`] and [`Act::Close`] of it from then on.
    IsOpen,
    /// It has lost its last name that is known there; it may have others elsewhere. Said again, it
    /// is as if said once.
    Lost {
        /// Who asks.
        by: Member,
        /// Which of the times at which it has lost one there.
        token: u64,
    },
    /// Chunks of which nothing is there are who asks' alone from now on, until they are asked back:
    /// what it writes to them stays in its memory → [`Done::Lent`], or [`Done::Unknown`] if there
    /// are none.
    Borrow {
        /// Who asks.
        by: Member,
        /// The first; those after it only as far as all before them are.
        first: u64,
        /// So many.
        count: u32,
        /// By somebody who takes set-id bits off.
        strips: bool,
    },
    /// In a chunk that it has, who asks has written up to here: the file is at least so long →
    /// done; [`Done::Unknown`] if the chunk is its alone no more.
    Grow {
        /// Who asks.
        by: Member,
        /// Bytes.
        to: u64,
    },
    /// Chunks that who asks has were last written then, nanoseconds since 1970.
    Wrote {
        /// When.
        at_ns: u64,
    },
    /// Who asks wants these chunks, which it has, to be asked back. It is told of each that is →
    /// done; [`Done::Stays`] if it need not have been before it has the file open no more.
    Return {
        /// Who asks.
        by: Member,
        /// The first.
        first: u64,
        /// So many.
        count: u32,
        /// Who asks is about to leave: nothing stays there.
        leaves: bool,
    },
    /// Asked of a member that has a chunk of a file of who asks: nobody there reads or writes it
    /// any more, and these bytes of it are read: fewer if the rest was never written →
    /// [`Done::Read`]; [`Done::Unknown`] if it has nothing of it.
    GiveBack {
        /// Which.
        index: u64,
        /// From here on in the chunk.
        at: u32,
        /// So many, at most [`BYTES_MAX`].
        bytes: u32,
        /// What was lent before this stamp it asks for, and not what was lent since.
        stamp: u64,
    },
    /// Told such a member: its bytes are there, the chunk is not its any more.
    Took {
        /// Which.
        index: u64,
        /// As that of [`Act::GiveBack`].
        stamp: u64,
    },
    /// The bytes behind the words are records of a [batch](crate::local::batch), which are
    /// written, in order → done.
    Merge {
        /// By somebody who takes set-id bits off.
        strips: bool,
    },
    /// A chunk, whatever is in it, is to be who asks' alone, to be mapped → [`Done::Offered`]; its
    /// bytes are read next. [`Done::Lent`] if it is its already, [`Done::Unknown`] if it cannot be
    /// had just now; [`ErrorKind::TextBusy`] if others have it mapped.
    Offer {
        /// Who asks.
        by: Member,
        /// Which.
        index: u64,
        /// By somebody who takes set-id bits off.
        strips: bool,
    },
    /// Who asks has all bytes of a chunk that was offered: it is its alone from now on →
    /// [`Done::Lent`]; [`Done::Unknown`] if it may have been changed since.
    Accept {
        /// Who asks.
        by: Member,
        /// Which.
        index: u64,
        /// By which it was offered.
        stamp: u64,
    },
    /// Asked of a member that has a chunk of a file of who asks mapped: these bytes of it are read
    /// → [`Done::Read`]; [`Done::Unknown`] if it is not mapped there any more.
    ReadMapped {
        /// Which.
        index: u64,
        /// From here on in the chunk.
        at: u32,
        /// So many, at most [`BYTES_MAX`].
        bytes: u32,
    },
    /// Asked of such a member: the bytes behind the words are written there → done;
    /// [`Done::Unknown`] if it is not mapped there any more.
    WriteMapped {
        /// Which.
        index: u64,
        /// From here on in the chunk.
        at: u32,
    },
    /// Something is said of a named lock, or of what it protects, by this one of who asks →
    /// [`Done::Fenced`].
    Fencing(FarOwner, Fencing),
    /// An object is to be had there, which the bytes behind the words say, as
    /// [`Placed`](super::placed::Placed); the file's number tells such questions apart.
    Place(Placing),
    /// The file's update id is wanted, or a write as long as it has one, by this request of who
    /// asks; the bytes behind the words are records of a [batch](crate::local::batch) →
    /// [`Done::Updated`]. [`ErrorKind::Changed`] if it has another one. Done again, also by another
    /// process, it is as if it were done once.
    Update(Attempt, Update),
    /// Asked of a member where a chunk of a file of who asks is to be: it has all bytes of it come
    /// from who has it, and says [`Act::Kept`] then → done; [`Done::Unknown`] if it cannot.
    Take {
        /// Which.
        index: u64,
        /// So many bytes of it count.
        bytes: u32,
        /// Who has it: who asks, another one, or who is asked.
        from: Member,
        /// As that of [`Done::Lent`].
        stamp: u64,
    },
    /// Who asks has all bytes of a chunk that it was to take, and nobody there uses it → as
    /// [`Act::Accept`].
    Kept {
        /// Who asks.
        by: Member,
        /// Which.
        index: u64,
        /// By which it was to.
        stamp: u64,
    },
    /// Asked of a member that keeps a chunk of a file, whosever that is, or by who is to take it:
    /// these bytes of it are read: fewer if the rest was never written → [`Done::Read`];
    /// [`Done::Unknown`] if it has nothing of it, or programs there may write to it.
    ReadPart {
        /// Which.
        index: u64,
        /// From here on in the chunk.
        at: u32,
        /// So many, at most [`BYTES_MAX`].
        bytes: u32,
        /// By which who asks is to [take](Act::Take) it: nobody writes to it any more, unless it
        /// was lent since; 0 of who only reads.
        stamp: u64,
    },
}

impl Act {
    /// Whether it is said to who uses a file, by the member where that was born.
    pub fn is_to_user(&self) -> bool {
        let is_others = matches!(self, Act::ReadPart { .. } | Act::Kept { .. });
        matches!(self, Act::IsOpen) || (self.is_urgent() && !is_others)
    }

    /// The same, by somebody who takes set-id bits off.
    pub fn stripping(mut self) -> Self {
        match &mut self {
            // Nobody else knows what he may read.
            Act::Read { direct, .. } => *direct = false,
            Act::Write { strips, .. }
            | Act::Truncate { strips, .. }
            | Act::Borrow { strips, .. }
            | Act::Merge { strips }
            | Act::Offer { strips, .. }
            | Act::Update(_, Update::Write { strips, .. }) => *strips = true,
            _ => {}
        }
        self
    }

    /// Whether the answer is to come however long others take to do what they were asked: they may
    /// wait for it.
    pub fn is_urgent(&self) -> bool {
        matches!(
            self,
            Act::GiveBack { .. }
                | Act::Took { .. }
                | Act::ReadMapped { .. }
                | Act::WriteMapped { .. }
                | Act::Take { .. }
                | Act::Kept { .. }
                | Act::ReadPart { .. }
        )
    }

    /// Whether doing it twice, or later, differs from doing it once.
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Act::Write { .. }
                | Act::Merge { .. }
                | Act::Truncate { .. }
                | Act::Grow { .. }
                | Act::WriteMapped { .. }
                | Act::Place(_)
                | Act::Update(_, Update::Write { .. })
        )
    }

    /// Whether what is not known is not to be done a second time: whether another process of who
    /// was asked has done it.
    pub fn is_once(&self) -> bool {
        matches!(self, Act::Write { at: None, .. })
            || matches!(self, Act::Place(what) if what.is_once())
    }

    /// Whether bytes go behind its words.
    pub fn has_bytes(&self) -> bool {
        matches!(self, Act::Write { .. } | Act::Merge { .. } | Act::WriteMapped { .. })
            || matches!(self, Act::Place(_) | Act::Update(_, Update::Write { .. }))
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The first question of a session: of the files of who is asked, these are open; `None`: they
    /// are too many to say, and all that were may still be. At most [`OPEN_MAX`].
    Begin(#[serde(deserialize_with = "some_list")] Option<Vec<Number>>),
    /// Something is done with a file.
    File(Number, Act),
}

fn some_list<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Vec<Number>>, D::Error> {
    #[derive(Deserialize)]
    struct List(#[serde(deserialize_with = "list::deserialize")] Vec<Number>);
    Ok(Option::<List>::deserialize(from)?.map(|list| list.0))
}

/// What a server asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Which question it is.
    pub id: Id,
    /// Which process of the server asks: random bits.
    pub life: u64,
    /// Counted by that process, from 1.
    pub number: u64,
    /// All that it has asked with a lower number are over: nobody will ask for their answers.
    pub past: u64,
    /// What.
    pub what: What,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// It was done.
    Done,
    /// The bytes behind the words were read.
    Read,
    /// Bytes were written, and these begin there.
    Written(u64),
    /// Of what is to be recalled, nothing is known: it was not done.
    Unknown,
    /// This is in the way of a lock.
    Held(HeldLock),
    /// Somebody has it open.
    Open,
    /// Chunks were lent.
    Lent {
        /// So many.
        count: u32,
        /// The size of the file then, bytes.
        size: u64,
        /// It grows with each loan of a file.
        stamp: u64,
    },
    /// A chunk was offered, and stays as it is until somebody changes it.
    Offered {
        /// The size of the file then, bytes.
        size: u64,
        /// So many bytes are there, from the begin of the chunk on; all others are zeros.
        bytes: u32,
        /// As that of [`Done::Lent`].
        stamp: u64,
    },
    /// What a named lock gives, or a file was told.
    Fenced(Fenced),
    /// The file's update id.
    Updated(u64),
    /// An object was created: this file.
    Placed(Number),
    /// This member keeps what was to be read, as far as its chunk goes.
    With {
        /// Which.
        member: Member,
        /// The size of the file then, bytes.
        size: u64,
    },
    /// What was given back may stay where it is, and the file is open there no more if it is not.
    Stays,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// To which.
    pub id: Id,
    /// About which file, if about one: a request that is carried out anew may ask the same of
    /// another one, while the first is not answered yet.
    pub file: Option<Number>,
    /// Which process answers: another one does not know what this one has done.
    pub life: u64,
    /// What came of it.
    pub result: Result<Done>,
}

/// A frame as it is sent: what comes before the bytes of the file, and these where they lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Header and words.
    pub head: Vec<u8>,
    /// Bytes of the file.
    pub bytes: Vec<u8>,
}

impl Written {
    /// All of it.
    pub fn whole(mut self) -> Vec<u8> {
        self.head.extend_from_slice(&self.bytes);
        self.head
    }
}

fn write_frame<T: Serialize>(version: u16, words: &T, bytes: Vec<u8>) -> Result<Written> {
    assert!(bytes.len() <= BYTES_MAX, "our own frames are bounded");
    let mut head = Vec::new();
    frame::write(&mut head, version, &frame::encode(&(words, bytes.len() as u32))?);
    assert!(head.len() + bytes.len() <= FRAME_MAX, "our own frames are bounded");
    Ok(Written { head, bytes })
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::Malformed, format!("frame about a file of another member: {what}"))
}

fn read_frame<'f, T: Deserialize<'f>>(version: u16, bytes: &'f [u8]) -> Result<(T, &'f [u8])> {
    if bytes.len() > FRAME_MAX {
        return Err(malformed("absurd length"));
    }
    let frame = frame::read(bytes)?;
    let (words, length): (T, u32) = frame::decode(frame.of(version)?)?;
    if length as usize > BYTES_MAX {
        return Err(malformed("more bytes than one has"));
    }
    match frame.rest.len() == length as usize {
        true => Ok((words, frame.rest)),
        false => Err(malformed("other bytes than it says")),
    }
}

impl Question {
    /// Its frame; `bytes` are for what [has some](Act::has_bytes), at most [`BYTES_MAX`].
    ///
    /// # Errors
    /// None, of what this program has made.
    pub fn write(&self, bytes: Vec<u8>) -> Result<Written> {
        write_frame(QUESTIONS, self, bytes)
    }

    /// The question whose frame is all of these, and the bytes behind it.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] if it is of another version, [`ErrorKind::Corrupt`] if its bytes are
    /// not what was sent, [`ErrorKind::Malformed`] for anything else that no member sends.
    pub fn read(frame: &[u8]) -> Result<(Question, &[u8])> {
        let (question, bytes): (Question, _) = read_frame(QUESTIONS, frame)?;
        let fits = match &question.what {
            What::Begin(Some(open)) => open.len() <= OPEN_MAX,
            What::File(
                _,
                Act::Read { bytes, .. }
                | Act::GiveBack { bytes, .. }
                | Act::ReadPart { bytes, .. }
                | Act::ReadMapped { bytes, .. },
            ) => *bytes as usize <= BYTES_MAX,
            _ => true,
        };
        let writes = matches!(&question.what, What::File(_, act) if act.has_bytes());
        match fits && (writes || bytes.is_empty()) {
            true => Ok((question, bytes)),
            false => Err(malformed("a question of more than there may be")),
        }
    }
}

impl Answer {
    /// Its frame; `bytes` are for [`Done::Read`], at most [`BYTES_MAX`].
    ///
    /// # Errors
    /// None, of what this program has made.
    pub fn write(&self, bytes: Vec<u8>) -> Result<Written> {
        write_frame(ANSWERS, self, bytes)
    }

    /// The answer whose frame is all of these, and the bytes behind it.
    ///
    /// # Errors
    /// As those of [`Question::read`].
    pub fn read(frame: &[u8]) -> Result<(Answer, &[u8])> {
        let (answer, bytes): (Answer, _) = read_frame(ANSWERS, frame)?;
        match bytes.is_empty() || answer.result == Ok(Done::Read) {
            true => Ok((answer, bytes)),
            false => Err(malformed("bytes that nobody has asked for")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ANSWERS, Act, Answer, BYTES_MAX, Done, FRAME_MAX, Id, OPEN_MAX, QUESTIONS, Question, Said,
        What, Written, said,
    };
    use crate::frame;
    use crate::ids::{Member, NUMBERS, Number};
    use crate::{Error, ErrorKind};

    fn last() -> (Id, Number) {
        let by = Member::new(Member::MAX - 1).expect("14 bits");
        let number = Number::new(by, NUMBERS - 1).expect("50 bits");
        let (pid, most) = (u32::MAX, u64::MAX);
        let session = Id::NOBODY;
        let (started_ticks, sequence, index, step) = (most, most, u8::MAX, u8::MAX);
        (Id { by, session, pid, started_ticks, index, sequence, step }, number)
    }

    fn question(what: What) -> Question {
        let most = u64::MAX;
        Question { id: last().0, life: most, number: most, past: most, what }
    }

    fn answer(result: crate::Result<Done>) -> Answer {
        let (id, file) = last();
        Answer { id, file: Some(file), life: u64::MAX, result }
    }

    const WRITE: Act = Act::Write { at: Some(u64::MAX), strips: true, token: u64::MAX };

    #[test]
    fn the_longest_fit_a_frame_and_are_read_as_they_were_written() {
        let (bytes, number) = (vec![7; BYTES_MAX], last().1);
        let written = question(What::File(number, WRITE))
            .write(bytes.clone())
            .map(Written::whole)
            .expect("encodes");
        assert!(written.len() <= FRAME_MAX && said(&written) == Some(Said::Question));
        let read = Question::read(&written).expect("a question");
        assert_eq!(read, (question(What::File(number, WRITE)), &bytes[..]));
        let open = question(What::Begin(Some(vec![number; OPEN_MAX])));
        let written = open.write(b"".to_vec()).map(Written::whole).expect("encodes");
        assert_eq!(Question::read(&written).expect("a question"), (open, &b""[..]));
        let written =
            answer(Ok(Done::Read)).write(bytes.clone()).map(Written::whole).expect("encodes");
        assert!(written.len() <= FRAME_MAX && said(&written) == Some(Said::Answer));
        assert_eq!(Answer::read(&written), Ok((answer(Ok(Done::Read)), &bytes[..])));
    }

    #[test]
    fn what_no_member_sends_is_an_error_that_says_why() {
        let kind = |bytes: &[u8]| Question::read(bytes).map_err(|Error { kind, .. }| kind).err();
        let number = last().1;
        let good = question(What::File(number, WRITE))
            .write(b"abc".to_vec())
            .map(Written::whole)
            .expect("encodes");
        for end in 0..good.len() {
            assert!(kind(&good[..end]).is_some(), "{end}");
        }
        for at in 0..good.len() - b"abc".len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(kind(&bad).is_some(), "{at}");
        }
        assert_eq!(kind(&[&good[..], &[0]].concat()), Some(ErrorKind::Malformed));
        assert_eq!(
            kind(&answer(Ok(Done::Done)).write(b"".to_vec()).map(Written::whole).expect("it")),
            Some(ErrorKind::Version)
        );
        let too_long = Act::Read { at: 0, bytes: BYTES_MAX as u32 + 1, kept: false, direct: true };
        for (what, bytes) in [
            (What::File(number, too_long), &b""[..]),
            (What::File(number, Act::Open), b"a"),
            (What::Begin(Some(vec![number; OPEN_MAX + 1])), b""),
        ] {
            let bad = question(what).write(bytes.to_vec()).map(Written::whole).expect("encodes");
            assert_eq!(kind(&bad), Some(ErrorKind::Malformed));
        }
        let longer = (question(What::File(number, WRITE)), BYTES_MAX as u32 + 1);
        let mut bad = Vec::new();
        frame::write(&mut bad, QUESTIONS, &frame::encode(&longer).expect("encodes"));
        bad.extend(vec![0; BYTES_MAX + 1]);
        assert_eq!(kind(&bad), Some(ErrorKind::Malformed));
    }

    #[test]
    fn an_answer_has_no_bytes_but_those_that_were_read() {
        for result in [Ok(Done::Done), Ok(Done::Written(1)), Err(Error::new(ErrorKind::Busy, ""))] {
            let bad = answer(result).write(b"a".to_vec()).map(Written::whole).expect("encodes");
            assert_eq!(Answer::read(&bad).map_err(|e| e.kind), Err(ErrorKind::Malformed));
        }
        let mut empty = Vec::new();
        frame::write(&mut empty, ANSWERS, b"");
        assert!(Answer::read(&empty).is_err());
    }
}
