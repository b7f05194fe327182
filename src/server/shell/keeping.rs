//! The thread of a member of a pool that has the pool's registry: it says there that this server
//! is, and, where that is the control, writes down what was decided, and lets in who asks for it.
//!
//! Invariants: nobody waits for the registry with the lock held. What the control writes depends on
//! the generation being the one that it began, and on its own key, which goes with its lease: who
//! has lost one of them writes nothing. Where the pool has begun anew, or another has taken over
//! from this control, this server ends at once, and what it owes stays in memory. Who is the
//! control is what the registry says: any other server goes by that as soon as it sees it, and who
//! handed over, too. Not here: who waits (`sharing/keeping`, `sharing/succeeding`), how the control
//! becomes another (`succession`), and how a server finds its way into a pool (`cli`).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::ids::Member;
use terral_format::wire::pool::{self, Generation, Invited, Lost, Server, Stage};
use terral_format::wire::roster::{Rule, Seat, Standing};
use terral_format::{Error, ErrorKind, Result};
use terral_registry::registry::{Change, Guard, Lease, Revision, VALUE_MAX};

use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::core::world::Tick;
use crate::members::control;
use crate::shared::Shared;
use crate::sharing::{departing, ruling};
use crate::shell::listed;
use crate::shell::options::Pool;
use machines::Machines;
#[cfg(test)]
pub use machines::written;

mod letting_in;
mod machines;
mod succession;

/// Who has not been heard of for so long is not there.
pub const TERM: Duration = Duration::from_secs(10);
/// It looks for who wants to come in, and for what is to be written down, so often.
const TURN: Duration = Duration::from_millis(250);
/// It says that it is there, and looks whether the pool has begun anew, so often.
const BEAT: Duration = Duration::from_secs(3);

/// How this server is, as far as the registry is to know.
struct Here {
    now: Tick,
    me: Member,
    control: Member,
    is_control: bool,
    /// Whether it was removed.
    is_out: bool,
    partition: u128,
    version: u64,
    /// What was decided, if the registry lacks it.
    rule: Option<Rule>,
    /// From which control it is to take over, and why that is removed then.
    succeeds: Option<(Member, Verdict)>,
    /// Whether it is about to leave, and only that is left to be done.
    departs: bool,
    is_leaving: bool,
    /// Whether it has left.
    has_left: bool,
    /// To whom it may hand over, if it is the control.
    successors: Vec<Member>,
    /// Who was to have the root, and has not come.
    missed: Option<Member>,
    /// Where that is looked at: members that are in, but for users'; and those, with whose they
    /// are, and who answers.
    are_in: Vec<Member>,
    users: Vec<(Member, u32, Member)>,
}

/// What has come of a turn.
enum Turned {
    /// The registry has this version of what was decided.
    Kept(u64),
    /// Nothing is to be said.
    Done,
    /// This server's partition is over.
    Over(String),
}

/// What it has heard of the pool as it said that it is there.
enum Heard {
    GoesOn,
    /// This server is the control from now on.
    Succeeds,
    /// Another one is.
    Follows,
    /// This server is about to leave, and nobody is told any more that it is there: it looks again.
    Withdraws,
    /// It did so, and nobody had handed over to it before.
    Withdrawn,
    /// This server has left, and so have all others, the control, too.
    LetGo,
    /// The control is lost, says somebody who waits for another one.
    Lost(Lost),
    /// This server's partition is over.
    Over(String),
}

/// See the module.
pub struct Keeper {
    pool: Pool,
    lease: Option<Lease>,
    /// Whether the registry says that it is about to leave.
    leaves: bool,
    /// Whether its key was taken away, as it leaves.
    is_withdrawn: bool,
    beat: Option<Tick>,
    /// When it was last to hand over, and did not.
    handed: Option<Tick>,
    /// When the control's key was written.
    present: Revision,
    /// What the registry has, by the names of parts; `None`: to be looked at.
    written: Option<BTreeMap<String, Vec<u8>>>,
    /// Who was let in, and from which version of the roster on; by who asked.
    invited: BTreeMap<String, (Invited, u64)>,
    machines: Machines,
}

