//! Open-file descriptions: which exist, and when one ends.
//!
//! A description held by kernel descriptors ends when no descriptor is left: one that nobody else
//! could have when its opener closes it or ends; one that was shared (`tables::SHARED`) when the
//! kernel says so, through a lock that its descriptors hold then (see
//! `terral_transport::descriptor`). Any other ends with its session.

use rustc_hash::FxHashSet;
use terral_format::disk::local::Local;
use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::local::geometry::DESCRIPTIONS_PER_DIRECTORY;
use terral_format::local::tables::access;
use terral_format::{Error, ErrorKind, Result};
use terral_store::memory::Memory;

use crate::core::invariant::holds;
use crate::core::machine::Machine;

/// One description.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// What its descriptors carry.
    pub nonce: u32,
    /// Of what.
    pub ino: Ino,
    /// Bits of `tables::access`.
    pub access: u8,
    /// Who opened it.
    pub session: SessionSlot,
}

/// All descriptions of one server.
pub struct Descriptions {
    /// By number.
    open: Vec<Option<Open>>,
    count: u64,
    free: Vec<u32>,
    next: u32,
    limit: u32,
}

impl Descriptions {
    /// None yet, at most `limit`. Description 0 is never used.
    pub fn new(limit: u32) -> Self {
        Descriptions { open: Vec::new(), count: 0, free: Vec::new(), next: 1, limit }
    }

    /// Whether there are plenty to lend.
    pub fn has_plenty(&self) -> bool {
        self.free.len() as u32 + (self.limit - self.next.min(self.limit)) > self.limit / 2
    }

    /// A number for a new description; it can be held, and its place in `memory` exists.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if the table is full, [`ErrorKind::NoSpace`] if memory is.
    pub fn reserve(&mut self, machine: &dyn Machine, memory: &Memory) -> Result<DescriptionSlot> {
        if let Some(slot) = self.free.pop() {
            return Ok(DescriptionSlot(slot));
        }
        if self.next >= self.limit {
            return Err(Error::new(ErrorKind::TooMany, format!("{} open files", self.limit)));
        }
        let slot = DescriptionSlot(self.next);
        if self.next == 1 || self.next.is_multiple_of(DESCRIPTIONS_PER_DIRECTORY) {
            machine.make_holdable(slot)?;
        }
        memory.prepare_description(slot)?;
        self.next += 1;
        Ok(slot)
    }

    /// The number is not needed after all.
    pub fn unreserve(&mut self, slot: DescriptionSlot) {
        holds("what was not used is not open", || self.get(slot).is_none());
        self.free.push(slot.0);
    }

    /// A record says that a session has it in hand.
    pub fn lent(&mut self, slot: DescriptionSlot) {
        self.next = self.next.max(slot.0 + 1);
    }

    /// A record says it was opened.
    pub fn opened(&mut self, slot: DescriptionSlot, open: Open) {
        self.next = self.next.max(slot.0 + 1);
        if self.open.len() <= slot.0 as usize {
            self.open.resize(slot.0 as usize + 1, None);
        }
        let before = self.open[slot.0 as usize].replace(open);
        holds("a description begins in a free place", || before.is_none());
        self.count += u64::from(before.is_none());
    }

    /// A record says it ended.
    pub fn closed(&mut self, slot: DescriptionSlot) -> Option<Open> {
        let open = self.open.get_mut(slot.0 as usize)?.take()?;
        self.count -= 1;
        self.free.push(slot.0);
        Some(open)
    }

    /// After a restart: the numbers below the highest that are not in use, nor `lent`.
    pub fn replayed(&mut self, lent: impl Iterator<Item = DescriptionSlot>) {
        let lent: FxHashSet<u32> = lent.map(|slot| slot.0).collect();
        let unused = |n: &u32| self.get(DescriptionSlot(*n)).is_none() && !lent.contains(n);
        self.free = (1..self.next).filter(unused).collect();
    }

    /// One description.
    pub fn get(&self, slot: DescriptionSlot) -> Option<&Open> {
        self.open.get(slot.0 as usize)?.as_ref()
    }

    /// Whether a session has opened this.
    pub fn has_opened(&self, session: SessionSlot, ino: Ino) -> bool {
        self.iter().any(|(_, open)| (open.session, open.ino) == (session, ino))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (DescriptionSlot, &Open)> {
        let all = self.open.iter().enumerate();
        all.filter_map(|(slot, open)| Some((DescriptionSlot(slot as u32), open.as_ref()?)))
    }

    /// Records from which they come back.
    pub fn snapshot(&self) -> impl Iterator<Item = Local> {
        self.iter().map(|(description, open)| Local::Opened {
            description,
            nonce: open.nonce,
            ino: open.ino,
            access: open.access,
            session: open.session,
        })
    }

    /// How many are held by kernel descriptors.
    pub fn count_kernel(&self) -> usize {
        self.iter().filter(|(_, open)| u64::from(open.access) & access::KERNEL != 0).count()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }
}
