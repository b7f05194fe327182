//! Chunks of other members' striped files that are to stay here. Not here: how they come
//! (`far/parts`), and who says so (`far/stripes`).

use terral_format::Result;
use terral_format::ids::{Member, Number};
use terral_format::wire::message::Reply;

use super::borrowing;
use crate::core::state::State;
use crate::far::giving_back::loan_of;
use crate::far::parts;

/// A chunk of which the first so many bytes count is to come from a member, and to stay →
/// [`Reply::Done`]; [`Reply::Again`] if it cannot.
///
/// # Errors
/// If the tables or the log are full.
pub fn take(
    state: &mut State,
    (of, index, bytes): (Number, u64, u32),
    (from, stamp): (Member, u64),
) -> Result<Reply> {
    if loan_of(state, of).is_none() {
        borrowing::begin(state, of)?;
        state.far.loans.begins_to_keep(of);
    }
    let takes = parts::take(state, (of, index, bytes), (from, stamp))?;
    Ok(if takes { Reply::Done } else { Reply::Again })
}
