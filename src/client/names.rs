//! What the server's table in shared memory says of names and attributes, without a message.
//!
//! Whatever it cannot say for certain is answered by the server: names that only the backing has,
//! and those that are just being changed.

use std::sync::atomic::{Ordering, fence};

use terral_format::ids::{FileSlot, Ino, Number, ROOT};
use terral_format::local::deferred::{CHANGE_BYTES, Key, Pending};
use terral_format::local::geometry::NAME_MAX;
use terral_format::local::lease::Until;
use terral_format::local::names::{Inode, Lookup, Table, flag, hash, index_of};
use terral_format::wire::message::{Attributes, Kind, Name, Reply, Request, Seen, Target};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::permission::acting;

use crate::borrowed::is_over;
use crate::pending::{self, Known};
use crate::session::{Connection, Memory, unexpected};

/// What a directory must let who looks for a name in it.
const SEARCH: u32 = 1;

/// Whether the table need not have all names of a directory with these marks.
fn has_some(marks: u16) -> bool {
    let copied = flag::BORROWED | flag::ELSEWHERE;
    marks & flag::OVERLAY != 0 || marks & copied == copied
}

impl Memory {
    /// Runs `look` on the table, unless a server is just writing it anew.
    pub(crate) fn look<T>(&self, look: impl FnOnce(Table<'_>) -> Option<T>) -> Option<T> {
        let table = self.names();
        let epoch = table.epoch().load(Ordering::Acquire);
        if epoch == 0 {
            return None;
        }
        let found = look(table);
        fence(Ordering::Acquire);
        found.filter(|_| table.epoch().load(Ordering::Relaxed) == epoch)
    }

    fn step(&self, table: Table<'_>, person: &Person, directory: &Inode, name: &[u8]) -> Known {
        if directory.kind != Kind::Directory {
            let link = directory.kind == Kind::Symlink;
            return Known::Not(if link { ErrorKind::Link } else { ErrorKind::NotDirectory });
        }
        self.while_there(table, directory, |directory| {
            if !person.is_root() && !person.may(&directory.attributes(), SEARCH) {
                return Known::Not(ErrorKind::Denied);
            }
            if name.len() > NAME_MAX {
                return Known::Not(ErrorKind::NameTooLong);
            }
            self.child_now(table, directory, name)
        })
    }

    /// What has a name in a directory.
    pub(crate) fn child(&self, table: Table<'_>, directory: &Inode, name: &[u8]) -> Known {
        self.while_there(table, directory, |directory| self.child_now(table, directory, name))
    }

    /// A look at a directory, which may be another machine's.
    fn while_there(
        &self,
        table: Table<'_>,
        directory: &Inode,
        look: impl FnOnce(&Inode) -> Known,
    ) -> Known {
        let (until, now) = self.until_seen(directory, || table.find(directory.ino));
        if until == Until::NEVER {
            return Known::Unknown;
        }
        let known = look(now.as_ref().unwrap_or(directory));
        if is_over(until) { Known::Unknown } else { known }
    }

    fn child_now(&self, table: Table<'_>, directory: &Inode, name: &[u8]) -> Known {
        // First the deferred changes, then the table: see `terral_format::local::deferred`.
        let key = Key::name(hash(index_of(directory.ino), name));
        if self.deferred().is_pending(key) {
            let mut buffer = [0; CHANGE_BYTES];
            match self.deferred().latest(key, pending::master, &mut buffer) {
                Pending::Change(bytes) => {
                    return pending::name_after(table, bytes, (directory, name));
                }
                Pending::Unsure => return Known::Unknown,
                Pending::Nothing => {}
            }
        }
        // Of one that is to come, all is deferred that is in it.
        if directory.is(flag::PREALLOCATED) && table.find(directory.ino).is_none() {
            let comes = self.is_to_come(directory);
            return if comes { Known::Not(ErrorKind::NotFound) } else { Known::Unknown };
        }
        match table.lookup(directory.ino, name) {
            Lookup::Found(inode) => table.file_of(&inode).map_or(Known::Unknown, Known::Here),
            Lookup::Missing if !has_some(directory.flags) => Known::Not(ErrorKind::NotFound),
            Lookup::Missing | Lookup::Unsure => Known::Unknown,
        }
    }

    /// Whether a directory was made that the table does not have yet.
    pub(crate) fn is_to_come(&self, directory: &Inode) -> bool {
        let (key, mut buffer) = (Key::name(directory.hash), [0; CHANGE_BYTES]);
        match self.deferred().latest(key, pending::master, &mut buffer) {
            Pending::Change(bytes) => pending::makes(bytes, directory.ino),
            Pending::Nothing | Pending::Unsure => false,
        }
    }

    /// Whether changes of names in a directory were deferred, or cannot be read just now.
    fn is_touched(&self, directory: Ino) -> bool {
        let touched = |bytes: &[u8]| pending::touches(bytes, directory);
        !self.deferred().names_are(None, index_of(directory), |bytes| !touched(bytes))
    }

    /// Follows a path, relative and normal, through the table; not through symbolic links.
    pub(crate) fn walk(&self, path: &[u8]) -> Known {
        let person = &acting().person;
        let known = self.look(|table| {
            let mut at = table.find(ROOT)?;
            for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                match self.step(table, person, &at, name) {
                    Known::Here(inode) => at = inode,
                    other => return Some(other),
                }
            }
            Some(Known::Here(at))
        });
        known.unwrap_or(Known::Unknown)
    }

