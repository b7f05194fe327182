//! A machine on which nothing runs: its processes are scripts, which end when they are told to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terral_format::ids::{DescriptionSlot, Ino, PageNumber, SessionSlot};
use terral_format::local::names::Inode;
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::region::Region;
use terral_transport::requests::Session;

use crate::core::machine::{Machine, Process};

/// See the module.
#[derive(Clone, Default)]
pub struct Pretend(Arc<Mutex<Things>>);

#[derive(Default)]
struct Things {
    alive: BTreeSet<u32>,
    /// The server's, if it is one of them.
    server: Option<u32>,
    /// So many have begun.
    begun: u32,
    pages: BTreeMap<SessionSlot, Arc<Region>>,
    /// Chunks that processes have mapped, by number.
    maps: BTreeMap<u64, Map>,
    /// So many were.
    mapped: u64,
    /// What was written down of capabilities.
    audit: String,
}

/// A process has the chunk that begins with this page mapped.
struct Map {
    pid: u32,
    page: PageNumber,
    stores: bool,
}

impl Pretend {
    fn things(&self) -> MutexGuard<'_, Things> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was written down.
    pub fn audited(&self) -> String {
        self.things().audit.clone()
    }

    /// A process begins. Its number also says when.
    pub fn begin(&self) -> u32 {
        let mut things = self.things();
        let pid = 100 + things.begun;
        things.begun += 1;
        things.alive.insert(pid);
        pid
    }

    /// The server is this process from now on.
    pub fn serves(&self, pid: u32) {
        self.things().server = Some(pid);
    }

    pub fn end(&self, pid: u32) {
        let mut things = self.things();
        things.alive.remove(&pid);
        things.maps.retain(|_, map| map.pid != pid);
    }

    /// A process locks a chunk, and maps it then. Gives the number of that.
    pub fn map(&self, pid: u32, page: PageNumber, stores: bool) -> u64 {
        let mut things = self.things();
        things.mapped += 1;
        let number = things.mapped;
        things.maps.insert(number, Map { pid, page, stores });
        number
    }

    /// It does so no more.
    pub fn unmap(&self, number: u64) {
        self.things().maps.remove(&number);
    }

    pub fn find(&self, pid: u32) -> Box<dyn Process> {
        Box::new(One { pid, machine: self.clone() })
    }

    /// Makes the page of a session.
    pub fn make_page(&self, session: SessionSlot) -> Result<Session> {
        let region = Arc::new(Region::anonymous(Session::BYTES)?);
        self.things().pages.insert(session, region.clone());
        Ok(Session::new(region))
    }
}

struct One {
    pid: u32,
    machine: Pretend,
}

impl Process for One {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_alive(&self) -> bool {
        self.machine.things().alive.contains(&self.pid)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Machine for Pretend {
    fn user(&self) -> u32 {
        0
    }

    fn pid(&self) -> u32 {
        self.things().server.unwrap_or(1)
    }

    fn name(&self) -> String {
        "pretended".to_owned()
    }

    fn group(&self) -> u32 {
        0
    }

    fn protects_links(&self) -> bool {
        true
    }

    fn process(&self, pid: u32, _: u64) -> Option<Box<dyn Process>> {
        Some(self.find(pid))
    }

    fn started_ticks(&self, pid: u32) -> Option<u64> {
        self.find(pid).is_alive().then_some(pid.into())
    }

    fn shown(&self, pid: u32) -> String {
        pid.to_string()
    }

    fn may_act(&self, _: u32, _: &Person) -> bool {
        true
    }

    fn copy_of(&self, _: u32, _: u32) -> Option<Ino> {
        None
    }

    fn running(&self) -> Vec<Ino> {
        Vec::new()
    }

    fn page(&self, session: SessionSlot) -> Result<Session> {
        let missing = || Error::new(ErrorKind::NotFound, format!("page of session {session}"));
        self.things().pages.get(&session).cloned().map(Session::new).ok_or_else(missing)
    }

    fn remove_page(&self, session: SessionSlot) {
        self.things().pages.remove(&session);
    }

    fn has_page(&self, pid: u32, _: SessionSlot) -> bool {
        self.find(pid).is_alive()
    }

    fn is_mapped(&self, page: PageNumber) -> bool {
        self.things().maps.values().any(|map| map.page == page)
    }

    fn is_stored_to(&self, page: PageNumber) -> bool {
        self.things().maps.values().any(|map| map.page == page && map.stores)
    }

    fn make_holdable(&self, _: DescriptionSlot) -> Result<()> {
        Ok(())
    }

    fn is_held(&self, _: DescriptionSlot) -> Result<bool> {
        Ok(false)
    }

    fn make_fifo(&self, _: Ino) -> Result<()> {
        Ok(())
    }

    fn audit(&self, line: &str) {
        self.things().audit.push_str(line);
    }

    fn remove_node(&self, _: &Inode) {}
}
