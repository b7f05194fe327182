//! A process's view of one server: names, and the way to files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terral_format::ids::{DescriptionSlot, Ino, Member, Number};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::Done;
use terral_format::wire::far_files::{FarFile, LentTo, Offered};
use terral_format::wire::locks::{FarLock, HeldLock};
use terral_format::wire::message::{
    Change, FileRef, Kind, MemberAnswer, Name, OpenFile, OpenHow, RenameHow, Reply, Request,
    Safety, Seen, Space, Status, Target, XattrHow,
};
use terral_format::wire::placed::Placing;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::program::{self, Copied};
use terral_transport::{kept, nodes};

use crate::copy::Chunks;
use crate::file::File;
use crate::holding::{of_environment_at, own_token, token_of_environment, write_with};
use crate::names::{Followed, RESERVED, shown};
use crate::nodes::Opened;
use crate::session::{Connection, unexpected};

/// The connection of this process to a server. Cheap to clone; good in every thread, and in a
/// forked child.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Connection>);

/// So often another server is told to be the one that creates a file.
const TRIES: u32 = 100;

impl Client {
    /// Connects to the server that serves the instance in this directory.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] if none does, [`ErrorKind::Denied`] if it is another user's,
    /// [`ErrorKind::Version`] if it is of another version; those of [`of_environment_at`], and
    /// [`ErrorKind::Unauthorized`] if what that names is not good.
    pub fn connect(instance: &Path) -> Result<Self> {
        let client = Client::beside(instance)?;
        client.0.own()?;
        Ok(client)
    }

    /// As [`Client::connect`], but goes to the server only when something needs it: names and
    /// attributes that it has published, who has the same memory sees without it.
    ///
    /// # Errors
    /// As [`Client::connect`]; what is wrong with the server itself, later calls say.
    pub fn beside(instance: &Path) -> Result<Self> {
        token_of_environment()?.into_iter().for_each(write_with);
        Connection::open(instance, of_environment_at(instance)?).map(Client)
    }

    /// As [`Client::beside`], for who only looks: it never has a session, so the server neither
    /// counts it as a program nor waits for it. It can look at names, at where files are safe, and
    /// at the server, and tell that what is owed shall be brought; all else is
    /// [`ErrorKind::Invalid`].
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn observe(instance: &Path) -> Result<Self> {
        Connection::observe(instance, None).map(Client)
    }

    /// Whether programs wait for memory now, as the server has noted; nobody is asked.
    pub fn programs_wait(&self) -> bool {
        self.0.memory.superblock().waiting.load(Ordering::Relaxed) != 0
    }

    /// Now, by the partition's time, by which files are stamped: nanoseconds since 1970.
    pub fn time_ns(&self) -> u64 {
        self.0.time_ns()
    }

    /// The directory of the instance.
    pub fn instance(&self) -> &Path {
        self.0.instance()
    }

    /// Which member of the partition this machine is; the first, if it is alone.
    pub fn member(&self) -> Member {
        self.0.memory.member()
    }

    /// What tells the instance from all others.
    pub fn instance_id(&self) -> u128 {
        self.0.id().0
    }

    /// Makes sure of all that this process needs of the server's user: to be called before it
    /// becomes another, for whom the instance is closed.
    pub fn prepare(&self) -> Result<()> {
        kept::keep(self.0.instance());
        self.0.own().map(drop)
    }

