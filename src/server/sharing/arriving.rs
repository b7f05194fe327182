//! How chunks of other members' files come to this one with all that is in them, for programs here
//! to map them. Not here: how their homes let them go (`far/offers`), and how they go back
//! (`far/giving_back`).
//!
//! Invariant: all bytes of a chunk are in shared memory before its home is told that they are, and
//! marked, so that nobody uses them, until it has said that the chunk is this machine's alone. So a
//! marked chunk that the home says to be here has the right bytes, whichever process put them
//! there.

use terral_format::ids::{Asker, Number};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_ORDER, FILE_BYTES_MAX};
use terral_format::local::tables::access;
use terral_format::wire::far::{Act, BYTES_MAX, Done};
use terral_format::wire::far_files::Handle;
use terral_format::wire::message::Reply;
use terral_format::{Error, ErrorKind, Result};
use terral_store::sparse::Sparse;

use super::borrowing;
use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::far::asking::{self, Step, ask, is_asked};
use crate::far::giving_back::loan_of;
use crate::far::role::Behind;
use crate::far::{calls, committing};
use crate::storage::{Fit, eviction, granting};

const PARTS: [Step; crate::far::loans::PARTS] = [Step::FirstPart, Step::SecondPart];

/// Has a chunk of a file here, for this machine alone, fit to be mapped.
///
/// # Errors
/// As those of [`calls::write`]; [`ErrorKind::NoSpace`] if memory is full;
/// [`ErrorKind::TextBusy`] if others have it mapped.
pub fn map(
    state: &mut State,
    caller: &Caller,
    of: Handle,
    (index, stores): (u64, bool),
) -> Result<Reply> {
    let file = calls::opened(state, of, access::WRITE)?;
    if index > FILE_BYTES_MAX / CHUNK_BYTES {
        return Err(Error::new(ErrorKind::TooLarge, "offset"));
    }
    if !is_asked(state, file, Step::Offer) {
        committing::settle(state, file)?;
        let entry = entry(state, file, index);
        if !entry.is_absent() && !entry.is_borrowed() {
            return make_fit(state, caller, (file, index), stores);
        }
    }
    let late = || Error::new(ErrorKind::Busy, "it is on its way from another machine");
    let asker = state.members.as_ref().and_then(|members| members.asker()).ok_or_else(late)?;
    if state.far.loans.arrives((file, index), asker).is_none() {
        // For another request.
        return Err(state.fetches.wait());
    }
    match come(state, caller, (file, index), asker)? {
        true => make_fit(state, caller, (file, index), stores),
        false => Ok(Reply::Again),
    }
}

fn entry(state: &State, file: Number, index: u64) -> MapEntry {
    let loan = loan_of(state, file);
    loan.map_or(MapEntry::ABSENT, |loan| state.storage.memory().entry(loan.slot, index))
}

/// Has a chunk come with all that is in it. False: it cannot be had just now.
fn come(
    state: &mut State,
    caller: &Caller,
    (file, index): (Number, u64),
    asker: Asker,
) -> Result<bool> {
    let Some(by) = state.members.as_ref().map(|members| members.me()) else { return Ok(false) };
    let strips = !caller.person.is_root();
    let act = Act::Offer { by, index, strips };
    let (stamp, bytes) = match ask(state, (file, act), Step::Offer, |_| Behind::Nothing)?.0 {
        Done::Lent { size, stamp, .. } => {
            return is_its(state, caller, (file, index), (size, stamp));
        }
        Done::Offered { stamp, bytes, .. } => (stamp, bytes),
        _ => return Ok(false),
    };
    put(state, (file, index), asker, (stamp, bytes))?;
    let act = Act::Accept { by, index, stamp };
    match ask(state, (file, act), Step::Accept, |_| Behind::Nothing)?.0 {
        Done::Lent { size, stamp, .. } => is_its(state, caller, (file, index), (size, stamp)),
        _ => {
            // What has come since, to stay, is not this.
            let is_it = state.far.loans.since(file, index).is_some_and(|since| since == stamp);
            if let Some(loan) = loan_of(state, file).filter(|_| is_it) {
                state.storage.release_chunk(&state.sessions, loan.slot, index);
            }
            Ok(false)
        }
    }
}

