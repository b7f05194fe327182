//! What servers of a pool say to each other, as `shell/links` has it: who is in, who they are, what
//! who leaves says, and frames of the protocol. Not here: what programs ask.

use terral_format::Result;
use terral_format::ids::Member;
use terral_format::wire::roster::Control;
use terral_partition::effect::Input;

use super::{Pools, address, users};
use crate::core::state::State;
use crate::members::{control, following};
use crate::sharing::{carrying, departing, guiding, letting_go, letting_in, moving, ruling};

/// What servers say to each other.
impl Pools {
    pub(super) fn talk(&mut self) {
        self.are_cut();
        let serving = self.serving();
        for from in &serving {
            for to in serving.iter().filter(|to| *to != from) {
                self.meets(*from, *to);
            }
        }
        for at in serving {
            let _ = self.of(at, |state| {
                // Others say it to the control.
                let me = state.members.as_ref().map(|members| members.me());
                let _ = me.map(|me| control::is_at(state, me, address(me)));
                carrying::hear(state, Input::Tick)
            });
            self.says(at);
        }
        for _ in 0..20 {
            let all = self.serving();
            if all.into_iter().filter(|at| self.sends(*at)).count() == 0 {
                return;
            }
        }
    }

    /// Whether both are of one partition, and know each other.
    fn may_meet(&mut self, one: usize, other: usize) -> Option<(Member, Member)> {
        let users = [one, other].map(|at| self.machines[at].user.is_some());
        let id = |state: &mut State| state.members.as_ref().map(|it| it.partition().id);
        let (ids, other_id) = (self.of(one, id)??, self.of(other, id)??);
        let ((me, _, mine), (other, _, theirs)) = (self.known(one)?, self.known(other)?);
        let know = mine.seat(other).is_some() && theirs.seat(me).is_some();
        let may = match users {
            [false, false] => know,
            [true, true] => false,
            [true, false] => users::finds((me, &mine), (other, &theirs)),
            [false, true] => users::finds((other, &theirs), (me, &mine)),
        };
        (ids == other_id && may).then_some((me, other))
    }

    /// One says to another what it does in their session, which begins if there is none.
    fn meets(&mut self, from: usize, to: usize) {
        let Some((me, with)) = self.may_meet(from, to) else { return };
        self.hears_control((from, me), (to, with));
        let Some((me, with)) = self.may_meet(from, to) else { return };
        let key = (from.min(to), from.max(to));
        if !self.sessions.contains(&key) {
            for (at, with) in [(from, with), (to, me)] {
                let done = self.of(at, |state| {
                    let now = state.world.now();
                    state.members.iter_mut().for_each(|it| it.connects(with, true, now));
                    guiding::connected(state, with);
                    carrying::hear(state, Input::Connected(with))
                });
                if done.is_none() {
                    return;
                }
            }
            self.sessions.insert(key);
            self.claims((from, me), (to, with));
            self.claims((to, with), (from, me));
        }
    }

    /// A session begins: who takes the other for the control says to it which server he is.
    fn claims(&mut self, (at, me): (usize, Member), (to, with): (usize, Member)) {
        let takes = self.known(at).is_some_and(|(_, control, _)| control == with);
        let is_control = self.known(to).is_some_and(|(is, control, _)| is == control);
        if takes && !is_control {
            self.of(to, |state| guiding::heard(state, me, &Control::Claims(1)));
        }
    }

    /// Who is there no more has sessions with nobody.
    fn are_cut(&mut self) {
        for at in self.serving() {
            let Some((.., roster)) = self.known(at) else { continue };
            for with in roster.seats.iter().map(|seat| seat.member) {
                let other = self.at_of(with);
                let key = other.map(|other| (at.min(other), at.max(other)));
                if key.is_none_or(|key| !self.sessions.contains(&key)) {
                    self.of(at, |state| {
                        let now = state.world.now();
                        state.members.iter_mut().for_each(|it| it.connects(with, false, now));
                    });
                }
            }
        }
    }

    /// The control says who is in; and is told by others who they are.
    fn hears_control(&mut self, (from, me): (usize, Member), (to, with): (usize, Member)) {
        let said = self.of(from, |state| {
            let members = state.members.as_ref()?;
            let is_control = members.control() == me;
            (is_control && members.may_tell()).then(|| ruling::said(state)).flatten()
        });
        let Some(Some(rule)) = said else { return };
        let heard = self.of(to, |state| {
            let follows = state.members.as_ref().is_some_and(|it| it.control() == me);
            if follows || following::is_taken_over(state, me, &rule) {
                ruling::heard(state, rule).expect("there is room");
                carrying::resume(state).expect("it is logged");
                return true;
            }
            false
        });
        if heard != Some(true) {
            return;
        }
        let gone = self.of(to, |state| control::gone(state)).unwrap_or_default();
        let told = self.of(from, |state| {
            let hands_over = state.members.as_ref().is_some_and(|it| it.is_handing_over());
            control::claims(state, with, with.number().into()).expect("it is that one");
            if !hands_over {
                is_at(state, with);
                control::were_removed(state, with, gone).expect("it is the control");
            }
            carrying::resume(state)
        });
        assert!(told.is_none_or(|told| told.is_ok()));
    }

