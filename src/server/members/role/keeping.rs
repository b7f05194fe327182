//! Of a member of a pool: which that is, how far what the control has decided is written down in
//! the pool's registry, and since when that does not answer.
//!
//! Invariant: what counts here as written down is. Not here: who writes it (`shell/keeping`), and
//! who waits for that (`sharing/keeping`).

use terral_format::wire::status::PoolStatus;

use super::Members;
use crate::core::world::Tick;

/// See the module.
pub(super) struct Keeping {
    pool: String,
    registry: String,
    generation: u64,
    /// This version of the roster is written down, with all that goes with it.
    kept: u64,
    /// Since when it does not answer, and why.
    away: Option<(Tick, String)>,
}

impl Members {
    /// It is one of a pool.
    pub fn is_of_pool(&mut self, (pool, registry): (String, String), generation: u64) {
        self.keeping = Some(Keeping { pool, registry, generation, kept: 0, away: None });
    }

    /// The registry has this version of what the control says.
    pub fn was_kept(&mut self, version: u64) {
        if let Some(keeping) = &mut self.keeping {
            let before = keeping.kept;
            keeping.kept = before.max(version);
            if version > before {
                // Who waits for that looks again.
                self.go_on();
            }
        }
    }

    /// Whether the registry has this version; so it is where there is none.
    pub fn is_kept(&self, version: u64) -> bool {
        self.keeping.as_ref().is_none_or(|keeping| keeping.kept >= version)
    }

    /// Whether something is to be written down there.
    pub fn has_unkept(&self) -> bool {
        self.me() == self.control() && !self.is_kept(self.roster.version)
    }

    /// Whether who writes it down is to be woken for it: where nobody answers, he looks by himself.
    pub fn needs_keeper(&self) -> bool {
        self.keeping.as_ref().is_some_and(|it| it.away.is_none()) && self.has_unkept()
    }

    /// The registry has answered, or does not, for this reason.
    pub fn registry_is(&mut self, answered: Result<(), String>, now: Tick) {
        let Some(keeping) = &mut self.keeping else { return };
        keeping.away = match (answered, keeping.away.take()) {
            (Ok(()), _) => None,
            (Err(why), before) => Some((before.map_or(now, |(since, _)| since), why)),
        };
    }

    /// What the registry of a pool is called, and for how long it has not answered, if so: it must
    /// before anything is decided.
    pub fn is_unheard(&self, now: Tick) -> Option<(String, u64)> {
        let keeping = self.keeping.as_ref()?;
        let (since, _) = keeping.away.as_ref()?;
        Some((keeping.registry.clone(), now.since(*since).as_secs()))
    }

    /// Whether it is one of a pool.
    pub fn is_of_any_pool(&self) -> bool {
        self.keeping.is_some()
    }

    /// As it is shown.
    pub fn pool(&self, now: Tick) -> Option<PoolStatus> {
        let keeping = self.keeping.as_ref()?;
        let away = keeping.away.as_ref();
        Some(PoolStatus {
            name: keeping.pool.clone(),
            registry: keeping.registry.clone(),
            generation: keeping.generation,
            away_ms: away.map(|(since, _)| now.since(*since).as_millis() as u64),
            why: away.map(|(_, why)| why.clone()),
            unkept: self.has_unkept(),
        })
    }
}
