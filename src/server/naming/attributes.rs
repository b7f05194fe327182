//! Attributes that are changed, and what else that changes.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::disk::facts::Fact;
use terral_format::ids::{Ino, Number};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Change, FileRef, Kind, Target};
use terral_format::wire::person::Person;
use terral_format::wire::things;

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::far::{asking, committing};
use crate::naming::xattr_requests;
use crate::naming::{charging, elsewhere, executing, lookup, permitting};
use crate::storage::reclaim;

/// Changes attributes.
pub fn change(
    state: &mut State,
    caller: &Caller,
    target: &Target<'_>,
    change: Change,
) -> Result<()> {
    let ino = lookup::target(state, caller, target)?;
    committing::settle_ino(state, ino)?;
    stays_his(state, ino, &change)?;
    if elsewhere::change(state, caller, ino, things::Change::Attributes(change))?.is_some() {
        return Ok(());
    }
    change_here(state, caller, ino, change)
}

/// What a server has made is its user's, whoever gives it away: its process brings it to the
/// permanent directory, as him. So what is root's stays root's where there are users, and nobody
/// else gives or takes the names of what is his.
fn stays_his(state: &State, ino: Ino, change: &Change) -> Result<()> {
    let Some(members) = state.members.as_ref().filter(|_| state.is_among_users()) else {
        return Ok(());
    };
    let home = members.number(ino).map(|number| number.born());
    let user = home.filter(|home| *home != members.me()).and_then(|home| members.user_of(home));
    let is_roots = state.owner() == Some(0) && home.is_some_and(|home| members.is_ours(home));
    let opens = |mode: u32| is_directory(state, ino) && !permitting::is_roots_way(mode);
    let gives = |user: &Person| {
        let group = change.gid.is_some_and(|gid| !user.is_in(gid));
        group || change.uid.is_some_and(|uid| uid != user.user)
    };
    let others = change.uid.is_some_and(|uid| uid != 0) || change.mode.is_some_and(opens);
    match user.is_some_and(gives) || (is_roots && others) {
        true => Err(permitting::not_permitted(&state.names.path(ino).unwrap_or_default())),
        false => Ok(()),
    }
}

fn is_directory(state: &State, ino: Ino) -> bool {
    state.names.inode(ino).is_some_and(|inode| inode.is_directory())
}

/// Changes attributes of what is here.
///
/// # Errors
/// If the caller may not.
pub fn change_here(state: &mut State, caller: &Caller, ino: Ino, change: Change) -> Result<()> {
    permitting::permit_attributes(state, caller, ino, &change)?;
    let change = without_set_id(state, ino, change);
    state.record(Fact::Changed { ino, change, time_ns: change.made_ns(state.storage.time_ns()) });
    if let Some(slot) = state.names.inode(ino).and_then(|inode| inode.slot) {
        let header = state.storage.memory().header(slot);
        if let Some(time) = change.modified_ns {
            header.modified_ns().store(time, Ordering::SeqCst);
        }
        if let Some(time) = change.accessed_ns {
            header.accessed_ns().store(time, Ordering::SeqCst);
        }
    }
    Ok(())
}

/// The attributes of an inode, and a directory's names, that are marked as borrowed are this
/// machine's own from now on.
pub fn own(state: &mut State, ino: Ino) {
    state.names.update(ino, |inode| inode.flags &= !flag::BORROWED);
}

/// Who gives an executable file away takes its set-id bits off, root too, and also if it stays
/// whose it is (chown(2)): a change of nothing is such a one.
pub fn without_set_id(state: &State, ino: Ino, change: Change) -> Change {
    let bits = |inode: &Inode| inode.kind == Kind::File || inode.kind.is_node();
    let Some(inode) = state.names.inode(ino).filter(bits) else { return change };
    let timed = change.accessed_ns.is_some() || change.modified_ns.is_some();
    if change.mode.is_some() || timed {
        return change;
    }
    let mode = u32::from(inode.mode);
    let group = if mode & 0o010 == 0 { 0 } else { 0o2000 };
    let kept = mode & !(0o4000 | group);
    Change { mode: (kept != mode).then_some(kept), ..change }
}

/// A file that somebody else than root changes gives its runner no rights (write(2)).
pub fn drop_set_id(state: &mut State, caller: &Caller, file: FileRef) -> Result<()> {
    let ino = state.open_file(file)?.ino;
    lose_set_id(state, caller, ino);
    Ok(())
}

pub fn lose_set_id(state: &mut State, caller: &Caller, ino: Ino) {
    let change = without_set_id(state, ino, Change::default());
    if change.mode.is_some() && !caller.person.is_root() {
        state.record(Fact::Changed { ino, change, time_ns: state.storage.time_ns() });
    }
}

/// Makes a file `size` bytes long. By its path, one that is so already stays as it is; by a
/// descriptor, it counts as written (truncate(2)). With the token of a named lock, or 0.
pub fn truncate_target(
    state: &mut State,
    caller: &Caller,
    target: &Target<'_>,
    (size, token): (u64, u64),
) -> Result<()> {
    let ino = lookup::target(state, caller, target)?;
    permitting::permit_truncate(state, ino)?;
    if let Some(file) = asking::number_of(state, ino) {
        return truncate_far(state, caller, (target, ino), (file, size, token));
    }
    state.fences.permit(ino, token)?;
    elsewhere::file_is_here(state, ino, b"")?;
    if let (Target::Path(path), Some(now)) = (target, state.attributes(ino)) {
        permitting::permit(caller, &now, 2, path)?;
        executing::permit_writing(state, ino)?;
        if now.size == size {
            lose_set_id(state, caller, ino);
            return Ok(());
        }
    }
    lose_set_id(state, caller, ino);
    resize(state, ino, size)
}

/// The same of a file whose bytes are on another machine.
fn truncate_far(
    state: &mut State,
    caller: &Caller,
    (target, ino): (&Target<'_>, Ino),
    (file, size, token): (Number, u64, u64),
) -> Result<()> {
    if let Target::Path(path) = target {
        elsewhere::attributes(state, caller, ino)?;
        if let Some(now) = state.attributes(ino) {
            permitting::permit(caller, &now, 2, path)?;
        }
        executing::permit_writing(state, ino)?;
    }
    committing::settle(state, file)?;
    asking::truncate(state, file, (size, token), !caller.person.is_root())
}

/// The same without asking who may. What the backing says of the attributes of a file that is cut
/// to nothing comes here first: its old file takes them along when it goes.
pub fn resize(state: &mut State, ino: Ino, size: u64) -> Result<()> {
    let before = state.sound_attributes(ino).map_or(0, |attributes| attributes.size);
    let replaced = |inode: &Inode| inode.published.is_some() && inode.links < 2;
    if size.min(before) == 0 && state.names.inode(ino).as_ref().is_some_and(replaced) {
        match xattr_requests::find_xattrs(state, ino) {
            Err(error) if state.fetches.is_waiting() => return Err(error),
            _ => {}
        }
    }
    charging::is_changed(state, ino);
    reclaim::truncate(state, ino, size)
}
