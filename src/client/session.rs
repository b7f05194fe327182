//! The connection of one process: mapped regions, a session page, an authority. A forked child
//! keeps the regions and gets a session of its own.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use terral_format::capability::Capability;
use terral_format::deferred::{self, DeferredTable};
use terral_format::frame;
use terral_format::geometry::{Geometry, MESSAGE_BYTES};
use terral_format::ids::{FileSlot, InstanceId};
use terral_format::message::{Envelope, Hello, PROTOCOL, Reply, Request, Welcome};
use terral_format::names::Table;
use terral_format::tables::{
    Description, Doorbell, FileHeader, FileRecord, MapPage, SessionPage, Superblock,
};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::arena::Arena;
use terral_transport::permission::Person;
use terral_transport::process;
use terral_transport::region::{ForkMark, Region};
use terral_transport::requests::{self, Session};
use terral_transport::socket::Handshake;

use crate::in_hand::InHand;
use crate::own_locks::OwnLocks;

/// How long a server may be gone before calls that need it fail: a restarted one finds its clients.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most restarts of the server that one call rides out.
const RESTARTS_MAX: usize = 100;
/// Longest message a client sends but for extended attributes: a rename's two paths.
const REQUEST_BYTES: usize = 9 << 10;

/// Most generations of forks without exec, each with a session of its own.
const FORKS_MAX: usize = 64;

/// What lies in shared memory.
pub(crate) struct Memory {
    pub(crate) geometry: Geometry,
    pub(crate) arena: Arena,
    tables: Region,
    headers: Region,
    pages: Region,
    /// Whose programs these are: the server's user.
    pub(crate) person: Person,
}

/// A session of this very process.
pub(crate) struct Own {
    session: Session,
    pub(crate) index: u16,
    authority: AtomicU32,
    capability: Capability,
    pub(crate) in_hand: InHand,
}

/// The connection of a process, shared by all its files.
pub(crate) struct Connection {
    instance: PathBuf,
    id: InstanceId,
    pub(crate) memory: Memory,
    mark: ForkMark,
    /// Sessions of this process's ancestors since the connection was made, and at last its own.
    sessions: [OnceLock<Box<Own>>; FORKS_MAX],
    current: AtomicUsize,
    /// The process that is getting itself a session; 0 for none.
    renewing: AtomicU32,
    /// The server was waited for in vain.
    gone: AtomicBool,
    pub(crate) locks: OwnLocks,
}

impl Memory {
    fn map(instance: &Path) -> Result<(InstanceId, Self)> {
        let failed = |error: std::io::Error| Error::system(&error, instance.display().to_string());
        let directory = || std::fs::metadata(instance).map(|found| found.ino()).map_err(failed);
        let before = directory()?;
        let open = |name: &str, writable: bool| {
            let path = instance.join(name);
            let file = File::options().read(true).write(writable).open(&path);
            file.map_err(|error| Error::system(&error, path.display().to_string()))
        };
        let tables = Region::map_whole(&open("tables", false)?, size_of::<Superblock>())?;
        let (id, geometry) = tables.view::<Superblock>(0).described()?;
        if tables.bytes() < geometry.tables_bytes() {
            return Err(Error::new(ErrorKind::Malformed, "shared memory: tables cut off"));
        }
        let memory = Memory {
            arena: Arena::reserve(instance, &geometry)?,
            tables,
            headers: Region::map(&open("headers", true)?, geometry.headers_bytes(), true)?,
            pages: Region::map(&open("pages", true)?, geometry.pages_bytes(), true)?,
            person: Person::effective(),
            geometry,
        };
        if directory()? != before {
            let context = format!("{}: another one took the place", instance.display());
            return Err(Error::new(ErrorKind::Unreachable, context));
        }
        Ok((id, memory))
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        self.tables.view(0)
    }

    pub(crate) fn bell(&self) -> &Doorbell {
        self.headers.view(0)
    }

    pub(crate) fn record(&self, slot: FileSlot) -> Option<&FileRecord> {
        (slot.0 < self.geometry.files).then(|| self.tables.view(self.geometry.record_at(slot.0)))
    }

    pub(crate) fn header(&self, slot: FileSlot) -> Option<&FileHeader> {
        (slot.0 < self.geometry.files).then(|| self.headers.view(self.geometry.header_at(slot.0)))
    }

    pub(crate) fn description(&self, slot: u32) -> Option<&Description> {
        let there = slot < self.geometry.descriptions;
        there.then(|| self.headers.view(self.geometry.description_at(slot)))
    }

