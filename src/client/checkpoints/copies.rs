//! Second copies of a checkpoint's objects, on other servers: what is there when a machine is lost.
//!
//! A copy is an object of the same id, of another server, with as many bytes; so nothing says where
//! it is, and whoever needs it looks. Invariant: a checkpoint that is to have copies is not ended
//! before each of its objects has one. Not here: who makes it (the server that has it).

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use terral_format::wire::roster::Standing;
use terral_format::wire::status::Other;
use terral_format::{Error, ErrorKind, Result};

use super::manifest::Part;
use crate::client::Client;
use crate::objects::{Address, Container};

/// How long a server that is in the run may not answer before there is no copy on it: its process
/// was killed and another takes its memory over, or this machine's was, and has no session yet.
const AWAY: Duration = Duration::from_secs(20);

/// Between two looks at who answers.
const PAUSE: Duration = Duration::from_millis(20);

/// The server that has copies of what is created on one: the next of those that are in the run, as
/// this machine's server knows them. One that answers if there is one; else it is waited for.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if there is no other one, or none has answered for [`AWAY`].
pub(super) fn partner(client: &Client, of: u16) -> Result<u16> {
    let since = Instant::now();
    loop {
        let all = others(client, of)?;
        if let Some(next) = next_of(&all, of) {
            return Ok(next);
        }
        if all.is_empty() || since.elapsed() >= AWAY {
            let none = "checkpoints with a second copy: the run has no other server that answers";
            return Err(Error::new(ErrorKind::Unsupported, none));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Other servers of the run that store objects.
fn others(client: &Client, of: u16) -> Result<Vec<Other>> {
    let partition = client.status()?.partition;
    let (members, placement) = partition.map(|it| (it.members, it.placement)).unwrap_or_default();
    let is_in = |other: &Other| {
        let member = other.seat.member;
        matches!(other.seat.standing, Standing::In(_))
            && member.number() != of
            && placement.stores(member)
    };
    Ok(members.into_iter().filter(is_in).collect())
}

/// The next that answers.
fn next_of(all: &[Other], of: u16) -> Option<u16> {
    let answer = all.iter().filter(|other| other.connected);
    let mut numbers = answer.map(|other| other.seat.member.number());
    let first = numbers.clone().next();
    numbers.find(|server| *server > of).or(first)
}

/// Looks for the objects of a checkpoint, or their copies.
pub(super) struct Finder<'a> {
    container: &'a Container,
    servers: OnceCell<Vec<u16>>,
    /// Of these something was not to be had.
    failed: BTreeSet<u16>,
}

/// Looks whether an object is as long as it is said to be.
pub(super) fn check_size(container: &Container, address: Address, said: u64) -> Result<()> {
    let bytes = container.size(address)?;
    if bytes == said {
        return Ok(());
    }
    let what = format!("checkpoint: object {} has {bytes} bytes, not {said}", address.id);
    Err(Error::new(ErrorKind::Malformed, what))
}

impl<'a> Finder<'a> {
    pub(super) fn new(container: &'a Container) -> Self {
        Finder { container, servers: OnceCell::new(), failed: BTreeSet::new() }
    }

    /// Where a part is, as long as it is said to be: in its object, or if that is not to be had, in
    /// a copy.
    ///
    /// # Errors
    /// What is wrong with the object, if there is no copy.
    pub(super) fn find(&mut self, part: &Part) -> Result<Address> {
        let own = part.address.server;
        if self.failed.contains(&own)
            && let Some(copy) = self.copy_of(part)
        {
            return Ok(copy);
        }
        match check_size(self.container, part.address, part.bytes) {
            Ok(()) => Ok(part.address),
            Err(error) => {
                self.failed.insert(own);
                self.copy_of(part).ok_or(error)
            }
        }
    }

    /// A copy of a part that is as long as that.
    pub(super) fn copy_of(&mut self, part: &Part) -> Option<Address> {
        let own = part.address.server;
        let servers = self.servers.get_or_init(|| self.container.servers().unwrap_or_default());
        // The next one has it, most likely.
        let (before, after) = servers.split_at(servers.partition_point(|at| *at <= own));
        let others = after.iter().chain(before).filter(|server| **server != own);
        for server in others {
            let copy = Address { server: *server, ..part.address };
            if self.failed.contains(server) {
                continue;
            }
            match check_size(self.container, copy, part.bytes) {
                Ok(()) => return Some(copy),
                // Who does not answer is waited for: once.
                Err(error) if error.kind == ErrorKind::Backing => {
                    self.failed.insert(*server);
                }
                Err(_) => {}
            }
        }
        None
    }
}

/// Has a copy made of each part that has none.
///
/// # Errors
/// As those of [`Container::copy_object`]; [`ErrorKind::Malformed`] if a copy is not whole.
pub(super) fn complete(client: &Client, container: &Container, parts: &[Part]) -> Result<()> {
    let mut finder = Finder::new(container);
    for part in parts {
        if finder.copy_of(part).is_none() {
            let to = partner(client, part.address.server)?;
            let copy = container.copy_object(part.address, to)?;
            check_size(container, copy, part.bytes)?;
        }
    }
    Ok(())
}
