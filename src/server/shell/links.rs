//! The thread that has this member's way to the others: what comes is heard under the lock, each
//! frame in a transaction of its own.
//!
//! Invariant: nobody waits for the network with the lock held. Not here: who may have sessions
//! (`admitting`), what is said (`saying`), what frames mean (`members`, `sharing`), and how they go
//! (`network`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use terral_format::frame::HEADER_BYTES;
use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;
use terral_format::wire::far::Written;
use terral_format::wire::peers::{FRAME_MAX, Frame};
use terral_format::wire::remembered::Memory;
use terral_format::wire::roster::{Control, Said};
use terral_format::{Error, ErrorKind, Result};
use terral_network::endpoint::{Endpoint, Event, Session};
use terral_network::tcp::{Encryption, Found, Identity, PartitionId, Settings, Tcp, Watch};
use terral_partition::effect::Input;
use terral_transport::{boottime, long_buffers, process};

use crate::core::state::State;
use crate::far::desk::{Payload, Relay};
use crate::far::{self, holders, linking};
use crate::members::role::Members;
use crate::members::telling::Telling;
use crate::members::traffic::Traffic;
use crate::members::{control, following};
use crate::shared::Shared;
use crate::sharing::{
    carrying, departing, guiding, letting_go, letting_in, moving, restoring, ruling, users,
};
use crate::shell::addresses;
use crate::shell::parking::Parking;
use crate::shell::relaying::{Relaying, threads};
use crate::shell::times;

mod admitting;
mod deciding;
mod saying;

/// How often time is said to pass: several times in a term of the protocol.
const TICK: Duration = Duration::from_millis(250);
/// So much is heard before anything is said of it.
const AT_ONCE: usize = 16;
/// Bytes that whoever has them says, or has requests go on with, himself, be it that others wait
/// for him: to wake another thread takes longer.
const SHORT: usize = 16 << 10;

/// This member's way to the others.
pub struct Links<'s> {
    shared: &'s Shared,
    /// Requests that may wait for what is heard.
    parking: &'s Parking<'s>,
    tcp: Tcp,
    /// Where this member can be reached.
    here: Vec<SocketAddr>,
    sessions: BTreeMap<Member, Session>,
    /// Of the control: those of who has not said yet which server he is.
    unclaimed: BTreeMap<Member, Session>,
    /// How much was sent.
    traffic: Arc<Traffic>,
    /// Memory of questions that were sent, to be used again: a new page of it costs a fault.
    spare: Vec<Vec<u8>>,
    /// What could not go yet.
    waiting: BTreeMap<Member, VecDeque<Written>>,
    /// What has come of a long frame.
    parts: BTreeMap<Member, Vec<u8>>,
    /// Who does what others ask of files that were born here.
    relaying: Option<Arc<Relaying>>,
    /// Of which roster the endpoint, and each member, knows, and of which control.
    admitted: u64,
    control: Option<Member>,
    telling: Telling,
    /// Which server each member is, or was.
    servers: BTreeMap<Member, ServerId>,
    /// Who is none any more: nothing of it is heard.
    removed: BTreeSet<Member>,
    /// Who speaks for one user alone, and for whom.
    users: BTreeMap<Member, u32>,
    ticked: Moment,
    /// When the control was asked last what time it has.
    asked: Moment,
    /// Whether it has been told, in this session, where this member is.
    is_told: bool,
    /// Something short has come that requests wait for.
    has_answers: bool,
}

fn identity(members: &Members) -> Identity {
    let partition = members.partition();
    Identity {
        partition: PartitionId(partition.id),
        member: members.me(),
        server: members.server(),
        secret: partition.secret,
    }
}

