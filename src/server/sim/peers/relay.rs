//! Who does at a file's home what others ask of its bytes: a scripted client of the server there,
//! which ends with it, and forgets then what it has done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use terral_format::ids::{Ino, Member};
use terral_format::local::batch;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::size;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::{FarFile, LentTo, Stored};
use terral_format::wire::fencing::Fencing;
use terral_format::wire::message::{EXTENT_MAX, FileRef, OpenFile, Reply, Request, Target};
use terral_format::{ErrorKind, Result, frame};
use terral_store::ram;
use terral_transport::requests::Taken;

use super::{Handled, Peers, handling};
use crate::core::left_out::{Step, does};
use crate::core::world::World;
use crate::far::desk::{Admitted, Desk, Heard, Job, Payload};
use crate::far::role::Outcome;
use crate::far::{holders, users};
use crate::sim::Sim;
use crate::sim::client::Opened;
use kept::{offered, told};

/// What is done by others.
type Answered = (Done, Vec<u8>);

/// One of them.
pub(super) struct Home {
    desk: Desk,
    life: u64,
    client: Option<usize>,
    /// By whether for writing.
    open: BTreeMap<(Ino, bool), Opened>,
    /// What is open elsewhere.
    kept: BTreeSet<Ino>,
    /// Of that, what is to be opened.
    missing: Vec<Ino>,
    jobs: VecDeque<Job>,
    /// What it waits for an answer to, before it goes on: what it opens.
    opens: Option<((Ino, bool), Taken)>,
    /// And what it has brought, for each job that it has begun; or written where it is, as it is
    /// mapped there.
    brings: Vec<(Which, Taken, bool)>,
    /// How much it has done.
    pub(super) done: u64,
}

impl Home {
    pub(super) fn new(at: u64) -> Self {
        let life = at << 32 | 1;
        let (client, open, kept, missing, jobs, opens, brings) = Default::default();
        let desk = Desk::new(life);
        Home { desk, life, client, open, kept, missing, jobs, opens, brings, done: 0 }
    }
}

/// What tells one job from others that another one may go before.
type Which = (Member, Ino, Act);

fn which(job: &Job) -> Which {
    (job.from, job.file(), job.act)
}

impl Home {
    /// What is brought for a job, if that was asked for.
    fn take_brought(&mut self, job: &Job) -> Option<(Taken, bool)> {
        let at = self.brings.iter().position(|(of, ..)| *of == which(job))?;
        let (_, taken, through) = self.brings.remove(at);
        Some((taken, through))
    }

    /// What is done next: what others may wait for first.
    fn first_job(&mut self) -> Option<Job> {
        let urgent = self.jobs.iter().position(|job| job.act.is_urgent());
        if let Some(job) = urgent.and_then(|at| self.jobs.remove(at)) {
            self.jobs.push_front(job);
        }
        self.jobs.front().cloned()
    }
}

impl Sim {
    /// Reads bytes of a file as they lie in its pages; fewer at its end.
    pub(super) fn read_all(
        &mut self,
        client: usize,
        open: Opened,
        at: u64,
        bytes: usize,
    ) -> Result<Vec<u8>> {
        let (mut all, mut at) = (Vec::new(), at);
        while all.len() < bytes {
            let room = PAGE_BYTES - at as usize % PAGE_BYTES;
            let piece = self.read(client, open.file, at, room.min(bytes - all.len()))?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            all.extend(piece);
        }
        Ok(all)
    }

    /// The file is so long at least.
    pub(super) fn raise_size(&self, open: Opened, to: u64) {
        let epoch = self.memory.size_epoch(open.file.slot);
        assert!(size::raise(self.memory.header(open.file.slot).size(), to, epoch));
    }

    pub(super) fn size_of(&self, open: Opened) -> u64 {
        super::super::client::memory_size(&self.memory, open.file.slot)
    }
}

