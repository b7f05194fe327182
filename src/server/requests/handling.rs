//! From a request's bytes to its answer: decode, authorize, act, log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::{Asker, Owner, SessionSlot};
use terral_format::wire::capability::{Capability, Principal};
use terral_format::wire::message::{Envelope, Presentation, Reply, Request};
use terral_format::wire::person::Person;
use terral_format::wire::transactions::TransactionId;
use terral_format::{Error, ErrorKind, Result, frame};
use terral_transport::requests::Taken;

use crate::authority::audit::{self, Who};
use crate::authority::authn::Most;
use crate::authority::authz::{Allowed, Good, Presented};
use crate::authority::by_gss::Answered;
use crate::authority::caller::Caller;
use crate::authority::principals::Principals;
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::deferred::applying;
use crate::far::{asking, stripes};
use crate::files::closing;
use crate::members::requiring;
use crate::naming::creating;
use crate::requests::{bounding, contained, logging_in, presenting, routing, status};
use crate::sessions::clients::session_of;
use crate::sharing::{carrying, containers, credentials, leasing, revoking};
use crate::sharing::{starting, transacting};
use crate::storage::spill::jobs;
use crate::storage::{eviction, reclaim};

/// No session has this number.
const NOBODY: SessionSlot = SessionSlot(u16::MAX);

/// By this slot who asks without a session is told from the members that ask.
const AT_THE_DOOR: u8 = 1;

/// Who asks without a session.
pub struct Asked<'a> {
    /// What the kernel vouches for.
    pub most: &'a Most,
    /// What he shows, to do no more than that allows.
    pub shown: Option<&'a Capability>,
    /// His process.
    pub who: Who,
    /// Whom he acts as.
    pub person: Person,
    /// By which he is known.
    pub number: u64,
    /// Who is who, for who logs in.
    pub principals: Result<Principals>,
    /// What was made of the ticket that he shows.
    pub answered: Result<Answered>,
}

/// What becomes of a request.
pub enum Outcome {
    /// This answer, encoded.
    Answer(Vec<u8>),
    /// No memory now: try again when the spill, or the drain, has freed some.
    Park,
    /// Something must be fetched from the backing: try again when it is.
    Fetch,
}

/// Carries out one request. Who begins to wait for memory hastens what frees some.
pub fn handle(state: &mut State, session: SessionSlot, taken: &Taken) -> Outcome {
    let outcome = handle_again(state, session, taken);
    if matches!(outcome, Outcome::Park) {
        state.debts.hasten(state.world.now());
    }
    outcome
}

/// The same, for who waits for memory already.
pub fn handle_again(state: &mut State, session: SessionSlot, taken: &Taken) -> Outcome {
    if let Some(reply) = state.sessions.reply_given(session, taken.index, taken.sequence) {
        return Outcome::Answer(reply.to_vec());
    }
    // Who waits for no answer has only said what may be of use.
    state.fetches.let_wait(!taken.told && !state.leaving);
    let asker = Asker { session, index: taken.index, sequence: taken.sequence };
    state.members.iter_mut().for_each(|members| members.asks(Some(asker)));
    state.asker = Some(asker);
    let acted = act(state, session, &taken.message);
    state.asker = None;
    state.members.iter_mut().for_each(|members| members.asks(None));
    state.fetches.let_wait(false);
    let fetches = state.fetches.must_wait();
    let (reply, remember) = match acted {
        Ok(done) => done,
        Err(error) => (Reply::Failed(error), false),
    };
    if fetches {
        state.keeping.clear();
        return written(state, Outcome::Fetch);
    }
    if matches!(&reply, Reply::Failed(error) if error.kind == ErrorKind::NoSpace) {
        status::warn_if_cramped(state, true);
    }
    let parks = must_park(state, &reply, taken);
    state.keeping.clear();
    if parks {
        return written(state, Outcome::Park);
    }
    requiring::is_answered(state, asker);
    creating::has_run(state, asker);
    asking::has_run(state, asker);
    let bytes = encoded(&reply);
    if remember && !taken.told && does(Step::RememberAnswer) {
        let (request, sequence) = (taken.index, taken.sequence);
        let reply = bytes.clone();
        state.record(Local::Answered { session, request, sequence, reply });
    }
    written(state, Outcome::Answer(bytes))
}

