//! What a process that went wild has written over what it shares with the server: found out where
//! it would keep the server from going on, or spoil what goes to the permanent directory, and made
//! good as far as something is known.
//!
//! Invariant: what is mended is said, by the file's name. Not here: what cannot be told from the
//! work of a program that means it; see `docs/decisions/2026-11-22-garbage-in-shared-memory.md`.

use std::sync::atomic::Ordering;

use terral_format::ids::{FileSlot, Ino, Owner};
use terral_format::local::pages;
use terral_store::ram::Move;

use super::Storage;
use crate::sessions::clients::{Sessions, session_of};

impl Storage {
    fn say_spoiled(&mut self, slot: FileSlot, what: &'static str) {
        let ino = Ino(self.memory().record(slot).ino().load(Ordering::SeqCst));
        self.spoiled.push((ino, what));
    }

    /// Files of which something was found to be written over since the last call, and what.
    pub fn spoiled(&mut self) -> Vec<(Ino, &'static str)> {
        std::mem::take(&mut self.spoiled)
    }

    /// A file has a size that is possible from now on.
    pub fn mend_size(&mut self, slot: FileSlot) {
        let memory = self.memory().clone();
        let Some(size) = memory.unsound_size(slot) else { return };
        // Who was writing meanwhile does it again.
        memory.reset_size(slot, size);
        self.say_spoiled(slot, "its size in shared memory; it ends where what is known of it does");
    }

    /// Frees the pages of a chunk that are marked as being written, by whom nothing is known there.
    /// Whether there were any.
    pub fn mend_pages(&mut self, clients: &Sessions, slot: FileSlot, index: u64) -> bool {
        let memory = self.memory().clone();
        let entry = memory.entry(slot, index).unrecalled();
        if !entry.is_here() {
            return false;
        }
        let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
        let here = self.owners_in(clients, entry);
        if pages::writers(memory.lanes(), first, last).iter().all(|writer| here.contains(writer)) {
            return false;
        }
        // From now on nobody begins to write, and who has begun comes to an end.
        if self.ram.recall(slot, index).is_none() {
            return false;
        }
        let quarantined = self.wait_unpinned(clients, slot, entry);
        let left = pages::writers(memory.lanes(), first, last);
        if quarantined && !self.is_mapped(entry) {
            let how = Move { order: entry.order(), quarantined, at_rest: false };
            if self.ram.relocate(slot, index, entry, how).is_ok() {
                // Somebody is stopped in the middle of it: that it is his work is believed.
                return false;
            }
        }
        if !quarantined {
            left.iter().for_each(|writer| self.abandon(first, last, *writer));
        }
        self.ram.unrecall(slot, index, entry);
        let spoiled = !quarantined && !left.is_empty();
        if spoiled {
            let what = "marks of its pages in shared memory; what they hid is zeros";
            self.say_spoiled(slot, what);
        }
        spoiled
    }

    /// An append ticket that no client can have is taken away.
    pub fn mend_ticket(&mut self, slot: FileSlot) {
        let memory = self.memory().clone();
        let header = memory.header(slot);
        let found = header.ticket().load(Ordering::SeqCst);
        let owner = u16::try_from(found).ok().map(Owner);
        if found != 0 && owner.and_then(session_of).is_none() {
            memory.bump_size(slot);
            let order = Ordering::SeqCst;
            let _ = header.ticket().compare_exchange(found, 0, order, order);
            self.say_spoiled(slot, "the ticket of its appends in shared memory");
        }
    }
}
