//! The server's threads: one answers requests, one welcomes and buries clients, one drains, one
//! prepares memory. They share [`State`] behind a lock; none of them polls.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use terral_format::geometry::{PAGE_BYTES, SEGMENT_BYTES};
use terral_format::ids::SessionSlot;
use terral_format::message::{Hello, PROTOCOL, Status, Welcome};
use terral_format::record::Record;
use terral_format::tables::{Superblock, segment};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::arena;
use terral_transport::process::{self, Process, WaitSet};
use terral_transport::requests::{self, Taken};
use terral_transport::socket::{Handshake, Listener};

use crate::authn;
use crate::drain;
use crate::instance::{self, Instance};
use crate::locking::wake_all_lockers;
use crate::options::Options;
use crate::requests::Outcome as Handled;
use crate::shared::Shared;
use crate::state::State;

/// Warm memory kept ahead of the writers, least and most.
const WARM_BYTES: (u64, u64) = (256 << 20, 1 << 30);
/// Writers that got no chunk for so long pause.
const PAUSE: Duration = Duration::from_millis(20);
/// Who comes and says nothing for so long is listened to by a thread of his own.
const HELLO: Duration = Duration::from_millis(1);
const LISTENER: u64 = u64::MAX;
const LAUNCHER: u64 = u64::MAX - 1;
const STOP: u64 = u64::MAX - 2;
/// While files are open through kernel descriptors, the server looks this often whether somebody it
/// does not know has closed the last one.
const PROBE: Duration = Duration::from_millis(500);

/// How it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The last word.
    pub status: Status,
}

/// Serves until told to leave, or until all is finished and nobody is left.
///
/// # Errors
/// If the instance cannot be made or taken over; nothing in it is lost then.
pub fn serve(options: &Options) -> Result<Outcome> {
    let Instance { tables, headers, state, lock: _lock } = instance::open(options)?;
    let backing = state.backing.clone();
    let shared = Shared::new(state, headers);
    let superblock: &Superblock = tables.view(0);
    // Before anybody can come.
    superblock.server_pid.store(u64::from(std::process::id()), Ordering::SeqCst);
    let listener = Listener::bind(&options.instance.join("socket"))?;
    let watch = WaitSet::new()?;
    watch.add(listener.as_fd(), LISTENER)?;
    let (stopped, stop) = std::io::pipe().map_err(|e| Error::system(&e, "pipe"))?;
    watch.add(stopped.as_fd(), STOP)?;
    let launcher = match options.launcher.map(Process::open) {
        Some(Ok(launcher)) => {
            watch.add(launcher.as_fd(), LAUNCHER)?;
            Some(launcher)
        }
        Some(Err(_)) => {
            shared.lock().finishing = true;
            None
        }
        None => None,
    };
    for (session, client) in shared.lock().sessions.clients() {
        watch.add(client.process.as_fd(), session.0.into())?;
    }
    std::thread::scope(|threads| {
        if let Some(backing) = &backing {
            let shared = &shared;
            threads.spawn(move || drain::run(shared, backing.as_ref()));
        }
        threads.spawn(|| prepare_memory(&shared));
        let watcher = Watcher { shared: &shared, watch: &watch, launcher };
        threads.spawn(move || watcher.run(&listener));
        answer_requests(&shared);
        {
            // Under the lock: who has just looked, and is about to wait, must not miss the wake-up.
            let mut state = shared.lock();
            state.leaving = true;
            shared.over.store(true, Ordering::SeqCst);
        }
        shared.work.notify_all();
        shared.prepare.notify_all();
        drop(stop);
    });
    superblock.server_pid.store(0, Ordering::SeqCst);
    leave(&shared, options)
}

/// The last steps: an instance that owes nothing and that nobody uses is removed.
fn leave(shared: &Shared, options: &Options) -> Result<Outcome> {
    let mut state = shared.lock();
    // Clients that are still there defer nothing any more.
    state.close_gate()?;
    state.find_changes();
    let status = state.status();
    let owes =
        state.backing.is_some() && (!state.debts.is_empty() || !state.names.owed().is_empty());
    if !owes {
        if let Some(backing) = &state.backing {
            // Leftovers there are no reason to keep anything here.
            let _ = backing.clean(state.began.instance);
        }
        instance::end(&options.instance, state.began.instance)?;
    }
    Ok(Outcome { status })
}

// Requests.

