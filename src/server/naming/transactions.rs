//! Transactions: all operations are looked at in their order, each as those before it will have
//! left the names, and then all are recorded by one server, which its log takes as one. So whoever
//! is killed when, all of them came to be, or none.
//!
//! Not here: what names will be (`planning`), and what is had, and asked, of other machines before
//! (`gathering`).

use terral_format::disk::facts::Fact;
use terral_format::ids::Ino;
use terral_format::wire::message::{Kind, RenameHow, XattrHow};
use terral_format::wire::transactions::{self, Operation, Set, Version};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::left_out::{Step, does};
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::far::committing;
use crate::naming::changed::Moved;
use crate::naming::names::Place;
use crate::naming::planning::Plan;
use crate::naming::{charging, doubts, elsewhere, further, gathering, links, lookup, permitting};
use crate::naming::{preparing, xattr_requests, xattrs_elsewhere};
use crate::storage::bringing;

/// `w` of permission bits.
const WRITE: u32 = 2;

type Asked<'a> = Operation<&'a [u8]>;

/// Carries out an encoded transaction.
///
/// # Errors
/// As its first operation says that cannot be done: nothing is done then.
pub fn carry_out(state: &mut State, caller: &Caller, encoded: &[u8]) -> Result<()> {
    let operations = transactions::decode(encoded)?;
    if does(Step::Together) {
        return all_or_none(state, caller, &operations);
    }
    operations.chunks(1).try_for_each(|one| {
        all_or_none(state, caller, one)?;
        state.commit()
    })
}

fn all_or_none(state: &mut State, caller: &Caller, operations: &[Asked<'_>]) -> Result<()> {
    preparing::await_release(state)?;
    let here = gathering::directories(state, caller, operations)?;
    let mut plan = Plan::new(caller, state.storage.time_ns(), here);
    match look_at_all(state, &mut plan, operations) {
        Ok(()) => {
            plan.carries_out(state);
            Ok(())
        }
        Err(error) => {
            plan.gives_up(state);
            Err(preparing::fails(state, error))
        }
    }
}

fn look_at_all(state: &mut State, plan: &mut Plan<'_>, operations: &[Asked<'_>]) -> Result<()> {
    for (at, operation) in operations.iter().enumerate() {
        look_at(state, plan, at as u32, operation).map_err(|error| Error {
            context: format!("operation {at}: {}", error.context),
            ..error
        })?;
    }
    if plan.news() > state.names.left() as usize {
        return Err(Error::new(ErrorKind::TooMany, "names of a transaction"));
    }
    state.quotas.permit(&plan.shift)?;
    keep_for_openers(state, plan)?;
    gathering::await_others(state, plan)?;
    // Last: nothing that is needed is let go from then on.
    preparing::await_homes(state, plan)
}

/// What loses its names while it is open is in memory, all at the same time.
fn keep_for_openers(state: &mut State, plan: &Plan<'_>) -> Result<()> {
    let mut losses = plan.losses().iter();
    losses.try_for_each(|(ino, names)| bringing::keep_losing(state, *ino, names.len() as u32))
}

fn look_at(state: &mut State, plan: &mut Plan<'_>, at: u32, operation: &Asked<'_>) -> Result<()> {
    match *operation {
        Operation::Rename { from, to, how } => rename(state, plan, at, (from, to), how),
        Operation::Link { from, to } => link(state, plan, at, (from, to)),
        Operation::Unlink(path) => remove(state, plan, path, false),
        Operation::RemoveDirectory(path) => remove(state, plan, path, true),
        Operation::MakeDirectory { path, mode } => make_directory(state, plan, path, mode),
        Operation::SetXattr { path, name, value, how } => {
            set_xattr(state, plan, (path, at), (name, value, how))
        }
        Operation::Exists(path) => plan.must_find(state, path).map(drop),
        Operation::Missing(path) => must_miss(state, plan, path),
        Operation::Unchanged { path, version } => must_be(state, plan, path, version),
        Operation::Holds { path, token } => must_hold(state, plan, path, token),
        Operation::Copies(copies) => {
            plan.copies(copies == 2);
            preparing::may_be_copied(state, copies)
        }
    }
}

/// The last token of a named lock is this one.
fn must_hold(state: &mut State, plan: &Plan<'_>, path: &[u8], token: u64) -> Result<()> {
    let lock = plan.must_find(state, path)?;
    // Its home alone knows the last one.
    gathering::must_be_own(state, lock, path)?;
    match state.fences.token(lock) == token {
        true => Ok(()),
        false => Err(refuse(ErrorKind::Stale, path)),
    }
}

