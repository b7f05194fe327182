//! What others say to this member as the control. Not here: what it says to them (`saying`).

use terral_format::ids::Member;
use terral_format::wire::roster::Control;
use terral_format::{Error, ErrorKind, Result};

use super::Links;
use crate::core::state::State;
use crate::members::control;
use crate::sharing::letting_in;

impl Links<'_> {
    /// Another member says so to the control, which is this one.
    pub(super) fn is_told(&mut self, state: &mut State, with: Member, said: Control) -> Result<()> {
        let members = state.members.as_ref();
        // Then it is said again, to who is the control by then.
        let hands_over = members.is_some_and(|members| members.is_handing_over());
        let may_be_new = members.is_some_and(|members| members.may_have_another_control());
        match said {
            Control::Knows(version) => {
                state.members.iter_mut().for_each(|members| members.knows(with, version));
            }
            Control::Ask => self.telling.forget(with),
            Control::Here(at) if self.users.contains_key(&with) => {
                state.members.iter_mut().for_each(|members| members.says_where(with, at.clone()));
            }
            Control::Here(_) | Control::Removed(_) | Control::Leaves if hands_over => {}
            Control::Here(addresses) => control::is_at(state, with, addresses)?,
            Control::Removed(gone) if may_be_new => control::were_removed(state, with, gone)?,
            Control::Leaves => control::has_left(state, with)?,
            Control::Invites { .. } | Control::Gone { .. } | Control::Speaks(_) => {
                letting_in::heard(state, with, said)?;
            }
            _ => return Err(Error::new(ErrorKind::Malformed, "what the control is not told here")),
        }
        Ok(())
    }
}
