//! Files that are opened.

use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::{DescriptionSlot, FileSlot, Ino, Member, Number, ROOT};
use terral_format::local::names::flag;
use terral_format::local::tables::access;
use terral_format::wire::message::{FileRef, Kind, OpenHow, Reply, Target};
use terral_format::wire::placed::Placing;
use terral_format::wire::roster::Consistency;
use terral_format::wire::things::Child;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::debts::owing;
use crate::far::asking::{self, Step};
use crate::far::{committing, holders, placing};
use crate::members::policies;
use crate::naming::charging;
use crate::naming::creating::{self, Created};
use crate::naming::making::New;
use crate::naming::{attributes, elsewhere, executing, lookup, making, nodes, permitting};
use crate::storage::{attaching, granting};

/// Opens or creates.
pub fn open(state: &mut State, caller: &Caller, path: &[u8], how: OpenHow) -> Result<Reply> {
    let ino = match path {
        _ if how.unnamed => make_unnamed(state, caller, path, how)?,
        b"" => ROOT,
        path => open_name(state, caller, path, how)?,
    };
    open_ino(state, caller, ino, path, how)
}

/// Opens an open file once more.
pub fn reopen(state: &mut State, caller: &Caller, file: FileRef, how: OpenHow) -> Result<Reply> {
    let ino = lookup::target(state, caller, &Target::File(file))?;
    let path = state.names.path(ino).unwrap_or_default();
    elsewhere::attributes(state, caller, ino)?;
    let attributes = state.attributes(ino);
    let missing = || Error::new(ErrorKind::NotFound, shown(&path));
    permitting::permit_opening(caller, &attributes.ok_or_else(missing)?, how, &path)?;
    permitting::permit_writing(state, ino, how, &path)?;
    open_ino(state, caller, ino, &path, how)
}

pub fn open_ino(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    path: &[u8],
    how: OpenHow,
) -> Result<Reply> {
    let writes = u64::from(how.access) & access::WRITE != 0;
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let inode = state.names.inode(ino).ok_or_else(missing)?;
    let link = inode.kind == Kind::Symlink;
    let mut access = how.access & !(access::COMMIT as u8);
    if !link {
        access &= !(access::LINK as u8);
    } else if u64::from(access) & access::LINK == 0 {
        return Err(Error::new(ErrorKind::Link, shown(path)));
    }
    if inode.is_directory() && (writes || how.truncate || how.create) {
        return Err(Error::new(ErrorKind::IsDirectory, shown(path)));
    }
    if how.directory && !inode.is_directory() {
        return Err(Error::new(ErrorKind::NotDirectory, shown(path)));
    }
    let opens = u64::from(how.access) & (access::READ | access::WRITE) != 0;
    if inode.kind.is_node() && opens {
        return nodes::open_node(state, &inode, path);
    }
    if how.truncate && inode.kind != Kind::File {
        return Err(Error::new(ErrorKind::Invalid, shown(path)));
    }
    if writes || how.truncate {
        executing::permit_writing(state, ino)?;
    }
    if let Some(number) = asking::number_of(state, ino) {
        access = by_policy(state, (ino, path), (access, how.token));
        return open_far(state, caller, (ino, number), how, access);
    }
    if inode.is(flag::FAR) {
        // Another member speaks of what was born here, and is no more.
        state.members.iter_mut().for_each(|members| members.meets_gone());
        return Err(missing());
    }
    if writes || how.truncate {
        // Others may have been shown that nobody changes it.
        elsewhere::file_is_here(state, ino, path)?;
    }
    let slot = match inode.kind {
        Kind::File => attaching::attach(state, ino)?,
        _ => FileSlot::NONE,
    };
    let file = FileRef { ino, slot };
    if how.truncate {
        permit_cut(state, caller, ino, how)?;
    }
    if how.truncate && state.storage.size(slot) > 0 {
        attributes::resize(state, ino, 0)?;
    } else if how.truncate {
        state.storage.memory().header(slot).wrote(state.storage.time_ns());
        owing::owe(state, ino);
    }
    let (description, nonce) = describe(state, file, access)?;
    state.record(Local::Opened { description, nonce, ino, access, session: caller.session });
    if writes {
        owing::owe(state, ino);
        if inode.kind == Kind::File {
            install_first(state, caller, file);
        }
    }
    Ok(Reply::Opened { description, nonce, file })
}

