//! What `terral serve` does until a server of a pool serves, as `cli/pool` has it: it goes on as
//! the member that it was, claims the pool, or asks to be let in. Not here: that it waits, and what
//! it says to a person.

use std::sync::Arc;

use terral_format::Result;
use terral_format::ids::Member;
use terral_format::wire::placement::Role;
use terral_format::wire::pool::{
    self, Generation, Invited, Keys, Stage, Wanted, inherited, read, write,
};
use terral_format::wire::roster::{Secret, Standing};
use terral_network::tcp::public_half;
use terral_registry::registry::{Change, Guard, Registry, Revision, View};
use terral_store::backing::scripted::Scripted;

use super::super::keeping::Trying;
use super::super::succeeding::of;
use super::{Machine, Step, address, arm, found};
use crate::members::control;
use crate::shared::Shared;
use crate::sharing::carrying;
use crate::shell::keeping::{Keeper, TERM};
use crate::shell::options::{EVERYWHERE, Options, Part, Pool};
use crate::shell::part;
use crate::sim::Sim;

/// A server's way into the pool.
pub(super) struct Way<'m> {
    pub(super) registry: Arc<Trying>,
    pub(super) keys: Keys,
    pub(super) dir: Scripted,
    pub(super) at: usize,
    pub(super) drawn: u64,
    pub(super) wrong: Option<(usize, Step)>,
    pub(super) machine: &'m mut Machine,
    pub(super) is_killed: bool,
}