fn answer_requests(shared: &Shared) {
    process::be_prompt();
    let mut parked: Vec<(SessionSlot, Taken)> = Vec::new();
    {
        // What a server that died left in the slots.
        let mut state = shared.lock();
        let sessions: Vec<SessionSlot> = state.sessions.clients().map(|(at, _)| at).collect();
        for session in sessions {
            let left = state.sessions.client(session).map(|client| client.session.take(true));
            for request in left.unwrap_or_default() {
                answer_one(&mut state, session, request, &mut parked);
            }
        }
    }
    let bell = shared.bell();
    wake_all_lockers(bell);
    let mut waiter = requests::Waiter::default();
    let mut busy = true;
    loop {
        waiter.wait(bell, busy);
        busy = false;
        // Requests first, and then what was deferred: who asks has deferred before what he says.
        let rung = requests::rung(bell);
        let mut state = shared.lock_for_requests();
        let mut taken = Vec::new();
        for session in rung {
            let session = SessionSlot(session as u16);
            let client = state.sessions.client(session);
            let requests = client.map(|client| client.session.take(false)).unwrap_or_default();
            taken.extend(requests.into_iter().map(|request| (session, request)));
        }
        if requests::rung_deferred(bell) {
            busy = true;
            if !matches!(state.apply_deferred(), Ok(false)) {
                requests::ring_deferred(bell, true);
            }
        }
        for (session, taken) in std::mem::take(&mut parked) {
            let client = state.sessions.client(session);
            if !client.is_some_and(|client| client.session.waits_for(&taken)) {
                continue;
            }
            answer_one(&mut state, session, taken, &mut parked);
        }
        for (session, request) in taken {
            busy = true;
            answer_one(&mut state, session, request, &mut parked);
        }
        state.wake_lockers(bell);
        let finished = is_finished(&state);
        let warm = state.preparer_sleeps && needs_warm(&state);
        state.debts.pressed = !parked.is_empty();
        let drains = state.must_wake_drain();
        drop(state);
        if finished {
            return;
        }
        if warm {
            shared.prepare.notify_one();
        }
        if drains {
            shared.work.notify_one();
        }
    }
}

fn is_finished(state: &State) -> bool {
    let paid = state.backing.is_none() || state.debts.shown.settled;
    let idle = state.debts.is_empty() && state.names.owed().is_empty();
    let alone = state.sessions.clients().next().is_none();
    state.leaving || (state.finishing && alone && paid && (idle || state.backing.is_none()))
}

fn answer_one(
    state: &mut State,
    session: SessionSlot,
    taken: Taken,
    parked: &mut Vec<(SessionSlot, Taken)>,
) {
    match state.handle(session, &taken) {
        Handled::Park => parked.push((session, taken)),
        Handled::Answer(reply) => {
            if let Some(client) = state.sessions.client(session)
                && let Err(error) = client.session.answer(&taken, &reply)
            {
                let reply = terral_format::message::Reply::Failed(error);
                let reply = terral_format::frame::encode(&reply).unwrap_or_default();
                let _ = client.session.answer(&taken, &reply);
            }
        }
    }
}

// Memory.

fn warm_target(state: &State) -> u64 {
    let bound = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
    let most = if state.debts.is_empty() { WARM_BYTES.1 } else { WARM_BYTES.0 };
    (state.ram.used_bytes() / 2).clamp(WARM_BYTES.0, most).min(bound / 2)
}

/// Once anything is being written, there shall be warm memory for what comes next, and what was
/// written cold shall be warm when it is used again.
fn needs_warm(state: &State) -> bool {
    let lacks = state.ram.warm_bytes() < warm_target(state);
    let drains = !state.debts.is_empty();
    state.wrote && (lacks || (!drains && first_cold(state).is_some()))
}

/// Preparing takes memory bandwidth from who writes into cold memory meanwhile: it begins when
/// writers pause, or when they have written so much that they will be at it for long.
fn is_busy(state: &State) -> bool {
    let writing = state.granted.is_some_and(|at| at.elapsed() < PAUSE);
    writing && state.ram.used_bytes() < WARM_BYTES.0 * 2
}

/// The first segment that exists and is not prepared.
fn first_cold(state: &State) -> Option<u32> {
    let memory = state.ram.memory();
    let sparse = |at: &u32| memory.segment_state(*at).load(Ordering::SeqCst) == segment::SPARSE;
    (0..state.ram.segments()).find(sparse)
}

/// Makes pages exist before they are needed, one segment at a time.
fn prepare_memory(shared: &Shared) {
    process::be_nice(10);
    let mut state = shared.lock();
    while !shared.over.load(Ordering::SeqCst) {
        if needs_warm(&state) && is_busy(&state) {
            let waited = shared.prepare.wait_timeout(state, PAUSE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        // A new segment first: in those that exist, writers are at work.
        let next = match needs_warm(&state) {
            true if state.ram.warm_bytes() < warm_target(&state) => {
                state.ram.grow().ok().or_else(|| first_cold(&state))
            }
            true => first_cold(&state),
            false => None,
        };
        let Some(index) = next else {
            state = sleep_until_needed(shared, state);
            continue;
        };
        drop(state);
        let room = shared.memory.room_bytes() > 2 * SEGMENT_BYTES as u64;
        let prepared = shared.memory.segment(index).and_then(|file| {
            if room { arena::prepare(&file) } else { Err(Error::new(ErrorKind::NoSpace, "memory")) }
        });
        state = shared.lock();
        match prepared {
            Ok(is) => {
                shared.memory.segment_state(index).store(is, Ordering::SeqCst);
                state.ram.allocator().warmed(index);
            }
            // What cannot be prepared is still reachable, through its file.
            Err(_) => {
                state.ram.allocator().stop_growing();
                state = sleep_until_needed(shared, state);
            }
        }
    }
}

fn sleep_until_needed<'s>(
    shared: &'s Shared,
    mut state: MutexGuard<'s, State>,
) -> MutexGuard<'s, State> {
    state.preparer_sleeps = true;
    let mut state = shared.prepare.wait(state).unwrap_or_else(PoisonError::into_inner);
    state.preparer_sleeps = false;
    state
}

