//! The containers of a run: which one counts for a path, and what it allows to whom.
//!
//! Invariants: no two have one place; the innermost counts, and the run's own is at the root, where
//! everybody may what his capability says as long as nobody has said anything else. Who has no
//! entry, by himself or as one of a group, where others have none, may nothing. Not here: whose
//! word a request is (`authz`), and who is told of a change (`sharing/containers`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::wire::capability::{Operations, Principal, is_at_or_below};
use terral_format::wire::containers::{
    Altered, CONTAINERS_MAX, Container, ContainerName, DEFAULT, ENTRIES_MAX, Entry, Group, Party,
    Quota, Setting,
};
use terral_format::wire::principal::PrincipalName;
use terral_format::{Error, ErrorKind, Result, frame};

use crate::core::paths::{components, shown};

/// Most bytes of all of them: they are said in one frame, with what was revoked.
const BYTES_MAX: usize = 384 << 10;

/// Those that were made, by their places. The run's own is one of them once it has a list.
#[derive(Debug, Default)]
pub struct Containers {
    places: BTreeMap<Vec<u8>, Container>,
    /// Of those that have one; the run's own may, also without a list.
    quotas: BTreeMap<ContainerName, Quota>,
    /// Who is in which group, as the list of principals says.
    groups: BTreeMap<PrincipalName, BTreeSet<Principal>>,
}

/// What becomes of containers.
#[derive(Debug, PartialEq, Eq)]
pub struct Changes {
    /// Of one.
    pub altered: Option<Altered>,
    /// Of how much there may be in it.
    pub quota: Option<(ContainerName, Quota)>,
}

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
                return Err(invalid(
                    "an entry is of key:NAME, token:NAME, gss:NAME, group:NAME or others",
                ));
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

impl Containers {
    /// What one allows to somebody: his own entry counts, else those of his groups, else that of
    /// others.
    fn allowed(&self, container: &Container, who: Principal) -> Operations {
        if container.owner == who {
            return Operations::ALL;
        }
        let entry = |party| container.entries.iter().find(|entry| entry.who == party);
        let may = entry(Party::Principal(who)).map(|entry| entry.may);
        let may = may.or_else(|| self.as_one_of_groups(container, who));
        may.or_else(|| entry(Party::Others).map(|entry| entry.may)).unwrap_or(Operations(0))
    }

    /// All that his groups may together; nothing if one of them is denied.
    fn as_one_of_groups(&self, container: &Container, who: Principal) -> Option<Operations> {
        let of_his = |entry: &Entry| match &entry.who {
            Party::Group(name) => self.groups.get(name)?.contains(&who).then_some(entry.may),
            _ => None,
        };
        let nothing = Operations(0);
        let more = |all: Operations, may: Operations| match all == nothing || may == nothing {
            true => nothing,
            false => all.and(may),
        };
        container.entries.iter().filter_map(of_his).reduce(more)
    }

    /// From a record: these are all groups.
    pub fn grouped(&mut self, all: &[Group]) {
        let group = |Group { name, members }: &Group| (*name, members.iter().copied().collect());
        self.groups = all.iter().map(group).collect();
    }

    /// All of them, as they are said.
    pub fn groups(&self) -> Vec<Group> {
        let group = |(name, members): (&PrincipalName, &BTreeSet<Principal>)| Group {
            name: *name,
            members: members.iter().copied().collect(),
        };
        self.groups.iter().map(group).collect()
    }

    /// Each group that entries name is one, or is named by the list already.
    fn know_groups(&self, list: &[Entry], entries: &[Entry]) -> Result<()> {
        let strange = entries.iter().find_map(|entry| match &entry.who {
            Party::Group(name) if !self.groups.contains_key(name) => {
                list.iter().all(|known| known.who != entry.who).then_some(name)
            }
            _ => None,
        });
        strange.map_or(Ok(()), |name| {
            let context = format!("group {}: the list of principals has none", name.as_str());
            Err(Error::new(ErrorKind::NotFound, context))
        })
    }

