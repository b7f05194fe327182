//! Limits of a process (setrlimit(2)) that another one is to have: a user's server, which root
//! starts, has those of who has come for it.
//!
//! Not here: who that is (`user`).

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// What each is called in proc(5).
const NAMES: [(&str, Resource); 16] = [
    ("Max cpu time", Resource::Cpu),
    ("Max file size", Resource::Fsize),
    ("Max data size", Resource::Data),
    ("Max stack size", Resource::Stack),
    ("Max core file size", Resource::Core),
    ("Max resident set", Resource::Rss),
    ("Max processes", Resource::Nproc),
    ("Max open files", Resource::Nofile),
    ("Max locked memory", Resource::Memlock),
    ("Max address space", Resource::As),
    ("Max file locks", Resource::Locks),
    ("Max pending signals", Resource::Sigpending),
    ("Max msgqueue size", Resource::Msgqueue),
    ("Max nice priority", Resource::Nice),
    ("Max realtime priority", Resource::Rtprio),
    ("Max realtime timeout", Resource::Rttime),
];

/// The soft and the hard limit of each, in the order of [`NAMES`]; `None`: unlimited. As text:
/// `SOFT:HARD,…`, with `-` for unlimited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits(Vec<[Option<u64>; 2]>);

impl Limits {
    /// Those of this process.
    ///
    /// # Errors
    /// If proc(5) is not there.
    pub fn own() -> Result<Limits> {
        let path = "/proc/self/limits";
        let text = std::fs::read_to_string(path).context(path)?;
        Limits::read(&text).context(path)
    }

    /// What proc(5) says of a process.
    ///
    /// # Errors
    /// If that is something else.
    pub fn read(text: &str) -> Result<Limits> {
        let limit = |word: &str| match word {
            "unlimited" => Ok(None),
            number => number.parse().map(Some),
        };
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).context("a limit")?;
            let mut words = line.split_whitespace();
            let mut next = || -> Result<_> { Ok(limit(words.next().context("a limit")?)?) };
            Ok([next()?, next()?])
        };
        Ok(Limits(NAMES.iter().map(|(name, _)| of(name)).collect::<Result<_>>()?))
    }

    /// This process has them from now on.
    ///
    /// # Errors
    /// If the kernel refuses one: only root may have more than before.
    pub fn set(&self) -> Result<()> {
        for ((name, resource), [current, maximum]) in NAMES.iter().zip(&self.0) {
            let limit = Rlimit { current: *current, maximum: *maximum };
            setrlimit(*resource, limit).with_context(|| (*name).to_owned())?;
        }
        Ok(())
    }
}

impl Limits {
    /// A process of this one's has them from now on, as far as it may: none is more than it has.
    /// Descriptors stay as many as there may be, as a server has them.
    pub fn narrow(&self, process: Pid) {
        for ((_, resource), [current, maximum]) in NAMES.iter().zip(&self.0) {
            let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
            let maximum = least(*maximum, getrlimit(*resource).maximum);
            let is_most = *resource == Resource::Nofile;
            let current = if is_most { maximum } else { least(*current, maximum) };
            let limit = Rlimit { current, maximum };
            // It may have less by itself already, or be gone.
            let _ = prlimit(Some(process), *resource, limit);
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |limit: &Option<u64>| limit.map_or("-".into(), |limit| limit.to_string());
        let pair = |[soft, hard]: &[Option<u64>; 2]| format!("{}:{}", word(soft), word(hard));
        f.write_str(&self.0.iter().map(pair).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Limits {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Limits> {
        let limit = |word: &str| match word {
            "-" => Ok(None),
            number => number.parse().map(Some),
        };
        let pair = |text: &str| {
            let (soft, hard) = text.split_once(':').context("SOFT:HARD")?;
            Ok([limit(soft)?, limit(hard)?])
        };
        let all = text.split(',').map(pair).collect::<Result<Vec<_>>>()?;
        if all.len() != NAMES.len() {
            bail!("{} limits", NAMES.len());
        }
        Ok(Limits(all))
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, NAMES};

    #[test]
    fn limits_are_read_said_and_had() {
        let own = std::fs::read_to_string("/proc/self/limits").expect("proc(5)");
        let own = Limits::read(&own).expect("all are there");
        assert_eq!(own.to_string().parse::<Limits>().expect("some"), own);
        // To have what one has is nothing new.
        own.set().expect("allowed");
        for none in ["", "1:2", "a:b", &",".repeat(NAMES.len() - 1)] {
            assert!(none.parse::<Limits>().is_err(), "{none}");
        }
        assert!(Limits::read("Max cpu time  unlimited").is_err());
    }
}
