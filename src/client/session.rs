//! The connection of one process: mapped regions, a session page, an authority. A forked child
//! keeps the regions and gets a session of its own.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use terral_format::frame;
use terral_format::ids::{FileSlot, Ino, InstanceId, Member};
use terral_format::local::deferred::{self, DeferredTable};
use terral_format::local::geometry::{Geometry, MESSAGE_BYTES, SLOT_WORDS};
use terral_format::local::lock_table::{self, LockTable, Pool};
use terral_format::local::names::{FLAGS_WORD, Table, index_of};
use terral_format::local::tables::{
    Description, Doorbell, FileHeader, FileRecord, MapPage, SessionPage, Superblock,
};
use terral_format::wire::capability::{Capability, Caveat};
use terral_format::wire::handshake::{Hello, Wants, Welcome};
use terral_format::wire::locks::LockOwner;
use terral_format::wire::message::{Envelope, PROTOCOL, Presentation, Reply, Request};
use terral_format::wire::person::{GROUPS_MAX, Person};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::arena::Arena;
use terral_transport::kept;
use terral_transport::own_files;
use terral_transport::permission::{Acting, acting};
use terral_transport::process;
use terral_transport::region::{ForkMark, Region};
use terral_transport::requests::{self, Begun, Session};
use terral_transport::socket::Handshake;

use crate::bound;
use crate::in_hand::InHand;
use crate::whose;

/// How long a server may be gone before calls that need it fail: a restarted one finds its clients.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest message a client sends but for extended attributes: a rename's two paths.
const REQUEST_BYTES: usize = 9 << 10;

/// Users a process can act as without presenting anew.
const AUTHORITIES: usize = 256;

/// Most generations of forks without exec, each with a session of its own.
const FORKS_MAX: usize = 64;

/// What lies in shared memory.
pub(crate) struct Memory {
    pub(crate) geometry: Geometry,
    pub(crate) arena: Arena,
    tables: Region,
    headers: Region,
    pages: Region,
    /// Byte offset in `tables` of the flags of the inode in slot 0.
    flags_at: usize,
}

/// A session of this very process.
pub(crate) struct Own {
    session: Session,
    pub(crate) index: u16,
    /// What stands for whom threads act as: 1 + his number in the high half, the handle; by the low
    /// bits of the number.
    authorities: [AtomicU64; AUTHORITIES],
    capability: Mutex<Capability>,
    pub(crate) in_hand: InHand,
    /// Whose the locks of this process are.
    pub(crate) owner: LockOwner,
    /// Whether the server calls this process as it calls itself: they share a pid namespace.
    knows_pids: bool,
    pub(crate) lock_blocks: Pool,
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
    /// It only asks, and has no session.
    observes: bool,
    /// What it presents, if that is not its user's own.
    shows: Option<Capability>,
    /// It asks for what others see in shared memory.
    asks: AtomicBool,
}

impl Memory {
    fn map(instance: &Path) -> Result<(InstanceId, Self)> {
        own_files::retry(|| Memory::map_once(instance))
    }

    fn map_once(instance: &Path) -> Result<(InstanceId, Self)> {
        whose::instance_is_his(instance)?;
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
            flags_at: geometry.names_at() + (geometry.names().slot_at(0) + FLAGS_WORD) * 8,
            tables,
            headers: Region::map(&open("headers", true)?, geometry.headers_bytes(), true)?,
            pages: Region::map(&open("pages", true)?, geometry.pages_bytes(), true)?,
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

    /// Which member this machine is.
    pub(crate) fn member(&self) -> Member {
        Member::of_word(self.superblock().member.load(Ordering::Relaxed))
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

    /// The word with the flags of an inode's slot, or of slot 0 if there is no such slot.
    #[inline]
    pub(crate) fn flags(&self, ino: Ino) -> &AtomicU64 {
        let index = Some(index_of(ino)).filter(|index| *index < self.geometry.inodes);
        let at = self.flags_at + index.unwrap_or(0) as usize * SLOT_WORDS * 8;
        &self.tables.words(at, 1)[0]
    }

    pub(crate) fn names(&self) -> Table<'_> {
        let layout = self.geometry.names();
        let words = self.tables.words(self.geometry.names_at(), layout.bytes() / 8);
        Table::new(words, layout)
    }

    pub(crate) fn deferred(&self) -> DeferredTable<'_> {
        DeferredTable::new(self.headers.words(self.geometry.deferred_at(), deferred::WORDS))
    }

    pub(crate) fn locks(&self) -> LockTable<'_> {
        LockTable::new(self.headers.words(self.geometry.locks_at(), lock_table::WORDS))
    }

    pub(crate) fn lanes(&self) -> &[std::sync::atomic::AtomicU64] {
        self.pages.words(0, self.geometry.pages_bytes() / 8)
    }
}

