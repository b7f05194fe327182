//! `terral serve --control … --pool NAME`: how a server finds its way into a pool. The first to
//! claim it begins its partition and is the control; all others ask in the pool's registry to be
//! let in, and come by the protocol that there is.
//!
//! Invariants: nobody begins anew while somebody may live who could undo it: it takes that the
//! control's machine was this one, and its memory is gone, or a person's word (`--anew`); and never
//! while servers of the partition before are there. The key by which a server proves who it is
//! never leaves this machine. Not here: what a server writes there while it serves (`server`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use terral_client::{Error, ErrorKind};
use terral_registry::etcd::Etcd;
use terral_registry::login::Login;
use terral_registry::place::Place;
use terral_registry::registry::{Change, Guard, Registry, Revision, View};
use terral_server::records::{
    Generation, Inherited, Invited, Keys, Lost, Machine, Role, Secret, Server, Stage, Verdict,
    Wanted,
};
use terral_server::{Listing, Member, POOL_TERM, Part, Pool, records};

use crate::instances;
use crate::members::{self, this};
use crate::report::note;

mod left_here;

pub use left_here::is_stale;
use left_here::{NOTE, Noted};

/// Nobody waits longer for etcd, for the control, or to be let in.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// A lease that is over may be seen so much later.
const SLACK: Duration = Duration::from_secs(3);

/// Of which pool a server is.
#[derive(Args, Clone)]
#[group(skip)]
pub struct Arguments {
    /// Be a server of a pool, whose state is in etcd: etcd://HOST:PORT[,HOST:PORT…], or etcds://
    /// with TLS. The first begins it; all others come in by themselves. With --to, which is the
    /// same directory for all of them
    #[arg(long, value_name = "URL", requires_all = ["pool", "to"])]
    #[arg(conflicts_with_all = ["join", "spill"])]
    pub control: Option<Place>,
    /// The name of the pool
    #[arg(long, value_name = "NAME", requires = "control", value_parser = name)]
    pub pool: Option<String>,
    /// How etcd is asked, a line each: user NAME, password WORD, ca FILE, certificate FILE, key
    /// FILE. Nobody else may read it
    #[arg(long, value_name = "FILE", requires = "control")]
    pub control_login: Option<PathBuf>,
    /// What this server is for: `storage` keeps bytes of new files, `compute` keeps none;
    /// `authn,authz` says who is in, who somebody is and what he may, and keeps nothing [default:
    /// all of it; once something was said of another server, compute, until `terral role`]
    #[arg(long, value_name = "ROLES", requires = "control", value_parser = role)]
    pub role: Option<Role>,
    /// Begin the pool anew: the machine of its control is lost, and what only that had
    #[arg(long, requires = "control")]
    pub anew: bool,
}

/// Roles of which some go together.
fn role(text: &str) -> Result<Role, String> {
    let mut roles: Vec<&str> = text.split(',').collect();
    roles.sort_unstable();
    match roles[..] {
        ["authn", "authz"] => Ok(Role::Authority),
        ["storage"] | ["compute", "storage"] => Ok(Role::Storage),
        ["compute"] => Ok(Role::Compute),
        ["authn" | "authz"] => Err("authn and authz are one server's: authn,authz".into()),
        _ => Err("storage, compute or authn,authz; a server without --role is all of it".into()),
    }
}

fn name(text: &str) -> Result<String, String> {
    let is = records::is_name(text);
    is.then(|| text.to_owned()).ok_or_else(|| "letters, digits, - _ . only, 64 at most".into())
}

/// Whether etcd lets this server not do so.
fn is_denied(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| error.kind == ErrorKind::Denied)
}

/// A way into a pool.
pub struct Entrance {
    name: String,
    keys: Keys,
    registry: Arc<dyn Registry>,
    machine: Machine,
    instance: PathBuf,
    anew: bool,
    role: Option<Role>,
    view: View,
}

/// What a server is told of its pool, and what it becomes.
struct Entered {
    pool: Pool,
    part: Part,
}

