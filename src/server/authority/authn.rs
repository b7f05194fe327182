//! Who a client is, by the mechanisms that there are, and what he may at most by that.

use std::collections::BTreeSet;

use terral_format::frame;
use terral_format::wire::capability::{Operations, Principal, is_at_or_below};
use terral_format::wire::login::{Proof, Wish};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::by_gss::ByGss;
use crate::authority::by_key::ByKey;
use crate::authority::by_token::ByToken;
use crate::authority::challenges::Challenge;
use crate::authority::failures::Failures;
use crate::authority::mechanism::{Identity, Mechanism, Place, Scene};
use crate::core::machine::{Machine, Process};
use crate::core::paths::shown;
use crate::core::world::World;

/// What a principal may at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Most {
    /// Who.
    pub principal: Principal,
    /// What.
    pub operations: Operations,
    /// At this path, or below; empty: everywhere.
    pub below: Vec<u8>,
    /// Until when, seconds since 1970.
    pub until_s: u64,
}

/// What both of two places allow.
fn both(one: &Place, operations: Operations, below: &[u8]) -> Place {
    let inner = match (is_at_or_below(&one.below, below), is_at_or_below(below, &one.below)) {
        (true, _) => Some(one.below.clone()),
        (_, true) => Some(below.to_vec()),
        _ => None,
    };
    let operations = if inner.is_some() { operations } else { Operations(0) };
    Place { operations: one.operations.within(operations), below: inner.unwrap_or_default() }
}

impl Identity {
    /// What he may at most: what his line and his proof both say, and what he wishes of that. A
    /// capability is for one place: who has several says which.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if nothing is left, [`ErrorKind::Invalid`] if several are.
    pub fn most(&self, now_s: u64, wish: &Wish<'_>) -> Result<Most> {
        let terms = &self.terms;
        let lines = self.places.iter().map(|place| both(place, terms.operations, &terms.below));
        let places: Vec<Place> = lines.filter(|place| place.operations != Operations(0)).collect();
        let known: BTreeSet<&[u8]> = places.iter().map(|place| &*place.below).collect();
        let several = || {
            let shown: Vec<String> = known.iter().map(|path| shown(path)).collect();
            let context = format!("{}: say which place (--below)", shown.join(", "));
            Error::new(ErrorKind::Invalid, context)
        };
        let below = match (wish.below, known.first()) {
            (Some(wished), _) => wished,
            (None, Some(only)) if known.len() == 1 => only,
            (None, Some(_)) => return Err(several()),
            (None, None) => &[],
        };
        let here = places.iter().filter(|place| is_at_or_below(below, &place.below));
        let operations = here.fold(Operations(0), |all, place| all.and(place.operations));
        if operations == Operations(0) {
            let context = format!("{}: nothing is allowed to him there", self.principal);
            return Err(Error::new(ErrorKind::Denied, context));
        }
        let lifetime_s = wish.lifetime_s.map_or(terms.lifetime_s, |s| s.min(terms.lifetime_s));
        let until_s = now_s.saturating_add(lifetime_s).min(self.until_s);
        Ok(Most { principal: self.principal, operations, below: below.to_vec(), until_s })
    }
}

/// The mechanisms by which somebody logs in.
#[derive(Default)]
pub struct Authn {
    /// By keys.
    pub keys: ByKey,
    tokens: ByToken,
    /// By tickets of Kerberos.
    pub tickets: ByGss,
    failures: Failures,
}

impl Authn {
    /// Whom a proof identifies.
    ///
    /// # Errors
    /// As [`Mechanism::identify`], and [`ErrorKind::Busy`] if too many have failed.
    pub fn identify(&mut self, scene: &Scene<'_>, proof: Proof<'_>) -> Result<Identity> {
        let who = match proof {
            Proof::Key(signed) => frame::checksum(&signed.key),
            Proof::Token(token) => frame::checksum(token.0),
            Proof::Gss(sealed) => frame::checksum(self.tickets.whose(&sealed.challenge).as_bytes()),
        };
        self.failures.admit(scene.world.now(), who)?;
        let identity = match proof {
            Proof::Key(signed) => self.keys.identify(scene, signed),
            Proof::Token(token) => self.tokens.identify(scene, token),
            Proof::Gss(sealed) => self.tickets.identify(scene, sealed),
        };
        identity.inspect_err(|_| self.failures.add(scene.world.now(), who))
    }

