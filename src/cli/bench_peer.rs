//! One process of `terral bench --hosts` on one of its machines: does the duties that it is told on
//! standard input, one at a time, and says how long each took by its own clock.
//!
//! Invariants: between the two clock readings of a duty lie only the calls that are measured and a
//! loop around them; what is written says where it belongs, so that a block at another place, or of
//! another file, is not taken for the right one. Not here: what is compared with what.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use terral_client::{Client, Consistency, Membership, Status};

use crate::bench_link;
use crate::bench_peer_objects::{ObjectDuty, Objects};
use crate::bench_sealed::{self, Stream};
use crate::bench_worker::{now_ns, ran_ns};
use crate::instances::PREFIX;
use crate::words::{hear, speak};

/// Bytes of a block, and of a call.
pub const BLOCK: usize = 1 << 20;
/// Bytes of a small call.
pub const SMALL: usize = 4096;
/// What another process is to write, it writes within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// One process of `terral bench --hosts`
#[derive(Args)]
pub struct Arguments {
    /// Say what this run's programs have in their environment, and wait for the end of standard
    /// input
    #[arg(long)]
    hold: bool,
    /// Make this file first
    #[arg(long, value_name = "FILE")]
    first: Option<PathBuf>,
}

/// Some blocks of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blocks {
    /// Which file.
    pub path: String,
    /// What its blocks are made from.
    pub seed: u64,
    /// The first of them.
    pub first: u64,
    /// The next one is so many further on.
    pub step: u64,
    /// How many.
    pub count: u64,
}

/// Files called `STEM.0`, `STEM.1`, ...
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Names {
    /// Path and begin of the name.
    pub stem: String,
    /// How many.
    pub count: u64,
}

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Duty {
    /// Says how the server of its machine is.
    Look,
    /// Listens for plain connections.
    Listen,
    /// Sends bytes over one, encrypted or not.
    Send(u64, bool),
    /// Has bytes sent to it.
    Receive(Vec<SocketAddr>, u64, bool),
    /// Sends back what comes, so often.
    Echo(u64),
    /// Sends and waits for the echo, so often.
    RoundTrips(Vec<SocketAddr>, u64),
    /// Makes a directory.
    Directory(String),
    /// Removes an empty directory.
    RemoveDirectory(String),
    /// Makes an empty file.
    Touch(String),
    /// Makes a file of so many bytes, of which none is written.
    Size(String, u64),
    /// Has others see what is written to files of this name once it is committed, or at once.
    Commit(String, bool),
    /// Creates a file and writes it.
    New(Blocks),
    /// Writes a file that is there.
    Write(Blocks),
    /// Reads so many blocks, one after the other, and finds the end behind them.
    Read(Blocks),
    /// Reads each of them once, in another order.
    ReadAtRandom(Blocks),
    /// Compares a whole file with what was to be written.
    Check(Blocks),
    /// Removes a file.
    Remove(String),
    /// Creates and closes.
    CreateMany(Names),
    /// Asks for attributes.
    StatMany(Names),
    /// Opens for reading and closes.
    OpenMany(Names),
    /// Removes.
    RemoveMany(Names),
    /// Writes a number into one half of a small file, and waits for it in the other, so often.
    Ping(String, u64),
    /// The other side of that.
    Pong(String, u64),
    /// Writes a small piece of a file and reads it, so often.
    WriteAndRead(String, u64),
    /// Something with objects.
    Objects(ObjectDuty),
}

/// What is said to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Told {
    /// This comes next.
    Do(Duty),
    /// Now.
    Go,
}

/// How a server is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Where its machine can be reached.
    pub addresses: Vec<SocketAddr>,
    /// Frames it has sent that ask, answer or tell something.
    pub operations: u64,
    /// Bytes of all frames it has sent.
    pub bytes: u64,
    /// How long its threads have run.
    pub ran_ns: u64,
    /// Bytes of its memory that hold something.
    pub used_bytes: u64,
}

/// What came of a duty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Did {
    /// How long it took.
    pub ns: u64,
    /// Processor time of this process meanwhile.
    pub cpu_ns: u64,
    /// The longest of many calls.
    pub longest_ns: u64,
    /// How long all that write took, without what was waited for then.
    pub calls_ns: u64,
    /// Where it listens.
    pub port: u16,
    /// How its server is.
    pub seen: Seen,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// What a process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Says {
    /// It is there, and what programs of its run have in their environment.
    Here(Vec<(String, String)>),
    /// It could begin.
    Ready,
    /// It has ended.
    Did(Did),
}

fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn mixed(number: u64) -> u64 {
    let one = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (one ^ one >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ one >> 32
}

/// What all blocks have but for the first word of each page.
fn base() -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|at| mixed(at).to_le_bytes()).collect()
}

/// Makes it the block of this number of the file with this seed.
fn stamp(buffer: &mut [u8], seed: u64, block: u64) {
    for (page, bytes) in (0u64..).zip(buffer.chunks_exact_mut(SMALL)) {
        let word = mixed(mixed(seed) ^ (block << 8 | page));
        bytes[..8].copy_from_slice(&word.to_le_bytes());
    }
}

/// An order in which no block but by chance follows the one before it.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    let coprime = |step: &u64| {
        let (mut a, mut b) = (*step, count);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    let step = (count * 5 / 8 + 1..).find(coprime).unwrap_or(1);
    (0..count).map(move |at| at * step % count)
}

fn opened(path: &str) -> Result<File> {
    File::open(path).with_context(|| path.to_owned())
}

fn writing(path: &str) -> Result<File> {
    OpenOptions::new().write(true).read(true).open(path).with_context(|| path.to_owned())
}

fn created(path: &str) -> Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path).with_context(|| path.to_owned())
}

/// A process with its memory touched, and what its next duty needs.
struct Peer {
    buffer: Vec<u8>,
    other: Vec<u8>,
    names: Vec<String>,
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    objects: Objects,
    did: Did,
}