    pub(crate) fn done(&self, request: Request<'_>) -> Result<()> {
        match self.0.call(request)? {
            Reply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Attributes of a name; of a symbolic link, its own. Paths are relative to the root, without
    /// leading slash, `.` and `..`.
    ///
    /// # Errors
    /// Of this and every other call with a path: [`ErrorKind::Link`] if a symbolic link is on the
    /// way, see [`Client::follow`].
    pub fn stat(&self, path: &[u8]) -> Result<Seen> {
        self.0.seen(path).unwrap_or_else(|| self.0.stat_there(path))
    }

    /// Does `call` with `path`, and again with where that leads if a symbolic link is on the way;
    /// one that is the last component is followed only if `last`.
    ///
    /// # Errors
    /// [`ErrorKind::Link`] if it leads out of the namespace.
    pub fn through<T>(
        &self,
        path: &[u8],
        last: bool,
        call: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<T> {
        match call(path) {
            Err(error) if error.kind == ErrorKind::Link => match self.follow(path, last)? {
                Followed::Here(path) => call(&path),
                Followed::Outside(_) => Err(error),
            },
            done => done,
        }
    }

    /// Attributes of what a name leads to.
    pub fn stat_through(&self, path: &[u8]) -> Result<Seen> {
        self.through(path, true, |path| {
            let found = self.stat(path)?;
            if found.kind == Kind::Symlink {
                return Err(Error::new(ErrorKind::Link, shown(path)));
            }
            Ok(found)
        })
    }

    /// Opens or creates a file, or opens a directory to look at.
    ///
    /// # Errors
    /// [`ErrorKind::Special`] if it is a FIFO or a socket, and to be read or written.
    pub fn open(&self, path: &[u8], how: OpenHow) -> Result<File> {
        self.open_any(path, how)?.into_file()
    }

    /// As [`Client::open`], also of a FIFO; how to open its object, [`Client::object`] says.
    ///
    /// # Errors
    /// [`ErrorKind::Special`] if it is a socket, and to be read or written.
    pub fn open_any(&self, path: &[u8], how: OpenHow) -> Result<Opened> {
        let mut how = how;
        for _ in 0..TRIES {
            match self.open_or_elsewhere(path, how)? {
                Ok(opened) => return Ok(opened),
                Err(on) => how.on = Some(on),
            }
        }
        Err(Error::new(ErrorKind::Busy, shown(path)))
    }

    /// As [`Client::open_any`], but a file that another server is to create is not created: gives
    /// which server. If `how` says that one, it is.
    pub(crate) fn open_or_elsewhere(
        &self,
        path: &[u8],
        how: OpenHow,
    ) -> Result<std::result::Result<Opened, Member>> {
        let how = OpenHow { token: own_token(), ..how };
        let created = || self.0.create_deferred(path, how).transpose();
        let done = match self.0.open_deferred(path, how) {
            None => created()?.map(|open| (open, None)),
            opened => opened,
        };
        if done.is_none() && !how.create && !self.0.asks() && self.0.memory.lacks(path) {
            return Err(Error::new(ErrorKind::NotFound, shown(path)));
        }
        let (open, opened) = match done {
            Some(opened) => opened,
            None => match self.0.call(Request::Open { path, how })? {
                Reply::Opened { description, nonce, file } => {
                    (OpenFile { file, description, nonce }, None)
                }
                Reply::Node(ino) => return Ok(Ok(Opened::Fifo(ino))),
                Reply::Elsewhere(on) if how.create => return Ok(Err(on)),
                _ => return Err(unexpected()),
            },
        };
        self.0.own()?.page().counters.opens.fetch_add(1, Ordering::Relaxed);
        let OpenFile { file, description, nonce } = open;
        Ok(Ok(Opened::File(File::new(self.0.clone(), description, nonce, file, opened))))
    }

    /// Opens what was born on this machine, for members of the partition that have it open. Only
    /// for the server's own process.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is no more.
    pub fn open_number(&self, ino: Ino, access: u8) -> Result<File> {
        match self.0.call(Request::Far(FarFile::Open { ino, access }))? {
            Reply::Opened { description, nonce, file } => {
                Ok(File::new(self.0.clone(), description, nonce, file, None))
            }
            _ => Err(unexpected()),
        }
    }

    /// What was born on this machine has lost a name on another one, which says so with a token.
    /// Only for the server's own process.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn lost_a_name(&self, ino: Ino, (by, token): (Member, u64)) -> Result<()> {
        self.done(Request::Far(FarFile::Lost(ino, by, token)))
    }

    /// That nobody can change a file without asking the server. For a server's own process.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if somebody can; as those of [`Client::open_number`].
    pub fn rests(&self, ino: Ino) -> Result<()> {
        self.done(Request::Far(FarFile::Rests(ino)))
    }

    /// Takes a lock of what was born on this machine for somebody on another one, changes it, or
    /// gives it back. Only for the server's own process.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if another one is in the way, [`ErrorKind::Deadlock`] if who waits
    /// for it would for ever; as those of [`Client::open_number`].
    pub fn lock_for(&self, ino: Ino, lock: FarLock) -> Result<()> {
        self.done(Request::Far(FarFile::LockFor(ino, lock)))
    }

    /// Has another server of the run have an object of a container.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such server; those of that server.
    pub(crate) fn place(
        &self,
        on: Member,
        what: Placing,
        (container, id): (&[u8], u128),
    ) -> Result<Option<File>> {
        match self.0.call(Request::Far(FarFile::Place { on, what, container, id }))? {
            Reply::Opened { description, nonce, file } => {
                Ok(Some(File::new(self.0.clone(), description, nonce, file, None)))
            }
            Reply::Done => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// What would be in the way of such a lock. Only for the server's own process.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn test_lock_for(&self, ino: Ino, lock: FarLock) -> Result<Option<HeldLock>> {
        match self.0.call(Request::Far(FarFile::TestLockFor(ino, lock)))? {
            Reply::Held(held) => Ok(held),
            _ => Err(unexpected()),
        }
    }

    /// All locks of another machine on what was born on this one are over; costs next to nothing if
    /// nobody has any. Only for the server's own process.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn unlock_all(&self, ino: Ino, of: Member) -> Result<()> {
        match self.0.memory.locks().is_free(ino) {
            true => Ok(()),
            false => self.done(Request::Far(FarFile::UnlockAll(ino, of))),
        }
    }

    /// Has a member have so many chunks for itself, from one on, of what was born here. `None`: it
    /// cannot have the first. Only for the server's own process, as those that follow.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn lend_to(
        &self,
        (ino, to): (Ino, Member),
        (first, count): (u64, u32),
    ) -> Result<Option<LentTo>> {
        match self.0.call(Request::Far(FarFile::LendTo(ino, to, first, count)))? {
            Reply::LentTo(lent) => Ok(Some(lent)),
            Reply::Again => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// Has such chunks asked back, of a member that may be about to leave. Whether they may stay
    /// there.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn bring_back(
        &self,
        (ino, with, leaves): (Ino, Member, bool),
        (first, count): (u64, u32),
    ) -> Result<bool> {
        let asked = FarFile::BringBack(ino, with, first, count, leaves);
        match self.0.call(Request::Far(asked))? {
            Reply::Again => Ok(true),
            Reply::Done => Ok(false),
            _ => Err(unexpected()),
        }
    }

    /// A member has a file open no more, and has nothing of it.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn has_nothing(&self, ino: Ino, member: Member) -> Result<()> {
        self.done(Request::Far(FarFile::HasNothing(ino, member)))
    }

    /// A part of a chunk that was lent to this member before a stamp: from there on so many bytes,
    /// or fewer, in place of what is in `into`. `None`: nothing is here.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn give_back(
        &self,
        of: Number,
        (index, stamp): (u64, u64),
        (at, bytes): (u32, u32),
        mut into: Vec<u8>,
    ) -> Result<Option<Vec<u8>>> {
        let places = match self.0.call(Request::Far(FarFile::GiveBack(of, index, stamp)))? {
            Reply::Stored { places, .. } => places,
            Reply::Again => return Ok(None),
            _ => return Err(unexpected()),
        };
        into.clear();
        for place in places {
            let (first, end) = (place.within.max(at), place.within.saturating_add(place.bytes));
            let end = end.min(at.saturating_add(bytes));
            if first < end {
                into.resize((first - at) as usize, 0);
                let begin = into.len();
                into.resize((end - at) as usize, 0);
                self.0.memory.read_arena(place.page, first as usize, &mut into[begin..])?;
            }
        }
        Ok(Some(into))
    }

