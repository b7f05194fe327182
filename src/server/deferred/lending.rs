//! Fills the pages of sessions with what they need for changes that wait for nobody: descriptions
//! and inode numbers. A session takes them from there and leaves zeros.

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::Result;
use terral_format::disk::local::Local;
use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};

use crate::core::state::State;

/// Put into an empty page at first; twice as many whenever it was found empty.
const FIRST: usize = 4;

/// New things for a page, once the log has them.
pub struct Refill {
    session: SessionSlot,
    descriptions: Vec<(DescriptionSlot, u32)>,
    inos: Vec<Ino>,
}

/// How many to put into a page, of which `wanted` were to be there.
fn missing<'p>(places: impl Iterator<Item = &'p AtomicU64>, wanted: &mut usize) -> usize {
    let count = |(all, there): (usize, usize), place: &AtomicU64| {
        (all + 1, there + usize::from(place.load(Ordering::SeqCst) != 0))
    };
    let (all, there) = places.fold((0, 0), count);
    *wanted = if there == 0 { (*wanted * 2).clamp(FIRST, all) } else { *wanted };
    wanted.saturating_sub(there)
}

/// Lends a session what it needs next; it finds it after the next commit, with
/// `hand_over`.
pub fn refill(state: &mut State, session: SessionSlot) -> Option<Refill> {
    let client = state.sessions.client_mut(session)?;
    let (mut wanted, page) = (client.wanted, client.session.page());
    let descriptions = missing(page.hand.descriptions.iter(), &mut wanted.0);
    let inos = missing(page.inos(), &mut wanted.1).min(state.names.left() as usize);
    client.wanted = wanted;
    let descriptions = if state.descriptions.has_plenty() { descriptions } else { 0 };
    let memory = state.storage.memory().clone();
    let descriptions: Vec<_> = (0..descriptions)
        .map_while(|_| state.descriptions.reserve(&*state.machine, &memory).ok())
        .collect();
    let descriptions: Vec<_> =
        descriptions.into_iter().map(|slot| (slot, state.new_nonce())).collect();
    let inos: Vec<Ino> = (0..inos).map(|_| state.names.reserve_ino()).collect();
    if descriptions.is_empty() && inos.is_empty() {
        return None;
    }
    let (lent, numbers) = (descriptions.clone(), inos.clone());
    state.record(Local::Lent { session, descriptions: lent, inos: numbers });
    Some(Refill { session, descriptions, inos })
}

/// Puts into a page what the log says is lent.
pub fn hand_over(state: &State, refill: &Refill) {
    let Some(client) = state.sessions.client(refill.session) else { return };
    let page = client.session.page();
    let number =
        |(slot, nonce): &(DescriptionSlot, u32)| u64::from(slot.0) | u64::from(*nonce) << 32;
    put(page.hand.descriptions.iter(), refill.descriptions.iter().map(number));
    put(page.inos(), refill.inos.iter().map(|ino| ino.0));
}

/// Fills the pages of sessions before what they have done is applied, which takes longer than to
/// use up what they have.
pub(crate) fn fill_hands(
    state: &mut State,
    sessions: impl Iterator<Item = SessionSlot>,
) -> Result<()> {
    let mut sessions: Vec<SessionSlot> = sessions.collect();
    sessions.sort_unstable();
    sessions.dedup();
    let refills: Vec<_> = sessions.into_iter().filter_map(|at| refill(state, at)).collect();
    if !refills.is_empty() {
        state.commit()?;
        refills.iter().for_each(|refill| hand_over(state, refill));
    }
    Ok(())
}

/// Into free places; what finds none goes with its session.
fn put<'p>(mut places: impl Iterator<Item = &'p AtomicU64>, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let free = |place: &&AtomicU64| place.compare_exchange(0, number, order.0, order.1).is_ok();
        if places.find(free).is_none() {
            return;
        }
    }
}
