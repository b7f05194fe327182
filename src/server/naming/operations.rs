//! The naming role: what requests on names and descriptions do.

use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::ids::{DescriptionSlot, FileSlot, Ino, ROOT, SessionSlot};
use terral_format::local::names::{Inode, flag};
use terral_format::local::tables::{SHARED, access};
use terral_format::wire::message::{
    Attributes, Change, FileRef, Kind, Name, OpenHow, Reply, Safety, Space, Target,
};
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::names::is_known;
use crate::storage::granting::LARGE_BYTES;

/// What is made in a directory with this bit gets its group, and a directory the bit (mkdir(2)).
pub(crate) const SET_GROUP: u16 = 0o2000;
/// What is in a directory with this bit is removed by its owner or the directory's only.
const STICKY: u16 = 0o1000;
/// `w` of permission bits.
const WRITE: u32 = 2;
/// Bytes of names in one reply; leaves room for the rest of the message.
const NAMES_BYTES: usize = 12 << 10;

/// The error for what only its owner may do, or root.
pub(crate) fn not_permitted(path: &[u8]) -> Error {
    let kind = ErrorKind::Unauthorized;
    Error { kind, errno: kind.to_errno(), context: format!("{}: not yours", shown(path)) }
}

impl State {
    /// Refuses a user whom the permission bits do not let in (`want`: r 4, w 2, x 1).
    pub(crate) fn permit(&self, attributes: &Attributes, want: u32, path: &[u8]) -> Result<()> {
        if self.person.may(attributes, want) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Denied, shown(path)))
    }

    fn permit_opening(&self, attributes: &Attributes, how: OpenHow, path: &[u8]) -> Result<()> {
        let read = u64::from(how.access) & access::READ != 0;
        let write = u64::from(how.access) & access::WRITE != 0 || how.truncate;
        let want = if read { 4 } else { 0 } | if write { 2 } else { 0 };
        self.permit(attributes, want, path)
    }

    pub(crate) fn permit_change_in(&self, directory: Ino, path: &[u8]) -> Result<()> {
        match self.names.inode(directory) {
            Some(inode) => self.permit(&inode.attributes(), 3, path),
            None => Err(Error::new(ErrorKind::NotFound, shown(path))),
        }
    }

    /// Refuses to take `name`, which is `ino`, from a directory where that may not be (unlink(2)).
    pub(crate) fn permit_removal(&self, directory: Ino, ino: Ino, path: &[u8]) -> Result<()> {
        self.permit_change_in(directory, path)?;
        let found = [directory, ino].map(|ino| self.names.inode(ino));
        let [Some(directory), Some(inode)] = found else { return Ok(()) };
        let own = [directory, inode].iter().any(|inode| self.person.owns(&inode.attributes()));
        if directory.mode & STICKY == 0 || own { Ok(()) } else { Err(not_permitted(path)) }
    }

    /// Opens or creates.
    pub fn open(&mut self, session: SessionSlot, path: &[u8], how: OpenHow) -> Result<Reply> {
        let ino = match path {
            _ if how.unnamed => self.make_unnamed(path, how)?,
            b"" => ROOT,
            path => self.open_name(path, how)?,
        };
        self.open_ino(session, ino, path, how)
    }

    /// Opens an open file once more.
    pub fn reopen(&mut self, session: SessionSlot, file: FileRef, how: OpenHow) -> Result<Reply> {
        let ino = self.target(&Target::File(file))?;
        let path = self.names.path(ino).unwrap_or_default();
        let attributes = self.attributes(ino);
        let missing = || Error::new(ErrorKind::NotFound, shown(&path));
        self.permit_opening(&attributes.ok_or_else(missing)?, how, &path)?;
        self.open_ino(session, ino, &path, how)
    }

    fn open_ino(
        &mut self,
        session: SessionSlot,
        ino: Ino,
        path: &[u8],
        how: OpenHow,
    ) -> Result<Reply> {
        let writes = u64::from(how.access) & access::WRITE != 0;
        let missing = || Error::new(ErrorKind::NotFound, shown(path));
        let inode = self.names.inode(ino).ok_or_else(missing)?;
        let link = inode.kind == Kind::Symlink;
        let mut access = how.access;
        if !link {
            access &= !(access::LINK as u8);
        } else if u64::from(access) & access::LINK == 0 {
            return Err(Error::new(ErrorKind::Link, shown(path)));
        }
        if inode.is_directory() && (writes || how.truncate || how.create) {
            return Err(Error::new(ErrorKind::IsDirectory, shown(path)));
        }
        if how.directory && !inode.is_directory() {
            return Err(Error::new(ErrorKind::NotDirectory, shown(path)));
        }
        let opens = u64::from(how.access) & (access::READ | access::WRITE) != 0;
        if inode.kind.is_node() && opens {
            return self.open_node(&inode, path);
        }
        if how.truncate && inode.kind != Kind::File {
            return Err(Error::new(ErrorKind::Invalid, shown(path)));
        }
        if writes || how.truncate {
            self.permit_writing(ino)?;
        }
        let slot = match inode.kind {
            Kind::File => self.attach(ino)?,
            _ => FileSlot::NONE,
        };
        let file = FileRef { ino, slot };
        if how.truncate {
            self.lose_set_id(ino);
        }
        if how.truncate && self.storage.size(slot) > 0 {
            self.truncate(ino, 0)?;
        } else if how.truncate {
            self.storage.memory().header(slot).wrote(self.storage.time_ns());
            self.owe(ino);
        }
        let memory = self.storage.memory();
        let description = self.descriptions.reserve(&*self.machine, memory)?;
        let nonce = self.new_nonce();
        self.write_description(description, nonce, file, access);
        self.record(Local::Opened { description, nonce, ino, access, session });
        if writes {
            self.owe(ino);
            if inode.kind == Kind::File {
                self.install_first(session, file);
            }
        }
        Ok(Reply::Opened { description, nonce, file })
    }

    /// The inode to open, made if it must be.
    fn open_name(&mut self, path: &[u8], how: OpenHow) -> Result<Ino> {
        let (parent, name) = self.resolve_parent(path)?;
        let there =
            if how.create { self.child_or_new(parent, name) } else { self.child(parent, name) };
        match there? {
            Some(_) if how.create && how.exclusive => {
                Err(Error::new(ErrorKind::Exists, shown(path)))
            }
            Some(ino) => {
                let missing = || Error::new(ErrorKind::NotFound, shown(path));
                let attributes = self.attributes(ino).ok_or_else(missing)?;
                self.permit_opening(&attributes, how, path)?;
                Ok(ino)
            }
            None if how.create => {
                self.permit_change_in(parent, path)?;
                let ino = self.make(parent, name, Kind::File, how.mode, b"");
                self.owe(ino);
                Ok(ino)
            }
            None => Err(Error::new(ErrorKind::NotFound, shown(path))),
        }
    }

    /// A file that has no name yet, in the directory at `path`.
    fn make_unnamed(&mut self, path: &[u8], how: OpenHow) -> Result<Ino> {
        let parent = self.resolve(path)?;
        let refuse = |kind| Err(Error::new(kind, shown(path)));
        match self.names.inode(parent).map(|inode| inode.kind) {
            Some(Kind::Directory) => {}
            Some(Kind::Symlink) => return refuse(ErrorKind::Link),
            _ => return refuse(ErrorKind::NotDirectory),
        }
        self.permit_change_in(parent, path)?;
        Ok(self.make(parent, b"", Kind::File, how.mode, b""))
    }

    pub(crate) fn make(
        &mut self,
        parent: Ino,
        name: &[u8],
        kind: Kind,
        mode: u32,
        target: &[u8],
    ) -> Ino {
        let ino = self.names.next_ino();
        self.make_as(ino, (parent, name), kind, (mode, target), self.storage.time_ns());
        ino
    }

    pub(crate) fn make_as(
        &mut self,
        ino: Ino,
        (parent, name): (Ino, &[u8]),
        kind: Kind,
        (mode, target): (u32, &[u8]),
        time_ns: u64,
    ) {
        let above = self.names.inode(parent).filter(|above| above.mode & SET_GROUP != 0);
        let directory = kind == Kind::Directory && above.is_some();
        let mode = if directory { mode | u32::from(SET_GROUP) } else { mode };
        self.record(Fact::Made {
            parent,
            name: name.into(),
            ino,
            kind,
            mode: mode & 0o7777,
            uid: self.person.user,
            gid: above.map_or(self.person.group, |above| above.gid),
            time_ns,
            target: target.into(),
        });
    }

    pub(crate) fn write_description(
        &self,
        at: DescriptionSlot,
        nonce: u32,
        file: FileRef,
        how: u8,
    ) {
        let words = self.storage.memory().description(at);
        let values = [0, file.ino.0, file.slot.0.into(), how.into(), 0];
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::SeqCst);
        }
        words[0].store(nonce.into(), Ordering::SeqCst);
    }

    /// A descriptor of this description was closed: it ends if that was the last.
    pub fn close(&mut self, description: DescriptionSlot, nonce: u32) -> Result<()> {
        match self.descriptions.get(description) {
            Some(open) if open.nonce == nonce => {}
            _ => return Ok(()),
        }
        self.close_if_unheld(description, true)
    }

    pub(crate) fn close_if_unheld(
        &mut self,
        description: DescriptionSlot,
        asked: bool,
    ) -> Result<()> {
        let Some(open) = self.descriptions.get(description).copied() else { return Ok(()) };
        let kernel = u64::from(open.access) & access::KERNEL != 0;
        let words = self.storage.memory().description(description);
        let shared = words[0].load(Ordering::SeqCst) & SHARED != 0;
        // Whoever has it in hand may have created, shared and closed it already, and not be heard.
        let in_hand = self.names.inode(open.ino).is_some_and(|inode| inode.is(flag::SPARE));
        let held = if kernel && shared && !in_hand {
            self.machine.is_held(description)?
        } else {
            // Nobody but its opener can have it.
            !asked && self.sessions.client(open.session).is_some()
        };
        if held {
            return Ok(());
        }
        self.storage.memory().description(description)[0].store(0, Ordering::SeqCst);
        self.record(Local::Closed { description });
        let wrote = u64::from(open.access) & access::WRITE != 0;
        let new = self.names.inode(open.ino).is_some_and(|inode| inode.published.is_none());
        if (wrote || new) && self.differs(open.ino) {
            self.owe(open.ino);
            let size = self.attributes(open.ino).map_or(0, |attributes| attributes.size);
            if size >= LARGE_BYTES && !self.names.is_written(open.ino) {
                self.debts.hurry(open.ino, self.world.now());
            }
        }
        self.settle_closed(open.ino)
    }

    /// Whether the backing does not have a file as it is now.
    pub fn differs(&self, ino: Ino) -> bool {
        let file = |inode: &Inode| inode.kind == Kind::File && inode.is(flag::NAMED);
        let Some(inode) = self.names.inode(ino).filter(file) else {
            return false;
        };
        let Some(found) = inode.published else { return true };
        let flags = [flag::REWRITTEN, flag::INTENT, flag::CONTESTED];
        if flags.into_iter().any(|flag| inode.is(flag)) {
            return true;
        }
        let size = self.attributes(ino).map_or(0, |attributes| attributes.size);
        // Cut, and grown again since.
        let cut = self.backed_bytes(&inode) < size;
        let dirty = || inode.slot.is_some_and(|slot| self.storage.resident(slot).1 > 0);
        found.size() != size || cut || dirty()
    }

    /// Ends the descriptions nobody holds any more: all that may be, or those that `gone` may have
    /// held.
    pub fn close_unheld(&mut self, gone: Option<SessionSlot>) -> Result<()> {
        let kernel = |access: u8| u64::from(access) & access::KERNEL != 0;
        let suspects: Vec<DescriptionSlot> = self
            .descriptions
            .iter()
            .filter(|(_, open)| gone.is_none_or(|s| kernel(open.access) || open.session == s))
            .map(|(slot, _)| slot)
            .collect();
        suspects.into_iter().try_for_each(|slot| self.close_if_unheld(slot, false))
    }

    /// Ends the descriptions that only a dead session can have, and those that nobody holds.
    pub(crate) fn close_all_of(&mut self, session: SessionSlot) -> Result<()> {
        let own = self.descriptions.iter().filter(|(_, open)| open.session == session);
        let own: Vec<DescriptionSlot> = own.map(|(slot, _)| slot).collect();
        own.into_iter().try_for_each(|slot| self.close_if_unheld(slot, true))
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, path: &[u8], mode: u32) -> Result<()> {
        if path.is_empty() {
            return Err(Error::new(ErrorKind::Exists, "/"));
        }
        let (parent, name) = self.resolve_parent(path)?;
        if self.child_or_new(parent, name)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, shown(path)));
        }
        self.permit_change_in(parent, path)?;
        self.make(parent, name, Kind::Directory, mode, b"");
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.resolve_parent(path)?;
        let missing = || Error::new(ErrorKind::NotFound, shown(path));
        let ino = self.child(parent, name)?.ok_or_else(missing)?;
        self.permit_removal(parent, ino, path)?;
        if !self.names_of(ino)?.is_empty() {
            return Err(Error::new(ErrorKind::NotEmpty, shown(path)));
        }
        self.record(Fact::Removed { parent, name: name.into(), time_ns: self.storage.time_ns() });
        Ok(())
    }

    /// Removes a file's name.
    pub fn unlink(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.resolve_parent(path)?;
        let missing = || Error::new(ErrorKind::NotFound, shown(path));
        let ino = self.child(parent, name)?.ok_or_else(missing)?;
        self.permit_removal(parent, ino, path)?;
        if self.names.inode(ino).is_some_and(|inode| inode.is_directory()) {
            return Err(Error::new(ErrorKind::IsDirectory, shown(path)));
        }
        self.keep_for_openers(ino)?;
        self.record(Fact::Removed { parent, name: name.into(), time_ns: self.storage.time_ns() });
        Ok(())
    }

    /// Changes attributes.
    pub fn change(&mut self, target: &Target<'_>, change: Change) -> Result<()> {
        let ino = self.target(target)?;
        self.permit_attributes(ino, &change)?;
        let change = self.without_set_id(ino, change);
        self.record(Fact::Changed { ino, change, time_ns: change.made_ns(self.storage.time_ns()) });
        if let Some(slot) = self.names.inode(ino).and_then(|inode| inode.slot) {
            let header = self.storage.memory().header(slot);
            if let Some(time) = change.modified_ns {
                header.modified_ns().store(time, Ordering::SeqCst);
            }
            if let Some(time) = change.accessed_ns {
                header.accessed_ns().store(time, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// Who gives an executable file away takes its set-id bits off, root too, and also if it stays
    /// whose it is (chown(2)): a change of nothing is such a one.
    pub(crate) fn without_set_id(&self, ino: Ino, change: Change) -> Change {
        let bits = |inode: &Inode| inode.kind == Kind::File || inode.kind.is_node();
        let Some(inode) = self.names.inode(ino).filter(bits) else { return change };
        let timed = change.accessed_ns.is_some() || change.modified_ns.is_some();
        if change.mode.is_some() || timed {
            return change;
        }
        let mode = u32::from(inode.mode);
        let group = if mode & 0o010 == 0 { 0 } else { 0o2000 };
        let kept = mode & !(0o4000 | group);
        Change { mode: (kept != mode).then_some(kept), ..change }
    }

    /// A file that somebody else than root changes gives its runner no rights (write(2)).
    pub fn drop_set_id(&mut self, file: FileRef) -> Result<()> {
        let ino = self.open_file(file)?.ino;
        self.lose_set_id(ino);
        Ok(())
    }

    pub(crate) fn lose_set_id(&mut self, ino: Ino) {
        let change = self.without_set_id(ino, Change::default());
        if change.mode.is_some() && !self.person.is_root() {
            self.record(Fact::Changed { ino, change, time_ns: self.storage.time_ns() });
        }
    }

    /// Makes a file `size` bytes long. By its path, one that is so already stays as it is; by a
    /// descriptor, it counts as written (truncate(2)).
    pub fn truncate_target(&mut self, target: &Target<'_>, size: u64) -> Result<()> {
        let ino = self.target(target)?;
        self.permit_truncate(ino)?;
        if let (Target::Path(path), Some(now)) = (target, self.attributes(ino)) {
            self.permit(&now, 2, path)?;
            self.permit_writing(ino)?;
            if now.size == size {
                self.lose_set_id(ino);
                return Ok(());
            }
        }
        self.lose_set_id(ino);
        self.truncate(ino, size)
    }

    /// Only a file has bytes to cut.
    fn permit_truncate(&self, ino: Ino) -> Result<()> {
        let kind = match self.names.inode(ino).map(|inode| inode.kind) {
            Some(Kind::Directory) => ErrorKind::IsDirectory,
            Some(Kind::Symlink) => ErrorKind::Link,
            Some(Kind::Fifo | Kind::Socket) => ErrorKind::Invalid,
            Some(Kind::File) | None => return Ok(()),
        };
        Err(Error::new(kind, shown(&self.names.path(ino).unwrap_or_default())))
    }

    /// Only the owner changes attributes, and only root gives a file away (chown(2)).
    pub(crate) fn permit_attributes(&self, ino: Ino, change: &Change) -> Result<()> {
        let Some(inode) = self.names.inode(ino) else { return Ok(()) };
        let is = inode.attributes();
        let gives_away = change.uid.is_some_and(|uid| uid != is.uid)
            || change.gid.is_some_and(|gid| gid != is.gid && !self.person.is_in(gid));
        if self.person.is_root() || (self.person.owns(&is) && !gives_away) {
            return Ok(());
        }
        // Who may write to it may say that it is used now (utimensat(2)). Files are opened.
        if is.kind.is_node() && change.is_now(self.storage.time_ns()) && self.person.may(&is, WRITE)
        {
            return Ok(());
        }
        Err(not_permitted(&self.names.path(ino).unwrap_or_default()))
    }

    /// Names of a directory after `after`.
    pub fn list(&mut self, path: &[u8], after: &[u8]) -> Result<Reply> {
        let directory = self.resolve(path)?;
        let fresh =
            after.is_empty() || self.listing.as_ref().is_none_or(|(of, _)| *of != directory);
        if fresh {
            let names = self.names_of(directory)?;
            self.listing = Some((directory, names));
        }
        let names: &[Name] = self.listing.as_ref().map_or(&[], |(_, names)| names);
        let first = names.partition_point(|name| name.name.as_slice() <= after);
        let mut bytes = 0;
        let fits = |name: &&Name| {
            bytes += name.name.len() + 24;
            bytes <= NAMES_BYTES
        };
        let page: Vec<Name> = names[first..].iter().take_while(fits).cloned().collect();
        let last = first + page.len() == names.len();
        if last {
            self.listing = None;
        }
        Ok(Reply::Names { names: page, last })
    }

    /// Bytes and names, used and free.
    pub fn space(&self) -> Space {
        let page = terral_format::local::geometry::PAGE_BYTES as u64;
        let total_bytes = u64::from(self.began.geometry.arena_pages()) * page;
        let files = u64::from(self.began.geometry.files);
        Space {
            total_bytes,
            free_bytes: total_bytes - self.storage.used_bytes().min(total_bytes),
            total_files: files,
            free_files: files.saturating_sub(self.names.count()),
        }
    }

    /// Where a file's bytes are.
    pub fn safety(&mut self, path: &[u8]) -> Result<Safety> {
        let ino = self.resolve(path)?;
        let missing = || Error::new(ErrorKind::NotFound, shown(path));
        let attributes = self.attributes(ino).ok_or_else(missing)?;
        let inode = self.names.inode(ino).ok_or_else(missing)?;
        let memory_bytes = inode.slot.map_or(0, |slot| self.storage.resident(slot).0);
        let owed_bytes = inode.slot.map_or(0, |slot| self.storage.owed_bytes(slot));
        let debt = self.debts.get(ino);
        let known = inode.published.is_some() || (inode.kind != Kind::File && is_known(&inode));
        Ok(Safety {
            attributes,
            memory_bytes,
            owed_bytes: if self.backing.is_some() { owed_bytes } else { 0 },
            in_backing: self.backing.is_some()
                && known
                && !inode.is(flag::REWRITTEN)
                && debt.is_none()
                && self.names.owed().is_empty(),
            open_for_writing: self.is_written(ino),
            failure: debt.and_then(|debt| debt.failure.clone()),
        })
    }
}