    fn merged(&self, list: &[Entry], entries: &[Entry]) -> Result<Vec<Entry>> {
        self.know_groups(list, entries)?;
        merged(list, entries)
    }

    /// Whether nothing was ever said: everybody may what his capability says.
    pub fn are_none(&self) -> bool {
        self.places.is_empty()
    }

    /// From a record.
    pub fn apply(&mut self, altered: &Altered) {
        let (Altered::Is(Container { name, .. }) | Altered::Ended(name)) = altered;
        self.places.retain(|_, known| known.name != *name);
        match altered {
            Altered::Is(container) => {
                self.places.insert(container.place.clone(), container.clone());
            }
            Altered::Ended(name) => drop(self.quotas.remove(name)),
        }
    }

    /// From a record: there may be so much in one.
    pub fn bounded(&mut self, name: &ContainerName, quota: Quota) {
        match quota {
            Quota::NONE => self.quotas.remove(name),
            quota => self.quotas.insert(name.clone(), quota),
        };
    }

    /// All quotas.
    pub fn quotas(&self) -> Vec<(ContainerName, Quota)> {
        self.quotas.iter().map(|(name, quota)| (name.clone(), *quota)).collect()
    }

    /// The same, with where they count.
    pub fn with_quotas(&self) -> Vec<(Vec<u8>, ContainerName, Quota)> {
        let place = |name: &ContainerName| match name.is_default() {
            true => Some(Vec::new()),
            false => self.called(name).map(|one| one.place.clone()),
        };
        let all = self.quotas.iter();
        all.filter_map(|(name, quota)| Some((place(name)?, name.clone(), *quota))).collect()
    }

