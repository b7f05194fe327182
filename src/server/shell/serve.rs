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
use terral_transport::region::Region;
use terral_transport::requests::{self, Taken};
use terral_transport::socket::Listener;

use crate::core::state::State;
use crate::core::workers::Trade;
use crate::debts::owing;
use crate::deferred::applying;
use crate::far::desk::Relay;
use crate::requests::{status, tending};
use crate::shared::Shared;
use crate::sharing::{containers, departing, everywhere};
use crate::shell::door::Door;
use crate::shell::fetchers::Fetchers;
use crate::shell::instance::{self, Instance};
use crate::shell::keeping::Keeper;
use crate::shell::options::Options;
use crate::shell::parking::{self, Parked, Parking, Why};
use crate::shell::ready::{self, Ready};
use crate::shell::watcher::{LAUNCHER, LISTENER, STOP, Watcher};
use crate::shell::way::Way;
use crate::shell::{draining, listed, part, removal, spillers, workers};

/// How it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The last word.
    pub status: Status,
    /// Why what was staged in the permanent directory, or the instance, could not all be removed,
    /// if so.
    pub left: Option<Error>,
    /// Why it is no member of the partition that it was invited to, if so: it has served nobody.
    pub refused: Option<String>,
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
        if part::is_new(&state) {
            let _ = removal::end(&options.instance);
        }
    })?;
    let (backing, is_member) = (state.backing.clone(), state.members.is_some());
    let shared = begun(state, headers, options)?;
    let parking = Parking::new(ready);
    let way = Way::open_if(is_member, (&shared, &parking), options.listen, relay)?;
    let superblock: &Superblock = tables.view(0);
    // Before anybody can come.
    superblock.server_pid.store(u64::from(std::process::id()), Ordering::SeqCst);
    let listener = Listener::bind(&options.instance.join("socket"))?;
    instance::lend(&options.instance)?;
    let watch = WaitSet::new()?;
    let door = Door::open(&shared, &watch, &options.instance, listener, LISTENER)?
        .with_listing(options.principals.clone());
    let (stopped, stop) = std::io::pipe().map_err(|e| Error::system(&e, "pipe"))?;
    watch.add(stopped.as_fd(), STOP)?;
    let launcher = options.launcher.and_then(|pid| Process::open(pid).ok());
    if let Some(launcher) = &launcher {
        watch.add(launcher.as_fd(), LAUNCHER)?;
    }
    watch_clients(&shared, &watch)?;
    let keeper = options.pool.clone().map(Keeper::new);
    let keeper = std::thread::scope(|threads| {
        let by = &shared;
        let keeper = keeper.map(|keeper| threads.spawn(move || keeper.run(by)));
        if let Some(backing) = &backing {
            threads.spawn(move || draining::drain(by, backing.as_ref()));
        }
        if let Some(way) = &way {
            threads.spawn(move || way.run());
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
        answer_requests(shared, (&parking, way.as_ref()), &fetchers);
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
        shared.rouse(Trade::Keeping);
        drop(stop);
        keeper.and_then(|keeper| keeper.join().ok())
    });
    superblock.server_pid.store(0, Ordering::SeqCst);
    leave(&shared, options, keeper)
}

/// Clients that were there before: their ends are noticed.
fn watch_clients(shared: &Shared, watch: &WaitSet) -> Result<()> {
    for (session, client) in shared.lock().sessions.clients() {
        if let Some(process) = client.process.descriptor() {
            watch.add(process, session.0.into())?;
        }
    }
    Ok(())
}

/// What its threads share, before others hear of it.
fn begun(mut state: State, headers: Arc<Region>, options: &Options) -> Result<Shared> {
    state.attended = options.launcher.is_some();
    if let Some(listing) = &options.principals {
        // What cannot be read is said to whoever logs in, as it is read then, too.
        if let Ok(list) = listed::read(&listing.principals) {
            containers::group(&mut state, list.groups())?;
        }
    }
    // What other members want may have to wait, and would be refused.
    state.fetches.are_served(true);
    Ok(Shared::new(state, headers))
}

