//! A client that is a script: it speaks requests, and copies bytes as the grant protocol has it
//! (docs/decisions/2026-11-21-grant-protocol.md). Of each of its steps nobody sees a half but of a
//! write, which may be left in the middle.

use terral_format::ids::{DescriptionSlot, FileSlot, PageNumber, SessionSlot};
use terral_format::local::deferred::Recallable;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::lock_table::Pool;
use terral_format::local::pages::{self, PageState};
use terral_format::local::size::SizeWord;
use terral_format::wire::capability::Capability;
use terral_format::wire::message::{Envelope, FileRef, OpenFile, OpenHow, Reply, Request};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result, frame};
use terral_transport::requests::{Session, Taken};

use super::Sim;
use crate::authority::peer::Peer;
use crate::core::machine::Machine;
use crate::requests::admission::Comer;
use crate::requests::{admission, ending, handling};
use crate::sessions::clients::Client as Admitted;
use crate::shared::Shared;

/// How a file is opened to be read.
pub const READ: OpenHow = OpenHow {
    access: 1,
    create: false,
    exclusive: false,
    truncate: false,
    directory: false,
    unnamed: false,
    mode: 0,
    token: 0,
    on: None,
};
/// To be read and written, made if there is none.
pub const CREATE: OpenHow = OpenHow { access: 3, create: true, mode: 0o644, ..READ };

/// One of them.
pub struct Client {
    pub session: SessionSlot,
    pub(super) pid: u32,
    pub(super) authority: u32,
    /// What it was given, and until when what it has presented of that lasts, if not as long.
    pub(super) capability: Capability,
    pub(super) until_s: Option<u64>,
    /// Whom it acts as.
    pub(super) person: Person,
    pub(super) page: Session,
    /// Requests so far.
    sequence: u64,
    /// Whether it may defer changes, how many it has begun, and the files that it has in hand.
    pub(super) defers: bool,
    pub(super) claims: u64,
    pub(super) preallocated: Vec<OpenFile>,
    /// Where it writes lists of locks.
    pub(super) blocks: Pool,
    /// Numbers under which it appends now, one bit each.
    pub(super) appending: u16,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    pub file: FileRef,
    pub(super) description: DescriptionSlot,
    pub(super) nonce: u32,
    /// The server may not have heard of it yet.
    pub(super) recall: Option<Recallable>,
}

impl Opened {
    pub fn new(preallocated: OpenFile, recall: Option<Recallable>) -> Self {
        let OpenFile { file, description, nonce } = preallocated;
        Opened { file, description, nonce, recall }
    }
}

impl Sim {
    /// What a program is given that comes.
    pub(super) fn issue(&mut self) -> Result<Capability> {
        let machine = self.machine.clone();
        loop {
            let machine = machine.clone();
            let issued = self.with(move |server| {
                let state = server.lock();
                let identity = Peer { own: machine.user() }.identity(0)?;
                let most = identity.most(state.world.wall_s(), &Default::default())?;
                state.authz.issue(&*state.world, &most)
            });
            // A server that dies in it issues nothing.
            if let Some(issued) = issued {
                return issued;
            }
        }
    }

    /// A program comes. Gives its index.
    pub fn connect(&mut self) -> usize {
        self.try_connect().expect("there is room for it")
    }

    /// The server's own process does.
    pub fn connect_itself(&mut self) -> usize {
        let pid = self.machine.begin();
        self.machine.serves(pid);
        self.admit(pid).expect("there is room for it")
    }

    /// A program comes, if it is let in.
    ///
    /// # Errors
    /// As those of [`admission::admit`].
    pub fn try_connect(&mut self) -> Result<usize> {
        let pid = self.machine.begin();
        self.admit(pid)
    }

    fn admit(&mut self, pid: u32) -> Result<usize> {
        let machine = self.machine.clone();
        let capability = self.issue().expect("it is the server's user");
        let welcome = loop {
            let (machine, capability) = (machine.clone(), capability.clone());
            let welcome = self.with(move |server| {
                let mut state = server.lock();
                let process = machine.find(pid);
                let comer =
                    Comer { process, started_ticks: pid.into(), person: Default::default() };
                admission::admit(&mut state, comer, &capability, |session, _| {
                    machine.make_page(session)
                })
            });
            // A server that dies in it lets nobody in; who comes, comes again.
            if let Some(welcome) = welcome {
                break welcome;
            }
        };
        let (session, authority) = welcome?;
        let page = machine.page(session).expect("the page just made");
        self.clients.push(Client {
            session,
            pid,
            authority,
            capability,
            until_s: None,
            person: Person::default(),
            page,
            sequence: 0,
            defers: false,
            claims: 0,
            preallocated: vec![],
            blocks: Pool::default(),
            appending: 0,
        });
        Ok(self.clients.len() - 1)
    }

