//! A server's state as it follows from its log and from what is in shared memory: at the first
//! start, and at every later one. Not here: the files and regions themselves (`instance`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::Result;
use terral_format::disk::Record;
use terral_format::disk::local::Local;
use terral_format::ids::SessionSlot;
use terral_format::local::tables::{MAGIC, Superblock};
use terral_store::existing::Shared;
use terral_transport::region::Region;

use crate::core::state::{Parts, State};
use crate::debts::owing;
use crate::deferred::applying;
use crate::drain::{owed_names, publishing};
use crate::files::closing;
use crate::locks::releasing;
use crate::members::{requiring, stepping};
use crate::naming::{charging, creating, executing, orphans};
use crate::requests::ending;
use crate::sharing::containers;
use crate::storage::updating;

/// A mapped region, as the store wants it.
struct Mapped(Arc<Region>);

impl Shared for Mapped {
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        self.0.words(offset, count)
    }

    fn prepare(&self, offset: usize, bytes: usize) -> Result<()> {
        self.0.prepare(offset, bytes)
    }
}

/// One region, as the store wants it.
pub fn mapped(region: impl Into<Arc<Region>>) -> Box<dyn Shared> {
    Box::new(Mapped(region.into()))
}

/// Tables, headers and page states, as the store wants them.
pub fn shared(mapped: &[Arc<Region>; 3]) -> [Box<dyn Shared>; 3] {
    mapped.each_ref().map(|region| Box::new(Mapped(region.clone())) as Box<dyn Shared>)
}

/// The state that the log's transactions lead to; clients find the instance described then.
///
/// # Errors
/// [`terral_format::ErrorKind::NoSpace`] if memory is full.
pub fn replay(parts: Parts, log: &[Vec<Record>], superblock: &Superblock) -> Result<State> {
    parts.ram.memory().prepare_fixed()?;
    let mut state = State::new(parts);
    for record in log.iter().flatten() {
        state.apply(record);
        state.names.check()?;
    }
    state.names.check()?;
    state.names.replayed(state.hands.inos());
    state.storage.adopt_packed(state.names.inodes());
    superblock.describe(state.began.instance, state.began.geometry);
    superblock.magic.store(MAGIC, Ordering::SeqCst);
    state.starts = superblock.starts.fetch_add(1, Ordering::SeqCst) + 1;
    Ok(state)
}

fn end_dead(state: &mut State, dead: Vec<SessionSlot>) {
    for session in dead {
        if state.sessions.client(session).is_some() {
            // What fails is tried again by and by: a full memory keeps no server from starting.
            let _ = ending::end_session(state, session);
        } else {
            // It was just ending: who has its place next must not take what it wished for his.
            requiring::has_ended(state, session);
            creating::has_ended(state, session);
            let totals = Default::default();
            state.record(Local::SessionEnded { session, totals });
        }
    }
    releasing::reclaim_lock_blocks(state);
}

/// Takes over the pages of clients. Gives those that are dead.
fn adopt_clients(state: &mut State) -> Vec<SessionSlot> {
    let known: Vec<_> =
        state.sessions.known().map(|(at, known)| (at, known.pid, known.started_ticks)).collect();
    let mut dead = Vec::new();
    for (session, pid, ticks) in known {
        let process = state.machine.process(pid, ticks);
        let alive = process.as_ref().is_some_and(|process| process.is_alive());
        let page = state.machine.page(session);
        let adopted = process.zip(page.ok()).map(|(process, page)| {
            state.sessions.attach(session, process, page);
        });
        if adopted.is_none() || !alive {
            dead.push(session);
        }
    }
    dead
}

/// After a replay: takes over chunks and clients as they are in shared memory.
///
/// # Errors
/// If the log or memory cannot be written; nothing is lost then.
pub fn adopt(state: &mut State) -> Result<()> {
    stepping::start(state);
    state.storage.adopt_segments();
    let mut attached: Vec<_> =
        state.names.inodes().filter_map(|inode| Some((inode.ino, inode.slot?))).collect();
    attached.sort_unstable();
    // As long as the flags of a recall keep everybody out.
    updating::take_over(state);
    let mut recalled = Vec::new();
    for (ino, slot) in attached {
        if state.storage.entries(slot).iter().any(|(_, entry)| entry.is_recalled()) {
            recalled.push((ino, slot));
        }
        let backed = state.names.inode(ino).map_or(0, |inode| inode.backed_bytes);
        if state.storage.adopt(slot, ino, backed).is_err() {
            // Removed, and its record given to another file, before the log was cut short.
            state.names.update(ino, |inode| inode.slot = None);
        }
    }
    let dead = adopt_clients(state);
    state.storage.adopted(state.sessions.pins().into_iter().map(|(.., page)| page).collect());
    state.descriptions.replayed(state.hands.descriptions());
    // Of what is asked back nothing is cut: it is its home's.
    recalled.retain(|(ino, slot)| {
        let is = state.names.inode(*ino).is_some_and(|inode| inode.slot == Some(*slot));
        is && !state.far.loans.has(*ino)
    });
    for (_, slot) in recalled {
        state.storage.cut_to_size(&state.sessions, slot)?;
    }
    containers::begin(state);
    applying::close_gate(state)?;
    owing::find_staged(state);
    for ino in state.orphans_left() {
        orphans::remove(state, ino);
    }
    let State { members, names, .. } = state;
    members.iter_mut().for_each(|it| it.forget_lost(|ino| names.inode(ino).is_none()));
    end_dead(state, dead);
    closing::close_unheld(state, None)?;
    charging::recount(state);
    state.commit()?;
    // Where that cannot be found out now, the drain does first.
    publishing::find_published(state);
    owed_names::find_renamed(state);
    owing::find_debts(state);
    executing::find_running(state);
    applying::open_gate(state);
    Ok(())
}
