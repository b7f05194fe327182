//! A user of this machine, as the kernel says who is at the other end of a socket, and the process
//! that becomes one. Not here: what is served to him (`users`).

use std::fmt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Gid, Uid, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use terral_client::{PeerProcess, Person};

use crate::limits::Limits;

/// Where root looks for programs.
pub const PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin";
/// Numbers of users that are given to others.
const RANGES: &str = "/etc/subuid";
/// Longest login name that a directory gets.
const NAME_MAX: usize = 64;

/// Who he is, with the groups he is in. As text: `USER:GROUP:GROUPS`, the last by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(pub Person);

impl User {
    /// Who is at the other end: his process is looked at for his groups.
    ///
    /// # Errors
    /// If that is gone, or is several users at once.
    pub fn of_peer(stream: &UnixStream) -> Result<(User, Limits)> {
        let peer = rustix::net::sockopt::socket_peercred(stream).context("who knocks")?;
        let (pid, user) = (peer.pid.as_raw_nonzero().get(), peer.uid.as_raw());
        let gone = "who knocks is gone";
        // All of it is of one process: another one may have its number by now.
        let process = PeerProcess::of(stream, pid).context(gone)?;
        let status = process.read("status").context(gone)?;
        let same = process.link("ns/user").context(gone)?;
        let same = same == std::fs::read_link("/proc/self/ns/user")?;
        ensure!(same, "who knocks is in a user namespace of his own: come from outside of it");
        let ids = |name: &str| -> Result<Vec<u32>> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let ids = line.unwrap_or_default().split_whitespace().map(str::parse);
            ids.collect::<Result<_, _>>().with_context(|| format!("/proc/{pid}/status"))
        };
        let group = peer.gid.as_raw();
        let is_one = ids("Uid:")? == [user; 4] && ids("Gid:")? == [group; 4];
        ensure!(is_one, "who knocks is several users, or groups, at once");
        let groups = ids("Groups:")?;
        let limits = Limits::read(&process.read("limits").context(gone)?)?;
        Ok((User(Person { user, group, groups }), limits))
    }

    /// His login name, if it may be that of a directory.
    pub fn name(&self) -> Option<String> {
        self.login().filter(|name| is_name(name))
    }

    /// Whether his number is of a range that was given to another user (subuid(5)), who is as many
    /// users as he likes, and the system knows nobody by it.
    pub fn is_of_a_range(&self) -> bool {
        is_of_ranges(self.0.user) && self.login().is_none()
    }

    /// As the system knows him (getent(1)), if it does.
    pub fn login(&self) -> Option<String> {
        let user = self.0.user.to_string();
        let mut getent = Command::new("timeout");
        getent.env_clear().env("PATH", PROGRAMS).current_dir("/");
        getent.args(["10", "getent", "passwd", &user]).stdin(Stdio::null()).stderr(Stdio::null());
        let said = String::from_utf8(getent.output().ok()?.stdout).ok()?;
        let mut fields = said.lines().next()?.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)? == user).then_some(name)
    }

    /// This process is his from now on, and of nobody else: it has his limits, and nothing of
    /// root's terminal. For root, before there is any other thread.
    ///
    /// # Errors
    /// What Linux says to others than root.
    pub fn become_him(&self, limits: &Limits) -> Result<()> {
        let Person { user, group, groups } = &self.0;
        ensure!(*user != 0 && *group != 0, "a server of a user is not root's");
        terral_client::leave_behind().context("what root had open, and root's keys")?;
        // It dies as anybody's process when memory is short.
        let _ = std::fs::write("/proc/self/oom_score_adj", "0");
        setsid().context("a session of its own")?;
        limits.set()?;
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        let (user, group) = (Uid::from_raw(*user), Gid::from_raw(*group));
        set_thread_groups(&groups).context("the user's groups")?;
        set_thread_res_gid(group, group, group).context("the user's group")?;
        set_thread_res_uid(user, user, user).context("the user")?;
        set_no_new_privs(true).context("no more rights")?;
        // Whatever root's own process was started with (securebits(7)) keeps none.
        let none = CapabilitySet::empty();
        let all = CapabilitySets { effective: none, permitted: none, inheritable: none };
        clear_ambient_capability_set().context("no capabilities")?;
        set_capabilities(None, all).context("no capabilities")?;
        ensure!(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err(), "still root");
        Ok(())
    }
}

/// What a program of the system's says, if it does in time.
pub fn asked(words: &[&str]) -> Option<String> {
    let mut asks = Command::new("timeout");
    asks.env_clear().env("PATH", PROGRAMS).current_dir("/").arg("10").args(words);
    let said = asks.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    if said.status.success() { String::from_utf8(said.stdout).ok() } else { None }
}

/// Whether a number is of a range that was given to a user (subuid(5)).
pub fn is_of_ranges(user: u32) -> bool {
    is_in_a_range(&std::fs::read_to_string(RANGES).unwrap_or_default(), user)
}

fn is_in_a_range(all: &str, user: u32) -> bool {
    all.lines().any(|line| {
        let mut numbers = line.split(':').skip(1).map(|field| field.trim().parse::<u32>());
        let (Some(Ok(first)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
            return false;
        };
        user >= first && user - first < count
    })
}

/// Whether a login name may be a directory's.
fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@$+".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| !b".-".contains(&byte));
    begins && name.len() <= NAME_MAX && name.bytes().all(letter)
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Person { user, group, groups } = &self.0;
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        write!(f, "{user}:{group}:{}", groups.join(","))
    }
}

impl FromStr for User {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<User> {
        let parts: Vec<&str> = text.split(':').collect();
        let [user, group, groups] = parts[..] else { bail!("USER:GROUP:GROUPS") };
        let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::parse);
        let groups = groups.collect::<Result<_, _>>()?;
        Ok(User(Person { user: user.parse()?, group: group.parse()?, groups }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Person, User, is_in_a_range, is_name};

    #[test]
    fn numbers_of_a_range_are_those_that_it_has() {
        let all = "alice:100000:65536\n# none\nbob:x:5\n1001:200000:1\n";
        for user in [100_000, 165_535, 200_000] {
            assert!(is_in_a_range(all, user), "{user}");
        }
        for user in [0, 5, 99_999, 165_536, 199_999, 200_001] {
            assert!(!is_in_a_range(all, user), "{user}");
        }
    }

    #[test]
    fn a_login_name_that_is_no_directorys_is_none() {
        for name in ["alice", "a.b", "x_1-2", "someone@EXAMPLE.ORG", "host$"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(65);
        for name in ["", ".", "..", ".ssh", "-rf", "a/b", "a b", "a\nb", "a\0", "\u{e9}", &long] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn a_user_is_said_and_read_alike() {
        for groups in [vec![], vec![4], vec![4, 24, 27]] {
            let user = User(Person { user: 1000, group: 1001, groups });
            assert_eq!(user.to_string().parse::<User>().expect("one"), user);
        }
        for none in ["", "1000", "1000:1000", "1000:1000:x", "1:2:3:4", "-1:0:"] {
            assert!(none.parse::<User>().is_err(), "{none}");
        }
    }
}
