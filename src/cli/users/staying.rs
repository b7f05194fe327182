//! Users' servers of a machine that ends which have not left: they are members no more, so that
//! nobody waits for them.
//!
//! Invariants: who has stayed root's server says, which knows of all that went; as long as it does
//! not, nobody is passed over. Whom the control does not hear of is named. Not here: how they leave
//! (`leaving`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use terral_client::{Client, Member, Membership};

use super::last::Last;
use super::leaving::{Has, Went};
use super::{House, host_of_number};
use crate::members::is_in;
use crate::report::say;
use crate::server::Server;

/// How often root's server is asked.
const LOOK: Duration = Duration::from_millis(20);
/// So many are said to be gone at a time.
const AT_ONCE: usize = 32;
/// It has so long to hear that those have left that say so,
const SOON: Duration = Duration::from_secs(2);
/// and that the others were removed.
const HEARS: Duration = Duration::from_secs(10);

/// What has come of that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stayed {
    Nobody,
    /// None is a member any more, but it is not known of some what they owe.
    Unknown,
    /// Some are members still, or may be.
    Some,
}

/// One that has not left.
#[derive(Clone)]
struct Stayer {
    host: String,
    member: Member,
    /// One has come: it may have something.
    has_come: bool,
}

impl Stayer {
    fn named(&self) -> String {
        format!("{} ({})", self.host, self.member)
    }
}

/// Users' servers for which this machine's root answers and that are in; nothing if it does not
/// know all of these.
fn ours(partition: &Membership, went: &[Went]) -> Option<Vec<Stayer>> {
    let seat = |of: Member| partition.members.iter().find(|one| one.seat.member == of);
    if !went.iter().filter_map(|one| one.member).all(|one| seat(one).is_some()) {
        return None;
    }
    let by_us = partition.answers.iter().filter(|(_, by)| *by == partition.me);
    let are_in = by_us.map(|(one, _)| *one).filter(|one| is_in(*one, partition));
    let stayer = |member: Member| {
        let user = partition.users.iter().find(|(of, _)| *of == member);
        let host = user.map_or_else(String::new, |(_, user)| host_of_number(*user));
        let has_come = seat(member).is_some_and(|one| !one.seat.addresses.is_empty());
        Stayer { host, member, has_come }
    };
    Some(are_in.map(stayer).collect())
}

impl House {
    /// Those that have not left are members no more: nobody is to wait for them.
    pub(super) fn remove_who_stayed(
        self: &Arc<Self>,
        server: &Server,
        went: &[Went],
        last: &mut Last<'_>,
    ) -> Stayed {
        // Who has left may not be known to have here.
        let (mut wait, mut unknown) = (SOON, BTreeSet::new());
        loop {
            let stayed = self.stayed(wait, went, last);
            if stayed.as_ref().is_some_and(Vec::is_empty) {
                return if unknown.is_empty() { Stayed::Nobody } else { Stayed::Unknown };
            }
            if last.is_over() || server.has_ended() {
                say_who(stayed.as_deref());
                return Stayed::Some;
            }
            let known = |one: &Stayer| went.iter().find(|went| went.member == Some(one.member));
            let stayed = stayed.unwrap_or_default();
            for one in stayed.iter().filter(|one| one.has_come && known(one).is_none()) {
                if unknown.insert(one.member) {
                    say(format_args!("{}: what it owes is not known: it stays", one.named()));
                }
            }
            // Of whom nothing is known, he may live.
            let is_dead =
                |one: &Stayer| !one.has_come || known(one).is_some_and(|one| one.has != Has::Debt);
            let all: Vec<(Stayer, bool)> =
                stayed.iter().map(|one| (one.clone(), is_dead(one))).collect();
            all.chunks(AT_ONCE).for_each(|some| self.fence_all(some, last));
            wait = HEARS;
        }
    }

    /// Each says so if the control does not hear it.
    fn fence_all(self: &Arc<Self>, some: &[(Stayer, bool)], last: &mut Last<'_>) {
        if last.is_over() {
            return;
        }
        let begin = |(one, dead): &(Stayer, bool)| {
            let (house, one, dead) = (self.clone(), one.clone(), *dead);
            let removes = move || drop(house.fence((&one.host, one.member), dead));
            std::thread::Builder::new().spawn(removes).ok()
        };
        last.outwait(some.iter().filter_map(begin).collect());
    }

    /// Those that root's server has for members after so long; `None`: it has not said it.
    fn stayed(&self, after: Duration, went: &[Went], last: &mut Last<'_>) -> Option<Vec<Stayer>> {
        let begin = Instant::now();
        loop {
            let status = Client::observe(&self.instance).and_then(|client| client.status());
            let partition = status.ok().and_then(|status| status.partition);
            let stayed = partition.as_ref().and_then(|partition| ours(partition, went));
            let is_nobody = stayed.as_ref().is_some_and(Vec::is_empty);
            if is_nobody || begin.elapsed() > after || last.is_over() {
                return stayed;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Who are members still, of which nothing runs here.
fn say_who(stayed: Option<&[Stayer]>) {
    let Some(stayed) = stayed else {
        return say(
            "it is not known which users' servers are members still: root's does not say it",
        );
    };
    let all: Vec<String> = stayed.iter().map(Stayer::named).collect();
    say(format_args!(
        "members still, of which nothing runs here: {}: `terral fence NUMBER` on the control's \
         machine, once it is there",
        all.join(", ")
    ));
}
