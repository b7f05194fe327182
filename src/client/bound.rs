//! What a capability says of how its holder must go about things.

use terral_format::wire::capability::{Capability, Operations, Principal};

/// Whether its holder must ask for what others see in shared memory.
pub(crate) fn must_ask(capability: &Capability) -> bool {
    let scope = capability.scope();
    let bound = scope.below.is_some_and(|place| !place.is_empty());
    let contained = !matches!(capability.grant.principal, Principal::User(_));
    bound || contained || !scope.rights.operations.contain(Operations::LIST)
}