/// Has so many bytes of a chunk that was offered put in its place here.
fn put(
    state: &mut State,
    (file, index): (Number, u64),
    asker: Asker,
    (stamp, bytes): (u64, u32),
) -> Result<()> {
    let mut waits = Ok(());
    for (at, step) in (0..bytes).step_by(BYTES_MAX).zip(PARTS) {
        let part = at as usize / BYTES_MAX;
        let arriving = state.far.loans.arrives((file, index), asker);
        if arriving.is_none_or(|arriving| arriving.is_here || arriving.parts[part].is_some()) {
            continue;
        }
        let (from, count) =
            (index * CHUNK_BYTES + u64::from(at), (bytes - at).min(BYTES_MAX as u32));
        let act = Act::Read { at: from, bytes: count, kept: false, direct: false };
        match ask(state, (file, act), step, |_| Behind::Nothing) {
            Ok((_, read)) => {
                let arriving = state.far.loans.arrives((file, index), asker);
                arriving.into_iter().for_each(|it| it.parts[part] = Some(read.clone()));
            }
            // All of them at once.
            Err(error) if state.fetches.is_waiting() => waits = Err(error),
            Err(error) => return Err(error),
        }
    }
    waits?;
    // What has come since, to stay, is not this.
    let is_newer = state.far.loans.since(file, index).is_some_and(|since| since > stamp);
    let Some(arriving) = state.far.loans.arrives((file, index), asker) else { return Ok(()) };
    if arriving.is_here || is_newer {
        return Ok(());
    }
    let mut whole: Vec<u8> = Vec::new();
    for (at, part) in (0..).step_by(BYTES_MAX).zip(arriving.parts.iter().flatten()) {
        whole.resize(at, 0);
        whole.extend_from_slice(part);
    }
    let loan = match loan_of(state, file) {
        Some(loan) => loan,
        None => borrowing::begin(state, file)?,
    };
    let whole = Sparse::from(whole);
    // What has come for another request, and is not accepted.
    state.storage.release_chunk(&state.sessions, loan.slot, index);
    eviction::with_room(state, |state| state.storage.arrives(loan.slot, index, &whole))?;
    // What says that an earlier loan was taken back does not mean this one.
    state.far.loans.has_arrived((file, index), stamp);
    Ok(())
}

/// Its home says that a chunk is this machine's alone. False: it was asked back since.
fn is_its(
    state: &mut State,
    caller: &Caller,
    (file, index): (Number, u64),
    (size, stamp): (u64, u64),
) -> Result<bool> {
    if entry(state, file, index).is_absent() {
        let which = (file, index, 1);
        let lent = borrowing::was_lent(state, caller.session, which, (size, stamp))?;
        return Ok(lent != Reply::Again);
    }
    if state.far.loans.is_void(file, index, stamp) {
        return Ok(false);
    }
    let Some(loan) = loan_of(state, file) else { return Ok(false) };
    borrowing::knows_size(state, loan, size);
    let entry = state.storage.own(loan.slot, index);
    state.storage.unrecall(loan.slot, index, entry);
    state.far.loans.was_lent(file, index, stamp);
    Ok(true)
}

/// A chunk that is here, and this machine's alone, is fit to be mapped.
fn make_fit(
    state: &mut State,
    caller: &Caller,
    (file, index): (Number, u64),
    stores: bool,
) -> Result<Reply> {
    let Some(loan) = loan_of(state, file) else { return Ok(Reply::Again) };
    granting::grant_one(state, caller.session, loan, index, 1 << CHUNK_ORDER)?;
    match state.storage.make_mappable(&state.sessions, (loan.slot, index), stores)? {
        Fit::Done => {}
        Fit::Held { .. } => return Ok(Reply::Again),
    }
    asking::has_open(state, file);
    Ok(Reply::Lent(loan))
}
