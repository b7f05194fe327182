//! What other members ask of files that were born here, carried out by a few threads that are
//! clients of this server: of one file one question at a time, in the order in which they came, but
//! for reads that follow each other.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terral_format::ids::{Ino, Member, Number};
use terral_format::wire::far::{Act, Written};
use terral_format::{Error, Result};

use crate::core::world::{Tick, World};
use crate::far::desk::{Desk, Heard, Job, Payload, Relay};

/// How many threads carry them out.
pub const THREADS: usize = 4;
/// Who hears a question of so many bytes does it himself, if that can be done at once.
const SHORT: usize = 16 << 10;
/// What is not used is looked after this often, while there is any.
const LOOK: Duration = Duration::from_secs(1);

/// What is to be done.
enum Work {
    Do(Job),
    /// With what is open elsewhere, if that has changed, and whether it may not be open here.
    Keep(Option<BTreeSet<Ino>>, bool),
}

struct Inner {
    desk: Desk,
    waiting: VecDeque<Job>,
    running: Vec<(Number, bool)>,
    answers: Vec<(Member, Written)>,
    /// What is not used is to be looked after, and nobody is at it.
    looks: bool,
    /// When it was, last.
    looked: Tick,
    /// What is open elsewhere is just being told: what is opened after that must stay.
    keeping: bool,
    over: bool,
}

/// See the module.
pub struct Relaying {
    relay: Arc<dyn Relay>,
    world: Arc<dyn World>,
    inner: Mutex<Inner>,
    work: Condvar,
    /// For who only does what others wait for here.
    urgent: Condvar,
    /// Called when there are answers to be taken, without any lock.
    answered: Box<dyn Fn() + Send + Sync>,
}

impl Inner {
    /// Whether a job that has just come may be done now, as [`Inner::next`] has it.
    fn is_free(&self, job: &Job) -> bool {
        let with =
            |number: Number, shared: bool| number == job.number() && !(shared && job.is_shared());
        let runs = self.running.iter().any(|(number, shared)| with(*number, *shared));
        !runs && !self.waiting.iter().any(|other| with(other.number(), other.is_shared()))
    }

    fn has_run(&mut self, job: &Job) {
        let done = (job.number(), job.is_shared());
        if let Some(at) = self.running.iter().position(|running| *running == done) {
            self.running.swap_remove(at);
        }
    }

    /// The first that may be done now: nothing before it is about the same file, or all of that
    /// only reads, as it does.
    fn next(&mut self, only_urgent: bool) -> Option<Job> {
        let (mut busy, keeping) = (self.running.clone(), self.keeping);
        let free = |job: &Job| {
            let with = |running: &(Number, bool)| running.1 && job.is_shared();
            let is_free = busy.iter().all(|running| running.0 != job.number() || with(running));
            let is_free = is_free && !(keeping && job.act == Act::Open);
            if !is_free {
                busy.push((job.number(), job.is_shared()));
            }
            is_free && (job.act.is_urgent() || !only_urgent)
        };
        let at = self.waiting.iter().position(free)?;
        self.waiting.remove(at)
    }
}

