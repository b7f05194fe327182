//! The server's threads: one answers requests, one lets clients in and ends their sessions, one
//! drains, one sees that memory is ready, some spill, and others fetch what requests wait for. They
//! share [`State`] behind a lock; none of them polls.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terral_format::ids::SessionSlot;
use terral_format::local::tables::Superblock;
use terral_format::wire::message::Status;
use terral_format::{Error, Result};
use terral_transport::process::{self, Process, WaitSet};
use terral_transport::requests::{self, Taken};
use terral_transport::socket::Listener;

use crate::core::state::State;
use crate::core::workers::Trade;
use crate::debts::owing;
use crate::deferred::applying;
use crate::far::desk::Relay;
use crate::requests::handling::Outcome as Handled;
use crate::requests::{handling, status, tending};
use crate::shared::Shared;
use crate::shell::door::Door;
use crate::shell::fetchers::Fetchers;
use crate::shell::instance::{self, Instance};
use crate::shell::links::Links;
use crate::shell::options::Options;
use crate::shell::ready::{self, Ready};
use crate::shell::watcher::{LAUNCHER, LISTENER, STOP, Watcher};
use crate::shell::{draining, part, removal, spillers, workers};
use crate::storage::spill::jobs;

/// How it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The last word.
    pub status: Status,
    /// Why what was staged in the permanent directory, or the instance, could not all be removed,
    /// if so.
    pub left: Option<Error>,
}

/// Serves until told to leave, or until all is finished and nobody is left.
///
/// # Errors
/// If the instance cannot be made or taken over; nothing in it is lost then.
pub fn serve(options: &Options) -> Result<Outcome> {
    serve_with(options, None)
}

/// The same; what others ask of files that were born here, `relay` does.
///
/// # Errors
/// As those of [`serve`].
pub fn serve_with(options: &Options, relay: Option<Arc<dyn Relay>>) -> Result<Outcome> {
    let ready = &Ready::new(options);
    let preparer = ready.preparer(&options.instance);
    let Instance { tables, headers, state, lock: _lock } = instance::open(options)?;
    let mut state = state;
    part::take(&mut state, options).inspect_err(|_| {
        if state.starts == 1 {
            // Nothing has come into it yet.
            let _ = removal::end(&options.instance);
        }
    })?;
    let (backing, is_member) = (state.backing.clone(), state.members.is_some());
    let shared = Shared::new(state, headers);
    let links = is_member.then(|| Links::open(&shared, options.listen, relay)).transpose()?;
    let superblock: &Superblock = tables.view(0);
    // Before anybody can come.
    superblock.server_pid.store(u64::from(std::process::id()), Ordering::SeqCst);
    let listener = Listener::bind(&options.instance.join("socket"))?;
    instance::lend(&options.instance)?;
    let watch = WaitSet::new()?;
    let door = Door::open(&shared, &watch, &options.instance, listener, LISTENER)?;
    let (stopped, stop) = std::io::pipe().map_err(|e| Error::system(&e, "pipe"))?;
    watch.add(stopped.as_fd(), STOP)?;
    let launcher = options.launcher.and_then(|pid| Process::open(pid).ok());
    if let Some(launcher) = &launcher {
        watch.add(launcher.as_fd(), LAUNCHER)?;
    }
    shared.lock().attended = options.launcher.is_some();
    for (session, client) in shared.lock().sessions.clients() {
        if let Some(process) = client.process.descriptor() {
            watch.add(process, session.0.into())?;
        }
    }
    std::thread::scope(|threads| {
        if let Some(backing) = &backing {
            let shared = &shared;
            threads.spawn(move || draining::drain(shared, backing.as_ref()));
        }
        if let Some(links) = links {
            threads.spawn(move || links.run());
        }
        let (shared_too, halt) = (&shared, stopped.as_fd());
        threads.spawn(move || ready::keep(shared_too, ready, preparer, halt));
        let launched = options.launcher.is_some();
        let (shared, instance) = (&shared, &options.instance);
        let watcher = Watcher { shared, instance, watch: &watch, door, launched, launcher };
        threads.spawn(move || watcher.run());
        if shared.memory.spill().is_some() {
            (0..spillers::THREADS)
                .for_each(|_| drop(threads.spawn(move || spillers::spill(shared))));
        }
        let of_store = Fetchers::new(threads, shared, backing.clone().map(|backing| backing as _));
        let fetchers = [of_store, Fetchers::new(threads, shared, None)];
        answer_requests(shared, ready, &fetchers);
        drop(fetchers);
        {
            // Under the lock: who has just looked, and is about to wait, must not miss the wake-up.
            let mut state = shared.lock();
            state.leaving = true;
            state.fetches.are_served(false);
            shared.over.store(true, Ordering::SeqCst);
        }
        workers::wake_all(shared);
        shared.wake_links();
        drop(stop);
    });
    superblock.server_pid.store(0, Ordering::SeqCst);
    leave(&shared, options)
}

