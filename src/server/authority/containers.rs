//! The containers of a run: which one counts for a path, and what it allows to whom.
//!
//! Invariants: no two have one place; the innermost counts, and the run's own is at the root, where
//! everybody may what his capability says as long as nobody has said anything else. Who has no
//! entry, where others have none, may nothing. Not here: whose word a request is (`authz`), and who
//! is told of a change (`sharing/containers`).

use std::collections::BTreeMap;

use terral_format::wire::capability::{Operations, Principal, is_at_or_below};
use terral_format::wire::containers::{
    Altered, CONTAINERS_MAX, Container, ContainerName, DEFAULT, ENTRIES_MAX, Entry, Party, Setting,
};
use terral_format::{Error, ErrorKind, Result, frame};

use crate::core::paths::{components, shown};

/// Most bytes of all of them: they are said in one frame, with what was revoked.
const BYTES_MAX: usize = 384 << 10;

/// Those that were made, by their places. The run's own is one of them once it has a list.
#[derive(Debug, Default)]
pub struct Containers(BTreeMap<Vec<u8>, Container>);

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, why.into())
}

fn bytes_of(container: &Container) -> usize {
    frame::encode(container).map_or(BYTES_MAX, |encoded| encoded.len())
}

/// A list with these entries in place of those of the same parties.
fn merged(list: &[Entry], entries: &[Entry]) -> Result<Vec<Entry>> {
    let mut all: BTreeMap<Party, Operations> =
        list.iter().map(|entry| (entry.who, entry.may)).collect();
    let most = Operations::ALL.without(Operations::ADMIN);
    for Entry { who, may } in entries {
        match who {
            Party::Principal(Principal::User(_)) => {
                return Err(invalid("an entry is of key:NAME, token:NAME, gss:NAME or others"));
            }
            _ if !most.contain(*may) => {
                return Err(invalid("admin is the owner's: no entry gives it"));
            }
            // Nothing is what they may without one.
            Party::Others if *may == Operations(0) => all.remove(who),
            _ => all.insert(*who, *may),
        };
    }
    if all.len() > ENTRIES_MAX {
        let context = format!("entries of one container, more than {ENTRIES_MAX}");
        return Err(Error::new(ErrorKind::TooMany, context));
    }
    Ok(all.into_iter().map(|(who, may)| Entry { who, may }).collect())
}

/// What one allows to somebody.
fn allowed(container: &Container, who: Principal) -> Operations {
    if container.owner == who {
        return Operations::ALL;
    }
    let entry = |party| container.entries.iter().find(|entry| entry.who == party);
    let entry = entry(Party::Principal(who)).or_else(|| entry(Party::Others));
    entry.map_or(Operations(0), |entry| entry.may)
}