impl Keeper {
    /// For a server of this pool, which has become a member.
    pub fn new(pool: Pool) -> Self {
        let present = Revision::default();
        let (lease, beat, handed, written) = (None, None, None, None);
        let (leaves, is_withdrawn, invited) = (false, false, BTreeMap::new());
        let machines = Machines::of(pool.machines.clone());
        Keeper {
            pool,
            lease,
            leaves,
            is_withdrawn,
            beat,
            handed,
            present,
            written,
            invited,
            machines,
        }
    }

    /// Goes on until the server leaves.
    pub fn run(mut self, shared: &Shared) -> Self {
        while self.turns(shared) {
            let state = shared.lock();
            let next = Next::Idle(Some(state.world.now() + TURN));
            // What was decided meanwhile has woken nobody.
            let needed = state.members.as_ref().is_some_and(|members| members.needs_keeper());
            if !state.leaving && !needed {
                drop(shared.sleep(Trade::Keeping, state, next));
            }
        }
        self
    }

    /// Does what there is to do. Whether there may be more.
    pub fn turns(&mut self, shared: &Shared) -> bool {
        let mut state = shared.lock();
        let due = self.is_due(state.world.now());
        let Some(mut here) = here(&state, due).filter(|_| !state.leaving) else {
            return false;
        };
        here.missed = if due { control::is_missed(&mut state) } else { None };
        drop(state);
        let turned = self.turn(shared, &here);
        state = shared.lock();
        let now = state.world.now();
        let answered = turned.as_ref().map(|_| ()).map_err(|error| error.context.clone());
        for members in state.members.iter_mut() {
            members.registry_is(answered.clone(), now);
            if let Ok(Turned::Kept(version)) = turned {
                members.was_kept(version);
            }
        }
        if let Ok(Turned::Over(why)) = turned {
            (state.refused, state.leaving) = (Some(why), true);
        }
        let goes_on = !state.leaving;
        drop(state);
        shared.nudge();
        goes_on
    }

    /// Whether it is to say again that it is there.
    fn is_due(&self, now: Tick) -> bool {
        self.beat.is_none_or(|beat| now.since(beat) > BEAT)
    }

    /// The server has ended: in order, if nothing is left of it.
    pub fn close(self, is_over: bool) {
        let keys = &self.pool.keys;
        if is_over && self.present > Revision::default() {
            let generation = Generation { stage: Stage::Ended, ..self.pool.generation.clone() };
            let guard = Guard::Unchanged(keys.generation(), self.pool.revision);
            if let Ok(ended) = pool::write(&generation) {
                // If it does not come there, somebody on this machine, or a person, begins anew.
                let ended = Change::put(keys.generation(), ended);
                let _ = self.pool.registry.commit(&[guard], &[ended]);
            }
        }
        self.lease.into_iter().for_each(|lease| drop(self.pool.registry.end(lease)));
    }

    fn turn(&mut self, shared: &Shared, here: &Here) -> Result<Turned> {
        if here.is_out {
            return Ok(Turned::Over(self.was_removed()));
        }
        if let Some(of) = here.succeeds {
            let done = self.takes_over(here, of);
            self.beat = None;
            if done.is_err() || here.is_control {
                shared.lock().members.iter_mut().for_each(|it| it.has_succeeded(done.clone()));
                // Where the registry does not answer that is to be known.
                return done.map_or_else(
                    |error| if is_away(&error) { Err(error) } else { Ok(Turned::Done) },
                    |()| Ok(Turned::Done),
                );
            }
        }
        if self.is_due(here.now)
            && let Some(turned) = self.beat(shared, here)?
        {
            return Ok(turned);
        }
        if !here.is_control {
            return Ok(Turned::Done);
        }
        if let Some(rule) = &here.rule
            && !self.write_down(rule)?
        {
            // Its lease is over, or it is the control no more: the next turn finds out.
            (self.lease, self.beat) = (None, None);
            return Ok(Turned::Done);
        }
        if let Some(missed) = here.missed {
            self.is_missed(shared, missed)?;
        }
        self.let_in(shared, here.version)?;
        if !here.successors.is_empty() && self.handed.is_none_or(|at| here.now.since(at) > BEAT) {
            self.hands_over(shared, here)?;
        }
        Ok(Turned::Kept(here.version))
    }

