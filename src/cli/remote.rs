//! Another machine of a run, as the launcher has it: the command that reached it, and what the two
//! say to each other. Not here: what it does there (`host`).

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use terral_client::Status;

use crate::batch;
use crate::report::{is_quiet, say};
use crate::words::{End, Order, Report, hear, speak};

/// How other machines are reached, unless `TERRAL_RSH` says otherwise. One that is silent for a
/// minute is gone.
const RSH: &str = "ssh -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=4";
/// How those of a job of Slurm are: in a step of Terral's own, which takes nothing from the others
/// and does not end with them. The host follows.
const SRUN: &str = "srun --overlap --nodes=1 --ntasks=1 --mem=0 --cpu-bind=none --mpi=none \
                    --unbuffered --quiet --nodelist";
const POLL: Duration = Duration::from_millis(5);

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
}

/// Another machine of the run.
pub struct Machine {
    /// How it is called.
    pub host: String,
    /// What its server said last.
    pub status: Option<Box<Status>>,
    /// Whether its server is there and did not answer.
    pub silent: bool,
    /// How it ended, once it has.
    pub end: Option<End>,
    /// Why it could not go on, if it says so.
    pub failed: Option<String>,
    /// How far it has come.
    pub stage: Stage,
    child: Child,
    stdin: Option<ChildStdin>,
    /// It was told to end.
    over: Arc<AtomicBool>,
    said: mpsc::Receiver<Report>,
}

/// How far a machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is heard of it yet.
    Dialed,
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

/// One word of a command line that a shell reads.
fn quoted(word: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(byte);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return bytes.to_vec();
    }
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\'').collect();
    [b"'", parts.join(&b"'\\''"[..]).as_slice(), b"'"].concat()
}

impl Service<'_> {
    /// The command line that serves it.
    fn line(&self, program: &Path) -> OsString {
        let mut words: Vec<OsString> = vec![program.into(), "host".into()];
        words.extend(is_quiet().then(|| "--quiet".into()));
        words.extend(["--name".into(), self.name.into(), "--prefix".into(), self.prefix.into()]);
        words.extend(self.named.then(|| "--beside".into()));
        words.extend(self.target.into_iter().flat_map(|to| ["--to".into(), to.into()]));
        for (option, bytes) in [("--memory", self.memory), ("--ready", self.ready)] {
            words.extend(bytes.iter().flat_map(|bytes| [option.into(), bytes.to_string().into()]));
        }
        let words: Vec<Vec<u8>> = words.iter().map(|word| quoted(word)).collect();
        OsString::from_vec(words.join(&b' '))
    }
}

/// Who hears what a machine says, and says at once if it says nothing any more.
struct Listener {
    host: String,
    instance: String,
    over: Arc<AtomicBool>,
}

impl Listener {
    fn listen(&self, from: &mut impl BufRead, says: &mpsc::Sender<Report>) {
        let (mut serves, mut ended) = (false, false);
        while let Some(report) = hear(from) {
            serves |= matches!(report, Report::Serves);
            ended |= matches!(report, Report::Ended(_) | Report::Failed(_));
            let _ = says.send(report);
        }
        if serves && !ended && !self.over.load(Ordering::SeqCst) {
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

impl Machine {
    /// Has a server started there, which will join.
    ///
    /// # Errors
    /// If the command that reaches it cannot be started.
    pub fn start(host: &str, service: &Service<'_>, invitation: &str) -> Result<Self> {
        let program = std::env::current_exe().context("terral: own path")?;
        let (shell, runs) = how();
        let mut words = shell.split_whitespace();
        let first = words.next().context("TERRAL_RSH is empty")?;
        let mut command = Command::new(first);
        command.args(words).arg(host).args(runs).arg(service.line(&program));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for COMMAND: the others end when that has.
        command.process_group(0);
        let mut child = command.spawn().with_context(|| format!("{host}: {shell}"))?;
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            // One that has ended already is seen to have.
            let _ = std::io::Write::write_all(stdin, format!("{invitation}\n").as_bytes());
        }
        let (says, said) = mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        if let Some(stdout) = child.stdout.take() {
            let listener =
                Listener { host: host.into(), instance: service.name.into(), over: over.clone() };
            std::thread::spawn(move || listener.listen(&mut BufReader::new(stdout), &says));
        }
        let (status, silent, end, failed) = (None, false, None, None);
        let stage = Stage::Dialed;
        let host = host.into();
        Ok(Machine { host, status, silent, end, failed, stage, child, stdin, over, said })
    }

    /// Takes in what it has said. False: it is gone, and has said all.
    pub fn hear(&mut self) -> bool {
        let gone = self.has_ended();
        loop {
            match self.said.try_recv() {
                Ok(report) => self.take(report),
                Err(mpsc::TryRecvError::Empty) if gone => std::thread::sleep(POLL),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return !gone,
            }
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Begins => self.stage = Stage::Reached,
            Report::Serves => self.stage = Stage::Serves,
            Report::Far(status) => self.status = Some(status),
            Report::Silent => self.silent = true,
            Report::Ended(end) => self.end = Some(end),
            Report::Failed(why) => self.failed = Some(why),
        }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().map_or(true, |status| status.is_some())
    }

    /// Tells it something. One that is gone is seen to be.
    pub fn tell(&mut self, order: Order) {
        self.over.fetch_or(order != Order::Finish, Ordering::SeqCst);
        if let Some(stdin) = &mut self.stdin {
            let _ = speak(stdin, &order);
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
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::quoted;

    #[test]
    fn a_word_stays_one_for_a_shell() {
        assert_eq!(quoted("/usr/bin/terral".as_ref()), b"/usr/bin/terral");
        let words: [&[u8]; 7] = [b"", b"a b", b"it's", b"$HOME", b"a;b", b"*", b"\xff'\xfe"];
        for word in words {
            let word = OsString::from_vec(word.to_vec());
            let line = [b"printf %s ".to_vec(), quoted(&word)].concat();
            let mut shell = std::process::Command::new("sh");
            let said = shell.arg("-c").arg(OsString::from_vec(line)).output();
            assert_eq!(said.expect("a shell").stdout, word.into_vec());
        }
    }
}
