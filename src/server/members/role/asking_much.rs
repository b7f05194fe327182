//! How much a user's servers have under way here: what they want done, and how often one says that
//! it has moved. Their processes are his, and may ask for ever more of what nobody can give them.
//!
//! Invariants: what is counted is at least what is there; what a user wants is bounded for all his
//! servers together, but each has its share of that, whatever the others want. Not here: questions
//! about bytes of files (`far/desk`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use terral_format::ids::Member;

use super::{Members, Part};
use crate::core::world::Tick;

/// So many things a user may want at the same time: more than his programs have requests.
const WANTS_MAX: usize = 16_384;
/// And so many bytes of that.
const BYTES_MAX: usize = 64 << 20;
/// So often it may say where it is, in this time: once in each of its lives, and not at all times.
const MOVES_MAX: u32 = 8;
const MOVES_IN: Duration = Duration::from_secs(60);
/// And so seldom that is told to all.
const TOLD: Duration = Duration::from_secs(10);

/// What is known of those that are trusted with little.
#[derive(Default)]
pub(super) struct AskingMuch {
    /// What each has under way, and how many bytes.
    wants: BTreeMap<Member, (usize, usize)>,
    /// Since when each server has moved, how often.
    moves: BTreeMap<Member, (Tick, u32)>,
    /// Of the control: where each is, as it has said last.
    places: BTreeMap<Member, Place>,
}

/// Where a user's server is.
#[derive(Default)]
struct Place {
    /// It has said so, and nobody was told.
    said: Option<Vec<SocketAddr>>,
    /// When all were told last.
    told: Option<Tick>,
}

impl Members {
    /// A user's server wants things done, of so many bytes each. How many of these are heard: what
    /// is too much is not, until some of it is done.
    pub fn takes_wants(&mut self, member: Member, wants: impl Iterator<Item = usize>) -> usize {
        let Some(user) = self.user_of(member).map(|person| person.user) else { return 0 };
        let his = self.servers_of(user);
        let share = |most: usize| most / his.len().max(1);
        let all = &mut self.asking_much.wants;
        let known = his.iter().filter_map(|its| all.get(its));
        let (mut count, mut bytes) = known.fold((0, 0), |sum, its| (sum.0 + its.0, sum.1 + its.1));
        let own = all.entry(member).or_default();
        let may = |its: &usize| {
            let is_few = count < WANTS_MAX || own.0 < share(WANTS_MAX);
            let is_short = bytes + its <= BYTES_MAX || own.1 < share(BYTES_MAX);
            if is_few && is_short {
                (count, bytes) = (count + 1, bytes + its);
                *own = (own.0 + 1, own.1 + its);
            }
            is_few && is_short
        };
        wants.take_while(may).count()
    }

    /// Time has passed: what is done by now is under way no more.
    pub fn count_wants(&mut self) {
        let Part::Runs(machine) = &self.part else { return };
        let wanted = |member: &Member| (*member, machine.wanted_by(*member));
        let wants = self.asking_much.wants.keys().map(wanted);
        self.asking_much.wants = wants.filter(|(_, its)| its.0 > 0).collect();
        let users = &self.users;
        self.asking_much.moves.retain(|member, _| users.contains_key(member));
        self.asking_much.places.retain(|member, _| users.contains_key(member));
    }

    /// Whether a user's server may say once more where it is.
    pub fn may_move(&mut self, member: Member, now: Tick) -> bool {
        let (since, count) = self.asking_much.moves.entry(member).or_insert((now, 0));
        if now.since(*since) > MOVES_IN {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= MOVES_MAX
    }

    /// A user's server says to the control where it is.
    pub fn says_where(&mut self, member: Member, at: Vec<SocketAddr>) {
        if self.users.contains_key(&member) {
            self.asking_much.places.entry(member).or_default().said = Some(at);
        }
    }

    /// Those of which all may be told now where they are.
    pub fn moved(&self, now: Tick) -> Vec<(Member, Vec<SocketAddr>)> {
        let may = |place: &Place| place.told.is_none_or(|told| now.since(told) >= TOLD);
        let all = self.asking_much.places.iter().filter(|(_, place)| may(place));
        all.filter_map(|(member, place)| Some((*member, place.said.clone()?))).collect()
    }

    /// All are told of this one.
    pub fn has_moved(&mut self, member: Member, now: Tick) {
        let place = self.asking_much.places.entry(member).or_default();
        (place.said, place.told) = (None, Some(now));
    }

    /// They say it to the control, which is another one.
    pub fn are_anywhere(&mut self) {
        self.asking_much.places.values_mut().for_each(|place| place.said = None);
    }
}