impl Arguments {
    /// The words by which another process of this machine goes the same way.
    ///
    /// # Errors
    /// If the file that says how etcd is asked is not there.
    pub fn words(&self) -> Result<Vec<OsString>> {
        let (Some(place), Some(name)) = (&self.control, &self.pool) else { return Ok(Vec::new()) };
        let mut words = vec!["--control".into(), place.to_string().into(), "--pool".into()];
        words.push(name.into());
        if let Some(file) = &self.control_login {
            let file = file.canonicalize().with_context(|| file.display().to_string())?;
            words.extend(["--control-login".into(), file.into()]);
        }
        words.extend(self.anew.then(|| "--anew".into()));
        Ok(words)
    }

    /// The way in, if a pool is meant: for the server of all `users` of this machine, or of one.
    ///
    /// # Errors
    /// If etcd does not answer for long, or refuses; if this machine has a server of it already.
    pub fn entrance(&self, instance: &Path, users: bool) -> Result<Option<Entrance>> {
        let way = self.way(instance, users)?;
        way.iter().try_for_each(Entrance::is_alone_here)?;
        Ok(way)
    }

    /// The same, whatever there is on this machine.
    ///
    /// # Errors
    /// If etcd does not answer for long, or refuses.
    pub fn way(&self, instance: &Path, users: bool) -> Result<Option<Entrance>> {
        let (Some(place), Some(name)) = (&self.control, &self.pool) else { return Ok(None) };
        let login = self.control_login.as_deref().map(Login::read).transpose()?;
        let registry = Arc::new(Etcd::new(place.clone(), login.unwrap_or_default())?);
        let machine = Machine {
            host: this(),
            id: records::machine_id(),
            boot: records::boot_id()?,
            user: rustix::process::geteuid().as_raw(),
            users,
        };
        let mut entrance = Entrance {
            name: name.clone(),
            keys: Keys::of(name),
            registry,
            machine,
            instance: instance.to_path_buf(),
            anew: self.anew,
            role: self.role,
            view: View::default(),
        };
        entrance.look()?;
        Ok(Some(entrance))
    }
}

impl Entrance {
    /// Looks at all that there is of the pool; waits for etcd.
    fn look(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut told = false;
        loop {
            match self.registry.below(self.keys.all()) {
                Ok(view) => {
                    self.view = view;
                    return Ok(());
                }
                Err(error) if !error.may_retry() => return Err(error.into()),
                Err(error) if begin.elapsed() > PATIENCE => {
                    let secs = PATIENCE.as_secs();
                    return Err(error).context(format!("{}: no etcd since {secs} s", self.name));
                }
                Err(error) if !std::mem::replace(&mut told, true) => {
                    note(format_args!("{error}; waiting for it"));
                }
                Err(_) => {}
            }
            std::thread::sleep(POLL * 4);
        }
    }

    fn generation(&self) -> Result<Option<(Generation, &terral_registry::registry::Entry)>> {
        let key = self.keys.generation();
        let entry = self.view.entry(&key);
        let read = entry.map(|entry| Ok((records::read(&entry.key, &entry.value)?, entry)));
        read.transpose()
    }

    /// Servers of the pool that are there.
    fn servers(&self) -> Result<Vec<Server>> {
        let prefix = self.keys.servers();
        let entries = self.view.entries.iter().filter(|entry| entry.key.starts_with(&prefix));
        let read = entries.map(|entry| Ok(records::read(&entry.key, &entry.value)?));
        read.collect()
    }

    /// Goes through it: as the member that it was, if it was `taken` over, or as a new one. What
    /// the server becomes, what it is told of its pool, and who others than its user are.
    ///
    /// # Errors
    /// If there is no way, with what is to be done. Nothing is left here then.
    pub fn through(
        self,
        taken: bool,
        principals: Option<Listing>,
    ) -> Result<(Option<Part>, Pool, Option<Listing>)> {
        let instance = self.instance.clone();
        let entered = match taken {
            true => self.back().map(|pool| (None, pool)),
            false => self.enter().map(|entered| (Some(entered.part), entered.pool)),
        };
        let (part, pool) = entered.inspect_err(|_| {
            if !taken {
                let _ = terral_server::remove(&instance);
            }
        })?;
        let kept = Some(instance.join(records::LIST)).filter(|list| list.exists());
        let kept = kept.map(|principals| Listing { principals, keytab: None });
        let principals = principals.or(kept);
        let list = principals.as_ref().map(|listing| listing.principals.clone());
        Ok((part, Pool { principals: list, ..pool }, principals))
    }

