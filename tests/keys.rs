//! Keys of OpenSSH for tests, each by a number.
#![allow(dead_code)] // Each test file uses its part.

use ed25519_dalek::SigningKey;
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, PrivateKey};
use ssh_key::public::Ed25519PublicKey;

/// The key itself.
pub fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

/// What a list of principals has of it.
pub fn public(seed: u8) -> String {
    let public = Ed25519PublicKey(key(seed).verifying_key().to_bytes());
    ssh_key::PublicKey::from(public).to_openssh().expect("text")
}

/// What its owner has in a file.
pub fn private(seed: u8) -> String {
    let own = key(seed);
    let pair = Ed25519Keypair {
        public: Ed25519PublicKey(own.verifying_key().to_bytes()),
        private: Ed25519PrivateKey::from_bytes(&own.to_bytes()),
    };
    PrivateKey::from(pair).to_openssh(ssh_key::LineEnding::LF).expect("text").to_string()
}
