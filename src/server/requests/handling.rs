//! From a request's bytes to its answer: decode, authorize, act, log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::frame;
use terral_format::ids::{Owner, SessionSlot};
use terral_format::wire::capability::{Capability, Credential, Operations, Rights};
use terral_format::wire::message::{Envelope, Presentation, Reply, Request};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::requests::Taken;

use crate::authority::authn;
use crate::authority::authz::Presented;
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::storage::overflow;

/// No session has this number.
const NOBODY: SessionSlot = SessionSlot(u16::MAX);

/// What becomes of a request.
pub enum Outcome {
    /// This answer, encoded.
    Answer(Vec<u8>),
    /// No memory now: try again when the spill, or the drain, has freed some.
    Park,
    /// Something must be fetched from the backing: try again when it is.
    Fetch,
}

impl State {
    /// Carries out one request.
    pub fn handle(&mut self, session: SessionSlot, taken: &Taken) -> Outcome {
        if let Some(reply) = self.sessions.reply_given(session, taken.index, taken.sequence) {
            return Outcome::Answer(reply.to_vec());
        }
        // Who waits for no answer has only said what may be of use.
        self.fetches.let_wait(!taken.told && !self.leaving);
        let acted = self.act(session, &taken.message);
        self.fetches.let_wait(false);
        let fetches = self.fetches.must_wait();
        let (reply, remember) = match acted {
            Ok(done) => done,
            Err(error) => (Reply::Failed(error), false),
        };
        if fetches {
            self.keeping = None;
            return written(self, Outcome::Fetch);
        }
        if matches!(&reply, Reply::Failed(error) if error.kind == ErrorKind::NoSpace) {
            self.warn_if_cramped(true);
        }
        let parks = self.must_park(&reply, taken);
        self.keeping = None;
        if parks {
            self.debts.hasten(self.world.now());
            return written(self, Outcome::Park);
        }
        let bytes = encoded(&reply);
        if remember && !taken.told && does(Step::RememberAnswer) {
            let (request, sequence) = (taken.index, taken.sequence);
            let reply = bytes.clone();
            self.record(Local::Answered { session, request, sequence, reply });
        }
        written(self, Outcome::Answer(bytes))
    }

    /// Whether to let the caller wait: memory is full, but the spill or the drain will free some.
    fn must_park(&mut self, reply: &Reply, taken: &Taken) -> bool {
        let full = matches!(reply, Reply::Failed(error) if error.kind == ErrorKind::NoSpace);
        let owed = full && (overflow::can_spill(self) || self.can_drain());
        let request = frame::decode::<Envelope<'_>>(&taken.message).map(|asked| asked.request);
        let chunks = request.is_ok_and(|request| request.needs_chunks());
        owed && chunks && !taken.told && !self.leaving
    }

    fn act(&mut self, session: SessionSlot, message: &[u8]) -> Result<(Reply, bool)> {
        let envelope: Envelope<'_> = frame::decode(message)?;
        let request = envelope.request;
        if let Request::Present(presentation) = request {
            let presented: Presentation = frame::decode(presentation)?;
            let handle = self.present(session, &presented.capability, presented.person)?;
            return Ok((Reply::Handle(handle), false));
        }
        // Whoever knows a description's nonce may end it, also when all else has run out.
        if !matches!(request, Request::Close { .. }) {
            let presented = self.presented_by(session)?;
            self.person =
                self.authz.check(self.world.wall_s(), presented, envelope.authority, &request)?;
        }
        let changes = request.changes_names();
        if changes {
            self.log.reserve()?;
            self.names.reserve()?;
        }
        // A failure that changed nothing may be computed again; a success must not be done again.
        if !request.needs_gate() {
            // Who has committed a change rings then, and may be stopped in between: others have
            // seen the change, and ask.
            if !request.is_apart() && self.storage.memory().deferred().is_any_committed() {
                self.apply_rung();
            }
            return Ok((self.dispatch(session, request)?, changes));
        }
        self.debts.names_changed(self.world.now());
        self.close_gate()?;
        // What waits may be about the very names.
        match self.waiting.why().cloned() {
            // Busy: it is being fetched, or found out.
            Some(error) if error.kind == ErrorKind::Busy => Err(self.fetches.wait()),
            Some(error) => Err(error),
            None => Ok((self.dispatch(session, request)?, changes)),
        }
    }

    /// Answers who has no session, and whether more was deferred than is applied now.
    ///
    /// # Errors
    /// As the request says; [`ErrorKind::Invalid`] for one that needs a session.
    pub fn question(
        &mut self,
        who: &Credential,
        person: Person,
        request: Request<'_>,
    ) -> Result<(Reply, bool)> {
        if !request.is_question() {
            return Err(Error::new(ErrorKind::Invalid, "a request that needs a session"));
        }
        let capability = self.authz.issue(&*self.world, who)?;
        let mut presented = Presented::default();
        let now_s = self.world.wall_s();
        presented.insert(1, self.authz.verify(now_s, &capability, Arc::new(person))?);
        self.person = self.authz.check(now_s, &presented, 1, &request)?;
        let more = self.apply_deferred()?;
        let reply = match self.dispatch(NOBODY, request) {
            Ok(reply) => reply,
            Err(error) => Reply::Failed(error),
        };
        self.commit()?;
        Ok((reply, more))
    }

    fn presented_by(&self, session: SessionSlot) -> Result<&Presented> {
        let gone = || Error::new(ErrorKind::BadHandle, "session");
        self.sessions.presented_by(session).ok_or_else(gone)
    }

