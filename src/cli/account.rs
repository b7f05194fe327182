//! Whom the system knows by a number, and in which groups he is now: for a server of his that is
//! started as others look at what is his, or again, while he is not there to be asked.
//!
//! Invariant: it is asked each time, so that nobody has what was taken from his account. Not here:
//! who is at a socket (`user`), and when one is started (`users`).

use anyhow::{Context, Result, bail, ensure};
use terral_client::Person;

use crate::user::{User, asked};

/// Which numbers are persons'.
const DEFINITIONS: &str = "/etc/login.defs";
/// The first one, unless that says otherwise.
const LEAST: u32 = 1000;
/// Those by which kernel and file systems mean nobody.
const NOBODY: [u32; 3] = [65_534, 65_535, u32::MAX];
/// What is no shell, and whose it is may not log in.
const NO_SHELLS: [&str; 5] = ["nologin", "false", "sync", "halt", "shutdown"];

/// Who has this number (getent(1), id(1)), if he is a person who may log in.
///
/// # Errors
/// If he is none; says why.
pub fn of_number(user: u32) -> Result<User> {
    let definitions = std::fs::read_to_string(DEFINITIONS).unwrap_or_default();
    let least = least_number(&definitions);
    ensure!(user >= least, "the system's, not a person's: below UID_MIN, {least}");
    ensure!(!NOBODY.contains(&user), "nobody's");
    let said = asked(&["getent", "passwd", &user.to_string()]).unwrap_or_default();
    let (name, group) = account(&said, user)?;
    ensure!(group != 0, "his group is root's");
    // Groups are asked for by his name, which may be that of another number, too.
    let is_his = asked(&["id", "-u", "--", &name]).is_some_and(|is| is.trim() == user.to_string());
    ensure!(is_his, "his name is another user's");
    let said = asked(&["id", "-G", "--", &name]).context("his groups are not known")?;
    let groups: Result<Vec<u32>, _> = said.split_whitespace().map(str::parse).collect();
    let groups = groups.context("his groups are not known")?;
    Ok(User(Person { user, group, groups }))
}

/// What of a user's groups is left who was in these when he came, and has the account now.
///
/// # Errors
/// If none of them can be his own group.
pub fn of_both(came: &Person, now: &Person) -> Result<User> {
    let is_in = |of: &Person, group: u32| of.group == group || of.groups.contains(&group);
    let both = |group: &u32| is_in(came, *group) && is_in(now, *group);
    let own = [came.group, now.group].into_iter().find(both);
    let group = own.context("his groups are others than when he came: he is to come himself")?;
    let groups = now.groups.iter().copied().filter(both).collect();
    Ok(User(Person { user: now.user, group, groups }))
}

/// The first number that is a person's (login.defs(5)).
fn least_number(definitions: &str) -> u32 {
    let line = definitions.lines().find_map(|line| line.trim().strip_prefix("UID_MIN"));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(LEAST)
}

/// The name and group of a person who may log in, by his line (passwd(5)).
fn account(said: &str, user: u32) -> Result<(String, u32)> {
    let nobody = || format!("{user}: no user of this system");
    let line = said.lines().next().with_context(nobody)?;
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, number, group, _, _, shell] = fields[..] else { bail!(nobody()) };
    ensure!(number == user.to_string(), nobody());
    let shell = shell.rsplit('/').next().unwrap_or_default();
    ensure!(!NO_SHELLS.contains(&shell), "he may not log in ({shell})");
    Ok((name.into(), group.parse().with_context(nobody)?))
}

#[cfg(test)]
mod tests {
    use super::{Person, account, least_number, of_both};

    #[test]
    fn who_may_log_in_is_a_person_and_nobody_else() {
        assert_eq!(least_number("# x\nUID_MIN\t\t 500\n"), 500);
        assert_eq!((least_number(""), least_number("#UID_MIN 5")), (1000, 1000));
        let line = |shell: &str| format!("alice:x:1001:1002:A,B:/home/alice:{shell}\n");
        for shell in ["/bin/bash", ""] {
            assert_eq!(account(&line(shell), 1001).expect(shell), ("alice".into(), 1002));
        }
        for shell in ["/usr/sbin/nologin", "/bin/false"] {
            assert!(account(&line(shell), 1001).is_err(), "{shell}");
        }
        for (said, user) in [(line("/bin/sh"), 1003), (String::new(), 1001), ("a:b".into(), 1001)] {
            assert!(account(&said, user).is_err(), "{said}");
        }
    }

    #[test]
    fn nobody_is_in_a_group_that_he_came_without_or_that_was_taken_from_him() {
        let of = |group, groups: &[u32]| Person { user: 1001, group, groups: groups.to_vec() };
        let both = |came: Person, now| of_both(&came, &now).ok().map(|it| it.0);
        let now = of(10, &[10, 20, 30]);
        assert_eq!(both(of(10, &[10, 20, 40]), now.clone()), Some(of(10, &[10, 20])));
        // By newgrp(1) he was in one of his as his own.
        assert_eq!(both(of(20, &[10, 20]), now.clone()), Some(of(20, &[10, 20])));
        assert_eq!(both(of(40, &[10]), now.clone()), Some(of(10, &[10])));
        assert_eq!(both(of(10, &[]), now.clone()), Some(of(10, &[10])));
        assert_eq!(both(of(40, &[50]), now), None);
    }
}
