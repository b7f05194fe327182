//! Names made, moved and removed without waiting for the server, in directories of which it knows
//! all names. See `terral_format::local::deferred`.

use std::sync::atomic::Ordering;

use terral_format::ids::Ino;
use terral_format::local::changes::Deferred;
use terral_format::local::deferred::{Claim, Key};
use terral_format::local::geometry::{HAND_INOS, HAND_MORE_INOS, NAME_MAX};
use terral_format::local::names::{Inode, flag, hash, index_of};
use terral_format::local::tables::{Description, FileHeader, access};
use terral_format::wire::capability::Operations;
use terral_format::wire::message::{Kind, OpenFile, OpenHow, RenameHow};
use terral_format::{ErrorKind, Result};
use terral_transport::permission::acting;

use crate::deferred::Held;
use crate::in_hand::{put_back, take_one};
use crate::pending::{self, Known};
use crate::session::Connection;

/// Sticky directories (mode 01000) need a look at who owns what.
const STICKY: u16 = 0o1000;
/// What a directory must let who makes or removes a name in it: write and search.
const CHANGE: u32 = 3;
/// Whoever removes a directory looks at no more names that are left in it and may be going.
const LEFT_MAX: usize = 256;
/// Inode numbers in hand, at most.
const INOS: usize = HAND_INOS + HAND_MORE_INOS;

/// A name: where, and what it is called.
type Place<'p> = (Inode, &'p [u8]);

/// User and group of who makes something.
fn by() -> (u32, u32) {
    let person = &acting().person;
    (person.user, person.group)
}

fn key_of((directory, name): &Place<'_>) -> Key {
    Key::name(hash(index_of(directory.ino), name))
}

