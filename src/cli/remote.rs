//! Another machine of a run, as the launcher has it: the command that reached it, and what the two
//! say to each other. Not here: what it does there (`host`).

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use terral_client::Status;
use terral_server::Invitation;

use crate::batch;
use crate::entrance;
use crate::heard::Wanted;
use crate::report::{is_quiet, say};
use crate::supply::Supply;
use crate::voice::Voice;
use crate::words::{End, Order, Part, Report, hear};

/// How other machines are reached, unless `TERRAL_RSH` says otherwise. One that is silent for a
/// minute is gone.
const RSH: &str = "ssh -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=4";
/// How those of a job of Slurm are: in a step of Terral's own, which takes nothing from the others
/// and does not end with them. The host follows.
const SRUN: &str = "srun --overlap --nodes=1 --ntasks=1 --mem=0 --cpu-bind=none --mpi=none \
                    --unbuffered --quiet --nodelist";
const POLL: Duration = Duration::from_millis(5);
/// Who is gone, and whose pipe others keep open, is heard for so long.
const LAST: Duration = Duration::from_secs(1);
const AT_ONCE: Duration = Duration::ZERO;
/// So much may be said that was not taken in yet.
const SAID_MOST: usize = 64;

/// What a machine is to serve.
pub struct Service<'a> {
    /// Name of the instance.
    pub name: &'a str,
    /// Whether somebody gave it that name, so that it may serve the directory beside another one.
    pub named: bool,
    /// The permanent directory, if there is one.
    pub target: Option<&'a Path>,
    /// Where programs see the files.
    pub prefix: &'a Path,
    /// Most memory.
    pub memory: Option<u64>,
    /// Kept ready.
    pub ready: Option<u64>,
    /// Where others reach it; 0 is any that is free.
    pub port: u16,
    /// Over which interface they come, if it matters.
    pub interface: Option<&'a str>,
}

/// Another machine of the run.
pub struct Machine {
    /// How it is called.
    pub host: String,
    /// What its server said last.
    pub status: Option<Box<Status>>,
    /// Whether it has said so since it was asked.
    pub answered: bool,
    /// Whether its server is there and did not answer.
    pub silent: bool,
    /// How it ended, once it has.
    pub end: Option<End>,
    /// Why it could not go on, if it says so.
    pub failed: Option<String>,
    /// What it was to go on with is gone there.
    pub forgot: bool,
    /// How far it has come.
    pub stage: Stage,
    /// Whether programs there find the library at the place to which it is sent.
    pub ahead: bool,
    /// Bytes sent, and since when it is so many.
    moved: (u64, Instant),
    supply: Arc<Supply>,
    /// As which member.
    pub invited: Invitation,
    /// Until it is reached.
    invitation: Option<String>,
    /// What has reached it; none where it has come by itself.
    child: Option<Child>,
    voice: Option<Voice>,
    /// It was told to end.
    over: Arc<AtomicBool>,
    said: mpsc::Receiver<Report>,
    wanted: Wanted,
}

/// The way to a machine that has come by itself: it is over for both when nothing more is said.
struct Way(UnixStream);

impl Write for Way {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// How far a machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is heard of it yet.
    Dialed,
    /// It lacks this `terral`, which is sent to it.
    Sent,
    /// It was reached.
    Reached,
    /// Its server runs.
    Serves,
}

/// What reaches a machine, whose name follows; and what comes before the command line then.
fn how() -> (String, &'static [&'static str]) {
    match std::env::var("TERRAL_RSH") {
        Ok(shell) => (shell, &[]),
        Err(_) if batch::is_slurm() => (SRUN.into(), &["sh", "-c"]),
        Err(_) => (RSH.into(), &[]),
    }
}

/// What has a machine carry out a command line. It is in a process group of its own: Ctrl-C is for
/// who has begun it.
///
/// # Errors
/// If `TERRAL_RSH` is empty.
pub fn command(host: &str, line: OsString) -> Result<Command> {
    let (shell, runs) = how();
    let mut words = shell.split_whitespace();
    let mut command = Command::new(words.next().context("TERRAL_RSH is empty")?);
    command.args(words).arg(host).args(runs).arg(line);
    command.process_group(0);
    Ok(command)
}