    /// Whether there is no such name, for sure.
    pub(crate) fn lacks(&self, path: &[u8]) -> bool {
        matches!(self.walk(path), Known::Not(ErrorKind::NotFound))
    }

    /// Attributes of an inode now: what writers change lies in its header.
    fn attributes(&self, inode: &Inode) -> Option<Seen> {
        let mut attributes = inode.attributes();
        if let Some(slot) = inode.slot {
            self.written(slot, &mut attributes)?;
        }
        Some(Seen { number: inode.number(self.member()), attributes })
    }

    fn written(&self, slot: FileSlot, attributes: &mut Attributes) -> Option<()> {
        let header = self.header(slot)?;
        attributes.size = terral_format::local::size::SizeWord::load(&header.size).size();
        attributes.modified_ns = header.modified_ns.load(Ordering::Acquire);
        attributes.accessed_ns = header.accessed_ns.load(Ordering::Acquire);
        let changed_ns = header.changed_ns.load(Ordering::Acquire);
        attributes.changed_ns = attributes.changed_ns.max(changed_ns);
        (self.record(slot)?.ino.load(Ordering::Acquire) == attributes.ino.0).then_some(())
    }

    /// Attributes of an inode, if the table has it.
    pub(crate) fn attributes_of(&self, ino: Ino) -> Option<Seen> {
        let find = || self.look(|table| table.find(ino));
        let (inode, deferred) = (find()?, self.deferred());
        let (until, _) = self.until_seen(&inode, find);
        // First the deferred changes, then the table: see `terral_format::local::deferred`.
        let pending = match inode.kind {
            // Whatever comes or goes in a directory changes its times.
            Kind::Directory => self.is_touched(ino),
            _ => {
                deferred.is_pending(Key::attributes(index_of(ino)))
                    || deferred.is_pending(Key::name(inode.hash))
            }
        };
        if pending {
            return None;
        }
        let found = find().filter(|inode| !inode.is(flag::PREALLOCATED));
        found.and_then(|inode| self.attributes(&inode)).filter(|_| !is_over(until))
    }

    /// What `st_ino` says of an inode, of which the table need not know any more.
    pub(crate) fn number_of(&self, ino: Ino) -> Number {
        let here = self.member();
        let found = self.look(|table| table.find(ino));
        found.map_or(Number::of(here, ino), |inode| inode.number(here))
    }

    /// Attributes of what was just made, and the table may not have yet.
    fn attributes_to_come(&self, made: &Inode) -> Option<Seen> {
        let pending = match made.kind {
            Kind::Directory => self.is_touched(made.ino),
            _ => self.deferred().is_pending(Key::attributes(index_of(made.ino))),
        };
        if pending {
            return None;
        }
        // What is not pending may have been a moment ago: then the table has it, as it comes there
        // after what was made.
        match self.look(|table| table.find(made.ino)) {
            Some(still) if still.is(flag::PREALLOCATED) => self.attributes(made),
            None if self.is_to_come(made) => self.attributes(made),
            _ => self.attributes_of(made.ino),
        }
    }

    /// The path of an inode, if the table has it.
    pub(crate) fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        let moves = |hash| self.deferred().is_pending(Key::name(hash));
        // Somebody may be renaming just now; for long nobody does.
        (0..64).find_map(|_| self.look(|table| table.path(ino, moves)))
    }

    /// Attributes of a name; `None`: ask the server.
    pub(crate) fn stat(&self, path: &[u8]) -> Option<Result<Seen>> {
        match self.walk(path) {
            Known::Here(made) if made.is(flag::PREALLOCATED) => {
                self.attributes_to_come(&made).map(Ok)
            }
            Known::Here(inode) => self.attributes_of(inode.ino).map(Ok),
            Known::Not(kind) => Some(Err(Error::new(kind, shown(path)))),
            Known::Unknown => None,
        }
    }

    /// All names of a directory, in order of their bytes; `None`: ask the server.
    pub(crate) fn list(&self, path: &[u8]) -> Option<Vec<Name>> {
        let Known::Here(directory) = self.walk(path) else { return None };
        let find = || self.look(|table| table.find(directory.ino));
        let (until, now) = self.until_seen(&directory, find);
        let marks = now.map_or(directory.flags, |now| now.flags);
        if directory.kind != Kind::Directory || has_some(marks) {
            return None;
        }
        if self.is_touched(directory.ino) {
            return None;
        }
        let here = self.member();
        let mut names = self.look(|table| table.children(directory.ino, usize::MAX, here))?;
        if is_over(until) {
            return None;
        }
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Some(names)
    }
}

