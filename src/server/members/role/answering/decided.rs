//! Of the control: whom it has let in, at the word of a member that was not told so yet.
//!
//! Invariant: nobody is told before the pool's registry has it. Of this process only: who is not
//! told asks again. Not here: who is let in (`members/newcomers`).

use std::collections::BTreeMap;

use terral_format::ids::Member;
use terral_format::wire::roster::{Control, Key};

use super::super::Members;

/// So many wait for the registry.
const MOST: usize = 512;

/// What is said to whom once the registry has this version of the roster.
#[derive(Default)]
pub(super) struct Decided(BTreeMap<(Member, Key), (u64, Control)>);

impl Members {
    /// The control, which is this one, has let in a server with this key, and says so to who asked
    /// once the registry has what is so now.
    pub fn has_let_in(&mut self, to: Member, (key, what): (Key, Control)) {
        let version = self.roster().version;
        let decided = &mut self.answering.decided.0;
        if decided.len() >= MOST {
            // Who is not told asks again.
            decided.pop_first();
        }
        // As it was decided first it is so: else who asks again and again waits for ever.
        decided.entry((to, key)).or_insert((version, what));
        self.say_what_is_kept();
    }

    /// It was not, whatever was said before.
    pub fn has_not_let_in(&mut self, to: Member, (key, what): (Key, Control)) {
        self.answering.decided.0.remove(&(to, key));
        self.says(to, what);
    }

    /// What waits for the registry is said as that has it.
    pub(in crate::members) fn say_what_is_kept(&mut self) {
        let decided = std::mem::take(&mut self.answering.decided.0);
        for ((to, key), (version, what)) in decided {
            if self.is_kept(version) {
                self.says(to, what);
            } else {
                self.answering.decided.0.insert((to, key), (version, what));
            }
        }
    }
}
