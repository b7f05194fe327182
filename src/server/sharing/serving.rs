//! What other members want done to things that are here.

use std::sync::Arc;

use terral_format::ids::{Asker, Ino, Member, Number, Operation, Thing};
use terral_format::local::names::Inode;
use terral_format::wire::body::Body;
use terral_format::wire::message::{Kind, Name};
use terral_format::wire::peers::Work;
use terral_format::wire::person::{GROUPS_MAX, Person};
use terral_format::wire::things::{By, Change, Child, Look, Outcome};
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::Input;

use crate::authority::audit::Who;
use crate::authority::caller::Caller;
use crate::core::paths::components;
use crate::core::state::State;
use crate::members::requiring;
use crate::members::role::{NOBODY, Served};
use crate::members::stepping::tell;
use crate::naming::making::{self, New};
use crate::naming::{attributes, creating, exchanging, further, homes, links, listing};
use crate::naming::{lookup, preparing, xattr_requests};
use crate::sharing::{
    adopting as adopter, bodies, circles, containers, credentials, everywhere, leasing,
};
use crate::sharing::{revoking, safety, transacting, user_wants, users};

/// What does not fit a message comes in another one.
const NAMES_BYTES: usize = 512 << 10;
/// Most names that are looked for in the permanent store at the same time, for one listing.
const FOUND_AT_ONCE: usize = 256;

/// Who wants it, as requests of clients are known.
fn asker_of(operation: Operation) -> Asker {
    let by = u64::from(operation.by.number()) << (u64::BITS - Member::BITS);
    Asker { session: NOBODY, index: 0, sequence: by | operation.number }
}

fn operation_of(asker: Asker) -> Option<Operation> {
    const NUMBER_BITS: u32 = u64::BITS - Member::BITS;
    let by = Member::new((asker.sequence >> NUMBER_BITS) as u16)?;
    let number = asker.sequence & ((1 << NUMBER_BITS) - 1);
    (asker.session == NOBODY && asker.index == 0).then_some(Operation { by, number })
}

/// Carries out what another member wants. If that needs something that is elsewhere, it is kept,
/// and done when that is there.
pub fn serve(state: &mut State, served: Served) {
    let Served { operation, thing, work } = &served;
    let (asker, user) = (asker_of(*operation), users::of(state, operation.by));
    let may = state.fetches.let_wait(true);
    let waits = state.fetches.must_wait();
    state.members.iter_mut().for_each(|members| {
        members.asks(Some(asker));
        members.serves(Some(*thing));
    });
    let outcome = match work {
        Work::Look(body) | Work::Find(body) => look(state, user.as_ref(), *thing, body),
        Work::Change(body) => change(state, (operation.by, user.as_ref()), *thing, body),
        Work::Take => Err(Error::new(ErrorKind::Malformed, "what is to be lent")),
    };
    state.members.iter_mut().for_each(|members| {
        members.asks(None);
        members.serves(None);
    });
    let must_wait = state.fetches.must_wait();
    state.fetches.let_wait(may);
    state.fetches.set_waiting(waits);
    if must_wait {
        state.members.iter_mut().for_each(|members| members.keep(served.clone()));
        if comes_later(&served) {
            tell(state, Input::Later { operation: *operation, thing: *thing });
        }
        return;
    }
    requiring::is_answered(state, asker);
    let answer = outcome.unwrap_or_else(Outcome::Failed).body().unwrap_or_default();
    tell(state, Input::Served { operation: *operation, thing: *thing, answer });
}

/// Whether others of the same thing go first if this must wait: it may be for a directory that one
/// of those has who wait for the file, or for the permanent store.
fn comes_later(served: &Served) -> bool {
    let finds = matches!(served.work, Work::Find(_));
    finds || matches!((served.thing, &served.work), (Thing::File(_), Work::Change(_)))
}

/// What was kept is tried again.
pub fn serve_again(state: &mut State) {
    let kept = state.members.as_mut().map(|members| members.take_kept()).unwrap_or_default();
    for served in kept {
        if comes_later(&served) {
            let Served { operation, thing, .. } = served;
            tell(state, Input::Again { operation, thing });
        } else {
            serve(state, served);
        }
    }
}

