//! `terral fence`: a machine that is lost is none of a run any more.
//!
//! Not here: what becomes of what it had (`terral_server`).

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use terral_client::{Client, ErrorKind, Membership};
use terral_server::{Member, Standing, Verdict};

use crate::instances::{Which, name_of};
use crate::members::Hosts;
use crate::report::{self, note};

/// Removes a machine that is lost from a run over several machines
#[derive(Args)]
#[command(after_help = "\
To be asked on the machine where the run began; in a pool, where its control is. The others wait no
more for the machine that is removed, which is never let in again:

  * what only its memory had is lost: using it is an error (EIO) that names the member. `terral
    status`, and the end of the run (74), list the files by the names that are known;
  * what others have of files and directories stays, and goes on;
  * with a machine go the servers of the users there, all at once: how many is said;
  * if it still lives, it hears that it was removed: its programs get EIO, it brings nothing more,
    and what it has not brought stays in its memory, for `terral recover` there.

With --dead, directories that it had are put together again from what the others and the permanent
directory have: names that only it knew are missing, what it removed last may be there again, and
`terral status` lists these directories. Without --dead they stay errors, as its programs may still
be told of changes in them. Say --dead only if its servers and programs do nothing any more: the
machine is down, was started again, or `terral` and all programs there were killed. It may be said
later, of a member that was removed without.

Of a pool the machine of the control may be lost, too: asked to remove that, on any other machine,
the server there takes over and is the control from then on. What was decided stays; credentials and
capabilities that were handed out are over (`terral login` again).

Examples:
  terral fence node7 --dead
  terral fence 2 --instance lab
  terral status --instance lab    (says who does not answer)")]
pub struct Arguments {
    /// Its host, as `terral run` was given it, or its number, as `terral status` says it. Of a host
    /// that has come into a pool again, only its numbers say which is meant
    #[arg(value_name = "MEMBER|HOST")]
    member: String,
    #[command(flatten)]
    which: Which,
    /// It is known to do nothing any more
    #[arg(long)]
    dead: bool,
    /// One object
    #[arg(long)]
    json: bool,
}

/// Who is meant.
fn member(arguments: &Arguments, hosts: &Hosts, partition: &Membership) -> Result<Member> {
    let asked = &arguments.member;
    let seat = |it| partition.members.iter().find(|one| one.seat.member == it);
    // Who was removed counts, too: said twice, it must not mean who has come in again since.
    let counts = |it| match seat(it).map(|one| one.seat.standing) {
        Some(Standing::Removed { verdict, .. }) => verdict != Verdict::Left,
        standing => standing.is_some(),
    };
    match hosts.member(asked, counts)?.filter(|it| seat(*it).is_some()) {
        Some(member) => Ok(member),
        None => bail!("{asked}: no such member (`terral status` lists them)"),
    }
}

/// How many users' servers go with it: all for which it answers that are not gone yet.
fn with(partition: &Membership, member: Member, dead: bool) -> usize {
    let its = |it| partition.answers.contains(&(it, member));
    let goes = |standing| match standing {
        Standing::In(_) => true,
        Standing::Removed { verdict, .. } => dead && verdict == Verdict::Fenced,
    };
    let seats = partition.members.iter().map(|one| &one.seat);
    seats.filter(|seat| its(seat.member) && goes(seat.standing)).count()
}

/// Removes it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let client: Client = arguments.which.observe()?;
    let name = name_of(client.instance());
    let Some(partition) = client.status()?.partition else {
        bail!("{name}: this server is alone: there is no machine to remove");
    };
    let (control, is_control) = (partition.control, partition.me == partition.control);
    let hosts = Hosts::of(client.instance());
    let elsewhere = || format!("{name}: only {} removes machines: ask there", hosts.name(control));
    if !is_control && partition.pool.is_none() {
        bail!("{}, where the run began", elsewhere());
    }
    let member = member(arguments, &hosts, &partition)?;
    let (shown, takes_over) = (hosts.name(member), member == control && !is_control);
    if !is_control && !takes_over {
        bail!("{}", elsewhere());
    }
    let went = with(&partition, member, arguments.dead);
    match client.fence(member, arguments.dead) {
        Err(error) if error.kind == ErrorKind::Exists => bail!(
            "{shown}: was removed before{}",
            if arguments.dead { "" } else { " (--dead may be said later, once it is sure)" }
        ),
        Err(error) if error.kind == ErrorKind::Invalid => {
            bail!(
                "{shown}: is this server, which says who is in, and is not removed: end \
                 the run, or the others first and then it (`terral stop`)"
            )
        }
        done => done?,
    }
    if arguments.json {
        let (number, dead) = (member.number(), arguments.dead);
        let said = json!({ "instance": name, "member": number, "dead": dead, "users": went });
        report::json(&said)?;
    } else {
        if takes_over {
            note(format_args!("this server is the control of the pool now"));
        }
        let rest = match arguments.dead {
            true => "directories that it had are put together from what is left",
            false => "if it is dead, say so (--dead): then its directories can be used again",
        };
        note(format_args!("{shown} was removed: what only it had is lost; {rest}"));
        if went > 0 {
            note(format_args!("{went} users' servers on {shown} were removed with it"));
        }
    }
    Ok(0)
}
