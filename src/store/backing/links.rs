//! Symbolic links, further names for a file, and two names that change places.
//!
//! What takes several steps goes through a temporary name that follows from the paths: the same
//! call, made again after a crash, finds what the first one left and goes on from there.
//!
//! Not here: where links lead. Whoever gives a path has followed them.

use std::fs::File;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use terral_format::frame::checksum;

use super::Touched;
use super::attributes::{same_file, touched};
use super::beneath::{Place, remove_if_there};
use super::calls::lacks_flags;

/// What a temporary name is for.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// The second name of a file, until it replaces another file's.
    Link = 1,
    /// The first of two names, until the second is free.
    Exchange = 2,
    /// A copy on another file system, until it has the name.
    Move = 3,
}

/// The temporary name for an operation; names like it are never listed.
pub(super) fn temporary(purpose: Purpose, from: &Place, to: &Place) -> Vec<u8> {
    let paths = [from.beside(&from.name), to.beside(&to.name)].join(&0);
    format!(".terral-{:032x}-{}", checksum(&paths), purpose as u8).into_bytes()
}

/// The target of a symbolic link; `INVAL` if it is none.
pub(super) fn read_link(place: &Place) -> rustix::io::Result<Vec<u8>> {
    let target = rustix::fs::readlinkat(&place.directory, &*place.name, Vec::new())?;
    Ok(target.into_bytes())
}

/// Makes a symbolic link, unless it is there already.
pub(super) fn make_link(place: &Place, target: &[u8]) -> rustix::io::Result<()> {
    if target.is_empty() {
        // The system's NOENT would say that the directory is missing.
        return Err(Errno::INVAL);
    }
    match rustix::fs::symlinkat(target, &place.directory, &*place.name) {
        Err(Errno::EXIST) => {
            // Somebody else's is not looked at.
            place.look()?;
            let same = read_link(place).is_ok_and(|there| there == target);
            if same { Ok(()) } else { Err(Errno::EXIST) }
        }
        done => done,
    }
}

/// Gives a file a further name, in place of what has it.
pub(super) fn link(from: &Place, to: &Place) -> std::io::Result<Touched> {
    let file = from.look()?.ok_or(Errno::NOENT)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    let flags = AtFlags::empty();
    match rustix::fs::linkat(&from.directory, &*from.name, &to.directory, &*to.name, flags) {
        Err(Errno::EXIST) => link_over(&file, from, to)?,
        done => done?,
    }
    Ok(touched(&metadata, &file.metadata()?))
}

/// [`link`] where the name is taken.
fn link_over(file: &File, from: &Place, to: &Place) -> std::io::Result<()> {
    let flags = AtFlags::empty();
    match to.look()? {
        Some(present) if present.metadata()?.is_dir() => return Err(Errno::ISDIR.into()),
        Some(present) if same_file(&present, file)? => return Ok(()),
        // Nobody else's may be replaced that has come since.
        None if to.naming.owner.is_some() => {
            let (directory, name) = (&to.directory, &*to.name);
            return Ok(rustix::fs::linkat(&from.directory, &*from.name, directory, name, flags)?);
        }
        _ => {}
    }
    let (directory, name) = (&to.directory, temporary(Purpose::Link, from, to));
    match to.naming.look((directory, &name)) {
        Ok(None) => {}
        Ok(Some(_)) => remove_if_there(directory, &name)?,
        // Somebody else's: not as if there were no links here.
        Err(Errno::PERM) => return Err(Errno::ACCESS.into()),
        Err(error) => return Err(error.into()),
    }
    rustix::fs::linkat(&from.directory, &*from.name, directory, &*name, flags)?;
    let renamed = rustix::fs::renameat(directory, &*name, directory, &*to.name);
    // It is still there also after a rename onto what is the same file by now.
    remove_if_there(directory, &name)?;
    Ok(renamed?)
}

/// Lets two names change places, in one step where the file system can.
pub(super) fn exchange(from: &Place, to: &Place) -> rustix::io::Result<()> {
    if is_within(from, to) || is_within(to, from) {
        return Err(Errno::INVAL);
    }
    let (a, b) = ((&from.directory, &*from.name), (&to.directory, &*to.name));
    match from.naming.exchange(a, b) {
        // A name is also missing while an exchange by renames is unfinished.
        Err(Errno::NOENT) => exchange_by_renames(from, to),
        Err(error) if lacks_flags(error) => {
            // One of the names is missing for a moment: nobody else may take it.
            let both = [&from.directory, &to.directory];
            both.into_iter().try_for_each(|at| from.naming.must_be_for_one(at))?;
            exchange_by_renames(from, to)
        }
        done => done,
    }
}

/// [`exchange`] where the file system cannot do it in one step.
pub(super) fn exchange_by_renames(from: &Place, to: &Place) -> rustix::io::Result<()> {
    let name = temporary(Purpose::Exchange, from, to);
    let (a, b) = ((&from.directory, &*from.name), (&to.directory, &*to.name));
    let aside = (&from.directory, &*name);
    let naming = from.naming;
    // Who else may make names there can have made the temporary one: it is looked at whose it is.
    let has = |at| naming.look(at).map(|found| found.is_some());
    let has_aside = match has(aside) {
        // It goes on once that is removed: the names themselves are no other user's.
        Err(Errno::PERM) => return Err(Errno::ACCESS),
        has => has?,
    };
    match (has_aside, has(a)?, has(b)?) {
        (false, true, true) => naming.rename_new(a, aside)?,
        (false, ..) => return Err(Errno::NOENT),
        // Somebody made one of the names anew, and it cannot be told which.
        (true, true, true) => return Err(Errno::EXIST),
        // An earlier attempt came to here, or one step further.
        (true, ..) => {}
    }
    if !has(a)? && has(b)? {
        let moved = naming.rename_new(b, a);
        if moved.is_err() {
            let _ = naming.rename_new(aside, a);
            return moved;
        }
    }
    naming.rename_new(aside, b)
}

/// Whether `inner` lies somewhere below `outer`.
fn is_within(inner: &Place, outer: &Place) -> bool {
    let rest = outer.beside(&outer.name);
    inner.within.strip_prefix(&*rest).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
