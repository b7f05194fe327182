//! How a server of a pool takes over from its control: it writes into the registry that it is the
//! control, and is it from then on, as often as it is killed in between.
//!
//! Invariant: only one does, and none while the control's key is there. Not here: who asks for it
//! (`sharing/succeeding`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use terral_format::disk::partition::Verdict;
use terral_format::wire::pool::{self, Generation, Replaced, Stage};
use terral_format::wire::roster::{Seat, Standing};
use terral_format::{Error, ErrorKind, Result};
use terral_registry::registry::{Change, Guard};

use super::{Here, Keeper, TERM};
use crate::shared::Shared;
use crate::sharing::{carrying, succeeding};

/// What becomes of a server that is none of the partition any more.
const ENDED: &str = "it has ended, and what it owes is kept: `terral serve` with --control and \
                     --pool brings it, and comes in again";

impl Keeper {
    /// Writes down that this server is the control now.
    pub(super) fn takes_over(&mut self, here: &Here, verdict: Verdict) -> Result<()> {
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
        if (now.number, now.token) != own || now.stage != Stage::Begun(here.partition) {
            return refuse(format!("has begun anew, on {host}"));
        }
        if now.control != here.control {
            return refuse(format!("{host} has taken over already"));
        }
        if view.entry(&keys.control()).is_some() {
            let secs = TERM.as_secs();
            return refuse(format!(
                "its control, on {host}, has said within the last {secs} s that it is there: if \
                 it is not, again in {secs} s"
            ));
        }
        let prefix = keys.kept();
        let kept = view.entries.iter().filter_map(|entry| {
            Some((entry.key.strip_prefix(&prefix)?.to_owned(), entry.value.clone()))
        });
        let is_in = |seat: &Seat| matches!(seat.standing, Standing::In(_));
        if !pool::roster(&kept.collect())?.seat(here.me).is_some_and(is_in) {
            return refuse(format!("{} is none of it any more", here.me));
        }
        let replaced = Some(Replaced { member: now.control, verdict });
        let by = self.pool.machine.clone();
        let next = Generation { by, control: here.me, replaced, ..now };
        let guards = [Guard::Unchanged(key.clone(), entry.changed), Guard::Absent(keys.control())];
        let lease = Some(self.pool.registry.grant(TERM)?);
        let value = next.by.host.clone().into_bytes();
        let changes = [
            Change::put(key, pool::write(&next)?),
            Change::Put { key: keys.control(), value, lease },
        ];
        match self.pool.registry.commit(&guards, &changes)? {
            Some(_) => Ok(()),
            None => Err(self.raced()),
        }
    }

    /// The registry says that this server is the control: so it is.
    pub(super) fn succeeds(&mut self, shared: &Shared) -> Result<()> {
        let prefix = self.pool.keys.kept();
        let entries = self.pool.registry.below(&prefix)?.entries.into_iter();
        let parts = entries.map(|entry| (entry.key[prefix.len()..].to_owned(), entry.value));
        let parts: BTreeMap<String, Vec<u8>> = parts.collect();
        let written = pool::rule(&parts)?;
        let replaced = self.pool.generation.replaced;
        let verdict = replaced.map_or(Verdict::Fenced, |replaced| replaced.verdict);
        if self.pool.principals.is_none()
            && let Some(text) = parts.get(pool::PRINCIPALS)
        {
            self.keep_list(text)?;
        }
        let mut state = shared.lock();
        let succeeded = succeeding::succeed(&mut state, written, verdict);
        let done = carrying::resume(&mut state);
        drop(state);
        shared.wake_links();
        self.leaves_sign(shared);
        succeeded.and(done)
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

    /// Who may log in here from now on.
    fn keep_list(&mut self, text: &[u8]) -> Result<()> {
        let path = &self.pool.list;
        let mut how = File::options();
        let file = how.write(true).create(true).truncate(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(text));
        written.map_err(|error| Error::system(&error, path.display().to_string()))?;
        self.pool.principals = Some(path.clone());
        Ok(())
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