    /// What a server is told that goes on as the member that it was.
    fn back(mut self) -> Result<Pool> {
        self.look()?;
        let generation = self.generation()?.map(|(now, entry)| (now, entry.changed));
        let Some((generation, revision)) = generation else { bail!("{}: is gone", self.name) };
        if self.was_here(&generation) {
            // It may have been given another one since it began.
            self.keep_list()?;
        }
        Ok(self.told(generation, revision))
    }

    fn told(&self, generation: Generation, revision: Revision) -> Pool {
        Pool {
            name: self.name.clone(),
            keys: self.keys.clone(),
            registry: self.registry.clone(),
            generation,
            revision,
            machine: self.machine.clone(),
            instance: instances::name_of(&self.instance),
            principals: None,
            list: self.instance.join(records::LIST),
            machines: self.instance.join(members::FILE),
        }
    }

    /// Begins the pool's partition, or is let into it.
    fn enter(mut self) -> Result<Entered> {
        let begin = Instant::now();
        let (mut told, mut was_there, mut is_lost) = (false, None, false);
        loop {
            self.look()?;
            match self.generation()? {
                Some(_) => was_there = Some(Instant::now()),
                // etcd has lost its keys: who has the pool writes them anew.
                None if was_there.is_some_and(|at| at.elapsed() < POOL_TERM + SLACK) => {
                    std::thread::sleep(POLL * 4);
                    continue;
                }
                None => {}
            }
            if self.view.entry(&self.keys.control()).is_some() {
                if let Some(entered) = self.come_in()? {
                    return Ok(entered);
                }
                continue;
            }
            // Who was killed is there until its lease is over.
            let alive = self.servers()?;
            if alive.is_empty() {
                match self.claim() {
                    Ok(Some(entered)) => return Ok(entered),
                    Ok(None) => {}
                    // One that may do so is about to come, or a person is to hear of it.
                    Err(error) if is_denied(&error) && begin.elapsed() < PATIENCE => {
                        if !std::mem::replace(&mut told, true) {
                            let pool = &self.name;
                            note(format_args!(
                                "waiting for who may begin the pool {pool}: {error}"
                            ));
                        }
                    }
                    Err(error) => return Err(error),
                }
            } else if begin.elapsed() > POOL_TERM + SLACK && self.may_claim()? {
                let (now, _) =
                    self.generation()?.with_context(|| format!("{}: is gone", self.name))?;
                if self.anew || begin.elapsed() > PATIENCE || !self.has_begun_since(&now) {
                    bail!(self.are_there(&alive, now.control));
                }
                is_lost = is_lost || self.says_lost(&now)?;
            }
            std::thread::sleep(POLL * 4);
            let Some((now, _)) = self.generation()? else { continue };
            let (pool, host) = (&self.name, &now.by.host);
            if begin.elapsed() > PATIENCE {
                bail!(
                    "the control of the pool {pool}, on {host}, is not there: start it (`terral \
                     serve` with --pool there goes on with it), or, if that machine is lost, \
                     begin anew without what only it had: --anew"
                );
            }
            if !std::mem::replace(&mut told, true) {
                note(format_args!("waiting for the control of the pool {pool}, on {host}"));
            }
        }
    }

    /// Whether nothing can be left of the partition before.
    fn is_over(&self, before: &Generation) -> bool {
        let never = matches!(before.stage, Stage::Ended | Stage::Claimed);
        never || self.was_here(before) || self.anew
    }

    /// Whether its control was on this machine: where its memory was there is none, it was looked
    /// for before.
    fn was_here(&self, now: &Generation) -> bool {
        now.by.host == self.machine.host && now.by.user == self.machine.user
    }