    pub(crate) fn map_page(&self, page: u64) -> Option<&MapPage> {
        let page = u32::try_from(page).ok().filter(|page| *page < self.geometry.map_pages)?;
        Some(self.tables.view(self.geometry.map_page_at(page)))
    }

    pub(crate) fn names(&self) -> Table<'_> {
        let layout = self.geometry.names();
        let words = self.tables.words(self.geometry.names_at(), layout.bytes() / 8);
        Table::new(words, layout)
    }

    pub(crate) fn deferred(&self) -> DeferredTable<'_> {
        DeferredTable::new(self.headers.words(self.geometry.deferred_at(), deferred::WORDS))
    }

    pub(crate) fn lanes(&self) -> &[std::sync::atomic::AtomicU64] {
        self.pages.words(0, self.geometry.pages_bytes() / 8)
    }
}

impl Connection {
    /// Maps the memory of `instance`. The server hears of this process when it first needs it: who
    /// only looks at names does not.
    pub(crate) fn open(instance: &Path) -> Result<Arc<Self>> {
        let (first, (id, memory)) = match Memory::map(instance) {
            Ok(mapped) => (None, mapped),
            // The server says what is wrong, or is about to come up.
            Err(_) => {
                let greeted = greet(instance)?;
                let mapped = Memory::map(instance)?;
                (Some(greeted).filter(|greeted| greeted.id == mapped.0), mapped)
            }
        };
        let (mark, sessions) = (ForkMark::new()?, [const { OnceLock::new() }; FORKS_MAX]);
        if let Some(greeted) = first {
            let _ = sessions[0].set(greeted.own);
            mark.set();
        }
        Ok(Arc::new(Connection {
            instance: instance.into(),
            id,
            memory,
            mark,
            sessions,
            current: AtomicUsize::new(0),
            renewing: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            locks: OwnLocks::default(),
        }))
    }

    pub(crate) fn instance(&self) -> &Path {
        &self.instance
    }

    /// The session of this very process; the server gives it one if it has none.
    pub(crate) fn own(&self) -> Result<&Own> {
        if !self.mark.is_set() {
            self.renew()?;
        }
        let own = self.sessions[self.current.load(Ordering::Acquire)].get();
        own.map(Box::as_ref).ok_or_else(|| Error::new(ErrorKind::BadHandle, "session"))
    }

    /// Whether this process, or one that it was forked from, ever had a session.
    pub(crate) fn had_session(&self) -> bool {
        self.sessions[self.current.load(Ordering::Acquire)].get().is_some()
    }

    /// At first, and in a forked child: gets a session of its own.
    #[cold]
    fn renew(&self) -> Result<()> {
        let (pid, begin) = (std::process::id(), Instant::now());
        loop {
            let holder = self.renewing.load(Ordering::Acquire);
            // What the parent was doing at the fork, nobody does here.
            if holder != pid {
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                if self.renewing.compare_exchange(holder, pid, order.0, order.1).is_ok() {
                    break;
                }
            }
            if self.mark.is_set() {
                return Ok(());
            }
            requests::meanwhile(begin);
            std::thread::yield_now();
        }
        let renewed = if self.mark.is_set() { Ok(()) } else { self.renew_alone() };
        self.renewing.store(0, Ordering::Release);
        renewed
    }

    fn renew_alone(&self) -> Result<()> {
        if self.gone.load(Ordering::Relaxed) {
            self.check_server(&mut None)?;
        }
        let current = self.current.load(Ordering::Acquire);
        // A parent that forked in the middle of this may have filled places that do not count.
        let free = |at: &usize| self.sessions[*at].get().is_none();
        let full = || Error::new(ErrorKind::TooMany, "generations of forked processes");
        let next = (current..FORKS_MAX).find(free).ok_or_else(full)?;
        let greeted =
            greet(&self.instance).inspect_err(|_| self.gone.store(true, Ordering::Relaxed))?;
        if greeted.id != self.id {
            self.gone.store(true, Ordering::Relaxed);
            let context = format!("{}: another server took the place", self.instance.display());
            return Err(Error::new(ErrorKind::Unreachable, context));
        }
        if greeted.holds_locks {
            self.locks.may_hold(None);
        }
        if self.sessions[next].set(greeted.own).is_err() {
            return Err(full());
        }
        self.current.store(next, Ordering::Release);
        self.mark.set();
        Ok(())
    }

