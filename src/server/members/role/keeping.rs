//! Of a member of a pool: which that is, how far what the control has decided is written down in
//! the pool's registry, and since when that does not answer.
//!
//! Invariants: what counts here as written down is; of a member that was let in nobody is told
//! before it is. Not here: who writes it (`shell/keeping`), and who waits for that
//! (`sharing/keeping`).

use terral_format::Result as Done;
use terral_format::disk::partition::Verdict;
use terral_format::ids::{Asker, Member};
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
    /// In this version the last member came that is in it.
    added: u64,
    /// Since when it does not answer, and why.
    away: Option<(Tick, String)>,
    succession: Option<Succession>,
    /// The control is about to be another one: nothing new is decided here.
    handing: bool,
    /// Nobody hands over to this server any more, as it is about to leave.
    withdrawn: bool,
}

/// This server is asked to take over from the control.
pub struct Succession {
    /// By whom.
    pub asker: Asker,
    /// Since when.
    pub since: Tick,
    /// Which member is the control, as who asked knows.
    pub control: Member,
    /// Why the control is removed.
    pub verdict: Verdict,
    /// What came of it.
    pub done: Option<Done<()>>,
}

impl Members {
    /// It is one of a pool.
    pub fn is_of_pool(&mut self, (pool, registry): (String, String), generation: u64) {
        let (kept, added) = (0, self.roster.version);
        let (away, succession) = (None, None);
        let (handing, withdrawn) = (false, false);
        self.keeping = Some(Keeping {
            pool,
            registry,
            generation,
            kept,
            added,
            away,
            succession,
            handing,
            withdrawn,
        });
    }

    /// The registry has this version of what the control says.
    pub fn was_kept(&mut self, version: u64) {
        if let Some(keeping) = &mut self.keeping {
            let before = keeping.kept;
            keeping.kept = before.max(version);
            if version > before {
                // Who waits for that looks again.
                self.go_on();
                self.say_what_is_kept();
            }
        }
    }

    /// Whether the registry has this version; so it is where there is none.
    pub fn is_kept(&self, version: u64) -> bool {
        self.keeping.as_ref().is_none_or(|keeping| keeping.kept >= version)
    }

    /// Members have come with the roster that there is.
    pub fn have_come(&mut self) {
        let version = self.roster.version;
        self.keeping.iter_mut().for_each(|keeping| keeping.added = version);
    }

    /// Whether all who are in the roster are in the registry, so that the next control knows them.
    pub fn may_tell(&self) -> bool {
        self.keeping.as_ref().is_none_or(|keeping| keeping.kept >= keeping.added)
    }

    /// What this server is asked of taking over.
    pub fn succession(&mut self) -> Option<&mut Option<Succession>> {
        self.keeping.as_mut().map(|keeping| &mut keeping.succession)
    }

    /// Which control is to be removed, and why, if this server is to take over from it.
    pub fn is_to_succeed(&self) -> Option<(Member, Verdict)> {
        let asked = self.keeping.as_ref()?.succession.as_ref()?;
        asked.done.is_none().then_some((asked.control, asked.verdict))
    }

    /// What came of it.
    pub fn has_succeeded(&mut self, done: Done<()>) {
        let asked = self.keeping.iter_mut().filter_map(|keeping| keeping.succession.as_mut());
        asked.for_each(|asked| asked.done = Some(done.clone()));
        self.go_on();
    }

    /// The control is about to be another member, or is not after all.
    pub fn hands_over(&mut self, is: bool) {
        let before = self.keeping.as_mut().map(|it| std::mem::replace(&mut it.handing, is));
        if before == Some(true) && !is {
            // Who waits for that looks again.
            self.go_on();
        }
    }

    /// Whether it is.
    pub fn is_handing_over(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| keeping.handing)
    }

    /// The registry does not say any more that this server is there, and it is not the control; or
    /// it says so again.
    pub fn withdraws(&mut self, is: bool) {
        self.keeping.iter_mut().for_each(|keeping| keeping.withdrawn = is);
    }

    /// Whether it can leave without having become the control meanwhile.
    pub fn is_withdrawn(&self) -> bool {
        self.keeping.as_ref().is_none_or(|keeping| keeping.withdrawn)
    }

    /// Whether the control may be another one than the member where the root was born.
    pub fn may_have_another_control(&self) -> bool {
        self.is_of_any_pool() || self.control() != self.root()
    }

    /// Whether something is to be written down there.
    pub fn has_unkept(&self) -> bool {
        self.me() == self.control() && !self.is_kept(self.roster.version)
    }

    /// Whether who writes it down is to be woken for it: where nobody answers, he looks by himself.
    pub fn needs_keeper(&self) -> bool {
        let answers = self.keeping.as_ref().is_some_and(|it| it.away.is_none());
        answers && (self.has_unkept() || self.is_to_succeed().is_some())
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