/// Whether to let the caller wait: memory is full, but the spill or the drain will free some.
fn must_park(state: &mut State, reply: &Reply, taken: &Taken) -> bool {
    let full = matches!(reply, Reply::Failed(error) if error.kind == ErrorKind::NoSpace);
    let owed =
        full && (jobs::can_spill(state) || eviction::can_drain(state) || stripes::can_send(state));
    let request = frame::decode::<Envelope<'_>>(&taken.message).map(|asked| asked.request);
    let chunks = request.is_ok_and(|request| request.needs_chunks());
    owed && chunks && !taken.told && !state.leaving
}

fn act(state: &mut State, session: SessionSlot, message: &[u8]) -> Result<(Reply, bool)> {
    let envelope: Envelope<'_> = frame::decode(message)?;
    let request = envelope.request;
    if let Request::Present(presentation) = request {
        let presented: Presentation = frame::decode(presentation)?;
        let handle = presenting::present(state, session, &presented.capability, presented.person)?;
        return Ok((Reply::Handle(handle), false));
    }
    let caller = if ends_own(session, &request) {
        None
    } else {
        let presented = presenting::presented_by(state, session)?;
        let now_s = state.world.wall_s();
        let allowed = state.authz.check(now_s, presented, envelope.authority, &request);
        let allowed = allowed.and_then(|allowed| within(state, session, allowed, &request));
        if let Err(error) = &allowed {
            let asked = (session, envelope.authority);
            presenting::was_denied(state, asked, request.needs(), error.kind);
        }
        let allowed = allowed?;
        if allowed.leased {
            leasing::counts(state)?;
        }
        if let Some(by) = allowed.contained {
            let pid = state.sessions.process_of(session).map_or(0, |(pid, _)| pid);
            let who = Who { pid, user: allowed.person.user };
            contains(state, (session, who), by, &request)?;
        }
        Some(Caller { session, person: allowed.person })
    };
    if request.is_seen() && has_ended(state, session) {
        return Err(Error::new(ErrorKind::Unauthorized, "its process has ended"));
    }
    let changes = request.changes_names();
    if changes {
        state.log.reserve()?;
    }
    if request.makes_names() {
        state.names.reserve()?;
    }
    // A failure that changed nothing may be computed again; a success must not be done again.
    if !request.needs_gate() {
        // Who has committed a change rings then, and may be stopped in between: others have
        // seen the change, and ask.
        if !request.is_apart() && state.storage.memory().deferred().is_any_committed() {
            applying::apply_rung(state);
        }
        return Ok((carried_out(state, caller.as_ref(), request)?, changes));
    }
    state.debts.names_changed(state.world.now());
    applying::close_gate(state)?;
    // What waits may be about the very names.
    match state.waiting.why().cloned() {
        // Busy: it is being fetched, or found out.
        Some(error) if error.kind == ErrorKind::Busy => Err(state.fetches.wait()),
        Some(error) => Err(error),
        None => Ok((carried_out(state, caller.as_ref(), request)?, changes)),
    }
}

/// Who asks, if he may where he asks for it.
fn within(
    state: &State,
    session: SessionSlot,
    allowed: Allowed,
    request: &Request<'_>,
) -> Result<Allowed> {
    if let Some(place) = &allowed.below {
        bounding::permit(state, session, place, request)?;
    }
    Ok(allowed)
}

/// Refuses what containers do not allow to who has logged in.
fn contains(
    state: &mut State,
    (session, who): (SessionSlot, Who),
    by: Principal,
    request: &Request<'_>,
) -> Result<()> {
    let permitted = contained::permit(state, (session, by), request);
    permitted.map_err(|refused| {
        presenting::was_kept_out(state, (session, who), request.needs(), (by, refused))
    })
}

