//! What a client does without waiting for the server, step by step: it may be stopped, or die,
//! between any two of them (`terral_format::local::deferred`; for real, `deferred` of the client).

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::frame;
use terral_format::ids::{DescriptionSlot, FileSlot, Ino};
use terral_format::local::changes::{Deferred, Made};
use terral_format::local::deferred::{Claim, Key};
use terral_format::local::names::{Inode, flag, index_of};
use terral_format::local::tables::access;
use terral_format::wire::message::{Change, FileRef, Kind, OpenFile, Reply, Request};
use terral_format::{ErrorKind, Result};
use terral_transport::requests;

use super::Sim;
use super::client::Opened;
use super::names::{Known, Place, key_of};
use crate::core::world::World;

/// Files in hand that are asked for at a time.
const PREALLOCATED: u32 = 4;

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Wish {
    Create(Vec<u8>),
    MakeDirectory(Vec<u8>),
    Unlink(Vec<u8>),
    RemoveDirectory(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    /// With these bits of [`access`].
    Open(Vec<u8>, u8),
    Close(Opened),
    SetMode(FileRef, u32),
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Of a rename: the claim of the old name.
    Second,
    Gate,
    Look,
    /// Of a removal: the claim that the directory goes.
    Goes(Inode),
    Empty(Inode),
    Shadow,
    Commit,
    Cast,
    Nothing,
}

/// Something on the way.
#[derive(Debug)]
pub struct Begun {
    client: usize,
    pub wish: Wish,
    next: Next,
    claim: Claim,
    other: Option<Claim>,
    count: u64,
    /// Of the session's hand: a description or an inode number.
    number: Option<u64>,
    preallocated: Option<OpenFile>,
    change: Vec<u8>,
    /// The names that it is about, and what it opens, as they were found before the claim.
    places: Vec<Place>,
    file: Option<Inode>,
    pub opened: Option<Opened>,
}

/// How far it is.
pub enum Progress {
    Going,
    /// It is not to be: ask.
    Refused,
    /// It has happened just now.
    Happened,
    /// Nothing is left to do of what has happened.
    Over,
}

/// A file with one name.
fn is_alone(inode: &Inode) -> bool {
    inode.kind == Kind::File && inode.links == 1 && !inode.is(flag::ALIAS)
}

fn file_of(inode: &Inode) -> FileRef {
    let none = if inode.kind == Kind::File { FileSlot::RESTING } else { FileSlot::NONE };
    FileRef { ino: inode.ino, slot: inode.slot.unwrap_or(none) }
}

fn take_one(places: &[AtomicU64]) -> Option<u64> {
    let taken = places.iter().map(|place| place.swap(0, Ordering::SeqCst));
    taken.into_iter().find(|number| *number != 0)
}

fn put_back(places: &[AtomicU64], number: u64) {
    let free = places.iter().find(|place| place.load(Ordering::SeqCst) == 0);
    free.into_iter().for_each(|place| place.store(number, Ordering::SeqCst));
}

impl Sim {
    /// Asks for files in hand, and the right to defer.
    pub fn fetch(&mut self, client: usize) -> Result<()> {
        match self.ask(client, Request::Preallocate { count: PREALLOCATED, kernel: false })? {
            Reply::Preallocated(preallocated) => {
                self.clients[client].preallocated.extend(preallocated);
                self.clients[client].defers = true;
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    fn hand(&self, client: usize, wish: &Wish) -> &[AtomicU64] {
        let hand = &self.clients[client].page.page().hand;
        if matches!(wish, Wish::Open(..)) { &hand.descriptions } else { &hand.inos }
    }

    /// Claims what is to be changed. `None`: ask.
    pub fn begin(&mut self, client: usize, wish: Wish) -> Option<Begun> {
        let deferred = self.memory.deferred();
        let (key, places, file) = match &wish {
            Wish::Create(path)
            | Wish::MakeDirectory(path)
            | Wish::Unlink(path)
            | Wish::RemoveDirectory(path) => {
                let place = self.place(path)?;
                (key_of(&place), vec![place], None)
            }
            Wish::Rename(from, to) => {
                let (from, to) = (self.place(from)?, self.place(to)?);
                let differ = key_of(&from) != key_of(&to);
                differ.then(|| (key_of(&to), vec![to, from], None))?
            }
            Wish::Open(path, how) => {
                let place = self.parent(path)?;
                let inode = self.openable(&place, *how)?;
                (Key::opening(index_of(inode.ino)), vec![place], Some(inode))
            }
            Wish::Close(open) => (Key::description(open.description.0), vec![], None),
            Wish::SetMode(file, _) => (Key::attributes(index_of(file.ino)), vec![], None),
        };
        if !self.clients[client].defers || !self.lasts(client) {
            return None;
        }
        let takes = matches!(wish, Wish::Open(..) | Wish::MakeDirectory(_));
        let number = if takes { Some(take_one(self.hand(client, &wish))?) } else { None };
        let (session, count) = (self.clients[client].session.0, self.clients[client].claims);
        let named = file.is_none() && !places.is_empty();
        let claim = deferred.claim(key, session, count, named);
        let Some(claim) = claim else {
            number.into_iter().for_each(|number| put_back(self.hand(client, &wish), number));
            return None;
        };
        let within = [places.first(), places.last()]
            .map(|place| place.map_or(0, |(directory, _)| index_of(directory.ino)));
        let claim = if named { claim.within(within) } else { claim };
        self.clients[client].claims += 1;
        let next = if matches!(wish, Wish::Rename(..)) { Next::Second } else { Next::Gate };
        let (other, preallocated, change, opened) = Default::default();
        Some(Begun {
            client,
            wish,
            next,
            claim,
            other,
            count,
            number,
            preallocated,
            change,
            places,
            file,
            opened,
        })
    }

    /// The next step of it.
    pub fn go_on(&mut self, begun: &mut Begun) -> Progress {
        match self.step(begun) {
            Some(progress) => progress,
            None => {
                let deferred = self.memory.deferred();
                deferred.withdraw(begun.claim);
                begun.other.into_iter().for_each(|other| deferred.withdraw(other));
                let hand = self.hand(begun.client, &begun.wish);
                begun.number.into_iter().for_each(|number| put_back(hand, number));
                self.clients[begun.client].preallocated.extend(begun.preallocated.take());
                Progress::Refused
            }
        }
    }

    fn step(&mut self, begun: &mut Begun) -> Option<Progress> {
        let memory = self.memory.clone();
        let (deferred, session) = (memory.deferred(), self.clients[begun.client].session.0);
        begun.next = match begun.next {
            Next::Second => {
                let key = key_of(begun.places.last()?);
                begun.other = Some(deferred.claim(key, session, begun.count, true)?);
                Next::Gate
            }
            Next::Gate => {
                let may = memory.gate().load(Ordering::SeqCst) == 0 && self.lasts(begun.client);
                may.then_some(())?;
                Next::Look
            }
            Next::Look => {
                let (change, next) = self.decide(begun)?;
                begun.change = change;
                next
            }
            Next::Goes(inode) => {
                let key = Key::removal(index_of(inode.ino));
                begun.other = Some(deferred.claim(key, session, begun.count, true)?);
                Next::Empty(inode)
            }
            Next::Empty(inode) => {
                self.is_empty(&inode, begun.claim).then_some(())?;
                Next::Shadow
            }
            Next::Shadow => {
                deferred.shadow(begun.other?, &begun.change).then_some(())?;
                Next::Commit
            }
            Next::Commit => return self.commit(begun),
            Next::Cast => {
                begun.other.into_iter().for_each(|other| deferred.cast(other));
                requests::ring_deferred(self.kept.regions[1].view(0), false);
                Next::Nothing
            }
            Next::Nothing => return Some(Progress::Over),
        };
        Some(Progress::Going)
    }

    fn commit(&mut self, begun: &mut Begun) -> Option<Progress> {
        let deferred = self.memory.deferred();
        let looks = matches!(begun.wish, Wish::Open(_, how) if u64::from(how) == access::READ);
        if looks {
            let recall = deferred.commit_open(begun.claim, &begun.change);
            if recall.is_none() {
                let opened = begun.opened?;
                self.memory.description(opened.description)[0].store(0, Ordering::SeqCst);
            }
            begun.opened = begun.opened.map(|opened| Opened { recall, ..opened });
            recall?;
        } else {
            deferred.commit(begun.claim, &begun.change).then_some(())?;
        }
        (begun.number, begun.preallocated, begun.next) = (None, None, Next::Cast);
        Some(Progress::Happened)
    }

    /// Looks at what there is, and says what is to be committed.
    fn decide(&mut self, begun: &mut Begun) -> Option<(Vec<u8>, Next)> {
        let time_ns = self.world.wall_ns();
        let by = (0, 0);
        let goes = |place: &Place| Key::removal(index_of(place.0.ino));
        let deferred = self.memory.deferred();
        let is_missing = |place: &Place| {
            !deferred.is_claimed(goes(place))
                && matches!(self.look_again(place), Known::Not(ErrorKind::NotFound))
        };
        let wish = begun.wish.clone();
        Some(match &wish {
            Wish::Create(_) => {
                let place = begun.places.first()?.clone();
                is_missing(&place).then_some(())?;
                let preallocated = self.clients[begun.client].preallocated.pop()?;
                begun.preallocated = Some(preallocated);
                let header = self.memory.header(preallocated.file.slot);
                header.modified_ns().store(time_ns, Ordering::SeqCst);
                header.accessed_ns().store(time_ns, Ordering::SeqCst);
                begun.opened = Some(Opened::new(preallocated, None));
                let (ino, parent, name) = (preallocated.file.ino, place.0.ino, &place.1[..]);
                let made = Deferred::Create { ino, parent, name, mode: 0o644, by, time_ns };
                (self.encode(begun.client, made)?, Next::Commit)
            }
            Wish::MakeDirectory(_) => {
                let place = begun.places.first()?.clone();
                is_missing(&place).then_some(())?;
                let (ino, parent, name) = (Ino(begun.number?), place.0.ino, &place.1[..]);
                let made = Deferred::MakeDirectory { ino, parent, name, mode: 0o755, by, time_ns };
                (self.encode(begun.client, made)?, Next::Commit)
            }
            Wish::Unlink(_) => {
                let place = begun.places.first()?.clone();
                let Known::Here(inode) = self.look_again(&place) else { return None };
                self.is_replaceable(&inode).then_some(())?;
                let (parent, name, ino) = (place.0.ino, &place.1[..], inode.ino);
                let gone = Deferred::Unlink { parent, name, ino, time_ns };
                (self.encode(begun.client, gone)?, Next::Commit)
            }
            Wish::RemoveDirectory(_) => {
                let place = begun.places.first()?.clone();
                let Known::Here(inode) = self.look_again(&place) else { return None };
                let whole = inode.is_directory() && !inode.is(flag::PREALLOCATED | flag::OVERLAY);
                whole.then_some(())?;
                let (parent, name, ino) = (place.0.ino, &place.1[..], inode.ino);
                let gone = Deferred::RemoveDirectory { parent, name, ino, time_ns };
                (self.encode(begun.client, gone)?, Next::Goes(inode))
            }
            Wish::Rename(..) => self.decide_rename(begun, time_ns)?,
            Wish::Open(_, how) => self.decide_open(begun, *how)?,
            Wish::Close(open) => {
                let (description, nonce) = (open.description, open.nonce);
                let closed = Deferred::Close { description, nonce };
                (self.encode(begun.client, closed)?, Next::Commit)
            }
            Wish::SetMode(file, mode) => {
                let change = Change { mode: Some(*mode), ..Change::default() };
                let changed = Deferred::Change { ino: file.ino, change, time_ns };
                (self.encode(begun.client, changed)?, Next::Commit)
            }
        })
    }

    fn decide_rename(&self, begun: &Begun, time_ns: u64) -> Option<(Vec<u8>, Next)> {
        let [to, from] = &begun.places[..] else { return None };
        let (inode, there) = (self.look_again(from), self.look_again(to));
        let (ino, over) = self.movable(&inode, &there, from.0.ino == to.0.ino)?;
        let goes = Key::removal(index_of(to.0.ino));
        (!self.memory.deferred().is_claimed(goes)).then_some(())?;
        let (parent, name) = (from.0.ino, &from.1[..]);
        let (to_parent, to_name) = (to.0.ino, &to.1[..]);
        let moved = Deferred::Rename { parent, name, to_parent, to_name, ino, over, time_ns };
        Some((self.encode(begun.client, moved)?, Next::Shadow))
    }

    fn decide_open(&self, begun: &mut Begun, how: u8) -> Option<(Vec<u8>, Next)> {
        let (file, access, ino) = (begun.file.as_ref()?, how, begun.file?.ino);
        let closing = self.memory.closing().load(Ordering::SeqCst) == ino.0;
        (!closing).then_some(())?;
        let found = self.openable(begun.places.first()?, access)?;
        (file_of(&found) == file_of(file)).then_some(())?;
        let number = begun.number?;
        let (description, nonce) = (DescriptionSlot(number as u32), (number >> 32) as u32);
        let file = file_of(file);
        let words = self.memory.description(description);
        let values = [ino.0, file.slot.0.into(), access.into(), 0, nonce.into()];
        for (word, value) in [1, 2, 3, 4, 0].into_iter().zip(values) {
            words[word].store(value, Ordering::SeqCst);
        }
        begun.opened = Some(Opened::new(OpenFile { file, description, nonce }, None));
        let open = Deferred::Open { ino, description, nonce, access };
        Some((self.encode(begun.client, open)?, Next::Commit))
    }

    fn encode(&self, client: usize, change: Deferred<'_>) -> Option<Vec<u8>> {
        frame::encode(&Made { authority: self.clients[client].authority, change }).ok()
    }

    fn movable(&self, moved: &Known, there: &Known, same: bool) -> Option<(Ino, Ino)> {
        let Known::Here(inode) = moved else { return None };
        match there {
            Known::Not(ErrorKind::NotFound) if inode.is_directory() => {
                (same && !inode.is(flag::OVERLAY)).then_some((inode.ino, Ino(0)))
            }
            Known::Not(ErrorKind::NotFound) => is_alone(inode).then_some((inode.ino, Ino(0))),
            Known::Here(other) => {
                let replaces = is_alone(inode) && self.is_replaceable(other);
                (replaces && inode.ino != other.ino).then_some((inode.ino, other.ino))
            }
            Known::Not(_) | Known::Unknown => None,
        }
    }

    fn is_replaceable(&self, inode: &Inode) -> bool {
        let backed = |slot| self.memory.record(slot).backed_bytes().load(Ordering::SeqCst);
        is_alone(inode) && inode.slot.is_none_or(|slot| backed(slot) == 0)
    }

    /// What has a name, if it can be opened so without anything being done to it before.
    fn openable(&self, place: &Place, how: u8) -> Option<Inode> {
        let found = self.look_again(place);
        let Known::Here(inode) = found else { return None };
        let writes = u64::from(how) & access::WRITE != 0;
        let own = |slot| self.memory.record(slot).ino().load(Ordering::SeqCst) == inode.ino.0;
        let fits = inode.kind == Kind::File && inode.slot.map_or(!writes, own);
        (fits && !(writes && inode.is(flag::EXECUTED))).then_some(inode)
    }

    /// Takes an open back that the server has not heard of. False: say that it is closed.
    pub fn recall(&mut self, client: usize, open: &Opened) -> bool {
        let Some(recall) = open.recall else { return false };
        let nonce = &self.memory.description(open.description)[0];
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let ended = nonce.compare_exchange(open.nonce.into(), 0, order.0, order.1).is_ok();
        if !ended || !self.memory.deferred().recall(recall) {
            return false;
        }
        let number = u64::from(open.description.0) | u64::from(open.nonce) << 32;
        put_back(&self.clients[client].page.page().hand.descriptions, number);
        true
    }

    /// The file's record, which one that was at rest when it was opened gets now.
    pub fn rouse(&mut self, client: usize, file: FileRef) -> Result<FileRef> {
        if file.slot != FileSlot::RESTING {
            return Ok(file);
        }
        for _ in 0..3 {
            let slot = self.look(|table| table.find(file.ino)?.slot);
            let own = |slot: &FileSlot| {
                self.memory.record(*slot).ino().load(Ordering::SeqCst) == file.ino.0
            };
            if let Some(slot) = slot.filter(own) {
                return Ok(FileRef { slot, ..file });
            }
            self.ask(client, Request::Stage { file, first: 0, count: 1, within: 0, bytes: 0 })?;
        }
        panic!("file {} stays at rest", file.ino)
    }
}
