//! What a mechanism is: it looks at a proof and says whom that identifies.
//!
//! Invariants, held by one suite for all (`conformance`): whom it identifies is listed, and gets no
//! more than his line says; a proof that differs in one bit, or was made for another server, is
//! refused; no refusal repeats what is secret. A mechanism knows nothing of credentials and
//! capabilities.

use terral_format::Result;
use terral_format::ids::InstanceId;
use terral_format::wire::capability::{Operations, Principal};

use crate::authority::principals::{Principals, Terms};
use crate::core::world::World;

/// Where and when somebody proves who he is.
pub struct Scene<'a> {
    /// Time.
    pub world: &'a dyn World,
    /// The instance that is asked.
    pub instance: InstanceId,
    /// Who is who.
    pub principals: &'a Principals,
}

/// Operations at a path, or below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What.
    pub operations: Operations,
    /// Where; empty: everywhere.
    pub below: Vec<u8>,
}

/// Whom a proof identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whom.
    pub principal: Principal,
    /// What he may at most.
    pub terms: Terms,
    /// What the proof itself is for, which may be less.
    pub places: Vec<Place>,
    /// Until when the proof is good, seconds since 1970.
    pub until_s: u64,
}

impl Identity {
    /// Of a proof that is for all that its principal may.
    pub fn whole(principal: Principal, terms: Terms) -> Self {
        let places = vec![Place { operations: Operations::ALL, below: Vec::new() }];
        Identity { principal, terms, places, until_s: u64::MAX }
    }
}

/// One way to prove who one is.
pub trait Mechanism {
    /// What is shown.
    type Proof<'p>;

    /// Whom it identifies.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::Unauthorized`] if nobody.
    fn identify(&mut self, scene: &Scene<'_>, proof: Self::Proof<'_>) -> Result<Identity>;
}
