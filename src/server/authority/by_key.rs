//! `key`: who has the private half of a listed key (Ed25519) signs a challenge of this server.

use ed25519_dalek::{Signature, VerifyingKey};
use terral_format::wire::capability::Principal;
use terral_format::wire::login::{Signed, signed};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::challenges::Challenges;
use crate::authority::mechanism::{Identity, Mechanism, Scene};

/// Keys.
#[derive(Default)]
pub struct ByKey {
    /// What is to be signed.
    pub challenges: Challenges,
}

/// As people know a key: `ssh-keygen -l` says the same.
fn shown(key: &[u8; 32]) -> String {
    let data = ssh_key::public::KeyData::from(ssh_key::public::Ed25519PublicKey(*key));
    data.fingerprint(ssh_key::HashAlg::Sha256).to_string()
}

impl Mechanism for ByKey {
    type Proof<'p> = Signed<'p>;

    fn identify(&mut self, scene: &Scene<'_>, proof: Signed<'_>) -> Result<Identity> {
        let refuse = |why: &str| {
            let context = format!("key {}: {why}", shown(&proof.key));
            Error::new(ErrorKind::Unauthorized, context)
        };
        // It is used up whatever becomes of it.
        if !self.challenges.take(scene.world, &proof.challenge) {
            return Err(refuse("what it has signed was not asked for, or not just now"));
        }
        let listed = scene.principals.by_key(&proof.key);
        let (name, terms) = listed.ok_or_else(|| refuse("not in the list of principals"))?;
        let message = signed(scene.instance, &proof.challenge);
        let key = VerifyingKey::from_bytes(&proof.key).map_err(|_| refuse("no key"))?;
        let good = Signature::from_slice(proof.signature)
            .and_then(|signature| key.verify_strict(&message, &signature));
        good.map_err(|_| refuse("the signature is not its own, or for another server"))?;
        Ok(Identity::whole(Principal::Key(name), terms.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::signed;
    use super::{ByKey, Error, ErrorKind, Identity, Mechanism, Principal, Result, Scene, Signed};
    use crate::authority::conformance::{Fixed, HERE, NOW_S, Subject, suite};
    use crate::authority::principals::Principals;
    use crate::core::world::World;
    use ed25519_dalek::{Signer, SigningKey};
    use terral_format::ids::InstanceId;
    use terral_format::wire::login::CHALLENGE_BYTES;

    struct Pilot(SigningKey);

    impl Pilot {
        fn new() -> Self {
            Pilot(SigningKey::from_bytes(&[3; 32]))
        }

        /// What the server's world draws.
        fn challenge() -> [u8; CHALLENGE_BYTES] {
            Fixed { wall_s: NOW_S }.secret().expect("chance")
        }

        fn signature(&self, instance: InstanceId) -> [u8; 64] {
            self.0.sign(&signed(instance, &Pilot::challenge())).to_bytes()
        }

        fn proof_to(&self, instance: InstanceId) -> Vec<u8> {
            let key = self.0.verifying_key().to_bytes();
            [&key[..], &Pilot::challenge(), &self.signature(instance)].concat()
        }
    }

    impl Subject for Pilot {
        type Of = ByKey;

        fn mechanism(&self) -> ByKey {
            let mut keys = ByKey::default();
            keys.challenges.give(&Fixed { wall_s: NOW_S }).expect("chance");
            keys
        }

        fn lists(&self) -> (Principals, Option<Principals>) {
            let key = ssh_key::public::Ed25519PublicKey(self.0.verifying_key().to_bytes());
            let key = ssh_key::PublicKey::from(key).to_openssh().expect("text");
            let text = format!("pilot read,list below=/in for=2h key {key}");
            let principals = Principals::read(&text).expect("is one");
            (principals, Some(Principals::default()))
        }

        fn principal(&self) -> Principal {
            "key:pilot".parse().expect("is one")
        }

        fn proof(&self) -> Vec<u8> {
            self.proof_to(HERE)
        }

        fn for_another(&self) -> Option<Vec<u8>> {
            Some(self.proof_to(InstanceId(HERE.0 + 1)))
        }

        fn secrets(&self) -> Vec<String> {
            let all = [&self.signature(HERE)[..], &Pilot::challenge(), self.0.as_bytes()];
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            all.into_iter().map(hex).collect()
        }

        fn show(&self, of: &mut ByKey, scene: &Scene<'_>, bytes: &[u8]) -> Result<Identity> {
            let malformed = || Error::new(ErrorKind::Unauthorized, "malformed");
            let (key, rest) = bytes.split_first_chunk().ok_or_else(malformed)?;
            let (challenge, signature) = rest.split_first_chunk().ok_or_else(malformed)?;
            of.identify(scene, Signed { key: *key, challenge: *challenge, signature })
        }
    }

    #[test]
    fn only_who_has_a_listed_key_is_its_principal() {
        suite(&Pilot::new());
    }

    #[test]
    fn a_challenge_is_good_once_and_not_for_long() {
        let pilot = Pilot::new();
        let (principals, _) = pilot.lists();
        let at = |of: &mut ByKey, wall_s| {
            let scene = Scene { world: &Fixed { wall_s }, instance: HERE, principals: &principals };
            pilot.show(of, &scene, &pilot.proof()).map(|_| ()).map_err(|error| error.kind)
        };
        let mut keys = pilot.mechanism();
        assert_eq!(at(&mut keys, NOW_S + 59), Ok(()));
        assert_eq!(at(&mut keys, NOW_S + 59), Err(ErrorKind::Unauthorized));
        assert_eq!(at(&mut pilot.mechanism(), NOW_S + 60), Err(ErrorKind::Unauthorized));
    }
}
