//! Requests to execute files. Not here: what is refused while a program runs (`naming`).

use terral_format::Result;
use terral_format::ids::{DescriptionSlot, FileSlot, Ino, SessionSlot};
use terral_format::local::tables::access;
use terral_format::wire::message::FileRef;

use crate::core::state::State;
use crate::far::asking;
use crate::files::closing;
use crate::naming::executing;
use crate::requests::ending;

/// A process is about to execute a file, from a copy that it has as this descriptor; a script
/// is only looked at.
///
/// # Errors
/// [`ErrorKind::TextBusy`] if somebody may write into it.
pub fn execute(
    state: &mut State,
    session: SessionSlot,
    file: FileRef,
    copy: Option<u32>,
) -> Result<()> {
    let far = file.slot == FileSlot::FAR;
    let ino = if far { asking::open_there(state, file.ino)? } else { state.open_file(file)?.ino };
    if state.is_written(ino) {
        close_dead_writers(state, ino)?;
        if !far {
            state.storage.settle_stores(file.slot);
        }
    }
    if state.is_written(ino) {
        return Err(executing::busy(state, ino));
    }
    let (Some(copy), Some(client)) = (copy, state.sessions.client(session)) else {
        return Ok(());
    };
    let pid = client.process.pid();
    executing::starts(state, ino, (pid, copy));
    Ok(())
}

/// Who died with a file open has it open no more, although that has not been heard of yet.
pub fn close_dead_writers(state: &mut State, ino: Ino) -> Result<()> {
    let writes = |access: u8| u64::from(access) & access::WRITE != 0;
    let open = state.descriptions.iter().filter(|(_, o)| o.ino == ino && writes(o.access));
    let open: Vec<(DescriptionSlot, SessionSlot)> =
        open.map(|(slot, open)| (slot, open.session)).collect();
    for (_, session) in &open {
        let client = state.sessions.client(*session);
        if client.is_some_and(|client| !client.process.is_alive()) {
            ending::end_session(state, *session)?;
        }
    }
    open.into_iter().try_for_each(|(slot, _)| closing::close_if_unheld(state, slot, false))
}