    /// Says that it is there, and becomes what it finds that it is; `None`: what it was.
    fn beat(&mut self, shared: &Shared, here: &Here) -> Result<Option<Turned>> {
        match self.beats(here)? {
            Heard::GoesOn => {
                self.beat = Some(here.now);
                for members in shared.lock().members.iter_mut() {
                    members.withdraws(false);
                    // It is the control, or is not, whatever was not answered.
                    members.hands_over(false);
                }
                self.knows_machines(here);
                return Ok(None);
            }
            // Its key as the control is written in the next turn, and what it decides after.
            Heard::Succeeds => {
                let done = self.succeeds(shared);
                for members in shared.lock().members.iter_mut() {
                    members.has_succeeded(done.clone());
                }
                done?;
                (self.lease, self.written, self.beat) = (None, None, None);
            }
            Heard::Follows => self.follows(shared)?,
            Heard::Withdraws => self.beat = None,
            Heard::Withdrawn => {
                self.beat = Some(here.now);
                shared.lock().members.iter_mut().for_each(|members| members.withdraws(true));
            }
            Heard::LetGo => {
                self.beat = Some(here.now);
                shared.lock().members.iter_mut().for_each(|members| members.is_let_go());
            }
            Heard::Lost(lost) => match self.takes_over(here, (lost.member, lost.verdict)) {
                Err(error) if is_away(&error) => return Err(error),
                // It is there still, another one was faster, or is to be it: that is seen the next
                // time.
                Err(error) => {
                    self.beat = Some(here.now);
                    if error.kind == ErrorKind::Denied {
                        let what = format!("this server cannot take over: {error}");
                        shared.lock().warn(what);
                    }
                }
                Ok(()) => {}
            },
            Heard::Over(why) => return Ok(Some(Turned::Over(why))),
        }
        Ok(Some(Turned::Done))
    }

    /// Says that it is there, and looks whether the pool goes on.
    fn beats(&mut self, here: &Here) -> Result<Heard> {
        let keys = self.pool.keys.clone();
        let view = self.pool.registry.below(&keys.generation())?;
        let found = view.entry(&keys.generation());
        let now: Option<Generation> =
            found.map(|entry| pool::read(&entry.key, &entry.value)).transpose()?;
        let lost = view.entry(&keys.lost());
        // It is gone with who wrote it, be it that it makes no sense.
        let lost: Option<Lost> = lost.and_then(|it| pool::read(&it.key, &it.value).ok());
        let over = |by: &str| {
            let (name, number) = (&self.pool.name, self.pool.generation.number);
            format!(
                "the pool {name} has begun anew (on {by}): this server was of its partition \
                 {number}, and has ended; what it owes is kept: `terral serve` with --control and \
                 --pool brings it, and comes in again"
            )
        };
        let known = &self.pool.generation;
        let Some(now) = now else {
            self.is_forgotten(here)?;
            return Ok(Heard::GoesOn);
        };
        if now.is_before(known) {
            let changed = found.map(|entry| entry.changed).unwrap_or_default();
            return Err(self.is_older(here, &now, changed));
        }
        if (now.number, now.token) != (known.number, known.token) {
            return Ok(Heard::Over(over(&now.by.host)));
        }
        if let Stage::Begun(partition) = now.stage
            && partition != here.partition
        {
            return Ok(Heard::Over(over(&now.by.host)));
        }
        if now.stage == Stage::Ended && here.has_left {
            // Nobody is left who says that this is known.
            return Ok(Heard::LetGo);
        }
        let as_it_was = now.replaced.iter().rfind(|it| it.member == here.me);
        let handed_over = as_it_was.is_some_and(|it| it.verdict.is_none());
        if here.is_control && now.control != here.me && !handed_over {
            return Ok(Heard::Over(self.was_replaced(&now)));
        }
        // Only what it knows it may write: who was replaced knows the one before.
        if let Some(entry) = found {
            self.pool.revision = entry.changed;
        }
        self.pool.generation = now;
        // Whatever it becomes, it is there.
        let kept = self.lease.map(|lease| self.pool.registry.keep(lease)).transpose()?;
        let now = &self.pool.generation;
        if now.control != here.control {
            return Ok(if now.control == here.me { Heard::Succeeds } else { Heard::Follows });
        }
        if here.is_leaving && !here.is_control {
            return self.withdraws(here);
        }
        if here.is_control && self.pool.generation.stage == Stage::Claimed {
            self.begins(here.partition)?;
        }
        if kept != Some(true) || self.leaves != here.departs {
            self.is_present(here)?;
        }
        let now = (self.pool.generation.token, here.control);
        let lost = lost.filter(|lost| (lost.token, lost.member) == now && !here.is_control);
        Ok(lost.map_or(Heard::GoesOn, Heard::Lost))
    }

