//! The role's state: what this server has asked of others about files, and what they have answered;
//! and of which files they have heard that somebody here has them open.

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, FileSlot, Member, Number, SessionSlot};
use terral_format::wire::far::{Act, Answer, Done, Id, OPEN_MAX, Question, What, Written};
use terral_format::wire::locks::FarOwner;
use terral_format::wire::peers::Failure;
use terral_format::{Error, ErrorKind, Result};
use terral_partition::terms::Terms;

use super::batches::Batches;
use super::fitting::fits;
use super::holders::Holders;
use super::lent::Lent;
use super::loans::Loans;
use super::offered::Offers;
use super::parts::Parts;
use super::pieces::Pieces;
use super::shown::Shown;
use super::striped::Stripes;
use crate::core::world::Tick;
use taking::place_of;

pub(super) use taking::part_of;

/// What came of a question: with the bytes that were read.
pub type Outcome = Result<(Done, Vec<u8>)>;

/// What goes behind the words of a question.
pub enum Behind {
    /// Nothing.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// What a file of this machine has there, that nobody changes as long as the answer is waited
    /// for: only who asks has it open, or nobody, as it is sealed.
    Stored {
        /// Its record.
        slot: FileSlot,
        /// They begin there.
        at: u64,
        /// So many bytes.
        bytes: u32,
    },
}

/// Something that was asked.
pub(super) struct Asked {
    id: Id,
    /// Who is asked.
    to: Member,
    file: Number,
    act: Act,
    behind: Behind,
    asker: Option<Asker>,
    /// Of what is read to be kept: since when its file has been.
    kept: Option<u64>,
    /// Of what comes here to stay: by which stamp.
    takes: Option<u64>,
    since: Tick,
    /// Which process of its home it was said to first.
    of: Option<u64>,
    /// In the session that there is.
    sent: bool,
    outcome: Option<Outcome>,
}

/// What is known of a member.
#[derive(Default)]
struct Home {
    connected: bool,
    /// The first question of the session that there is, and whether it is answered.
    begin: Option<Id>,
    begun: bool,
    life: Option<u64>,
}

/// What this server has asked.
#[derive(Default)]
pub struct Far {
    /// Of this process: random bits, and not 0 once it has asked.
    life: u64,
    asked: u64,
    questions: BTreeMap<u64, Asked>,
    homes: BTreeMap<Member, Home>,
    removed: BTreeSet<Member>,
    /// This member, once it is none any more.
    put_out: Option<Member>,
    /// Files of others that are open here, or about to be, as their homes are told.
    open: BTreeSet<Number>,
    /// Something has come to an end that nobody has said yet.
    news: bool,
    /// Those that were open when this process began are among them.
    resumed: bool,
    /// So many bytes may be on their way to one home, or wait there; 0: any number.
    window: usize,
    pub(super) pieces: Pieces,
    pub(super) shown: Shown,
    pub(super) holders: Holders,
    pub(super) lent: Lent,
    /// Chunks of files that were born here, and that others are to have.
    pub offers: Offers,
    /// Over which members the parts of files that were born here lie.
    pub stripes: Stripes,
    pub(super) parts: Parts,
    /// Chunks of other members' files that are here.
    pub loans: Loans,
    /// What was written here to other members' files, and not committed yet.
    pub batches: Batches,
}

/// What an answer is to something that nobody waits for.
pub(super) enum Heard {
    /// A file's home has heard that it is gone.
    Gone(Number),
    /// It has heard that somebody here has no lock of it any more.
    Unlocked(Number, FarOwner),
    /// Whether who was asked has a file open that was born here.
    IsOpen(Number, bool),
    /// What was read to be kept.
    Read(Ahead),
    /// A part of a chunk of a file that was born here, which begins there, was asked for with this
    /// stamp, and what came of it.
    GaveBack(Number, (u64, u32, u64), Outcome),
    /// Who had a chunk of such a file has heard that it is here, as he was told with this stamp.
    Told(Number, (u64, u64)),
    /// A part of a chunk that is to stay here, which begins there in its file, was asked for with
    /// this stamp.
    Part(Number, (u64, u64), Outcome),
    /// Whether a chunk that has come by this stamp is kept here.
    Kept(Number, (u64, u64), bool),
    /// What is here of a file may stay.
    Stays(Number),
    /// Who was to take a chunk, with this stamp, cannot.
    Refused(Number, (u64, u64)),
    /// A part of the batch with this id was written at its file's home, or not.
    Merged(u64, Result<()>),
}