    /// What who leaves says.
    fn says(&mut self, at: usize) {
        let Some((me, ..)) = self.known(at) else { return };
        let Some(Some((to, said))) = self.of(at, departing::take_said) else {
            return;
        };
        let Some(to) = self.at_of(to) else { return };
        let told = self.of(to, |state| {
            match said {
                Control::Hands(directories) => departing::hands(state, me, directories),
                Control::Leaves => drop(control::has_left(state, me)),
                other => panic!("{other:?}"),
            }
            carrying::resume(state)
        });
        assert!(told.is_none_or(|told| told.is_ok()));
    }

    /// Whether this is lost with its session, as what is said of users' servers may be.
    fn is_lost_as_said(&mut self, said: &Control) -> bool {
        let is_of_users = matches!(
            said,
            Control::Invites { .. }
                | Control::Invited { .. }
                | Control::Roster(_)
                | Control::Knows(_)
        );
        let Some(left) = self.loses.as_mut().filter(|_| is_of_users) else { return false };
        *left -= 1;
        let is = *left == 0;
        if is {
            self.loses = None;
        }
        is
    }

    /// On which machine a member is.
    pub(super) fn at_of(&mut self, of: Member) -> Option<usize> {
        let serving = self.serving().into_iter();
        serving.into_iter().find(|at| self.known(*at).is_some_and(|(me, ..)| me == of))
    }

    /// Frames of the protocol. Whether there were any.
    fn sends(&mut self, at: usize) -> bool {
        let frames = self.of(at, |state| {
            let done = carrying::resume(state);
            assert!(done.is_ok());
            let members = state.members.as_mut()?;
            Some((members.me(), members.take_frames(), members.take_said()))
        });
        let Some((me, frames, moves)) = frames.flatten() else { return false };
        let any = !frames.is_empty() || !moves.is_empty();
        for (to, said) in moves {
            if self.is_lost_as_said(&said) {
                self.sessions.retain(|(one, other)| *one != at && *other != at);
                continue;
            }
            if let Some(to) = self.at_of(to).filter(|to| self.may_meet(at, *to).is_some()) {
                let heard = self.of(to, |state| hears(state, me, said));
                assert!(heard.is_none_or(|heard| heard.is_ok()));
            }
        }
        for (to, frame) in frames {
            if let Some(to) = self.at_of(to).filter(|to| self.may_meet(at, *to).is_some()) {
                let heard = self.of(to, |state| carrying::hear(state, Input::Frame(frame)));
                assert!(heard.is_none_or(|heard| heard.is_ok()));
            }
        }
        any
    }
}

/// Something that is said by itself, as `shell/links` hears it.
fn hears(state: &mut State, from: Member, said: Control) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    let (control, is_control) = (members.control(), members.control() == members.me());
    match crate::sharing::users::says(state, from, said)? {
        Control::Roster(rule) if following::is_taken_over(state, from, &rule) => {
            ruling::heard(state, *rule)?;
        }
        Control::Roster(_) if is_control => {}
        Control::Roster(rule) if control == from => ruling::heard(state, *rule)?,
        Control::Roster(_) => {}
        Control::Knows(version) if is_control => {
            state.members.iter_mut().for_each(|members| members.knows(from, version));
        }
        said @ Control::Knows(_) => guiding::heard(state, from, &said),
        Control::Moving(said) => moving::heard(state, from, said)?,
        Control::LettingGo(said) => letting_go::heard(state, from, said)?,
        said => letting_in::heard(state, from, said)?,
    }
    carrying::resume(state)
}

/// A member says to the control where it is.
fn is_at(state: &mut State, with: Member) {
    let members = state.members.as_ref().expect("a member");
    if members.user_of(with).is_none() {
        return control::is_at(state, with, address(with)).expect("it is the control");
    }
    let is_said = members.roster().seat(with).is_some_and(|it| it.addresses == address(with));
    if !is_said {
        let members = state.members.as_mut().expect("a member");
        members.says_where(with, address(with));
    }
}