impl Service<'_> {
    /// The words that have `terral` serve it.
    pub fn words(&self, supply: &Supply) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["host".into()];
        words.extend(is_quiet().then(|| "--quiet".into()));
        words.extend(["--name".into(), self.name.into(), "--prefix".into(), self.prefix.into()]);
        words.extend(self.named.then(|| "--beside".into()));
        words.extend(self.target.into_iter().flat_map(|to| ["--to".into(), to.into()]));
        for (option, bytes) in [("--memory", self.memory), ("--ready", self.ready)] {
            words.extend(bytes.iter().flat_map(|bytes| [option.into(), bytes.to_string().into()]));
        }
        words.extend(["--port".into(), self.port.to_string().into()]);
        words.extend(self.interface.iter().map(|name| format!("--interface={name}").into()));
        let ahead = &supply.ahead;
        words.extend(["--build".into(), (&ahead.id).into()]);
        words.extend(["--ahead".into(), (&ahead.home).into()]);
        words
    }
}

/// Who hears what a machine says, and says at once if it says nothing any more.
struct Listener {
    host: String,
    instance: String,
    /// It is a user's: he may say what he likes, and comes again.
    of_user: bool,
    over: Arc<AtomicBool>,
}

impl Listener {
    fn listen(&self, from: &mut impl BufRead, says: &mpsc::SyncSender<Report>) {
        let (mut serves, mut ended) = (false, false);
        while let Some(report) = hear(from) {
            serves |= matches!(report, Report::Serves);
            ended |= matches!(report, Report::Ended(_) | Report::Failed(_) | Report::Gone);
            let report = if self.of_user { report.of_user() } else { Some(report) };
            report.into_iter().for_each(|report| drop(says.send(report)));
        }
        if serves && !ended && !self.of_user && !self.over.load(Ordering::SeqCst) {
            self.is_lost();
        }
    }

    /// That a session has ended proves nothing: the machine may serve on.
    fn is_lost(&self) {
        let Listener { host, instance, .. } = self;
        say(format_args!(
            "{host}: its `terral host` was lost, or the way there: who needs what it has waits for \
             it. If it is down: `terral fence {host} --dead --instance {instance}` here; if it may \
             go on, without --dead"
        ));
    }
}

/// What waits to be heard of a machine, and whether nothing more comes. Of one that is `gone` that
/// is waited for, but not for long: others may have its pipe open.
fn taken(said: &mpsc::Receiver<Report>, gone: bool) -> (Vec<Report>, bool) {
    let (until, mut all) = (Instant::now() + LAST, Vec::new());
    while all.len() <= SAID_MOST {
        let left = if gone { until.saturating_duration_since(Instant::now()) } else { AT_ONCE };
        match said.recv_timeout(left) {
            Ok(report) => all.push(report),
            Err(mpsc::RecvTimeoutError::Timeout) => return (all, false),
            Err(mpsc::RecvTimeoutError::Disconnected) => return (all, true),
        }
    }
    (all, false)
}

impl Machine {
    /// Has a server started there, which will join by this invitation, once it was reached.
    ///
    /// # Errors
    /// If the command that reaches it cannot be started.
    pub fn start(
        host: &str,
        service: &Service<'_>,
        supply: &Arc<Supply>,
        invitation: String,
    ) -> Result<Self> {
        let command = command(host, entrance::line(supply, &service.words(supply)))?;
        Machine::begun_by(command, (host, service.name, false), supply, invitation)
    }