/// What is asked of the server for it, if that does it by itself.
fn request_of(job: &Job) -> Option<FarFile<'static>> {
    match job.act {
        Act::Lock(lock) => Some(FarFile::LockFor(job.file(), lock)),
        Act::TestLock(lock) => Some(FarFile::TestLockFor(job.file(), lock)),
        Act::Fencing(owner, what) if !writes(&job.act) => {
            Some(FarFile::FencingFor(job.file(), owner, what))
        }
        Act::Close => Some(FarFile::UnlockAll(job.file(), job.from)),
        Act::IsOpen => Some(FarFile::IsOpen(job.number())),
        Act::Return { by, first, count, leaves } => {
            Some(FarFile::BringBack(job.file(), by, first, count, leaves))
        }
        Act::Take { index, bytes, from, stamp } => {
            Some(FarFile::Take { of: job.number(), index, bytes, from, stamp })
        }
        Act::Kept { by, index, stamp } => Some(FarFile::Kept(job.file(), by, index, stamp)),
        Act::GiveBack { index, stamp, .. } => Some(FarFile::GiveBack(job.number(), index, stamp)),
        Act::Took { index, stamp } => Some(FarFile::Took(job.number(), index, stamp)),
        Act::ReadMapped { index, .. } | Act::WriteMapped { index, .. } => {
            Some(FarFile::Mapped(job.number(), index))
        }
        _ => None,
    }
}

/// What a machine that has written so much of a file that is so long has in these pages, if it has
/// read nothing of them.
fn whole_pages((at, bytes): (u64, &[u8]), size: u64) -> (u64, Vec<u8>) {
    let page = PAGE_BYTES as u64;
    let (begin, end) = (at / page * page, at + bytes.len() as u64);
    let pages_end = end.next_multiple_of(page).min(size.max(end));
    let mut all = vec![0; (pages_end - begin) as usize];
    all[(at - begin) as usize..(end - begin) as usize].copy_from_slice(bytes);
    (begin, all)
}

/// What is said of a file that is open, by the server itself.
fn say(sim: &mut Sim, client: usize, job: &Job) -> Outcome {
    let (ino, records) = (job.file(), &job.bytes[..]);
    let asked = match job.act {
        Act::Fencing(owner, what) => FarFile::FencingFor(ino, owner, what),
        Act::Update(attempt, what) => FarFile::UpdateFor { ino, attempt, what, records },
        act => panic!("{act:?}"),
    };
    let said = match sim.ask(client, Request::Far(asked))? {
        Reply::Fenced(fenced) => Done::Fenced(fenced),
        Reply::Updated(id) => Done::Updated(id),
        other => panic!("{other:?}"),
    };
    Ok((said, Vec::new()))
}

/// Whether a file is to be open for writing for it.
fn writes(act: &Act) -> bool {
    let fences = matches!(act, Act::Fencing(_, Fencing::Fence { .. }));
    fences
        || act.changes()
        || matches!(act, Act::Borrow { .. } | Act::Offer { .. } | Act::Accept { .. })
}

impl Peers {
    /// A question has come.
    pub(super) fn is_asked(&mut self, at: usize, from: Member, bytes: &[u8]) {
        let now = self.sims[at].world.now();
        let me = super::member(at);
        let question = Payload::new(bytes.into(), 0);
        let question = self.sims[at]
            .with(|server| users::admit(&server.lock(), from, question.clone()))
            .map(|admitted| admitted.expect("what was sent"))
            .unwrap_or_else(|| Admitted::whole(question));
        match self.homes[at].desk.hear((me, from), question, now).expect("what was sent") {
            Heard::Job(job) => self.homes[at].jobs.push_back(job),
            Heard::Answer(answer) => self.send(at, from, answer.whole()),
            Heard::Nothing => {}
        }
        let Home { desk, jobs, .. } = &mut self.homes[at];
        jobs.extend(desk.take_ended());
        let closed = desk.take_closed();
        self.sims[at].with(|server| {
            let mut state = server.lock();
            closed.into_iter().for_each(|(ino, by)| holders::closed(&mut state, ino, by));
        });
    }

    /// The server has died, and who did this was a part of it.
    pub(super) fn end_relay(&mut self, at: usize) {
        let Home { client, life, done, .. } = self.homes[at];
        if let Some(client) = client {
            self.sims[at].end(client);
        }
        self.homes[at] = Home { life: life + 1, desk: Desk::new(life + 1), done, ..Home::new(0) };
    }

    fn relay_client(&mut self, at: usize) -> usize {
        if let Some(client) = self.homes[at].client {
            return client;
        }
        let client = self.sims[at].connect_itself();
        self.homes[at].client = Some(client);
        client
    }

    /// Somebody does a bit of what is to be done. False: nobody can.
    pub(super) fn work_any(&mut self) -> bool {
        (0..self.sims.len()).any(|at| !self.is_stopped(at) && self.work(at))
    }

