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

/// How an instance stands at this moment.
pub fn standing(instance: &Path) -> Standing {
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