    /// A program ends, in the middle of whatever it does, and the server hears of it.
    pub fn end(&mut self, client: usize) {
        let pid = self.clients[client].pid;
        self.machine.end(pid);
        let ours = |server: &Shared| {
            let mut state = server.lock();
            // Of a server that died as it let him in, he may have one more.
            let his =
                |(at, known): (SessionSlot, &Admitted)| (known.process.pid() == pid).then_some(at);
            let all: Vec<_> = state.sessions.clients().filter_map(his).collect();
            all.into_iter().try_for_each(|at| ending::end_session(&mut state, at))
        };
        // Where memory is full, it is tried again.
        let ended = self.with(ours).unwrap_or(Ok(()));
        let full = |error: &Error| error.kind == ErrorKind::NoSpace;
        assert!(ended.as_ref().err().is_none_or(full), "{ended:?}");
    }

    /// What a client asks next, as it lies in its page.
    pub fn asking(&mut self, client: usize, request: Request<'_>) -> Result<Taken> {
        let asker = &mut self.clients[client];
        asker.sequence += 1;
        let envelope = Envelope { authority: asker.authority, request };
        let (message, sequence) = (frame::encode(&envelope)?, asker.sequence);
        Ok(Taken { index: 0, sequence, told: false, message })
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, client: usize, request: Request<'_>) -> Result<Reply> {
        let presents = matches!(request, Request::Present(_));
        let ends_own = handling::ends_own(self.clients[client].session, &request);
        let over = !ends_own && self.is_over(client);
        let taken = self.asking(client, request)?;
        let answer = match frame::decode(&self.answered(client, &taken))? {
            Reply::Failed(error) => Err(error),
            reply => Ok(reply),
        };
        if !presents {
            self.check_rights(client, over, &answer);
        }
        answer
    }

    pub fn open(&mut self, client: usize, path: &[u8], how: OpenHow) -> Result<Opened> {
        match self.ask(client, Request::Open { path, how })? {
            Reply::Opened { description, nonce, file } => {
                Ok(Opened::new(OpenFile { file, description, nonce }, None))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads all of a file.
    pub fn read_whole(&mut self, client: usize, open: Opened) -> Vec<u8> {
        let size = memory_size(&self.memory, open.file.slot) as usize;
        let pages = (0..size).step_by(PAGE_BYTES);
        let read = |at: usize| {
            let length = PAGE_BYTES.min(size - at);
            self.read(client, open.file, at as u64, length).expect("it is there")
        };
        pages.flat_map(read).collect()
    }

    pub fn close(&mut self, client: usize, open: Opened) -> Result<()> {
        let Opened { description, nonce, .. } = open;
        self.ask(client, Request::Close { description, nonce }).map(drop)
    }

    fn entry(&self, file: FileRef, index: u64) -> MapEntry {
        self.memory.entry(file.slot, index)
    }

    /// Reads bytes that lie in one page; fewer at the end of the file.
    pub fn read(
        &mut self,
        client: usize,
        file: FileRef,
        at: u64,
        length: usize,
    ) -> Result<Vec<u8>> {
        let index = at / CHUNK_BYTES;
        let file = self.rouse(client, file)?;
        for _ in 0..100 {
            let memory = self.memory.clone();
            let size = memory_size(&memory, file.slot);
            let length = (size.saturating_sub(at) as usize).min(length);
            let entry = self.entry(file, index).unrecalled();
            let backed = self.backed_bytes(file);
            let elsewhere = entry.is_absent() && index * CHUNK_BYTES < backed;
            let away = !entry.is_here() && !entry.is_absent();
            if (elsewhere || away) && length > 0 {
                let (within, bytes) = ((at % CHUNK_BYTES) as u32, length as u32);
                let asked = Request::Stage { file, first: index, count: 1, within, bytes };
                match self.ask(client, asked)? {
                    Reply::Extent(extent) => return Ok(extent),
                    _ => continue,
                }
            }
            let mut into = vec![0; length];
            let within = at % CHUNK_BYTES;
            let page = (within / PAGE_BYTES as u64) as u32;
            if !entry.is_here() || page >= entry.pages() {
                return Ok(into);
            }
            let page = entry.page().0 + page;
            if let Some(owner) = self.writer_of(page) {
                self.unblock(client, file, index, owner)?;
                continue;
            }
            if let PageState::Valid { .. } = pages::state(memory.lanes(), page) {
                memory.read(PageNumber(page), within % PAGE_BYTES as u64, &mut into)?;
            }
            return Ok(into);
        }
        Err(Error::new(ErrorKind::Busy, "brought and evicted for ever"))
    }
}

pub(super) fn memory_size(memory: &terral_store::memory::Memory, slot: FileSlot) -> u64 {
    SizeWord::load(memory.header(slot).size()).size()
}