/// The last steps: an instance that owes nothing and that nobody uses is removed.
fn leave(shared: &Shared, options: &Options, keeper: Option<Keeper>) -> Result<Outcome> {
    let mut state = shared.lock();
    // Clients that are still there defer nothing any more.
    applying::close_gate(&mut state)?;
    owing::find_changes(&mut state);
    let (status, mut left) = (status::status(&mut state), None);
    let owes = owing::owes(&state) || state.waiting.count() > 0;
    // Others wait for what it has of them: it is to be told to leave once more.
    let unheard = departing::departs(&state) && !departing::is_over(&state);
    let owes = unheard || state.backing.is_some() && owes;
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
    let refused = state.refused.take();
    drop(state);
    keeper.into_iter().for_each(|keeper| keeper.close(!owes));
    Ok(Outcome { status, left, refused })
}

// Requests.

fn answer_requests(
    shared: &Shared,
    (parking, way): (&Parking<'_>, Option<&Way<'_>>),
    fetchers: &[Fetchers<'_, '_>; 2],
) {
    process::be_prompt();
    {
        // What a server that died left in the slots.
        let mut state = shared.lock();
        let clients = state.sessions.clients();
        let left = clients.flat_map(|(at, client)| {
            client.session.take(|_, _| false).into_iter().map(move |request| (at, request))
        });
        let left: Vec<(SessionSlot, Taken)> = left.collect();
        // Clients go on since the gate is open: who asks has deferred before what he says.
        applying::apply_rung(&mut state);
        let mut parked = parking.parked();
        for (session, request) in left {
            parked.answer(&mut state, session, request);
        }
        wait_for(&mut state, &parked, fetchers);
    }
    let bell = shared.bell();
    let mut waiter = requests::Waiter::default();
    let (mut busy, mut waits) = (true, false);
    loop {
        waiter.wait(bell, busy);
        busy = false;
        // Requests first, and then what was deferred: who asks has deferred before what he says.
        let rung = requests::rung(bell);
        if waits {
            shared.give_way_to_links();
        }
        let mut state = shared.lock_for_requests();
        let mut parked = parking.parked();
        let taken = take(&state, rung, &parked);
        if requests::rung_deferred(bell) {
            busy = true;
            if applying::apply_rung(&mut state) {
                requests::ring_deferred(bell, true);
            }
        }
        tending::try_what_was_fetched(&mut state);
        parked.go_on(&mut state, true);
        for (session, request) in taken {
            busy = true;
            parked.answer(&mut state, session, request);
        }
        wait_for(&mut state, &parked, fetchers);
        let finished = is_finished(&state);
        waits = parked.count(Why::Fetch) > 0;
        drop(parked);
        let says = state.members.as_ref().is_some_and(|members| members.has_frames());
        let speaks = state.far.has_work() || state.locks.has_left();
        let oversleep = parking.oversleep(&state);
        drop(state);
        if speaks || says {
            way.into_iter().for_each(Way::say);
        }
        if finished {
            return;
        }
        parking::rouse(shared, oversleep);
    }
}

/// Sees to it that what is parked need not wait for ever.
fn wait_for(state: &mut State, parked: &Parked, fetchers: &[Fetchers<'_, '_>; 2]) {
    parked.is_known(state);
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
    if state.leaving || !state.finishing {
        return state.leaving;
    }
    let paid = state.backing.is_none() || state.debts.is_settled();
    let idle = !owing::owes(state) && state.waiting.count() == 0;
    // What a member has others may need, though nobody here says so any more.
    let now = state.world.now();
    let wanted = state.members.as_ref().is_some_and(|members| members.heard_lately(now));
    let wanted = wanted && state.orphaned;
    // Who leaves the servers of a pool's users leaves also who started it, who goes on.
    let leaves = state.is_among_users() && departing::departs(state);
    let attended = state.attended && !leaves;
    let alone = everywhere::programs(state) == 0 && !attended && !wanted;
    let goes = !departing::departs(state) || departing::is_over(state);
    let goes = goes && !departing::must_hand_over(state);
    alone && paid && goes && (idle || state.backing.is_none())
}