    fn called(&self, name: &ContainerName) -> Option<&Container> {
        self.places.values().find(|one| one.name == *name)
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<&Container> {
        let mut all: Vec<&Container> = self.places.values().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The one that counts for a path; `None`: the run's own, of which nothing was said.
    pub fn at(&self, path: &[u8]) -> Option<&Container> {
        let mut above = path;
        loop {
            if let Some(container) = self.places.get(above) {
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
        self.at(path).map_or(Operations::ALL, |container| self.allowed(container, who))
    }

    /// Whether this is on the way to a place where somebody may something.
    pub fn lead_on(&self, who: Principal, path: &[u8]) -> bool {
        let mut below = self.places.values().filter(|one| is_at_or_below(&one.place, path));
        below.any(|one| self.allowed(one, who) != Operations(0))
    }

    /// Whether the place of one is there or further in: with that, its files would go out of it.
    pub fn are_below(&self, path: &[u8]) -> bool {
        self.places.keys().any(|place| is_at_or_below(place, path))
    }

    /// What becomes of containers if somebody has his way; he may `admin` by his capability.
    ///
    /// # Errors
    /// As [`Containers::altered`]; [`ErrorKind::Denied`] also if the quota is not his to change.
    pub fn changes(&self, who: Principal, server: Principal, setting: &Setting) -> Result<Changes> {
        let name = setting.name();
        let has_quota = self.quotas.contains_key(name);
        let quota = match setting {
            Setting::Create { quota, .. } if *quota != Quota::NONE => Some(*quota),
            Setting::Bound(_, quota) => Some(*quota),
            Setting::Remove(_) if has_quota => Some(Quota::NONE),
            _ => None,
        };
        if quota.is_some() && !matches!(setting, Setting::Create { .. }) {
            self.permit_bounding(who, name)?;
        }
        let only_bounds = matches!(setting, Setting::Bound(..))
            || (matches!(setting, Setting::Remove(_)) && has_quota && self.called(name).is_none());
        let altered = match only_bounds {
            true => None,
            false => Some(self.altered(who, server, setting)?),
        };
        Ok(Changes { altered, quota: quota.map(|quota| (name.clone(), quota)) })
    }

    /// Who may change what is around a container says how much there may be in it.
    fn permit_bounding(&self, who: Principal, name: &ContainerName) -> Result<()> {
        let known = self.called(name);
        if known.is_none() && !name.is_default() {
            return Err(Error::new(ErrorKind::NotFound, format!("container {name}")));
        }
        let above = known.and_then(|one| {
            let end = one.place.iter().rposition(|byte| *byte == b'/');
            (!one.place.is_empty()).then(|| end.map_or(&[][..], |end| &one.place[..end]))
        });
        let is_owner = above.and_then(|above| self.at(above)).is_some_and(|one| one.owner == who);
        if is_owner || matches!(who, Principal::User(_)) {
            return Ok(());
        }
        let context = format!(
            "container {name}: its quota is for the server's user, and who owns what is around it"
        );
        Err(Error::new(ErrorKind::Denied, context))
    }

    /// What becomes of one if somebody has his way; he may `admin` by his capability.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if it is not his to change, [`ErrorKind::NotFound`],
    /// [`ErrorKind::Exists`], [`ErrorKind::TooMany`], or [`ErrorKind::Invalid`] for what is none.
    pub fn altered(&self, who: Principal, server: Principal, setting: &Setting) -> Result<Altered> {
        let altered = self.wished(who, server, setting)?;
        if let Altered::Is(new) = &altered {
            let others = self.places.values().filter(|one| one.name != new.name);
            let bytes: usize = others.chain([new]).map(bytes_of).sum();
            if bytes > BYTES_MAX {
                let context = "containers: too many long places and entries, in all";
                return Err(Error::new(ErrorKind::TooMany, context));
            }
        }
        Ok(altered)
    }

    fn wished(&self, who: Principal, server: Principal, setting: &Setting) -> Result<Altered> {
        let known = self.places.values().find(|one| one.name == *setting.name());
        match (setting, known) {
            (Setting::Create { name, .. }, _) if name.is_default() => {
                Err(invalid(format!("{DEFAULT}: it is there always (terral container set)")))
            }
            (Setting::Create { name, .. }, Some(_)) => {
                Err(Error::new(ErrorKind::Exists, format!("container {name}")))
            }
            (Setting::Create { name, place, owner, entries, .. }, None) => {
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
                Ok(Altered::Is(Container { entries: self.merged(&[], entries)?, ..own }))
            }
            (Setting::Bound(..), _) => Err(invalid("a quota is no list")),
            (Setting::Set { name, .. } | Setting::Remove(name), None) => {
                Err(Error::new(ErrorKind::NotFound, format!("container {name}")))
            }
            (Setting::Set { entries, .. }, Some(known)) => {
                permit(who, known)?;
                let entries = self.merged(&known.entries, entries)?;
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
        Ok(Altered::Is(Container { entries: self.merged(&[], entries)?, ..new }))
    }

    /// One more may be made; for the run's own there is always a place.
    fn bound(&self, places: usize) -> Result<()> {
        let own = usize::from(self.places.contains_key(&[][..]));
        if self.places.len() - own + places <= CONTAINERS_MAX {
            return Ok(());
        }
        let context = format!("containers, more than {CONTAINERS_MAX}");
        Err(Error::new(ErrorKind::TooMany, context))
    }

    /// Which quotas have changed if all of them are these.
    pub fn bounds(&self, told: Vec<(ContainerName, Quota)>) -> Vec<(ContainerName, Quota)> {
        let is_told = |known: &&ContainerName| told.iter().any(|(name, _)| name == *known);
        let ended: Vec<(ContainerName, Quota)> = self
            .quotas
            .keys()
            .filter(|known| !is_told(known))
            .map(|name| (name.clone(), Quota::NONE))
            .collect();
        let new = told.into_iter().filter(|(name, quota)| self.quotas.get(name) != Some(quota));
        ended.into_iter().chain(new).collect()
    }

    /// What has changed if all of them are these.
    pub fn differences(&self, told: Vec<Container>) -> Vec<Altered> {
        let is_told = |known: &&Container| !told.iter().any(|one| one.name == known.name);
        let ended: Vec<ContainerName> =
            self.places.values().filter(is_told).map(|known| known.name.clone()).collect();
        let is_new = |one: &Container| self.places.get(&one.place) != Some(one);
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
