//! What others ask of files that were born here: which of it is to be done, and what was answered.
//! It is done by [`Relay`], by threads of the shell, and not under the server's lock.
//!
//! Invariant: what changes a file is done once in the life of this process, however often it is
//! asked, until who asks has said that nobody will ask again; or, of a process of his that is no
//! more, for [`KEPT_FOR`]: its clients ask the next one at once. What is open elsewhere is what the
//! last session began with, and what was opened and closed since.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::Duration;

use terral_format::ids::{Ino, Member, Number};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::{Act, Answer, Done, Id, Question, What, Written};
use terral_format::{Error, ErrorKind, Result};

use super::role::Outcome;
use crate::core::world::Tick;

mod whose;

use whose::in_anothers_name;

/// How long answers to a process that is no more are remembered.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// A user's servers may have so many bytes to be written waiting here: that and more than the own
/// bound of each.
const WAITING_MAX: usize = 128 << 20;
/// So many questions.
const UNDER_WAY_MAX: usize = 16_384;
/// And so much may be known of them: what was answered and is asked again, what they have open.
const KEPT_MAX: usize = 1 << 18;

/// Who does what others ask of files that were born here, as a client of this server. Its calls may
/// wait, and come from several threads at once; never two of which one changes the same file, but
/// for what is [urgent](Act::is_urgent): that is done beside all others.
pub trait Relay: Send + Sync + std::fmt::Debug {
    /// Does something with a file; `bytes` are what is to be written. Of [`Act::Open`] the file is
    /// open from then on.
    ///
    /// # Errors
    /// What a client is told; [`ErrorKind::NotFound`] if there is no such file any more.
    fn carry_out(&self, file: Ino, act: &Act, bytes: &[u8]) -> Outcome;

    /// The same for a few bytes, if nobody is waited for and nothing is asked. `None`: it is to be
    /// [carried out](Relay::carry_out), be it that some of it was.
    fn at_once(&self, _file: Ino, _act: &Act, _bytes: &[u8]) -> Option<Outcome> {
        None
    }

    /// These are open elsewhere, if that has changed: all other files may be closed. Whether one is
    /// left that may be closed after a while: then it is asked again.
    fn keep(&self, open: Option<&BTreeSet<Ino>>) -> bool;

    /// Of what is open elsewhere some may not be open here, as the process before this one had it.
    fn open_again(&self, _: &BTreeSet<Ino>) {}

    /// Whether somebody here has a file of another member open.
    ///
    /// # Errors
    /// If that cannot be found out now.
    fn is_open(&self, file: Number) -> Result<bool>;

    /// A chunk of a file of another member, which it has lent to this one before a stamp, is asked
    /// back: so many of its bytes, from there on.
    ///
    /// # Errors
    /// What a client is told.
    fn give_back(&self, of: Number, which: (u64, u64), part: (u32, u32)) -> Outcome;

    /// A chunk of a file of another member is to come here, and stay, as the act says. False: it
    /// cannot.
    ///
    /// # Errors
    /// As those of [`Relay::give_back`].
    fn take(&self, of: Number, act: &Act) -> Result<bool>;

    /// So many bytes of a chunk that is here are read, from there in its file on, to be taken by
    /// this stamp if that is not 0: [`Done::Unknown`] if they are not to be had.
    ///
    /// # Errors
    /// As those of [`Relay::give_back`].
    fn read_part(&self, of: Number, which: (u64, u64), bytes: u32) -> Outcome;

    /// It was taken back.
    ///
    /// # Errors
    /// As those of [`Relay::give_back`].
    fn took(&self, of: Number, which: (u64, u64)) -> Result<()>;

    /// A chunk of a file of another member, which programs here have mapped, is read or written, as
    /// the act says: [`Done::Unknown`] if it is not mapped any more.
    ///
    /// # Errors
    /// As those of [`Relay::give_back`].
    fn through_map(&self, of: Number, act: &Act, bytes: &[u8]) -> Outcome;

    /// A member has a file open no more: its locks there are over, and it has no chunks of it.
    fn unlock_all(&self, file: Ino, of: Member);

    /// Memory of bytes that were read, which is not needed any more.
    fn take_back(&self, _: Vec<u8>) {}
}

/// A frame that has come, of which some bytes at the end are to be written.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    frame: Box<[u8]>,
    from: usize,
}

