//! Who asks.

use std::sync::Arc;

use terral_format::ids::SessionSlot;
use terral_format::wire::person::Person;

/// Who asks for something, and has been found to be allowed to ask.
pub struct Caller {
    /// Its session, or the number that no session has, if it asks without one.
    pub session: SessionSlot,
    /// Whom it acts as.
    pub person: Arc<Person>,
}