    /// Sends a request and gives the answer.
    ///
    /// # Errors
    /// What the server answers, or [`ErrorKind::Unreachable`] if it is gone for good.
    pub(crate) fn call(&self, request: Request<'_>) -> Result<Reply> {
        let own = self.own()?;
        for _ in 0..RESTARTS_MAX {
            match own.exchange(self, request) {
                // A restarted server has forgotten what was presented.
                Err(error) if error.kind == ErrorKind::Unauthorized && error.errno == 0 => {
                    own.present(self)?;
                }
                reply => return reply,
            }
        }
        own.exchange(self, request)
    }

    /// Sends a request that needs no answer.
    pub(crate) fn tell(&self, request: Request<'_>) -> Result<()> {
        let own = self.own()?;
        let mut buffer = [0; 512];
        let authority = own.authority.load(Ordering::Relaxed);
        let message = frame::encode_into(&Envelope { authority, request }, &mut buffer)?;
        let mut dead_since = None;
        own.session.tell(self.memory.bell(), message, || self.check_server(&mut dead_since))
    }

    /// An error if the server left, or has been dead for longer than it takes to restart one.
    fn check_server(&self, dead_since: &mut Option<Instant>) -> Result<()> {
        let pid = self.memory.superblock().server_pid.load(Ordering::SeqCst) as u32;
        let gone = || {
            let shown = self.instance.display();
            let context = format!("server of {shown} is gone (terral recover finds its data)");
            Err(Error::new(ErrorKind::Unreachable, context))
        };
        if pid == 0 {
            return gone();
        }
        if process::Process::open(pid).is_ok_and(|process| process.is_alive()) {
            *dead_since = None;
            self.gone.store(false, Ordering::Relaxed);
            return Ok(());
        }
        let since = *dead_since.get_or_insert_with(Instant::now);
        // Who has waited for it once in vain does not wait again.
        if self.gone.load(Ordering::Relaxed) || since.elapsed() > PATIENCE {
            self.gone.store(true, Ordering::Relaxed);
            return gone();
        }
        Ok(())
    }
}

impl Own {
    pub(crate) fn page(&self) -> &SessionPage {
        self.session.page()
    }

    fn present(&self, connection: &Connection) -> Result<()> {
        let capability = frame::encode(&self.capability)?;
        match self.exchange(connection, Request::Present(&capability))? {
            Reply::Handle(handle) => {
                self.authority.store(handle, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }

    fn exchange(&self, connection: &Connection, request: Request<'_>) -> Result<Reply> {
        let mut buffer = [0; REQUEST_BYTES];
        let large;
        let authority = self.authority.load(Ordering::Relaxed);
        let envelope = Envelope { authority, request };
        let message = if let Request::SetXattr { .. } = request {
            large = frame::encode(&envelope)?;
            large.as_slice()
        } else {
            frame::encode_into(&envelope, &mut buffer)?
        };
        debug_assert!(message.len() <= MESSAGE_BYTES);
        let mut dead_since = None;
        let alive = || connection.check_server(&mut dead_since);
        let reply = self.session.ask(connection.memory.bell(), message, alive)?;
        match frame::decode(&reply)? {
            Reply::Failed(error) => Err(error),
            reply => Ok(reply),
        }
    }
}

/// A reply of the wrong kind.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Malformed, "reply of another kind than asked for")
}

struct Greeted {
    id: InstanceId,
    own: Box<Own>,
    holds_locks: bool,
}

fn shake_hands(socket: &Path) -> Result<(Welcome, Vec<OwnedFd>)> {
    let handshake = Handshake::connect(socket)?;
    let program = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
    let program: String = program.chars().take(256).collect();
    handshake.send(&Hello { protocol: PROTOCOL, program }, &[])?;
    handshake.receive()
}

/// The handshake. A server that is being restarted is waited for.
fn greet(instance: &Path) -> Result<Greeted> {
    let begin = Instant::now();
    let (welcome, descriptors) = loop {
        match shake_hands(&instance.join("socket")) {
            Err(_) if begin.elapsed() < PATIENCE && instance.join("log").exists() => {
                requests::meanwhile(begin);
                std::thread::sleep(Duration::from_millis(10));
            }
            done => break done?,
        }
    };
    let (id, session, capability, authority, holds_locks) = match welcome {
        Welcome::Session { instance, session, capability, authority, holds_locks } => {
            (instance, session, capability, authority, holds_locks)
        }
        Welcome::Refused(error) => return Err(error),
    };
    let bad = || Error::new(ErrorKind::Malformed, "handshake: what came with it");
    let [page] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| bad())?;
    let own = Box::new(Own {
        session: Session::new(Region::map_received(page, Session::BYTES, true)?),
        index: session.0,
        authority: AtomicU32::new(authority),
        capability,
        in_hand: InHand::default(),
    });
    Ok(Greeted { id, own, holds_locks })
}