/// What nobody wants any more needs nothing.
pub fn forget_unwanted(state: &mut State) {
    let Some(members) = &state.members else { return };
    let unwanted = members.unwanted(operation_of);
    unwanted.into_iter().for_each(|asker| requiring::is_answered(state, asker));
}

/// What somebody sees who looks at what is here, or was shown, as bytes; nothing if that does not
/// say what he wants to know.
pub fn seen(state: &mut State, thing: Thing, look: &Body) -> Option<Body> {
    let copy = state.members.as_ref().and_then(|members| members.copy(thing));
    let outcome = match copy {
        Some(copy) => By::<Look>::of(look).and_then(|by| copy.seen(&by.what)),
        // Names may be in the permanent store: who asks is told to look for himself.
        None if homes::decide(state) && matches!(thing, Thing::Directory(_)) => Ok(None),
        None => self::look(state, None, thing, look).map(Some),
    };
    let outcome = outcome.unwrap_or_else(|error| Some(Outcome::Failed(error)))?;
    Some(outcome.body().unwrap_or_default())
}

fn caller<T>(by: &By<T>) -> Result<Caller> {
    if by.person.groups.len() > GROUPS_MAX {
        return Err(Error::new(ErrorKind::Malformed, "too many groups"));
    }
    Ok(Caller { session: NOBODY, person: Arc::new(by.person.clone()) })
}

/// What he sees who asks; `user`: by a server that speaks for him alone.
pub fn look(
    state: &mut State,
    user: Option<&Person>,
    thing: Thing,
    body: &Body,
) -> Result<Outcome> {
    let mut by = By::<Look>::of(body)?;
    if let Some(user) = user {
        user_wants::may_look(state, user, thing, &mut by.what)?;
    }
    if matches!(by.what, Look::Xattr(_) | Look::XattrNames(_)) {
        return xattr_requests::told(state, thing.number(), &by.what);
    }
    if let Look::Server { hasten } = by.what {
        let mut status = everywhere::here(state, hasten)?;
        user.iter().for_each(|_| user_wants::told(&mut status));
        return Ok(Outcome::Server(Box::new(status)));
    }
    match &by.what {
        Look::Waits => return Ok(circles::here(state)),
        Look::Verify(capability) => return leasing::is_good(state, capability),
        Look::Decided(of) => return transacting::decision_of(state, thing, *of),
        Look::Adopt(way, name) if is_name(name) => return adopter::adopt(state, way, name),
        Look::Adopt(..) => return Err(Error::new(ErrorKind::Malformed, "no name")),
        Look::Doubts => return Ok(Outcome::Doubts(transacting::here(state))),
        Look::Revoked => return Ok(Outcome::Revoked(state.authz.epoch())),
        Look::Issue(principal, for_s) => return leasing::issue_for(state, *principal, *for_s),
        Look::Authorize(carried) => {
            let issued = credentials::issue(state, theirs(state, &by.person), &carried.shown())?;
            return Ok(Outcome::Issued(Box::new(issued)));
        }
        _ => {}
    }
    let looked_at = bodies::inode_of(state, thing)?;
    if by.what == Look::Safety {
        return safety::of(state, looked_at.ino).map(|safety| Outcome::Safety(Box::new(safety)));
    }
    if homes::decide(state) && looked_at.is_directory() {
        find(state, &caller(&by)?, looked_at.ino, &by.what)?;
    }
    // As it is with what was found.
    let inode = bodies::inode_of(state, thing)?;
    let missing = || Error::new(ErrorKind::NotFound, format!("{thing:?}"));
    let attributes = state.attributes(inode.ino).ok_or_else(missing)?;
    let child = |name: &[u8]| bodies::child(state, &inode, name);
    let after = match (thing, by.what) {
        (Thing::Directory(_), Look::Name(name)) => return Ok(Outcome::Name(child(&name))),
        (Thing::Directory(_), Look::Step(name)) => {
            return Ok(Outcome::Step(attributes, child(&name)));
        }
        (Thing::Directory(_), Look::Names(after)) => after,
        _ => return Ok(Outcome::Attributes(attributes)),
    };
    let mut names = match state.is_among_users() {
        true => all_names(state, &caller(&By { person: by.person, what: () })?, &inode)?,
        false => bodies::children(state, &inode),
    };
    names.retain(|child| child.name > after);
    names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let (count, mut bytes) = (names.len(), 0);
    let fits = |child: &Child| {
        bytes += child.name.len() + child.text.len() + 32;
        bytes <= NAMES_BYTES
    };
    let mut page: Vec<_> = names.into_iter().take_while(fits).collect();
    user.iter().for_each(|user| user_wants::listed(user, &attributes, &mut page));
    let last = page.len() == count;
    Ok(Outcome::Names(page, last))
}

