//! Who is just copying into a chunk, and the wait until nobody is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::ids::{FileSlot, Owner, PageNumber, SessionSlot};
use terral_format::local::entry::MapEntry;
use terral_format::local::hazard::{self, HazardWord};

use super::Storage;
use crate::sessions::clients::{Sessions, owner};

/// A slot that holds a chunk longer than this is overtaken.
const OVERTAKE_AFTER: Duration = Duration::from_millis(100);

/// A slot that pins a page: whose, which, its word, and the page.
type Pin = (SessionSlot, usize, HazardWord, PageNumber);

impl Storage {
    /// Waits until nobody copies into a recalled chunk. True: somebody was overtaken, and the chunk
    /// must go to quarantine; the file has a new epoch then, so that the overtaken write cannot
    /// count.
    pub fn wait_unpinned(&self, clients: &Sessions, slot: FileSlot, entry: MapEntry) -> bool {
        while !self.wait_in_place(clients, entry) {
            let mut quarantined = false;
            for (session, at, word, _) in Self::pins_in(clients, entry) {
                let Some(client) = clients.client(session) else { continue };
                let hazard_slot = &client.session.page().hazards[at].word;
                quarantined |= word.is_overtaken() || hazard::overtake(hazard_slot, word);
            }
            if quarantined {
                self.memory().bump_size(slot);
                return true;
            }
        }
        false
    }

    /// Waits until nobody copies into a recalled chunk, not for long. False: somebody still does.
    pub fn wait_in_place(&self, clients: &Sessions, entry: MapEntry) -> bool {
        let begin = self.world.now();
        while !Self::pins_in(clients, entry).is_empty() {
            if self.world.now().since(begin) > OVERTAKE_AFTER {
                return false;
            }
            self.world.give_way();
        }
        true
    }

    /// Who has entered a chunk to write there.
    pub fn owners_in(&self, clients: &Sessions, entry: MapEntry) -> Vec<Owner> {
        Self::pins_in(clients, entry)
            .into_iter()
            .map(|(session, at, ..)| owner(session, at))
            .collect()
    }

    /// Whether somebody has entered a chunk of a file, or is about to append to it.
    pub fn is_entered(&self, clients: &Sessions, slot: FileSlot) -> bool {
        let entries = self.entries(slot).into_iter().filter(|(_, entry)| entry.is_here());
        let entered = |(_, entry)| !Self::pins_in(clients, entry).is_empty();
        self.memory().header(slot).ticket().load(Ordering::SeqCst) != 0
            || entries.into_iter().any(entered)
    }

    fn pins_in(clients: &Sessions, entry: MapEntry) -> Vec<Pin> {
        let pages = entry.page().0..entry.page().0 + entry.pages();
        clients.pins().into_iter().filter(|(.., page)| pages.contains(&page.0)).collect()
    }
}
