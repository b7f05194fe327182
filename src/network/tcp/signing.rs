//! How a member proves that it is the one it says it is: an Ed25519 signature (RFC 8032) over the
//! channel and both greetings, whose nonces are new, so that nothing that was said before, or to
//! somebody in between, proves anything. Each member has a key of its own: who has one member's
//! speaks for no other.
//!
//! Not here: who may have a session (`shake`), and how the others come to know its public half.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use terral_format::wire::roster::{Key, Secret};

use super::greeting::{Channel, PROOF_BYTES, Said, Side};

/// Who proves something, over which channel, and the greetings of the dialler and the acceptor.
pub(super) type Claim<'a> = (Side, &'a Channel, &'a Said, &'a Said);

/// The public half of a member's key.
pub fn public_half(secret: &Secret) -> Key {
    Key(SigningKey::from_bytes(&secret.0).verifying_key().to_bytes())
}

fn message((side, channel, dialler, acceptor): Claim) -> Vec<u8> {
    let side: &[u8] = match side {
        Side::Dialler => b"terral dialler",
        Side::Acceptor => b"terral acceptor",
    };
    let (channel, exporter): (&[u8], &[u8]) = match channel {
        Channel::Plain => (b" plain", &[]),
        Channel::Tls(exporter) => (b" tls-exporter", exporter),
    };
    [side, channel, exporter, dialler, acceptor].concat()
}

/// The proof of one side, over this channel, for these two greetings and no others.
pub(super) fn prove(secret: &Secret, claim: Claim) -> [u8; PROOF_BYTES] {
    SigningKey::from_bytes(&secret.0).sign(&message(claim)).to_bytes()
}

/// Whether it is that, of who has the secret half of this key.
pub(super) fn is_proven(key: &Key, claim: Claim, proof: &[u8]) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(&key.0) else { return false };
    let proof = proof.first_chunk().map(Signature::from_bytes);
    proof.is_some_and(|proof| key.verify_strict(&message(claim), &proof).is_ok())
}

#[cfg(test)]
mod tests {
    use super::{is_proven, prove, public_half};
    use crate::tcp::greeting::{Channel, Side, tests::greeting};
    use terral_format::wire::roster::{Key, Secret};

    #[test]
    fn a_proof_is_of_one_key_one_side_one_channel_and_two_greetings() {
        let [one, other, again] =
            [greeting(7, 1), greeting(8, 2), greeting(7, 3)].map(|g| g.write());
        let (secret, tls) = (Secret([9; 32]), Channel::Tls([4; 32]));
        let key = public_half(&secret);
        let right = (Side::Dialler, &tls, &one, &other);
        let proof = prove(&secret, right);
        assert!(is_proven(&key, right, &proof));
        assert!(!is_proven(&public_half(&Secret([8; 32])), right, &proof));
        assert!(!is_proven(&Key([0; 32]), right, &proof), "a key of small order");
        assert!(!is_proven(&Key([255; 32]), right, &proof), "no key");
        for at in 0..proof.len() * 8 {
            let mut turned = proof;
            turned[at / 8] ^= 1 << (at % 8);
            assert!(!is_proven(&key, right, &turned), "bit {at}");
        }
        assert!(!is_proven(&key, right, &proof[..63]));
        for wrong in [
            (Side::Acceptor, &tls, &one, &other),
            (Side::Dialler, &Channel::Tls([5; 32]), &one, &other),
            (Side::Dialler, &Channel::Plain, &one, &other),
            (Side::Dialler, &tls, &again, &other),
            (Side::Dialler, &tls, &other, &one),
        ] {
            assert!(!is_proven(&key, wrong, &proof), "{wrong:?}");
        }
    }
}
