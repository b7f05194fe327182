//! Files that were born here and have lost their last names while they are open: who was shown them
//! with one sees them without, by and by, as for their removal nobody waits for that.

use crate::core::state::State;
use crate::far::holders;
use crate::naming::elsewhere;
use crate::sharing::own::{Own, are_wanted, as_own};

/// Has nobody see them as they were, as far as that can be now.
pub fn settle(state: &mut State) {
    let old = holders::old(state);
    are_wanted(state, Own::Unnamed, &old.iter().copied().collect());
    for ino in old {
        as_own(state, (Own::Unnamed, ino), |state| {
            elsewhere::file_is_here(state, ino, b"")?;
            holders::is_seen(state, ino);
            Ok(())
        });
    }
}