    /// Verifies what a session presents. Gives the handle that stands for it there.
    ///
    /// # Errors
    /// As [`Authz::verify`](crate::authority::authz::Authz::verify), and
    /// [`ErrorKind::Unauthorized`] if its process may not act as `person`.
    pub(crate) fn present(
        &mut self,
        session: SessionSlot,
        capability: &Capability,
        person: Person,
    ) -> Result<u32> {
        let gone = || Error::new(ErrorKind::BadHandle, "session");
        let client = self.sessions.client(session).ok_or_else(gone)?;
        authn::permit_acting(&*self.machine, &*client.process, &person)?;
        self.log.reserve()?;
        let good = self.authz.verify(self.world.wall_s(), capability, Arc::new(person))?;
        let presented = self.presented_by(session)?;
        let handle = match presented.find(&good) {
            Some(handle) => handle,
            None => self.authz.handle(presented)?,
        };
        let (rights, epoch, person) = (good.rights, good.epoch, Person::clone(&good.person));
        self.record(Local::Presented { session, handle, rights, epoch, person });
        self.sessions.publish(session, rights);
        Ok(handle)
    }

    /// Takes back what was granted under capabilities that have run out: no chunk is used any more
    /// by calls that begin, and nothing is deferred. What was committed before is applied.
    pub fn recall_expired(&mut self, now_s: u64) -> Result<()> {
        if !self.sessions.may_expire(now_s) {
            return Ok(());
        }
        for session in self.sessions.expired(now_s) {
            let rights = Rights { operations: Operations(0), expires_s: now_s };
            self.sessions.publish(session, rights);
        }
        let closed = self.close_gate();
        if closed.is_ok() {
            self.sessions.end_expired(now_s);
        }
        self.open_gate();
        closed.and_then(|()| self.commit())
    }

    fn dispatch(&mut self, session: SessionSlot, request: Request<'_>) -> Result<Reply> {
        match request {
            Request::Stat(target) => {
                let ino = self.target(&target)?;
                let missing = || Error::new(ErrorKind::NotFound, format!("file {ino}"));
                return self.attributes(ino).map(Reply::Attributes).ok_or_else(missing);
            }
            Request::ReadLink(path) => return self.read_link(path),
            Request::Reopen { file, how } => return self.reopen(session, file, how),
            Request::LockBlocks => return self.locks.blocks_for(session),
            Request::Xattr { target, name } => return self.xattr(&target, name),
            Request::XattrNames { target, after } => return self.xattr_names(&target, after),
            Request::Open { path, how } => return self.open(session, path, how),
            Request::MakeNode { path, kind, mode, address } => {
                return self.make_node(path, (kind, mode), address);
            }
            Request::List { path, after } => return self.list(path, after),
            Request::Spares { count, kernel } => return self.spares(session, count, kernel),
            Request::Space => return Ok(Reply::Space(self.space())),
            Request::Status => return Ok(Reply::Status(Box::new(self.status()))),
            Request::Safety(path) => {
                return self.safety(path).map(|safety| Reply::Safety(Box::new(safety)));
            }
            Request::Close { description, nonce } => self.close(description, nonce),
            Request::MakeDirectory { path, mode } => self.make_directory(path, mode),
            Request::RemoveDirectory(path) => self.remove_directory(path),
            Request::Unlink(path) => self.unlink(path),
            Request::Rename { from, to, how } => self.rename(from, to, how),
            Request::Link { target, path } => self.link(&target, path),
            Request::MakeLink { path, target } => self.make_link(path, target),
            Request::Change { target, change } => self.change(&target, change),
            Request::LockBlocked { ask, waiter } => self.lock_blocked(session, &ask, waiter),
            Request::StopWaiting(thread) => {
                self.locks.stop_waiting(session, thread);
                Ok(())
            }
            Request::SetXattr { target, name, value, how } => {
                self.set_xattr(&target, name, value, how)
            }
            Request::Truncate { target, size } => self.truncate_target(&target, size),
            Request::DropSetId(file) => self.drop_set_id(file),
            Request::Execute { file, copy } => self.execute(session, file, copy),
            Request::Grant { file, first, count, pages } => {
                self.grant(session, file, (first, count), pages)
            }
            Request::Stage { file, first, count } => self.stage(file, first, count),
            Request::Map { file, first, count, stores } => {
                self.map(session, file, first, count, stores)
            }
            Request::Unblock { file, index, owner } => self.unblock(file, index, Owner(owner)),
            // Memory outlives this process, which is all that `memory` durability promises.
            Request::Sync(file) => self.open_file(file).map(drop),
            Request::Flush => {
                self.hurry();
                Ok(())
            }
            Request::Finish => {
                self.finishing = true;
                self.hurry();
                Ok(())
            }
            Request::Leave => {
                self.leaving = true;
                Ok(())
            }
            Request::Present(_) => Err(Error::new(ErrorKind::Malformed, "presented twice")),
        }?;
        Ok(Reply::Done)
    }
}

/// Writes what was done. Only then may anything be deferred that could build upon it: another
/// server would know nothing of what is not written.
fn written(state: &mut State, outcome: Outcome) -> Outcome {
    if let Err(error) = state.commit() {
        return Outcome::Answer(encoded(&Reply::Failed(error)));
    }
    if state.storage.memory().gate().load(Ordering::SeqCst) != 0 {
        state.open_gate();
    }
    outcome
}

fn encoded(reply: &Reply) -> Vec<u8> {
    // A reply that cannot be encoded is our own bug; the client gets an empty, malformed one.
    frame::encode(reply).unwrap_or_default()
}
