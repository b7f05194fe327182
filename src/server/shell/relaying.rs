//! What other members ask of files that were born here, carried out by a few threads that are
//! clients of this server: of one file one question at a time, in the order in which they came, but
//! for reads that follow each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terral_format::Result;
use terral_format::ids::{Ino, Member, Number};
use terral_format::wire::far::{Act, Written};

use crate::core::world::{Tick, World};
use crate::far::desk::{Admitted, Desk, Heard, Job, Relay};

pub mod threads;

/// How many threads carry them out.
const THREADS: usize = 4;
/// Who hears a question of so many bytes does it himself, if that can be done at once.
const SHORT: usize = 16 << 10;
/// What is not used is looked after this often, while there is any.
const LOOK: Duration = Duration::from_secs(1);

/// Which jobs a thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// All but those of users' servers.
    All,
    /// Those for which others may wait who keep all other threads waiting.
    Urgent,
    /// Those of a user, who keeps nobody waiting but himself.
    Of(u32),
}

impl Lane {
    fn has(self, job: &Job) -> bool {
        let urgent = job.act.is_urgent();
        match self {
            Lane::All => urgent || job.user.is_none(),
            Lane::Urgent => urgent,
            Lane::Of(user) => job.user == Some(user) && !urgent,
        }
    }
}

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
    /// Users that have a thread, each for these servers of his.
    lanes: BTreeMap<u32, BTreeSet<Member>>,
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
    /// For those of users' servers.
    users: Condvar,
    /// Called when there are answers to be taken, without any lock.
    answered: Box<dyn Fn() + Send + Sync>,
}

impl Inner {
    /// A job is done now. What others may wait for keeps none waiting.
    fn runs(&mut self, job: &Job) {
        if !job.act.is_urgent() {
            self.running.push((job.number(), job.is_shared()));
        }
    }

    /// Whether a job that has just come may be done now, as [`Inner::next`] has it.
    fn is_free(&self, job: &Job) -> bool {
        let with =
            |number: Number, shared: bool| number == job.number() && !(shared && job.is_shared());
        let runs = self.running.iter().any(|(number, shared)| with(*number, *shared));
        let waits = |other: &Job| !other.act.is_urgent() && with(other.number(), other.is_shared());
        !runs && !self.waiting.iter().any(waits)
    }

    fn has_run(&mut self, job: &Job) {
        let done = (job.number(), job.is_shared());
        if job.act.is_urgent() {
            return;
        }
        if let Some(at) = self.running.iter().position(|running| *running == done) {
            self.running.swap_remove(at);
        }
    }

    /// The first that may be done now: nothing before it is about the same file, or all of that
    /// only reads, as it does; or others may wait for it, be it those before it.
    fn next(&mut self, lane: Lane) -> Option<Job> {
        let (mut busy, keeping) = (self.running.clone(), self.keeping);
        let free = |job: &Job| {
            if job.act.is_urgent() {
                return lane.has(job);
            }
            let with = |running: &(Number, bool)| running.1 && job.is_shared();
            let is_free = busy.iter().all(|running| running.0 != job.number() || with(running));
            let is_free = is_free && !(keeping && job.act == Act::Open);
            let is = (job.number(), job.is_shared());
            if !is_free && !busy.contains(&is) {
                busy.push(is);
            }
            is_free && lane.has(job)
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
        let lanes = BTreeMap::new();
        let inner = Inner { desk, waiting, running, answers, looks, looked, keeping, lanes, over };
        let (inner, answered) = (Mutex::new(inner), Box::new(answered));
        let (work, urgent, users) = Default::default();
        Relaying { relay, world, inner, work, urgent, users, answered }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member asks this one, which is `me`. It is answered by and by, or at
    /// once if it is short: then the answer is there to be [taken](Relaying::take_answers). Gives
    /// what it has closed.
    ///
    /// # Errors
    /// If that is no question: the session is to be cut.
    pub fn push(
        &self,
        (me, from): (Member, Member),
        question: Admitted,
    ) -> Result<Vec<(Ino, Member)>> {
        let (now, is_users) = (self.world.now(), question.user.is_some());
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
        if is_users {
            self.users.notify_all();
        }
        if answered {
            (self.answered)();
        }
        Ok(closed)
    }

    /// Does it in this thread, which others wait for, if nobody is to be waited for. Gives what
    /// cannot be done so.
    fn try_at_once(&self, mut inner: MutexGuard<'_, Inner>, job: Job, now: Tick) -> Option<Job> {
        inner.runs(&job);
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
        for servers in inner.lanes.values_mut() {
            servers.remove(&member);
        }
        let ended = inner.desk.take_ended();
        inner.waiting.extend(ended);
        drop(inner);
        self.work.notify_all();
        self.users.notify_all();
    }

    /// A thread does what this server of a user asks, and his others, and nothing else: if none
    /// does yet, one begins.
    ///
    /// # Errors
    /// As those of that.
    pub fn begins(
        &self,
        user: u32,
        member: Member,
        begin: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let is_new = {
            let lanes = &mut self.lock().lanes;
            let is_new = !lanes.contains_key(&user);
            lanes.entry(user).or_default().insert(member);
            is_new
        };
        if !is_new {
            return Ok(());
        }
        // Without the lock: it takes it.
        begin().inspect_err(|_| {
            // He asks again in his next session.
            self.lock().lanes.remove(&user);
        })
    }

    /// The server leaves: the threads end, once they are through with what they are at.
    pub fn end(&self) {
        self.lock().over = true;
        self.work.notify_all();
        self.urgent.notify_all();
        self.users.notify_all();
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
            if let Some(job) = inner.next(Lane::All) {
                inner.runs(&job);
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
                        self.users.notify_all();
                    }
                }
                Work::Do(job) => self.carry_out(&job),
            }
        }
    }

    /// What another thread does until then: only that for which others may wait who keep all other
    /// threads of this kind waiting, here or on another machine.
    pub fn run_urgent(&self) {
        self.run_lane(Lane::Urgent, &self.urgent, |_| true);
    }

    /// What another thread does until then, or until no server of this user is a member any more:
    /// what those ask, which wait for nothing but what he waits for.
    pub fn run_for(&self, user: u32) {
        self.run_lane(Lane::Of(user), &self.users, |inner| {
            let goes_on = inner.lanes.get(&user).is_some_and(|servers| !servers.is_empty());
            if !goes_on {
                // Who begins from now on gets another thread.
                inner.lanes.remove(&user);
            }
            goes_on
        });
    }

    fn run_lane(&self, lane: Lane, wait: &Condvar, goes_on: impl Fn(&mut Inner) -> bool) {
        let mut inner = self.lock();
        while !inner.over && goes_on(&mut inner) {
            match inner.next(lane) {
                Some(job) => {
                    inner.runs(&job);
                    // What is done for others here opens nothing.
                    let opens = lane != Lane::Urgent;
                    inner.looks |= opens;
                    drop(inner);
                    if opens {
                        self.work.notify_one();
                    }
                    self.carry_out(&job);
                    inner = self.lock();
                }
                None => inner = wait.wait(inner).unwrap_or_else(PoisonError::into_inner),
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
            [&self.work, &self.urgent, &self.users].iter().for_each(|wait| wait.notify_all());
        }
        (self.answered)();
    }
}

#[cfg(test)]
mod tests;
