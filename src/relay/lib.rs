//! Does what other members ask of files that were born here, as a client of the server of this
//! machine, in its very process: the bytes are copied as those of any program are.
//!
//! Files are opened as they are needed, and closed some time after; those that are open elsewhere
//! stay open, so that they stay when they lose their last name. Not here: which of it is to be
//! done, in which order, and once (the server's `far` and its shell).

#![deny(unsafe_code)]

mod placing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use terral_client::{Client, File, access};
use terral_format::ids::{Ino, Member, Number};
use terral_format::local::batch;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::LentTo;
use terral_format::wire::fencing::Fencing;
use terral_format::wire::updates::Update;
use terral_format::{Error, ErrorKind, Result};
use terral_server::Relay;

/// A file that nobody has asked for since is closed. Who writes it is taken for somebody who goes
/// on, so other members do not get its attributes meanwhile.
const IDLE: Duration = Duration::from_secs(2);

/// Memory of at least so many bytes is used again, and at most so many pieces of it are kept.
const SPARE_LEAST: usize = 128 << 10;
const SPARE_MOST: usize = 8;

/// A file that is open for reading, or for both.
struct Open {
    file: File,
    users: u32,
    used: Instant,
}

#[derive(Default)]
struct Files {
    /// By what they are, and whether for writing.
    open: BTreeMap<(Ino, bool), Open>,
    /// What is open elsewhere.
    kept: BTreeSet<Ino>,
    /// Of which chunks were lent, and to whom.
    lent: BTreeSet<(Ino, Member)>,
}

