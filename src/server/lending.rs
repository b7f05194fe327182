//! Fills the pages of sessions with what they need for changes that wait for nobody: descriptions
//! and inode numbers. A session takes them from there and leaves zeros.

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::record::local::Local;

use crate::state::State;

/// Put into an empty page at first; twice as many whenever it was found empty.
const FIRST: usize = 4;

/// New things for a page, once the log has them.
pub struct Refill {
    session: SessionSlot,
    descriptions: Vec<(DescriptionSlot, u32)>,
    inos: Vec<Ino>,
}

/// How many to put into a page, of which `wanted` were to be there.
fn missing(places: &[AtomicU64], wanted: &mut usize) -> usize {
    let there = places.iter().filter(|place| place.load(Ordering::SeqCst) != 0).count();
    *wanted = if there == 0 { (*wanted * 2).clamp(FIRST, places.len()) } else { *wanted };
    wanted.saturating_sub(there)
}

impl State {
    /// Lends a session what it needs next; it finds it after the next commit, with
    /// [`State::hand_over`].
    pub(crate) fn refill(&mut self, session: SessionSlot) -> Option<Refill> {
        let client = self.sessions.client_mut(session)?;
        let hand = &client.session.page().hand;
        let (mut wanted, found) = (client.wanted, hand);
        let (descriptions, inos) =
            (missing(&found.descriptions, &mut wanted.0), missing(&found.inos, &mut wanted.1));
        client.wanted = wanted;
        let descriptions = if self.descriptions.has_plenty() { descriptions } else { 0 };
        let memory = self.storage.memory().clone();
        let descriptions: Vec<_> = (0..descriptions)
            .map_while(|_| self.descriptions.reserve(&*self.machine, &memory).ok())
            .collect();
        let descriptions: Vec<_> =
            descriptions.into_iter().map(|slot| (slot, self.new_nonce())).collect();
        let inos: Vec<Ino> = (0..inos).map(|_| self.names.reserve_ino()).collect();
        if descriptions.is_empty() && inos.is_empty() {
            return None;
        }
        let (lent, numbers) = (descriptions.clone(), inos.clone());
        self.record(Local::Lent { session, descriptions: lent, inos: numbers });
        Some(Refill { session, descriptions, inos })
    }

    /// Puts into a page what the log says is lent.
    pub(crate) fn hand_over(&self, refill: &Refill) {
        let Some(client) = self.sessions.client(refill.session) else { return };
        let hand = &client.session.page().hand;
        let number =
            |(slot, nonce): &(DescriptionSlot, u32)| u64::from(slot.0) | u64::from(*nonce) << 32;
        put(&hand.descriptions, refill.descriptions.iter().map(number));
        put(&hand.inos, refill.inos.iter().map(|ino| ino.0));
    }
}

/// Into free places; what finds none goes with its session.
fn put(places: &[AtomicU64], numbers: impl Iterator<Item = u64>) {
    let mut places = places.iter();
    for number in numbers {
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let free = |place: &&AtomicU64| place.compare_exchange(0, number, order.0, order.1).is_ok();
        if places.find(free).is_none() {
            return;
        }
    }
}