/// Whether a request only ends what is the caller's own, which it may when all else has run out:
/// whoever knows a description's nonce may close it, and who appended in vain give up.
pub fn ends_own(session: SessionSlot, request: &Request<'_>) -> bool {
    match request {
        Request::Close { .. } => true,
        Request::Unblock { owner, .. } => {
            session_of(Owner(*owner)).is_some_and(|(own, _)| own == session)
        }
        _ => false,
    }
}

/// Whether the process of a session is no more. Whoever knows that it is (waitpid(2)) must not see
/// it change anything any more.
fn has_ended(state: &State, session: SessionSlot) -> bool {
    state.sessions.client(session).is_some_and(|client| !client.process.is_alive())
}

/// Answers who has no session, and whether more was deferred than is applied now.
///
/// # Errors
/// As the request says; [`ErrorKind::Invalid`] for one that needs a session.
pub fn question(
    state: &mut State,
    asked: Asked<'_>,
    request: Request<'_>,
) -> Result<(Reply, bool)> {
    if !request.is_question() {
        return Err(Error::new(ErrorKind::Invalid, "a request that needs a session"));
    }
    let number = asked.number;
    at_the_door(state, number, |state| answer(state, asked, request))
}

fn answer(state: &mut State, asked: Asked<'_>, request: Request<'_>) -> Result<(Reply, bool)> {
    let Asked { most, shown, who, person, principals, answered, .. } = asked;
    let now_s = state.world.wall_s();
    let mut presented = Presented::default();
    let good = match shown {
        Some(shown) => presenting::verify(state, shown, who, Arc::new(person))?,
        None => {
            let issued = state.authz.issue(&*state.world, most)?;
            state.authz.verify(now_s, &issued, Arc::new(person))?
        }
    };
    let left = state.authz.left(&good);
    presented.insert(1, good.clone(), left);
    let allowed = state.authz.check(now_s, &presented, 1, &request);
    let allowed = allowed.and_then(|allowed| within(state, NOBODY, allowed, &request));
    let allowed = allowed.inspect_err(|error| {
        state.machine.audit(&audit::denied(now_s, who, request.needs(), error.kind));
    })?;
    if allowed.leased {
        leasing::counts(state)?;
    }
    if let Some(by) = allowed.contained {
        contains(state, (NOBODY, who), by, &request)?;
    }
    match request {
        Request::Containers(after) => return Ok((containers::list(state, after), false)),
        Request::SetContainer(encoded) => {
            let setting = frame::decode(encoded)?;
            let (sessions, deaf) = containers::change(state, who, good.principal, setting)?;
            return Ok((Reply::Revoked { sessions, deaf }, false));
        }
        Request::Starts(said) => return Ok((starting::hear(state, who, said)?, false)),
        Request::Doubts => return resolved(state, (who, good), None),
        Request::Resolve { of, is } => return resolved(state, (who, good), Some((of, is))),
        Request::Capability if shown.is_some() => {
            let context = "who shows a capability gets no other: narrow that one";
            return Err(Error::new(ErrorKind::Denied, context));
        }
        Request::Capability => {
            let issued = leasing::issue(state, most)?;
            state.machine.audit(&audit::granted(now_s, who, &issued));
            return Ok((Reply::Capability(Box::new(issued)), false));
        }
        Request::Revoke(what) => {
            let (sessions, deaf) = revoking::revoke(state, who, what)?;
            return Ok((Reply::Revoked { sessions, deaf }, false));
        }
        identity if identity.is_of_identity() => {
            let reply = of_identity(state, (who, &good), identity, (principals, answered))?;
            return Ok((reply, false));
        }
        _ => {}
    }
    let caller = Caller { session: NOBODY, person: allowed.person };
    let more = applying::apply_deferred(state)?;
    let reply = match routing::carry_out(state, &caller, request) {
        Ok(reply) => reply,
        Err(error) => Reply::Failed(error),
    };
    Ok((reply, more))
}

