//! Another member moves a directory to another path, or lets two names change places. Programs here
//! may be in it, so the tables have it there before it is, and who looks there waits until it is.
//! And if something below it may be this server's to bring, it rests, so that it brings nothing to
//! a path that is none any more, until it is told that the permanent directory has it there; what
//! it owes below is owed there then.
//!
//! Invariants: it rests until it is told, also another process of it. As long as it does, no look
//! changes what the tables have as the place of a directory: it is by that that files are brought.
//! Only a file that is created here takes its name all the same.
//! Not here: when the drain begins nothing (`drain/turns`), and who moves (`members/moving`).

use terral_format::disk::membership::Membership;
use terral_format::ids::{Member, Number, ROOT};
use terral_format::wire::moving::{Moving, Of};
use terral_format::wire::roster::Control;
use terral_format::{ErrorKind, Result};
use terral_store::backing::Backing;

use crate::core::state::State;
use crate::members::moving;
use crate::naming::exchanging::{self, is_named, known};
use crate::sharing::users;

/// Another member says something of a directory's move.
///
/// # Errors
/// If the tables have no room.
pub fn heard(state: &mut State, from: Member, said: Of) -> Result<()> {
    let Some(said) = users::moves(state, from, said) else { return Ok(()) };
    match said {
        Of::Moves(theirs) => moves(state, from, theirs)?,
        Of::Exchanges(moving, back) => {
            moves(state, from, Some(Moving { back: Some(back), ..moving }))?;
        }
        Of::Rests(id) => moving::heard(state, from, id, true),
        Of::Goes(id) => moving::heard(state, from, id, false),
    }
    Ok(())
}

/// There is a session with another member, who may not know what this one is at.
pub fn connected(state: &mut State, with: Member) {
    state.members.iter_mut().for_each(|members| members.rests(with, None));
    moving::tell(state, with);
}

fn moves(state: &mut State, by: Member, theirs: Option<Moving>) -> Result<()> {
    let before = state.names.resting().get(&by).cloned();
    let same = |moving: &Moving| before.as_ref().is_some_and(|before| before.id == moving.id);
    state.members.iter_mut().for_each(|members| members.rests(by, None));
    match theirs {
        Some(moving) if moving.done => {
            if same(&moving) {
                is_done(state, by, &moving)?;
            }
            let goes = Control::Moving(Of::Goes(moving.id));
            state.members.iter_mut().for_each(|members| members.says(by, goes.clone()));
        }
        Some(moving) => {
            if !same(&moving) {
                before.iter().try_for_each(|before| goes_back(state, by, before))?;
                begins(state, by, &moving)?;
            }
            // Else the drain says so, once it does.
            if let Some(members) = state.members.as_mut().filter(|_| !moving.brings) {
                members.rests(by, Some(moving.id));
            }
        }
        None => before.iter().try_for_each(|before| goes_back(state, by, before))?,
    }
    state.members.iter_mut().for_each(|members| members.go_on());
    Ok(())
}

/// It is about to move: programs here that are in it find it there, and wait until it is.
fn begins(state: &mut State, by: Member, moving: &Moving) -> Result<()> {
    spoil(state, moving);
    if moving.back.is_none() {
        has_place(state, &moving.way)?;
    }
    state.record(Membership::Rests { by, moving: Some(moving.clone()) });
    if let Some(back) = moving.back.clone() {
        state.record(Membership::Exchanges { by, back: *back });
        // Else it is known here once nothing is brought.
        if !moving.brings {
            exchanging::swap(state, by, true)?;
        }
    }
    Ok(())
}

/// It has moved.
fn is_done(state: &mut State, by: Member, moving: &Moving) -> Result<()> {
    spoil(state, moving);
    if moving.back.is_some() {
        exchanging::are_swapped(state, by)?;
        exchanging::has_come(state, moving);
        state.record(Membership::Rests { by, moving: None });
        return Ok(());
    }
    if moving.brings {
        let (from, to) = (moving.from.clone(), moving.to.clone());
        state.record(Membership::Moved { from, to });
    }
    has_place(state, &moving.way)?;
    state.record(Membership::Rests { by, moving: None });
    Ok(())
}

/// All others are gone, and what is here is only to be brought: who moves something here waits for
/// nobody, and what another one was about to move is where the permanent directory has it.
///
/// # Errors
/// If the tables have no room.
pub fn settle_alone(state: &mut State) -> Result<()> {
    moving::is_abandoned(state);
    for (by, theirs) in state.names.resting().clone() {
        settle_of(state, by, &theirs)?;
    }
    Ok(())
}

/// The same of one that was about to move something, and is gone.
///
/// # Errors
/// If the tables have no room.
pub(super) fn settle_of(state: &mut State, by: Member, theirs: &Moving) -> Result<()> {
    let Some(backing) = state.backing.clone().filter(|_| theirs.brings) else {
        return goes_back(state, by, theirs);
    };
    if theirs.back.is_some() {
        return match exchanging::is_swapped_there(state, by, theirs) {
            Some(true) => is_done(state, by, theirs),
            Some(false) => goes_back(state, by, theirs),
            None => Ok(()),
        };
    }
    match (is_there(&*backing, &theirs.from), is_there(&*backing, &theirs.to)) {
        (Some(false), Some(true)) => is_done(state, by, theirs),
        (Some(_), Some(_)) => goes_back(state, by, theirs),
        // It cannot say now.
        _ => Ok(()),
    }
}

/// Whether the permanent directory has something there, if it can say.
fn is_there(backing: &dyn Backing, path: &[u8]) -> Option<bool> {
    match backing.stat(path) {
        Ok(_) => Some(true),
        Err(error) => {
            let missing = [ErrorKind::NotFound, ErrorKind::NotDirectory];
            missing.contains(&error.kind).then_some(false)
        }
    }
}

/// It does not move after all.
fn goes_back(state: &mut State, by: Member, moving: &Moving) -> Result<()> {
    spoil(state, moving);
    if moving.back.is_some() {
        exchanging::swap(state, by, false)?;
        state.record(Membership::Rests { by, moving: None });
        return Ok(());
    }
    if moving.brings {
        let (from, to) = (moving.to.clone(), moving.from.clone());
        state.record(Membership::Moved { from, to });
    }
    let mut names = moving.from.split(|byte| *byte == b'/').peekable();
    let mut parent = Some(ROOT);
    while let (Some(at), Some(name)) = (parent, names.next()) {
        if names.peek().is_some() {
            parent = state.names.child_here(at, name);
        } else if let Some((number, _)) = moving.way.last()
            && let Some(ino) = known(state, *number)
        {
            is_named(state, ino, (at, name.to_vec()));
        }
    }
    state.record(Membership::Rests { by, moving: None });
    Ok(())
}

fn spoil(state: &mut State, moving: &Moving) {
    state.fetches.spoil(&[&moving.from, &moving.to]);
}

/// A directory has this place now, if anything is known of it here.
pub(super) fn has_place(state: &mut State, way: &[(Number, Vec<u8>)]) -> Result<()> {
    let Some((directory, _)) = way.split_last() else { return Ok(()) };
    let Some(ino) = known(state, directory.0) else { return Ok(()) };
    let place = exchanging::above(state, way)?;
    place.into_iter().for_each(|place| is_named(state, ino, place));
    Ok(())
}
