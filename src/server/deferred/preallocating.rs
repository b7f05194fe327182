//! Files in hand: those that a session can create without waiting.

use terral_format::Result;
use terral_format::disk::local::Local;
use terral_format::ids::SessionSlot;
use terral_format::local::tables::access;
use terral_format::wire::message::{FileRef, OpenFile, Reply};
use terral_store::ram::Start;

use crate::core::state::State;
use crate::deferred::lending;
use crate::files::opening;
use crate::storage::granting;

/// Most files in hand of one session.
const PREALLOCATED_MAX: u32 = 256;

/// Gives a session files that it can create without waiting, and the right to defer.
pub fn preallocate(
    state: &mut State,
    session: SessionSlot,
    count: u32,
    kernel: bool,
) -> Result<Reply> {
    state.log.reserve()?;
    state.names.reserve()?;
    if !state.sessions.may_defer(session) {
        state.record(Local::Defers { session });
    }
    if let Some(refill) = lending::refill(state, session) {
        state.commit()?;
        lending::hand_over(state, &refill);
    }
    let one = |_| preallocate_one(state, session, kernel).ok();
    Ok(Reply::Preallocated((0..count.min(PREALLOCATED_MAX)).map_while(one).collect()))
}

/// Gives a session a file for what it will have sent to other machines.
///
/// # Errors
/// If the tables or the log are full.
pub fn bounce(state: &mut State, session: SessionSlot) -> Result<Reply> {
    state.log.reserve()?;
    preallocate_one(state, session, false).map(|one| Reply::Preallocated(vec![one]))
}

/// A file that nobody has open, for what is other members'.
///
/// # Errors
/// As those of [`bounce`].
pub fn nameless(state: &mut State) -> Result<FileRef> {
    state.log.reserve()?;
    state.names.reserve()?;
    let ino = state.names.next_ino();
    let slot = state.storage.attach(ino, Start::default())?;
    state.record(Local::Preallocated { ino, slot });
    Ok(FileRef { ino, slot })
}

fn preallocate_one(state: &mut State, session: SessionSlot, kernel: bool) -> Result<OpenFile> {
    state.names.reserve()?;
    let (ino, now) = (state.names.next_ino(), state.storage.time_ns());
    let memory = state.storage.memory();
    let description = state.descriptions.reserve(&*state.machine, memory)?;
    let start = Start { modified_ns: now, accessed_ns: now, ..Start::default() };
    let slot = match state.storage.attach(ino, start) {
        Ok(slot) => slot,
        Err(error) => {
            state.descriptions.unreserve(description);
            return Err(error);
        }
    };
    let (nonce, file) = (state.new_nonce(), FileRef { ino, slot });
    let kernel = if kernel { access::KERNEL } else { 0 };
    let access = (access::READ | access::WRITE | kernel) as u8;
    opening::write_description(state, description, nonce, file, access);
    state.record(Local::Preallocated { ino, slot });
    state.record(Local::Opened { description, nonce, ino, access, session });
    if state.sessions.client(session).is_some_and(|client| client.writes_small) {
        // Without it, the first write asks.
        let _ = granting::install_small(state, session, file);
    }
    Ok(OpenFile { file, description, nonce })
}