impl Connection {
    /// The directory and name of `path`.
    pub(crate) fn parent<'p>(&self, path: &'p [u8]) -> Option<Place<'p>> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let Known::Here(directory) = self.memory.walk(above) else { return None };
        let person = &acting().person;
        let may = person.is_root() || person.may(&directory.attributes(), 1);
        let named = !name.is_empty() && name.len() <= NAME_MAX;
        (directory.kind == Kind::Directory && may && named).then_some((directory, name))
    }

    /// As [`Connection::parent`], if this user may change it and it has no names that only the
    /// backing knows.
    fn place<'p>(&self, path: &'p [u8]) -> Option<Place<'p>> {
        let person = &acting().person;
        self.parent(path).filter(|(directory, _)| {
            person.may(&directory.attributes(), CHANGE)
                && (person.is_root() || directory.mode & STICKY == 0)
                && !directory.is(flag::OVERLAY)
                && !directory.is(flag::ELSEWHERE)
        })
    }

    /// Claims a name; what is to be done with it changes `other`, too.
    fn claim_name(&self, place: &Place<'_>, other: &Place<'_>) -> Option<Held<'_>> {
        let mut held = self.claim(key_of(place), true)?;
        let within = [place, other].map(|(directory, _)| index_of(directory.ino));
        held.claim = held.claim.within(within);
        held.uses([&place.0, &other.0]);
        Some(held)
    }

    /// What has this name now, to be asked after the claim of it.
    fn look_again(&self, (directory, name): &Place<'_>) -> Known {
        let found = self.memory.look(|table| {
            let there = table.find(directory.ino).is_some_and(|inode| inode.is_directory());
            let there =
                there || (directory.is(flag::PREALLOCATED) && self.memory.is_to_come(directory));
            there.then(|| self.memory.child(table, directory, name))
        });
        found.unwrap_or(Known::Unknown)
    }

    /// Whether a name may come into a directory: it is missing, and the directory does not go.
    fn may_come(
        &self,
        held: &Held<'_>,
        place: &Place<'_>,
        needs: Operations,
        time_ns: u64,
    ) -> bool {
        let goes = Key::removal(index_of(place.0.ino));
        held.is_open(needs, time_ns)
            && !self.memory.deferred().is_claimed(goes)
            && matches!(self.look_again(place), Known::Not(ErrorKind::NotFound))
    }

    /// Creates a file of which nothing is known, for writing. `None`: ask.
    pub(crate) fn create_deferred(&self, path: &[u8], how: OpenHow) -> Option<Result<OpenFile>> {
        let kernel = u64::from(how.access) & access::KERNEL != 0;
        let here = how.on.is_none_or(|on| on == self.memory.member());
        let plain = how.create && !how.directory && !how.unnamed && here;
        if !plain || u64::from(how.access) & access::WRITE == 0 {
            return None;
        }
        let place = self.place(path)?;
        let held = self.claim_name(&place, &place)?;
        let (time_ns, rights) = (self.time_ns(), how.access & (access::READ | access::WRITE) as u8);
        let needs = Operations::CREATE.and(Operations(rights));
        let may = self.may_come(&held, &place, needs, time_ns) && self.may_defer(kernel);
        let new = may.then(|| self.preallocated(kernel)).flatten();
        let words = new.as_ref().and_then(|new| self.words_of(new));
        let (Some(new), Some((header, words))) = (new, words) else {
            held.withdraw();
            return None;
        };
        header.modified_ns.store(time_ns, Ordering::Relaxed);
        header.accessed_ns.store(time_ns, Ordering::Relaxed);
        words.access.store(how.access.into(), Ordering::Relaxed);
        let (ino, (directory, name), mode) = (new.file.ino, place, how.mode);
        let (parent, by) = (directory.ino, by());
        let done = held.commit(Deferred::Create { ino, parent, name, mode, by, time_ns });
        done.map(|done| done.map(|()| new))
    }

    /// What others see of a file in hand, if there are such places.
    fn words_of(&self, new: &OpenFile) -> Option<(&FileHeader, &Description)> {
        self.memory.header(new.file.slot).zip(self.memory.description(new.description.0))
    }

    /// Makes a directory. `None`: ask.
    pub(crate) fn make_directory_deferred(&self, path: &[u8], mode: u32) -> Option<Result<()>> {
        let place = self.place(path).filter(|_| self.may_defer(true))?;
        let own = self.own().ok()?;
        let hand = || own.page().inos();
        let (number, few) = take_one(hand(), INOS)?;
        let held = self.claim_name(&place, &place);
        let done = held.and_then(|mut held| {
            held.soon |= few;
            let time_ns = self.time_ns();
            if !self.may_come(&held, &place, Operations::CREATE, time_ns) {
                held.withdraw();
                return None;
            }
            let (ino, (directory, name)) = (Ino(number), place);
            let (parent, by) = (directory.ino, by());
            held.commit(Deferred::MakeDirectory { ino, parent, name, mode, by, time_ns })
        });
        if done.is_none() {
            put_back(hand(), number);
        }
        done
    }

    /// Removes a file's name. `None`: ask.
    pub(crate) fn unlink_deferred(&self, path: &[u8]) -> Option<Result<()>> {
        let place = self.place(path).filter(|_| self.may_defer(true))?;
        let held = self.claim_name(&place, &place)?;
        let time_ns = self.time_ns();
        let may = held.is_open(Operations::REMOVE, time_ns);
        let ino = match self.look_again(&place) {
            Known::Here(inode) if self.is_replaceable(&inode) && may => inode.ino,
            _ => {
                held.withdraw();
                return None;
            }
        };
        let (directory, name) = place;
        held.commit(Deferred::Unlink { parent: directory.ino, name, ino, time_ns })
    }

    /// Removes an empty directory. `None`: ask.
    pub(crate) fn remove_directory_deferred(&self, path: &[u8]) -> Option<Result<()>> {
        let place = self.place(path).filter(|_| self.may_defer(true))?;
        let held = self.claim_name(&place, &place)?;
        let time_ns = self.time_ns();
        let open = held.is_open(Operations::REMOVE, time_ns);
        let goes = match self.look_again(&place) {
            Known::Here(inode) if inode.is_directory() && open => Some(inode),
            _ => None,
        };
        let key = |inode: &Inode| Key::removal(index_of(inode.ino));
        let goes = goes.filter(|inode| !inode.is(flag::PREALLOCATED) && !inode.is(flag::OVERLAY));
        let other = goes.as_ref().and_then(|inode| self.claim_too(&held, key(inode)));
        let (Some(inode), Some(other)) = (goes, other) else {
            held.withdraw();
            return None;
        };
        if !self.is_empty(&inode, held.claim) {
            self.memory.deferred().withdraw(other);
            held.withdraw();
            return None;
        }
        let (ino, (directory, name)) = (inode.ino, place);
        let change = Deferred::RemoveDirectory { parent: directory.ino, name, ino, time_ns };
        held.commit_with(Some(other), change)
    }

    /// Whether nothing is in a directory, or comes there; asked after the claim of its removal.
    fn is_empty(&self, directory: &Inode, mine: Claim) -> bool {
        let adds = |bytes: &[u8]| pending::adds(bytes, directory.ino);
        if !self
            .memory
            .deferred()
            .names_are(Some(mine), index_of(directory.ino), |bytes| !adds(bytes))
        {
            return false;
        }
        let gone = self.memory.look(|table| {
            let names = table.children(directory.ino, LEFT_MAX, self.memory.member())?;
            let gone =
                |name: &[u8]| matches!(self.memory.child(table, directory, name), Known::Not(_));
            Some(names.len() < LEFT_MAX && names.iter().all(|child| gone(&child.name)))
        });
        gone == Some(true)
    }

    /// Moves a name. `None`: ask.
    pub(crate) fn rename_deferred(
        &self,
        from: &[u8],
        to: &[u8],
        how: RenameHow,
    ) -> Option<Result<()>> {
        if how == RenameHow::Exchange || !self.may_defer(true) {
            return None;
        }
        let (from, to) = (self.place(from)?, self.place(to)?);
        let old = key_of(&from);
        if old == key_of(&to) {
            return None;
        }
        let held = self.claim_name(&to, &from)?;
        let Some(other) = self.claim_too(&held, old) else {
            held.withdraw();
            return None;
        };
        let (time_ns, needs) = (self.time_ns(), Operations::CREATE.and(Operations::REMOVE));
        let open = held.is_open(needs, time_ns);
        let (inode, there) = (self.look_again(&from), self.look_again(&to));
        let goes = Key::removal(index_of(to.0.ino));
        let movable = self.movable(&inode, &there, how, from.0.ino == to.0.ino);
        let may = open && !self.memory.deferred().is_claimed(goes);
        let Some((ino, over)) = movable.filter(|_| may) else {
            self.memory.deferred().withdraw(other);
            held.withdraw();
            return None;
        };
        let ((parent, name), (to_parent, to_name)) = (from, to);
        let (parent, to_parent) = (parent.ino, to_parent.ino);
        let moved = Deferred::Rename { parent, name, to_parent, to_name, ino, over, time_ns };
        held.commit_with(Some(other), moved)
    }

    /// What is to be moved, and what is there, if one can take the other's place at once.
    fn movable(
        &self,
        moved: &Known,
        there: &Known,
        how: RenameHow,
        same: bool,
    ) -> Option<(Ino, Ino)> {
        let Known::Here(inode) = moved else { return None };
        match there {
            Known::Not(ErrorKind::NotFound) if inode.is_directory() => {
                (same && !inode.is(flag::OVERLAY)).then_some((inode.ino, Ino(0)))
            }
            Known::Not(ErrorKind::NotFound) => is_alone(inode).then_some((inode.ino, Ino(0))),
            Known::Here(other) => {
                let replaces = is_alone(inode) && self.is_replaceable(other);
                let may = how == RenameHow::Replace && inode.ino != other.ino;
                (replaces && may).then_some((inode.ino, other.ino))
            }
            Known::Not(_) | Known::Unknown => None,
        }
    }

    /// A file whose only name can go without anything being brought from the backing first.
    fn is_replaceable(&self, inode: &Inode) -> bool {
        let record = inode.slot.and_then(|slot| self.memory.record(slot));
        let brought = record.is_none_or(|record| record.backed_bytes.load(Ordering::SeqCst) == 0);
        // What becomes of another machine's file its home is to be asked.
        is_alone(inode) && brought && !inode.is(flag::FAR)
    }
}

/// A file with one name.
fn is_alone(inode: &Inode) -> bool {
    inode.kind == Kind::File && inode.links == 1 && !inode.is(flag::ALIAS)
}
