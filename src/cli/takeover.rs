//! On what a new server begins: an instance of its own, or what an earlier run left in memory for
//! the same permanent directory, which nobody may be made to miss.
//!
//! Invariant: everything of an earlier run is taken over, or brought, before COMMAND sees the
//! permanent directory. Not here: how it is found (`search`), and what runs on it then.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::Serialize;
use terral_client::Client;
use terral_server::{EVERYWHERE, Left, Options};

use crate::claim::{self, Purpose};
use crate::debt::first_cause;
use crate::instances;
use crate::machine;
use crate::origin::Origin;
use crate::recover::{self, Done};
use crate::report::{note, say};
use crate::search::{Candidate, Found, Place, Search, Wanted};
use crate::server::{Server, Start};
use crate::signals::Signals;
use crate::units::{bytes, plural};

const POLL: Duration = Duration::from_millis(20);
/// A server that was told to leave may finish what it is writing for so long.
const LEAVE: Duration = Duration::from_secs(2);

/// What became of an earlier run's memory.
#[derive(Clone, Debug, Serialize)]
pub struct Earlier {
    /// Name of its instance.
    pub instance: String,
    /// It is the new run's memory now; otherwise it was brought and is gone.
    pub taken_over: bool,
    /// Files and names that the permanent directory lacked.
    pub owed: u64,
    /// Bytes that were brought.
    pub brought_bytes: u64,
    /// Why it could not be taken over.
    pub why: Option<String>,
}

/// Finds where to begin; what an earlier run left is brought before, unless it is taken over.
///
/// # Errors
/// If somebody serves the directory already, or what is left can neither be used nor brought.
pub fn find(wanted: &Wanted<'_>, signals: &Signals) -> Result<(Place, Vec<Earlier>)> {
    machine::check_descriptors()?;
    let search = Search::new(wanted, signals)?;
    let mut earlier = Vec::new();
    let mut waiting_for = None;
    loop {
        match search.look()? {
            Found::New(place) => return Ok((place, earlier)),
            Found::Left(candidates) => {
                if let Some(place) = search.use_up(candidates, &mut earlier)? {
                    return Ok((place, earlier));
                }
            }
            Found::Busy(path) => {
                let (name, holder) = (instances::name_of(&path), search.holder(&path));
                if waiting_for.as_ref() != Some(&path) {
                    note(format_args!("{name}: {holder} is bringing it; waiting for that"));
                    waiting_for = Some(path);
                }
                search.go_on(|| format!("{name}: {holder} is still bringing it"))?;
            }
        }
    }
}