impl Relaying {
    /// Nothing yet. Another life of the process has another number: random bits.
    pub fn new(
        relay: Arc<dyn Relay>,
        world: Arc<dyn World>,
        life: u64,
        answered: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (waiting, running, answers) = Default::default();
        let (desk, looks, keeping, over) = (Desk::new(life), false, false, false);
        let looked = world.now();
        let inner = Inner { desk, waiting, running, answers, looks, looked, keeping, over };
        let (inner, answered) = (Mutex::new(inner), Box::new(answered));
        let (work, urgent) = Default::default();
        Relaying { relay, world, inner, work, urgent, answered }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member asks this one, which is `me`, or may not ask that. It is answered by and by, or at
    /// once if it is short: then the answer is there to be [taken](Relaying::take_answers). Gives
    /// what it has closed.
    ///
    /// # Errors
    /// If that is no question: the session is to be cut.
    pub fn push(
        &self,
        (me, from): (Member, Member),
        question: (Payload, Option<Error>),
    ) -> Result<Vec<(Ino, Member)>> {
        let now = self.world.now();
        let mut inner = self.lock();
        let heard = inner.desk.hear((me, from), question, now)?;
        let (ended, closed) = (inner.desk.take_ended(), inner.desk.take_closed());
        inner.waiting.extend(ended);
        match heard {
            Heard::Job(job) if job.is_within(SHORT) && inner.is_free(&job) => {
                let Some(job) = self.try_at_once(inner, job, now) else { return Ok(closed) };
                inner = self.lock();
                inner.waiting.push_back(job);
            }
            Heard::Job(job) => inner.waiting.push_back(job),
            Heard::Answer(answer) => inner.answers.push((from, answer)),
            Heard::Nothing => return Ok(closed),
        }
        let answered = !inner.answers.is_empty();
        let urgent = inner.waiting.iter().any(|job| job.act.is_urgent());
        drop(inner);
        self.work.notify_one();
        if urgent {
            self.urgent.notify_one();
        }
        if answered {
            (self.answered)();
        }
        Ok(closed)
    }

    /// Does it in this thread, which others wait for, if nobody is to be waited for. Gives what
    /// cannot be done so.
    fn try_at_once(&self, mut inner: MutexGuard<'_, Inner>, job: Job, now: Tick) -> Option<Job> {
        inner.running.push((job.number(), job.is_shared()));
        drop(inner);
        let outcome = self.relay.at_once(job.file(), &job.act, &job.bytes);
        let mut inner = self.lock();
        inner.has_run(&job);
        let Some(outcome) = outcome else { return Some(job) };
        let answer = inner.desk.done(&job, outcome, now);
        inner.answers.push((job.from, answer));
        None
    }

    /// What is to be sent. What is of a session that is over is asked for again in the next.
    pub fn take_answers(&self) -> Vec<(Member, Written)> {
        std::mem::take(&mut self.lock().answers)
    }

    /// An answer was sent.
    pub fn was_sent(&self, bytes: Vec<u8>) {
        self.relay.take_back(bytes);
    }

    /// A member is none any more: nothing stays open for it.
    pub fn removed(&self, member: Member) {
        let mut inner = self.lock();
        inner.desk.removed(member);
        let ended = inner.desk.take_ended();
        inner.waiting.extend(ended);
        drop(inner);
        self.work.notify_all();
    }

    /// The server leaves: the threads end, once they are through with what they are at.
    pub fn end(&self) {
        self.lock().over = true;
        self.work.notify_all();
        self.urgent.notify_all();
    }

    /// What a thread does next; `None`: it ends.
    fn next(&self) -> Option<Work> {
        let mut inner = self.lock();
        loop {
            if inner.over {
                return None;
            }
            if !inner.keeping
                && let Some(open) = inner.desk.take_open()
            {
                inner.keeping = true;
                let begun = inner.desk.take_begun();
                return Some(Work::Keep(Some(open), begun));
            }
            // However much there is to do.
            let now = self.world.now();
            if inner.looks && now.since(inner.looked) >= LOOK {
                (inner.looks, inner.looked) = (false, now);
                return Some(Work::Keep(None, false));
            }
            if let Some(job) = inner.next(false) {
                inner.running.push((job.number(), job.is_shared()));
                inner.looks = true;
                return Some(Work::Do(job));
            }
            if !std::mem::take(&mut inner.looks) {
                inner = self.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, waited) =
                self.work.wait_timeout(inner, LOOK).unwrap_or_else(PoisonError::into_inner);
            inner = woken;
            if waited.timed_out() {
                inner.looked = self.world.now();
                return Some(Work::Keep(None, false));
            }
            inner.looks = true;
        }
    }

    /// What a thread does until the server leaves.
    pub fn run(&self) {
        while let Some(work) = self.next() {
            match work {
                Work::Keep(open, begun) => {
                    let left = self.relay.keep(open.as_ref());
                    let again = open.as_ref().filter(|_| begun);
                    again.into_iter().for_each(|open| self.relay.open_again(open));
                    let mut inner = self.lock();
                    inner.looks |= left;
                    if open.is_some() {
                        inner.keeping = false;
                        drop(inner);
                        self.work.notify_all();
                    }
                }
                Work::Do(job) => self.carry_out(&job),
            }
        }
    }

    /// What another thread does until then: only that for which others may wait who keep all other
    /// threads of this kind waiting, here or on another machine.
    pub fn run_urgent(&self) {
        let mut inner = self.lock();
        while !inner.over {
            match inner.next(true) {
                Some(job) => {
                    inner.running.push((job.number(), job.is_shared()));
                    drop(inner);
                    self.carry_out(&job);
                    inner = self.lock();
                }
                None => inner = self.urgent.wait(inner).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn carry_out(&self, job: &Job) {
        let outcome = Desk::carry_out(&*self.relay, job);
        let now = self.world.now();
        let mut inner = self.lock();
        inner.has_run(job);
        let answer = inner.desk.done(job, outcome, now);
        inner.answers.push((job.from, answer));
        let may_go_on = !inner.waiting.is_empty() || inner.keeping;
        drop(inner);
        if may_go_on {
            self.work.notify_all();
            self.urgent.notify_all();
        }
        (self.answered)();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex, PoisonError, mpsc};
    use std::time::Duration;

    use terral_format::ids::{Ino, Member, Number, SessionSlot};
    use terral_format::wire::far::{Act, Answer, Done, Id, Question, What, Written};
    use terral_format::wire::locks::{FarLock, FarOwner, LockKind, LockRange, Locker};

    use super::{Payload, Relay, Relaying, SHORT, THREADS};
    use crate::far::role::Outcome;
    use crate::shell::host::Clock;

    /// Notes what it is asked, and takes its time.
    #[derive(Debug, Default)]
    struct Slow(Mutex<Vec<(Ino, Act)>>);

    impl Relay for Slow {
        fn carry_out(&self, file: Ino, act: &Act, _: &[u8]) -> Outcome {
            std::thread::sleep(Duration::from_millis(2));
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((file, *act));
            Ok((if act.changes() { Done::Written(0) } else { Done::Read }, Vec::new()))
        }

        fn keep(&self, _: Option<&BTreeSet<Ino>>) -> bool {
            false
        }

        fn unlock_all(&self, _: Ino, _: Member) {}

        fn is_open(&self, _: Number) -> terral_format::Result<bool> {
            Ok(false)
        }

        fn give_back(&self, _: Number, _: (u64, u64), _: (u32, u32)) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }

        fn took(&self, _: Number, _: (u64, u64)) -> terral_format::Result<()> {
            Ok(())
        }

        fn through_map(&self, _: Number, _: &Act, _: &[u8]) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }
    }

    fn framed(bytes: &[u8]) -> Payload {
        Payload::new(bytes.into(), 0)
    }

    fn question(from: Member, to: Member, number: u64) -> Vec<u8> {
        asking(from, to, number, Act::Write { at: Some(number), strips: false, token: 0 })
    }

    fn asking(from: Member, to: Member, number: u64, act: Act) -> Vec<u8> {
        let (pid, started_ticks, index, step) = (1, 2, 3, 4);
        let session = SessionSlot(5);
        let id = Id { by: from, session, pid, started_ticks, index, sequence: number, step };
        let file = Number::new(to, number % 3).expect("few");
        let bytes = if act.changes() { &b"abc"[..] } else { b"" };
        Question { id, life: 6, number, past: 0, what: What::File(file, act) }
            .write(bytes.to_vec())
            .map(Written::whole)
            .expect("encodes")
    }

    #[test]
    fn of_one_file_all_is_done_in_order_and_answered_once() {
        let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
        let (relay, (told, hears)) = (Arc::new(Slow::default()), mpsc::channel());
        let answered = move || told.send(()).expect("somebody hears");
        let relaying = Relaying::new(relay.clone(), Arc::new(Clock), 7, answered);
        let mut answers = BTreeSet::new();
        std::thread::scope(|threads| {
            (0..THREADS).for_each(|_| drop(threads.spawn(|| relaying.run())));
            for number in 1..=60 {
                let frame = question(from, me, number);
                (0..2).for_each(|_| {
                    relaying.push((me, from), (framed(&frame), None)).expect("a question");
                });
            }
            while answers.len() < 60 {
                hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
                for (to, frame) in relaying.take_answers() {
                    assert_eq!(to, from);
                    answers.insert(Answer::read(&frame.whole()).expect("an answer").0.id.sequence);
                }
            }
            relaying.end();
        });
        let done = relay.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(done.len(), 60, "what is asked twice is done once");
        for file in 0..3 {
            let of = done.iter().filter(|(ino, _)| *ino == Ino(file));
            let places = of.map(|(_, act)| match act {
                Act::Write { at: Some(at), .. } => *at,
                other => panic!("{other:?}"),
            });
            assert!(places.is_sorted(), "in the order in which they came");
        }
    }

    /// Does at once what is asked of one file, and notes all: whether it was done so.
    #[derive(Debug, Default)]
    struct Prompt(Mutex<Vec<(Act, bool)>>);

    impl Prompt {
        fn notes(&self, act: &Act, at_once: bool) -> Outcome {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((*act, at_once));
            Ok((if act.changes() { Done::Written(0) } else { Done::Read }, Vec::new()))
        }
    }

    impl Relay for Prompt {
        fn carry_out(&self, _: Ino, act: &Act, _: &[u8]) -> Outcome {
            self.notes(act, false)
        }

        fn at_once(&self, file: Ino, act: &Act, _: &[u8]) -> Option<Outcome> {
            (file == Ino(1)).then(|| self.notes(act, true))
        }

        fn keep(&self, _: Option<&BTreeSet<Ino>>) -> bool {
            false
        }

        fn unlock_all(&self, _: Ino, _: Member) {}

        fn is_open(&self, _: Number) -> terral_format::Result<bool> {
            Ok(false)
        }

        fn give_back(&self, _: Number, _: (u64, u64), _: (u32, u32)) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }

        fn took(&self, _: Number, _: (u64, u64)) -> terral_format::Result<()> {
            Ok(())
        }

        fn through_map(&self, _: Number, _: &Act, _: &[u8]) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }
    }