    /// Whether Kerberos is to be asked of a ticket: not where too many have failed, and once for
    /// each challenge.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`], or [`ErrorKind::Unauthorized`] for a challenge that was not given.
    pub fn admit_ticket(
        &mut self,
        world: &dyn World,
        challenge: &Challenge,
        token: &[u8],
    ) -> Result<()> {
        self.failures.admit(world.now(), frame::checksum(token))?;
        if self.keys.challenges.take(world, challenge) {
            return Ok(());
        }
        let what = "gss: the challenge was not given here, or not just now, or was used before";
        Err(Error::new(ErrorKind::Unauthorized, what))
    }

    /// It was not good.
    pub fn ticket_failed(&mut self, world: &dyn World, token: &[u8]) {
        self.failures.add(world.now(), frame::checksum(token));
    }
}

/// Refuses a process that says it acts as somebody as whom the kernel would not let it act.
pub fn permit_acting(machine: &dyn Machine, process: &dyn Process, person: &Person) -> Result<()> {
    // What was read is that process's only if it still is there.
    if machine.may_act(process.pid(), person) && process.is_alive() {
        return Ok(());
    }
    let context = format!("process {}: may not act as user {}", process.pid(), person.user);
    Err(Error::new(ErrorKind::Unauthorized, context))
}

#[cfg(test)]
mod tests {
    use super::{Identity, Operations, Place, Wish};
    use crate::authority::principals::Terms;
    use proptest::prelude::{any, prop, proptest};
    use terral_format::ErrorKind;
    use terral_format::wire::capability::{Principal, is_at_or_below};

    fn place(operations: Operations, below: &str) -> Place {
        Place { operations, below: below.into() }
    }

    fn identity(below: &str, places: Vec<Place>) -> Identity {
        let operations = Operations::ALL.without(Operations::ADMIN);
        let terms = Terms { operations, below: below.into(), lifetime_s: 60 };
        Identity { principal: Principal::User(1), terms, places, until_s: 150 }
    }

    #[test]
    fn what_the_line_and_the_proof_both_allow_is_what_one_may() {
        let reads = Operations::READ.and(Operations::LIST);
        let most = |identity: &Identity, below: Option<&str>, lifetime_s| {
            let wish = Wish { below: below.map(str::as_bytes), lifetime_s };
            let most = identity.most(100, &wish).map_err(|error| error.kind)?;
            Ok((most.operations, String::from_utf8(most.below).expect("text"), most.until_s))
        };
        let wide = identity("", vec![place(reads, ""), place(Operations::WRITE, "out")]);
        assert_eq!(most(&wide, None, None), Err(ErrorKind::Invalid));
        assert_eq!(most(&wide, Some(""), None), Ok((reads, String::new(), 150)));
        let both = reads.and(Operations::WRITE);
        assert_eq!(most(&wide, Some("out/a"), Some(7)), Ok((both, "out/a".into(), 107)));
        assert_eq!(most(&wide, Some("other"), Some(900)), Ok((reads, "other".into(), 150)));
        let bound = identity("out", wide.places.clone());
        assert_eq!(most(&bound, None, None), Ok((both, "out".into(), 150)));
        assert_eq!(most(&bound, Some(""), None), Err(ErrorKind::Denied));
        let apart = identity("elsewhere", vec![place(Operations::WRITE, "out")]);
        assert_eq!(most(&apart, None, None), Err(ErrorKind::Denied));
        let admin = identity("", vec![place(Operations::ADMIN, "")]);
        assert_eq!(most(&admin, None, None), Err(ErrorKind::Denied));
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_his_line_and_his_proof_say(
            line in "(a(/[ab]){0,2})?",
            wish in prop::option::of("(a(/[ab]){0,2})?"),
            proofs in prop::collection::vec((any::<u8>(), "(a(/[ab]){0,2})?"), 0..4)
        ) {
            let places = proofs.iter().map(|(set, at)| place(Operations(set & 63), at)).collect();
            let identity = identity(&line, places);
            let wish = Wish { below: wish.as_deref().map(str::as_bytes), lifetime_s: None };
            let Ok(most) = identity.most(100, &wish) else { return Ok(()) };
            assert!(identity.terms.operations.contain(most.operations));
            assert!(is_at_or_below(&most.below, line.as_bytes()));
            assert!(most.until_s <= 150);
            let here = identity.places.iter().filter(|one| is_at_or_below(&most.below, &one.below));
            let proven = here.fold(Operations(0), |all, one| all.and(one.operations));
            assert!(proven.contain(most.operations));
        }
    }
}
