//! Which role a request goes to. What only looks comes first, then names, bytes, and the server.

use terral_format::ids::{Owner, SessionSlot};
use terral_format::local::tables::access;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{Reply, Request, Target};
use terral_format::wire::roster::Verdict;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::audit::Who;
use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::deferred::preallocating;
use crate::far::{
    asking, calls, committing, giving_back, holders, layouts, lent, offers, parts, stripes, through,
};
use crate::files::{closing, far_reads, opening, placed};
use crate::locks::Waiter;
use crate::members::{control, placement as roles, policies, requiring};
use crate::naming::xattr_requests;
use crate::naming::{attributes, elsewhere, further, homes, links, listing, lookup};
use crate::naming::{making, nodes, orphans, placement, transactions};
use crate::requests::{executing, far_locks, fencing, late, locking, presenting, status, updating};
use crate::sharing::{
    arriving, batching, borrowing, containers, departing, everywhere, keeping, leaving,
};
use crate::sharing::{newcomers, revoking, safety, starting, staying, transacting};
use crate::storage::{granting, mapping, reclaim};

/// Carries out a request that is allowed.
///
/// # Errors
/// Those of the role; [`ErrorKind::Malformed`] for what is not asked in this way.
pub fn carry_out(state: &mut State, who: &Caller, request: Request<'_>) -> Result<Reply> {
    let by_path = matches!(request, Request::Stat(Target::Path(_)) | Request::Open { .. });
    match carry_out_once(state, who, request) {
        Err(error) if by_path && error.kind == ErrorKind::NotFound => Err(gone(state, error)),
        done => done,
    }
}

/// A name may have been there, and what it stood for is gone where it was born: then another file
/// may have taken the name since that was looked up, and all is done anew.
fn gone(state: &mut State, missing: Error) -> Error {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    match asker.filter(|_| requiring::is_astray(state)) {
        Some(asker) => {
            asking::has_run(state, asker);
            requiring::anew(state)
        }
        None => missing,
    }
}

fn carry_out_once(state: &mut State, who: &Caller, request: Request<'_>) -> Result<Reply> {
    match request {
        Request::Stat(target) => {
            let ino = lookup::target(state, who, &target)?;
            committing::settle_ino(state, ino)?;
            elsewhere::attributes(state, who, ino)?;
            let missing = || Error::new(ErrorKind::NotFound, format!("file {ino}"));
            state.seen(ino).map(Reply::Attributes).ok_or_else(missing)
        }
        Request::ReadLink(path) => links::read_link(state, who, path),
        Request::Xattr { target, name } => xattr_requests::xattr(state, who, &target, name),
        Request::XattrNames { target, after } => {
            xattr_requests::xattr_names(state, who, &target, after)
        }
        Request::List { path, after } => listing::list(state, who, path, after),
        Request::Space => Ok(Reply::Space(status::space(state))),
        Request::Invite(user) => {
            keeping::admits(state, user)?;
            match user {
                [] => control::invite(state)?.text().map(Reply::Invitation),
                user => {
                    starting::is_of_users(state)?;
                    newcomers::invite(state, user)
                }
            }
        }
        Request::Speaks(user) => starting::speaks(state, user),
        Request::Status => Ok(Reply::Status(Box::new(status::status(state)))),
        Request::Safety(path) => {
            safety::at(state, who, path).map(|safety| Reply::Safety(Box::new(safety)))
        }
        Request::Everywhere { hasten } => {
            everywhere::all(state, who, hasten).map(Reply::Everywhere)
        }
        Request::Open { path, how } => placed::open(state, who, path, how),
        Request::Choose => placement::choose(state, who).map(Reply::Elsewhere),
        Request::Reopen { file, how } => opening::reopen(state, who, file, how),
        Request::Preallocate { count, kernel } => {
            preallocating::preallocate(state, who.session, count, kernel)
        }
        Request::Revoke(what) => {
            let pid = state.sessions.process_of(who.session).map_or(0, |(pid, _)| pid);
            let who = Who { pid, user: who.person.user };
            let (sessions, deaf) = revoking::revoke(state, who, what)?;
            Ok(Reply::Revoked { sessions, deaf })
        }
        Request::Renew => {
            // It counts, or it was refused before.
            let newest = presenting::presented_by(state, who.session)?.newest();
            newest.iter().for_each(|(handle, _)| presenting::publish(state, who.session, *handle));
            Ok(Reply::Done)
        }
        // It was checked before.
        Request::Use { .. } => Ok(Reply::Done),
        Request::LockBlocks => state.locks.blocks_for(who.session),
        Request::Late { file, chunk } => late::answer(state, file, chunk),
        Request::Stage { file, first, count, within, bytes } => {
            through::for_reader(state, file, (first, count), (within, bytes))
        }
        Request::Far(far) => of_far(state, who, far),
        Request::MakeNode { path, kind, mode, address } => {
            nodes::make_node(state, who, path, (kind, mode), address)
        }
        other => done(state, who, other).map(|()| Reply::Done),
    }
}

