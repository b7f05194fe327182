//! The threads that fetch what requests need: some from the permanent store, others from the spill,
//! which are never kept by one another. There are none until something is to be fetched, and none
//! again a while after.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use terral_store::backing::Source;

use crate::deferred::applying;
use crate::needs::fetching::Need;
use crate::shared::Shared;

/// Most of them: a store that is far away answers so many at once.
const THREADS_MAX: usize = 8;
/// One that has nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(2);

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
    jobs: VecDeque<(u64, Need)>,
    threads: usize,
    idle: usize,
    over: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; `None` if the thread that asks is to end.
    fn next(&self) -> Option<(u64, Need)> {
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

    /// Has these fetched.
    pub fn fetch(&self, jobs: Vec<(u64, Need)>) {
        if jobs.is_empty() {
            return;
        }
        let mut inner = self.queue.lock();
        inner.jobs.extend(jobs);
        let wanted = inner.jobs.len().saturating_sub(inner.idle);
        let more = wanted.min(THREADS_MAX - inner.threads);
        inner.threads += more;
        drop(inner);
        self.queue.wake.notify_all();
        for _ in 0..more {
            let (shared, source) = (self.shared, self.source.clone());
            let queue = self.queue.clone();
            self.threads.spawn(move || work(shared, source.as_deref(), &queue));
        }
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
        let fetched = need.fetch(source);
        applying::was_fetched(&mut shared.lock(), number, fetched);
        shared.nudge();
    }
}