impl Connection {
    /// Maps the memory of `instance`. The server hears of this process when it first needs it: who
    /// only looks at names does not.
    pub(crate) fn open(instance: &Path, shows: Option<Capability>) -> Result<Arc<Self>> {
        let (first, (id, memory)) = match Memory::map(instance) {
            Ok(mapped) => (None, mapped),
            // The server says what is wrong, or is about to come up.
            Err(_) => {
                let greeted = greet(instance, shows.as_ref())?;
                let mapped = Memory::map(instance)?;
                (Some(greeted).filter(|greeted| greeted.id == mapped.0), mapped)
            }
        };
        let connection = Connection::over(instance, id, memory, (false, shows))?;
        if let Some(greeted) = first {
            let _ = connection.sessions[0].set(greeted.own);
            connection.mark.set();
        }
        Ok(Arc::new(connection))
    }

    /// Maps the memory of `instance` for somebody who only asks.
    pub(crate) fn observe(instance: &Path, shows: Option<Capability>) -> Result<Arc<Self>> {
        // The server says what is wrong, or is about to come up.
        let says = |_| ask(instance, Request::Space, shows.as_ref());
        let again = |error| says(error).and_then(|_| Memory::map(instance));
        let (id, memory) = Memory::map(instance).or_else(again)?;
        Connection::over(instance, id, memory, (true, shows)).map(Arc::new)
    }

    fn over(
        instance: &Path,
        id: InstanceId,
        memory: Memory,
        (observes, shows): (bool, Option<Capability>),
    ) -> Result<Self> {
        let asks = AtomicBool::new(shows.as_ref().is_some_and(bound::must_ask));
        let (mark, sessions) = (ForkMark::new()?, [const { OnceLock::new() }; FORKS_MAX]);
        Ok(Connection {
            instance: instance.into(),
            id,
            memory,
            mark,
            sessions,
            current: AtomicUsize::new(0),
            renewing: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            observes,
            shows,
            asks,
        })
    }

    pub(crate) fn id(&self) -> InstanceId {
        self.id
    }

    pub(crate) fn instance(&self) -> &Path {
        &self.instance
    }

