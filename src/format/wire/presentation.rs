//! What a session presents.

use serde::{Deserialize, Serialize};

use crate::wire::capability::Capability;
use crate::wire::person::Person;

/// What is presented: a capability, and whom its holder acts as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presentation {
    /// What may be done.
    pub capability: Capability,
    /// Who does it: within what the capability allows, he is refused what Linux refuses him.
    pub person: Person,
}