/// All names of a directory, where each user has a server. Those that only the permanent store has
/// stand for nothing that is known yet: who lists them begins no server of whom they are, nor is
/// refused all of them for what another owns there.
fn all_names(state: &mut State, caller: &Caller, directory: &Inode) -> Result<Vec<Child>> {
    let unknown = state.members.as_ref().and_then(|members| Number::new(members.me(), 0));
    let names = listing::names_of(state, caller, directory.ino)?.into_iter();
    let child = |Name { name, kind, .. }: Name| {
        bodies::child(state, directory, &name).or(unknown.map(|number| Child {
            name,
            number,
            kind,
            text: Vec::new(),
        }))
    };
    Ok(names.filter_map(child).collect())
}

/// Has the names that somebody looks for in the tables, if only the permanent store has them.
fn find(state: &mut State, caller: &Caller, directory: Ino, look: &Look) -> Result<()> {
    match look {
        Look::Name(name) | Look::Step(name) => {
            lookup::child(state, caller, directory, name).map(drop)
        }
        Look::Names(_) if state.is_among_users() => Ok(()),
        Look::Names(_) => {
            let names = listing::names_of(state, caller, directory)?;
            let mut late = Ok(());
            let mut left = FOUND_AT_ONCE;
            for name in names {
                // What is known need not be looked for; of a lost file, each time anew.
                if state.names.child_here(directory, &name.name).is_some() {
                    continue;
                }
                match lookup::child(state, caller, directory, &name.name) {
                    // What the store says of others is fetched meanwhile.
                    Err(error) if state.fetches.is_waiting() && left > 0 => {
                        (late, left) = (Err(error), left - 1);
                    }
                    found => drop(found?),
                }
            }
            late
        }
        _ => Ok(()),
    }
}

/// Whether these bytes may be a name in a directory.
fn is_name(name: &[u8]) -> bool {
    components(name).is_ok_and(|parts| parts.len() == 1)
}

/// Ends what capabilities allow, if that is asked for.
fn ends(state: &mut State, by: &By<Change>) -> Option<Result<Outcome>> {
    let who = theirs(state, &by.person);
    let ended = match &by.what {
        Change::Revoke(what) => revoking::revoke(state, who, *what),
        Change::Logout(carried) => credentials::end(state, who, &carried.shown()),
        Change::Container(by, setting) => containers::change(state, who, *by, setting.clone()),
        _ => return None,
    };
    Some(ended.map(|(sessions, deaf)| Outcome::Ended(sessions, deaf)))
}

/// Does what a member wants of a transaction, if it is of one.
fn transacts(
    state: &mut State,
    from: Member,
    caller: &Caller,
    (thing, what): (Thing, &Change),
) -> Option<Result<Outcome>> {
    let file = thing.number();
    let others = || Error::new(ErrorKind::Malformed, "a transaction that another decides");
    Some(match what {
        Change::Commit(of) if !transacting::may_say(state, from, (*of, file)) => Err(others()),
        Change::Prepare(of, _)
        | Change::Return(of, ..)
        | Change::Witness(of, _)
        | Change::Release(of)
            if of.by != from =>
        {
            Err(others())
        }
        Change::Prepare(of, wanted) => preparing::prepare(state, caller, file, (*of, wanted)),
        Change::Return(of, returned) => preparing::is_returned(state, file, (*of, returned)),
        Change::Witness(of, files) => transacting::witness(state, thing, (*of, files.clone())),
        Change::Release(of) => transacting::release_here(state, thing, *of),
        Change::Commit(of) => {
            preparing::settle(state, file, (*of, true));
            Ok(Outcome::Done(None))
        }
        Change::Resolve(of, is) => {
            let who = theirs(state, &caller.person);
            transacting::resolve_here(state, who, *of, *is)
        }
        _ => return None,
    })
}