    /// The registry has come back from a copy of its keys: the control that it lacks writes them
    /// anew.
    fn is_older(&mut self, here: &Here, now: &Generation, changed: Revision) -> Error {
        let known = &self.pool.generation;
        let key = self.pool.keys.generation();
        let is_ours = (now.number, now.token) == (known.number, known.token);
        if here.is_control && is_ours && known.replaced.starts_with(&now.replaced) {
            (self.written, self.lease) = (None, None);
            let change = pool::write(known).map(|known| Change::put(key.clone(), known));
            let guard = Guard::Unchanged(key, changed);
            let done = change.and_then(|it| self.pool.registry.commit(&[guard], &[it]));
            if let Err(error) = done {
                return error;
            }
        }
        let context = format!("pool {}: its keys are older than it is", self.pool.name);
        Error::new(ErrorKind::Invalid, context)
    }

    /// The registry has lost its keys: the control writes them anew.
    fn is_forgotten(&mut self, here: &Here) -> Result<()> {
        let key = self.pool.keys.generation();
        (self.written, self.lease) = (None, None);
        if here.is_control {
            let change = Change::put(key.clone(), pool::write(&self.pool.generation)?);
            self.pool.registry.commit(&[Guard::Absent(key)], &[change])?;
        }
        let context = format!("pool {}: its keys are gone", self.pool.name);
        Err(Error::new(ErrorKind::NotFound, context))
    }

    /// The partition has begun.
    fn begins(&mut self, partition: u128) -> Result<()> {
        let generation =
            Generation { stage: Stage::Begun(partition), ..self.pool.generation.clone() };
        let key = self.pool.keys.generation();
        let guard = Guard::Unchanged(key.clone(), self.pool.revision);
        let change = Change::put(key, pool::write(&generation)?);
        match self.pool.registry.commit(&[guard], &[change])? {
            Some(revision) => {
                (self.pool.generation, self.pool.revision) = (generation, revision);
                Ok(())
            }
            None => Err(self.raced()),
        }
    }

    /// Somebody else was faster; the next turn sees who.
    fn raced(&self) -> Error {
        let context = format!("pool {}: changed by somebody else", self.pool.name);
        Error::new(ErrorKind::Busy, context)
    }

    /// This server is there, under a lease that is new.
    fn is_present(&mut self, here: &Here) -> Result<()> {
        (self.lease, self.is_withdrawn) = (None, false);
        let lease = self.pool.registry.grant(TERM)?;
        let (keys, machine) = (&self.pool.keys, self.pool.machine.clone());
        let generation = self.pool.generation.number;
        let instance = self.pool.instance.clone();
        let host = machine.host.clone();
        let leaves = here.departs;
        let server = Server { machine, instance, generation, member: here.me, leaves };
        let (key, value) = (keys.server(generation, here.me), pool::write(&server)?);
        let mut changes = vec![Change::Put { key, value, lease: Some(lease) }];
        let mut guards = Vec::new();
        if here.is_control {
            guards.push(Guard::Unchanged(keys.generation(), self.pool.revision));
            let (key, value) = (keys.control(), host.into_bytes());
            changes.push(Change::Put { key, value, lease: Some(lease) });
        }
        let Some(revision) = self.pool.registry.commit(&guards, &changes)? else {
            return Err(self.raced());
        };
        (self.lease, self.leaves) = (Some(lease), leaves);
        if here.is_control {
            self.present = revision;
        }
        Ok(())
    }