/// What was read to be kept, or why it was not.
pub(super) struct Ahead {
    pub(super) file: Number,
    pub(super) at: u64,
    pub(super) bytes: u32,
    pub(super) since: u64,
}

impl Far {
    /// Applies a record, new or replayed.
    pub fn apply(&mut self, member: &Membership) {
        self.loans.apply(member);
        self.batches.apply(member);
        self.stripes.apply(member);
    }

    /// The records that lead here from nothing.
    pub fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        self.loans.snapshot().chain(self.batches.snapshot()).chain(self.stripes.snapshot())
    }

    /// Whether nothing was asked, and nothing is kept for a call.
    pub(super) fn is_unused(&self) -> bool {
        self.life == 0
    }

    pub(super) fn has_life(&self) -> bool {
        self.life != 0
    }

    pub(super) fn lives(&mut self, life: u64) {
        self.life = life.max(1);
    }

    /// Whether a member is none any more.
    pub fn is_removed(&self, member: Member) -> bool {
        self.removed.contains(&member)
    }

    /// Who is none any more, if a member cannot be asked for that.
    pub fn removed_of(&self, member: Member) -> Option<Member> {
        self.put_out.or_else(|| self.removed.contains(&member).then_some(member))
    }

    fn of(&self, asker: Asker, file: Number, step: u8) -> Option<u64> {
        let what = (Some(asker), file, step);
        let is_it = |asked: &Asked| (asked.asker, asked.file, asked.id.step) == what;
        self.questions.iter().find(|(_, asked)| is_it(asked)).map(|(number, _)| *number)
    }

    /// Whether a request has asked this of a file already.
    pub(super) fn is_asked(&self, asker: Asker, file: Number, step: u8) -> bool {
        self.of(asker, file, step).is_some()
    }

    /// The file that a request has had opened.
    pub(super) fn opened_by(&self, asker: Asker) -> Option<Number> {
        let mut its = self.questions.values().filter(|asked| asked.asker == Some(asker));
        let opened =
            |asked: &&Asked| asked.act == Act::Open && matches!(asked.outcome, Some(Ok(_)));
        its.find(opened).map(|asked| asked.file)
    }

    /// What came of what a request has asked; `None`: it waits. Bytes that were read are given
    /// once.
    pub(super) fn outcome(&mut self, asker: Asker, file: Number, step: u8) -> Option<Outcome> {
        let asked = self.questions.get_mut(&self.of(asker, file, step)?)?;
        match asked.outcome.as_mut()? {
            Ok((done, bytes)) => Some(Ok((*done, std::mem::take(bytes)))),
            Err(error) => Some(Err(error.clone())),
        }
    }

    /// Something is to be asked of a file's home. What nobody waits for has an id of its own.
    pub(super) fn asks(
        &mut self,
        (id, asker): (Id, Option<Asker>),
        (file, act): (Number, Act),
        behind: Behind,
        since: Tick,
    ) {
        let to = file.born();
        self.asked += 1;
        let (of, sent, outcome) = (None, false, None);
        let (kept, takes) = (None, None);
        let asked =
            Asked { id, to, file, act, behind, asker, kept, takes, since, of, sent, outcome };
        self.questions.insert(self.asked, asked);
    }

    /// A member that may use a file that was born here is asked by this one.
    pub(super) fn asks_user(
        &mut self,
        (to, by): (Member, Member),
        (file, act): (Number, Act),
        now: Tick,
    ) {
        let id = self.own_id(by);
        self.asks((id, None), (file, act), Behind::Nothing, now);
        if let Some(asked) = self.questions.get_mut(&self.asked) {
            asked.to = to;
        }
    }

    /// The same, for a request that waits for it.
    pub(super) fn asks_with(
        &mut self,
        (id, asker): (Id, Asker),
        to: Member,
        (file, act): (Number, Act),
        behind: Behind,
        now: Tick,
    ) {
        self.asks((id, Some(asker)), (file, act), behind, now);
        if let Some(asked) = self.questions.get_mut(&self.asked) {
            asked.to = to;
        }
    }

    /// The id of a question that nobody waits for, asked by this member.
    pub(super) fn own_id(&self, by: Member) -> Id {
        let (pid, index, step) = (0, 0, 0);
        let (started_ticks, sequence, session) = (self.life, self.asked + 1, Id::NOBODY);
        Id { by, session, pid, started_ticks, index, sequence, step }
    }

    /// Whether such a question is under way.
    pub(super) fn says(&self, file: Number, act: Act) -> bool {
        self.questions.values().any(|asked| (asked.file, asked.act) == (file, act))
    }

    /// All of a batch is at its file's home, or lost.
    pub(super) fn forget_merges(&mut self, batch: u64) {
        let is = |asked: &Asked| matches!(asked.act, Act::Merge { .. });
        self.questions.retain(|_, asked| !(is(asked) && asked.id.started_ticks == batch));
    }

    /// Requests that this is true of have run, or never will. Gives the files that they wanted to
    /// open.
    pub(super) fn are_over(&mut self, of: impl Fn(Asker) -> bool) -> Vec<Number> {
        let mut opened = Vec::new();
        self.questions.retain(|_, asked| {
            let over = asked.asker.is_some_and(&of);
            if over && asked.act == Act::Open {
                opened.push(asked.file);
            }
            !over
        });
        opened
    }

    /// A file is open here, or about to be.
    pub(super) fn opens(&mut self, file: Number) {
        self.open.insert(file);
    }

    /// Whether its home has been told, or is being told, that it is open here.
    pub(super) fn has_open(&self, file: Number) -> bool {
        self.open.contains(&file)
    }

    /// How much has been said, and not heard, of what is open here.
    pub(super) fn told(&self) -> usize {
        let tells = |asked: &&Asked| asked.asker.is_none() && asked.act == Act::Open;
        self.questions.values().filter(tells).count()
    }

    /// Whether somebody is about to open it.
    pub(super) fn is_opening(&self, file: Number) -> bool {
        let opens = |asked: &Asked| asked.asker.is_some() && asked.act == Act::Open;
        self.questions.values().any(|asked| asked.file == file && opens(asked))
    }

    /// It is not any more. Gives whether it was.
    pub(super) fn closes(&mut self, file: Number) -> bool {
        self.open.remove(&file)
    }

    /// The session's number is free for another one.
    pub(super) fn forget_calls(&mut self, session: SessionSlot) {
        self.pieces.has_ended(session);
    }

    /// Whether what was open when this process began is to be found out. Said once.
    pub(super) fn must_resume(&mut self) -> bool {
        !std::mem::replace(&mut self.resumed, true)
    }

    // What the network says, and is told.

    /// There is a new session: what came of the one before is lost.
    pub(super) fn connected(&mut self, with: Member) {
        let life = self.homes.get(&with).and_then(|home| home.life);
        self.homes.insert(with, Home { connected: true, life, ..Home::default() });
        let unheard = |asked: &&mut Asked| asked.to == with && asked.outcome.is_none();
        self.questions.values_mut().filter(unheard).for_each(|asked| asked.sent = false);
    }

    /// The first question of a session, of the files that are open here.
    fn begin(&mut self, home: Member, by: Member) -> Question {
        let open = self.open.iter().filter(|file| file.born() == home);
        let open: Vec<Number> = open.copied().take(OPEN_MAX + 1).collect();
        let (id, past) = (self.own_id(by), self.past().get(&home).copied());
        self.asked += 1;
        let what = What::Begin((open.len() <= OPEN_MAX).then_some(open));
        let past = past.unwrap_or(self.asked);
        Question { id, life: self.life, number: self.asked, past, what }
    }

    /// By home: all questions to it before this number are over.
    fn past(&self) -> BTreeMap<Member, u64> {
        let mut past = BTreeMap::new();
        for (number, asked) in &self.questions {
            past.entry(asked.to).or_insert(*number);
        }
        past
    }

    /// Something has come that requests may wait for.
    pub(super) fn has_news(&mut self) {
        self.news = true;
    }

    /// Whether requests are to be tried again. Said once.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Files without a name that nobody has open: for what is borrowed, and to be committed.
    pub fn nameless(&self) -> u64 {
        (self.loans.files().len() + self.batches.inos().len()) as u64
    }

    /// So many bytes that are to be written may be on their way to one home, or wait there, and one
    /// question in any case: its memory is bounded by that, and all who ask it have as much of it.
    pub(super) fn bounds(&mut self, window: usize) {
        self.window = window;
    }

    /// What is not said yet and may be now. Who has to wait for others lets none go before.
    fn ripe(&self) -> BTreeSet<u64> {
        let window = if self.window == 0 { usize::MAX } else { self.window };
        let mut under_way: BTreeMap<Member, usize> = BTreeMap::new();
        for asked in self.questions.values().filter(|asked| asked.sent && asked.outcome.is_none()) {
            *under_way.entry(asked.to).or_default() += asked.behind.bytes();
        }
        let fits = |(number, asked): (&u64, &Asked)| {
            let bytes = asked.behind.bytes();
            let before = under_way.entry(asked.to).or_default();
            // What was said before and is not in memory now keeps nobody waiting.
            let bytes = if asked.of.is_some() { 0 } else { bytes };
            let fits = bytes == 0 || *before == 0 || before.saturating_add(bytes) <= window;
            *before = if fits { before.saturating_add(bytes) } else { usize::MAX };
            fits.then_some(*number)
        };
        self.questions.iter().filter(|(_, asked)| asked.is_unsaid()).filter_map(fits).collect()
    }

    /// Whether something is not said yet.
    pub fn has_unsaid(&self) -> bool {
        self.questions.values().any(Asked::is_unsaid) || self.batches.has_work()
    }

    /// Whether something may be to be said now.
    pub fn has_work(&self) -> bool {
        self.batches.has_work() || (self.has_unsaid() && !self.ripe().is_empty())
    }

    /// Whether there is, and no more than so many bytes go with it.
    pub fn has_work_within(&self, bytes: usize) -> bool {
        if self.batches.has_work() || !self.has_unsaid() {
            return false;
        }
        let ripe = self.ripe();
        let of = |number: &u64| self.questions.get(number).map_or(0, |asked| asked.behind.bytes());
        !ripe.is_empty() && ripe.iter().map(of).sum::<usize>() <= bytes
    }

    /// Whether something has come to an end that nobody has said yet.
    pub fn has_ended(&self) -> bool {
        self.news
    }

    /// What is to be said now, to whom; `read` gives the bytes of [`Behind::Stored`]. If they are
    /// not in memory, nothing was done, or it may have been and is asked again later.
    pub(super) fn take_questions(
        &mut self,
        by: Member,
        mut read: impl FnMut(FileSlot, u64, u32) -> Option<Vec<u8>>,
    ) -> Vec<(Member, Written)> {
        let mut frames = Vec::new();
        let waits = |home: &Home| home.connected && home.begin.is_none();
        let new: Vec<_> = self.homes.iter().filter(|(_, home)| waits(home)).collect();
        let new: Vec<Member> = new.into_iter().map(|(home, _)| *home).collect();
        for with in new {
            let question = self.begin(with, by);
            if let Some(home) = self.homes.get_mut(&with) {
                home.begin = Some(question.id);
            }
            frames.push((with, question, Vec::new()));
        }
        let (past, life, ripe) = (self.past(), self.life, self.ripe());
        for (number, asked) in &mut self.questions {
            let to = asked.to;
            let Some(home) = self.homes.get(&to).filter(|home| home.begun) else { continue };
            if !ripe.contains(number) {
                continue;
            }
            let bytes = match &asked.behind {
                Behind::Nothing => Vec::new(),
                Behind::Bytes(bytes) => bytes.clone(),
                Behind::Stored { slot, at, bytes } => match read(*slot, *at, *bytes) {
                    Some(bytes) => bytes,
                    None if asked.of.is_none() && asked.asker.is_some() => {
                        asked.ends(Ok((Done::Unknown, Vec::new())));
                        self.news = true;
                        continue;
                    }
                    None => continue,
                },
            };
            asked.sent = true;
            asked.of = asked.of.or(home.life);
            let (id, what) = (asked.id, What::File(asked.file, asked.act));
            let past = past.get(&to).copied().unwrap_or(*number);
            let question = Question { id, life, number: *number, past, what };
            frames.push((to, question, bytes));
        }
        let written = |(to, question, bytes): (Member, Question, Vec<u8>)| {
            question.write(bytes).ok().map(|frame| (to, frame))
        };
        frames.into_iter().filter_map(written).collect()
    }

    /// The first answer of a session. What may have been appended, or created, by a process that is
    /// no more nobody knows.
    fn begun(&mut self, from: Member, life: u64) {
        let Some(home) = self.homes.get_mut(&from) else { return };
        (home.begun, home.life) = (true, Some(life));
        for asked in self.questions.values_mut() {
            let other = asked.of.is_some_and(|of| of != life);
            if asked.to != from || asked.outcome.is_some() || !other {
                continue;
            }
            if asked.act.is_once() {
                let what = format!("{from} has begun anew: whether this was done is unknown");
                asked.ends(Err(Error { errno: 5, ..Error::new(ErrorKind::Backing, what) }));
            } else {
                asked.of = Some(life);
            }
        }
    }

    /// A member has answered. Gives what that is if nobody waits for it.
    pub(super) fn answered(
        &mut self,
        from: Member,
        answer: &Answer,
        bytes: &[u8],
    ) -> Option<Heard> {
        if self.homes.get(&from).is_some_and(|home| home.begin == Some(answer.id)) {
            self.begun(from, answer.life);
            return None;
        }
        let about = (answer.id, from, answer.file);
        let is_it = |asked: &Asked| (asked.id, asked.to, Some(asked.file)) == about;
        let open = |asked: &Asked| is_it(asked) && asked.outcome.is_none();
        let number = *self.questions.iter().find(|(_, asked)| open(asked))?.0;
        if let Some(ahead) = self.questions.get(&number).and_then(Asked::ahead) {
            self.questions.remove(&number);
            return Some(Heard::Read(ahead));
        }
        let asked = self.questions.get_mut(&number)?;
        let outcome = answer.result.clone().and_then(|done| {
            let wrong = || Error::new(ErrorKind::Malformed, format!("what {from} answers"));
            let right = fits(&asked.act, done, bytes.len());
            right.then(|| (done, bytes.to_vec())).ok_or_else(wrong)
        });
        if asked.asker.is_some() {
            asked.ends(outcome);
            return None;
        }
        let (act, file) = (asked.act, asked.file);
        if let (Some(stamp), Some((at, _))) = (asked.takes, place_of(&act)) {
            self.questions.remove(&number);
            return Some(Heard::Part(file, (at, stamp), outcome));
        }
        if let Act::GiveBack { index, at, stamp, .. } = act {
            self.questions.remove(&number);
            return Some(Heard::GaveBack(file, (index, at, stamp), outcome));
        }
        if let Act::Merge { .. } = act {
            // It stays until all of the batch is there: its home remembers it as long.
            asked.ends(outcome.clone());
            return Some(Heard::Merged(answer.id.started_ticks, outcome.map(drop)));
        }
        let heard = match &outcome {
            Ok(_) => true,
            Err(error) => error.kind == ErrorKind::NotFound && act != Act::IsOpen,
        };
        let once = matches!(act, Act::Open | Act::Close);
        if !once && !heard {
            // It is said again by and by.
            asked.outcome = Some(outcome);
            return None;
        }
        let done = outcome.ok().map(|(done, _)| done);
        self.questions.remove(&number);
        match act {
            Act::Lost { .. } => Some(Heard::Gone(file)),
            Act::Lock(lock) => Some(Heard::Unlocked(file, lock.owner)),
            Act::IsOpen => Some(Heard::IsOpen(file, done == Some(Done::Open))),
            Act::Took { index, stamp } => Some(Heard::Told(file, (index, stamp))),
            Act::Return { .. } if done == Some(Done::Stays) => Some(Heard::Stays(file)),
            Act::Take { index, stamp, .. } if done == Some(Done::Unknown) => {
                Some(Heard::Refused(file, (index, stamp)))
            }
            Act::Kept { index, stamp, .. } => {
                let is = matches!(done, Some(Done::Lent { .. }));
                Some(Heard::Kept(file, (index, stamp), is))
            }
            _ => None,
        }
    }

    /// What waits for a member that does not answer fails; what nobody waits for is said again.
    /// Gives what was to be kept, and does not come.
    pub(super) fn tick(&mut self, now: Tick) -> Vec<Ahead> {
        let late = |asked: &Asked| now.since(asked.since) >= Terms::USUAL.patience;
        let failed = self.questions.extract_if(.., |_, asked| asked.kept.is_some() && late(asked));
        let failed = failed.filter_map(|(_, asked)| asked.ahead()).collect();
        for asked in self.questions.values_mut() {
            let home = asked.to;
            match (asked.asker, &asked.outcome) {
                (None, Some(_)) if !matches!(asked.act, Act::Merge { .. }) => {
                    (asked.outcome, asked.sent) = (None, false);
                }
                (Some(_), None) if late(asked) => {
                    asked.ends(Err(Failure::Silent(home).error()));
                }
                _ => {}
            }
        }
        failed
    }

    /// This member is none any more: whoever was asked is not heard.
    pub(super) fn put_out(&mut self, me: Member) {
        self.put_out = Some(me);
        self.questions.retain(|_, asked| asked.asker.is_some());
        for asked in self.questions.values_mut().filter(|asked| asked.outcome.is_none()) {
            asked.ends(Err(Failure::Removed(me).error()));
        }
    }

    /// A member is none any more. One that has `left` has opened nothing by the questions that it
    /// has not answered.
    pub(super) fn removed(&mut self, member: Member, left: bool) {
        self.removed.insert(member);
        self.homes.remove(&member);
        self.open.retain(|file| file.born() != member);
        self.questions.retain(|_, asked| {
            let opens = left && asked.act == Act::Open && asked.outcome.is_none();
            asked.to != member || asked.asker.is_some() && !opens
        });
        let its = |asked: &&mut Asked| asked.to == member && asked.outcome.is_none();
        for asked in self.questions.values_mut().filter(its) {
            asked.ends(Err(Failure::Removed(member).error()));
        }
    }
}

impl Behind {
    /// How many.
    fn bytes(&self) -> usize {
        match self {
            Behind::Nothing => 0,
            Behind::Bytes(bytes) => bytes.len(),
            Behind::Stored { bytes, .. } => *bytes as usize,
        }
    }
}

impl Asked {
    fn is_unsaid(&self) -> bool {
        !self.sent && self.outcome.is_none()
    }

    /// Of whom it says, to the home of which file, that he has no locks any more, as he has ended.
    fn end(&self) -> Option<(Number, FarOwner)> {
        match (self.asker, self.act) {
            (None, Act::Lock(lock)) => Some((self.file, lock.owner)),
            _ => None,
        }
    }

    /// What is read to be kept.
    fn ahead(&self) -> Option<Ahead> {
        let (at, bytes) = place_of(&self.act)?;
        Some(Ahead { file: self.file, at, bytes, since: self.kept? })
    }

    fn ends(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
        self.behind = Behind::Nothing;
    }
}

mod taking;

#[cfg(test)]
mod queueing;

#[cfg(test)]
mod tests;
