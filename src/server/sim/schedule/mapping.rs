//! Files that programs have mapped: what they store there is the file's, and what others write is
//! seen there, whoever dies, as long as the file is. A chunk whose file is no more is nobody else's
//! as long as somebody has it mapped, whatever he does there.

use terral_format::ErrorKind;
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_PAGES, PAGE_BYTES};

use super::super::mapping::{Mapped, Mapping};
use super::super::model::{File, PIECE};
use super::{Handle, Schedule};

/// Most maps of one client.
const MAPS_MAX: usize = 4;
/// Pages of a chunk that are stored to.
const PAGES: u64 = 8;

/// What a program has mapped, or is about to.
#[derive(Default)]
pub(super) struct Maps {
    all: Vec<(Mapped, File)>,
    /// What its other threads were stopped in the middle of.
    stopped: Vec<(Mapping, File)>,
}

impl Schedule {
    /// One of these.
    pub(super) fn use_maps(&mut self, at: usize) {
        match self.chance(10) {
            0 | 1 => self.map(at),
            2 => self.go_on_mapping(at),
            3 => self.unmap(at),
            4..=7 => self.store(at),
            _ => self.load(at),
        }
    }

    fn map(&mut self, at: usize) {
        let Some((client, opened, file, writes)) = self.handle(at) else { return };
        if self.players[at].maps.all.len() >= MAPS_MAX {
            return self.unmap(at);
        }
        let opened = match self.sim.rouse(client, opened) {
            Ok(opened) => opened,
            Err(error) => return assert!(self.excuses(&error), "{error:?}"),
        };
        let index = self.chance(3);
        let stores = writes && self.chance(4) != 0;
        self.advance(at, Mapping::new(client, opened, index, stores), file);
    }

    fn go_on_mapping(&mut self, at: usize) {
        if let Some((mapping, file)) = self.players[at].maps.stopped.pop() {
            self.advance(at, mapping, file);
        }
    }

    fn advance(&mut self, at: usize, mut mapping: Mapping, file: File) {
        loop {
            match self.sim.go_on_mapping(&mut mapping) {
                Ok(Some(mapped)) => {
                    self.tell(|| format!("{at}: has {mapped:?}"));
                    return self.players[at].maps.all.push((mapped, file));
                }
                Ok(None) => {}
                Err(error) => {
                    let full = error.kind == ErrorKind::NoSpace && self.weather.cramped;
                    let held = error.kind == ErrorKind::WouldBlock && self.weather.freezes;
                    // Closed meanwhile, by another thread.
                    let is_open = |handle: &Handle| {
                        handle.opened.file == mapping.file && (handle.writes || !mapping.stores)
                    };
                    let closed = error.kind == ErrorKind::BadHandle
                        && !self.players[at].open.iter().any(is_open);
                    let may = full || held || closed || self.excuses(&error);
                    return assert!(may, "{at}: {mapping:?}: {error:?}");
                }
            }
            match self.chance(20) {
                0 | 1 => return self.players[at].maps.stopped.push((mapping, file)),
                2 if self.weather.kills => return self.replace(at),
                _ => {}
            }
        }
    }

    fn some_map(&self, at: usize) -> Option<(usize, Mapped, File)> {
        let all = &self.players[at].maps.all;
        let which = self.chance(all.len().max(1) as u64) as usize;
        all.get(which).map(|(mapped, file)| (which, *mapped, file.clone()))
    }

    fn unmap(&mut self, at: usize) {
        let Some((which, mapped, _)) = self.some_map(at) else { return };
        self.tell(|| format!("{at}: unmaps {mapped:?}"));
        self.players[at].maps.all.swap_remove(which);
        self.sim.unmap(&mapped);
    }

    /// Which page of the file, if that is a whole one, and nobody is in the middle of writing it.
    fn page_of(&self, mapped: &Mapped, file: &File, page: u64) -> Option<u64> {
        let page = mapped.index * u64::from(CHUNK_PAGES) + page;
        let content = file.borrow();
        let whole = (page + 1) * PAGE_BYTES as u64 <= content.size;
        (whole && !content.is_being_written(page)).then_some(page)
    }

    /// Whether the map shows the file. It must, unless somebody was stopped in the chunk.
    fn shows(&self, mapped: &Mapped) -> Option<bool> {
        let shows = self.sim.is_shown(mapped)?;
        assert!(shows || self.weather.freezes, "{mapped:?} has another place now");
        Some(shows)
    }

    fn store(&mut self, at: usize) {
        let Some((_, mapped, file)) = self.some_map(at).filter(|(_, mapped, _)| mapped.stores)
        else {
            return;
        };
        let (within, piece) = (self.chance(PAGES), self.piece());
        let page = self.page_of(&mapped, &file, within);
        match (self.shows(&mapped), page) {
            (Some(true), Some(page)) => {
                self.tell(|| format!("{at}: stores {piece:?} to page {page} of {mapped:?}"));
                self.sim.store(&mapped, within as u32, &piece);
                file.borrow_mut().pieces.insert(page, piece);
            }
            // Nobody must ever see this.
            (None | Some(false), _) => self.sim.store(&mapped, within as u32, &piece),
            _ => {}
        }
    }

    fn load(&mut self, at: usize) {
        let Some((_, mapped, file)) = self.some_map(at) else { return };
        let within = self.chance(PAGES);
        let Some(page) = self.page_of(&mapped, &file, within) else { return };
        if self.shows(&mapped) != Some(true) {
            return;
        }
        let mut found = [0; PIECE];
        self.sim.load(&mapped, within as u32, &mut found);
        let content = file.borrow();
        assert!(content.may_show(page, &found), "page {page} of {mapped:?}: {found:?} {content:?}");
        assert!(content.size > mapped.index * CHUNK_BYTES);
    }
}