impl<'s> Links<'s> {
    /// Opens the way at this address; port 0 is any that is free.
    ///
    /// # Errors
    /// As those of [`Tcp::listen`]; [`ErrorKind::Invalid`] if this server is alone.
    pub fn open(
        (shared, parking): (&'s Shared, &'s Parking<'s>),
        at: SocketAddr,
        relay: Option<Arc<dyn Relay>>,
    ) -> Result<Self> {
        long_buffers::keep();
        let state = shared.lock();
        let alone = || Error::new(ErrorKind::Invalid, "a server that is alone");
        let members = state.members.as_ref().ok_or_else(alone)?;
        let encryption =
            if members.partition().encrypted { Encryption::Tls } else { Encryption::None };
        let settings = Settings { encryption, ..Settings::default() };
        let clock = || Box::new(|| Moment(boottime::now_ns()));
        // Those who knew this member before look for it there.
        let before = members.roster().seat(members.me()).and_then(|seat| seat.addresses.first());
        let there = before.map(|before| SocketAddr::new(at.ip(), before.port()));
        let there = there.filter(|_| at.port() == 0);
        let listen = |at| Tcp::listen(at, identity(members), settings, clock());
        let tcp =
            there.map_or_else(|| listen(at), |there| listen(there).or_else(|_| listen(at)))?;
        let traffic = members.traffic().clone();
        drop(state);
        let here = addresses::reachable(tcp.address()?);
        let ticked = tcp.now();
        shared.is_linked_by(tcp.waker());
        let relaying = relay.map(|relay| threads::begin(relay, tcp.waker())).transpose()?;
        Ok(Links {
            shared,
            parking,
            tcp,
            here,
            sessions: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            traffic,
            spare: Vec::new(),
            waiting: BTreeMap::new(),
            parts: BTreeMap::new(),
            relaying,
            admitted: 0,
            control: None,
            telling: Telling::default(),
            servers: BTreeMap::new(),
            removed: BTreeSet::new(),
            users: BTreeMap::new(),
            ticked,
            asked: ticked,
            is_told: false,
            has_answers: false,
        })
    }

    /// By which its thread waits for what comes.
    pub fn watch(&self) -> Watch {
        self.tcp.watch()
    }

    /// Hears what has come, of which this was found, and says what is to be said. For how long
    /// there is nothing else to do then, unless something comes; `None`: the server leaves.
    pub fn turn(&mut self, found: Found) -> Option<Duration> {
        self.tcp.has_found(found);
        if self.shared.lock_for_links().leaving {
            self.relaying.iter().for_each(|relaying| relaying.end());
            return None;
        }
        // One that an invitation has let in may have sessions at once.
        self.admit();
        // What is said of several goes together.
        for _ in 0..AT_ONCE {
            self.hear_next();
            if self.tcp.due() > Moment(0) {
                break;
            }
        }
        if self.tcp.now() >= self.ticked + TICK {
            self.tick();
        }
        self.say_all();
        let (now, until) = (self.tcp.now(), self.tcp.due().min(self.ticked + TICK));
        Some(Duration::from_nanos(until.0.saturating_sub(now.0)))
    }

    fn hear_next(&mut self) {
        match self.tcp.next(Moment(0)) {
            Some(Event::Connected(session)) => self.connected(session),
            Some(Event::Frame(session, frame)) => self.came(session, frame),
            Some(Event::Room(session)) => self.send_waiting(session.with),
            Some(Event::Lost(session, _)) => self.lost(session),
            None => self.resume(),
        }
    }

    /// Time has passed.
    fn tick(&mut self) {
        self.ticked = self.tcp.now();
        self.telling.tick();
        self.tell_unclaimed(None);
        self.hear(Input::Tick);
        self.ask_time();
        linking::tick(&mut self.shared.lock_for_links());
        let mut state = self.shared.lock_for_links();
        let now = state.world.now();
        state.members.iter_mut().for_each(|members| members.does_nobody_start_them(now));
        if state.orphaned || departing::departs(&state) {
            // It ends once the others have been silent for long, or the control has let it go.
            drop(state);
            self.shared.nudge();
        }
    }

    /// What is done first.
    pub fn begin(&mut self) {
        process::be_prompt();
        self.is_here();
        self.admit();
        // After a restart it may be at another address: it looks for the others.
        let seats =
            self.shared.lock_for_links().members.as_ref().map(|members| members.roster().clone());
        let seats = seats.into_iter().flat_map(|roster| roster.seats);
        let known = seats.filter(|seat| !seat.addresses.is_empty());
        known.for_each(|seat| self.tcp.reach(seat.member));
    }

    fn connected(&mut self, session: Session) {
        let state = self.shared.lock_for_links();
        let members = state.members.as_ref();
        let is_control = members.is_some_and(|members| members.control() == members.me());
        drop(state);
        match is_control {
            true => {
                self.unclaimed.insert(session.with, session);
                self.tell_unclaimed(Some(session));
            }
            false => self.begins(session),
        }
    }

    /// Who does not know who the control is says nothing to it: it says so, to one, or to all that
    /// have not said who they are, once it may.
    fn tell_unclaimed(&mut self, one: Option<Session>) {
        if self.unclaimed.is_empty() {
            return;
        }
        let state = self.shared.lock_for_links();
        let members = state.members.as_ref();
        let may = members.is_some_and(|it| it.may_have_another_control() && it.may_tell());
        let rule = if may { ruling::said(&state) } else { None };
        drop(state);
        let frame = rule.and_then(|rule| Control::Roster(Box::new(rule)).frame().ok());
        let Some(frame) = frame else { return };
        let all = self.unclaimed.values().filter(|it| one.is_none_or(|one| one == **it));
        // If it is lost with the session, he comes again.
        for session in all {
            let _ = self.tcp.send(*session, &frame);
        }
    }

    /// A session is one of a member.
    fn begins(&mut self, session: Session) {
        let with = session.with;
        self.sessions.insert(with, session);
        self.waiting.remove(&with);
        self.parts.remove(&with);
        self.telling.forget(with);
        if self.removed.contains(&with) {
            return;
        }
        let (control, instance, gone) = {
            let mut state = self.shared.lock_for_links();
            let now = state.world.now();
            state.members.iter_mut().for_each(|members| members.connects(with, true, now));
            guiding::connected(&mut state, with);
            let control = state.members.as_ref().map(|members| members.control());
            (control, state.began.instance.0, control::gone(&state))
        };
        if control == Some(with) {
            self.say(with, &Control::Claims(instance));
            if !gone.is_empty() {
                self.say(with, &Control::Removed(gone));
            }
            (self.asked, self.is_told) = (self.tcp.now(), false);
            self.say(with, &Control::AskTime(self.asked));
        }
        self.hear(Input::Connected(with));
        let connected = linking::connected(&mut self.shared.lock_for_links(), with);
        self.warn_of(connected);
    }

    /// Clocks drift, and are set.
    fn ask_time(&mut self) {
        let now = self.tcp.now();
        if now < self.asked + times::EVERY {
            return;
        }
        self.asked = now;
        let state = self.shared.lock_for_links();
        let control = state.members.as_ref().map(|members| members.control());
        drop(state);
        if let Some(control) = control.filter(|control| self.sessions.contains_key(control)) {
            self.say(control, &Control::AskTime(now));
        }
    }

    fn lost(&mut self, session: Session) {
        let with = session.with;
        if self.unclaimed.get(&with) == Some(&session) {
            self.unclaimed.remove(&with);
        }
        if self.sessions.get(&with) == Some(&session) {
            self.sessions.remove(&with);
            self.waiting.remove(&with);
            let mut state = self.shared.lock_for_links();
            let now = state.world.now();
            state.members.iter_mut().for_each(|members| members.connects(with, false, now));
        }
        // What was said in it may be lost, and what is answered to it will be.
        if !self.removed.contains(&with) {
            self.tcp.reach(with);
        }
    }

    fn came(&mut self, session: Session, frame: Box<[u8]>) {
        if self.unclaimed.get(&session.with) == Some(&session) {
            match Said::read(&frame) {
                Ok(Said::Control(Control::Claims(instance))) => self.claims(session, instance),
                Ok(Said::Control(said @ Control::Roster(_))) => drop(self.control(session, said)),
                _ => {}
            }
            return;
        }
        if self.removed.contains(&session.with) {
            return;
        }
        let heard = match Said::read(&frame) {
            Ok(Said::Protocol(bytes)) => self.protocol(session, bytes),
            Ok(Said::Part(bytes)) => self.part(session.with, bytes),
            Ok(Said::Control(said)) => self.control(session, said),
            Ok(Said::Question(question)) => {
                let from = frame.len() - question.len();
                self.is_asked(session.with, Payload::new(frame, from))
            }
            Ok(Said::Answer(answer)) => self.is_answered(session.with, answer),
            Ok(Said::Memory(bytes)) => self.memory(session.with, bytes),
            Err(error) => Err(error),
        };
        if let Err(error) = heard {
            let context = format!("{}: {error}; the session is ended", session.with);
            self.shared.lock_for_links().warn(context);
            self.tcp.cut(session);
        }
    }

    /// A part of a long frame has come.
    fn part(&mut self, from: Member, bytes: &[u8]) -> Result<()> {
        let parts = self.parts.entry(from).or_default();
        if parts.len() + bytes.len() > HEADER_BYTES + FRAME_MAX {
            return Err(Error::new(ErrorKind::Malformed, "frame of a member: too many parts"));
        }
        parts.extend_from_slice(bytes);
        Ok(())
    }

    fn protocol(&mut self, session: Session, bytes: &[u8]) -> Result<()> {
        let frame = match self.parts.remove(&session.with) {
            None => Frame::read(bytes)?,
            Some(parts) => Frame::read(&[&parts, bytes].concat())?,
        };
        // Who speaks for another is not heard.
        if frame.from == session.with {
            if !frame.messages.is_empty() {
                self.is_heard();
            }
            self.hear(Input::Frame(frame));
        }
        Ok(())
    }

    /// Another member has said something that is more than that it is there.
    fn is_heard(&self) {
        let mut state = self.shared.lock_for_links();
        let now = state.world.now();
        state.members.iter_mut().for_each(|members| members.hears(now));
    }

    /// Another member asks for something of a file that was born here.
    fn is_asked(&self, from: Member, question: Payload) -> Result<()> {
        let none = || Error::new(ErrorKind::Unsupported, "nobody here relays");
        self.is_heard();
        let state = self.shared.lock_for_links();
        let me = state.members.as_ref().map(|members| members.me());
        let question = far::users::admit(&state, from, question)?;
        drop(state);
        let (relaying, me) = self.relaying.as_ref().zip(me).ok_or_else(none)?;
        if let Some(user) = question.user {
            let lane = relaying.clone();
            let begin = || threads::begin_one(move || lane.run_for(user));
            relaying.begins(user, from, begin)?;
        }
        let closed = relaying.push((me, from), question)?;
        if !closed.is_empty() {
            let mut state = self.shared.lock_for_links();
            closed.into_iter().for_each(|(ino, by)| holders::closed(&mut state, ino, by));
        }
        Ok(())
    }

    /// Requests that wait for it go on: here, if it is short.
    fn is_answered(&mut self, from: Member, answer: &[u8]) -> Result<()> {
        linking::answered(&mut self.shared.lock_for_links(), from, answer)?;
        match answer.len() {
            0..=SHORT => self.has_answers = true,
            _ => self.shared.nudge(),
        }
        Ok(())
    }

    /// Of a directory that a dead member had.
    fn memory(&mut self, from: Member, bytes: &[u8]) -> Result<()> {
        let memory = Memory::of(bytes)?;
        let mut state = self.shared.lock_for_links();
        restoring::heard(&mut state, from, memory)?;
        let done = carrying::resume(&mut state);
        drop(state);
        self.warn_of(done);
        Ok(())
    }

    /// A server says which it is. Who is none hears why, and ends.
    fn claims(&mut self, session: Session, instance: u128) {
        let mut state = self.shared.lock_for_links();
        let claimed = control::claims(&mut state, session.with, instance);
        let done = carrying::resume(&mut state);
        drop(state);
        self.warn_of(done);
        match claimed {
            Ok(()) => {
                self.unclaimed.remove(&session.with);
                self.begins(session);
            }
            Err(why) => {
                let frame = Control::Refuses(why).frame().unwrap_or_default();
                // If it is lost with the session, he comes again.
                let _ = self.tcp.send(session, &frame);
            }
        }
    }

    fn control(&mut self, session: Session, said: Control) -> Result<()> {
        let mut state = self.shared.lock_for_links();
        let Some(members) = &state.members else { return Ok(()) };
        let (with, control, me) = (session.with, members.control(), members.me());
        let (is_control, may_change) = (control == me, members.may_get_another_control());
        match users::says(&mut state, with, said)? {
            Control::Roster(rule) if following::is_taken_over(&state, with, &rule) => {
                ruling::heard(&mut state, *rule)?;
            }
            Control::Roster(_) if is_control => {}
            Control::Roster(rule) if control == with => {
                let version = rule.roster.version;
                ruling::heard(&mut state, *rule)?;
                self.connect_all(&mut state);
                drop(state);
                self.say(with, &Control::Knows(version));
                state = self.shared.lock_for_links();
            }
            Control::Refuses(why) if control == with => {
                (state.refused, state.leaving) = (Some(why), true);
                drop(state);
                self.shared.nudge();
                return Ok(());
            }
            Control::AskTime(asked) if is_control => {
                let time_ns = state.storage.time_ns();
                drop(state);
                self.say(with, &Control::Time { asked, time_ns });
                return Ok(());
            }
            Control::Time { asked, time_ns } if control == with => {
                times::heard(&state, asked, time_ns, self.tcp.now());
                drop(state);
                if !std::mem::replace(&mut self.is_told, true) {
                    // No program begins before: who starts them waits for this.
                    self.say(with, &Control::Here(self.here.clone()));
                }
                return Ok(());
            }
            // As the control says, this one goes on with them.
            Control::Hands(directories) if is_control || may_change => {
                departing::hands(&mut state, with, directories);
            }
            said if is_control && said.is_for_control() => self.is_told(&mut state, with, said)?,
            said @ Control::Invited { .. } => letting_in::heard(&mut state, with, said)?,
            Control::Moving(said) => moving::heard(&mut state, with, said)?,
            Control::LettingGo(said) => letting_go::heard(&mut state, with, said)?,
            // Who says so may have heard before this member that this one is the control now: then
            // it says it again; a user's server hears who is.
            said if said.is_for_control() && (may_change || self.users.contains_key(&with)) => {
                guiding::heard(&mut state, with, &said);
            }
            // By who is it no more, and has not heard so; or knows no more than this one.
            Control::Roster(_) if may_change => {}
            _ => return Err(Error::new(ErrorKind::Malformed, "what only the control says")),
        }
        let done = carrying::resume(&mut state);
        drop(state);
        self.warn_of(done);
        self.admit();
        Ok(())
    }

    /// Those with whom there is a session already are members only now.
    fn connect_all(&self, state: &mut State) {
        for with in self.sessions.keys() {
            let connected = carrying::hear(state, Input::Connected(*with));
            connected.unwrap_or_else(|error| state.warn(error.to_string()));
        }
    }

    /// Something has happened.
    fn hear(&mut self, input: Input) {
        let mut state = self.shared.lock_for_links();
        let heard = carrying::hear(&mut state, input);
        drop(state);
        self.warn_of(heard);
    }

    /// What others of this server have begun goes on.
    fn resume(&mut self) {
        let done = carrying::resume(&mut self.shared.lock_for_links());
        self.warn_of(done);
    }

    fn warn_of(&self, done: Result<()>) {
        if let Err(error) = done {
            self.shared.lock_for_links().warn(format!("between servers: {error}"));
        }
    }
}