    /// Whether its control was on this machine, which was started since: nothing of it lives. Where
    /// the machine was up all the time, that server or its programs may be left.
    fn has_begun_since(&self, now: &Generation) -> bool {
        let (before, here) = (&now.by, &self.machine);
        let same = !here.id.is_empty() && before.id == here.id;
        self.was_here(now) && same && before.boot != here.boot
    }

    /// Says to the others that its control is dead, for as long as this server waits. Whether it
    /// was the control still.
    fn says_lost(&self, now: &Generation) -> Result<bool> {
        let lost = Lost { token: now.token, member: now.control, verdict: Verdict::Dead };
        let lease = Some(self.registry.grant(PATIENCE)?);
        let change = Change::Put { key: self.keys.lost(), value: records::write(&lost)?, lease };
        let unchanged = self.generation()?.map(|(_, entry)| entry.changed).unwrap_or_default();
        // If it is not so any more, the next look says so.
        let unchanged = Guard::Unchanged(self.keys.generation(), unchanged);
        if self.registry.commit(&[unchanged], &[change])?.is_none() {
            return Ok(false);
        }
        note(format_args!(
            "the control of the pool {} was on this machine, and its memory is gone: waiting for \
             another server to take over",
            self.name
        ));
        Ok(true)
    }

    fn may_claim(&self) -> Result<bool> {
        Ok(self.generation()?.is_none_or(|(before, _)| self.is_over(&before)))
    }

    /// Who keeps the pool from beginning anew, and what is to be done.
    fn are_there(&self, alive: &[Server], control: Member) -> String {
        let named: Vec<_> = alive.iter().map(|one| one.machine.host.as_str()).collect();
        format!(
            "servers of the partition that the pool {} has are there still, on {}: have one of \
             them take over (`terral fence {} --dead` there), or end them (`terral stop --now` \
             there; what they owe is kept, and brought by the next `terral serve` there)",
            self.name,
            named.join(", "),
            control.number()
        )
    }

    /// Claims the pool, if it may be; nothing if somebody else was faster, or it may not.
    fn claim(&mut self) -> Result<Option<Entered>> {
        let key = self.keys.generation();
        let (number, guard) = match self.generation()? {
            None => (1, Guard::Absent(key.clone())),
            Some((before, _)) if !self.is_over(&before) => return Ok(None),
            Some((before, entry)) => {
                (before.number + 1, Guard::Unchanged(key.clone(), entry.changed))
            }
        };
        ensure!(
            self.role != Some(Role::Compute),
            "the pool {} has no server that keeps files yet: begin it with one of --role storage",
            self.name
        );
        let inherited = self.inherited()?;
        let by = self.machine.clone();
        let token = records::random()?;
        let (stage, control) = (Stage::Claimed, Member::LEAST);
        let generation = Generation { number, by, token, stage, control, replaced: Vec::new() };
        // Who dies before it has begun is in nobody's way once this is over.
        let lease = Some(self.registry.grant(POOL_TERM)?);
        let value = self.machine.host.clone().into_bytes();
        let changes = [
            Change::put(key, records::write(&generation)?),
            Change::Put { key: self.keys.control(), value, lease },
        ];
        let guards = [guard, Guard::Absent(self.keys.control())];
        let claimed = match self.registry.commit(&guards, &changes) {
            // Whether it was done is seen there.
            Err(error) if error.may_retry() => self.has_claimed(token)?,
            claimed => claimed?,
        };
        let Some(revision) = claimed else { return Ok(None) };
        let pool = self.told(generation, revision);
        self.keep_list()?;
        self.note(&pool.generation, control)?;
        if number == 1 {
            note(format_args!("begins the pool {}", self.name));
        } else {
            note(format_args!("begins the pool {} anew, with its containers", self.name));
        }
        let authority = self.role == Some(Role::Authority);
        let part = Part::Control { encrypted: true, authority, inherited: Box::new(inherited) };
        Ok(Some(Entered { pool, part }))
    }

    /// When this server has claimed the pool, if it has.
    fn has_claimed(&mut self, token: u128) -> Result<Option<Revision>> {
        self.look()?;
        let now = self.generation()?.filter(|(now, _)| now.token == token);
        Ok(now.map(|(_, entry)| entry.changed))
    }