/// A file is open for writing.
fn install_first(state: &mut State, caller: &Caller, file: FileRef) {
    state.far.stripes.is_unsettled(file.ino);
    granting::install_first(state, caller.session, file);
}

/// A file that is opened is to be made empty.
fn permit_cut(state: &mut State, caller: &Caller, ino: Ino, how: OpenHow) -> Result<()> {
    state.fences.permit(ino, how.token)?;
    attributes::lose_set_id(state, caller, ino);
    Ok(())
}

/// Access to a file whose bytes are on another machine, with what a policy adds; not for who has a
/// token, which is looked at where they are.
fn by_policy(state: &State, (ino, path): (Ino, &[u8]), (access, token): (u8, u64)) -> u8 {
    let writes = u64::from(access) & access::WRITE != 0;
    match policies::of(state, ino, path) {
        Consistency::Commit if writes && token == 0 => access | access::COMMIT as u8,
        _ => access,
    }
}

/// Opens a file whose bytes are on another machine.
fn open_far(
    state: &mut State,
    caller: &Caller,
    (ino, number): (Ino, Number),
    how: OpenHow,
    access: u8,
) -> Result<Reply> {
    let writes = u64::from(how.access) & access::WRITE != 0 || how.truncate;
    if !writes
        && !asking::is_asked(state, number, Step::Open)
        && holders::opens_alone(state, number)
    {
        return describe_far(state, caller, ino, access);
    }
    let place = |number| state.members.as_ref().and_then(|members| members.place(number));
    let before = asking::has_opened(state).and_then(|number| Some((place(number)?, number)));
    let (ino, number) = before.unwrap_or((ino, number));
    let opened = asking::open(state, number);
    if opened.as_ref().is_err_and(|error| error.kind == ErrorKind::NotFound) {
        state.members.iter_mut().for_each(|members| members.meets_gone());
    }
    opened?;
    if how.truncate {
        committing::settle(state, number)?;
        let strips = !caller.person.is_root();
        asking::truncate(state, number, (0, how.token), strips)?;
    }
    describe_far(state, caller, ino, access)
}

fn describe_far(state: &mut State, caller: &Caller, ino: Ino, access: u8) -> Result<Reply> {
    let file = FileRef { ino, slot: FileSlot::FAR };
    let (description, nonce) = describe(state, file, access)?;
    state.record(Local::Opened { description, nonce, ino, access, session: caller.session });
    Ok(Reply::Opened { description, nonce, file })
}

/// Has another member's server have an object, and opens it if it is created: by its number, so
/// that nobody looks where its name is, and the directory of that stays with who creates there.
///
/// # Errors
/// As those of [`placing::place`]; if who asks must wait.
pub fn place(
    state: &mut State,
    caller: &Caller,
    (on, what): (Member, Placing),
    (container, id): (&[u8], u128),
) -> Result<Reply> {
    let Some(number) = placing::place(state, caller, (on, what), (container, id))? else {
        return Ok(Reply::Done);
    };
    let child = Child { name: Vec::new(), number, kind: Kind::File, text: Vec::new() };
    let ino = elsewhere::place(state, &child)?;
    let how = OpenHow { access: (access::READ | access::WRITE) as u8, ..OpenHow::default() };
    // Nobody here has looked at its path, which policies go by.
    let path = [container, format!("{}/{id:032x}", on.number()).as_bytes()].join(&b'/');
    open_placed(state, caller, (ino, number), (&path, how))
}

/// Opens a file that was just created where its bytes are, on another machine: whatever its bits
/// let who created it do later.
///
/// # Errors
/// If who asks must wait, and what the other member says.
pub fn open_placed(
    state: &mut State,
    caller: &Caller,
    (ino, number): (Ino, Number),
    (path, how): (&[u8], OpenHow),
) -> Result<Reply> {
    let access = by_policy(state, (ino, path), (how.access, how.token));
    open_far(state, caller, (ino, number), how, access)
}

/// Opens what was born here, for members that have it open: who may is decided there.
///
/// # Errors
/// [`ErrorKind::Denied`] for everybody but the server's own process, [`ErrorKind::NotFound`] if it
/// is no more.
pub fn open_number(state: &mut State, caller: &Caller, ino: Ino, access: u8) -> Result<Reply> {
    permit_own(state, caller)?;
    let file = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    let file = file.filter(|inode| !inode.is(flag::FAR));
    file.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("file {ino}")))?;
    let how = access & (access::READ | access::WRITE) as u8;
    open_ino(state, caller, ino, b"", OpenHow { access: how, ..OpenHow::default() })
}