    /// Does a bit of what is to be done at one. False: there is nothing, or it waits.
    pub(super) fn work(&mut self, at: usize) -> bool {
        self.reconnect();
        if let Some(open) = self.homes[at].desk.take_open() {
            self.homes[at].missing = open.iter().copied().collect();
            self.homes[at].kept = open;
            self.close_unused(at);
        }
        let opens_other = self.homes[at].opens.as_ref().map(|(which, _)| which.0);
        if opens_other.is_none_or(|of| self.homes[at].missing.last() == Some(&of))
            && let Some(done) = self.open_missing(at)
        {
            return done;
        }
        let Some(job) = self.homes[at].first_job() else { return false };
        let client = self.relay_client(at);
        let killed = self.sims[at].killed;
        let ours = matches!(job.act, Act::Close | Act::Recall { .. });
        let outcome = if let Some(request) = request_of(&job) {
            let done = self.sims[at].ask(client, Request::Far(request));
            done.map(|reply| match reply {
                Reply::Held(Some(held)) => (Done::Held(held), Vec::new()),
                Reply::IsOpen(true) => (Done::Open, Vec::new()),
                Reply::Fenced(fenced) => (Done::Fenced(fenced), Vec::new()),
                Reply::Stored { places, .. } => self.read_places(at, &job, &places),
                reply @ (Reply::Again | Reply::LentTo(_)) => (told(&job, &reply), Vec::new()),
                Reply::Lent(loan) => self.through_map(at, &job, loan),
                _ => (Done::Done, Vec::new()),
            })
        } else if let Act::ReadPart { index, at: from, bytes, stamp } = job.act {
            self.read_part(at, &job, (index, stamp), (from, bytes))
        } else if let Act::Lost { by, token } = job.act {
            let lost = FarFile::Lost(job.file(), by, token);
            let gone = self.sims[at].ask(client, Request::Far(lost));
            self.close_unused(at);
            gone.map(|_| (Done::Done, Vec::new()))
        } else if ours || self.homes[at].open.contains_key(&(job.file(), writes(&job.act))) {
            match self.kept_or_brought(at, client, &job) {
                None => return false,
                Some(Ok(None)) => self.carry_out(at, client, &job),
                Some(Ok(Some(done))) => Ok(done),
                Some(Err(error)) => Err(error),
            }
        } else {
            match self.open_number(at, client, (job.file(), writes(&job.act))) {
                None => return false,
                Some(Ok(open)) => {
                    self.homes[at].open.insert((job.file(), writes(&job.act)), open);
                    return true;
                }
                Some(Err(error)) => Err(error),
            }
        };
        self.collect(at);
        if self.sims[at].killed != killed {
            // It died in the middle of that, or just after it.
            self.reconnect();
            return true;
        }
        let now = self.sims[at].world.now();
        let home = &mut self.homes[at];
        home.jobs.pop_front();
        home.done += 1;
        let answer = home.desk.done(&job, outcome, now).whole();
        self.send(at, job.from, answer);
        // Who writes goes on for a moment, or not.
        if self.homes[at].done.is_multiple_of(2) {
            self.close_written(at);
        }
        true
    }

    /// Files that are not open elsewhere are closed.
    pub(super) fn close_unused(&mut self, at: usize) {
        self.close_those(at, |kept, (ino, _)| !kept.contains(&ino));
    }

    /// What is open for writing is closed.
    fn close_written(&mut self, at: usize) {
        self.close_those(at, |_, (_, writes)| writes);
    }

    fn close_those(&mut self, at: usize, is: impl Fn(&BTreeSet<Ino>, (Ino, bool)) -> bool) {
        let Some(client) = self.homes[at].client else { return };
        let Home { open, kept, .. } = &mut self.homes[at];
        let unused: Vec<_> = open.keys().copied().filter(|which| is(kept, *which)).collect();
        for open in unused.iter().filter_map(|which| open.remove(which)).collect::<Vec<_>>() {
            self.sims[at].close(client, open).expect("it was open");
        }
        self.collect(at);
    }

    /// What is open elsewhere, and not here as the process before this one died. `None`: all is.
    fn open_missing(&mut self, at: usize) -> Option<bool> {
        let ino = *self.homes[at].missing.last()?;
        let which = (ino, false);
        if !self.homes[at].open.contains_key(&which) {
            let client = self.relay_client(at);
            match self.open_number(at, client, which) {
                None => return Some(false),
                Some(Ok(open)) => drop(self.homes[at].open.insert(which, open)),
                Some(Err(_)) => {}
            }
        }
        // Unless it has died meanwhile.
        self.homes[at].missing.pop();
        Some(true)
    }