/// What has a name that is about to be made; as [`lookup::child_or_new`].
fn there_or_new(state: &mut State, plan: &Plan<'_>, place: Place<'_>) -> Result<Option<Ino>> {
    lookup::or_new(plan.child(state, place))
}

fn kind_of(state: &State, plan: &Plan<'_>, ino: Ino, path: &[u8]) -> Result<Kind> {
    plan.attributes(state, ino, path).map(|attributes| attributes.kind)
}

fn rename(
    state: &mut State,
    plan: &mut Plan<'_>,
    at: u32,
    (from, to): (&[u8], &[u8]),
    how: RenameHow,
) -> Result<()> {
    let (old, ino) = plan.named(state, from)?;
    let new = plan.parent(state, to)?;
    let there = match how {
        RenameHow::Exchange => Some(plan.must_find(state, to)?),
        RenameHow::Replace | RenameHow::Keep => there_or_new(state, plan, new)?,
    };
    if how == RenameHow::Keep && there.is_some() {
        return Err(refuse(ErrorKind::Exists, to));
    }
    if links::is_below(to, from) {
        return Err(refuse(ErrorKind::Invalid, to));
    }
    if links::is_below(from, to) {
        let exchanges = how == RenameHow::Exchange;
        let kind = if exchanges { ErrorKind::Invalid } else { ErrorKind::NotEmpty };
        return Err(refuse(kind, to));
    }
    plan.permit_moving(state, ino, (old.0, new.0), from)?;
    match there {
        Some(there) if how == RenameHow::Exchange => {
            plan.permit_moving(state, there, (new.0, old.0), to)?;
        }
        Some(there) => plan.permit_removal(state, new.0, there, to)?,
        None => plan.permit_change_in(state, new.0, to)?,
    }
    if there == Some(ino) {
        return Ok(());
    }
    permitting::permit_moving_into(state, &plan.attributes(state, new.0, to)?, to)?;
    if how == RenameHow::Exchange {
        permitting::permit_moving_into(state, &plan.attributes(state, old.0, from)?, from)?;
    }
    match there {
        Some(there) if how == RenameHow::Replace => {
            permit_replacing(state, plan, ino, there, to)?;
            loses(state, plan, there, (new, to))?;
        }
        Some(there) => is_renamed(state, plan, at, (there, to, from))?,
        None => {}
    }
    is_renamed(state, plan, at, (ino, from, to))?;
    let back = there.filter(|_| how == RenameHow::Exchange);
    charging::renames(state, &mut plan.shift, (ino, from), (there, to), back.is_some());
    let moved = Moved { ino, from: (old.0, old.1.into()), to: (new.0, new.1.into()), back };
    let must_be_told = plan.must_be_told(state, &moved);
    if must_be_told {
        gathering::may_move(plan, &moved, from)?;
    }
    plan.moves(moved, must_be_told);
    let (parent, name, to_parent, to_name) = (old.0, old.1.into(), new.0, new.1.into());
    let time_ns = plan.time_ns;
    plan.records(match how {
        RenameHow::Exchange => Fact::Exchanged { parent, name, to_parent, to_name, time_ns },
        _ => Fact::Renamed { parent, name, to_parent, to_name, time_ns },
    });
    Ok(())
}

/// Something is about to get another name.
fn is_renamed(
    state: &mut State,
    plan: &mut Plan<'_>,
    at: u32,
    (ino, path, to): (Ino, &[u8], &[u8]),
) -> Result<()> {
    if gathering::may_be_renamed(state, plan, ino, path)? {
        plan.gives_elsewhere(ino, at, to);
    }
    Ok(())
}

