//! Maps of chunks, step by step as clients make them (docs/decisions/2026-11-21-memory-maps.md): a
//! lock on the chunk, which the machine keeps as long as the map, between two looks at its entry.
//! Not here: which, and what is stored there (`schedule/mapping`).

use std::sync::atomic::Ordering;

use terral_format::ids::PageNumber;
use terral_format::local::entry::MapEntry;
use terral_format::wire::message::{FileRef, Request};
use terral_format::{Error, ErrorKind, Result};

use super::Sim;

/// As often as that nothing is made fit to be mapped and taken back.
const ATTEMPTS_MAX: u32 = 200;

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Look,
    Lock,
    Check,
}

/// A map on its way.
#[derive(Debug)]
pub struct Mapping {
    client: usize,
    pub file: FileRef,
    pub index: u64,
    pub stores: bool,
    next: Next,
    entry: MapEntry,
    lock: Option<u64>,
    attempts: u32,
}

/// A chunk in a client's address space.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    pub file: FileRef,
    pub index: u64,
    pub stores: bool,
    entry: MapEntry,
    lock: u64,
}

impl Mapping {
    pub fn new(client: usize, file: FileRef, index: u64, stores: bool) -> Self {
        let (next, entry, lock) = (Next::Look, MapEntry::ABSENT, None);
        Mapping { client, file, index, stores, next, entry, lock, attempts: 0 }
    }
}

impl Sim {
    /// The next step of it; gives the map once it is there. If it fails, it is over.
    pub fn go_on_mapping(&mut self, mapping: &mut Mapping) -> Result<Option<Mapped>> {
        let Mapping { file, index, stores, .. } = *mapping;
        // Its record may be another file's by now, if it was closed meanwhile.
        if !self.is_its_record(file) {
            if let Some(lock) = mapping.lock.take() {
                self.machine.unmap(lock);
            }
            return Err(Error::new(ErrorKind::BadHandle, "closed meanwhile"));
        }
        let entry = self.memory.entry(file.slot, index);
        mapping.next = match mapping.next {
            Next::Look => {
                mapping.entry = entry;
                let fit = entry.is_mappable() && (entry.is_stored() || !stores);
                if entry.is_here() && fit && !entry.is_recalled() {
                    Next::Lock
                } else {
                    mapping.attempts += 1;
                    assert!(mapping.attempts < ATTEMPTS_MAX, "made fit and taken back for ever");
                    let asked = Request::Map { file, first: index, count: 1, stores };
                    self.ask(mapping.client, asked)?;
                    Next::Look
                }
            }
            Next::Lock => {
                let pid = self.clients[mapping.client].pid;
                mapping.lock = Some(self.machine.map(pid, mapping.entry.page(), stores));
                Next::Check
            }
            Next::Check => {
                let lock = mapping.lock.take().expect("locked");
                if entry == mapping.entry {
                    return Ok(Some(Mapped { file, index, stores, entry, lock }));
                }
                self.machine.unmap(lock);
                Next::Look
            }
        };
        Ok(None)
    }

    pub fn unmap(&self, mapped: &Mapped) {
        self.machine.unmap(mapped.lock);
    }

    /// Whether a map shows what its file has there. `None`: the file is no more.
    pub fn is_shown(&self, mapped: &Mapped) -> Option<bool> {
        let Mapped { file, index, entry, .. } = *mapped;
        let now = || self.memory.entry(file.slot, index);
        self.is_its_record(file).then(|| now().is_chunk_of(entry))
    }

    fn is_its_record(&self, file: FileRef) -> bool {
        self.memory.record(file.slot).ino().load(Ordering::SeqCst) == file.ino.0
    }

    /// What a program stores at the start of a page of the chunk.
    pub fn store(&self, mapped: &Mapped, page: u32, bytes: &[u8]) {
        let page = PageNumber(mapped.entry.page().0 + page);
        self.memory.write(page, 0, bytes).expect("it exists");
    }

    /// What it loads from there.
    pub fn load(&self, mapped: &Mapped, page: u32, into: &mut [u8]) {
        let page = PageNumber(mapped.entry.page().0 + page);
        self.memory.read(page, 0, into).expect("it exists");
    }
}
