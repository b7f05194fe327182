//! What a process of `terral bench --hosts` does with objects and checkpoints, through the client
//! library. Not here: what is compared with what (`bench_far_objects`).

use std::collections::VecDeque;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use terral_client::checkpoints::Checkpoints;
use terral_client::objects::{Address, Container, Extent, Object, ObjectId, Stripes, Value};
use terral_client::transactions::Transaction;
use terral_client::{Client, Submitted};

/// The container of all objects here.
const CONTAINER: &[u8] = b"bench-far";
/// Where checkpoints are.
const SERIES: &[u8] = b"bench-far-points";
/// Bytes of a small call.
const SMALL: usize = 4096;
/// Bytes of a call that is to be of several stripes.
pub const FILLED: usize = 16 << 20;
/// An attribute that is set.
const KEY: &[u8] = b"latest";
/// Over all servers.
const STRIPES: Stripes = Stripes { count: 0, bytes: 2 << 20 };
/// So many writes are under way at a time.
const AHEAD: usize = 3;

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ObjectDuty {
    /// Makes the container.
    Begin,
    /// Removes it.
    End,
    /// Creates objects on a server, from an id on, and closes them.
    Create { on: u16, first: u64, count: u64 },
    /// The same where there is more room.
    CreateLeast { first: u64, count: u64 },
    /// Opens and closes them.
    Open { on: u16, first: u64, count: u64 },
    /// Creates one here and writes it.
    Fill { id: u64, bytes: u64 },
    /// The same, striped over all servers if that is said, until it is closed.
    FillAll { id: u64, bytes: u64, striped: bool },
    /// Has a server have it, too.
    Copy { of: u16, id: u64, to: u16 },
    /// Removes one.
    Remove { on: u16, id: u64 },
    /// Writes small pieces of one, each once the one before it is there, or some at a time.
    Write { on: u16, id: u64, count: u64, submits: bool },
    /// Reads one from its begin to its end, a block at a time.
    Read { on: u16, id: u64, block: usize },
    /// Writes a checkpoint of one process.
    Save { step: u64, copies: usize, bytes: u64 },
    /// Removes it.
    Forget { step: u64 },
    /// Commits transactions that each set an attribute of an object of each of some other servers,
    /// from 1 on; so many servers know whether they came to be.
    Commit { id: u64, homes: u16, count: u64, copies: usize },
    /// Sets the same attributes, call by call.
    SetEach { id: u64, homes: u16, count: u64 },
}

fn client() -> Result<Client> {
    let instance = std::env::var_os("TERRAL_INSTANCE").context("TERRAL_INSTANCE is not set")?;
    Ok(Client::connect(instance.as_ref())?)
}

/// What it uses, once it has been told anything.
#[derive(Default)]
pub struct Objects(Option<Client>);

impl Objects {
    fn client(&mut self) -> Result<Client> {
        if self.0.is_none() {
            self.0 = Some(client()?);
        }
        self.0.clone().context("a client")
    }