impl Payload {
    /// What is in a frame from there on.
    pub fn new(frame: Box<[u8]>, from: usize) -> Self {
        Payload { from: from.min(frame.len()), frame }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame[self.from..]
    }
}

/// A question that has come, as far as who asks may ask it.
#[derive(Debug)]
pub struct Admitted {
    /// As it came.
    pub frame: Payload,
    /// What is said to it without doing anything, if that is so.
    pub said: Option<Result<Done>>,
    /// It may only if it has the file open.
    pub if_open: bool,
    /// The user for whom alone it speaks: what all his servers have under way is bounded, and what
    /// they write takes set-id bits off.
    pub user: Option<u32>,
}

impl Admitted {
    /// All of it.
    pub fn whole(frame: Payload) -> Self {
        Admitted { frame, said: None, if_open: false, user: None }
    }
}

/// Something to be done.
#[derive(Clone, Debug)]
pub struct Job {
    /// Who asks.
    pub from: Member,
    id: Id,
    life: u64,
    number: u64,
    of: Number,
    /// What.
    pub act: Act,
    /// What is to be written.
    pub bytes: Payload,
    /// It is asked for by a server of this user.
    pub user: Option<u32>,
}

impl Job {
    /// About which file.
    pub fn number(&self) -> Number {
        self.of
    }

    /// With which file of this member, if it is about one.
    pub fn file(&self) -> Ino {
        Ino(self.of.counted())
    }

    /// Whether it is to read or write a place of a file, and no more bytes than that.
    pub fn is_within(&self, most: usize) -> bool {
        match self.act {
            Act::Read { bytes, kept: false, .. } => bytes as usize <= most,
            Act::Write { at: Some(_), .. } => self.bytes.len() <= most,
            _ => false,
        }
    }

    /// Whether it may be done while others like it are done with the same file.
    pub fn is_shared(&self) -> bool {
        matches!(self.act, Act::Read { .. })
    }
}

/// What a question comes to.
#[derive(Debug)]
pub enum Heard {
    /// It is to be done.
    Job(Job),
    /// It was: this is the answer.
    Answer(Written),
    /// It is being done.
    Nothing,
}

struct Remembered {
    life: u64,
    number: u64,
    result: Result<Done>,
    until: Option<Tick>,
}

#[derive(Default)]
struct Asker {
    /// For whom alone it speaks.
    user: Option<u32>,
    life: u64,
    open: BTreeSet<Number>,
    /// By question, and file: a request that is carried out anew may ask the same of another one.
    answers: BTreeMap<(Id, Ino), Remembered>,
    /// With how many bytes to be written.
    under_way: BTreeMap<(Id, Ino), usize>,
}

/// See the module.
pub struct Desk {
    life: u64,
    askers: BTreeMap<Member, Asker>,
    changed: bool,
    /// A session has begun with what is open elsewhere since that was asked for.
    begun: bool,
    ended: Vec<Job>,
    /// What has been closed elsewhere.
    closed: Vec<(Ino, Member)>,
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::Malformed, what)
}

impl Desk {
    /// That of a process with this life: random bits.
    pub fn new(life: u64) -> Self {
        let (changed, begun) = (false, false);
        let (askers, ended, closed) = Default::default();
        Desk { life, askers, changed, begun, ended, closed }
    }

    fn answer(&self, (id, file): (Id, Option<Number>), outcome: Outcome) -> Written {
        let (result, bytes) = match outcome {
            Ok((done, bytes)) => (Ok(done), bytes),
            Err(error) => (Err(error), Vec::new()),
        };
        let answer = Answer { id, file, life: self.life, result };
        answer.write(bytes).unwrap_or_default()
    }

    /// Whether a question with so many bytes is one too many of a user's: of all his, and of this
    /// one, which has its share whatever the others ask.
    fn has_much(&self, (user, from): (u32, Member), bytes: usize) -> bool {
        let his = || self.askers.values().filter(|asker| asker.user == Some(user));
        let add = |all: [usize; 3], its: [usize; 3]| [0, 1, 2].map(|of| all[of] + its[of]);
        let all = add(his().map(Asker::has).fold([0; 3], add), [bytes, 1, 1]);
        let own = self.askers.get(&from).map_or([0; 3], Asker::has);
        let count = his().count().max(1);
        let most = [WAITING_MAX, UNDER_WAY_MAX, KEPT_MAX];
        (0..3).any(|of| all[of] > most[of] && own[of] >= most[of] / count)
    }

