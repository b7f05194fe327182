//! Files that clients have open: opened, truncated, changed and closed, and what becomes of them
//! when their client dies.

use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::wire::message::{FileRef, Request, Target};

use super::super::client::Opened;
use super::super::deferring::Wish;
use super::super::model::File;
use super::{BOTH, Disk, OPEN_MAX, Player, READ, Schedule};

impl Schedule {
    pub(super) fn open(&mut self, at: usize) {
        if self.players[at].open.len() >= OPEN_MAX {
            return self.close(at);
        }
        let path = self.file_path();
        let wish = match self.chance(4) {
            0 => Wish::Open(path, READ),
            1 => Wish::Open(path, BOTH),
            _ => Wish::Create(path),
        };
        self.wish(at, wish, None);
    }

    /// Something that a client has open.
    pub(super) fn handle(&self, at: usize) -> Option<(usize, FileRef, File, bool)> {
        let Player { client, open, .. } = &self.players[at];
        let which = self.chance(open.len().max(1) as u64) as usize;
        let handle = open.get(which)?;
        Some((*client, handle.opened.file, handle.file.clone(), handle.writes))
    }

    pub(super) fn page(&self) -> u64 {
        let pages = CHUNK_BYTES / PAGE_BYTES as u64;
        if self.weather.disk != Disk::None && self.chance(4) != 0 {
            // At the start of a chunk: less is to be copied.
            return self.chance(12) * pages + self.chance(8);
        }
        if self.weather.cramped && self.chance(4) != 0 {
            // At the end of a chunk, which is whole then.
            return (1 + self.chance(12)) * pages - 1 - self.chance(8);
        }
        let chunk = self.chance(3) * pages;
        if self.chance(2) == 0 { self.chance(6) } else { chunk + self.chance(8) * 60 }
    }

    pub(super) fn truncate(&mut self, at: usize) {
        let Some((_, opened, file, true)) = self.handle(at) else { return };
        let size = if self.chance(2) == 0 { 0 } else { self.page() * PAGE_BYTES as u64 };
        let target = Target::File(opened);
        if self.check(at, Request::Truncate { target, size, token: 0 }, |_| true) {
            file.borrow_mut().cut(size);
        }
    }

    pub(super) fn set_mode(&mut self, at: usize) {
        let Some((client, file, content, _)) = self.handle(at) else { return };
        let mode = 0o600 | self.chance(0o200) as u32;
        match self.sim.rouse(client, file) {
            Ok(file) => self.wish(at, Wish::SetMode(file, mode), Some(content)),
            Err(error) => assert!(self.excuses(&error), "{error:?}"),
        }
    }

    pub(super) fn close(&mut self, at: usize) {
        let Some(handle) = self.players[at].open.pop() else { return };
        if self.is_copying(at, handle.opened.file) {
            // Another thread is just using it.
            self.players[at].open.push(handle);
            return;
        }
        self.unlock_own(at, &handle.opened, &handle.file);
        let Opened { description, nonce, .. } = handle.opened;
        if self.sim.recall(self.players[at].client, &handle.opened) {
            self.unlock_closed(description, nonce);
        } else {
            self.wish(at, Wish::Close(handle.opened), None);
        }
    }

    /// A client dies, with all that it was in the middle of, and another comes.
    pub(super) fn replace(&mut self, at: usize) {
        self.sim.end(self.players[at].client);
        self.unlock_ended(self.players[at].client);
        self.players[at] = self.player();
    }
}