    /// Whether it must ask for what others see in shared memory: the server looks whether it may.
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        self.asks.load(Ordering::Relaxed)
    }

    /// The session of this very process; the server gives it one if it has none.
    pub(crate) fn own(&self) -> Result<&Own> {
        if !self.mark.is_set() {
            self.renew()?;
        }
        let own = self.sessions[self.current.load(Ordering::Acquire)].get();
        own.map(Box::as_ref).ok_or_else(|| Error::new(ErrorKind::BadHandle, "session"))
    }

    /// The last session of this process, or of one that it was forked from.
    pub(crate) fn last_session(&self) -> Option<&Own> {
        self.sessions[self.current.load(Ordering::Acquire)].get().map(Box::as_ref)
    }

    /// At first, and in a forked child: gets a session of its own.
    #[cold]
    fn renew(&self) -> Result<()> {
        if self.observes {
            return Err(Error::new(ErrorKind::Invalid, "who only looks has no session"));
        }
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
        let parent = self.sessions[current].get();
        // Its lock is held if another thread of the parent was just at it.
        let held = parent.and_then(|parent| parent.capability.try_lock().ok());
        let capability = held.map(|held| held.clone());
        let greeted = greet(&self.instance, capability.as_ref().or(self.shows.as_ref()))
            .inspect_err(|_| self.gone.store(true, Ordering::Relaxed))?;
        if greeted.id != self.id {
            self.gone.store(true, Ordering::Relaxed);
            let context = format!("{}: another server took the place", self.instance.display());
            return Err(Error::new(ErrorKind::Unreachable, context));
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
        if self.observes {
            return ask(&self.instance, request, self.shows.as_ref());
        }
        let own = self.own()?;
        own.exchange(self, own.authority(self)?, request)
    }

    /// From now on this process may do less. Nothing takes that back.
    pub(crate) fn narrow(&self, caveat: Caveat) -> Result<()> {
        let own = self.own()?;
        let mut held = own.capability.lock().unwrap_or_else(PoisonError::into_inner);
        let narrower = held.attenuate(caveat)?;
        let who = acting();
        // What is deferred under what it had counts; nothing is from now on.
        self.asks.fetch_or(bound::must_ask(&narrower), Ordering::SeqCst);
        let handle = own.present(self, &narrower, who)?;
        *held = narrower;
        own.authorities.iter().for_each(|known| known.store(0, Ordering::Release));
        own.know(who, handle);
        Ok(())
    }

    /// Sends a request that needs no answer.
    pub(crate) fn tell(&self, request: Request<'_>) -> Result<()> {
        let own = self.own()?;
        let mut buffer = [0; 512];
        let authority = own.authority(self)?;
        let message = frame::encode_into(&Envelope { authority, request }, &mut buffer)?;
        let mut dead_since = None;
        own.session.tell(self.memory.bell(), message, || self.check_server(&mut dead_since))
    }

    /// An error if the server left, or has been dead for longer than it takes to restart one.
    pub(crate) fn check_server(&self, dead_since: &mut Option<Instant>) -> Result<()> {
        let pid = self.memory.superblock().server_pid.load(Ordering::SeqCst) as u32;
        let gone = || {
            let shown = self.instance.display();
            let context = format!("server of {shown} is gone (terral recover finds its data)");
            Err(Error::new(ErrorKind::Unreachable, context))
        };
        if pid == 0 {
            return gone();
        }
        if process::Process::lives(pid) {
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
    pub(crate) fn knows_pids(&self) -> bool {
        self.knows_pids
    }

    pub(crate) fn page(&self) -> &SessionPage {
        self.session.page()
    }

    /// On whose authority this thread acts.
    #[inline]
    pub(crate) fn authority(&self, connection: &Connection) -> Result<u32> {
        let who = acting();
        let known = self.authorities[who.number as usize % AUTHORITIES].load(Ordering::Acquire);
        if known >> 32 == u64::from(who.number) + 1 {
            return Ok(known as u32);
        }
        self.authority_of(connection, who)
    }

    #[cold]
    fn authority_of(&self, connection: &Connection, who: &Acting) -> Result<u32> {
        let held = self.capability.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = self.present(connection, &held, who)?;
        self.know(who, handle);
        Ok(handle)
    }

    fn know(&self, who: &Acting, handle: u32) {
        let known = (u64::from(who.number) + 1) << 32 | u64::from(handle);
        self.authorities[who.number as usize % AUTHORITIES].store(known, Ordering::Release);
    }

    /// Refuses what the capability does not allow, or no more; `needs` are bits of [`Operations`].
    #[inline]
    pub(crate) fn check(&self, needs: u64) -> Result<()> {
        let allowed = self.page().operations.load(Ordering::SeqCst);
        if allowed & needs == needs {
            return Ok(());
        }
        let kind = if allowed == 0 { ErrorKind::Unauthorized } else { ErrorKind::Denied };
        Err(Error::new(kind, "the capability does not allow this, or has run out"))
    }

    /// Refuses everything once what was presented has run out.
    pub(crate) fn check_any(&self) -> Result<()> {
        if self.page().operations.load(Ordering::SeqCst) != 0 { Ok(()) } else { self.check(1) }
    }

    /// Whether what was presented has not run out.
    pub(crate) fn lasts(&self, wall_ns: u64) -> bool {
        wall_ns < self.page().until_ns.load(Ordering::Relaxed)
    }

    fn present(
        &self,
        connection: &Connection,
        capability: &Capability,
        who: &Acting,
    ) -> Result<u32> {
        let (capability, person) = (capability.clone(), bounded(who)?);
        let presented = frame::encode(&Presentation { capability, person })?;
        match self.exchange(connection, 0, Request::Present(&presented))? {
            Reply::Handle(handle) => Ok(handle),
            _ => Err(unexpected()),
        }
    }

    fn exchange(
        &self,
        connection: &Connection,
        authority: u32,
        request: Request<'_>,
    ) -> Result<Reply> {
        let mut buffer = [0; REQUEST_BYTES];
        let large;
        let envelope = Envelope { authority, request };
        let long =
            matches!(request, Request::SetXattr { .. } | Request::Far(_) | Request::Transact(_));
        let message = if long {
            large = frame::encode(&envelope)?;
            large.as_slice()
        } else {
            frame::encode_into(&envelope, &mut buffer)?
        };
        debug_assert!(message.len() <= MESSAGE_BYTES);
        let mut dead_since = None;
        let alive = || connection.check_server(&mut dead_since);
        answered(&self.session.ask(connection.memory.bell(), message, alive)?)
    }

    /// Sends a small request, and waits for nothing. `None`: not now.
    pub(crate) fn begin(&self, connection: &Connection, request: Request<'_>) -> Option<Begun> {
        let (mut buffer, authority) = ([0; 64], self.authority(connection).ok()?);
        let message = frame::encode_into(&Envelope { authority, request }, &mut buffer).ok()?;
        self.session.begin(connection.memory.bell(), message)
    }

    pub(crate) fn is_answered(&self, begun: Begun) -> bool {
        self.session.is_answered(begun)
    }

    /// The answer to what was begun, to be asked for once.
    pub(crate) fn answer_to(&self, connection: &Connection, begun: Begun) -> Result<Reply> {
        let mut dead_since = None;
        let alive = || connection.check_server(&mut dead_since);
        answered(&self.session.answer_to(connection.memory.bell(), begun, alive)?)
    }
}

fn answered(reply: &[u8]) -> Result<Reply> {
    match frame::decode(reply)? {
        Reply::Failed(error) => Err(error),
        reply => Ok(reply),
    }
}

/// A reply of the wrong kind.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Malformed, "reply of another kind than asked for")
}

struct Greeted {
    id: InstanceId,
    own: Box<Own>,
}

/// A person as he can be said to the server.
fn bounded(who: &Acting) -> Result<Person> {
    if who.person.groups.len() > GROUPS_MAX {
        let context = format!("user {}: groups, more than {GROUPS_MAX}", who.person.user);
        return Err(Error::new(ErrorKind::TooMany, context));
    }
    Ok(who.person.clone())
}

fn shake_hands(
    instance: &Path,
    wants: Wants<'_>,
    who: &Acting,
    capability: Option<&Capability>,
) -> Result<(Welcome, Vec<OwnedFd>)> {
    whose::instance_is_his(instance)?;
    let (person, capability) = (bounded(who)?, capability.cloned());
    let handshake = kept::reach(instance, |instance| Handshake::connect(&instance.join("socket")))?;
    let program = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
    let program: String = program.chars().take(256).collect();
    let hello = Hello { protocol: PROTOCOL, program: &program, person, capability, wants };
    // Before the server knows of this process, there has to be a place for what it sends.
    let place = handshake.reserve()?;
    handshake.send(&hello, &[])?;
    drop(place);
    handshake.receive()
}

/// Goes to the server for an answer or, without a question, for a session. A server that is being
/// restarted is waited for.
fn knock(
    instance: &Path,
    question: Option<Request<'_>>,
    who: &Acting,
    capability: Option<&Capability>,
) -> Result<(Welcome, Vec<OwnedFd>)> {
    let begin = Instant::now();
    let lives = || kept::reach(instance, |instance| instance.join("log").exists());
    loop {
        let wants = question.map_or(Wants::Session, Wants::Answer);
        match shake_hands(instance, wants, who, capability) {
            Err(error)
                if !matches!(error.kind, ErrorKind::Version | ErrorKind::Denied)
                    && !own_files::is_full(&error)
                    && begin.elapsed() < PATIENCE
                    && lives() =>
            {
                requests::meanwhile(begin);
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// The answer to a question, without a session.
pub(crate) fn ask(instance: &Path, what: Request<'_>, shows: Option<&Capability>) -> Result<Reply> {
    match knock(instance, Some(what), acting(), shows)?.0 {
        Welcome::Answer(reply) => match *reply {
            Reply::Failed(error) => Err(error),
            reply => Ok(reply),
        },
        Welcome::Refused(error) => Err(error),
        Welcome::Session { .. } => Err(unexpected()),
    }
}

/// The handshake for a session; with what the process may do, if it was forked from one that had
/// one, or shows another than its user's own.
fn greet(instance: &Path, capability: Option<&Capability>) -> Result<Greeted> {
    own_files::retry(|| greet_once(instance, capability))
}

fn greet_once(instance: &Path, capability: Option<&Capability>) -> Result<Greeted> {
    let who = acting();
    let (welcome, descriptors) = knock(instance, None, who, capability)?;
    let (id, session, capability, authority, owner) = match welcome {
        Welcome::Session { instance, session, capability, authority, started_ticks, pid } => {
            let owner = LockOwner::process(pid, started_ticks);
            (instance, session, capability, authority, (pid, owner))
        }
        Welcome::Refused(error) => return Err(error),
        Welcome::Answer(_) => return Err(unexpected()),
    };
    let bad = || Error::new(ErrorKind::Malformed, "handshake: what came with it");
    let [page] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| bad())?;
    let own = Box::new(Own {
        session: Session::new(Region::map_received(page, Session::BYTES, true)?),
        index: session.0,
        authorities: [const { AtomicU64::new(0) }; AUTHORITIES],
        capability: Mutex::new(capability),
        in_hand: InHand::default(),
        owner: owner.1,
        knows_pids: owner.0 == std::process::id(),
        lock_blocks: Pool::default(),
    });
    own.know(who, authority);
    Ok(Greeted { id, own })
}