/// Refuses what only the server's own process may ask for.
///
/// # Errors
/// [`ErrorKind::Denied`].
pub fn permit_own(state: &State, caller: &Caller) -> Result<()> {
    let client = state.sessions.client(caller.session);
    match client.is_some_and(|client| client.process.pid() == state.machine.pid()) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Denied, "only for the server itself")),
    }
}

/// The inode to open, made if it must be.
pub fn open_name(state: &mut State, caller: &Caller, path: &[u8], how: OpenHow) -> Result<Ino> {
    if how.create
        && let Some(created) = creating::begun(state, caller)?
    {
        return created_or_there(state, caller, created, path, how);
    }
    if !how.create {
        let (parent, name) = lookup::resolve_parent(state, caller, path)?;
        let missing = || Error::new(ErrorKind::NotFound, shown(path));
        let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing)?;
        return open_there(state, caller, ino, path, how);
    }
    let place @ (parent, name) = lookup::parent_of(state, caller, path)?;
    if let Some(created) = creating::begin(state, caller, place, how.mode)? {
        return created_or_there(state, caller, created, path, how);
    }
    lookup::permit_search_in(state, caller, parent, path)?;
    if let Some(ino) = lookup::child_or_new(state, caller, parent, name)? {
        return created_or_there(state, caller, Created::There(ino), path, how);
    }
    permitting::permit_change_in(state, caller, parent, path)?;
    permitting::permit_file_in(state, parent, path)?;
    charging::may_make(state, place)?;
    let ino = make_file(state, caller, place, how);
    owing::owe(state, ino);
    Ok(ino)
}

/// What was created, or what had the name before, if that may be opened.
fn created_or_there(
    state: &mut State,
    caller: &Caller,
    created: Created,
    path: &[u8],
    how: OpenHow,
) -> Result<Ino> {
    match created {
        Created::New(ino) => Ok(ino),
        Created::There(_) if how.exclusive => Err(Error::new(ErrorKind::Exists, shown(path))),
        Created::There(ino) => open_there(state, caller, ino, path, how),
    }
}

/// What a name stands for, if that may be opened.
fn open_there(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    path: &[u8],
    how: OpenHow,
) -> Result<Ino> {
    elsewhere::attributes(state, caller, ino)?;
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let attributes = state.attributes(ino).ok_or_else(missing)?;
    permitting::permit_opening(caller, &attributes, how, path)?;
    permitting::permit_writing(state, ino, how, path)?;
    Ok(ino)
}

fn make_file(state: &mut State, caller: &Caller, place: (Ino, &[u8]), how: OpenHow) -> Ino {
    making::make(state, caller, &New { place, kind: Kind::File, mode: how.mode, target: b"" })
}

/// A file that has no name yet, in the directory at `path`.
pub fn make_unnamed(state: &mut State, caller: &Caller, path: &[u8], how: OpenHow) -> Result<Ino> {
    let parent = lookup::resolve(state, caller, path)?;
    let refuse = |kind| Err(Error::new(kind, shown(path)));
    match state.names.inode(parent).map(|inode| inode.kind) {
        Some(Kind::Directory) => {}
        Some(Kind::Symlink) => return refuse(ErrorKind::Link),
        _ => return refuse(ErrorKind::NotDirectory),
    }
    permitting::permit_change_in(state, caller, parent, path)?;
    charging::may_make(state, (parent, b""))?;
    Ok(make_file(state, caller, (parent, b""), how))
}

/// A description of a file, as clients see it.
fn describe(state: &mut State, file: FileRef, access: u8) -> Result<(DescriptionSlot, u32)> {
    let memory = state.storage.memory();
    let description = state.descriptions.reserve(&*state.machine, memory)?;
    let nonce = state.new_nonce();
    write_description(state, description, nonce, file, access);
    Ok((description, nonce))
}

pub fn write_description(state: &State, at: DescriptionSlot, nonce: u32, file: FileRef, how: u8) {
    let words = state.storage.memory().description(at);
    state.storage.memory().description_token(at).store(0, Ordering::SeqCst);
    let values = [0, file.ino.0, file.slot.0.into(), how.into(), 0];
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::SeqCst);
    }
    words[0].store(nonce.into(), Ordering::SeqCst);
}
