//! Who has a place among the users of a machine: who has come himself.
//!
//! Invariant: whose server was started for others has none, so that strangers' looks keep nobody
//! out. Not here: how many are started for others (`bounds`).

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

/// Most users.
pub const USERS_MAX: usize = 200;

/// Those who have one.
#[derive(Default)]
pub struct Places(BTreeSet<u32>);

impl Places {
    /// A user has one from now on; whether he had none.
    ///
    /// # Errors
    /// If there is none left.
    pub fn take(&mut self, user: u32) -> Result<bool> {
        let full = self.0.len() >= USERS_MAX && !self.0.contains(&user);
        ensure!(!full, "{USERS_MAX} users are served, and no more");
        Ok(self.0.insert(user))
    }

    /// He has none.
    pub fn give_back(&mut self, user: u32) {
        self.0.remove(&user);
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, USERS_MAX};

    #[test]
    fn each_has_one_place_and_one_that_is_given_back_is_had_by_the_next() {
        let mut places = Places::default();
        let most = USERS_MAX as u32;
        assert!((0..most).all(|user| places.take(user).is_ok_and(|is_new| is_new)));
        assert!(places.take(most).is_err());
        assert!(places.take(7).is_ok_and(|is_new| !is_new), "he has one");
        places.give_back(7);
        assert!(places.take(most).is_ok() && places.take(7).is_err());
    }
}