/// The last steps: an instance that owes nothing and that nobody uses is removed.
fn leave(shared: &Shared, options: &Options) -> Result<Outcome> {
    let mut state = shared.lock();
    // Clients that are still there defer nothing any more.
    applying::close_gate(&mut state)?;
    owing::find_changes(&mut state);
    let (status, mut left) = (status::status(&mut state), None);
    let owes = owing::owes(&state) || state.waiting.count() > 0;
    let owes = state.backing.is_some() && owes;
    if !owes {
        if let Some(backing) = &state.backing {
            // Leftovers there are no reason to keep anything here.
            let cleaned = part::take_sign_away(&state, backing.as_ref());
            if let Err(error) = cleaned.and_then(|()| backing.clean(state.began.instance)) {
                left = Some(error);
            }
        }
        if let Err(error) = removal::end(&options.instance) {
            left = Some(error);
        }
    }
    Ok(Outcome { status, left })
}

// Requests.

/// Requests that wait.
#[derive(Default)]
struct Parked(Vec<(SessionSlot, Taken, Why)>);

/// What for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Memory that the spill, or the drain, frees.
    Room,
    /// Something that is being fetched.
    Fetch,
}

impl Parked {
    fn count(&self, why: Why) -> usize {
        self.0.iter().filter(|(.., is)| *is == why).count()
    }

    /// Whether a session's request waits already.
    fn has(&self, session: SessionSlot, index: u8, sequence: u64) -> bool {
        let is = |taken: &Taken| (taken.index, taken.sequence) == (index, sequence);
        self.0.iter().any(|(of, taken, _)| *of == session && is(taken))
    }
}

fn answer_requests(shared: &Shared, ready: &Ready, fetchers: &[Fetchers<'_, '_>; 2]) {
    process::be_prompt();
    let mut parked = Parked::default();
    {
        // What a server that died left in the slots.
        let mut state = shared.lock();
        state.fetches.are_served(true);
        let clients = state.sessions.clients();
        let left = clients.flat_map(|(at, client)| {
            client.session.take(|_, _| false).into_iter().map(move |request| (at, request))
        });
        let left: Vec<(SessionSlot, Taken)> = left.collect();
        // Clients go on since the gate is open: who asks has deferred before what he says.
        applying::apply_rung(&mut state);
        for (session, request) in left {
            answer_one(&mut state, session, request, &mut parked);
        }
        wait_for(&mut state, &parked, fetchers);
    }
    let bell = shared.bell();
    let mut waiter = requests::Waiter::default();
    let mut busy = true;
    loop {
        waiter.wait(bell, busy);
        busy = false;
        // Requests first, and then what was deferred: who asks has deferred before what he says.
        let rung = requests::rung(bell);
        if parked.count(Why::Fetch) > 0 {
            shared.give_way_to_links();
        }
        let mut state = shared.lock_for_requests();
        let taken = take(&state, rung, &parked);
        if requests::rung_deferred(bell) {
            busy = true;
            if applying::apply_rung(&mut state) {
                requests::ring_deferred(bell, true);
            }
        }
        tending::try_what_was_fetched(&mut state);
        for (session, taken, why) in std::mem::take(&mut parked.0) {
            let client = state.sessions.client(session);
            if !client.is_some_and(|client| client.session.waits_for(&taken)) {
                continue;
            }
            let outcome = match why {
                Why::Room => handling::handle_again(&mut state, session, &taken),
                Why::Fetch => handling::handle(&mut state, session, &taken),
            };
            answer(&mut state, session, taken, outcome, &mut parked);
        }
        for (session, request) in taken {
            busy = true;
            answer_one(&mut state, session, request, &mut parked);
        }
        wait_for(&mut state, &parked, fetchers);
        let finished = is_finished(&state);
        let speaks = state.members.as_ref().is_some_and(|members| members.has_frames());
        let speaks = speaks || state.far.has_questions() || state.locks.has_left();
        let oversleep = oversleep(&state, ready);
        drop(state);
        if speaks {
            shared.wake_links();
        }
        if finished {
            return;
        }
        let wake = Trade::ALL.into_iter().zip(oversleep).filter(|(_, oversleep)| *oversleep);
        wake.for_each(|(trade, _)| shared.rouse(trade));
    }
}

