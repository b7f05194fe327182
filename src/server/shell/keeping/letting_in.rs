//! How the control of a pool lets servers in that ask for it in the registry.
//!
//! Invariants: nobody hears that he is in before the registry has it; as an authority comes only
//! who may write where these ask. Not here: who becomes what (`members/control`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use terral_format::disk::partition::Verdict;
use terral_format::ids::Member;
use terral_format::wire::placement::Role;
use terral_format::wire::pool::{self, Invited, Wanted};
use terral_format::{ErrorKind, Result};
use terral_registry::registry::Change;

use super::{BEAT, Keeper};
use crate::core::workers::Trade;
use crate::members::control;
use crate::shared::Shared;
use crate::sharing::carrying;

/// An answer to who has gone meanwhile stays for so long.
const ANSWER: Duration = Duration::from_secs(60);
/// So many are answered at a time.
const AT_ONCE: usize = 64;

/// Why servers that serve all users, and others, are in no pool together: what is one's alone here
/// is looked at by nobody there.
fn are_otherwise(users: bool) -> String {
    let (do_they, does_it) = if users { ("", "with") } else { ("do not ", "without") };
    format!(
        "servers of this pool {do_they}serve all users of their machines: start it {does_it} \
         --users"
    )
}

impl Keeper {
    /// Who was to have the root has not come: if the registry does not say that it is there, it is
    /// not waited for.
    pub(super) fn is_missed(&mut self, shared: &Shared, missed: Member) -> Result<()> {
        let key = self.pool.keys.server(self.pool.generation.number, missed);
        if self.pool.registry.below(&key)?.entry(&key).is_some() {
            return Ok(());
        }
        let mut state = shared.lock();
        let _ = control::remove(&mut state, missed, Verdict::Dead);
        let done = carrying::resume(&mut state);
        drop(state);
        shared.wake_links();
        done
    }

    /// Lets in who asks for it, once the registry knows of him.
    pub(super) fn let_in(&mut self, shared: &Shared, kept: u64) -> Result<()> {
        let begin = Instant::now();
        let wanted = self.pool.registry.below(&self.pool.keys.all_wanted())?.entries;
        self.invited.retain(|key, _| wanted.iter().any(|entry| entry.key == *key));
        if !wanted.is_empty() {
            self.leaves_sign(shared);
        }
        let mut left = AT_ONCE;
        for entry in wanted {
            if left == 0 {
                break;
            }
            if !self.invited.contains_key(&entry.key) {
                let Some(invited) = self.invite(shared, &entry.key, &entry.value)? else {
                    continue;
                };
                self.invited.insert(entry.key.clone(), invited);
            }
            let Some((invited, version)) = self.invited.get(&entry.key) else { continue };
            if *version > kept {
                shared.rouse(Trade::Keeping);
                continue;
            }
            left -= 1;
            let end = entry.key.rsplit('/').next().unwrap_or_default();
            let key = format!("{}{end}", self.pool.keys.invited());
            let (value, lease) = (pool::write(invited)?, Some(self.pool.registry.grant(ANSWER)?));
            let changes = [Change::Put { key, value, lease }, Change::Remove(entry.key.clone())];
            // A control that is none any more answers nobody; one that is keeps saying so.
            let answered = self.pool.registry.commit(&self.guards(), &changes)?;
            if answered.is_none() || begin.elapsed() > BEAT || shared.over.load(Ordering::SeqCst) {
                break;
            }
        }
        Ok(())
    }

    /// What is said to who wants to come in, and from which version of the roster on he is;
    /// nothing yet, if this server is not reachable yet.
    fn invite(&self, shared: &Shared, key: &str, asked: &[u8]) -> Result<Option<(Invited, u64)>> {
        let wanted: Wanted = match pool::read(key, asked) {
            Ok(wanted) => wanted,
            Err(error) => return Ok(Some((Err(error.to_string()), 0))),
        };
        let is_authority = wanted.role == Some(Role::Authority);
        if is_authority != key.starts_with(&self.pool.keys.wanted_by_authority()) {
            let why = "what comes as an authority asks by keys of its own, and nothing else does";
            return Ok(Some((Err(why.to_owned()), 0)));
        }
        let ours = &self.pool.machine;
        if wanted.machine.user != ours.user {
            let (theirs, ours) = (wanted.machine.user, ours.user);
            let why = format!("servers of this pool are user {ours}'s, and not user {theirs}'s");
            return Ok(Some((Err(why), 0)));
        }
        if wanted.machine.users != ours.users {
            return Ok(Some((Err(are_otherwise(ours.users)), 0)));
        }
        let mut state = shared.lock();
        let invited = control::let_in(&mut state, wanted.key, wanted.role);
        let done = carrying::resume(&mut state);
        let version = state.members.as_ref().map_or(0, |members| members.roster().version);
        drop(state);
        shared.wake_links();
        done?;
        match invited {
            Err(error) if error.kind == ErrorKind::Busy => Ok(None),
            invited => Ok(Some((invited.map_err(|error| error.to_string()), version))),
        }
    }
}