    /// Does it. `bytes` are what is written.
    pub fn work(&mut self, duty: &ObjectDuty, bytes: &[u8]) -> Result<()> {
        let client = self.client()?;
        let container = || Container::open(&client, CONTAINER);
        match *duty {
            ObjectDuty::Begin => drop(Container::create(&client, CONTAINER, 0o755)?),
            ObjectDuty::End => container()?.remove()?,
            ObjectDuty::Create { on, first, count } => {
                let container = container()?;
                for id in first..first + count {
                    container.create_object_on(on, ObjectId(id.into()))?.close()?;
                }
            }
            ObjectDuty::CreateLeast { first, count } => {
                let container = container()?;
                for id in first..first + count {
                    container.create_object_least_loaded(ObjectId(id.into()))?.close()?;
                }
            }
            ObjectDuty::FillAll { id, bytes: length, striped } => {
                let object = made(&container()?, id, striped)?;
                fill(&object, &bytes.repeat(FILLED / bytes.len()), length)?;
            }
            ObjectDuty::Open { on, first, count } => {
                let container = container()?;
                for id in first..first + count {
                    container.open_object(address(on, id), true)?.close()?;
                }
            }
            ObjectDuty::Fill { id, bytes: length } => {
                fill(&container()?.create_object(ObjectId(id.into()))?, bytes, length)?;
            }
            ObjectDuty::Copy { of, id, to } => {
                container()?.copy_object(address(of, id), to)?;
            }
            ObjectDuty::Remove { on, id } => container()?.remove_object(address(on, id))?,
            ObjectDuty::Write { on, id, count, submits } => {
                let object = container()?.open_object(address(on, id), true)?;
                if submits {
                    write_some(&object, count)?
                } else {
                    write_each(&object, count)?
                }
                object.close()?;
            }
            ObjectDuty::Read { on, id, block } => {
                let object = container()?.open_object(address(on, id), false)?;
                let (mut block, mut at) = (vec![0; bytes.len().max(block)], 0);
                while let count @ 1.. = object.read(&mut block, at)? {
                    at += count as u64;
                }
                object.close()?;
            }
            ObjectDuty::Save { step, copies, bytes: length } => {
                let all = Checkpoints::open(&client, SERIES, usize::MAX, 0o755)?;
                save(&all.with_copies(copies)?, step, bytes, length)?;
            }
            ObjectDuty::Forget { step } => {
                let path = [SERIES, format!("step-{step:012}").as_bytes()].join(&b'/');
                Container::at(&client, &path)?.remove()?;
            }
            ObjectDuty::Commit { id, homes, count, copies } => {
                let one = |number| commit(&client, homes, (id, number, copies));
                (0..count).try_for_each(one)?;
            }
            ObjectDuty::SetEach { id, homes, count } => {
                set_each(&container()?, homes, (id, count))?
            }
        }
        Ok(())
    }
}

fn address(server: u16, id: u64) -> Address {
    Address { server, id: ObjectId(id.into()) }
}

fn made(container: &Container, id: u64, striped: bool) -> Result<Object> {
    let id = ObjectId(id.into());
    Ok(if striped {
        container.create_striped(id, STRIPES)?
    } else {
        container.create_object(id)?
    })
}

fn fill(object: &Object, bytes: &[u8], length: u64) -> Result<()> {
    for at in (0..length).step_by(bytes.len()) {
        object.write(bytes, at)?;
    }
    Ok(object.clone().close()?)
}

fn save(all: &Checkpoints, step: u64, bytes: &[u8], length: u64) -> Result<()> {
    let checkpoint = all.begin(step)?;
    let whole = bytes.repeat((length / bytes.len() as u64) as usize);
    let part = checkpoint.dump(0, 0, &whole)?;
    Ok(checkpoint.end(&[part])?)
}

/// A number as an attribute of an object of each of these servers.
fn commit(client: &Client, homes: u16, (id, number, copies): (u64, u64, usize)) -> Result<()> {
    let container = Container::open(client, CONTAINER)?;
    let mut transaction = Transaction::begin(client);
    transaction.copies(copies)?;
    for on in 1..=homes {
        let value = Value::Integer(number as i64);
        transaction.set_attribute(&container, address(on, id), KEY, Some(&value))?;
    }
    Ok(transaction.commit()?)
}

fn set_each(container: &Container, homes: u16, (id, count): (u64, u64)) -> Result<()> {
    let opened = (1..=homes).map(|on| container.open_object(address(on, id), true));
    let opened = opened.collect::<terral_client::Result<Vec<Object>>>()?;
    for number in 0..count {
        let value = Value::Integer(number as i64);
        opened.iter().try_for_each(|object| object.set_attribute(KEY, Some(&value)))?;
    }
    opened.into_iter().try_for_each(|object| Ok(object.close()?))
}

/// Small pieces, none beside the one before it.
fn places(count: u64) -> impl Iterator<Item = Extent> {
    let bytes = SMALL as u64;
    (0..count).map(move |at| Extent { at: at * 37 % 256 * bytes, bytes })
}

fn write_each(object: &Object, count: u64) -> Result<()> {
    let piece = [7; SMALL];
    places(count).try_for_each(|extent| Ok(object.write(&piece, extent.at)?))
}

fn write_some(object: &Object, count: u64) -> Result<()> {
    let mut under_way = VecDeque::new();
    for extent in places(count) {
        if under_way.len() == AHEAD
            && let Some(first) = under_way.pop_front()
        {
            is_written(first)?;
        }
        under_way.push_back(object.submit_write(&[extent], vec![7; SMALL])?);
    }
    under_way.into_iter().try_for_each(is_written)
}

fn is_written(write: Submitted<Vec<u8>>) -> Result<()> {
    Ok(write.wait().map(drop)?)
}
