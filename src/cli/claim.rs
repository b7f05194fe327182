//! Who is in charge of an instance: one `terral` at a time starts its server, brings what it owes,
//! or removes it. What for, and which process, its file `lock` says for others to read.
//!
//! Invariant: words in `lock` count only as long as their claim, or a server that was left up on
//! purpose, lives. Not here: what is done with an instance.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How long a killed server may take to be gone.
const DYING: Duration = Duration::from_secs(30);
/// How long who takes charge may take to say so; longer, and he cannot be seen from here.
const SAYING: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// What an instance is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A command runs on it.
    Run,
    /// What it owes is brought, and then it goes.
    Bring,
    /// Its server stays until somebody ends it.
    Stay,
}

const WORDS: [(Purpose, &str); 3] =
    [(Purpose::Run, "run"), (Purpose::Bring, "bring"), (Purpose::Stay, "stay")];

/// Being in charge of an instance, until this is dropped.
pub struct Claim(File);

impl Claim {
    /// Takes charge; `None` if somebody else has, or the instance is gone.
    pub fn take(instance: &Path, purpose: Purpose) -> Result<Option<Claim>> {
        let claimed = match terral_server::claim(instance) {
            Err(error) if error.kind == terral_client::ErrorKind::NotFound => None,
            claimed => claimed?,
        };
        let Some(file) = claimed else { return Ok(None) };
        let claim = Claim(file);
        claim.becomes(purpose)?;
        Ok(Some(claim))
    }

    /// From now on it is held for this.
    pub fn becomes(&self, purpose: Purpose) -> Result<()> {
        let words = WORDS.iter().find(|(of, _)| *of == purpose).map_or("", |(_, word)| word);
        let text = format!("{} {words}\n", std::process::id());
        let written = self.0.write_all_at(text.as_bytes(), 0);
        written.and_then(|()| self.0.set_len(text.len() as u64)).context("lock of the instance")
    }
}

/// Who holds an instance, or held it last, and what for.
pub fn holder(instance: &Path) -> Option<(u32, Purpose)> {
    let text = std::fs::read_to_string(instance.join("lock")).ok()?;
    let (pid, word) = text.trim_end().split_once(' ')?;
    let purpose = WORDS.iter().find(|(_, of)| *of == word).map(|(purpose, _)| *purpose)?;
    Some((pid.parse().ok()?, purpose))
}

/// How an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody is in charge, or its server stays on purpose.
    Held,
    /// Somebody brings what it owes.
    Brought,
    /// Its server finishes by itself; who started it is gone.
    Finishing,
    /// No server, and nobody in charge.
    Left,
}

/// Whether a process is there, as far as this one can see.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// How an instance stands at this moment.
pub fn standing(instance: &Path) -> Standing {
    let begin = Instant::now();
    // Who has just taken charge says so in a moment; until then the words are of one who is gone.
    let says = || holder(instance).is_none_or(|(pid, _)| is_there(pid));
    while terral_server::is_claimed(instance) && !says() && begin.elapsed() < SAYING {
        std::thread::sleep(POLL);
    }
    let purpose = holder(instance).map(|(_, purpose)| purpose);
    // Who is in charge is asked last: his server may have come up meanwhile.
    let served = terral_server::is_served(instance);
    match (terral_server::is_claimed(instance), served, purpose) {
        (true, _, Some(Purpose::Bring)) => Standing::Brought,
        (true, ..) => Standing::Held,
        (false, true, Some(Purpose::Run | Purpose::Bring)) => Standing::Finishing,
        // One that stays, or of a terral that knew no claims.
        (false, true, _) => Standing::Held,
        (false, false, _) => Standing::Left,
    }
}

/// Waits for the kernel to take a server apart that was killed, which holds its lock so long.
pub fn outwait_dying(instance: &Path) {
    let begin = Instant::now();
    while terral_server::is_dying(instance) && begin.elapsed() < DYING {
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{Claim, Purpose, Standing, standing};

    #[test]
    fn what_one_who_is_gone_has_said_is_not_believed_of_who_has_just_taken_charge() {
        let instance = tempfile::tempdir().expect("directory");
        let mut gone = Command::new("true").spawn().expect("starts");
        gone.wait().expect("ends");
        let words = format!("{} run\n", gone.id());
        std::fs::write(instance.path().join("lock"), words).expect("writes");
        assert_eq!(standing(instance.path()), Standing::Left);
        let taken = terral_server::claim(instance.path()).expect("claims");
        let claim = Claim(taken.expect("nobody has it"));
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| standing(instance.path()));
            std::thread::sleep(Duration::from_millis(50));
            claim.becomes(Purpose::Bring).expect("writes");
            assert_eq!(seen.join().expect("looks"), Standing::Brought);
        });
    }
}