    /// `None`: it waits.
    fn open_number(
        &mut self,
        at: usize,
        client: usize,
        (ino, writes): (Ino, bool),
    ) -> Option<Result<Opened>> {
        let asked = self.homes[at].opens.take().map(|(_, taken)| taken);
        let request = Request::Far(FarFile::Open { ino, access: if writes { 3 } else { 1 } });
        let taken = asked.unwrap_or_else(|| {
            let taken = self.sims[at].asking(client, request);
            taken.expect("encodes")
        });
        let session = self.sims[at].clients[client].session;
        let outcome =
            self.sims[at].with(|server| handling::handle(&mut server.lock(), session, &taken));
        self.collect(at);
        let Some(Handled::Answer(reply)) = outcome else {
            self.homes[at].opens = Some(((ino, writes), taken));
            return None;
        };
        Some(match frame::decode(&reply).expect("an answer") {
            Reply::Opened { description, nonce, file } => {
                Ok(Opened::new(OpenFile { file, description, nonce }, None))
            }
            Reply::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        })
    }

    /// Has the chunks here that a job reads or writes, or does it where they are mapped. `None`: it
    /// waits.
    fn bring_for(
        &mut self,
        at: usize,
        client: usize,
        job: &Job,
    ) -> Option<Result<Option<Answered>>> {
        let open = self.homes[at].open.get(&(job.file(), writes(&job.act))).copied()?;
        let slot = open.file.slot;
        let size = self.sims[at].size_of(open);
        let range = match job.act {
            Act::Offer { by, index, .. } => {
                let done =
                    self.offer(at, client, (job, FarFile::OfferTo(job.file(), by, index)))?;
                return Some(done.map(|done| Some((done, Vec::new()))));
            }
            Act::Read { at, bytes, .. } => at..at + u64::from(bytes),
            Act::Write { at, .. } => {
                let at = at.unwrap_or(size);
                at..at + job.bytes.len() as u64
            }
            Act::Truncate { .. } | Act::Fencing(..) | Act::Update(..) => 0..u64::MAX,
            _ => return Some(Ok(None)),
        };
        let away = |sim: &Sim| {
            let entries = ram::entries(&sim.memory, slot).into_iter();
            let mut its = entries.filter(|(_, entry)| entry.with().is_some());
            its.find(|(index, _)| {
                index * CHUNK_BYTES < range.end && (index + 1) * CHUNK_BYTES > range.start
            })
        };
        let reads = matches!(job.act, Act::Read { .. });
        while let Some((first, _)) = away(&self.sims[at]) {
            let short = reads && range.end - range.start <= EXTENT_MAX.into();
            let bytes = if short { (range.end - range.start) as u32 } else { 0 };
            let within = (range.start % CHUNK_BYTES) as u32;
            let stage = Request::Stage { file: open.file, first, count: 1, within, bytes };
            let asked = self.homes[at].take_brought(job);
            let (taken, through) = asked
                .unwrap_or_else(|| (self.sims[at].asking(client, stage).expect("encodes"), false));
            let session = self.sims[at].clients[client].session;
            let handled =
                self.sims[at].with(|server| handling::handle(&mut server.lock(), session, &taken));
            self.collect(at);
            let Some(Handled::Answer(reply)) = handled else {
                self.homes[at].brings.push((which(job), taken, through));
                return None;
            };
            match frame::decode(&reply) {
                Ok(Reply::Extent(mut read)) => {
                    read.truncate(size.saturating_sub(range.start) as usize);
                    return Some(Ok(Some((Done::Read, read))));
                }
                Ok(Reply::Done) if through => {
                    self.sims[at].raise_size(open, range.end);
                    return Some(Ok(Some((Done::Written(range.start), Vec::new()))));
                }
                Ok(Reply::Failed(error)) => {
                    if error.kind != ErrorKind::TextBusy || !matches!(job.act, Act::Write { .. }) {
                        return Some(Err(error));
                    }
                    let (file, at_byte, bytes) = (open.file, range.start, &*job.bytes);
                    let asked = FarFile::WriteMapped { file, at: at_byte, bytes };
                    let taken = self.sims[at].asking(client, Request::Far(asked));
                    self.homes[at].brings.push((which(job), taken.expect("encodes"), true));
                }
                _ => {}
            }
        }
        Some(Ok(None))
    }

