//! On which machines the members of a run or a pool are: a file of the instance, so that `terral
//! fence` and `terral status` know them by their hosts, too. The launcher of a run writes it, in a
//! pool each server.
//!
//! Invariant: a name that may mean one of several names nobody: a machine of a pool that was lost
//! may have come in again, as another member.

use std::path::Path;

use anyhow::{Result, bail};
use terral_client::Membership;
use terral_server::{Invitation, Member, Standing};

/// Beside the instance's other files.
pub const FILE: &str = "machines";

/// This machine's name.
pub fn this() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether it is in.
pub fn is_in(member: Member, partition: &Membership) -> bool {
    let other = partition.members.iter().find(|other| other.seat.member == member);
    other.is_some_and(|other| matches!(other.seat.standing, Standing::In(_)))
}

/// Members and their hosts.
#[derive(Default)]
pub struct Hosts(Vec<(Member, String)>);

impl Hosts {
    /// As they were written down; none where nobody has.
    pub fn of(instance: &Path) -> Self {
        let text = std::fs::read_to_string(instance.join(FILE)).unwrap_or_default();
        let line = |line: &str| {
            let (number, host) = line.split_once(' ')?;
            Some((Member::new(number.parse().ok()?)?, host.to_owned()))
        };
        Hosts(text.lines().filter_map(line).collect())
    }

    /// One more was invited. Which member it will be.
    pub fn invited(&mut self, invitation: &str, host: &str) -> Option<Member> {
        let member = Invitation::of(invitation).ok()?.me;
        self.0.push((member, host.to_owned()));
        Some(member)
    }

    /// Leaves them for others. It only helps people.
    pub fn keep(&self, instance: &Path) {
        let line = |(member, host): &(Member, String)| format!("{} {host}\n", member.number());
        let text: String = self.0.iter().map(line).collect();
        let _ = std::fs::write(instance.join(FILE), text);
    }

    /// Who of those that count is on this host, or has this number.
    ///
    /// # Errors
    /// If there are several on this host.
    pub fn member(&self, name: &str, counts: impl Fn(Member) -> bool) -> Result<Option<Member>> {
        let on = self.0.iter().filter(|(member, host)| host == name && counts(*member));
        let on: Vec<Member> = on.map(|(member, _)| *member).collect();
        match on[..] {
            [] => Ok(name.parse().ok().and_then(Member::new)),
            [one] => Ok(Some(one)),
            _ => {
                let all: Vec<String> = on.iter().map(Member::to_string).collect();
                let all = all.join(", ");
                bail!("{name}: is {all}: say which, by its number (`terral status` lists them)")
            }
        }
    }

    /// All that are known, by number.
    pub fn all(&self) -> impl Iterator<Item = (Member, &str)> {
        self.0.iter().map(|(member, host)| (*member, host.as_str()))
    }

    /// The host of a member, as it was called.
    pub fn host(&self, member: Member) -> Option<&str> {
        let one = self.0.iter().find(|(one, _)| *one == member);
        one.map(|(_, host)| host.as_str())
    }

    /// A member, with its host if that is known.
    pub fn name(&self, member: Member) -> String {
        let host = self.host(member);
        host.map_or_else(|| member.to_string(), |host| format!("{host} ({member})"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Hosts, Member};

    #[test]
    fn a_member_is_known_by_its_host_and_by_its_number() {
        let place = tempfile::tempdir().unwrap();
        let one = Member::new(1).unwrap();
        Hosts(vec![(one, "node7".into())]).keep(place.path());
        let hosts = Hosts::of(place.path());
        let named = |name| hosts.member(name, |_| true).unwrap();
        assert_eq!(["node7", "1"].map(named), [Some(one); 2]);
        assert_eq!(named("node8"), None);
        assert_eq!(hosts.name(one), "node7 (member 1)");
        assert_eq!(hosts.name(Member::LEAST), "member 0");
    }

    #[test]
    fn a_host_of_two_members_names_neither_unless_only_one_counts() {
        let [one, three] = [1, 3].map(|number| Member::new(number).unwrap());
        let hosts = Hosts(vec![(one, "node7".into()), (three, "node7".into())]);
        let why = hosts.member("node7", |_| true).expect_err("it may be either");
        assert!(why.to_string().contains("member 1, member 3: say which"), "{why}");
        assert_eq!(hosts.member("node7", |it| it != one).unwrap(), Some(three));
        assert_eq!(hosts.member("node7", |_| false).unwrap(), None);
        assert_eq!(hosts.member("1", |_| true).unwrap(), Some(one));
    }
}
