//! What users' servers hear of root's about who is the control: they ask no registry.
//!
//! Invariant: who is behind is told once in a tick at most, however often he asks. Of this process
//! only. Not here: what is believed (`following`).

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::wire::roster::Control;

use super::super::Members;
use crate::core::world::Tick;

/// A user's server without a session with the control asks so often who is.
const AGAIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct Following {
    /// Who is to be told.
    behind: BTreeSet<Member>,
    /// Who was the control when all were told last, and with which version of the roster: with a
    /// later one they are told once more.
    told: Option<(Member, u64)>,
    /// When this one has asked last.
    asked: Option<Tick>,
}

impl Members {
    /// Whether this server speaks for one user alone.
    pub fn is_users(&self) -> bool {
        self.user_of(self.me()).is_some()
    }

    /// Whether another member may become the control while this one runs: it is of a pool, as the
    /// registry says, or a user's server, which is where root's are.
    pub fn may_get_another_control(&self) -> bool {
        self.is_of_any_pool() || self.is_users()
    }

    /// A user's server may not know who is the control.
    pub fn is_behind(&mut self, member: Member) {
        if self.user_of(member).is_some() {
            self.answering.following.behind.insert(member);
        }
    }

    /// Users' servers that are to be told now what this server, which asks the registry and is not
    /// the control, knows; all with whom there is a session, once another one is the control.
    pub fn take_behind(&mut self) -> Vec<Member> {
        if !self.is_of_any_pool() || self.roster.version == 0 {
            return Vec::new();
        }
        let (control, version) = (self.control(), self.roster.version);
        let Following { behind, told, .. } = &mut self.answering.following;
        if control == self.numbers.me() {
            // As the control it tells all.
            (*told, *behind) = (Some((control, u64::MAX)), BTreeSet::new());
            return Vec::new();
        }
        match *told {
            None => *told = Some((control, u64::MAX)),
            // The registry may say so before the next one has said anything: who is not told then
            // hears it with what that says first.
            Some((before, since)) if before != control || version > since => {
                behind.extend(self.users.keys().copied());
                let since = if before == control { u64::MAX } else { version };
                *told = Some((control, since));
            }
            Some(_) => {}
        }
        let behind = std::mem::take(behind);
        behind.into_iter().filter(|member| self.is_connected(*member)).collect()
    }

    /// A session begins: a user's server says to one of root's, which may know more, what it knows.
    pub fn asks_who_is_control(&mut self, of: Member) {
        let is_roots = self.user_of(of).is_none() && of != self.control();
        if self.is_users() && is_roots {
            self.says(of, Control::Knows(self.roster.version));
        }
    }

    /// Time has passed: it says so to all of root's, as long as the control is not there.
    pub fn ask_who_is_control_again(&mut self, now: Tick) {
        let is_due = self.answering.following.asked.is_none_or(|at| now.since(at) >= AGAIN);
        if !self.is_users() || !is_due || self.is_connected(self.control()) {
            return;
        }
        self.answering.following.asked = Some(now);
        let all: Vec<Member> = self.connected.iter().copied().collect();
        all.into_iter().for_each(|of| self.asks_who_is_control(of));
    }
}
