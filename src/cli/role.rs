//! `terral role`: which machines of a run keep bytes of new files.
//!
//! Not here: what that means for files (`terral_server`).

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use terral_client::{Client, Member, Membership};
use terral_server::Standing;

use crate::instances::{Which, name_of};
use crate::members::{Hosts, is_in, this};
use crate::policy::await_all;

/// What a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// It keeps bytes of new files
    Storage,
    /// It keeps none: what its programs create is on others
    Compute,
}

/// Says whether a machine keeps the bytes of new files
#[derive(Args)]
#[command(after_help = "\
Of a run over several machines. Who has the role `storage`, as all have at first, keeps the bytes of
files that are created there. Who is a `compute` machine keeps none: what its programs create is
created on one of the others, the one that has more memory free, of two chosen at random, and no
directory is lent to it. If it is lost, nothing goes with it but what was not closed.

It holds for what is created from then on: what a machine has, it has. Once it was said of one, a
machine that joins later is a compute machine until it is said of that. Roles are given where the
run began. `terral run --storage-hosts` gives them before COMMAND starts; `terral status` shows
them.

Examples:
  terral role node7 compute
  terral role node7 storage")]
pub struct Arguments {
    /// By its host, or its number
    host: String,
    role: Role,
    #[command(flatten)]
    which: Which,
}

/// Does it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let client = arguments.which.observe()?;
    let name = name_of(client.instance());
    let hosts = Hosts::of(client.instance());
    let Some(partition) = client.status()?.partition else {
        bail!("{name}: one machine, which keeps all files");
    };
    if partition.me != partition.control {
        let control = hosts.name(partition.control);
        bail!("{name}: only {control} gives roles: ask there, where the run began");
    }
    let host = &arguments.host;
    let named = hosts.member(host, |it| is_in(it, &partition))?;
    let member = named.or_else(|| (host == &this()).then_some(partition.me));
    let member = member.with_context(|| format!("{host}: no machine of this run"))?;
    if let Err(error) = client.set_role(member, matches!(arguments.role, Role::Storage)) {
        bail!("{}", error.context);
    }
    await_all(&client)?;
    Ok(0)
}

/// Gives these machines the role storage, and no others.
///
/// # Errors
/// If one cannot have it.
pub fn give(client: &Client, storage: &[Member]) -> Result<()> {
    for member in storage {
        client.set_role(*member, true)?;
    }
    let Some(Membership { members, .. }) = client.status()?.partition else { return Ok(()) };
    for other in members {
        let member = other.seat.member;
        if !storage.contains(&member) && matches!(other.seat.standing, Standing::In(_)) {
            client.set_role(member, false)?;
        }
    }
    await_all(client)
}