/// Something loses its name.
fn loses(
    state: &mut State,
    plan: &mut Plan<'_>,
    ino: Ino,
    (place, path): (Place<'_>, &[u8]),
) -> Result<()> {
    gathering::may_be_lost(state, plan, ino, path)?;
    plan.loses(state, ino, place);
    Ok(())
}

/// What rename(2) lets one thing take the place of.
fn permit_replacing(
    state: &mut State,
    plan: &Plan<'_>,
    moved: Ino,
    there: Ino,
    to: &[u8],
) -> Result<()> {
    let is_directory = |ino| Ok(kind_of(state, plan, ino, to)? == Kind::Directory);
    let (is, was): (Result<bool>, Result<bool>) = (is_directory(moved), is_directory(there));
    match (is?, was?) {
        (true, false) => Err(refuse(ErrorKind::NotDirectory, to)),
        (false, true) => Err(refuse(ErrorKind::IsDirectory, to)),
        (true, true) if !plan.is_empty(state, there)? => Err(refuse(ErrorKind::NotEmpty, to)),
        _ => Ok(()),
    }
}

fn link(state: &mut State, plan: &mut Plan<'_>, at: u32, (from, to): (&[u8], &[u8])) -> Result<()> {
    let ino = plan.must_find(state, from)?;
    let place = plan.parent(state, to)?;
    if there_or_new(state, plan, place)?.is_some() {
        return Err(refuse(ErrorKind::Exists, to));
    }
    if kind_of(state, plan, ino, from)? == Kind::Directory {
        return Err(permitting::not_permitted(to));
    }
    match gathering::may_be_linked(state, plan, ino, from)? {
        // Who may is said there, by what it is then.
        true => plan.gives_elsewhere(ino, at, to),
        false => further::permit_linking(state, plan.caller, ino, to)?,
    }
    plan.permit_change_in(state, place.0, to)?;
    permitting::permit_file_in(state, place.0, to)?;
    charging::moves(state, &mut plan.shift, ino, (None, to));
    plan.stands_for(place, Some(ino));
    // Its number is known when it is recorded.
    let (alias, time_ns) = (Ino(0), plan.time_ns);
    plan.records(Fact::Linked { ino, alias, parent: place.0, name: place.1.into(), time_ns });
    Ok(())
}

/// Removes an empty directory, or what is none.
fn remove(state: &mut State, plan: &mut Plan<'_>, path: &[u8], directory: bool) -> Result<()> {
    let (place, ino) = plan.named(state, path)?;
    plan.permit_removal(state, place.0, ino, path)?;
    match (directory, kind_of(state, plan, ino, path)? == Kind::Directory) {
        (true, false) => return Err(refuse(ErrorKind::NotDirectory, path)),
        (false, true) => return Err(refuse(ErrorKind::IsDirectory, path)),
        (true, true) if !plan.is_empty(state, ino)? => {
            return Err(refuse(ErrorKind::NotEmpty, path));
        }
        _ => {}
    }
    charging::loses(state, &mut plan.shift, ino);
    loses(state, plan, ino, (place, path))?;
    plan.unlinks(ino, path);
    plan.stands_for(place, None);
    let (parent, name, time_ns) = (place.0, place.1.into(), plan.time_ns);
    plan.records(Fact::Removed { parent, name, time_ns });
    Ok(())
}

fn make_directory(state: &mut State, plan: &mut Plan<'_>, path: &[u8], mode: u32) -> Result<()> {
    if path.is_empty() {
        return Err(refuse(ErrorKind::Exists, path));
    }
    let place = plan.parent(state, path)?;
    if there_or_new(state, plan, place)?.is_some() {
        return Err(refuse(ErrorKind::Exists, path));
    }
    plan.permit_change_in(state, place.0, path)?;
    plan.makes_directory(state, place, permitting::roots_bits(state, mode));
    Ok(())
}

fn set_xattr(
    state: &mut State,
    plan: &mut Plan<'_>,
    (path, at): (&[u8], u32),
    (name, value, how): (&[u8], Option<&[u8]>, XattrHow),
) -> Result<()> {
    let ino = plan.must_find(state, path)?;
    let is = plan.attributes(state, ino, path)?;
    xattr_requests::must_keep(is.kind, path)?;
    if xattrs_elsewhere::home_of(state, ino).is_some() {
        // Who may is said there, by what it is then.
        gathering::may_be_prepared(plan, path)?;
        let (name, value) = (name.into(), value.map(<[u8]>::to_vec));
        plan.sets_elsewhere(ino, Set { operation: at, name, value, how });
        return Ok(());
    }
    permitting::permit(plan.caller, &is, WRITE, path)?;
    if !plan.makes(ino) {
        doubts::must_be_none(state, ino)?;
        xattr_requests::find_xattrs(state, ino)?;
    }
    xattr_requests::check(plan.values(state, ino), (name, value, how))?;
    plan.sets(state, ino, name, value);
    Ok(())
}

fn must_miss(state: &mut State, plan: &Plan<'_>, path: &[u8]) -> Result<()> {
    match plan.find(state, path) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(refuse(ErrorKind::Exists, path)),
        // Where nothing can be is nothing.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotDirectory) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What has a name is as somebody saw it.
fn must_be(state: &mut State, plan: &Plan<'_>, path: &[u8], version: Version) -> Result<()> {
    let ino = plan.must_find(state, path)?;
    committing::settle_ino(state, ino)?;
    elsewhere::attributes(state, plan.caller, ino)?;
    let is = state.attributes(ino).map(|is| Version {
        number: state.number(ino),
        size: is.size,
        modified_ns: is.modified_ns,
    });
    if is == Some(version) { Ok(()) } else { Err(refuse(ErrorKind::Changed, path)) }
}