impl Way<'_> {
    pub(super) fn enter(&mut self) -> Result<()> {
        let view = self.registry.below(self.keys.all())?;
        let before = found(&self.keys, &view);
        if let Some((generation, revision)) = &before
            && self.goes_on(&view, generation)?
        {
            return self.serves(None, (generation.clone(), *revision));
        }
        // What is left of an older partition was brought.
        (self.machine.sim, self.machine.noted) = (None, None);
        if view.entry(&self.keys.control()).is_some() {
            return self.comes_in(&view);
        }
        if let Some((.., lease)) = self.machine.asks.take() {
            let _ = self.registry.end(lease);
        }
        let alive = view.entries.iter().any(|it| it.key.starts_with(&self.keys.servers()));
        let is_over = before.as_ref().is_none_or(|(before, _)| {
            let never = matches!(before.stage, Stage::Ended | Stage::Claimed);
            never || self.machine.anew || before.by.host == of(self.at).host
        });
        if alive || !is_over || self.machine.role == Some(Role::Compute) {
            return Ok(());
        }
        self.claims(&view, before)
    }

    fn goes_on(&self, view: &View, now: &Generation) -> Result<bool> {
        let Some((number, token, me)) = self.machine.noted else { return Ok(false) };
        let roster = pool::roster(&self.keys.parts(view.pairs()))?;
        let seat = me.and_then(|me| roster.seat(me));
        let was_removed =
            seat.is_some_and(|seat| matches!(seat.standing, Standing::Removed { .. }));
        let is_begun = matches!(now.stage, Stage::Begun(_));
        let is = (number, token) == (now.number, now.token) && is_begun && !was_removed;
        Ok(is && self.machine.sim.is_some())
    }

    fn claims(&mut self, view: &View, before: Option<(Generation, Revision)>) -> Result<()> {
        let key = self.keys.generation();
        let number = before.as_ref().map_or(1, |(before, _)| before.number + 1);
        let guard = match before {
            None => Guard::Absent(key.clone()),
            Some((_, revision)) => Guard::Unchanged(key.clone(), revision),
        };
        let left = inherited(&self.keys.parts(view.pairs()))?;
        let generation = Generation {
            number,
            by: of(self.at),
            token: self.drawn.into(),
            stage: Stage::Claimed,
            control: Member::LEAST,
            replaced: Vec::new(),
        };
        let lease = Some(self.registry.grant(TERM)?);
        let value = of(self.at).host.into_bytes();
        let changes = [
            Change::put(key, write(&generation)?),
            Change::Put { key: self.keys.control(), value, lease },
        ];
        let guards = [guard, Guard::Absent(self.keys.control())];
        let Some(revision) = self.registry.commit(&guards, &changes)? else { return Ok(()) };
        let authority = self.machine.role == Some(Role::Authority);
        let inherited = Box::new(left);
        let part = Part::Control { encrypted: false, authority, inherited };
        self.machine.noted = Some((number, generation.token, Some(Member::LEAST)));
        self.serves(Some(part), (generation, revision))
    }

    fn comes_in(&mut self, view: &View) -> Result<()> {
        if self.machine.asks.is_none() {
            let secret = Secret([self.drawn as u8; 32]);
            let asked =
                Wanted { machine: of(self.at), key: public_half(&secret), role: self.machine.role };
            // Later than all that a test has put there.
            let end = format!("f{:031x}", self.drawn);
            let wanted = match self.machine.role {
                Some(Role::Authority) => self.keys.wanted_by_authority(),
                _ => self.keys.wanted(),
            };
            let lease = self.registry.grant(TERM)?;
            let (key, value) = (wanted + &end, write(&asked)?);
            self.registry.commit(&[], &[Change::Put { key, value, lease: Some(lease) }])?;
            self.machine.asks = Some((end, secret, lease));
            return Ok(());
        }
        let Some((end, secret, lease)) = self.machine.asks.clone() else { return Ok(()) };
        if !self.registry.keep(lease)? {
            self.machine.asks = None;
            return Ok(());
        }
        let Some(entry) = view.entry(&(self.keys.invited() + &end)) else { return Ok(()) };
        self.machine.asks = None;
        let _ = self.registry.commit(&[], &[Change::Remove(entry.key.clone())]);
        let _ = self.registry.end(lease);
        let mut invitation = match read::<Invited>(&entry.key, &entry.value)? {
            Ok(invitation) => invitation,
            Err(why) => {
                (self.machine.why, self.machine.is_on) = (Some(why), false);
                return Ok(());
            }
        };
        invitation.partition.secret = secret;
        let Some(now) = found(&self.keys, view) else { return Ok(()) };
        let is = now.0.stage == Stage::Begun(invitation.partition.id);
        if !is || now.0.control != invitation.control.member {
            return Ok(());
        }
        self.machine.noted = Some((now.0.number, now.0.token, Some(invitation.me)));
        self.serves(Some(Part::Invited(Box::new(invitation))), now)
    }

    /// A server of this instance begins.
    fn serves(
        &mut self,
        partition: Option<Part>,
        (generation, revision): (Generation, Revision),
    ) -> Result<()> {
        let pool = Pool {
            name: "p".into(),
            keys: self.keys.clone(),
            registry: self.registry.clone(),
            generation,
            revision,
            machine: of(self.at),
            instance: "default".into(),
            principals: None,
            list: "/nowhere".into(),
            machines: "/nowhere/machines".into(),
        };
        let options = Options { partition, pool: Some(pool.clone()), ..of_none() };
        if self.machine.sim.is_none() {
            let sim = Sim::sharing(self.drawn * 1000 + self.at as u64, &self.dir);
            arm(&sim, self.wrong, self.at);
            self.machine.sim = Some(sim);
        }
        let Some(sim) = &mut self.machine.sim else { return Ok(()) };
        let mut is_new = false;
        let taken = sim.with(|server: &Shared| {
            let mut state = server.lock();
            part::take(&mut state, &options).inspect_err(|_| is_new = part::is_new(&state))?;
            // Where it is it says itself, if it is the control.
            let me = state.members.as_ref().map(|members| members.me());
            let _ = me.map(|me| control::is_at(&mut state, me, address(me)));
            carrying::resume(&mut state)
        });
        match taken {
            Some(Ok(())) => self.machine.keeper = Some(Keeper::new(pool)),
            Some(Err(error)) => {
                self.machine.why = Some(error.to_string());
                if is_new {
                    (self.machine.sim, self.machine.noted) = (None, None);
                }
            }
            None => self.is_killed = true,
        }
        Ok(())
    }
}

/// How a server is started that is of no partition.
fn of_none() -> Options {
    Options {
        instance: "/nowhere".into(),
        backing: None,
        memory_bytes: 0,
        spill: None,
        ready_bytes: None,
        partition: None,
        pool: None,
        listen: EVERYWHERE,
        principals: None,
        launcher: None,
        among_users: false,
    }
}

/// How one is that asks no registry, and becomes this.
pub(super) fn of_no_pool(partition: Part) -> Options {
    Options { partition: Some(partition), ..of_none() }
}
