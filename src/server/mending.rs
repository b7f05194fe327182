//! What a process that went wild has written over what it shares with the server: found out where
//! it would keep the server from going on, or spoil what goes to the permanent directory, and made
//! good as far as something is known.
//!
//! Invariant: what is mended is said, by the file's name. Not here: what cannot be told from the
//! work of a program that means it; see `docs/decisions/2026-11-22-garbage-in-shared-memory.md`.

use std::sync::atomic::Ordering;

use terral_format::ids::{FileSlot, Ino, Owner};
use terral_format::message::Attributes;
use terral_format::pages;
use terral_store::ram::Move;

use crate::lookup::shown;
use crate::sessions::session_of;
use crate::state::State;

impl State {
    fn say_spoiled(&mut self, slot: FileSlot, what: &str) {
        let ino = Ino(self.ram.memory().record(slot).ino().load(Ordering::SeqCst));
        let path = self.names.path(ino).unwrap_or_default();
        self.warn(format!("{}: a program wrote over {what}", shown(&path)));
        self.say_counts_spoiled();
    }

    /// Who writes over one thing may have written over his counters, too, of which only what cannot
    /// be is known to be wrong, and left out.
    pub(crate) fn say_counts_spoiled(&mut self) {
        self.warn(
            "calls, bytes and times are not to be trusted: a program wrote over memory that it \
             shares with the server"
                .into(),
        );
    }

    /// A file has a size that is possible from now on.
    pub(crate) fn mend_size(&mut self, slot: FileSlot) {
        let memory = self.ram.memory().clone();
        let Some(size) = memory.unsound_size(slot) else { return };
        // Who was writing meanwhile does it again.
        memory.reset_size(slot, size);
        self.say_spoiled(slot, "its size in shared memory; it ends where what is known of it does");
    }

    /// [`State::attributes`] of a file, with a size that is possible.
    pub(crate) fn sound_attributes(&mut self, ino: Ino) -> Option<Attributes> {
        if let Some(slot) = self.names.inode(ino)?.slot {
            self.mend_size(slot);
        }
        self.attributes(ino)
    }

    /// Frees the pages of a chunk that are marked as being written, by whom nothing is known there.
    /// Whether there were any.
    pub(crate) fn mend_pages(&mut self, slot: FileSlot, index: u64) -> bool {
        let memory = self.ram.memory().clone();
        let entry = memory.entry(slot, index).unrecalled();
        if entry.is_absent() {
            return false;
        }
        let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
        let here = self.owners_in(entry);
        if pages::writers(memory.lanes(), first, last).iter().all(|writer| here.contains(writer)) {
            return false;
        }
        // From now on nobody begins to write, and who has begun comes to an end.
        if self.ram.recall(slot, index).is_none() {
            return false;
        }
        let quarantined = self.wait_unpinned(slot, entry);
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
    pub(crate) fn mend_ticket(&mut self, slot: FileSlot) {
        let memory = self.ram.memory().clone();
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
