//! What must hold where records are applied. Builds for tests stop when it does not; in every other
//! build nothing is looked at, as a server that serves with a doubt loses less than one that ends.

/// Checks that `what` is so.
pub fn holds(what: &str, is: impl FnOnce() -> bool) {
    if cfg!(any(test, debug_assertions)) {
        assert!(is(), "not so: {what}");
    }
}