    /// What the registry has of what was decided, by the names of parts.
    fn kept(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let keys = &self.pool.keys;
        Ok(keys.parts(self.pool.registry.below(&keys.kept())?.pairs()))
    }

    /// On what all depends that the control writes.
    fn guards(&self) -> [Guard; 2] {
        let keys = &self.pool.keys;
        [
            Guard::Unchanged(keys.generation(), self.pool.revision),
            Guard::Unchanged(keys.control(), self.present),
        ]
    }

    /// Writes down what was decided, as far as the registry lacks it. Whether it may.
    fn write_down(&mut self, rule: &Rule) -> Result<bool> {
        let kept = self.pool.keys.kept();
        let before = match self.written.take() {
            Some(written) => written,
            None => self.kept()?,
        };
        let mut now: BTreeMap<String, Vec<u8>> =
            pool::parts(rule)?.into_iter().map(|(name, part)| (name.to_owned(), part)).collect();
        let list = self.pool.principals.as_deref().map(Path::new);
        // What cannot be read now may be again: who logs in meanwhile is told.
        if let Some(text) = list.and_then(|list| listed::text(list).ok()) {
            now.insert(pool::PRINCIPALS.to_owned(), text.into_bytes());
        }
        let new = now.iter().filter(|(name, part)| before.get(*name) != Some(*part));
        let mut new: Vec<(&String, &Vec<u8>)> = new.collect();
        new.sort_by_key(|(name, _)| *name == pool::MEMBERS);
        // All at once, where that is not too much for one transaction.
        let whole = new.iter().map(|(_, part)| part.len()).sum::<usize>() <= VALUE_MAX;
        for some in new.chunks(if whole { new.len().max(1) } else { 1 }) {
            let put = |(name, part): &(&String, &Vec<u8>)| {
                Change::put(format!("{kept}{name}"), part.as_slice())
            };
            let changes: Vec<Change> = some.iter().map(put).collect();
            if self.pool.registry.commit(&self.guards(), &changes)?.is_none() {
                return Ok(false);
            }
        }
        self.written = Some(now);
        Ok(true)
    }
}

/// Whether the registry does not answer.
fn is_away(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Unanswered)
}

/// How it is now; `None`: it is alone. What was decided is `looked` at as a whole now and then, as
/// the list of principals is a file.
fn here(state: &State, looked: bool) -> Option<Here> {
    let members = state.members.as_ref()?;
    let (now, me, version) = (state.world.now(), members.me(), members.roster().version);
    let is_control = members.control() == me;
    let needed = is_control && (looked || !members.is_kept(version));
    let rule = if needed { ruling::said(state) } else { None };
    let (partition, succeeds) = (members.partition().id, members.is_to_succeed());
    let (control, is_out) = (members.control(), members.is_put_out() && !members.has_left(me));
    let has_left = departing::has_left(state);
    let departs = state.departs || has_left;
    let (is_leaving, must) = (departing::is_leaving(state), departing::must_hand_over(state));
    let seats = members.roster().seats.iter().filter(|_| looked);
    let is_in = |seat: &&Seat| matches!(seat.standing, Standing::In(_));
    let are_in: Vec<Member> = seats.filter(is_in).map(|seat| seat.member).collect();
    let (users, are_in): (Vec<Member>, Vec<Member>) =
        are_in.into_iter().partition(|member| members.roster().is_users(*member));
    let with_whom = |user: Member| {
        let roster = members.roster();
        Some((user, roster.user_of(user)?, roster.answers_for(user)?))
    };
    let users = users.into_iter().filter_map(with_whom).collect();
    let successors = if must { departing::successors(state) } else { Vec::new() };
    Some(Here {
        now,
        me,
        control,
        is_control,
        is_out,
        partition,
        version,
        rule,
        succeeds,
        departs,
        is_leaving,
        has_left,
        successors,
        missed: None,
        are_in,
        users,
    })
}
