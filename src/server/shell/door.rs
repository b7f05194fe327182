//! The door: who connects says what it comes for, gets a session, or the answer to one question,
//! which may have to be fetched, and is let go.
//!
//! Invariants: nobody is waited for; a process that connects again and again, with or without a
//! word, is refused beyond a bound, and named. Not here: what a session or an answer is.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use terral_format::ids::SessionSlot;
use terral_format::wire::capability::Capability;
use terral_format::wire::handshake::{Hello, Wants, Welcome};
use terral_format::wire::message::{PROTOCOL, Reply, Request};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result, frame};
use terral_transport::process::{self, Process, WaitSet};
use terral_transport::requests;
use terral_transport::socket::{Handshake, Listener, PATIENCE, Peer};

use crate::authority::audit::Who;
use crate::authority::authn::{self, Most};
use crate::authority::by_gss::Answered;
use crate::authority::peer;
use crate::authority::principals::Principals;
use crate::core::machine;
use crate::core::state::State;
use crate::core::workers::Trade;
use crate::requests::admission::Comer;
use crate::requests::handling::Asked;
use crate::requests::{admission, handling, logging_in};
use crate::shared::Shared;
use crate::shell::host::make_page;
use crate::shell::listed;
use crate::shell::options::Listing;
use crate::shell::tickets;

/// Most connections on which nothing was said yet, of all processes and of one.
const SILENT_MAX: (usize, usize) = (512, 8);
/// What tells the token of a caller from all others.
const CALLERS: u64 = 1 << 32;
/// A question that would rather have an old answer than none waits so long for a new one.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Where no connection can be accepted for want of descriptors, it is tried again after this.
const BREATH: Duration = Duration::from_millis(10);

/// Who has connected and was not yet answered.
struct Caller {
    /// By which he is known.
    token: u64,
    handshake: Handshake,
    peer: Peer,
    since: Instant,
    /// What he has said, if its answer must be fetched.
    asked: Option<Vec<u8>>,
}

/// Where clients come in.
pub struct Door<'s> {
    shared: &'s Shared,
    watch: &'s WaitSet,
    instance: &'s Path,
    /// Where it says who is who.
    listing: Option<Listing>,
    listener: Listener,
    /// By token: in the order in which they came.
    callers: BTreeMap<u64, Caller>,
    next: u64,
    /// The server was told that somebody waits for an answer.
    told: bool,
}

impl<'s> Door<'s> {
    /// Opens it; `token` is what the set of descriptors says when somebody comes.
    pub fn open(
        shared: &'s Shared,
        watch: &'s WaitSet,
        instance: &'s Path,
        listener: Listener,
        token: u64,
    ) -> Result<Self> {
        watch.add(listener.as_fd(), token)?;
        let (callers, listing) = (BTreeMap::new(), None);
        let (next, told) = (CALLERS, false);
        Ok(Door { shared, watch, instance, listing, listener, callers, next, told })
    }

    /// Others than the server's user may log in, whom this lists.
    #[must_use]
    pub fn with_listing(mut self, listing: Option<Listing>) -> Self {
        self.listing = listing;
        self
    }

    /// Whether a token is that of somebody who is, or was, at the door.
    pub fn is_caller(token: u64) -> bool {
        token >= CALLERS
    }

    /// When somebody at the door has been silent for too long.
    pub fn until(&self) -> Option<Instant> {
        let mut silent = self.callers.values().filter(|caller| caller.asked.is_none());
        silent.next().map(|caller| caller.since + PATIENCE)
    }

    /// Whether somebody waits for an answer that must be fetched.
    pub fn is_asked(&self) -> bool {
        self.callers.values().any(|caller| caller.asked.is_some())
    }

    /// Answers those who wait, if that is possible by now. What nobody waits for any more, as who
    /// asked is gone, is not to be kept for others: they ask for what is there then.
    pub fn ask_again(&mut self) {
        if !self.told && !self.is_asked() {
            return;
        }
        let asked = self.callers.iter().filter(|(_, caller)| caller.asked.is_some());
        let asked: Vec<u64> = asked.map(|(token, _)| *token).collect();
        for token in asked {
            let Some(mut caller) = self.callers.remove(&token) else { continue };
            if !self.serve(&mut caller) {
                self.callers.insert(token, caller);
            }
        }
        self.told = self.is_asked();
        let mut state = self.shared.lock();
        state.fetches.are_asked(self.told);
        let others = state.fetches.is_awaited() || state.waiting.count() > 0;
        state.fetches.forget(others);
    }

