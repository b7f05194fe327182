//! How the control of a pool becomes another server: one takes over from it, or it hands over.
//! Whoever does so writes it into the registry, and all become what that says, as often as they are
//! killed in between.
//!
//! Invariant: only one takes over, and none while the control's key is there. Not here: who asks
//! for it (`sharing/succeeding`).

use terral_format::disk::partition::Verdict;
use terral_format::ids::Member;
use terral_format::wire::pool::{self, Generation, Replaced, Server, Stage};
use terral_format::wire::roster::{Roster, Seat, Standing};
use terral_format::{Error, ErrorKind, Result};
use terral_registry::registry::{Change, Entry, Guard, Revision};

use super::{Heard, Here, Keeper, TERM};
use crate::members::roles;
use crate::shared::Shared;
use crate::sharing::{carrying, succeeding};
use crate::shell::listed;

/// What becomes of a server that is none of the partition any more.
const ENDED: &str = "it has ended, and what it owes is kept: `terral serve` with --control and \
                     --pool brings it, and comes in again";

impl Keeper {
    /// Writes down that this server is the control now, instead of that one.
    pub(super) fn takes_over(
        &mut self,
        here: &Here,
        (control, verdict): (Member, Verdict),
    ) -> Result<()> {
        let keys = self.pool.keys.clone();
        let view = self.pool.registry.below(keys.all())?;
        let (key, name) = (keys.generation(), &self.pool.name);
        let entry = view.entry(&key);
        let now: Option<Generation> =
            entry.map(|entry| pool::read(&entry.key, &entry.value)).transpose()?;
        let (Some(entry), Some(now)) = (entry, now) else {
            let context = format!("pool {name}: its keys are gone: nothing was changed");
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        if now.control == here.me {
            // It did so before, and was not answered.
            return Ok(());
        }
        let own = (self.pool.generation.number, self.pool.generation.token);
        let host = &now.by.host;
        let refuse = |why: String| Err(Error::new(ErrorKind::Busy, format!("pool {name}: {why}")));
        if here.is_leaving {
            return refuse("this server is about to leave it".into());
        }
        if (now.number, now.token) != own || now.stage != Stage::Begun(here.partition) {
            return refuse(format!("has begun anew, on {host}"));
        }
        if now.control != control {
            return refuse(format!("{host}, {}, has taken over already", now.control));
        }
        if view.entry(&keys.control()).is_some() {
            let secs = TERM.as_secs();
            return refuse(format!(
                "its control, on {host}, has said within the last {secs} s that it is there: if \
                 it is not, again in {secs} s"
            ));
        }
        let is_in = |seat: &Seat| matches!(seat.standing, Standing::In(_));
        let written = pool::rule(&keys.parts(view.pairs()))?;
        if !written.roster.seat(here.me).is_some_and(is_in) {
            return refuse(format!("{} is none of it any more", here.me));
        }
        let roster = Roster { authorities: written.authorities, ..written.roster };
        let is_there = |it| view.entry(&keys.server(now.number, it)).is_some();
        roles::may_be_control(&roster, (here.me, control), is_there)?;
        let mut replaced = now.replaced.clone();
        replaced.push(Replaced { member: control, verdict: Some(verdict) });
        let by = self.pool.machine.clone();
        let next = Generation { by, control: here.me, replaced, ..now };
        let guards = [Guard::Unchanged(key.clone(), entry.changed), Guard::Absent(keys.control())];
        let lease = self.pool.registry.grant(TERM)?;
        let value = next.by.host.clone().into_bytes();
        let changes = [
            Change::put(key, pool::write(&next)?),
            Change::Put { key: keys.control(), value, lease: Some(lease) },
        ];
        let done = match self.pool.registry.commit(&guards, &changes) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => self.raced(),
            // It may have been done.
            Err(error) if error.may_retry() => return Err(error),
            Err(error) => error,
        };
        let _ = self.pool.registry.end(lease);
        Err(done)
    }

    /// The registry says that this server is the control: so it is.
    pub(super) fn succeeds(&mut self, shared: &Shared) -> Result<()> {
        let parts = self.kept()?;
        let written = pool::rule(&parts)?;
        let replaced = self.pool.generation.replaced.iter();
        let gone: Vec<_> = replaced.filter_map(|it| Some((it.member, it.verdict?))).collect();
        if self.pool.principals.is_none()
            && let Some(text) = parts.get(pool::PRINCIPALS)
        {
            // Who may log in here from now on.
            listed::keep(&self.pool.list, text)?;
            self.pool.principals = Some(self.pool.list.clone());
        }
        let mut state = shared.lock();
        let succeeded = succeeding::succeed(&mut state, written, &gone);
        let done = carrying::resume(&mut state);
        drop(state);
        shared.wake_links();
        self.leaves_sign(shared);
        succeeded.and(done)
    }

