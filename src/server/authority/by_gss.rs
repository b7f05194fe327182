//! `gss`: who has a ticket of Kerberos 5 for this server (GSS-API, RFC 4121). He shows it with a
//! challenge; is answered by what only the server's key can have made; and seals both, the
//! challenge and the instance, with the key that the two share then.
//!
//! Invariants: a challenge is for one ticket, and a ticket for one login; nobody is known before
//! the seal is good. Not here: Kerberos itself, and its files (`shell::tickets`).

use std::collections::VecDeque;
use std::time::Duration;

use terral_format::wire::capability::Principal;
use terral_format::wire::login::{Sealed, sealed};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::challenges::Challenge;
use crate::authority::mechanism::{Identity, Mechanism, Scene};
use crate::core::world::{Tick, World};

/// Who was answered has so long to log in.
const LASTS: Duration = Duration::from_secs(60);
/// Most at a time; the oldest goes first.
const MOST: usize = 64;

/// A ticket that was found good: what its holder seals can be checked.
pub trait Ticket: Send {
    /// As whom Kerberos knows him: `alice@EXAMPLE.ORG`.
    fn name(&self) -> &str;

    /// Whether he has sealed this; and until when the ticket is good, seconds since 1970.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if he has not.
    fn says(self: Box<Self>, message: &[u8], seal: &[u8]) -> Result<u64>;
}

/// What was made of what somebody has shown.
pub struct Answered {
    /// It.
    pub ticket: Box<dyn Ticket>,
    /// What proves to him who the server is.
    pub answer: Vec<u8>,
}

struct Begun {
    since: Tick,
    challenge: Challenge,
    shown: Vec<u8>,
    answered: Answered,
}

/// Tickets that were shown, and not used yet.
#[derive(Default)]
pub struct ByGss(VecDeque<Begun>);

impl ByGss {
    /// Keeps a ticket that was shown with a challenge, until its holder logs in; gives the answer.
    pub fn begin(
        &mut self,
        world: &dyn World,
        (challenge, shown): (Challenge, &[u8]),
        answered: Answered,
    ) -> Vec<u8> {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        let (since, answer) = (world.now(), answered.answer.clone());
        self.0.push_back(Begun { since, challenge, shown: shown.to_vec(), answered });
        answer
    }

    /// Whose ticket was shown with a challenge; empty: nobody's.
    pub fn whose(&self, challenge: &Challenge) -> &str {
        let found = self.0.iter().find(|begun| begun.challenge == *challenge);
        found.map_or("", |begun| begun.answered.ticket.name())
    }

    fn take(&mut self, world: &dyn World, challenge: &Challenge) -> Option<Begun> {
        let now = world.now();
        self.0.retain(|begun| now.since(begun.since) < LASTS);
        let at = self.0.iter().position(|begun| begun.challenge == *challenge)?;
        self.0.remove(at)
    }
}

fn refuse(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unauthorized, format!("gss: {why}"))
}

impl Mechanism for ByGss {
    type Proof<'p> = Sealed<'p>;