/// See the module.
pub struct AtHome {
    instance: PathBuf,
    client: Mutex<Option<Client>>,
    /// For what others may wait for: those who wait have all requests of the other one.
    urgent: Mutex<Option<Client>>,
    files: Mutex<Files>,
    /// Memory that was used: to be given it anew costs a fault for each page.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl fmt::Debug for AtHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtHome").field("instance", &self.instance).finish_non_exhaustive()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AtHome {
    /// For the server of the instance in this directory, which need not be there yet.
    pub fn new(instance: PathBuf) -> Self {
        AtHome {
            instance,
            client: Mutex::default(),
            urgent: Mutex::default(),
            files: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    fn client(&self) -> Result<Client> {
        self.connected(&self.client)
    }

    fn urgent(&self) -> Result<Client> {
        self.connected(&self.urgent)
    }

    fn connected(&self, client: &Mutex<Option<Client>>) -> Result<Client> {
        let mut client = lock(client);
        if client.is_none() {
            *client = Some(Client::connect_with(&self.instance, None)?);
        }
        client.clone().ok_or_else(|| Error::new(ErrorKind::Unreachable, "the server itself"))
    }

    /// Has `act` use a file that is open for that.
    fn with<T>(&self, ino: Ino, writes: bool, act: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let file = self.begin(ino, writes)?;
        let done = act(&file);
        if let Some(open) = lock(&self.files).open.get_mut(&(ino, writes)) {
            (open.users, open.used) = (open.users - 1, Instant::now());
        }
        done
    }

    /// A file from the table, counted as used; opened if it is not there.
    fn begin(&self, ino: Ino, writes: bool) -> Result<File> {
        let take = |files: &mut Files| {
            let open = files.open.get_mut(&(ino, writes))?;
            open.users += 1;
            Some(open.file.clone())
        };
        if let Some(file) = take(&mut lock(&self.files)) {
            return Ok(file);
        }
        // Without the lock: it may have to come here first.
        let how = if writes { access::READ | access::WRITE } else { access::READ };
        let file = self.client()?.open_number(ino, how as u8)?;
        let mut files = lock(&self.files);
        if let Some(other) = take(&mut files) {
            drop(files);
            file.close();
            return Ok(other);
        }
        let open = Open { file: file.clone(), users: 1, used: Instant::now() };
        files.open.insert((ino, writes), open);
        Ok(file)
    }

    fn read(&self, ino: Ino, at: u64, bytes: usize) -> Result<Vec<u8>> {
        self.with(ino, false, |file| {
            let mut read = lock(&self.spare).pop().unwrap_or_default();
            read.resize(bytes, 0);
            let count = file.read_at(&mut read, at)?;
            read.truncate(count);
            Ok(read)
        })
    }

    fn write(
        &self,
        ino: Ino,
        at: Option<u64>,
        (strips, token): (bool, u64),
        bytes: &[u8],
    ) -> Result<u64> {
        self.with(ino, true, |file| {
            if strips {
                file.strip_set_id()?;
            }
            let file = file.holding(token);
            match at {
                Some(at) => file.write_at(bytes, at).map(|_| at),
                None => file.append(bytes).map(|end| end - bytes.len() as u64),
            }
        })
    }

    /// Does it, if the file is open for that, and nobody is waited for or asked.
    fn try_at_once(&self, file: Ino, act: &Act, bytes: &[u8]) -> Option<(Done, Vec<u8>)> {
        // Who looks after files that are not used asks the server, with the table locked.
        let mut files = self.files.try_lock().ok()?;
        let open = files.open.get_mut(&(file, matches!(act, Act::Write { .. })))?;
        let done = match *act {
            Act::Read { at, bytes, kept: false, .. } => {
                let mut read = vec![0; bytes as usize];
                let count = open.file.read_at_once(&mut read, at)?;
                read.truncate(count);
                (Done::Read, read)
            }
            Act::Write { at: Some(at), token, .. } => open
                .file
                .holding(token)
                .write_at_once(bytes, at)
                .then_some((Done::Written(at), Vec::new()))?,
            _ => return None,
        };
        open.used = Instant::now();
        Some(done)
    }

    fn merge(&self, ino: Ino, strips: bool, records: &[u8]) -> Result<()> {
        self.with(ino, true, |file| {
            if strips {
                file.strip_set_id()?;
            }
            let file = file.holding(0);
            batch::writes(records).try_for_each(|write| {
                let (at, bytes) = write?;
                file.write_at(bytes, at).map(drop)
            })
        })
    }

    fn truncate(&self, ino: Ino, size: u64, (strips, token): (bool, u64)) -> Result<()> {
        self.with(ino, true, |file| {
            if strips {
                file.strip_set_id()?;
            }
            file.holding(token).truncate(size)
        })
    }

    /// What is about chunks that are another member's.
    fn lend(&self, ino: Ino, act: &Act) -> Result<Done> {
        match *act {
            Act::Borrow { by, first, count, strips } => self.with(ino, true, |file| {
                lock(&self.files).lent.insert((ino, by));
                if strips {
                    file.strip_set_id()?;
                }
                let lent = self.client()?.lend_to((ino, by), (first, count))?;
                Ok(lent.map_or(Done::Unknown, |LentTo { count, size, stamp }| Done::Lent {
                    count,
                    size,
                    stamp,
                }))
            }),
            Act::Grow { by, to } => self.with(ino, true, |file| {
                Ok(if file.grow_for(by, to)? { Done::Done } else { Done::Unknown })
            }),
            Act::Wrote { at_ns } => {
                self.with(ino, true, |file| file.wrote_at(at_ns)).map(|()| Done::Done)
            }
            Act::Return { by, first, count, leaves } => {
                let stays = self.client()?.bring_back((ino, by, leaves), (first, count))?;
                Ok(if stays { Done::Stays } else { Done::Done })
            }
            _ => Ok(Done::Done),
        }
    }

    /// What is about a chunk that is to be mapped by another member.
    fn offer(&self, ino: Ino, act: &Act) -> Result<Done> {
        match *act {
            Act::Offer { by, index, strips } => {
                lock(&self.files).lent.insert((ino, by));
                self.with(ino, true, |file| {
                    if strips {
                        file.strip_set_id()?;
                    }
                    self.client()?.offer_to((ino, by), index)
                })
            }
            Act::Accept { by, index, stamp } => {
                self.with(ino, true, |_| self.client()?.accepted((ino, by), (index, stamp)))
            }
            _ => Ok(Done::Unknown),
        }
    }

    /// Which member keeps the chunk that has this byte, if one does, and the size of the file.
    fn kept_elsewhere(&self, ino: Ino, at: u64) -> Result<Option<(Member, u64)>> {
        match self.with(ino, false, |file| file.is_away(at))? {
            true => self.client()?.kept_by(ino, at),
            false => Ok(None),
        }
    }

    /// Closes what is not used. Whether something is left that will be closed.
    fn close_unused(&self) -> bool {
        let mut files = lock(&self.files);
        let Files { open, kept, .. } = &mut *files;
        let stays = |ino: &Ino, writes: bool| kept.contains(ino) && !writes;
        // Of what has lost its last name the memory is wanted.
        let nameless = |open: &Open| open.file.attributes().is_ok_and(|of| of.links == 0);
        let idle = |open: &Open| open.users == 0 && (open.used.elapsed() >= IDLE || nameless(open));
        let unused = |((ino, writes), open): (&(Ino, bool), &Open)| {
            (!stays(ino, *writes) && idle(open)).then_some((*ino, *writes))
        };
        let unused: Vec<_> = open.iter().filter_map(unused).collect();
        let closed: Vec<Open> = unused.iter().filter_map(|which| open.remove(which)).collect();
        let left = open.keys().any(|(ino, writes)| !stays(ino, *writes));
        drop(files);
        closed.into_iter().for_each(|open| open.file.close());
        left
    }
}

impl Relay for AtHome {
    fn carry_out(&self, file: Ino, act: &Act, bytes: &[u8]) -> Result<(Done, Vec<u8>)> {
        let done = |()| (Done::Done, Vec::new());
        match *act {
            Act::Open => self.with(file, false, |_| Ok(())).map(done),
            Act::Lost { by, token } => self.client()?.lost_a_name(file, (by, token)).map(done),
            Act::Read { at, bytes, kept, direct } => {
                if kept {
                    self.client()?.rests(file)?;
                }
                if direct && let Some((member, size)) = self.kept_elsewhere(file, at)? {
                    return Ok((Done::With { member, size }, Vec::new()));
                }
                self.read(file, at, bytes as usize).map(|read| (Done::Read, read))
            }
            Act::Write { at, strips, token } => {
                let at = self.write(file, at, (strips, token), bytes)?;
                Ok((Done::Written(at), Vec::new()))
            }
            Act::Borrow { .. } | Act::Grow { .. } | Act::Wrote { .. } | Act::Return { .. } => {
                self.lend(file, act).map(|done| (done, Vec::new()))
            }
            Act::Offer { .. } | Act::Accept { .. } => {
                self.offer(file, act).map(|done| (done, Vec::new()))
            }
            // It is not opened for that: nothing is written.
            Act::Kept { by, index, stamp } => {
                self.urgent()?.kept((file, by), (index, stamp)).map(|done| (done, Vec::new()))
            }
            Act::Merge { strips } => self.merge(file, strips, bytes).map(done),
            Act::Truncate { size, strips, token } => {
                self.truncate(file, size, (strips, token)).map(done)
            }
            Act::Lock(lock) => self.client()?.lock_for(file, lock).map(done),
            Act::TestLock(lock) => {
                let held = self.client()?.test_lock_for(file, lock)?;
                Ok((held.map_or(Done::Done, Done::Held), Vec::new()))
            }
            Act::Place(what) => {
                let placed = placing::carry_out(&self.client()?, what, bytes);
                placed.map(|done| (done, Vec::new()))
            }
            Act::Fencing(owner, what) => {
                let fences = matches!(what, Fencing::Fence { .. });
                let say = |_: &File| self.client()?.fencing_for(file, owner, what);
                self.with(file, fences, say).map(|said| (Done::Fenced(said), Vec::new()))
            }
            Act::Update(attempt, what) => {
                let writes = match what {
                    Update::Look => false,
                    Update::Write { .. } => true,
                };
                let say = |file: &File| {
                    if let Update::Write { strips: true, .. } = what {
                        file.strip_set_id()?;
                    }
                    self.client()?.update_for(file.ino(), attempt, (what, bytes))
                };
                self.with(file, writes, say).map(|id| (Done::Updated(id), Vec::new()))
            }
            Act::Close
            | Act::Recall { .. }
            | Act::IsOpen
            | Act::GiveBack { .. }
            | Act::Took { .. }
            | Act::ReadMapped { .. }
            | Act::WriteMapped { .. }
            | Act::Take { .. }
            | Act::ReadPart { .. } => Ok(done(())),
        }
    }

    fn at_once(&self, file: Ino, act: &Act, bytes: &[u8]) -> Option<Result<(Done, Vec<u8>)>> {
        self.try_at_once(file, act, bytes).map(Ok)
    }

    fn is_open(&self, file: Number) -> Result<bool> {
        self.client()?.is_open(file)
    }

    fn give_back(
        &self,
        of: Number,
        which: (u64, u64),
        part: (u32, u32),
    ) -> Result<(Done, Vec<u8>)> {
        let read = lock(&self.spare).pop().unwrap_or_default();
        Ok(match self.urgent()?.give_back(of, which, part, read)? {
            Some(bytes) => (Done::Read, bytes),
            None => (Done::Unknown, Vec::new()),
        })
    }

    fn took(&self, of: Number, which: (u64, u64)) -> Result<()> {
        self.urgent()?.took(of, which)
    }

    fn take(&self, of: Number, act: &Act) -> Result<bool> {
        match *act {
            Act::Take { index, bytes, from, stamp } => {
                self.urgent()?.take((of, index, bytes), (from, stamp))
            }
            _ => Ok(false),
        }
    }

    fn read_part(&self, of: Number, which: (u64, u64), bytes: u32) -> Result<(Done, Vec<u8>)> {
        let mut read = lock(&self.spare).pop().unwrap_or_default();
        read.resize(bytes as usize, 0);
        Ok(match self.urgent()?.read_part(of, which, &mut read)? {
            true => (Done::Read, read),
            false => (Done::Unknown, Vec::new()),
        })
    }

    fn through_map(&self, of: Number, act: &Act, bytes: &[u8]) -> Result<(Done, Vec<u8>)> {
        let client = self.urgent()?;
        Ok(match *act {
            Act::ReadMapped { index, at, bytes } => {
                let mut read = vec![0; bytes as usize];
                match client.read_mapped(of, (index, at), &mut read)? {
                    true => (Done::Read, read),
                    false => (Done::Unknown, Vec::new()),
                }
            }
            Act::WriteMapped { index, at } => match client.write_mapped(of, (index, at), bytes)? {
                true => (Done::Done, Vec::new()),
                false => (Done::Unknown, Vec::new()),
            },
            _ => (Done::Unknown, Vec::new()),
        })
    }

    fn unlock_all(&self, file: Ino, of: Member) {
        // A server that does not answer itself is about to go, and the next one is told anew.
        let _ = self.client().and_then(|client| client.unlock_all(file, of));
        if lock(&self.files).lent.remove(&(file, of)) {
            let _ = self.client().and_then(|client| client.has_nothing(file, of));
        }
    }

    fn take_back(&self, bytes: Vec<u8>) {
        let mut spare = lock(&self.spare);
        if bytes.capacity() >= SPARE_LEAST && spare.len() < SPARE_MOST {
            spare.push(bytes);
        }
    }

    fn keep(&self, open: Option<&BTreeSet<Ino>>) -> bool {
        if let Some(open) = open {
            lock(&self.files).kept.clone_from(open);
        }
        self.close_unused()
    }

    fn open_again(&self, open: &BTreeSet<Ino>) {
        let is_missing = |files: &Files, ino: &Ino| !files.open.contains_key(&(*ino, false));
        let missing: Vec<Ino> = {
            let files = lock(&self.files);
            open.iter().copied().filter(|ino| is_missing(&files, ino)).collect()
        };
        // What is gone already is said to who uses it.
        missing.into_iter().for_each(|ino| drop(self.with(ino, false, |_| Ok(()))));
    }
}
