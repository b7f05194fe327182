//! Who may have sessions with this member.
//!
//! Invariants: nothing is heard of who was removed; what a control is told first of all is told in
//! a session that began when both knew that it is the control.

use std::collections::BTreeMap;

use terral_format::disk::partition::Standing;
use terral_format::ids::Member;
use terral_format::wire::roster::Seat;
use terral_network::endpoint::{Endpoint, Peer, Session};

use super::Links;
use crate::far::linking;
use crate::members::control;
use crate::sharing::carrying;

impl Links<'_> {
    /// Whoever is in may have sessions with this one, and who was removed none any more.
    pub(super) fn admit(&mut self) {
        let state = self.shared.lock_for_links();
        let Some(members) = &state.members else { return };
        let (roster, control, me) = (members.roster(), members.control(), members.me());
        let admitted = roster.version + 1;
        if (self.admitted, self.control) == (admitted, Some(control)) {
            return;
        }
        self.admitted = admitted;
        let before = self.control.replace(control);
        let is_control = control == me;
        let has_taken_over = is_control && members.may_have_another_control();
        let seats = roster.seats.clone();
        let keys: BTreeMap<_, _> =
            roster.certificates.iter().map(|of| (of.member, of.key)).collect();
        let users = roster.certificates.iter();
        let users = users.filter_map(|of| Some((of.member, of.user.as_ref()?.user)));
        self.users = users.collect();
        drop(state);
        for Seat { member, standing, addresses } in seats {
            let Some(key) = keys.get(&member).copied() else { continue };
            match standing {
                Standing::In(server) => {
                    self.servers.insert(member, server);
                    // Who has come meanwhile, and who was at another place, finds it so.
                    let is_sought = (has_taken_over || control == member) && !addresses.is_empty();
                    self.tcp.admit(Peer { member, server, key, addresses });
                    if is_sought && member != me && !self.sessions.contains_key(&member) {
                        self.tcp.reach(member);
                    }
                }
                Standing::Removed { .. } => {
                    // If it lives, it is told so, whatever was said of it.
                    match self.servers.get(&member).copied().filter(|_| is_control) {
                        Some(server) => self.tcp.admit(Peer { member, server, key, addresses }),
                        None => self.tcp.expel(member),
                    }
                    self.is_removed(member);
                }
            }
        }
        if before.is_some_and(|before| before != control) {
            self.begin_anew_with(if is_control { None } else { Some(control) });
            self.is_here();
        }
    }

    /// The control takes down where it is itself: the one before may not have.
    pub(super) fn is_here(&self) {
        let mut state = self.shared.lock_for_links();
        let me = state.members.as_ref().map(|members| members.me());
        if let Some(me) = me {
            // Only the control takes it down; others say it to him.
            let _ = control::is_at(&mut state, me, self.here.clone());
        }
        let done = carrying::resume(&mut state);
        drop(state);
        self.warn_of(done);
    }

    /// Sessions with this member, or with all, are cut, and come again; and those of who has not
    /// said yet which server he is, as this one may be the control no more.
    fn begin_anew_with(&mut self, member: Option<Member>) {
        let those = |with: &&Session| member.is_none_or(|member| member == with.with);
        let sessions = self.sessions.values().filter(those).chain(self.unclaimed.values());
        let sessions: Vec<Session> = sessions.copied().collect();
        sessions.into_iter().for_each(|session| self.tcp.cut(session));
    }

    /// A member is none any more.
    fn is_removed(&mut self, member: Member) {
        if !self.removed.insert(member) {
            return;
        }
        let mut state = self.shared.lock_for_links();
        linking::removed(&mut state, member);
        let now = state.world.now();
        state.members.iter_mut().for_each(|members| members.connects(member, false, now));
        drop(state);
        self.relaying.iter().for_each(|relaying| relaying.removed(member));
        self.shared.nudge();
    }
}