impl Peer {
    fn prepare(&mut self, duty: &Duty) -> Result<()> {
        self.did = Did::default();
        match duty {
            Duty::Receive(addresses, ..) | Duty::RoundTrips(addresses, _) => {
                self.stream = Some(bench_link::dial(addresses)?);
            }
            Duty::CreateMany(names)
            | Duty::StatMany(names)
            | Duty::OpenMany(names)
            | Duty::RemoveMany(names) => {
                let name = |at| format!("{}.{at}", names.stem);
                self.names = (0..names.count).map(name).collect();
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, file: &File, blocks: &Blocks) -> Result<()> {
        let begin_ns = now_ns();
        for at in 0..blocks.count {
            let block = blocks.first + at * blocks.step;
            stamp(&mut self.buffer, blocks.seed, block);
            let written = file.write_all_at(&self.buffer, block * BLOCK as u64);
            written.with_context(|| format!("{}: block {block}", blocks.path))?;
        }
        self.did.calls_ns = now_ns() - begin_ns;
        Ok(file.sync_all()?)
    }

    fn read(&mut self, blocks: &Blocks) -> Result<()> {
        let (mut file, mut total) = (opened(&blocks.path)?, 0);
        loop {
            match file.read(&mut self.other)? {
                0 => break,
                count => total += count as u64,
            }
        }
        let all = blocks.count * BLOCK as u64;
        ensure!(total == all, "{}: {total} bytes of {all}", blocks.path);
        Ok(())
    }

    fn read_at_random(&mut self, blocks: &Blocks) -> Result<()> {
        let file = opened(&blocks.path)?;
        for block in scattered(blocks.count) {
            file.read_exact_at(&mut self.other, block * BLOCK as u64)?;
        }
        Ok(())
    }

    fn check(&mut self, blocks: &Blocks) -> Result<()> {
        let mut file = opened(&blocks.path)?;
        for block in 0..blocks.count {
            stamp(&mut self.buffer, blocks.seed, block);
            file.read_exact(&mut self.other)?;
            if self.buffer != self.other {
                bail!("{}: WRONG BYTES in block {block} of 1 MiB", blocks.path);
            }
        }
        ensure!(file.read(&mut self.other)? == 0, "{}: too long", blocks.path);
        Ok(())
    }

    fn create_many(&mut self) -> Result<()> {
        let mut last = now_ns();
        for name in &self.names {
            drop(created(name)?);
            let now = now_ns();
            self.did.longest_ns = self.did.longest_ns.max(now - last);
            last = now;
        }
        Ok(())
    }

    fn each(&self, what: impl Fn(&str) -> std::io::Result<()>) -> Result<()> {
        let one = |name: &String| what(name).with_context(|| name.clone());
        self.names.iter().try_for_each(one)
    }

    /// Its plain connection, of which this is the only use.
    fn stream(&mut self, sealed: bool) -> Result<Box<dyn Stream>> {
        let dialled = self.stream.take();
        match (dialled, &self.listener) {
            (Some(stream), _) if sealed => bench_sealed::dialled(stream),
            (Some(stream), _) => Ok(Box::new(stream)),
            (None, None) => bail!("it does not listen"),
            (None, Some(listener)) if sealed => {
                bench_sealed::accepted(bench_link::accept(listener)?)
            }
            (None, Some(listener)) => Ok(Box::new(bench_link::accept(listener)?)),
        }
    }

    fn work(&mut self, duty: &Duty) -> Result<()> {
        match duty {
            Duty::Look => self.did.seen = look()?,
            Duty::Listen => {
                let listener = bench_link::listen()?;
                self.did.port = listener.local_addr()?.port();
                self.listener = Some(listener);
            }
            Duty::Send(bytes, sealed) => {
                bench_link::send(&mut self.stream(*sealed)?, &self.buffer, *bytes)?;
            }
            Duty::Receive(_, bytes, sealed) => {
                let mut from = self.stream(*sealed)?;
                bench_link::receive(&mut from, &mut self.other, *bytes)?;
            }
            Duty::Echo(count) => {
                let mut with = self.stream(false)?;
                bench_link::echo(&mut with, &mut self.other[..SMALL], *count)?;
            }
            Duty::RoundTrips(_, count) => {
                let mut with = self.stream(false)?;
                bench_link::round_trips(&mut with, &mut self.other[..SMALL], *count)?;
            }
            Duty::Directory(path) => std::fs::create_dir(path).with_context(|| path.clone())?,
            Duty::RemoveDirectory(path) => {
                std::fs::remove_dir(path).with_context(|| path.clone())?;
            }
            Duty::Touch(path) => drop(created(path)?),
            Duty::Size(path, bytes) => {
                created(path)?.set_len(*bytes).with_context(|| path.clone())?;
            }
            Duty::Commit(path, is) => commit(path, *is)?,
            Duty::New(blocks) => self.write(&created(&blocks.path)?, blocks)?,
            Duty::Write(blocks) => self.write(&writing(&blocks.path)?, blocks)?,
            Duty::Read(blocks) => self.read(blocks)?,
            Duty::ReadAtRandom(blocks) => self.read_at_random(blocks)?,
            Duty::Check(blocks) => self.check(blocks)?,
            Duty::Remove(path) => std::fs::remove_file(path).with_context(|| path.clone())?,
            Duty::CreateMany(_) => self.create_many()?,
            Duty::StatMany(_) => self.each(|name| std::fs::metadata(name).map(drop))?,
            Duty::OpenMany(_) => self.each(|name| File::open(name).map(drop))?,
            Duty::RemoveMany(_) => self.each(|name| std::fs::remove_file(name))?,
            Duty::Ping(path, count) => exchange(path, *count, true)?,
            Duty::Pong(path, count) => exchange(path, *count, false)?,
            Duty::WriteAndRead(path, count) => write_and_read(path, *count)?,
            Duty::Objects(duty) => self.objects.work(duty, &self.buffer)?,
        }
        Ok(())
    }

    fn carry_out(&mut self, duty: &Duty) -> Did {
        let (begin_ns, cpu_ns) = (now_ns(), processor_ns());
        let worked = self.work(duty);
        self.did.cpu_ns = processor_ns() - cpu_ns;
        self.did.ns = now_ns() - begin_ns;
        self.did.failure = worked.err().map(|error| format!("{error:#}"));
        std::mem::take(&mut self.did)
    }
}

/// Writes numbers at one place and waits for them at another one; first, or after the other.
fn exchange(path: &str, count: u64, first: bool) -> Result<()> {
    let file = writing(path)?;
    let (own, others) = if first { (0, SMALL as u64) } else { (SMALL as u64, 0) };
    for number in 1..=count {
        if first {
            write_number(&file, own, number)?;
        }
        let begin = Instant::now();
        while read_number(&file, others)? != number {
            ensure!(begin.elapsed() < PATIENCE, "{path}: the other process writes nothing");
            std::thread::yield_now();
        }
        if !first {
            write_number(&file, own, number)?;
        }
    }
    Ok(())
}

/// Writes a small piece that has one number all over.
fn write_number(file: &File, at: u64, number: u64) -> Result<()> {
    let mut piece = [0; SMALL];
    piece.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    Ok(file.write_all_at(&piece, at)?)
}

/// The number of a small piece, which was written whole; 0 if there is none yet.
fn read_number(file: &File, at: u64) -> Result<u64> {
    let mut piece = [0; SMALL];
    if file.read_at(&mut piece, at)? < SMALL {
        return Ok(0);
    }
    let (words, _) = piece.as_chunks::<8>();
    let number = u64::from_le_bytes(words[0]);
    ensure!(words.iter().all(|word| *word == words[0]), "a small write was seen in part");
    Ok(number)
}

fn write_and_read(path: &str, count: u64) -> Result<()> {
    let file = writing(path)?;
    for number in 1..=count {
        write_number(&file, 0, number)?;
        ensure!(read_number(&file, 0)? == number, "{path}: WRONG BYTES");
    }
    Ok(())
}

fn server() -> Result<Client> {
    let instance = std::env::var_os("TERRAL_INSTANCE").context("TERRAL_INSTANCE is not set")?;
    Ok(Client::observe(instance.as_ref())?)
}

/// Sets a policy of the run, and waits until all machines go by it, or takes it back.
fn commit(path: &str, is: bool) -> Result<()> {
    let (server, path) = (server()?, path.trim_start_matches(PREFIX).trim_start_matches('/'));
    server.set_policy(path, is.then_some(Consistency::Commit))?;
    let begin = Instant::now();
    let is_known = |partition: &Membership| partition.members.iter().all(|one| one.current);
    while is && !server.status()?.partition.as_ref().is_some_and(is_known) {
        ensure!(begin.elapsed() < PATIENCE, "a machine does not hear of a policy");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How this machine's server of the run is.
fn look() -> Result<Seen> {
    let Status { pid, partition, memory_used_bytes: used_bytes, .. } = server()?.status()?;
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ran = threads.map(|at| ran_ns(&format!("{}/schedstat", at.path().display()))).sum();
    let alone = Seen { ran_ns: ran, used_bytes, ..Seen::default() };
    let Some(partition) = partition else { return Ok(alone) };
    let own = partition.members.iter().find(|member| member.seat.member == partition.me);
    Ok(Seen {
        addresses: own.map(|own| own.seat.addresses.clone()).unwrap_or_default(),
        operations: partition.sent.operations,
        bytes: partition.sent.bytes,
        ..alone
    })
}

/// What programs of this run have in their environment.
fn environment() -> Vec<(String, String)> {
    let ours = |name: &str| name == "LD_PRELOAD" || name.starts_with("TERRAL_");
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let all = std::env::vars_os().filter_map(text);
    all.filter(|(name, _)| ours(name) && name != "TERRAL_RSH").collect()
}

/// Works until standard input ends.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let mut out = std::io::stdout().lock();
    let mut stdin = std::io::stdin().lock();
    if let Some(path) = &arguments.first {
        OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    }
    speak(&mut out, &Says::Here(environment()))?;
    if arguments.hold {
        std::io::copy(&mut stdin, &mut std::io::sink())?;
        return Ok(0);
    }
    let mut peer = Peer {
        buffer: base(),
        other: base(),
        names: Vec::new(),
        listener: None,
        stream: None,
        objects: Objects::default(),
        did: Did::default(),
    };
    let mut next = None;
    while let Some(told) = hear::<Told>(&mut stdin) {
        match told {
            Told::Do(duty) => {
                let prepared = peer.prepare(&duty);
                if let Err(error) = prepared {
                    let failure = Some(format!("{error:#}"));
                    speak(&mut out, &Says::Did(Did { failure, ..Did::default() }))?;
                    continue;
                }
                next = Some(duty);
                speak(&mut out, &Says::Ready)?;
            }
            Told::Go => {
                let Some(duty) = next.take() else { continue };
                speak(&mut out, &Says::Did(peer.carry_out(&duty)))?;
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::{base, scattered, stamp};

    #[test]
    fn each_block_of_each_file_is_another() {
        let block = |seed, block| {
            let mut bytes = base();
            stamp(&mut bytes, seed, block);
            bytes
        };
        assert_ne!(block(1, 0), block(1, 1));
        assert_ne!(block(1, 0), block(2, 0));
        assert_eq!(block(3, 4), block(3, 4));
    }

    #[test]
    fn each_block_is_read_once_and_none_after_the_one_before_it() {
        for count in [1, 4, 16, 64, 100, 255] {
            let order: Vec<u64> = scattered(count).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            assert!(order.windows(2).all(|pair| pair[1] != pair[0] + 1), "{order:?}");
        }
    }
}
