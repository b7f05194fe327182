//! What every mechanism promises, shown of each: `Mechanism` says it in words.
//!
//! A subject has a proof, as bytes, and shows what it is given; the suite turns each of its bits.

use std::time::Duration;

use terral_format::ids::InstanceId;
use terral_format::wire::capability::{Operations, Principal};
use terral_format::wire::login::Wish;
use terral_format::{ErrorKind, Result};

use crate::authority::mechanism::{Identity, Mechanism, Scene};
use crate::authority::principals::Principals;
use crate::core::world::{Tick, World};

/// A world in which a time is given, and chance too.
pub struct Fixed {
    pub wall_s: u64,
}

/// What [`Fixed`] draws.
pub const DRAWN: u128 = 7;

impl World for Fixed {
    fn now(&self) -> Tick {
        Tick::default() + Duration::from_secs(self.wall_s)
    }

    fn wall_ns(&self) -> u64 {
        self.wall_s * 1_000_000_000
    }

    fn random(&self) -> Result<u128> {
        Ok(DRAWN)
    }

    fn give_way(&self) {}
}

/// The server to which proofs of subjects are made.
pub const HERE: InstanceId = InstanceId(5);
/// When.
pub const NOW_S: u64 = 1_000;

/// A mechanism, and somebody whom it is to identify.
pub trait Subject {
    /// It.
    type Of: Mechanism;

    /// One that has not been used.
    fn mechanism(&self) -> Self::Of;
    /// The list in which he is, and one in which he is not, if a list matters.
    fn lists(&self) -> (Principals, Option<Principals>);
    /// Who he is.
    fn principal(&self) -> Principal;
    /// What proves it at [`HERE`] and [`NOW_S`].
    fn proof(&self) -> Vec<u8>;
    /// What would prove it to another server, if it can be made.
    fn for_another(&self) -> Option<Vec<u8>>;
    /// What of the proof must never be repeated, as it would be printed.
    fn secrets(&self) -> Vec<String>;
    /// Shows such bytes.
    fn show(&self, of: &mut Self::Of, scene: &Scene<'_>, bytes: &[u8]) -> Result<Identity>;
}

fn shown<S: Subject>(subject: &S, principals: &Principals, bytes: &[u8]) -> Result<Identity> {
    let world = Fixed { wall_s: NOW_S };
    let scene = Scene { world: &world, instance: HERE, principals };
    subject.show(&mut subject.mechanism(), &scene, bytes)
}

/// No part of a secret that would help to guess the rest.
const PART: usize = 8;

fn refused<S: Subject>(subject: &S, principals: &Principals, bytes: &[u8], what: &str) {
    let Err(error) = shown(subject, principals, bytes) else { panic!("taken: {what}") };
    assert!(matches!(error.kind, ErrorKind::Unauthorized | ErrorKind::Denied), "{what}: {error:?}");
    for secret in subject.secrets() {
        let told = secret
            .as_bytes()
            .windows(PART)
            .any(|part| error.context.as_bytes().windows(PART).any(|said| said == part));
        assert!(!told, "{what}: {}", error.context);
    }
}

/// All that a mechanism promises.
pub fn suite<S: Subject>(subject: &S) {
    let (principals, without) = subject.lists();
    let proof = subject.proof();
    let identity = shown(subject, &principals, &proof).expect("is good");
    assert_eq!(identity.principal, subject.principal());
    let most = identity.most(NOW_S, &Wish::default()).expect("something is allowed");
    assert!(identity.terms.operations.contain(most.operations));
    assert_ne!(most.operations, Operations(0));
    assert!(most.until_s <= identity.until_s && most.until_s > NOW_S);

    for bit in 0..proof.len() * 8 {
        let mut turned = proof.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        refused(subject, &principals, &turned, &format!("bit {bit} turned"));
    }
    for length in [0, 1, proof.len() / 2, proof.len() - 1] {
        refused(subject, &principals, &proof[..length], &format!("cut at {length}"));
    }
    refused(subject, &principals, &[&proof[..], b"x"].concat(), "longer");
    if let Some(elsewhere) = subject.for_another() {
        refused(subject, &principals, &elsewhere, "for another server");
    }
    if let Some(without) = without {
        refused(subject, &without, &proof, "not listed");
    }
}