/// What is asked about a file whose bytes are on another machine, or for one that has it open.
fn of_far(state: &mut State, who: &Caller, request: FarFile<'_>) -> Result<Reply> {
    match request {
        FarFile::Read { of, at, bytes, piece } => {
            far_reads::read(state, who, of, (at, bytes), piece)
        }
        FarFile::Through { call } => {
            state.storage.is_through((who.session, call));
            Ok(Reply::Done)
        }
        FarFile::Write { of, at, piece, bytes } => calls::write(state, who, of, at, (piece, bytes)),
        FarFile::Ship { of, at, from, bytes } => calls::ship(state, who, of, at, (from, bytes)),
        FarFile::Bounce => preallocating::bounce(state, who.session),
        FarFile::Borrow { of, first, count } => borrowing::borrow(state, who, of, (first, count)),
        FarFile::Grow { of, to, epoch } => giving_back::grow(state, of, to, epoch),
        FarFile::Map { of, index, stores } => arriving::map(state, who, of, (index, stores)),
        FarFile::WriteMapped { file, at, bytes } => through::write(state, file, at, bytes),
        FarFile::Batch { of, full } => batching::batch(state, who, of, full),
        FarFile::Commit(of) => {
            let file = calls::opened(state, of, access::COMMIT)?;
            committing::commit(state, file).map(|()| Reply::Done)
        }
        FarFile::Open { ino, access } => opening::open_number(state, who, ino, access),
        FarFile::Lock { ask, wait } => {
            far_locks::lock(state, who.session, &ask, wait).map(|()| Reply::Done)
        }
        FarFile::TestLock(ask) => far_locks::test(state, who.session, &ask).map(Reply::Held),
        FarFile::Place { on, what, container, id } => {
            opening::place(state, who, (on, what), (container, id))
        }
        FarFile::Fencing { of, what } => {
            fencing::ask(state, who.session, of, what).map(Reply::Fenced)
        }
        FarFile::Update { of, what, records } => {
            updating::ask(state, who, of, (what, records)).map(Reply::Updated)
        }
        other => {
            opening::permit_own(state, who)?;
            of_members(state, who.session, other)
        }
    }
}

/// What is asked for other members, by the server's own process.
fn of_members(state: &mut State, own: SessionSlot, request: FarFile<'_>) -> Result<Reply> {
    let done = match request {
        FarFile::TestLockFor(ino, lock) => {
            return far_locks::test_for(state, ino, &lock).map(Reply::Held);
        }
        FarFile::FencingFor(ino, owner, what) => {
            return fencing::ask_for(state, ino, owner, what).map(Reply::Fenced);
        }
        FarFile::UpdateFor { ino, attempt, what, records } => {
            return updating::ask_for(state, (own, ino), attempt, (what, records))
                .map(Reply::Updated);
        }
        FarFile::IsOpen(file) => return Ok(Reply::IsOpen(holders::is_open(state, file))),
        FarFile::LendTo(ino, to, first, count) => {
            return lent::lend_to(state, (ino, to), (first, count));
        }
        FarFile::OfferTo(ino, to, index) => return offers::offer(state, (ino, to), index),
        FarFile::Accepted(ino, to, index, stamp) => {
            return offers::accepted(state, (ino, to), (index, stamp));
        }
        FarFile::Mapped(of, index) => return Ok(giving_back::mapped(state, of, index)),
        FarFile::GiveBack(of, index, stamp) => {
            return giving_back::give_back(state, of, index, stamp);
        }
        FarFile::Rests(ino) => leaving::rests(state, ino),
        FarFile::LockFor(ino, lock) => far_locks::lock_for(state, ino, &lock),
        FarFile::UnlockAll(ino, of) => {
            far_locks::unlock_all(state, ino, of);
            Ok(())
        }
        FarFile::Lost(ino, by, token) => orphans::lost_a_name(state, ino, (by, token)),
        FarFile::BringBack(ino, with, first, count, leaves) => {
            state.far.offers.forget(ino, (first, count));
            return lent::bring_back(state, (ino, with, leaves), (first, count));
        }
        FarFile::Where(ino, at) => return Ok(layouts::of_byte(state, ino, at)),
        FarFile::Kept(ino, to, index, stamp) => {
            return stripes::kept(state, (ino, to), (index, stamp));
        }
        FarFile::ReadPart { of, at, bytes, stamp, piece } => {
            return parts::read(state, own, (of, stamp), (at, bytes), piece);
        }
        FarFile::Take { of, index, bytes, from, stamp } => {
            return staying::take(state, (of, index, bytes), (from, stamp));
        }
        FarFile::HasNothing(ino, member) => {
            lent::has_nothing(state, ino, member);
            Ok(())
        }
        FarFile::Took(of, index, stamp) => giving_back::took(state, of, index, stamp),
        _ => Err(Error::new(ErrorKind::Malformed, "not asked in this way")),
    };
    done.map(|()| Reply::Done)
}