    /// Another member asks this one, which is `me`.
    ///
    /// # Errors
    /// As those of [`Question::read`]; [`ErrorKind::Malformed`] if it asks in another one's name,
    /// or for what was born elsewhere.
    pub fn hear(
        &mut self,
        (me, from): (Member, Member),
        admitted: Admitted,
        now: Tick,
    ) -> Result<Heard> {
        let Admitted { frame, mut said, if_open, user } = admitted;
        let (question, bytes) = Question::read(&frame)?;
        let begin = frame.frame.len() - bytes.len();
        let Question { id, life, number, past, what } = question;
        if id.by != from {
            return Err(malformed("a question in the name of another member"));
        }
        self.askers.entry(from).or_default().hear(user, (life, past), now);
        let has_much = user.is_some_and(|user| self.has_much((user, from), bytes.len()));
        let asker = self.askers.entry(from).or_default();
        let (of, act) = match what {
            What::Begin(open) => {
                if let Some(open) = open {
                    let open = open.into_iter().filter(|file| file.born() == me).collect();
                    let before = std::mem::replace(&mut asker.open, open);
                    (self.changed, self.begun) = (true, true);
                    let closed = before.difference(&asker.open);
                    self.closed.extend(closed.clone().map(|file| (Ino(file.counted()), from)));
                    let closing = |file: &Number| closing(id, (life, number), *file, user);
                    self.ended.extend(closed.map(closing));
                }
                return Ok(Heard::Answer(self.answer((id, None), Ok((Done::Done, Vec::new())))));
            }
            What::File(file, act) => match in_anothers_name(file, &act, (from, me)) {
                Some(wrong) => return Err(malformed(wrong)),
                None if user.is_some() => (file, act.stripping()),
                None => (file, act),
            },
        };
        if if_open && !asker.open.contains(&of) {
            let gone = || Error::new(ErrorKind::NotFound, "a file that has no name any more");
            said.get_or_insert_with(|| Err(gone()));
        }
        if has_much && said.is_none() {
            said = asker.refuses((id, of), &act);
        }
        if let Some(said) = said {
            let said = said.map(|done| (done, Vec::new()));
            return Ok(Heard::Answer(self.answer((id, Some(of)), said)));
        }
        let file = Ino(of.counted());
        // As was said last, also of a question that is under way already: until a close says so, a
        // file counts as open, be it that it cannot be opened.
        self.changed |= match act {
            Act::Open => asker.open.insert(of),
            Act::Close => {
                self.closed.push((file, from));
                asker.open.remove(&of)
            }
            _ => false,
        };
        if let Some(known) = asker.answers.get_mut(&(id, file)) {
            (known.life, known.number, known.until) = (life, number, None);
            let result = known.result.clone().map(|done| (done, Vec::new()));
            return Ok(Heard::Answer(self.answer((id, Some(of)), result)));
        }
        if asker.under_way.contains_key(&(id, file)) {
            return Ok(Heard::Nothing);
        }
        asker.under_way.insert((id, file), bytes.len());
        let bytes = Payload::new(frame.frame, begin);
        Ok(Heard::Job(Job { from, id, life, number, of, act, bytes, user }))
    }

    /// Does something, with nothing else of the same file done meanwhile but other reads.
    pub fn carry_out(relay: &dyn Relay, job: &Job) -> Outcome {
        match job.act {
            // Who is to close what nobody has open is told of it all at once.
            Act::Close => {
                relay.unlock_all(job.file(), job.from);
                Ok((Done::Done, Vec::new()))
            }
            Act::Recall { .. } => Ok((Done::Unknown, Vec::new())),
            Act::IsOpen => {
                let is_open = relay.is_open(job.number())?;
                Ok((if is_open { Done::Open } else { Done::Done }, Vec::new()))
            }
            Act::GiveBack { index, at, bytes, stamp } => {
                relay.give_back(job.number(), (index, stamp), (at, bytes))
            }
            Act::Took { index, stamp } => {
                relay.took(job.number(), (index, stamp))?;
                Ok((Done::Done, Vec::new()))
            }
            // Whatever is in the way: its home has somebody take it later.
            act @ Act::Take { .. } => {
                let takes = relay.take(job.number(), &act).unwrap_or_default();
                Ok((if takes { Done::Done } else { Done::Unknown }, Vec::new()))
            }
            Act::ReadPart { index, at, bytes, stamp } => {
                let begin = index.saturating_mul(CHUNK_BYTES).saturating_add(at.into());
                relay.read_part(job.number(), (begin, stamp), bytes)
            }
            act @ (Act::ReadMapped { .. } | Act::WriteMapped { .. }) => {
                relay.through_map(job.number(), &act, &job.bytes)
            }
            act => relay.carry_out(job.file(), &act, &job.bytes),
        }
    }