    /// The same by this command, which may become a user's process.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begun_by(
        mut command: Command,
        (host, instance, of_user): (&str, &str, bool),
        supply: &Arc<Supply>,
        invitation: String,
    ) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = command.get_program().to_owned();
        // What may fail comes before there is a process, or that is ended.
        let mut machine = Machine::new(host, supply, invitation)?;
        let child = command.spawn().with_context(|| format!("{host}: {}", program.display()))?;
        let child = machine.child.insert(child);
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let ways = stdin.zip(stdout).context("no way to it").and_then(|(stdin, stdout)| {
            let stdout = machine.wanted.of(stdout);
            machine.listen((instance, of_user), BufReader::new(stdout))?;
            Ok(Voice::new(stdin)?)
        });
        match ways {
            Ok(voice) => machine.voice = Some(voice),
            Err(error) => {
                machine.kill();
                return Err(error);
            }
        }
        Ok(machine)
    }

    /// Its process is no more, and nothing is left of it.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// One that has come by itself, by this way: it is reached.
    ///
    /// # Errors
    /// If the invitation is none.
    pub fn come(
        host: &str,
        instance: &str,
        (from, to): (BufReader<UnixStream>, UnixStream),
        supply: &Arc<Supply>,
        invitation: String,
    ) -> Result<Self> {
        let mut machine = Machine::new(host, supply, invitation)?;
        machine.listen((instance, false), from)?;
        let voice = Some(Voice::new(Way(to))?);
        Ok(Machine { stage: Stage::Reached, voice, ..machine })
    }

    fn new(host: &str, supply: &Arc<Supply>, invitation: String) -> Result<Self> {
        Ok(Machine {
            host: host.into(),
            status: None,
            answered: false,
            silent: false,
            end: None,
            failed: None,
            forgot: false,
            stage: Stage::Dialed,
            ahead: false,
            moved: (0, Instant::now()),
            supply: supply.clone(),
            invited: Invitation::of(&invitation)?,
            invitation: Some(invitation),
            child: None,
            voice: None,
            over: Arc::new(AtomicBool::new(false)),
            said: mpsc::channel().1,
            wanted: Wanted::default(),
        })
    }

    /// Hears what it says.
    fn listen(
        &mut self,
        (instance, of_user): (&str, bool),
        mut from: impl BufRead + Send + 'static,
    ) -> std::io::Result<()> {
        // One that says more than is heard waits.
        let (says, said) = mpsc::sync_channel(SAID_MOST);
        let (host, over) = (self.host.clone(), self.over.clone());
        let listener = Listener { host, instance: instance.into(), of_user, over };
        std::thread::Builder::new().spawn(move || listener.listen(&mut from, &says))?;
        self.said = said;
        Ok(())
    }

    /// Takes in what it has said, as far as that waits now. False: it is gone, and has said all; or
    /// what it has left behind has its pipe open still, and is not waited for.
    pub fn hear(&mut self) -> bool {
        let gone = self.has_ended();
        let (said, ended) = taken(&self.said, gone);
        said.into_iter().for_each(|report| self.take(report));
        !gone && (!ended || self.child.is_some())
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Wants(part) => self.send(part),
            Report::Begins(ahead) => self.begin(ahead),
            Report::Serves => self.stage = Stage::Serves,
            Report::Ahead => self.ahead = true,
            Report::Far(status) => (self.status, self.answered) = (Some(status), true),
            Report::Silent => self.silent = true,
            Report::Ended(end) => self.end = Some(end),
            Report::Failed(why) => self.failed = Some(why),
            Report::Gone => self.forgot = true,
        }
    }

    /// It lacks something of ours.
    fn send(&mut self, part: Part) {
        self.stage = Stage::Sent;
        match (self.supply.part(part), &self.voice) {
            (Ok(sealed), Some(voice)) => voice.file(sealed),
            (Err(error), _) => self.failed = Some(format!("{error:#}")),
            (Ok(_), None) => {}
        }
    }

    /// It was reached, with its library where it is here, or ahead.
    fn begin(&mut self, ahead: bool) {
        (self.stage, self.ahead) = (Stage::Reached, ahead);
        if let (Some(voice), Some(invitation)) = (&self.voice, self.invitation.take()) {
            voice.line(invitation.as_bytes());
        }
    }

    /// Since when nothing has come of it, or gone to it, while it is not reached.
    pub fn waited(&mut self) -> Duration {
        let bytes = self.voice.as_ref().map_or(0, Voice::bytes);
        if self.moved.0 != bytes {
            self.moved = (bytes, Instant::now());
        }
        let reached = ![Stage::Dialed, Stage::Sent].contains(&self.stage);
        if reached { Duration::ZERO } else { self.moved.1.elapsed() }
    }

    fn has_ended(&mut self) -> bool {
        let ended = |child: &mut Child| child.try_wait().map_or(true, |status| status.is_some());
        self.child.as_mut().is_some_and(ended)
    }

    /// Tells it something, if it was reached; else it hears that there is nothing more. One that is
    /// gone is seen to be.
    pub fn tell(&mut self, order: Order) {
        let ends = matches!(order, Order::End | Order::Keep | Order::Leave);
        self.over.fetch_or(ends, Ordering::SeqCst);
        if [Stage::Dialed, Stage::Sent].contains(&self.stage) {
            self.voice = None;
        }
        if let (Some(voice), Ok(words)) = (&self.voice, serde_json::to_vec(&order)) {
            voice.line(&words);
        }
    }

    /// It is gone, which nobody told it to: says so, and gives its name.
    pub fn gone(self) -> String {
        let why = self.failed.map(|why| format!(": {why}")).unwrap_or_default();
        say(format_args!("{}: gone{why}", self.host));
        self.host
    }

    /// Waits until it has gone, or is not waited for any longer.
    pub fn outwait(&mut self, until: Instant) {
        while self.hear() {
            if Instant::now() > until {
                say(format_args!("{}: does not end: look there for `terral host`", self.host));
                return self.kill();
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests;