impl Containers {
    /// Whether nothing was ever said: everybody may what his capability says.
    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// From a record.
    pub fn apply(&mut self, altered: &Altered) {
        let (Altered::Is(Container { name, .. }) | Altered::Ended(name)) = altered;
        self.0.retain(|_, known| known.name != *name);
        if let Altered::Is(container) = altered {
            self.0.insert(container.place.clone(), container.clone());
        }
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<&Container> {
        let mut all: Vec<&Container> = self.0.values().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The one that counts for a path; `None`: the run's own, of which nothing was said.
    pub fn at(&self, path: &[u8]) -> Option<&Container> {
        let mut above = path;
        loop {
            if let Some(container) = self.0.get(above) {
                return Some(container);
            }
            let end = above.iter().rposition(|byte| *byte == b'/');
            above = match (end, above) {
                (Some(end), _) => &above[..end],
                (None, []) => return None,
                (None, _) => &[],
            };
        }
    }

    /// What it is called.
    pub fn name_at(&self, path: &[u8]) -> &str {
        self.at(path).map_or(DEFAULT, |container| container.name.as_str())
    }

    /// What somebody may at a path, if his capability allows it.
    pub fn allow(&self, who: Principal, path: &[u8]) -> Operations {
        self.at(path).map_or(Operations::ALL, |container| allowed(container, who))
    }

    /// Whether this is on the way to a place where somebody may something.
    pub fn lead_on(&self, who: Principal, path: &[u8]) -> bool {
        let mut below = self.0.values().filter(|one| is_at_or_below(&one.place, path));
        below.any(|one| allowed(one, who) != Operations(0))
    }

    /// Whether the place of one is there or further in: with that, its files would go out of it.
    pub fn are_below(&self, path: &[u8]) -> bool {
        self.0.keys().any(|place| is_at_or_below(place, path))
    }

    /// What becomes of one if somebody has his way; he may `admin` by his capability.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if it is not his to change, [`ErrorKind::NotFound`],
    /// [`ErrorKind::Exists`], [`ErrorKind::TooMany`], or [`ErrorKind::Invalid`] for what is none.
    pub fn altered(&self, who: Principal, server: Principal, setting: &Setting) -> Result<Altered> {
        let altered = self.wished(who, server, setting)?;
        if let Altered::Is(new) = &altered {
            let others = self.0.values().filter(|one| one.name != new.name);
            let bytes: usize = others.chain([new]).map(bytes_of).sum();
            if bytes > BYTES_MAX {
                let context = "containers: too many long places and entries, in all";
                return Err(Error::new(ErrorKind::TooMany, context));
            }
        }
        Ok(altered)
    }

    fn wished(&self, who: Principal, server: Principal, setting: &Setting) -> Result<Altered> {
        let known = self.0.values().find(|one| one.name == *setting.name());
        match (setting, known) {
            (Setting::Create { name, .. }, _) if name.is_default() => {
                Err(invalid(format!("{DEFAULT}: it is there always (terral container set)")))
            }
            (Setting::Create { name, .. }, Some(_)) => {
                Err(Error::new(ErrorKind::Exists, format!("container {name}")))
            }
            (Setting::Create { name, place, owner, entries }, None) => {
                let owner = owner.unwrap_or(who);
                self.created(
                    who,
                    Container {
                        name: name.clone(),
                        place: place.clone(),
                        owner,
                        entries: Vec::new(),
                    },
                    entries,
                )
            }
            (Setting::Set { name, entries }, None) if name.is_default() => {
                let own = Container {
                    name: name.clone(),
                    place: Vec::new(),
                    owner: server,
                    entries: Vec::new(),
                };
                permit(who, &own)?;
                self.bound(1)?;
                Ok(Altered::Is(Container { entries: merged(&[], entries)?, ..own }))
            }
            (Setting::Set { name, .. } | Setting::Remove(name), None) => {
                Err(Error::new(ErrorKind::NotFound, format!("container {name}")))
            }
            (Setting::Set { entries, .. }, Some(known)) => {
                permit(who, known)?;
                let entries = merged(&known.entries, entries)?;
                Ok(Altered::Is(Container { entries, ..known.clone() }))
            }
            (Setting::Remove(name), Some(known)) => {
                permit(who, known).map(|()| Altered::Ended(name.clone()))
            }
        }
    }

    /// Who makes one takes its place from the one around it.
    fn created(&self, who: Principal, new: Container, entries: &[Entry]) -> Result<Altered> {
        components(&new.place)?;
        match self.at(&new.place) {
            _ if new.place.is_empty() => {
                return Err(invalid(format!("/: that is the place of {DEFAULT}")));
            }
            Some(known) if known.place == new.place => {
                let context = format!("{}: the place of {}", shown(&new.place), known.name);
                return Err(Error::new(ErrorKind::Exists, context));
            }
            Some(around) => permit(who, around)?,
            None => {}
        }
        self.bound(2)?;
        Ok(Altered::Is(Container { entries: merged(&[], entries)?, ..new }))
    }

    /// One more may be made; for the run's own there is always a place.
    fn bound(&self, places: usize) -> Result<()> {
        let own = usize::from(self.0.contains_key(&[][..]));
        if self.0.len() - own + places <= CONTAINERS_MAX {
            return Ok(());
        }
        let context = format!("containers, more than {CONTAINERS_MAX}");
        Err(Error::new(ErrorKind::TooMany, context))
    }

    /// What has changed if all of them are these.
    pub fn differences(&self, told: Vec<Container>) -> Vec<Altered> {
        let is_told = |known: &&Container| !told.iter().any(|one| one.name == known.name);
        let ended: Vec<ContainerName> =
            self.0.values().filter(is_told).map(|known| known.name.clone()).collect();
        let is_new = |one: &Container| self.0.get(&one.place) != Some(one);
        let new = told.into_iter().filter(is_new).map(Altered::Is);
        ended.into_iter().map(Altered::Ended).chain(new).collect()
    }
}

/// Who may `admin` by his capability changes this one if it is his.
fn permit(who: Principal, container: &Container) -> Result<()> {
    if container.owner == who || matches!(who, Principal::User(_)) {
        return Ok(());
    }
    let Container { name, owner, .. } = container;
    let context = format!("container {name}: its owner ({owner}) and the server's user change it");
    Err(Error::new(ErrorKind::Denied, context))
}

#[cfg(test)]
mod tests;