// Clients.

struct Watcher<'s> {
    shared: &'s Shared,
    watch: &'s WaitSet,
    launcher: Option<Process>,
}

impl Watcher<'_> {
    fn run(mut self, listener: &Listener) {
        process::be_prompt();
        std::thread::scope(|threads| {
            while !self.shared.over.load(Ordering::SeqCst) {
                let tokens = self.watch.wait(self.probes()).unwrap_or_default();
                if tokens.is_empty() {
                    self.probe();
                }
                for token in tokens {
                    match token {
                        STOP => return,
                        LISTENER => {
                            let (shared, watch) = (self.shared, self.watch);
                            while let Ok(Some(handshake)) = listener.accept() {
                                if handshake.speaks_within(HELLO) {
                                    welcome(shared, watch, &handshake);
                                } else {
                                    threads.spawn(move || welcome(shared, watch, &handshake));
                                }
                            }
                        }
                        LAUNCHER => {
                            // Dropping it takes it out of the set.
                            self.launcher = None;
                            let mut state = self.shared.lock();
                            state.finishing = true;
                            self.ended(state);
                        }
                        session => self.bury(SessionSlot(session as u16)),
                    }
                }
            }
        });
    }

    /// Whoever is there may open files at any time, without a word to this thread.
    fn probes(&self) -> Option<Duration> {
        let state = self.shared.lock();
        let somebody = state.sessions.clients().next().is_some();
        (somebody || state.descriptions.count_kernel() > 0).then_some(PROBE)
    }

    fn bury(&self, session: SessionSlot) {
        let mut state = self.shared.lock();
        let client = state.sessions.client(session);
        if client.is_some_and(|client| client.process.is_alive()) {
            // Who waited for a lock of the dead one has buried it, and the place is taken again.
            return;
        }
        if let Err(error) = state.end_session(session) {
            state.debts.names_failed(error.to_string());
        }
        self.ended(state);
    }

    fn probe(&self) {
        let mut state = self.shared.lock();
        let probed = state.close_unheld(None).and_then(|()| state.commit());
        if let Err(error) = probed {
            state.debts.names_failed(error.to_string());
        }
        self.ended(state);
    }

    /// Something ended: wakes those, and only those, who may have waited for it.
    fn ended(&self, mut state: MutexGuard<'_, State>) {
        state.wake_lockers(self.shared.bell());
        let drains = state.finishing || state.must_wake_drain();
        let lost = requests::seems_awake(self.shared.bell());
        let requests = state.finishing || state.debts.pressed || lost;
        drop(state);
        if drains {
            self.shared.work.notify_one();
        }
        if requests {
            self.shared.nudge();
        }
    }
}

/// One client's handshake.
fn welcome(shared: &Shared, watch: &WaitSet, handshake: &Handshake) {
    let greeted = greet(shared, watch, handshake);
    let sent = match &greeted {
        Ok((welcome, page)) => handshake.send(welcome, &[page.as_fd()]),
        Err(error) => handshake.send(&Welcome::Refused(error.clone()), &[]),
    };
    // A client that is gone already is buried when its process ends.
    drop(sent);
}

fn greet(
    shared: &Shared,
    watch: &WaitSet,
    handshake: &Handshake,
) -> Result<(Welcome, std::fs::File)> {
    let peer = handshake.peer()?;
    // Read first: to answer somebody who still speaks would break the pipe.
    let (hello, _): (Hello, _) = handshake.receive()?;
    let credential = authn::identify(peer)?;
    if hello.protocol != PROTOCOL {
        let context = format!(
            "server speaks protocol {PROTOCOL}, {} speaks {}: use the same version of terral",
            hello.program, hello.protocol
        );
        return Err(Error::new(ErrorKind::Version, context));
    }
    let process = Process::open(peer.pid)?;
    let started_ticks = process::started_ticks(peer.pid)?;
    let mut state = shared.lock();
    state.log.reserve()?;
    let capability = state.authz.issue(&credential)?;
    let instance = state.instance.clone();
    let (session, page) = state.sessions.create(&instance, process)?;
    let authority = state.present(session, &capability)?;
    if let Some(client) = state.sessions.client(session) {
        watch.add(client.process.as_fd(), session.0.into())?;
    }
    state.record(Record::SessionBegan { session, pid: peer.pid, started_ticks });
    state.commit()?;
    let instance = state.began.instance;
    let process = state.sessions.process(session);
    let holds_locks = process.is_some_and(|process| state.locks.holds(process));
    Ok((Welcome::Session { instance, session, capability, authority, holds_locks }, page))
}