/// Whether somebody must be woken, at each trade.
fn oversleep(state: &State, ready: &Ready) -> [bool; Trade::ALL.len()] {
    let now = || Some(state.world.now());
    Trade::ALL.map(|trade| {
        state.sleepers.sleeps(trade)
            && match trade {
                Trade::Draining => owing::must_wake_drain(state),
                Trade::Preparing => state.sleepers.oversleeps(trade, now()) && ready.is_due(state),
                Trade::Spilling => jobs::must_wake_spillers(state),
            }
    })
}

/// Sees to it that what is parked need not wait for ever.
fn wait_for(state: &mut State, parked: &Parked, fetchers: &[Fetchers<'_, '_>; 2]) {
    let room = parked.count(Why::Room);
    state.debts.press(room > 0);
    let waiting = state.storage.memory().waiting();
    // Clients read what lies beside it.
    if waiting.load(Ordering::Relaxed) != room as u64 {
        waiting.store(room as u64, Ordering::Relaxed);
    }
    state.fetches.are_awaited(parked.count(Why::Fetch) > 0 || state.waits_between());
    if parked.count(Why::Fetch) == 0 {
        let others = state.waiting.count() > 0 || state.waits_between();
        state.fetches.forget(others);
    }
    let [of_store, of_spill] = fetchers;
    let (from_store, from_spill) = (state.fetches.begin(false), state.fetches.begin(true));
    of_store.fetch(state, from_store);
    of_spill.fetch(state, from_spill);
}

/// What these sessions ask, but for what waits already.
fn take(state: &State, rung: Vec<usize>, parked: &Parked) -> Vec<(SessionSlot, Taken)> {
    let mut taken = Vec::new();
    for session in rung {
        let session = SessionSlot(session as u16);
        let kept = |index, sequence| parked.has(session, index, sequence);
        let client = state.sessions.client(session);
        let requests = client.map(|client| client.session.take(kept)).unwrap_or_default();
        taken.extend(requests.into_iter().map(|request| (session, request)));
    }
    taken
}

fn is_finished(state: &State) -> bool {
    let paid = state.backing.is_none() || state.debts.is_settled();
    let idle = !owing::owes(state) && state.waiting.count() == 0;
    // What a member has others may need, though nobody here says so any more.
    let now = state.world.now();
    let wanted = state.members.as_ref().is_some_and(|members| members.heard_lately(now));
    let wanted = wanted && state.orphaned;
    let alone = status::programs(state) == 0 && !state.attended && !wanted;
    state.leaving || (state.finishing && alone && paid && (idle || state.backing.is_none()))
}

fn answer_one(state: &mut State, session: SessionSlot, taken: Taken, parked: &mut Parked) {
    let outcome = handling::handle(state, session, &taken);
    answer(state, session, taken, outcome, parked);
}

fn answer(
    state: &mut State,
    session: SessionSlot,
    taken: Taken,
    outcome: Handled,
    parked: &mut Parked,
) {
    match outcome {
        Handled::Park => parked.0.push((session, taken, Why::Room)),
        Handled::Fetch => parked.0.push((session, taken, Why::Fetch)),
        Handled::Answer(reply) => {
            if let Some(client) = state.sessions.client(session)
                && let Err(error) = client.session.answer(&taken, &reply)
            {
                let reply = terral_format::wire::message::Reply::Failed(error);
                let reply = terral_format::frame::encode(&reply).unwrap_or_default();
                let _ = client.session.answer(&taken, &reply);
            }
        }
    }
}
