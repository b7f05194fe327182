//! Keys by which issuers sign tokens: a JWK set (RFC 7517), or a public key in PEM.
//!
//! Invariant: a key is for one algorithm, RS256 or ES256, by its own kind, whatever a token says; a
//! shared secret is none. So no token can choose how it is checked.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey};
use terral_format::{Error, ErrorKind, Result};

/// One.
#[derive(Clone)]
pub struct TokenKey {
    /// What tokens call it, if they do.
    pub id: Option<String>,
    /// What it is for.
    pub algorithm: Algorithm,
    /// It.
    pub key: DecodingKey,
}

/// One of a set, if it can be used.
fn of_jwk(jwk: &Jwk) -> Option<TokenKey> {
    let (algorithm, said) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|other| other != said) {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    Some(TokenKey { id: jwk.common.key_id.clone(), algorithm, key })
}

fn of_pem(bytes: &[u8]) -> Option<TokenKey> {
    let rsa = DecodingKey::from_rsa_pem(bytes).map(|key| (Algorithm::RS256, key));
    let found = rsa.or_else(|_| DecodingKey::from_ec_pem(bytes).map(|key| (Algorithm::ES256, key)));
    found.ok().map(|(algorithm, key)| TokenKey { id: None, algorithm, key })
}

/// The keys of a set that can be used, or the one of a PEM file.
///
/// # Errors
/// [`ErrorKind::Invalid`] if there is none.
pub fn read(bytes: &[u8]) -> Result<Vec<TokenKey>> {
    let set = serde_json::from_slice::<JwkSet>(bytes);
    let keys: Vec<TokenKey> = match set {
        Ok(set) => set.keys.iter().filter_map(of_jwk).collect(),
        Err(_) => of_pem(bytes).into_iter().collect(),
    };
    if keys.is_empty() {
        let what = "no key for RS256 or ES256 in it: a JWK set, or a public key in PEM";
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(keys)
}