    /// Lets in all who wait outside.
    pub fn admit(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(Some(handshake)) => self.receive(handshake),
                Ok(None) => return,
                Err(_) => {
                    // No descriptor is free: who says nothing gives one back.
                    if self.callers.pop_first().is_none() {
                        return std::thread::sleep(BREATH);
                    }
                }
            }
        }
    }

    fn receive(&mut self, handshake: Handshake) {
        let Ok(peer) = handshake.peer() else { return };
        let token = self.next;
        self.next += 1;
        let mut caller = Caller { token, handshake, peer, since: Instant::now(), asked: None };
        if self.serve(&mut caller) {
            return;
        }
        self.make_room(peer);
        if self.watch.add(caller.handshake.as_fd(), token).is_ok() {
            self.callers.insert(token, caller);
        }
    }

    /// Who came first goes first, of the process that has too many.
    fn make_room(&mut self, peer: Peer) {
        let same = |caller: &Caller| caller.peer.pid == peer.pid && caller.asked.is_none();
        let mut of_process = self.callers.iter().filter(|(_, caller)| same(caller));
        let oldest = of_process.next().map(|(token, _)| *token);
        if let Some(token) = oldest.filter(|_| of_process.count() + 1 >= SILENT_MAX.1) {
            self.callers.remove(&token);
            let who = process::shown(peer.pid);
            let what = format!("process {who} connects again and again and says nothing");
            self.shared.lock().warn(what);
        } else if self.callers.len() >= SILENT_MAX.0 {
            self.callers.pop_first();
        }
    }

    /// Somebody at the door speaks.
    pub fn hear(&mut self, token: u64) {
        // Who has asked and says more is gone.
        let Some(mut caller) = self.callers.remove(&token) else { return };
        if caller.asked.is_some() {
            let mut state = self.shared.lock();
            let forgotten = handling::is_gone(&mut state, token);
            forgotten.unwrap_or_else(|error| state.warn(error.to_string()));
            return self.shared.wake(state);
        }
        if !self.serve(&mut caller) {
            self.callers.insert(token, caller);
        }
    }

    /// Lets go who said nothing for too long.
    pub fn give_up(&mut self) {
        let waits = |caller: &Caller| caller.asked.is_some();
        self.callers.retain(|_, caller| waits(caller) || caller.since.elapsed() < PATIENCE);
    }

    /// Whether the caller has said all it has to say, and was served.
    fn serve(&self, caller: &mut Caller) -> bool {
        let said = match caller.asked.take() {
            Some(asked) => Ok(Some(asked)),
            None => caller.handshake.hear(),
        };
        let heard = match said {
            Ok(None) => return false,
            Ok(Some(payload)) => match self.answer(caller, &payload) {
                Ok(None) => {
                    caller.asked = Some(payload);
                    return false;
                }
                answer => answer,
            },
            Err(error) => Err(error),
        };
        let sent = match heard {
            Ok(Some((welcome, Some(page)))) => caller.handshake.send(&welcome, &[page.as_fd()]),
            Ok(Some((welcome, None))) => caller.handshake.send(&welcome, &[]),
            Ok(None) => Ok(()),
            Err(error) => caller.handshake.send(&Welcome::Refused(error), &[]),
        };
        // Whoever is gone already loses its session when its process ends.
        drop(sent);
        true
    }

    /// `None`: what is asked must be fetched.
    fn answer(&self, caller: &Caller, payload: &[u8]) -> Result<Option<(Welcome, Option<File>)>> {
        let hello: Hello<'_> = frame::decode(payload)?;
        if hello.protocol != PROTOCOL {
            let context = format!(
                "server speaks protocol {PROTOCOL}, {} speaks {}: use the same version of terral",
                hello.program, hello.protocol
            );
            return Err(Error::new(ErrorKind::Version, context));
        }
        match hello.wants {
            Wants::Session => {
                let begun = self.begin(caller, hello.person, hello.capability)?;
                Ok(begun.map(|(welcome, page)| (welcome, Some(page))))
            }
            Wants::Answer(request) => {
                let reply = self.look(caller, (hello.person, hello.capability), request)?;
                Ok(reply.map(|reply| (Welcome::Answer(Box::new(reply)), None)))
            }
        }
    }

    /// What the user of a process may, who is the server's.
    fn identify(&self, peer: Peer) -> Result<Most> {
        let own = self.shared.machine.user();
        let identity = peer::Peer { own }.identity(peer.uid)?;
        identity.most(self.shared.world.wall_s(), &Default::default())
    }

    /// Who is who, if somebody logs in.
    fn listed(&self, request: &Request<'_>) -> Result<Principals> {
        let logs_in = |_: &PathBuf| matches!(request, Request::Login(..));
        let listing = self.listing.as_ref().map(|listing| listing.principals.clone());
        // Who has taken over as the control of a pool has the pool's.
        let kept = || Some(self.instance.join(listed::KEPT)).filter(|kept| kept.exists());
        let list = listing.or_else(kept).filter(logs_in);
        list.map_or_else(|| Err(logging_in::nobody_listed()), |list| listed::read(&list))
    }

    /// What Kerberos says of a ticket that is shown. Only who was given a challenge has it looked
    /// at.
    fn answered(&self, request: &Request<'_>) -> Result<Answered> {
        let keytab = self.listing.as_ref().and_then(|listing| listing.keytab.as_ref());
        let Request::Negotiate(challenge, token) = request else {
            return Err(logging_in::no_keytab());
        };
        let keytab = keytab.ok_or_else(logging_in::no_keytab)?;
        self.shared.lock().authn.admit_ticket(&*self.shared.world, challenge, token.0)?;
        tickets::answer(keytab, token.0)
    }

    fn look(
        &self,
        caller: &Caller,
        (person, shown): (Person, Option<Capability>),
        request: Request<'_>,
    ) -> Result<Option<Reply>> {
        let most = self.identify(caller.peer)?;
        let (principals, answered) = (self.listed(&request), self.answered(&request));
        let process = Process::open(caller.peer.pid)?;
        authn::permit_acting(&*self.shared.machine, &process, &person)?;
        let bounded =
            matches!(request, Request::Safety(_) | Request::Everywhere { .. } | Request::Doubts);
        let waits = !bounded || caller.since.elapsed() < ANSWER_WITHIN;
        let mut state = self.shared.lock_for_requests();
        state.fetches.let_wait(waits);
        let asked = Asked {
            most: &most,
            principals,
            answered,
            shown: shown.as_ref(),
            who: Who { pid: caller.peer.pid, user: person.user },
            person,
            number: caller.token,
        };
        let answer = handling::question(&mut state, asked, request);
        let Some(state) = self.is_done(state) else { return Ok(None) };
        let (reply, more) = answer?;
        if more {
            requests::ring_deferred(self.shared.bell(), true);
        }
        self.shared.wake(state);
        Ok(Some(reply))
    }

    /// What was carried out need not wait for anything.
    fn is_done<'l>(&self, mut state: MutexGuard<'l, State>) -> Option<MutexGuard<'l, State>> {
        state.fetches.let_wait(false);
        if !state.fetches.must_wait() {
            return Some(state);
        }
        state.fetches.are_asked(true);
        drop(state);
        // It has the needs of all fetched.
        self.shared.nudge();
        self.shared.wake_links();
        None
    }

    /// A process of the server's user gets what it may do, unless it shows what it has; one that
    /// has become another user since does. `None`: another member is to say first whether that is
    /// good.
    fn begin(
        &self,
        caller: &Caller,
        person: Person,
        had: Option<Capability>,
    ) -> Result<Option<(Welcome, File)>> {
        let peer = caller.peer;
        let process = Process::open(peer.pid)?;
        authn::permit_acting(&*self.shared.machine, &process, &person)?;
        let started_ticks = process::started_ticks(peer.pid)?;
        let mut state = self.shared.lock();
        let shows = had.is_some();
        let capability = match had {
            Some(capability) => capability,
            None if peer.pid == state.machine.pid() => {
                state.authz.issue_own(&*state.world, &self.identify(peer)?)?
            }
            None => state.authz.issue(&*state.world, &self.identify(peer)?)?,
        };
        let comer = Comer { process: Box::new(process), started_ticks, person };
        let mut made = None;
        let page = |session: SessionSlot, process: &dyn machine::Process| {
            let (page, file) = make_page(self.instance, session)?;
            process.descriptor().map_or(Ok(()), |fd| self.watch.add(fd, session.0.into()))?;
            made = Some(file);
            Ok(page)
        };
        // What was issued here just now needs nobody's word.
        state.fetches.let_wait(shows);
        let admitted = match shows {
            true => handling::at_the_door(&mut state, caller.token, |state| {
                admission::admit(state, comer, &capability, page)
            }),
            false => admission::admit(&mut state, comer, &capability, page),
        };
        let Some(state) = self.is_done(state) else { return Ok(None) };
        let (session, authority) = admitted?;
        let page =
            made.ok_or_else(|| Error::new(ErrorKind::Invalid, "a session without a page"))?;
        if state.sleepers.sleeps(Trade::Preparing) {
            self.shared.rouse(Trade::Preparing);
        }
        let instance = state.began.instance;
        let pid = peer.pid;
        let welcome =
            Welcome::Session { instance, session, capability, authority, started_ticks, pid };
        Ok(Some((welcome, page)))
    }
}