    #[test]
    fn who_hears_a_short_question_answers_it_unless_others_of_its_file_wait() {
        let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
        let (relay, (told, hears)) = (Arc::new(Prompt::default()), mpsc::channel());
        let answered = move || told.send(()).expect("somebody hears");
        let relaying = Relaying::new(relay.clone(), Arc::new(Clock), 7, answered);
        let read = |at: u64, bytes: usize| Act::Read { at, bytes: bytes as u32, kept: false };
        let write = |at: u64| Act::Write { at: Some(at), strips: false, token: 0 };
        let push = |number: u64, act: Act| {
            let frame = asking(from, me, number, act);
            relaying.push((me, from), (framed(&frame), None)).expect("a question");
            let sequence =
                |frame: Written| Answer::read(&frame.whole()).expect("one").0.id.sequence;
            let answers = relaying.take_answers().into_iter();
            answers.map(|(_, frame)| sequence(frame)).collect::<Vec<_>>()
        };
        // Of file 1, at once, and what is asked twice once.
        assert_eq!(
            [push(1, write(1)), push(1, write(1)), push(4, read(4, SHORT))],
            [[1], [1], [4]]
        );
        // What is long, what others must be asked for, and what comes behind it waits.
        let append = Act::Write { at: None, strips: false, token: 0 };
        let kept = Act::Read { at: 9, bytes: 1, kept: true };
        let waits =
            [(7, read(7, SHORT + 1)), (10, append), (13, write(13)), (2, kept), (5, write(5))];
        waits.iter().for_each(|(number, act)| assert!(push(*number, *act).is_empty(), "{number}"));
        std::thread::scope(|threads| {
            threads.spawn(|| relaying.run());
            let mut left = waits.len();
            while left > 0 {
                hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
                left -= relaying.take_answers().len();
            }
            relaying.end();
        });
        let done = relay.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = [(write(1), true), (read(4, SHORT), true)].into_iter();
        let by_and_by = waits.iter().map(|(_, act)| (*act, false));
        assert_eq!(*done, of_one.chain(by_and_by).collect::<Vec<_>>());
    }