    fn kept(&self) -> BTreeMap<String, Vec<u8>> {
        self.keys.parts(self.view.pairs())
    }

    fn inherited(&self) -> Result<Inherited> {
        let inherited = records::inherited(&self.kept());
        inherited.with_context(|| format!("what the pool {} has decided", self.name))
    }

    /// The list of principals of the pool, for a control that is given none.
    fn keep_list(&self) -> Result<()> {
        let text = self.kept().remove(records::PRINCIPALS);
        Ok(text.map_or(Ok(()), |text| records::keep(&self.instance.join(records::LIST), &text))?)
    }

    fn note(&self, generation: &Generation, member: Member) -> Result<()> {
        let noted = Noted {
            pool: self.name.clone(),
            control: self.registry.describe(),
            generation: generation.number,
            token: generation.token,
            member: Some(member),
        };
        Ok(records::keep(&self.instance.join(NOTE), &serde_json::to_vec(&noted)?)?)
    }

    /// Asks to be let in, and is; nothing if the control is gone meanwhile.
    fn come_in(&mut self) -> Result<Option<Entered>> {
        let secret = Secret(records::secret()?);
        let key = records::public_half(&secret);
        let asked = Wanted { machine: self.machine.clone(), key, role: self.role };
        let end = format!("{:032x}", records::random()?);
        let wanted = match self.role {
            Some(Role::Authority) => self.keys.wanted_by_authority(),
            _ => self.keys.wanted(),
        };
        let (wanted, answer) = (wanted + &end, self.keys.invited() + &end);
        // Nobody is let in for who was killed as he asked.
        let lease = self.registry.grant(POOL_TERM)?;
        let put = Change::Put { key: wanted, value: records::write(&asked)?, lease: Some(lease) };
        match self.registry.commit(&[], &[put]) {
            // By another key, once etcd answers.
            Err(error) if error.may_retry() => return Ok(None),
            asked => drop(asked?),
        }
        let mut looked = Instant::now();
        let begin = looked;
        let invited: Invited = loop {
            if looked.elapsed() > POLL * 20 {
                looked = Instant::now();
                self.look()?;
                let is_there = self.view.entry(&self.keys.control()).is_some();
                if !is_there || self.registry.keep(lease).is_ok_and(|is_kept| !is_kept) {
                    let _ = self.registry.end(lease);
                    return Ok(None);
                }
            }
            let view = self.registry.below(&answer).unwrap_or_default();
            if let Some(entry) = view.entry(&answer) {
                break records::read(&entry.key, &entry.value)?;
            }
            if begin.elapsed() > PATIENCE {
                let _ = self.registry.end(lease);
                bail!(
                    "the control of the pool {} lets nobody in since {} s: `terral status` there \
                     (a pool with an authority needs a server of --role storage first)",
                    self.name,
                    PATIENCE.as_secs()
                );
            }
            std::thread::sleep(POLL);
        };
        let _ = self.registry.commit(&[], &[Change::Remove(answer)]);
        let _ = self.registry.end(lease);
        let mut invitation = match invited {
            Ok(invitation) => invitation,
            Err(why) => bail!("the pool {} does not let this server in: {why}", self.name),
        };
        ensure!(invitation.permanent, "the control of the pool brings files nowhere");
        invitation.partition.secret = secret;
        self.look()?;
        let generation = self.generation()?.map(|(now, entry)| (now, entry.changed));
        let Some((generation, revision)) = generation else { bail!("{}: is gone", self.name) };
        if generation.stage != Stage::Begun(invitation.partition.id) {
            bail!("the pool {} has begun anew meanwhile: again", self.name);
        }
        if generation.control != invitation.control.member {
            // It was lost, or has left, with this as its last word: the next one is asked.
            return Ok(None);
        }
        let pool = self.told(generation, revision);
        self.note(&pool.generation, invitation.me)?;
        Ok(Some(Entered { pool, part: Part::Invited(Box::new(invitation)) }))
    }
}

#[cfg(test)]
mod tests;