    /// It was done. Gives the answer.
    pub fn done(&mut self, job: &Job, outcome: Outcome, now: Tick) -> Written {
        let about = (job.id, Some(job.of));
        let Some(asker) = self.askers.get_mut(&job.from) else {
            return self.answer(about, outcome);
        };
        asker.under_way.remove(&(job.id, job.file()));
        let mut outcome = outcome;
        if let Act::Recall { step } = job.act {
            let before = asker.answers.get(&(Id { step, ..job.id }, job.file()));
            outcome = match before {
                Some(known) => known.result.clone().map(|done| (done, Vec::new())),
                None => Ok((Done::Unknown, Vec::new())),
            };
        }
        if job.act.changes() {
            let result = outcome.as_ref().map(|(done, _)| *done).map_err(Clone::clone);
            let (life, number) = (job.life, job.number);
            let until = (life != asker.life).then_some(now + KEPT_FOR);
            asker.answers.insert((job.id, job.file()), Remembered { life, number, result, until });
        }
        self.answer(about, outcome)
    }

    /// All that is open elsewhere, if that has changed since the last call.
    pub fn take_open(&mut self) -> Option<BTreeSet<Ino>> {
        let changed = std::mem::take(&mut self.changed);
        let open = self.askers.values().flat_map(|asker| &asker.open);
        let all = || open.map(|file| Ino(file.counted())).collect();
        changed.then(all)
    }

    /// Whether some of it may have been open before this process began. Said once.
    pub fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    /// What is to be done, that nobody has asked for: what a member has open no more.
    pub fn take_ended(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.ended)
    }

    /// What was closed elsewhere since this was called last.
    pub fn take_closed(&mut self) -> Vec<(Ino, Member)> {
        std::mem::take(&mut self.closed)
    }

    /// A member is none any more.
    pub fn removed(&mut self, member: Member) {
        let Some(asker) = self.askers.remove(&member) else { return };
        self.changed = true;
        let (pid, index, step, sequence) = (0, 0, 0, 0);
        let (started_ticks, session) = (0, Id::NOBODY);
        let id = Id { by: member, session, pid, started_ticks, index, sequence, step };
        let closing = |file: &Number| closing(id, (asker.life, 0), *file, None);
        self.ended.extend(asker.open.iter().map(closing));
    }
}

/// The job of a member that has closed a file without a word.
fn closing(id: Id, (life, number): (u64, u64), of: Number, user: Option<u32>) -> Job {
    let (act, bytes) = (Act::Close, Payload::default());
    Job { from: id.by, id, life, number, of, act, bytes, user }
}

impl Asker {
    /// How much it has here: bytes to be written, questions under way, and all that is known of it.
    fn has(&self) -> [usize; 3] {
        let (waiting, under_way) = (self.under_way.values().sum(), self.under_way.len());
        [waiting, under_way, under_way + self.answers.len() + self.open.len()]
    }

    /// What is said to a question of one that has too much under way. What is known is asked again;
    /// and what is open may be closed: there is less then.
    fn refuses(&self, (id, of): (Id, Number), act: &Act) -> Option<Result<Done>> {
        let question = (id, Ino(of.counted()));
        if self.answers.contains_key(&question) || self.under_way.contains_key(&question) {
            return None;
        }
        match act {
            Act::Close if self.open.contains(&of) => None,
            Act::Close => Some(Ok(Done::Done)),
            _ => {
                let context = "more under way than a user's servers may have";
                Some(Err(Error::new(ErrorKind::TooMany, context)))
            }
        }
    }

    /// What this process of the member says is over need not be remembered.
    fn hear(&mut self, user: Option<u32>, (life, past): (u64, u64), now: Tick) {
        self.user = user;
        if life != self.life {
            self.life = life;
            let old = self.answers.values_mut().filter(|known| known.until.is_none());
            old.for_each(|known| known.until = Some(now + KEPT_FOR));
        }
        self.answers.retain(|_, known| {
            let over = known.life == life && known.number < past;
            !over && known.until.is_none_or(|until| now < until)
        });
    }
}
