//! The threads that fetch what requests need: some from the permanent store, others from the spill,
//! which are never kept by one another. There are none until something is to be fetched, and none
//! again a while after. Where the system gives no thread, those that there are do it; where there
//! are none, it fails.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use terral_format::{Error, ErrorKind};
use terral_store::backing::Source;

use crate::core::state::State;
use crate::deferred::applying;
use crate::needs::need::Need;
use crate::shared::Shared;

/// Most of them: a store that is far away answers so many at once.
const THREADS_MAX: usize = 8;
/// One that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(2);

/// `ENOMEM`.
const NO_MEMORY: i32 = 12;

/// What is to be fetched, and under which number.
type Job = (u64, Need);

/// Whoever has things fetched.
pub struct Fetchers<'scope, 'env> {
    threads: &'scope Scope<'scope, 'env>,
    shared: &'scope Shared,
    source: Option<Arc<dyn Source>>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    inner: Mutex<Inner>,
    wake: Condvar,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    over: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has them done, by further threads if `begin` begins one. Gives back those that nobody does,
    /// and why not.
    fn add(
        &self,
        jobs: Vec<Job>,
        begin: impl Fn() -> io::Result<()>,
    ) -> Option<(io::Error, VecDeque<Job>)> {
        let mut inner = self.lock();
        let wakes = jobs.len().min(inner.idle);
        inner.jobs.extend(jobs);
        let wanted = inner.jobs.len().saturating_sub(inner.idle);
        let mut refused = None;
        for _ in 0..wanted.min(THREADS_MAX - inner.threads) {
            refused = begin().err();
            if refused.is_some() {
                break;
            }
            inner.threads += 1;
        }
        // One for each: the others would find nothing.
        (0..wakes).for_each(|_| self.wake.notify_one());
        let alone = inner.threads == 0;
        refused.filter(|_| alone).map(|error| (error, std::mem::take(&mut inner.jobs)))
    }

    /// The next job; `None` if the thread that asks is to end.
    fn next(&self) -> Option<Job> {
        let mut inner = self.lock();
        while inner.jobs.is_empty() && !inner.over {
            inner.idle += 1;
            let (woken, waited) =
                self.wake.wait_timeout(inner, IDLE).unwrap_or_else(PoisonError::into_inner);
            inner = woken;
            inner.idle -= 1;
            if waited.timed_out() && inner.jobs.is_empty() {
                break;
            }
        }
        let job = if inner.over { None } else { inner.jobs.pop_front() };
        if job.is_none() {
            inner.threads -= 1;
        }
        job
    }
}

impl<'scope, 'env> Fetchers<'scope, 'env> {
    /// None yet. What they fetch is said to `shared`, and who waits for it woken.
    pub fn new(
        threads: &'scope Scope<'scope, 'env>,
        shared: &'scope Shared,
        source: Option<Arc<dyn Source>>,
    ) -> Self {
        Fetchers { threads, shared, source, queue: Arc::default() }
    }

    /// Has these fetched; what nobody can fetch has failed.
    pub fn fetch(&self, state: &mut State, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let refused = self.queue.add(jobs, || {
            let (shared, source) = (self.shared, self.source.clone());
            let queue = self.queue.clone();
            let work = move || work(shared, source.as_deref(), &queue);
            Builder::new().spawn_scoped(self.threads, work).map(drop)
        });
        let Some((error, jobs)) = refused else { return };
        for (number, _) in jobs {
            let context = format!("a thread that fetches: {error}; end some, or raise the limit");
            let error = Error { kind: ErrorKind::System, errno: NO_MEMORY, context };
            state.fetches.failed(number, error);
        }
        self.shared.nudge();
    }
}

impl Drop for Fetchers<'_, '_> {
    fn drop(&mut self) {
        self.queue.lock().over = true;
        self.queue.wake.notify_all();
    }
}

fn work(shared: &Shared, source: Option<&dyn Source>, queue: &Queue) {
    while let Some((number, need)) = queue.next() {
        let begun = shared.world.now();
        let fetched = need.fetch(source);
        // Not how long others kept it from the lock, which says nothing of the store.
        let times = (begun, shared.world.now());
        let waits = {
            let mut state = shared.lock();
            applying::was_fetched(&mut state, number, fetched, times);
            state.waits_between()
        };
        if waits {
            shared.wake_links();
        }
        shared.nudge();
    }
}

#[cfg(test)]
mod tests {
    use super::{Job, Need, Queue, io};
    use crate::needs::listings::Wanted;

    fn jobs() -> Vec<Job> {
        (0..3).map(|number| (number, Need::List(Wanted::default()))).collect()
    }

    /// Jobs, and threads.
    fn counted(queue: &Queue) -> (usize, usize) {
        let inner = queue.lock();
        (inner.jobs.len(), inner.threads)
    }

    #[test]
    fn where_there_is_no_thread_those_that_there_are_fetch_and_without_any_it_fails() {
        let refuse = || Err(io::Error::from(io::ErrorKind::WouldBlock));
        let queue = Queue::default();
        let (_, failed) = queue.add(jobs(), refuse).expect("nobody does them");
        assert_eq!((failed.len(), counted(&queue)), (3, (0, 0)));

        let one = std::cell::Cell::new(true);
        let begin_one = || if one.take() { Ok(()) } else { refuse() };
        assert!(queue.add(jobs(), begin_one).is_none() && queue.add(jobs(), refuse).is_none());
        assert_eq!(counted(&queue), (6, 1));
        assert!((0..6).all(|_| queue.next().is_some()), "one thread does all");
    }
}