    fn identify(&mut self, scene: &Scene<'_>, proof: Sealed<'_>) -> Result<Identity> {
        let Sealed { challenge, seal } = proof;
        // It is used up whatever becomes of it.
        let begun = self.take(scene.world, &challenge);
        let none = || refuse("no ticket was shown with this challenge, or not just now");
        let Begun { shown, answered: Answered { ticket, answer }, .. } = begun.ok_or_else(none)?;
        let who = ticket.name().to_owned();
        let message = sealed(scene.instance, &challenge, (&shown, &answer));
        let until_s = ticket.says(&message, seal)?;
        if until_s <= scene.world.wall_s() {
            return Err(refuse(format!("{who}: the ticket is over: run kinit")));
        }
        let listed = scene.principals.by_gss(&who);
        let missing = || refuse(format!("{who}: not in the list of principals"));
        let (name, terms) = listed.ok_or_else(missing)?;
        Ok(Identity { until_s, ..Identity::whole(Principal::Gss(name), terms.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Answered, ByGss, Challenge, Error, ErrorKind, Identity, MOST, Mechanism, Principal, Result,
        Scene, Sealed, Ticket, World, sealed,
    };
    use crate::authority::conformance::{Fixed, HERE, NOW_S, Subject, suite};
    use crate::authority::principals::Principals;
    use ed25519_dalek::{Signature, Signer, SigningKey};
    use terral_format::ids::InstanceId;

    const ANSWER: &[u8] = b"the server's";
    const SHOWN: &[u8] = b"who says that he is alice, to terral/node";
    const ALICE: &str = "alice@A.EXAMPLE";

    fn key() -> SigningKey {
        SigningKey::from_bytes(&[4; 32])
    }

    /// A context in which a seal is a signature.
    struct Shares(u64);

    impl Ticket for Shares {
        fn name(&self) -> &str {
            ALICE
        }

        fn says(self: Box<Self>, message: &[u8], seal: &[u8]) -> Result<u64> {
            let other = |_| Error::new(ErrorKind::Unauthorized, "another message");
            let seal = Signature::from_slice(seal);
            let good = seal.and_then(|seal| key().verifying_key().verify_strict(message, &seal));
            good.map_err(other).map(|()| self.0)
        }
    }

    fn answered(until_s: u64) -> Answered {
        Answered { ticket: Box::new(Shares(until_s)), answer: ANSWER.to_vec() }
    }

    fn challenge() -> Challenge {
        Fixed { wall_s: NOW_S }.secret().expect("chance")
    }

    fn seal(instance: InstanceId) -> Vec<u8> {
        key().sign(&sealed(instance, &challenge(), (SHOWN, ANSWER))).to_bytes().to_vec()
    }

    struct Alice;

    impl Alice {
        fn proof_to(instance: InstanceId) -> Vec<u8> {
            [&challenge()[..], SHOWN, &seal(instance)].concat()
        }
    }

    impl Subject for Alice {
        type Of = ByGss;

        fn mechanism(&self) -> ByGss {
            ByGss::default()
        }

        fn lists(&self) -> (Principals, Option<Principals>) {
            let list = format!("alice read,list gss {ALICE}");
            (Principals::read(&list).expect("is one"), Some(Principals::default()))
        }

        fn principal(&self) -> Principal {
            "gss:alice".parse().expect("is one")
        }

        fn proof(&self) -> Vec<u8> {
            Alice::proof_to(HERE)
        }

        fn for_another(&self) -> Option<Vec<u8>> {
            Some(Alice::proof_to(InstanceId(HERE.0 + 1)))
        }

        fn secrets(&self) -> Vec<String> {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            vec![hex(&seal(HERE)), hex(&challenge()), String::from_utf8_lossy(SHOWN).into_owned()]
        }

        /// Shown with one challenge, and sealed with what is said to be the same.
        fn show(&self, of: &mut ByGss, scene: &Scene<'_>, bytes: &[u8]) -> Result<Identity> {
            let malformed = || Error::new(ErrorKind::Unauthorized, "malformed");
            let (said, rest) = bytes.split_first_chunk().ok_or_else(malformed)?;
            let (shown, seal) = rest.split_at_checked(SHOWN.len()).ok_or_else(malformed)?;
            of.begin(scene.world, (challenge(), shown), answered(NOW_S + 60));
            of.identify(scene, Sealed { challenge: *said, seal })
        }
    }

    #[test]
    fn only_who_has_a_ticket_and_is_listed_is_its_principal() {
        suite(&Alice);
    }

    fn tried(of: &mut ByGss, wall_s: u64) -> std::result::Result<u64, String> {
        let (principals, _) = Alice.lists();
        let scene = Scene { world: &Fixed { wall_s }, instance: HERE, principals: &principals };
        let proof = Sealed { challenge: challenge(), seal: &seal(HERE) };
        of.identify(&scene, proof).map(|identity| identity.until_s).map_err(|error| error.context)
    }

    #[test]
    fn a_ticket_is_for_one_login_soon_and_while_it_is_good() {
        let begun = |until_s| {
            let mut of = ByGss::default();
            of.begin(&Fixed { wall_s: NOW_S }, (challenge(), SHOWN), answered(until_s));
            of
        };
        let mut once = begun(NOW_S + 600);
        assert_eq!(once.whose(&challenge()), ALICE);
        assert_eq!(tried(&mut once, NOW_S + 59), Ok(NOW_S + 600));
        assert!(tried(&mut once, NOW_S + 59).expect_err("used").contains("no ticket was shown"));
        assert!(tried(&mut begun(NOW_S + 600), NOW_S + 60).is_err());
        let said = tried(&mut begun(NOW_S), NOW_S).expect_err("over");
        assert!(said.contains("run kinit") && said.contains(ALICE), "{said}");
    }

    #[test]
    fn so_many_are_kept_and_the_oldest_goes() {
        let (mut of, world) = (ByGss::default(), Fixed { wall_s: NOW_S });
        of.begin(&world, (challenge(), SHOWN), answered(NOW_S + 60));
        for number in 0..MOST {
            of.begin(&world, ([number as u8; 32], SHOWN), answered(NOW_S + 60));
        }
        assert_eq!(of.0.len(), MOST);
        assert_eq!(of.whose(&challenge()), "");
        assert!(tried(&mut of, NOW_S).is_err());
    }
}
