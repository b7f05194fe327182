//! What is done meanwhile: calls that a program has submitted, by threads of the library, which
//! begin with the first call that has to wait.
//!
//! Invariant: each process has threads of its own; a forked child has none of its parent's, and
//! gets none of its results. Not here: what is done (`objects`).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use terral_format::{Error, ErrorKind, Result};

/// So many at most: a process has room for four requests, and one of them is for the others.
const THREADS: usize = 3;
/// Most generations of forks without exec that submit something.
const FORKS_MAX: usize = 64;
/// Nobody waits for longer at a time.
const LONG: Duration = Duration::from_secs(3600);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

/// The threads of one process.
struct Threads {
    process: u32,
    queue: Mutex<Queue>,
    news: Condvar,
}

static ALL: [OnceLock<Arc<Threads>>; FORKS_MAX] = [const { OnceLock::new() }; FORKS_MAX];

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those of this process.
fn threads() -> Result<&'static Arc<Threads>> {
    let process = std::process::id();
    for place in &ALL {
        if place.get().is_none() {
            let (queue, news) = (Mutex::default(), Condvar::new());
            // Another thread may have been sooner.
            let _ = place.set(Arc::new(Threads { process, queue, news }));
        }
        if let Some(threads) = place.get().filter(|threads| threads.process == process) {
            return Ok(threads);
        }
    }
    Err(Error::new(ErrorKind::TooMany, "generations of forked processes"))
}

impl Threads {
    fn takes(self: &Arc<Self>, job: Job) -> Result<()> {
        let mut queue = locked(&self.queue);
        if queue.idle <= queue.jobs.len() && queue.threads < THREADS {
            let threads = self.clone();
            let builder = std::thread::Builder::new().name("terral-submitted".into());
            match builder.spawn(move || threads.work()) {
                Ok(_) => queue.threads += 1,
                // Fewer do it, too.
                Err(_) if queue.threads > 0 => {}
                Err(error) => return Err(Error::system(&error, "a thread for what is submitted")),
            }
        }
        queue.jobs.push_back(job);
        self.news.notify_one();
        Ok(())
    }

    fn work(&self) {
        let mut queue = locked(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = locked(&self.queue);
                continue;
            }
            queue.idle += 1;
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// Where a result comes.
struct Place<T> {
    result: Mutex<Option<Result<T>>>,
    came: Condvar,
}

/// A call that was submitted. If it is dropped, it is done all the same.
pub struct Submitted<T> {
    place: Arc<Place<T>>,
    process: u32,
}

impl<T: Send + 'static> Submitted<T> {
    /// Has it done by a thread, which drops `held` once the result is there.
    pub(crate) fn new(
        act: impl FnOnce() -> Result<T> + Send + 'static,
        held: impl Send + 'static,
    ) -> Result<Self> {
        let place = Arc::new(Place { result: Mutex::new(None), came: Condvar::new() });
        let goes = place.clone();
        threads()?.takes(Box::new(move || {
            let result = act();
            *locked(&goes.result) = Some(result);
            goes.came.notify_all();
            drop(held);
        }))?;
        Ok(Submitted { place, process: std::process::id() })
    }

    /// It was done at once.
    pub fn done(result: Result<T>) -> Self {
        let place = Place { result: Mutex::new(Some(result)), came: Condvar::new() };
        Submitted { place: Arc::new(place), process: std::process::id() }
    }

    /// Whether [`Submitted::wait`] waits no longer.
    pub fn is_done(&self) -> bool {
        !self.is_own() || locked(&self.place.result).is_some()
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for it so long. Whether it is done.
    pub fn wait_for(&self, time: Duration) -> bool {
        if !self.is_own() {
            return true;
        }
        let begin = Instant::now();
        let mut result = locked(&self.place.result);
        while result.is_none() {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return false;
            }
            let waited = self.place.came.wait_timeout(result, left);
            result = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Waits for it, and gives what came of it.
    ///
    /// # Errors
    /// Those of the call; [`ErrorKind::BadHandle`] in a forked child.
    pub fn wait(self) -> Result<T> {
        while !self.wait_for(LONG) {}
        let context = "what another process has submitted";
        let other = || Err(Error::new(ErrorKind::BadHandle, context));
        // Who has it locked may be a thread of the parent.
        let mine = self.is_own().then(|| locked(&self.place.result).take()).flatten();
        mine.unwrap_or_else(other)
    }
}

/// How many calls on something are under way.
pub(crate) struct UnderWay {
    process: u32,
    count: Mutex<usize>,
    over: Condvar,
}

/// One of them, until it is dropped.
pub(crate) struct OnItsWay(Arc<UnderWay>);

impl Default for UnderWay {
    fn default() -> Self {
        let (process, count, over) = (std::process::id(), Mutex::new(0), Condvar::new());
        UnderWay { process, count, over }
    }
}

impl UnderWay {
    pub(crate) fn begin(self: &Arc<Self>) -> OnItsWay {
        *locked(&self.count) += 1;
        OnItsWay(self.clone())
    }

    /// Waits until none is. In a forked child none comes to an end.
    pub(crate) fn wait(&self) {
        if self.process != std::process::id() {
            return;
        }
        let mut count = locked(&self.count);
        while *count > 0 {
            count = self.over.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        *locked(&self.0.count) -= 1;
        self.0.over.notify_all();
    }
}