/// Which member wants something, and for whom alone it speaks, if for one.
type Whose<'a> = (Member, Option<&'a Person>);

/// A program of another machine: by this server's process.
fn theirs(state: &State, person: &Person) -> Who {
    Who { pid: state.machine.pid(), user: person.user }
}

fn change(state: &mut State, whose: Whose<'_>, thing: Thing, body: &Body) -> Result<Outcome> {
    let (from, user) = whose;
    let of_ours = state.members.as_ref().is_none_or(|members| members.is_ours(from));
    let by = user_wants::change_of(state, (of_ours, user), thing, body)?;
    let caller = caller(&by)?;
    if let Change::Xattr { name, value, how } = &by.what {
        let set = (name.as_slice(), value.as_deref(), *how);
        return xattr_requests::is_set(state, thing.number(), set).map(|()| Outcome::Done(None));
    }
    let done = transacts(state, from, &caller, (thing, &by.what));
    if let Some(done) = done.or_else(|| ends(state, &by)) {
        return done;
    }
    let parent = bodies::subject_of(state, thing, &by.what)?.ino;
    match by.what {
        Change::Name(child) => {
            let is_theirs = child.number.born() == from && child.kind == Kind::File;
            if !is_theirs || !is_name(&child.name) {
                return Err(Error::new(ErrorKind::Malformed, "a name for what is no file of its"));
            }
            let there = creating::name_in(state, &caller, parent, &child)?;
            let inode = state.names.inode(there);
            let there = inode.and_then(|inode| bodies::told(state, child.name, &inode));
            let missing = || Error::new(ErrorKind::NotFound, format!("{thing:?}"));
            Ok(Outcome::Step(state.attributes(parent).ok_or_else(missing)?, there))
        }
        Change::Make(name, _) if !is_name(&name) => {
            Err(Error::new(ErrorKind::Malformed, "no name"))
        }
        Change::Make(name, made) => {
            state.names.reserve()?;
            let place = (parent, name.as_slice());
            let new = New { place, kind: made.kind, mode: made.mode, target: &made.text };
            let ino = making::make_in(state, &caller, &new, &name)?;
            Ok(Outcome::Done(state.members.as_ref().and_then(|members| members.number(ino))))
        }
        Change::Remove(name) => {
            making::unlink_in(state, &caller, (parent, &name), &name)?;
            Ok(Outcome::Done(None))
        }
        Change::Attributes(change) => {
            attributes::change_here(state, &caller, parent, change)?;
            Ok(Outcome::Done(None))
        }
        Change::Unname(path) => {
            homes::unlink(state, &caller, &path, Some(parent))?;
            Ok(Outcome::Done(None))
        }
        Change::Move(from, to, how) => {
            if !homes::rename(state, &caller, (&from, &to), how, Some(parent))? {
                links::rename_here(state, &caller, &from, &to, how)?;
            }
            Ok(Outcome::Done(None))
        }
        Change::LetGo => homes::is_let_go(state, parent).map(Outcome::LetGo),
        Change::LetGoOf(directory, name) => {
            further::lets_go(state, parent, from, (directory, &name))
        }
        Change::Swap(directory, name) => {
            exchanging::is_swappable(state, parent, (directory, &name))?;
            Ok(Outcome::Done(None))
        }
        Change::Link { path, named } => {
            further::link_here(state, &caller, parent, &path, named)?;
            Ok(Outcome::Done(None))
        }
        // Done above.
        _ => Ok(Outcome::Done(None)),
    }
}