    /// Has files open, and takes its time to close those that nobody has.
    #[derive(Debug, Default)]
    struct Open(Mutex<BTreeSet<Ino>>);

    impl Relay for Open {
        fn carry_out(&self, file: Ino, act: &Act, _: &[u8]) -> Outcome {
            if *act == Act::Open {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(file);
            }
            Ok((Done::Done, Vec::new()))
        }

        fn keep(&self, open: Option<&BTreeSet<Ino>>) -> bool {
            std::thread::sleep(Duration::from_millis(2));
            let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            open.into_iter().for_each(|open| files.retain(|file| open.contains(file)));
            false
        }

        fn unlock_all(&self, _: Ino, _: Member) {}

        fn is_open(&self, _: Number) -> terral_format::Result<bool> {
            Ok(false)
        }

        fn give_back(&self, _: Number, _: (u64, u64), _: (u32, u32)) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }

        fn took(&self, _: Number, _: (u64, u64)) -> terral_format::Result<()> {
            Ok(())
        }

        fn through_map(&self, _: Number, _: &Act, _: &[u8]) -> Outcome {
            Ok((Done::Unknown, Vec::new()))
        }
    }

    #[test]
    fn what_was_opened_elsewhere_stays_open_while_others_are_closed() {
        let [me, from] = [1, 2].map(|number| Member::new(number).expect("few"));
        let (relay, (told, hears)) = (Arc::new(Open::default()), mpsc::channel());
        let answered = move || told.send(()).expect("somebody hears");
        let relaying = Relaying::new(relay.clone(), Arc::new(Clock), 7, answered);
        let ask = |number: u64, file: u64, act| {
            let (pid, started_ticks, index, step) = (1, 2, 3, 4);
            let session = SessionSlot(5);
            let id = Id { by: from, session, pid, started_ticks, index, sequence: number, step };
            let what = What::File(Number::new(me, file).expect("few"), act);
            let question = Question { id, life: 6, number, past: 0, what };
            let frame = question.write(Vec::new()).map(Written::whole).expect("encodes");
            relaying.push((me, from), (framed(&frame), None)).expect("a question");
        };
        std::thread::scope(|threads| {
            (0..THREADS).for_each(|_| drop(threads.spawn(|| relaying.run())));
            for file in 1..=100 {
                ask(2 * file, file, Act::Open);
                loop {
                    hears.recv_timeout(Duration::from_secs(30)).expect("it is answered");
                    let answers = relaying.take_answers().into_iter();
                    let read = |frame: Written| Answer::read(&frame.whole()).expect("one").0;
                    if answers.map(|(_, frame)| read(frame)).any(|one| one.id.sequence == 2 * file)
                    {
                        break;
                    }
                }
                let files = relay.0.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(files.contains(&Ino(file)), "{file}");
                drop(files);
                ask(2 * file + 1, file, Act::Close);
            }
            relaying.end();
        });
    }

    #[test]
    fn nobody_asks_in_the_name_of_another_member_or_for_its_files() {
        let [me, from, other] = [1, 2, 3].map(|number| Member::new(number).expect("few"));
        let relay = Arc::new(Slow::default());
        let relaying = Relaying::new(relay, Arc::new(Clock), 7, || ());
        assert!(relaying.push((me, other), (framed(&question(from, me, 1)), None)).is_err());
        assert!(relaying.push((me, from), (framed(&question(from, other, 1)), None)).is_err());
        let owner = FarOwner { by: other, locker: Locker::Flock, number: 1 };
        let (range, kind, wait) = (LockRange::ALL, LockKind::Exclusive, 0);
        let lock = Act::Lock(FarLock { owner, range, kind, wait });
        assert!(relaying.push((me, from), (framed(&asking(from, me, 2, lock)), None)).is_err());
        assert!(relaying.push((me, from), (framed(b"nothing"), None)).is_err());
        relaying.removed(from);
    }
}