    /// Has a chunk offered, which others may have. `None`: it waits.
    fn offer(
        &mut self,
        at: usize,
        client: usize,
        (job, asked): (&Job, FarFile<'_>),
    ) -> Option<Result<Done>> {
        let begun = self.homes[at].take_brought(job).map(|(taken, _)| taken);
        let taken = begun
            .unwrap_or_else(|| self.sims[at].asking(client, Request::Far(asked)).expect("encodes"));
        let session = self.sims[at].clients[client].session;
        let handled =
            self.sims[at].with(|server| handling::handle(&mut server.lock(), session, &taken));
        self.collect(at);
        let Some(Handled::Answer(reply)) = handled else {
            self.homes[at].brings.push((which(job), taken, false));
            return None;
        };
        Some(match frame::decode(&reply).expect("an answer") {
            Reply::Failed(error) => Err(error),
            reply => Ok(offered(&reply)),
        })
    }

    /// What a job reads or writes of a chunk that is mapped here.
    fn through_map(&mut self, at: usize, job: &Job, loan: FileRef) -> (Done, Vec<u8>) {
        let memory = &self.sims[at].memory;
        let page = |index| memory.entry(loan.slot, index).page();
        match job.act {
            Act::ReadMapped { index, at, bytes } => {
                let mut read = vec![0; bytes as usize];
                memory.read(page(index), at.into(), &mut read).expect("there");
                (Done::Read, read)
            }
            Act::WriteMapped { index, at } => {
                memory.write(page(index), at.into(), &job.bytes).expect("there");
                (Done::Done, Vec::new())
            }
            _ => (Done::Unknown, Vec::new()),
        }
    }

    /// The part of a chunk that a job is about.
    fn read_places(&mut self, at: usize, job: &Job, places: &[Stored]) -> (Done, Vec<u8>) {
        let Act::GiveBack { at: from, bytes, .. } = job.act else { return (Done::Done, vec![]) };
        let mut all = Vec::new();
        for place in places {
            all.resize(place.within as usize, 0);
            let mut read = vec![0; place.bytes as usize];
            let within = u64::from(place.within);
            self.sims[at].memory.read(place.page, within, &mut read).expect("there");
            all.extend(read);
        }
        let (from, end) = (all.len().min(from as usize), all.len().min((from + bytes) as usize));
        (Done::Read, all[from..end].to_vec())
    }

    fn carry_out(&mut self, at: usize, client: usize, job: &Job) -> Outcome {
        let open = self.homes[at].open.get(&(job.file(), writes(&job.act))).copied();
        let (sim, nothing) = (&mut self.sims[at], Vec::new);
        let Some(open) = open.filter(|_| job.act != Act::Close) else {
            return Ok((Done::Done, nothing()));
        };
        match job.act {
            Act::Borrow { by, first, count, .. } => {
                let asked = FarFile::LendTo(job.file(), by, first, count);
                Ok(match sim.ask(client, Request::Far(asked))? {
                    Reply::LentTo(LentTo { count, size, stamp }) => {
                        (Done::Lent { count, size, stamp }, nothing())
                    }
                    _ => (Done::Unknown, nothing()),
                })
            }
            Act::Grow { by, to } => {
                let entry = sim.memory.entry(open.file.slot, (to - 1) / CHUNK_BYTES);
                if entry.with() != Some(by) {
                    return Ok((Done::Unknown, nothing()));
                }
                sim.raise_size(open, to);
                Ok((Done::Done, nothing()))
            }
            Act::Accept { by, index, stamp } => {
                let asked = FarFile::Accepted(job.file(), by, index, stamp);
                Ok((offered(&sim.ask(client, Request::Far(asked))?), nothing()))
            }
            Act::Read { at, bytes, kept, .. } => {
                if kept {
                    sim.ask(client, Request::Far(FarFile::Rests(job.file())))?;
                }
                let read = sim.read_all(client, open, at, bytes as usize)?;
                Ok((Done::Read, read))
            }
            Act::Merge { .. } => {
                for write in batch::writes(&job.bytes) {
                    let (at, bytes) = write?;
                    if does(Step::MergeBytes) {
                        sim.write(client, open.file, at, bytes)?;
                    } else {
                        let (at, bytes) = whole_pages((at, bytes), sim.size_of(open));
                        sim.write(client, open.file, at, &bytes)?;
                    }
                }
                Ok((Done::Done, nothing()))
            }
            Act::Fencing(..) | Act::Update(..) => say(sim, client, job),
            Act::Write { at, token, .. } => {
                let at = at.unwrap_or_else(|| sim.size_of(open));
                sim.write_with(client, (open.file, token), at, &job.bytes)?;
                Ok((Done::Written(at), nothing()))
            }
            Act::Truncate { size, token, .. } => {
                let target = Target::File(open.file);
                sim.ask(client, Request::Truncate { target, size, token })?;
                Ok((Done::Done, nothing()))
            }
            _ => Ok((Done::Done, nothing())),
        }
    }
}

mod kept;
