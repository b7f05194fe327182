//! The instances of one permanent directory on this machine: looked for, and taken charge of.
//!
//! Invariant: looking and taking charge are one step among all `terral` of a user. Not here: what
//! becomes of what is found (`takeover`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};

use crate::claim::{self, Claim, Purpose, Standing};
use crate::instances;
use crate::machine;
use crate::origin::{Identity, Origin};
use crate::signals::Signals;
use crate::units::duration;

const POLL: Duration = Duration::from_millis(20);
/// The lock of all instances is held for moments only.
const TURN: Duration = Duration::from_secs(30);

/// What a server is to begin on.
pub struct Wanted<'a> {
    /// The permanent directory, by its path now.
    pub target: &'a Path,
    /// Where programs are to see it.
    pub prefix: &'a Path,
    /// The bound of memory that was asked for.
    pub memory: Option<u64>,
    /// The instance that is to be begun on, if it shall have a name of its own.
    pub instance: Option<PathBuf>,
    /// Another server may serve that directory at the same time.
    pub beside: bool,
    /// What it is for.
    pub purpose: Purpose,
    /// It is to be one of the servers of several machines, which begin with nothing.
    pub several: bool,
    /// What the wanted instance has left is of a partition that is over, if there is something.
    pub stale: bool,
    /// Nothing of an earlier run is to be used.
    pub fresh: bool,
    /// Others are waited for so long at most.
    pub limit: Option<Duration>,
}

/// Where a server begins.
pub struct Place {
    /// The directory of the instance.
    pub instance: PathBuf,
    /// Being in charge of it.
    pub claim: Claim,
    /// The bound of memory of a new instance; 0 if it was taken over.
    pub memory_bytes: u64,
}

/// An instance of the same permanent directory.
pub struct Candidate {
    /// Its directory.
    pub path: PathBuf,
    /// Being in charge of it.
    pub claim: Claim,
    since: SystemTime,
}

impl Candidate {
    /// The name by which people call it.
    pub fn name(&self) -> String {
        instances::name_of(&self.path)
    }

    /// Whether it has not ended.
    pub fn is_there(&self) -> bool {
        self.path.join("log").exists()
    }
}

/// What the look at all instances gives.
pub enum Found {
    /// Nothing is in the way.
    New(Place),
    /// These are left, and ours now.
    Left(Vec<Candidate>),
    /// This one is being brought by another process.
    Busy(PathBuf),
}

/// A search for all instances of one permanent directory.
pub struct Search<'a> {
    /// What for.
    pub wanted: &'a Wanted<'a>,
    identity: Identity,
    /// They end it.
    pub signals: &'a Signals,
    begin: Instant,
}

impl<'a> Search<'a> {
    /// Begins.
    pub fn new(wanted: &'a Wanted<'a>, signals: &'a Signals) -> Result<Self> {
        let identity = Identity::of(wanted.target)?;
        Ok(Search { wanted, identity, signals, begin: Instant::now() })
    }

    /// Who is in charge of an instance, for people.
    pub fn holder(&self, path: &Path) -> String {
        holder(path)
    }

    /// How long may still be waited.
    pub fn left(&self) -> Option<Duration> {
        self.wanted.limit.map(|limit| limit.saturating_sub(self.begin.elapsed()))
    }

    /// A moment of a wait; an error if it is over.
    pub fn go_on(&self, what: impl Fn() -> String) -> Result<()> {
        if self.signals.count() > 0 {
            bail!("{}; not waiting any longer, since a signal came", what());
        }
        if let (Some(limit), Some(true)) = (self.wanted.limit, self.left().map(|l| l.is_zero())) {
            bail!("{} after {} (--wait-timeout)", what(), duration(limit));
        }
        std::thread::sleep(POLL);
        Ok(())
    }

