//! What a server becomes of a partition as it starts: its first member, one that was invited, or
//! what it was.
//!
//! Invariant: all members bring their files to one permanent directory, or none does. Not here: how
//! members are let in (`members/control`).

use std::time::{Duration, Instant};

use terral_format::ids::{InstanceId, ROOT};
use terral_format::wire::roster::Invitation;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Backing, Sink};

use crate::core::state::State;
use crate::members::control;
use crate::members::role::Members;
use crate::sharing::{carrying, ruling};
use crate::shell::options::{Options, Part};

/// A server of files may say so long that what another machine has made there is not there.
const SEEN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// The server becomes what it is to be, unless it is that already.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is something else, or does not see the permanent directory that the
/// others see; what that fails with; [`ErrorKind::Busy`] if the one before was killed before it had
/// come into the pool.
pub fn take(state: &mut State, options: &Options) -> Result<()> {
    become_it(state, options)?;
    let Some(pool) = &options.pool else { return Ok(()) };
    let context = "the server before this one was killed before it had come into its pool: again";
    let alone = || Error::new(ErrorKind::Busy, context);
    let members = state.members.as_mut().ok_or_else(alone)?;
    members.is_of_pool((pool.name.clone(), pool.registry.describe()), pool.generation.number);
    Ok(())
}

/// Whether nothing has come into it yet: what there is of it may go.
pub fn is_new(state: &State) -> bool {
    let is_none = state.members.is_none() && state.names.inodes().all(|inode| inode.ino == ROOT);
    state.starts == 1 || is_none
}

fn become_it(state: &mut State, options: &Options) -> Result<()> {
    let Some(part) = &options.partition else { return Ok(()) };
    if let Some(members) = &state.members {
        return is_the_same(members, part);
    }
    match part {
        Part::Control { encrypted, authority, inherited } => {
            control::begin(state, *encrypted, *authority)?;
            ruling::inherit(state, inherited)?;
            leave_sign(state)?;
        }
        Part::Invited(invitation) => {
            if state.names.inodes().any(|inode| inode.ino != ROOT) {
                let context = "it has files of its own already: give another --name";
                return Err(Error::new(ErrorKind::Invalid, context));
            }
            sees_the_same(state.backing.as_deref(), invitation)?;
            control::accept(state, invitation);
        }
    }
    carrying::resume(state)
}

fn is_the_same(members: &Members, part: &Part) -> Result<()> {
    let same = match part {
        Part::Control { .. } => members.control() == members.me(),
        Part::Invited(invitation) => {
            (members.partition().id, members.server())
                == (invitation.partition.id, invitation.server)
        }
    };
    let context = "it is another member already: give another --name";
    if same { Ok(()) } else { Err(Error::new(ErrorKind::Invalid, context)) }
}

fn leave_sign(state: &State) -> Result<()> {
    let number = state.members.as_ref().map(|members| members.partition().id);
    let Some((backing, number)) = state.backing.as_ref().zip(number) else { return Ok(()) };
    backing.leave_sign(number)
}

/// Whether this server's permanent directory is that of the first one.
fn sees_the_same(backing: Option<&dyn Backing>, invitation: &Invitation) -> Result<()> {
    let refuse = |context: String| Err(Error::new(ErrorKind::Invalid, context));
    let (number, control) = (invitation.partition.id, invitation.control.member);
    let Some(backing) = backing else {
        let context = "brings files to a permanent directory: give its path here with --to";
        return if invitation.permanent { refuse(format!("{control} {context}")) } else { Ok(()) };
    };
    if !invitation.permanent {
        return refuse(format!("{control} has no permanent directory: leave --to out"));
    }
    let begin = Instant::now();
    while !backing.has_sign(number)? {
        if begin.elapsed() > SEEN {
            let here = backing.describe();
            return refuse(format!(
                "{here} here is not the directory that {control} brings files to: all machines \
                 must see the same one at that path"
            ));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// The sign goes with the first member.
///
/// # Errors
/// What the store fails with.
pub fn take_sign_away(state: &State, sink: &dyn Sink) -> Result<()> {
    let members = state.members.as_ref().filter(|members| members.control() == members.me());
    members.map_or(Ok(()), |members| sink.clean(InstanceId(members.partition().id)))
}