/// Who has no session does something that may have to wait for what another member says: then it is
/// done anew. He is known by a number that nobody else has.
///
/// # Errors
/// Those of `act`, and of the log.
pub fn at_the_door<T>(
    state: &mut State,
    number: u64,
    act: impl FnOnce(&mut State) -> Result<T>,
) -> Result<T> {
    let asker = asker_at_the_door(number);
    state.members.iter_mut().for_each(|members| members.asks(Some(asker)));
    let done = act(state);
    state.members.iter_mut().for_each(|members| members.asks(None));
    if !state.fetches.is_waiting() {
        requiring::is_answered(state, asker);
    }
    carrying::resume(state)?;
    done
}

/// What is in doubt, or was until now, everywhere.
fn resolved(
    state: &mut State,
    (who, good): (Who, Good),
    resolved: Option<(TransactionId, bool)>,
) -> Result<(Reply, bool)> {
    let caller = Caller { session: NOBODY, person: good.person };
    let all = transacting::everywhere(state, (&caller, who), resolved)?;
    Ok((Reply::Doubts(all), false))
}

/// Answers who proves who he is, shows that he has, or asks as whom he acts.
fn of_identity(
    state: &mut State,
    (who, good): (Who, &Good),
    request: Request<'_>,
    (principals, answered): (Result<Principals>, Result<Answered>),
) -> Result<Reply> {
    match request {
        Request::Challenge => {
            let world = state.world.clone();
            state.authn.keys.challenges.give(&*world).map(Reply::Challenge)
        }
        Request::Negotiate(challenge, token) => {
            logging_in::negotiate(state, who, (challenge, token), answered).map(Reply::Negotiated)
        }
        Request::Login(proof, wish) => {
            let credential = logging_in::login(state, who, principals, (proof, wish))?;
            Ok(Reply::Credential(Box::new(credential)))
        }
        Request::Authorize(shown, keeps) => {
            let issued = credentials::authorize(state, who, &shown, keeps)?;
            Ok(Reply::Capability(Box::new(issued)))
        }
        Request::Logout(shown) => {
            let (sessions, deaf) = credentials::logout(state, who, &shown)?;
            Ok(Reply::Revoked { sessions, deaf })
        }
        _ => Ok(Reply::Whom(Box::new(logging_in::whom(state, good)))),
    }
}

fn asker_at_the_door(number: u64) -> Asker {
    Asker { session: NOBODY, index: AT_THE_DOOR, sequence: number }
}

/// Who has asked a question is gone.
///
/// # Errors
/// If the log cannot be written.
pub fn is_gone(state: &mut State, number: u64) -> Result<()> {
    requiring::is_answered(state, asker_at_the_door(number));
    // Others may wait for what he has asked.
    state.members.iter_mut().for_each(|members| members.go_on());
    carrying::resume(state)
}

fn carried_out(state: &mut State, caller: Option<&Caller>, request: Request<'_>) -> Result<Reply> {
    match (caller, request) {
        (Some(caller), request) => routing::carry_out(state, caller, request),
        (None, Request::Close { description, nonce }) => {
            closing::close(state, description, nonce).map(|()| Reply::Done)
        }
        (None, Request::Unblock { file, index, owner }) => {
            reclaim::unblock(state, file, index, Owner(owner)).map(|()| Reply::Done)
        }
        (None, _) => Err(Error::new(ErrorKind::Unauthorized, "a request of nobody")),
    }
}

/// Writes what was done. Only then may anything be deferred that could build upon it: another
/// server would know nothing of what is not written.
fn written(state: &mut State, outcome: Outcome) -> Outcome {
    if let Err(error) = carrying::carry_out(state).and_then(|()| state.commit()) {
        return Outcome::Answer(encoded(&Reply::Failed(error)));
    }
    if state.storage.memory().gate().load(Ordering::SeqCst) != 0 {
        applying::open_gate(state);
    }
    outcome
}

fn encoded(reply: &Reply) -> Vec<u8> {
    // A reply that cannot be encoded is our own bug; the client gets an empty, malformed one.
    frame::encode(reply).unwrap_or_default()
}
