//! The end of a run over several machines: all bring what they owe, and only then all go, as one
//! may need what another has.
//!
//! Invariant: all owe nothing only if all say so twice in a row, and that no program uses them:
//! until then any may be made to owe something by any other's programs, and what one gives back to
//! another that has said so already is owed there. Not here: what one machine does (`host`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use terral_client::{Client, Losses, LostFile, Status, Totals};

use crate::debt::{add_all, add_drain};
use crate::progress::{Patience, Progress, status_if_answered};
use crate::remote::Machine;
use crate::signals::Signals;
use crate::words::Order;

/// Machines are asked this often at most.
const POLL: Duration = Duration::from_millis(200);
/// One that is told to go, with what it has, has so long for that.
const LEAVING: Duration = Duration::from_secs(5);
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
    /// One that says nothing for so long, or owes no less than before, is as if it were gone.
    pub deaf: Option<Duration>,
}

/// A wait that has begun.
struct Wait<'a> {
    patience: Patience<'a>,
    told: Option<u64>,
    progress: Progress,
    stands: Standstill,
}

/// Who gets no further.
#[derive(Default)]
struct Standstill(BTreeMap<String, Standing>);

/// How far one of the others is.
pub struct Standing {
    /// The least that it has owed.
    least: u64,
    /// For how long it has owed something since then, and no less. That it owes nothing in between
    /// is no progress: it may say so, and something else, in turn.
    owing: Duration,
    looked: Instant,
}

impl Standing {
    /// Of one that owes so much, and is looked at the first time.
    pub fn first(owed: u64, now: Instant) -> Self {
        Standing { least: owed, owing: Duration::ZERO, looked: now }
    }

    /// Whether it has owed no less for so long, now that it owes so much.
    pub fn is(&mut self, owed: u64, now: Instant, deaf: Duration) -> bool {
        let passed = now.duration_since(self.looked);
        self.looked = now;
        match owed {
            owed if owed < self.least => (self.least, self.owing) = (owed, Duration::ZERO),
            0 => {}
            _ => self.owing += passed,
        }
        self.owing > deaf
    }
}

impl Standstill {
    /// Whether one that owes so much has owed no less for so long.
    fn is(&mut self, host: &str, owed: u64, now: Instant, deaf: Duration) -> bool {
        let first = || Standing::first(owed, now);
        self.0.entry(host.to_owned()).or_insert_with(first).is(owed, now, deaf)
    }
}

/// How much a machine owes, and has running, in one number.
pub fn owed(status: &Status) -> u64 {
    let drain = &status.drain;
    let all = [drain.owed_bytes, drain.owed_names, drain.owed_files, status.sessions.into()];
    all.iter().fold(u64::from(!drain.settled), |sum, one| sum.saturating_add(*one))
}

impl Gathering<'_> {
    /// Tells all to finish, and waits until none owes anything and no program uses any. The first
    /// signal that comes meanwhile only says what the next will do.
    ///
    /// # Errors
    /// If this machine's server is gone for good.
    pub fn pay_off(mut self) -> Result<Gathered> {
        let patience = Patience::new(self.signals, self.limit);
        let mut wait =
            Wait { patience, told: None, progress: Progress::new(), stands: Standstill::default() };
        let (mut lost, mut rested) = (Vec::new(), false);
        let mut pause = LOOK;
        loop {
            self.leave_who_stands(&mut wait, &mut lost);
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

    /// Those that get no further are none any more: what they owe stays in their memory.
    fn leave_who_stands(&mut self, wait: &mut Wait<'_>, lost: &mut Vec<String>) {
        let Some(deaf) = self.deaf else { return };
        for at in (0..self.others.len()).rev() {
            let one = &mut self.others[at];
            let Some(owed) = one.status.as_deref().map(owed) else { continue };
            if wait.stands.is(&one.host, owed, Instant::now(), deaf) {
                wait.progress.clear();
                one.failed = Some("it gets no further, and is not waited for".into());
                one.tell(Order::Keep);
                one.outwait(Instant::now() + LEAVING);
                lost.push(self.others.remove(at).gone());
            }
        }
    }

    /// Asks each other machine how far it is, and waits until all have said it. Those that are gone
    /// are none any more. False: patience was over before.
    fn ask(&mut self, wait: &mut Wait<'_>, lost: &mut Vec<String>) -> bool {
        for one in self.others.iter_mut() {
            one.answered = false;
            one.tell(Order::Finish);
        }
        let begin = Instant::now();
        loop {
            let is_late = self.deaf.is_some_and(|deaf| begin.elapsed() > deaf);
            for at in (0..self.others.len()).rev() {
                let is_there = self.others[at].hear();
                let is_deaf = is_there && is_late && !self.others[at].answered;
                if is_deaf {
                    self.others[at].tell(Order::Keep);
                    self.others[at].outwait(Instant::now());
                }
                if !is_there || is_deaf {
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
        all.sessions = all.sessions.saturating_add(one.sessions);
        all.files = all.files.max(one.files);
        add_all([
            (&mut all.open, one.open),
            (&mut all.memory_bound_bytes, one.memory_bound_bytes),
            (&mut all.memory_used_bytes, one.memory_used_bytes),
            (&mut all.memory_warm_bytes, one.memory_warm_bytes),
            (&mut all.spilled_bytes, one.spilled_bytes),
        ]);
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
    add_all([
        (&mut all.sessions, one.sessions),
        (&mut all.opens, one.opens),
        (&mut all.reads, one.reads),
        (&mut all.writes, one.writes),
        (&mut all.read_bytes, one.read_bytes),
        (&mut all.written_bytes, one.written_bytes),
        (&mut all.read_ns, one.read_ns),
        (&mut all.write_ns, one.write_ns),
        (&mut all.other_ns, one.other_ns),
    ]);
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Standstill};

    #[test]
    fn who_owes_no_less_for_long_is_not_waited_for_and_who_gets_on_is() {
        let (begin, deaf) = (Instant::now(), Duration::from_secs(60));
        let mut stands = Standstill::default();
        let mut is = |host, owed, s| stands.is(host, owed, begin + Duration::from_secs(s), deaf);
        assert!(!is("stands", 5, 0) && !is("goes", 50, 0) && !is("owes nothing", 0, 0));
        for s in (10..=60).step_by(10) {
            // What comes and goes is no progress.
            assert!(!is("stands", 5 + s % 20, s) && !is("goes", 50 - s / 10, s));
            assert!(!is("owes nothing", 0, s));
        }
        assert!(is("stands", 9, 61) && !is("goes", 10, 61) && !is("owes nothing", 0, 600));
    }

    #[test]
    fn who_owes_something_and_nothing_in_turn_gets_no_further() {
        let (begin, deaf) = (Instant::now(), Duration::from_secs(60));
        let mut stands = Standstill::default();
        let owes = |s: u64| 1 - s % 2;
        let mut is = |s| stands.is("in turn", owes(s), begin + Duration::from_secs(s), deaf);
        assert!((0..100).all(|s| !is(s)));
        assert!((100..140).any(is), "it is waited for, for ever");
    }
}
