//! Limits of a process (setrlimit(2)) that another one is to have: a user's server, which root
//! starts, has those of who has come for it.
//!
//! Not here: who that is (`user`).

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, setrlimit};

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

/// What a login has at most where nobody has said otherwise, as Linux and systemd begin one; of
/// others this process's own. A server of who has not come has these: what root's process may have
/// beyond them it had for itself.
const OF_A_LOGIN: [(Resource, u64); 6] = [
    (Resource::Core, 0),
    (Resource::Nofile, 1 << 19),
    (Resource::Memlock, 8 << 20),
    (Resource::Msgqueue, 819_200),
    (Resource::Nice, 0),
    (Resource::Rtprio, 0),
];
/// How many threads there may be; one user has half of them, and as many signals that wait.
const THREADS: &str = "/proc/sys/kernel/threads-max";
/// Where that is not known.
const THREADS_LEAST: u64 = 8192;

impl Limits {
    /// Those of this process, and none beyond a login's.
    ///
    /// # Errors
    /// If proc(5) is not there.
    pub fn of_a_login() -> Result<Limits> {
        let path = "/proc/self/limits";
        let own = Limits::read(&std::fs::read_to_string(path).context(path)?).context(path)?;
        let threads = std::fs::read_to_string(THREADS).ok().and_then(|it| it.trim().parse().ok());
        Ok(own.within_a_login(threads.unwrap_or(THREADS_LEAST)))
    }

    /// These, and none beyond a login's, on a machine that may have so many threads.
    fn within_a_login(self, threads: u64) -> Limits {
        let shared = [Resource::Nproc, Resource::Sigpending].map(|one| (one, threads / 2));
        let most = |of: Resource| {
            let all = OF_A_LOGIN.iter().chain(&shared);
            all.filter(|(one, _)| *one == of).map(|(_, most)| *most).next()
        };
        let within = |((_, resource), pair): (&(&str, Resource), [Option<u64>; 2])| {
            pair.map(|limit| limit.into_iter().chain(most(*resource)).min())
        };
        Limits(NAMES.iter().zip(self.0).map(within).collect())
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
    use super::{Limits, NAMES, Resource};

    #[test]
    fn roots_limits_are_no_more_than_a_logins_for_who_has_not_come() {
        let all = Limits(vec![[Some(5), None]; NAMES.len()]).within_a_login(1000);
        for ((name, resource), is) in NAMES.iter().zip(&all.0) {
            let (soft, most) = match resource {
                Resource::Core | Resource::Nice | Resource::Rtprio => (0, Some(0)),
                Resource::Nofile => (5, Some(524_288)),
                Resource::Memlock => (5, Some(8_388_608)),
                Resource::Msgqueue => (5, Some(819_200)),
                Resource::Nproc | Resource::Sigpending => (5, Some(500)),
                _ => (5, None),
            };
            assert_eq!(*is, [Some(soft), most], "{name}");
        }
        // What is less stays so.
        let few = Limits(vec![[Some(0), Some(0)]; NAMES.len()]);
        assert_eq!(few.clone().within_a_login(1000), few);
    }

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