    /// The registry says that another server is the control: it is.
    pub(super) fn follows(&mut self, shared: &Shared) -> Result<()> {
        let written = pool::rule(&self.kept()?)?;
        let mut state = shared.lock();
        let followed = succeeding::follow(&mut state, written, self.pool.generation.control);
        let done = carrying::resume(&mut state);
        if followed.is_ok() {
            state.members.iter_mut().for_each(|members| members.hands_over(false));
        }
        drop(state);
        shared.wake_links();
        // Nothing depends on its word any more.
        (self.present, self.beat) = (Revision::default(), None);
        followed.and(done)
    }

    /// This server leaves as soon as nobody can hand over to it: its key is taken away, and then it
    /// looks once more.
    pub(super) fn withdraws(&mut self, here: &Here) -> Result<Heard> {
        if self.is_withdrawn {
            return Ok(Heard::Withdrawn);
        }
        // It may be the word of a process before this one, which was killed.
        let key = self.pool.keys.server(self.pool.generation.number, here.me);
        self.pool.registry.commit(&[], &[Change::Remove(key)])?;
        self.is_withdrawn = true;
        // What it kept is gone; it runs out by itself.
        self.lease.take().into_iter().for_each(|lease| drop(self.pool.registry.end(lease)));
        Ok(Heard::Withdraws)
    }

    /// Hands over to one of those who may have it, and say that they are there. Nothing is decided
    /// here meanwhile; so where nobody says so, or it cannot be, that is tried again a beat later.
    pub(super) fn hands_over(&mut self, shared: &Shared, here: &Here) -> Result<()> {
        let handing = |is: bool| {
            let mut state = shared.lock();
            let members = state.members.as_mut();
            members.is_some_and(|members| {
                members.hands_over(is);
                members.roster().version == here.version
            })
        };
        if !handing(true) {
            // There is something to be written down before.
            handing(false);
            return Ok(());
        }
        let mut asked = false;
        let handed = self.hand_over(here, &mut asked);
        if handed == Ok(false) || !asked {
            handing(false);
        }
        self.handed = (handed != Ok(true)).then_some(here.now);
        // Done, or perhaps done: the next look says so.
        self.beat = self.beat.filter(|_| !asked);
        handed.map(drop)
    }

    fn hand_over(&mut self, here: &Here, asked: &mut bool) -> Result<bool> {
        let (keys, known) = (self.pool.keys.clone(), &self.pool.generation);
        let view = self.pool.registry.below(&keys.servers())?;
        let there = here.successors.iter();
        let there = there.filter_map(|member| view.entry(&keys.server(known.number, *member)));
        let read = |entry: &Entry| {
            Ok((
                Guard::Unchanged(entry.key.clone(), entry.changed),
                pool::read(&entry.key, &entry.value)?,
            ))
        };
        let all = there.map(read).collect::<Result<Vec<(Guard, Server)>>>()?;
        let next = all.into_iter().find(|(_, server)| !server.leaves);
        let Some((is_there, server)) = next else { return Ok(false) };
        let Server { machine: by, member: control, .. } = server;
        let mut replaced = known.replaced.clone();
        replaced.push(Replaced { member: here.me, verdict: None });
        let next = Generation { by, control, replaced, ..known.clone() };
        let put = Change::put(keys.generation(), pool::write(&next)?);
        // That one writes the control's key, as soon as it has seen it.
        let changes = [put, Change::Remove(keys.control())];
        *asked = true;
        let [generation, own] = self.guards();
        let handed = self.pool.registry.commit(&[generation, own, is_there], &changes)?;
        self.written = None;
        Ok(handed.is_some())
    }

    /// The sign by which who comes in knows the permanent directory is there: a control before may
    /// have taken it along. If it cannot be, who comes says so.
    pub(super) fn leaves_sign(&self, shared: &Shared) {
        let state = shared.lock();
        let number = state.members.as_ref().map(|members| members.partition().id);
        let backing = state.backing.clone();
        drop(state);
        if let Some((backing, number)) = backing.zip(number) {
            let _ = backing.leave_sign(number);
        }
    }

    /// Why this server, which was the control, ends.
    pub(super) fn was_replaced(&self, now: &Generation) -> String {
        let (name, host) = (&self.pool.name, &now.by.host);
        format!("{host} has taken over as the control of the pool {name}: {ENDED}")
    }

    /// Why a server ends that was removed.
    pub(super) fn was_removed(&self) -> String {
        format!(
            "this server was removed from the pool {} (`terral fence`): {ENDED}",
            self.pool.name
        )
    }
}
