//! On which machines the members of a pool are, as their servers say it in the registry: a file of
//! the instance, by which people see and name them.
//!
//! Invariants: no decision depends on it, and what goes wrong with it keeps nobody from anything.
//! What was known of a member stays: its key is gone when it does not answer, which is when its
//! name is wanted. Where all who are in are known nobody is asked. Not here: who reads the file
//! (`cli/members`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::wire::pool::{self, Keys, Server};
use terral_registry::registry::View;

use super::{Here, Keeper};
use crate::core::world::Tick;

/// Who has just come in says where he is in his next turn.
const SOON: Duration = Duration::from_secs(1);
/// Who says nothing for long is asked for no more often than that.
const SELDOM: Duration = Duration::from_secs(60);
/// Longest name of a machine, bytes.
const HOST_MAX: usize = 255;

/// What is known.
pub(super) struct Machines {
    file: PathBuf,
    known: BTreeMap<Member, String>,
    /// When it was last asked, and how long it is not asked again.
    looked: Option<(Tick, Duration)>,
}

/// What may stand in a line.
fn is_host(text: &str) -> bool {
    let is_bad = |it: char| it.is_whitespace() || it.is_control();
    !text.is_empty() && text.len() <= HOST_MAX && !text.contains(is_bad)
}

impl Machines {
    /// What an earlier process of this server has written into this file.
    pub(super) fn of(file: PathBuf) -> Self {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let line = |line: &str| {
            let (number, host) = line.split_once(' ')?;
            Some((Member::new(number.parse().ok()?)?, host.to_owned()))
        };
        let known = text.lines().filter_map(line).filter(|(_, host)| is_host(host)).collect();
        Machines { file, known, looked: None }
    }

    /// Whether somebody who is in is not known, and it is time to ask.
    fn is_due(&self, are_in: &[Member], now: Tick) -> bool {
        self.looked.is_none_or(|(at, pause)| now.since(at) >= pause)
            && are_in.iter().any(|member| !self.known.contains_key(member))
    }

    /// What servers say of themselves. Whether anything is new.
    fn are(&mut self, keys: &Keys, said: &View) -> bool {
        let before = self.known.len();
        for entry in &said.entries {
            let Ok(server) = pool::read::<Server>(&entry.key, &entry.value) else { continue };
            let is_its = keys.server(server.generation, server.member) == entry.key;
            if is_its && is_host(&server.machine.host) {
                self.known.entry(server.member).or_insert(server.machine.host);
            }
        }
        self.known.len() > before
    }

    /// Users' servers are called by whose they are, and where. Whether anything is new.
    fn are_of(&mut self, users: &[(Member, u32, Member)]) -> bool {
        let before = self.known.len();
        for (member, user, by) in users {
            let Some(host) = self.known.get(by).cloned() else { continue };
            self.known.entry(*member).or_insert_with(|| format!("user-{user}@{host}"));
        }
        self.known.len() > before
    }

    /// It was asked now. Whoever joins a large pool has all ask, and none of them for each.
    fn was_asked(&mut self, are_in: &[Member], now: Tick) {
        let before = self.looked.map_or(SOON, |(_, pause)| pause);
        let is_whole = are_in.iter().all(|member| self.known.contains_key(member));
        let pause = if is_whole { SOON } else { (before * 2).min(SELDOM) };
        self.looked = Some((now, pause));
    }

    /// Whoever reads it meanwhile finds all of it, or what was there before.
    fn write(&self) -> std::io::Result<()> {
        let line = |(member, host): (&Member, &String)| format!("{} {host}\n", member.number());
        let text: String = self.known.iter().map(line).collect();
        let next = self.file.with_extension("next");
        std::fs::write(&next, text)?;
        std::fs::rename(&next, &self.file)
    }
}

/// What is written down there.
#[cfg(test)]
pub fn written(file: &std::path::Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

impl Keeper {
    /// Looks on which machines members are of whom that is not known. What is not answered is
    /// asked again.
    pub(super) fn knows_machines(&mut self, here: &Here) {
        self.look_for_machines(here);
        if self.machines.are_of(&here.users) {
            let _ = self.machines.write();
        }
    }

    fn look_for_machines(&mut self, here: &Here) {
        if !self.machines.is_due(&here.are_in, here.now) {
            return;
        }
        let keys = &self.pool.keys;
        let Ok(said) = self.pool.registry.below(&keys.servers_of(self.pool.generation.number))
        else {
            return;
        };
        if self.machines.are(keys, &said) {
            // Without it members are known by their numbers.
            let _ = self.machines.write();
        }
        self.machines.was_asked(&here.are_in, here.now);
    }
}