/// The directory in the root that no listing shows: what is in it is found by addresses. Not for
/// names of anybody else.
pub const RESERVED: &[u8] = b".terral-objects";

/// A path for a person.
pub(crate) fn shown(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

/// Whether the next component leads up, which needs the one before it to be there.
fn climbs(todo: &[Vec<u8>]) -> bool {
    todo.last().is_some_and(|next| next == b"..")
}

/// Most symbolic links followed in one path, as in Linux.
const LINKS_MAX: usize = 40;

/// Where a path leads when symbolic links are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// To this path, which has no link on its way.
    Here(Vec<u8>),
    /// Out of the namespace: to this absolute path, or one that is relative to the parent of the
    /// root (`..` above it).
    Outside(Vec<u8>),
}

impl Connection {
    /// Attributes of a name; `None`: ask the server.
    pub(crate) fn seen(&self, path: &[u8]) -> Option<Result<Seen>> {
        if self.asks() { None } else { self.memory.stat(path) }
    }

    /// Attributes of a name, from the server.
    pub(crate) fn stat_there(&self, path: &[u8]) -> Result<Seen> {
        match self.call(Request::Stat(Target::Path(path)))? {
            Reply::Attributes(seen) => Ok(seen),
            _ => Err(unexpected()),
        }
    }

    /// All names of a directory, in order of their bytes, without `.` and `..`.
    pub(crate) fn list(&self, path: &[u8]) -> Result<Vec<Name>> {
        let known = (!self.asks()).then(|| self.memory.list(path)).flatten();
        if let Some(names) = known {
            return Ok(names);
        }
        let mut names: Vec<Name> = Vec::new();
        loop {
            let after = names.last().map_or(&[][..], |name| &name.name).to_vec();
            match self.call(Request::List { path, after: &after })? {
                Reply::Names { names: more, last } => {
                    let empty = more.is_empty();
                    names.extend(more);
                    if last || empty {
                        return Ok(names);
                    }
                }
                _ => return Err(unexpected()),
            }
        }
    }

    /// What a symbolic link says.
    pub(crate) fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        if !self.asks()
            && let Known::Here(link) = self.memory.walk(path)
            && let Some(target) = self.memory.look(|table| table.target(link.ino))
        {
            return Ok(target);
        }
        match self.call(Request::ReadLink(path))? {
            Reply::LinkTarget(target) => Ok(target),
            _ => Err(unexpected()),
        }
    }

    /// What is at a path, asking the server where the table does not know.
    fn find(&self, path: &[u8]) -> Result<Kind> {
        let found = self.seen(path);
        found.unwrap_or_else(|| self.stat_there(path)).map(|attributes| attributes.kind)
    }

    /// Follows the symbolic links of `path`, the last component's only if `last`. Components may be
    /// `.` and `..`; what does not exist is left as it is, but nothing leads up from it.
    pub(crate) fn follow(&self, path: &[u8], last: bool) -> Result<Followed> {
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
            parts.map(<[u8]>::to_vec).rev().collect()
        };
        let mut todo = parts(path);
        let mut here: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            match part.as_slice() {
                b"." => continue,
                b".." if here.pop().is_some() => continue,
                b".." => {
                    todo.push(part);
                    todo.reverse();
                    return Ok(Followed::Outside(todo.join(&b'/')));
                }
                _ => here.push(part),
            }
            if todo.is_empty() && !last {
                break;
            }
            let path = here.join(&b'/');
            match self.find(&path) {
                Ok(Kind::Symlink) => {}
                Ok(_) => continue,
                Err(error) if error.kind == ErrorKind::NotFound && !climbs(&todo) => continue,
                Err(error) => return Err(error),
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::new(ErrorKind::Loop, shown(&path)));
            }
            let target = self.read_link(&path)?;
            here.pop();
            todo.extend(parts(&target));
            if target.first() == Some(&b'/') {
                todo.reverse();
                return Ok(Followed::Outside([b"/", &todo.join(&b'/')[..]].concat()));
            }
        }
        Ok(Followed::Here(here.join(&b'/')))
    }
}