impl Search<'_> {
    /// Takes over the only one, if it will do as it stands; brings all others.
    fn use_up(
        &self,
        candidates: Vec<Candidate>,
        earlier: &mut Vec<Earlier>,
    ) -> Result<Option<Place>> {
        for candidate in &candidates {
            readable(candidate)?;
            self.outlast(candidate)?;
        }
        let there = candidates.into_iter().filter(Candidate::is_there);
        let mut left: Vec<(Candidate, Left)> = Vec::new();
        for candidate in there {
            if let Some(found) = self.examine(&candidate)? {
                left.push((candidate, found));
            }
        }
        if self.wanted.fresh {
            return forget_paid(left).map(|()| None);
        }
        agree(&left)?;
        let alone = left.len() == 1;
        for (candidate, found) in left {
            let why = if alone { self.hindrance(&candidate, &found) } else { Some(SEVERAL.into()) };
            match why {
                None => return self.take_over(candidate, &found, earlier).map(Some),
                Some(why) => earlier.push(self.bring(&candidate, &found, why)?),
            }
        }
        Ok(None)
    }

    /// Waits until no program of an earlier run uses an instance, and no server serves it.
    fn outlast(&self, candidate: &Candidate) -> Result<()> {
        let (path, name) = (&candidate.path, candidate.name());
        claim::outwait_dying(path);
        let pid = terral_server::server_pid(path).and_then(|pid| Pid::from_raw(pid as i32));
        let server = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut told = None;
        while terral_server::is_served(path) {
            let client = Client::observe(path);
            let status = match client.as_ref().map(Client::status) {
                Ok(Ok(status)) => status,
                // It has just ended, or does not answer.
                _ => {
                    self.go_on(|| format!("{name}: its server does not answer"))?;
                    continue;
                }
            };
            let programs = programs(path, status.sessions);
            if programs == 0 {
                let at = *told.get_or_insert_with(Instant::now);
                client.and_then(|client| client.leave()).or_else(|error| {
                    // It has left meanwhile.
                    if terral_server::is_served(path) { Err(error) } else { Ok(()) }
                })?;
                if let (Some(server), true) = (&server, at.elapsed() > LEAVE) {
                    // Whatever it has not done is in memory.
                    let _ = rustix::process::pidfd_send_signal(server, Signal::KILL);
                    claim::outwait_dying(path);
                }
                std::thread::sleep(POLL);
                continue;
            }
            self.wait_for_programs(&name, programs, told.is_none())?;
            told.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    fn wait_for_programs(&self, name: &str, programs: u32, first: bool) -> Result<()> {
        let programs = plural(programs.into(), "process", "processes");
        let what = || format!("{name}: {programs} of an earlier run still use it");
        if first {
            note(format_args!("{}; waiting until they end", what()));
        }
        self.go_on(what)
    }

    fn options(&self, path: &Path) -> Options {
        Options {
            instance: path.to_path_buf(),
            backing: Some(self.wanted.target.to_path_buf()),
            memory_bytes: 0,
            spill: None,
            ready_bytes: Some(0),
            partition: None,
            pool: None,
            listen: EVERYWHERE,
            principals: None,
            launcher: None,
            among_users: false,
        }
    }

    /// What is left in an instance without a server; `None` if it ended.
    fn examine(&self, candidate: &Candidate) -> Result<Option<Left>> {
        let name = candidate.name();
        let explained = || {
            format!(
                "{name}, of an earlier run (`terral recover --forget {name}` gives its data up)"
            )
        };
        loop {
            let found = terral_server::examine(&self.options(&candidate.path));
            let found = found.with_context(explained)?;
            if programs(&candidate.path, found.living as u32) == 0 {
                return Ok(Some(found));
            }
            // Their server is dead, and they wait for one.
            let start = self.start(candidate);
            let server = Server::start(start)?;
            let client = Client::observe(&candidate.path)?;
            let mut first = true;
            let over = loop {
                let programs = programs(&candidate.path, client.status()?.sessions);
                if programs == 0 {
                    break Ok(());
                }
                if let Err(error) = self.wait_for_programs(&name, programs, first) {
                    break Err(error);
                }
                first = false;
            };
            if over.is_err() {
                // It ends with us, and its programs first.
                client.finish()?;
                return over.map(|()| None);
            }
            server.dismiss_soon(&client)?;
            if !candidate.is_there() {
                return Ok(None);
            }
        }
    }

    fn start(&self, candidate: &Candidate) -> Start {
        Start {
            instance: candidate.path.clone(),
            target: Some(self.wanted.target.to_path_buf()),
            memory_bytes: 0,
            spill: None,
            // Nobody will write.
            ready_bytes: Some(0),
            principals: None,
            part: None,
            ends_with_us: true,
            among_users: false,
        }
    }

    /// Why an instance cannot be used as it stands.
    fn hindrance(&self, candidate: &Candidate, found: &Left) -> Option<String> {
        if self.wanted.stale && self.is_wanted(&candidate.path) {
            return Some("its pool has begun anew".into());
        }
        if found.is_member
            && self.is_wanted(&candidate.path)
            && self.wanted.purpose == Purpose::Stay
        {
            // It goes on as the member that it was.
            return None;
        }
        if found.is_member {
            return Some("it was one of several machines".into());
        }
        if self.wanted.several {
            return Some("this run is over several machines".into());
        }
        let prefix = Origin::read(&candidate.path).map(|origin| origin.prefix);
        if prefix.as_deref().is_some_and(|prefix| prefix != self.wanted.prefix) {
            let prefix = prefix.unwrap_or_default();
            return Some(format!("its prefix was {}", prefix.display()));
        }
        if let Some(asked) = self.wanted.memory.filter(|asked| *asked < smaller(found)) {
            let (had, asked) = (bytes(found.memory_bytes), bytes(asked));
            return Some(format!("it has {had} of memory, and --memory says {asked}"));
        }
        let changed = found.changed.as_ref()?;
        Some(format!("{changed} was changed in {} since", self.wanted.target.display()))
    }

    fn take_over(
        &self,
        candidate: Candidate,
        found: &Left,
        earlier: &mut Vec<Earlier>,
    ) -> Result<Place> {
        let Candidate { mut path, claim, .. } = candidate;
        let name = instances::name_of(&path);
        if let Some(wanted) = self.wanted.instance.as_ref().filter(|wanted| **wanted != path) {
            std::fs::rename(&path, wanted)
                .with_context(|| format!("{name}: cannot become {}", wanted.display()))?;
            path.clone_from(wanted);
        }
        self.note(&path)?;
        claim.becomes(self.wanted.purpose)?;
        let owed = found.owed.len() as u64;
        let files = plural(owed, "name is", "names are");
        let target = self.wanted.target.display();
        note(format_args!(
            "{name}: taking over what an earlier run left in memory; {files} not in {target} yet"
        ));
        if self.wanted.memory.is_some_and(|asked| asked > found.memory_bytes) {
            let had = bytes(found.memory_bytes);
            say(format_args!("{name}: keeps its bound of {had}; --memory asks for more, in vain"));
        }
        earlier.push(Earlier {
            instance: name,
            taken_over: true,
            owed,
            brought_bytes: 0,
            why: None,
        });
        Ok(Place { instance: path, claim, memory_bytes: 0 })
    }

    fn bring(&self, candidate: &Candidate, found: &Left, why: String) -> Result<Earlier> {
        let (name, target) = (candidate.name(), self.wanted.target.display());
        note(format_args!("{name}: bringing what an earlier run left to {target} first: {why}"));
        let done =
            recover::bring(self.start(candidate), &candidate.claim, self.signals, self.left());
        match done.with_context(|| name.clone())? {
            Done::Brought(status, true) => Ok(Earlier {
                instance: name,
                taken_over: false,
                owed: found.owed.len() as u64,
                brought_bytes: status.drain.bytes,
                why: Some(why),
            }),
            Done::Brought(status, false) => {
                let failures = first_cause(&status.drain).map(|cause| format!(" ({cause})"));
                let failures = failures.unwrap_or_default();
                bail!(
                    "{name}: not all that an earlier run left could be brought to {target}\
                     {failures}: it stays in memory, `terral recover {name}` brings it"
                )
            }
            Done::Forgotten | Done::ByAnother(_) => bail!("{name}: is gone"),
        }
    }
}

const SEVERAL: &str = "it is not the only one";

/// How many programs of an instance there are at least: those with sessions, or one that has used
/// nothing yet. We, and who runs us, may be such ourselves.
fn programs(instance: &Path, sessions: u32) -> u32 {
    let within = std::env::var_os("TERRAL_INSTANCE").is_some_and(|ours| ours == *instance);
    let idle = || terral_server::program_of(instance).is_some();
    if sessions == 0 && !within && idle() { 1 } else { sessions }
}

/// The least bound that needs as many segments as this instance has.
fn smaller(found: &Left) -> u64 {
    found.memory_bytes.saturating_sub((64 << 20) - 1)
}

/// An error if this program cannot read what is there.
fn readable(candidate: &Candidate) -> Result<()> {
    let ours = terral_server::FORMAT;
    let theirs = match terral_server::format_of(&candidate.path) {
        // Examining it says what is wrong.
        Err(_) => return Ok(()),
        Ok(theirs) if terral_server::reads(theirs) => return Ok(()),
        Ok(theirs) => theirs,
    };
    let name = candidate.name();
    let who = match Origin::read(&candidate.path) {
        Some(origin) if std::env::current_exe().is_ok_and(|own| own != origin.program) => {
            format!("`{} recover {name}` brings it", origin.program.display())
        }
        Some(origin) => format!("`terral recover {name}` of version {} brings it", origin.version),
        None => format!("`terral recover {name}` of the version that made it brings it"),
    };
    bail!(
        "{name}: holds data of an earlier run in format {theirs}, and this terral reads {ours}: \
         {who}, `rm -r {}` gives it up",
        candidate.path.display()
    )
}

/// Removes what owes nothing; an error if something is owed.
fn forget_paid(left: Vec<(Candidate, Left)>) -> Result<()> {
    for (candidate, found) in &left {
        let (name, owed) = (candidate.name(), found.owed.len() as u64);
        if let Some(first) = found.owed.first() {
            let owed = plural(owed, "name", "names");
            let first = String::from_utf8_lossy(first);
            bail!(
                "--fresh: {name} of an earlier run holds {owed} that are nowhere else ({first}): \
                 without --fresh they are used, `terral recover --forget {name}` gives them up"
            );
        }
    }
    for (candidate, _) in &left {
        terral_server::end(&candidate.path).with_context(|| candidate.name())?;
    }
    Ok(())
}

/// An error if two of them owe the same name: nobody can tell which is meant.
fn agree(left: &[(Candidate, Left)]) -> Result<()> {
    let mut seen: Vec<(&Candidate, &BTreeSet<Vec<u8>>)> = Vec::new();
    for (candidate, found) in left {
        for (other, owed) in &seen {
            if let Some(both) = found.owed.intersection(owed).next() {
                let (one, two) = (other.name(), candidate.name());
                let path = String::from_utf8_lossy(both);
                bail!(
                    "{one} (older) and {two} of earlier runs both hold a {path} that is not in the \
                     permanent directory yet: `terral recover` the one that counts last, or \
                     `--forget` the other"
                );
            }
        }
        seen.push((candidate, &found.owed));
    }
    Ok(())
}