    /// Its home has such a chunk.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn took(&self, of: Number, (index, stamp): (u64, u64)) -> Result<()> {
        self.done(Request::Far(FarFile::Took(of, index, stamp)))
    }

    /// Offers a chunk of a file that was born here to a member.
    ///
    /// # Errors
    /// As those of [`Client::open_number`]; [`ErrorKind::TextBusy`] if others have it mapped.
    pub fn offer_to(&self, (ino, to): (Ino, Member), index: u64) -> Result<Done> {
        self.offered(FarFile::OfferTo(ino, to, index))
    }

    /// It has all of what was offered by this stamp.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn accepted(&self, (ino, to): (Ino, Member), (index, stamp): (u64, u64)) -> Result<Done> {
        self.offered(FarFile::Accepted(ino, to, index, stamp))
    }

    fn offered(&self, asked: FarFile<'_>) -> Result<Done> {
        match self.0.call(Request::Far(asked))? {
            Reply::LentTo(LentTo { count, size, stamp }) => Ok(Done::Lent { count, size, stamp }),
            Reply::Offered(Offered { size, bytes, stamp }) => {
                Ok(Done::Offered { size, bytes, stamp })
            }
            Reply::Again => Ok(Done::Unknown),
            _ => Err(unexpected()),
        }
    }

    /// Where a chunk of another member's file is that is mapped here.
    fn mapped(&self, of: Number, index: u64) -> Result<Option<Chunks>> {
        match self.0.call(Request::Far(FarFile::Mapped(of, index)))? {
            Reply::Lent(loan) => Ok(Some(Chunks::new(loan))),
            Reply::Again => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// Reads bytes of such a chunk, from there on. False: it is not mapped here any more.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn read_mapped(
        &self,
        of: Number,
        (index, at): (u64, u32),
        into: &mut [u8],
    ) -> Result<bool> {
        let Some(chunks) = self.mapped(of, index)? else { return Ok(false) };
        chunks.read_all_lent(&self.0, into, index * CHUNK_BYTES + u64::from(at))
    }

    /// Writes bytes to such a chunk, from there on. False: it is not mapped here any more.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn write_mapped(&self, of: Number, (index, at): (u64, u32), bytes: &[u8]) -> Result<bool> {
        let Some(chunks) = self.mapped(of, index)? else { return Ok(false) };
        let offset = index * CHUNK_BYTES + u64::from(at);
        chunks.write_lent(&self.0, bytes, offset).map(|entry| entry.is_some())
    }

    /// Whether what was born on another machine is open on this one. Only for the server's own
    /// process.
    ///
    /// # Errors
    /// As those of [`Client::open_number`].
    pub fn is_open(&self, file: Number) -> Result<bool> {
        match self.0.call(Request::Far(FarFile::IsOpen(file)))? {
            Reply::IsOpen(is) => Ok(is),
            _ => Err(unexpected()),
        }
    }

    /// A description that an ancestor, or whoever passed us its descriptor, has opened.
    ///
    /// # Errors
    /// [`ErrorKind::BadHandle`] if it has ended: its descriptor is stale.
    pub fn adopt(&self, description: DescriptionSlot, nonce: u32) -> Result<File> {
        let stale = || Error::new(ErrorKind::BadHandle, "descriptor of a file that is closed");
        let words = self.0.memory.description(description.0).ok_or_else(stale)?;
        if nonce == 0 || !words.is(nonce) {
            return Err(stale());
        }
        let file = FileRef {
            ino: Ino(words.ino.load(Ordering::SeqCst)),
            slot: terral_format::ids::FileSlot(words.file.load(Ordering::SeqCst) as u32),
        };
        Ok(File::new(self.0.clone(), description, nonce, file, None))
    }

    /// Makes a directory.
    pub fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        if let Some(done) = self.0.make_directory_deferred(path, mode) {
            return done;
        }
        self.done(Request::MakeDirectory { path, mode })
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &[u8]) -> Result<()> {
        if let Some(done) = self.0.remove_directory_deferred(path) {
            return done;
        }
        self.done(Request::RemoveDirectory(path))
    }

    /// Removes a file's name.
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        if let Some(done) = self.0.unlink_deferred(path) {
            return done;
        }
        self.done(Request::Unlink(path))
    }

    /// Moves a name.
    pub fn rename(&self, from: &[u8], to: &[u8], how: RenameHow) -> Result<()> {
        if let Some(done) = self.0.rename_deferred(from, to, how) {
            return done;
        }
        self.done(Request::Rename { from, to, how })
    }

    /// Gives a file a further name.
    pub fn link(&self, path: &[u8], new: &[u8]) -> Result<()> {
        self.done(Request::Link { target: Target::Path(path), path: new })
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, path: &[u8], target: &[u8]) -> Result<()> {
        self.done(Request::MakeLink { path, target })
    }

    /// What a symbolic link says; [`ErrorKind::Invalid`] if it is none.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.0.read_link(path)
    }

    /// Where `path` leads when the symbolic links in it are followed, that of its last component
    /// only if `last`. It may have `.` and `..`; names that do not exist are no error, unless `..`
    /// follows.
    pub fn follow(&self, path: &[u8], last: bool) -> Result<Followed> {
        self.0.follow(path, last)
    }

    /// Makes a FIFO, or a socket that is bound to `address`, which says what the program calls it.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], and those of making names.
    pub fn make_node(&self, path: &[u8], kind: Kind, mode: u32, address: &[u8]) -> Result<Ino> {
        self.0.make_node(path, (kind, mode), address)
    }

    /// Attributes of a FIFO or socket by its place in the tables.
    ///
    /// # Errors
    /// [`ErrorKind::BadHandle`] if it has no name any more.
    pub fn node(&self, ino: Ino) -> Result<Seen> {
        self.0.node(ino)
    }

    /// What `st_ino` says of an inode: the same on every machine.
    pub fn number(&self, ino: Ino) -> Number {
        self.0.memory.number_of(ino)
    }

    /// Changes these.
    ///
    /// # Errors
    /// As [`Client::node`].
    pub fn change_node(&self, ino: Ino, change: Change) -> Result<()> {
        self.0.change_node(ino, change)
    }

    /// The path of a FIFO or socket, by one of its names.
    pub fn node_path(&self, ino: Ino) -> Option<Vec<u8>> {
        self.0.node_path(ino)
    }

    /// What the program called a socket when it bound it.
    pub fn address(&self, ino: Ino) -> Option<Vec<u8>> {
        self.0.address(ino)
    }

    /// The directory in which the kernel has the objects of FIFOs and sockets, as this process
    /// reaches it, and what that of a number is called.
    pub fn object(&self, ino: Ino) -> (PathBuf, String) {
        (self.0.nodes(), nodes::name(self.0.id(), ino))
    }

    /// Whose object has this path of the kernel's, if it is one of this instance.
    pub fn whose_object(&self, path: &[u8]) -> Option<Ino> {
        nodes::ino_of(self.0.id(), path)
    }

    /// All names of a directory, in order of their bytes, without `.` and `..`, and in the root
    /// without that of the [containers](crate::objects).
    pub fn list(&self, path: &[u8]) -> Result<Vec<Name>> {
        let mut names = self.0.list(path)?;
        if path.is_empty() {
            names.retain(|name| name.name != RESERVED);
        }
        Ok(names)
    }

    /// Changes attributes.
    pub fn change(&self, path: &[u8], change: Change) -> Result<()> {
        self.done(Request::Change { target: Target::Path(path), change })
    }

    /// The path of the file that a program runs a copy of, from the link of `/proc` that leads
    /// there; `None` if it is no copy of a file that is here.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it has no name any more.
    pub fn path_of_copy(&self, link: &[u8]) -> Result<Option<Vec<u8>>> {
        let here = |copied: &Copied<'_>| copied.instance == self.0.id();
        let Some(copied) = program::copied(link).filter(here) else { return Ok(None) };
        let find = || self.0.memory.path_of(copied.ino);
        if let Some(path) = find() {
            return Ok(Some(path));
        }
        // A name that was moved without waiting is in the table once the server answers.
        self.0.call(Request::Space)?;
        let gone = || Error::new(ErrorKind::NotFound, format!("file {}", copied.ino));
        find().map(Some).ok_or_else(gone)
    }

    /// How many bytes of a file take memory or lie in the backing, if it may have holes.
    pub fn data_bytes(&self, ino: Ino) -> Option<u64> {
        self.0.data_bytes(ino)
    }

    /// Makes a file `size` bytes long.
    pub fn truncate(&self, path: &[u8], size: u64) -> Result<()> {
        let token = own_token();
        self.done(Request::Truncate { target: Target::Path(path), size, token })
    }

    /// An extended attribute of a name; of a symbolic link, its own.
    ///
    /// # Errors
    /// [`ErrorKind::NoData`] if there is none of this name, [`ErrorKind::Unsupported`] for any
    /// name but `user.*`, [`ErrorKind::OutOfRange`] for one of no or more than 255 bytes.
    pub fn xattr(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        self.0.xattr(Target::Path(path), name)
    }

    /// Names of the extended attributes, in order.
    pub fn xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.0.xattrs(Target::Path(path))
    }

    /// Sets an extended attribute, or removes it (`None`).
    ///
    /// # Errors
    /// As [`Client::xattr`]; [`ErrorKind::Exists`] and [`ErrorKind::NoData`] as `how` demands,
    /// [`ErrorKind::TooBig`] for a value of more than 8 KiB, [`ErrorKind::NoSpace`] for more than
    /// 64 KiB of names and values in all.
    pub fn set_xattr(
        &self,
        path: &[u8],
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrHow,
    ) -> Result<()> {
        self.0.set_xattr(Target::Path(path), name, value, how)
    }

    /// Bytes and names, used and free.
    pub fn space(&self) -> Result<Space> {
        match self.0.call(Request::Space)? {
            Reply::Space(space) => Ok(space),
            _ => Err(unexpected()),
        }
    }

    /// How the server is.
    pub fn status(&self) -> Result<Status> {
        match self.0.call(Request::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(unexpected()),
        }
    }

    /// Where a file's bytes are.
    pub fn safety(&self, path: &[u8]) -> Result<Safety> {
        match self.0.call(Request::Safety(path))? {
            Reply::Safety(safety) => Ok(*safety),
            _ => Err(unexpected()),
        }
    }

    /// How all servers of the partition are, in order; none if there is one alone. Who does not
    /// answer within two seconds has no status. If `hasten`, all bring what they owe, as with
    /// [`Client::flush`].
    pub fn everywhere(&self, hasten: bool) -> Result<Vec<MemberAnswer>> {
        match self.0.call(Request::Everywhere { hasten })? {
            Reply::Everywhere(answers) => Ok(answers),
            _ => Err(unexpected()),
        }
    }

    /// Has the drain take up everything written so far, also of files that stay open.
    pub fn flush(&self) -> Result<()> {
        self.done(Request::Flush)
    }

    /// No more work will come: the server drains all, and leaves when it is alone and owes nothing.
    pub fn finish(&self) -> Result<()> {
        self.done(Request::Finish)
    }

    /// As [`Client::finish`]; a member of a partition leaves that in order. `loses`: also where
    /// there is no permanent directory, and others lose the files that only it has.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) if it lets others in, and some are in;
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if files would be lost.
    pub fn stop(&self, loses: bool) -> Result<()> {
        self.done(Request::Stop(loses))
    }

    /// The server leaves now; what it owes stays in memory for `terral recover`.
    pub fn leave(&self) -> Result<()> {
        self.done(Request::Leave)
    }
}