    /// Looks at all of them, and takes charge of what is left.
    pub fn look(&self) -> Result<Found> {
        let _turn = turn()?;
        let mut candidates = Vec::new();
        for path in instances::directories() {
            let Some(ours) = self.is_ours(&path)? else { continue };
            match claim::standing(&path) {
                // Killed before there was anything in it.
                Standing::Left if !path.join("log").exists() => {
                    let _ = terral_server::remove(&path);
                }
                Standing::Held if self.wanted.beside && !self.is_wanted(&path) => {}
                Standing::Held => bail!(self.refusal(&path)),
                Standing::Brought => return Ok(Found::Busy(path)),
                Standing::Finishing | Standing::Left if !ours => bail!(self.estranged(&path)),
                Standing::Finishing | Standing::Left => {
                    let Some(claim) = Claim::take(&path, Purpose::Bring)? else { continue };
                    let since = std::fs::metadata(path.join("to")).and_then(|to| to.modified());
                    let since = since.unwrap_or(SystemTime::UNIX_EPOCH);
                    candidates.push(Candidate { path, claim, since });
                }
            }
        }
        if candidates.is_empty() {
            return self.make().map(Found::New);
        }
        candidates.sort_by_key(|candidate| candidate.since);
        Ok(Found::Left(candidates))
    }

    /// Whether an instance is for the directory wanted; `Some(false)` if only its path is the same.
    fn is_ours(&self, path: &Path) -> Result<Option<bool>> {
        let same_path = instances::target(path).is_some_and(|to| to == self.wanted.target);
        Ok(match Origin::read(path) {
            Some(origin) if origin.is_for(&self.identity) => Some(true),
            Some(_) => same_path.then_some(false),
            None => same_path.then_some(true),
        })
    }

    /// Whether this is the instance that was asked for.
    pub fn is_wanted(&self, path: &Path) -> bool {
        self.wanted.instance.as_deref() == Some(path)
    }

    fn refusal(&self, path: &Path) -> String {
        let (name, holder) = (instances::name_of(path), self.holder(path));
        let target = self.wanted.target.display();
        format!(
            "{target} is served already, by {name} ({holder}): `terral run --instance {name} -- \
             COMMAND` uses that server; if a second one is meant, give it a name of its own \
             (`run --to DIR --instance NAME`, `serve --to DIR --name NAME`)"
        )
    }

    fn estranged(&self, path: &Path) -> String {
        let (name, target) = (instances::name_of(path), self.wanted.target.display());
        format!(
            "{name} holds data for the directory that was {target} before this one: `terral \
             recover {name}` brings it here, `terral recover --forget {name}` gives it up"
        )
    }

    fn make(&self) -> Result<Place> {
        let instance = self.wanted.instance.clone();
        let instance = instance.unwrap_or_else(|| instances::base().join(instances::fresh_name()));
        let place = make(instance, self.wanted.memory, self.wanted.purpose)?;
        self.note(&place.instance)?;
        Ok(place)
    }

    /// Says in an instance what it is for.
    pub fn note(&self, instance: &Path) -> Result<()> {
        instances::note_target(instance, self.wanted.target)?;
        Origin::new(&self.identity, self.wanted.prefix).note(instance)
    }
}

/// Makes a new place, which is for nothing yet: in one's [`turn`].
///
/// # Errors
/// If something is there; if memory is short.
pub fn make(instance: PathBuf, memory: Option<u64>, purpose: Purpose) -> Result<Place> {
    let memory_bytes = machine::memory_bound(memory)?;
    let name = instances::name_of(&instance);
    let for_what = instances::target(&instance).unwrap_or_default();
    if terral_server::is_served(&instance) {
        bail!("{name}: serves {} already: give this one another name", for_what.display());
    }
    if instance.join("log").exists() {
        bail!(
            "{name}: holds data for {}: `terral recover {name}` first, or another name",
            for_what.display()
        );
    }
    if instances::is_foreign(&instance) {
        let shown = instance.display();
        bail!("{shown}: exists, and is no instance of Terral's: give another name");
    }
    instances::make(&instance)?;
    let Some(claim) = Claim::take(&instance, purpose)? else {
        bail!("{name}: {} has just taken it: give this one another name", holder(&instance));
    };
    Ok(Place { instance, claim, memory_bytes })
}

/// Who is in charge of an instance, for people.
fn holder(path: &Path) -> String {
    let pid = claim::holder(path).map(|(pid, _)| pid).or(terral_server::server_pid(path));
    pid.map_or_else(|| "somebody".into(), |pid| format!("process {pid}"))
}

/// One `terral` of a user at a time looks at all instances.
///
/// # Errors
/// If another one has it for very long.
pub fn turn() -> Result<std::fs::File> {
    instances::make(&instances::base())?;
    let path = instances::base().join(".lock");
    let begin = Instant::now();
    loop {
        if let Some(turn) = terral_server::hold(&path)? {
            return Ok(turn);
        }
        if begin.elapsed() > TURN {
            bail!("{}: another terral has held this for long: is it stopped?", path.display());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
