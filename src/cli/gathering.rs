//! The end of a run over several machines: all bring what they owe, and only then all go, as one
//! may need what another has.
//!
//! Invariant: all owe nothing only if all say so twice in a row, and that no program uses them:
//! until then any may be made to owe something by any other's programs, and what one gives back to
//! another that has said so already is owed there. Not here: what one machine does (`host`).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use terral_client::{Client, Losses, LostFile, Status, Totals};

use crate::debt::add_drain;
use crate::progress::{Patience, Progress, status_if_answered};
use crate::remote::Machine;
use crate::signals::Signals;
use crate::words::Order;

/// Machines are asked this often at most.
const POLL: Duration = Duration::from_millis(200);
/// How often it is looked whether one has answered.
const LOOK: Duration = Duration::from_millis(1);

/// How far all are.
pub struct Gathered {
    /// Of all machines together, those that are gone not included.
    pub status: Box<Status>,
    /// All is in the permanent directory, of those that are there.
    pub paid: bool,
    /// Machines that are gone; what only their memory had may be missing.
    pub lost: Vec<String>,
}

/// A wait for all of them.
pub struct Gathering<'a> {
    /// The first machine's server.
    pub client: &'a Client,
    /// The others.
    pub others: &'a mut Vec<Machine>,
    /// Two of them end the wait.
    pub signals: &'a Signals,
    /// It lasts so long at most.
    pub limit: Option<Duration>,
}

/// A wait that has begun.
struct Wait<'a> {
    patience: Patience<'a>,
    told: Option<u64>,
    progress: Progress,
}

impl Gathering<'_> {
    /// Tells all to finish, and waits until none owes anything and no program uses any. The first
    /// signal that comes meanwhile only says what the next will do.
    ///
    /// # Errors
    /// If this machine's server is gone for good.
    pub fn pay_off(mut self) -> Result<Gathered> {
        let patience = Patience::new(self.signals, self.limit);
        let mut wait = Wait { patience, told: None, progress: Progress::new() };
        let (mut lost, mut rested) = (Vec::new(), false);
        let mut pause = LOOK;
        loop {
            let (told, progress) = (&mut wait.told, &mut wait.progress);
            let here = status_if_answered(self.client, Client::finish, told, progress)?;
            let answered = self.ask(&mut wait, &mut lost);
            let Some(here) = here else {
                if answered {
                    continue;
                }
                bail!("the server of this machine does not answer");
            };
            let others =
                self.others.iter().filter_map(|one| Some((&*one.host, one.status.as_deref()?)));
            let status = Box::new(whole(here, others));
            let rests = status.drain.settled && status.sessions == 0;
            let paid = rests && rested;
            if paid || !answered {
                wait.progress.clear();
                return Ok(Gathered { status, paid, lost });
            }
            rested = rests;
            wait.progress.update(&status, status.sessions);
            std::thread::sleep(pause);
            pause = (pause * 2).min(POLL);
        }
    }

    /// Asks each other machine how far it is, and waits until all have said it. Those that are gone
    /// are none any more. False: patience was over before.
    fn ask(&mut self, wait: &mut Wait<'_>, lost: &mut Vec<String>) -> bool {
        for one in self.others.iter_mut() {
            one.answered = false;
            one.tell(Order::Finish);
        }
        loop {
            for at in (0..self.others.len()).rev() {
                if !self.others[at].hear() {
                    wait.progress.clear();
                    lost.push(self.others.remove(at).gone());
                } else if std::mem::take(&mut self.others[at].silent) {
                    wait.progress.is_silent(Some(&self.others[at].host));
                    self.others[at].tell(Order::Finish);
                }
            }
            if wait.patience.is_over(&mut wait.progress) {
                return false;
            }
            if self.others.iter().all(|one| one.answered) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// All machines as if they were one; conflicts and warnings say whose they are.
fn whole<'s>(here: Status, others: impl Iterator<Item = (&'s str, &'s Status)>) -> Status {
    let mut all = here;
    for (host, one) in others {
        all.sessions += one.sessions;
        all.files = all.files.max(one.files);
        all.open += one.open;
        all.memory_bound_bytes += one.memory_bound_bytes;
        all.memory_used_bytes += one.memory_used_bytes;
        all.memory_warm_bytes += one.memory_warm_bytes;
        all.spilled_bytes += one.spilled_bytes;
        add_totals(&mut all.totals, &one.totals);
        add_drain(&mut all.drain, &one.drain, host);
        if let (Some(all), Some(one)) = (&mut all.partition, &one.partition) {
            add_losses(&mut all.losses, &one.losses);
        }
        all.warnings.extend(one.warnings.iter().map(|warning| format!("{host}: {warning}")));
    }
    all
}

/// Several may know the same: as who has seen it last says.
fn add_losses(all: &mut Losses, one: &Losses) {
    let mut files: BTreeMap<String, LostFile> =
        all.files.drain(..).map(|file| (file.path.clone(), file)).collect();
    for file in &one.files {
        let known = files.entry(file.path.clone()).or_insert_with(|| file.clone());
        if (known.size.is_some(), known.modified_ns) < (file.size.is_some(), file.modified_ns) {
            known.clone_from(file);
        }
    }
    all.files = files.into_values().collect();
    all.count = all.count.max(one.count).max(all.files.len() as u64);
    for restored in &one.restored {
        if !all.restored.contains(restored) {
            all.restored.push(restored.clone());
        }
    }
}

fn add_totals(all: &mut Totals, one: &Totals) {
    all.sessions += one.sessions;
    all.opens += one.opens;
    all.reads += one.reads;
    all.writes += one.writes;
    all.read_bytes += one.read_bytes;
    all.written_bytes += one.written_bytes;
    all.read_ns += one.read_ns;
    all.write_ns += one.write_ns;
    all.other_ns += one.other_ns;
}
