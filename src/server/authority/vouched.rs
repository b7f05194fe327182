//! Capabilities of another member's that it has said to be good. What was made of one of them is
//! good as well, without asking: who has a capability can tell its children.
//!
//! Invariant: no key is here, and what was not presented here is not known here. Not here: what was
//! revoked since (`revoked`), and for how long that is known (`lease`).

use std::collections::VecDeque;

use terral_format::wire::capability::Capability;

/// Most that are kept; who presents an older one has it asked about again.
const KEPT_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Vouched {
    /// The last one was said last.
    known: VecDeque<Capability>,
}

impl Vouched {
    /// Whether this is good, or made of what is.
    pub fn covers(&self, capability: &Capability) -> bool {
        self.known.iter().any(|parent| parent.is_parent_of(capability))
    }

    /// This is good. What was made of it need not be kept.
    pub fn learns(&mut self, capability: Capability) {
        self.known.retain(|known| !capability.is_parent_of(known));
        if self.known.len() >= KEPT_MAX {
            self.known.pop_front();
        }
        self.known.push_back(capability);
    }
}

#[cfg(test)]
mod tests {
    use terral_format::ids::{ContainerId, ServerId};
    use terral_format::wire::capability::{Capability, Caveat, Grant, Key, Operations, Principal};

    use super::{KEPT_MAX, Vouched};

    fn issued(serial: u64) -> Capability {
        let grant = Grant {
            container: ContainerId(1),
            operations: Operations::ALL,
            principal: Principal::User(1),
            epoch: 0,
            expires_s: 10,
            serial,
            issuer: ServerId(2),
        };
        Capability::issue(&Key([3; 32]), grant).expect("encodes")
    }

    #[test]
    fn children_need_no_question_and_parents_do() {
        let whole = issued(1);
        let child = whole.attenuate(Caveat::Only(Operations::READ)).expect("encodes");
        let mut vouched = Vouched::default();
        vouched.learns(child.clone());
        assert!(vouched.covers(&child) && !vouched.covers(&whole) && !vouched.covers(&issued(2)));
        vouched.learns(whole.clone());
        assert!(vouched.covers(&child) && vouched.covers(&whole) && vouched.known.len() == 1);
    }

    #[test]
    fn it_is_bounded() {
        let mut vouched = Vouched::default();
        (0..=KEPT_MAX as u64).for_each(|serial| vouched.learns(issued(serial)));
        assert!(vouched.known.len() == KEPT_MAX && !vouched.covers(&issued(0)));
    }
}
