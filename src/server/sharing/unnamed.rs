//! Files that were born here and have lost their last names while they are open: who was shown them
//! with one sees them without, by and by, as for their removal nobody waits for that.

use crate::core::state::State;
use crate::far::holders;
use crate::naming::elsewhere;
use crate::sharing::adrift::as_own;

/// Of the server's own requests, this.
const INDEX: u8 = 4;

/// Has nobody see them as they were, as far as that can be now.
pub fn settle(state: &mut State) {
    for ino in holders::old(state) {
        let mut is_seen = false;
        as_own(state, (INDEX, ino), |state| {
            elsewhere::file_is_here(state, ino, b"").inspect(|()| is_seen = true)
        });
        if is_seen {
            holders::is_seen(state, ino);
        }
    }
}
