//! What is left on this machine of a pool's servers: which member each was, and whether one can go
//! on with it.
//!
//! Invariant: it is looked at and said, and nothing is changed. Not here: how a pool is entered
//! (`pool`).

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use terral_server::Member;
use terral_server::records::{self, Stage, Standing};

use super::Entrance;
use crate::instances;

/// In an instance: of which pool it is.
pub(super) const NOTE: &str = "pool";

/// What an instance is of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Noted {
    pub pool: String,
    pub control: String,
    pub generation: u64,
    pub token: u128,
    /// Which member, where that was known.
    pub member: Option<Member>,
}

fn noted(instance: &Path) -> Option<Noted> {
    let text = std::fs::read(instance.join(NOTE)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether a server may be started here without a word of a pool.
///
/// # Errors
/// If what is left here was a pool's.
fn is_none_of(instance: &Path) -> Result<()> {
    let Some(noted) = noted(instance).filter(|_| instance.join("log").exists()) else {
        return Ok(());
    };
    let (name, pool, control) = (instances::name_of(instance), noted.pool, noted.control);
    bail!(
        "{name}: is of the pool {pool}: `terral serve … --control {control} --pool {pool}` goes on \
         with it, `terral recover {name}` brings what it owes"
    )
}

/// Whether what is left in the instance that is wanted is of a partition that is over.
///
/// # Errors
/// If it is a pool's, and none is meant.
pub fn is_stale(entrance: Option<&Entrance>, wanted: &Path) -> Result<bool> {
    match entrance {
        Some(entrance) => Ok(!entrance.goes_on()?),
        None => is_none_of(wanted).map(|()| false),
    }
}

impl Entrance {
    /// Whether no other server of the pool is on this machine, by whatever name.
    ///
    /// # Errors
    /// If one is; says which.
    pub fn is_alone_here(&self) -> Result<()> {
        self.is_by_one_name()?;
        if terral_server::is_served(&self.instance) {
            let name = instances::name_of(&self.instance);
            let pool = noted(&self.instance).map(|noted| format!(" of the pool {}", noted.pool));
            let pool = pool.unwrap_or_default();
            bail!("this machine has a server{pool} already: {name} (`terral status`)");
        }
        Ok(())
    }

    /// The same, but for what is served by the name that is meant.
    ///
    /// # Errors
    /// As those of [`Entrance::is_alone_here`].
    pub fn is_by_one_name(&self) -> Result<()> {
        for path in instances::directories() {
            let is_of = noted(&path).is_some_and(|noted| noted.pool == self.name);
            if is_of && path != self.instance && path.join("log").exists() {
                let (name, pool) = (instances::name_of(&path), &self.name);
                bail!("this machine has a server of the pool {pool} already: {name}");
            }
        }
        Ok(())
    }

    /// Whether what is left here is of the partition that the pool has now.
    ///
    /// # Errors
    /// If what the registry has makes no sense.
    pub fn goes_on(&self) -> Result<bool> {
        let is_there = self.view.entry(&self.keys.control()).is_some();
        let Some(noted) = noted(&self.instance).filter(|_| is_there || !self.anew) else {
            return Ok(false);
        };
        let generation = self.generation()?;
        if self.was_removed(&noted)? {
            return Ok(false);
        }
        let is = generation.is_some_and(|(now, _)| {
            (noted.generation, noted.token) == (now.number, now.token)
                && matches!(now.stage, Stage::Begun(_))
        });
        Ok(is && noted.pool == self.name)
    }

    /// Why what is left here, if it is `left`, is nothing to go on with as the member that it was:
    /// the pool has begun anew since. Where etcd has an older state than that, nothing is said.
    ///
    /// # Errors
    /// If what the registry has makes no sense.
    pub fn is_over_for(&self, left: bool) -> Result<Option<String>> {
        let Some(noted) = noted(&self.instance).filter(|_| left) else { return Ok(None) };
        let Some((now, _)) = self.generation()? else { return Ok(None) };
        if now.token == noted.token || now.number < noted.generation {
            return Ok(None);
        }
        let (pool, by, name) = (&self.name, &now.by.host, instances::name_of(&self.instance));
        Ok(Some(format!(
            "the pool {pool} has begun anew (on {by}): what this server owes is kept: `terral \
             recover {name}` brings it"
        )))
    }

    /// Whether the control has removed the member that was here.
    fn was_removed(&self, noted: &Noted) -> Result<bool> {
        let roster = records::roster(&self.kept());
        let roster = roster.with_context(|| format!("who is in the pool {}", self.name))?;
        let seat = noted.member.and_then(|member| roster.seat(member));
        Ok(seat.is_some_and(|seat| matches!(seat.standing, Standing::Removed { .. })))
    }
}
