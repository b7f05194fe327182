//! What the launcher of a run over several machines calls the members: a file of the instance, so
//! that `terral fence` and `terral status` know them by their hosts, too.

use std::path::Path;

use terral_server::{Invitation, Member};

/// Beside the instance's other files.
const FILE: &str = "machines";

/// This machine's name.
pub fn this() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Members and their hosts.
#[derive(Default)]
pub struct Hosts(Vec<(Member, String)>);

impl Hosts {
    /// As a launcher has left them; none where there was none.
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

    /// Who is on this host, or has this number.
    pub fn member(&self, name: &str) -> Option<Member> {
        let named = self.0.iter().find(|(_, host)| host == name).map(|(member, _)| *member);
        named.or_else(|| Member::new(name.parse().ok()?))
    }

    /// The host of a member, as the launcher called it.
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
        assert_eq!(["node7", "1"].map(|name| hosts.member(name)), [Some(one); 2]);
        assert_eq!(hosts.member("node8"), None);
        assert_eq!(hosts.name(one), "node7 (member 1)");
        assert_eq!(hosts.name(Member::LEAST), "member 0");
    }
}
