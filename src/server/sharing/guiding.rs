//! Users' servers hear of root's who is the control: whoever of root's is not that itself, and is
//! taken for it or asked, says what it knows.
//!
//! Invariant: only who asks the pool's registry says anything, and only to users' servers. What is
//! lost with its session is asked again. Not here: what is believed (`members/following`).

use terral_format::ids::Member;
use terral_format::wire::roster::Control;

use crate::core::state::State;
use crate::sharing::ruling;

/// Another member has said to this one, which is not the control, what is for that alone.
pub fn heard(state: &mut State, from: Member, said: &Control) {
    let Some(members) = &mut state.members else { return };
    let is_behind = match said {
        Control::Knows(version) => *version < members.roster().version,
        _ => true,
    };
    if is_behind {
        members.is_behind(from);
    }
}

/// A session with a member begins.
pub fn connected(state: &mut State, with: Member) {
    state.members.iter_mut().for_each(|members| members.asks_who_is_control(with));
}

/// Time has passed.
pub fn tick(state: &mut State) {
    let now = state.world.now();
    let Some(members) = &mut state.members else { return };
    members.ask_who_is_control_again(now);
    let behind = members.take_behind();
    if behind.is_empty() {
        return;
    }
    let Some(rule) = ruling::said(state) else { return };
    let Some(members) = &mut state.members else { return };
    let said = Control::Roster(Box::new(rule));
    behind.into_iter().for_each(|with| members.says(with, said.clone()));
}