/// The same for requests that have no other answer than that it was done.
fn done(state: &mut State, who: &Caller, request: Request<'_>) -> Result<()> {
    let session = who.session;
    match request {
        Request::MakeDirectory { path, mode } => making::make_directory(state, who, path, mode),
        Request::RemoveDirectory(path) => making::remove_directory(state, who, path),
        Request::Unlink(path) => homes::remove(state, who, path),
        Request::Rename { from, to, how } => links::rename(state, who, from, to, how),
        Request::Link { target, path } => further::link(state, who, &target, path),
        Request::MakeLink { path, target } => links::make_link(state, who, path, target),
        Request::Change { target, change } => attributes::change(state, who, &target, change),
        Request::SetXattr { target, name, value, how } => {
            xattr_requests::set_xattr(state, who, &target, name, value, how)
        }
        Request::Truncate { target, size, token } => {
            attributes::truncate_target(state, who, &target, (size, token))
        }
        Request::DropSetId(file) => attributes::drop_set_id(state, who, file),
        Request::Transact(operations) => {
            transactions::carry_out(state, who, operations)?;
            // Homes are told at once of what they have prepared.
            transacting::settle(state);
            Ok(())
        }
        Request::Close { description, nonce } => closing::close(state, description, nonce),
        Request::Grant { file, first, count, pages } => {
            granting::grant(state, session, file, (first, count), pages)
        }
        Request::Map { file, first, count, stores } => {
            mapping::map(state, session, file, first, count, stores)
        }
        Request::Unblock { file, index, owner } => {
            reclaim::unblock(state, file, index, Owner(owner))
        }
        // Memory outlives this process, which is all that `memory` durability promises.
        Request::Sync(file) => {
            let ino = lookup::target(state, who, &Target::File(file))?;
            match asking::number_of(state, ino) {
                Some(file) => committing::commit(state, file),
                None => Ok(()),
            }
        }
        Request::LockBlocked { ask, waiter } => locking::lock_blocked(state, session, &ask, waiter),
        Request::StopWaiting(thread) => {
            state.locks.stop_waiting(Waiter::Thread(session, thread));
            Ok(())
        }
        Request::Execute { file, copy } => executing::execute(state, session, file, copy),
        other => of_the_server(state, other),
    }
}

/// No more work will come.
fn finish(state: &mut State) {
    state.finishing = true;
    everywhere::hasten(state);
}

/// What is said to the server as a whole.
fn of_the_server(state: &mut State, request: Request<'_>) -> Result<()> {
    match request {
        Request::Flush => everywhere::hasten(state),
        Request::Finish => finish(state),
        Request::Stop(loses) => {
            departing::may_end(state, loses)?;
            state.departs = true;
            finish(state);
        }
        Request::Leave => state.leaving = true,
        Request::Fence { member, dead } => {
            let verdict = if dead { Verdict::Dead } else { Verdict::Fenced };
            newcomers::remove(state, member, verdict)?;
        }
        Request::Policy(pattern, consistency) => {
            keeping::decide(state, |state| policies::set(state, pattern, consistency))?;
        }
        Request::Layout(pattern, layout) => {
            keeping::decide(state, |state| roles::set_layout(state, pattern, layout))?;
            containers::publish_if_asked(state);
        }
        Request::Role { member, stores } => {
            keeping::decide(state, |state| roles::set_role(state, member, stores))?;
            containers::publish_if_asked(state);
        }
        _ => return Err(Error::new(ErrorKind::Malformed, "not asked in this way")),
    }
    Ok(())
}
