//! `token`: who has a token (JWT, RFC 7519) of a listed issuer, in the profile of SciTokens or WLCG
//! (their `scope` says operations and paths).
//!
//! Invariants: nothing a token says counts before its signature is good, but which issuer's keys
//! to try; how it is checked is the key's affair (`token_keys`). Not here: how long a credential
//! lasts.

use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde::Deserialize;
use terral_format::wire::capability::{Operations, Principal};
use terral_format::wire::login::{Hidden, TOKEN_MAX};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::mechanism::{Identity, Mechanism, Place, Scene};
use crate::authority::principals::{Issuer, place};
use crate::authority::token_keys::TokenKey;

/// Clocks of issuers may be ahead by so much, seconds.
const AHEAD_S: f64 = 60.0;
/// Most that is repeated of what a token says.
const SHOWN: usize = 128;

/// What is read of a token.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    exp: f64,
    #[serde(default)]
    nbf: f64,
    aud: Audience,
    #[serde(default)]
    scope: String,
}

/// One, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn has(&self, audience: &str) -> bool {
        match self {
            Audience::One(one) => one == audience,
            Audience::Several(all) => all.iter().any(|one| one == audience),
        }
    }
}

/// Only the signature is looked at: the rest is, here, by this server's clock.
fn validation(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_nbf) = (false, false);
    validation.validate_aud = false;
    validation
}

fn refuse(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unauthorized, format!("token: {why}"))
}

/// What somebody says of himself, fit to be repeated.
fn shown(said: &str) -> String {
    said.chars().filter(|character| character.is_ascii_graphic()).take(SHOWN).collect()
}

/// What an operation of a scope allows: those of WLCG, then those of SciTokens.
fn allowed(word: &str) -> Option<Operations> {
    let read = Operations::READ.and(Operations::LIST);
    // To create is not to write over what is there.
    let create = Operations::CREATE.and(Operations::LIST);
    let modify = Operations::WRITE.and(Operations::REMOVE).and(create);
    match word {
        "storage.read" | "storage.stage" | "read" => Some(read),
        "storage.create" => Some(create),
        "storage.modify" | "write" => Some(modify),
        _ => None,
    }
}

/// Where a scope allows what. What is for other services does not count, nor what says no path.
fn places(scope: &str) -> Vec<Place> {
    let one = |word: &str| {
        let (operation, path) = word.split_once(':')?;
        Some(Place { operations: allowed(operation)?, below: place(path).ok()? })
    };
    scope.split(' ').filter_map(one).collect()
}

/// Tokens.
#[derive(Default)]
pub struct ByToken;

impl ByToken {
    /// What a token says, if one of the issuer's keys has signed it.
    fn verified(issuer: &Issuer, text: &str) -> Result<Claims> {
        let header = decode_header(text).map_err(|_| refuse("malformed"))?;
        let named = |key: &&TokenKey| match (&header.kid, &key.id) {
            (Some(said), Some(known)) => said == known,
            _ => true,
        };
        let fits = |key: &&TokenKey| key.algorithm == header.alg;
        let mut keys = issuer.keys.iter().filter(fits).filter(named);
        let good =
            keys.find_map(|key| decode::<Claims>(text, &key.key, &validation(key.algorithm)).ok());
        good.map(|good| good.claims).ok_or_else(|| refuse("not signed by a key of its issuer"))
    }
}

/// What is said of the issuer, before anything is known to be true.
fn claimed_issuer(text: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Claimed {
        iss: String,
    }
    let header = decode_header(text).map_err(|_| refuse("no token of a kind that is read"))?;
    if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256) {
        let what = format!("signed by {:?}: only RS256 and ES256 are read", header.alg);
        return Err(refuse(what));
    }
    let mut none = validation(header.alg);
    none.insecure_disable_signature_validation();
    let key = jsonwebtoken::DecodingKey::from_secret(&[]);
    let claimed = decode::<Claimed>(text, &key, &none).map_err(|_| refuse("malformed"))?;
    Ok(claimed.claims.iss)
}

impl Mechanism for ByToken {
    type Proof<'p> = Hidden<'p>;

    fn identify(&mut self, scene: &Scene<'_>, proof: Hidden<'_>) -> Result<Identity> {
        let text = std::str::from_utf8(proof.0).map_err(|_| refuse("malformed"))?.trim();
        if text.len() > TOKEN_MAX {
            return Err(refuse("too long"));
        }
        let said = claimed_issuer(text)?;
        let issuer = scene.principals.issuer(&said);
        let issuer = issuer
            .ok_or_else(|| refuse(format!("of {}, which is no issuer here", shown(&said))))?;
        let claims = ByToken::verified(issuer, text)?;
        let now_s = scene.world.wall_s();
        if claims.iss != issuer.url {
            return Err(refuse("of another issuer"));
        }
        if !claims.exp.is_finite() || claims.exp <= now_s as f64 {
            return Err(refuse("expired"));
        }
        if claims.nbf.is_nan() || claims.nbf > now_s as f64 + AHEAD_S {
            return Err(refuse("not good yet"));
        }
        if !claims.aud.has(&issuer.audience) {
            return Err(refuse(format!("for another audience than {}", issuer.audience)));
        }
        let listed = scene.principals.by_token(&claims.iss, &claims.sub);
        let missing = || refuse(format!("{}: not in the list of principals", shown(&claims.sub)));
        let (name, terms) = listed.ok_or_else(missing)?;
        let places = places(&claims.scope);
        if places.is_empty() {
            return Err(refuse("its scope says nothing of files (storage.read:/PATH)"));
        }
        let (principal, until_s) = (Principal::Token(name), claims.exp as u64);
        Ok(Identity { principal, terms: terms.clone(), places, until_s })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ByToken, Hidden, Identity, Mechanism, Operations, Principal, Result, Scene, TOKEN_MAX,
        places,
    };
    use crate::authority::conformance::{Fixed, HERE, NOW_S, Subject, suite};
    use crate::authority::principals::Principals;
    use jsonwebtoken::{Algorithm, EncodingKey, Header};
    use serde_json::{Value, json};

    const ISSUER: &str = "https://tokens.example";
    const AUDIENCE: &str = "https://store.example";
    const PEM: &[u8] = include_bytes!("../../../tests/programs/tokens/ec.pem");
    const KEY: &[u8] = include_bytes!("../../../tests/programs/tokens/ec.key");

    /// What a token says, and its text, which is another each time it is signed.
    struct Flow(String);

    fn claims() -> Value {
        json!({ "iss": ISSUER, "sub": "wf-7", "aud": AUDIENCE, "exp": NOW_S + 60,
            "scope": "storage.read:/in" })
    }

    fn token(claims: &Value) -> String {
        let key = EncodingKey::from_ec_pem(KEY).expect("is a key");
        jsonwebtoken::encode(&Header::new(Algorithm::ES256), claims, &key).expect("signs")
    }

    fn listed() -> Principals {
        let text = format!(
            "issuer {ISSUER} audience={AUDIENCE} keys=/k\nflow read,list token {ISSUER} wf-7"
        );
        let mut all = Principals::read(&text).expect("is one");
        all.give_keys("/k", PEM).expect("is one");
        all
    }

    impl Subject for Flow {
        type Of = ByToken;

        fn mechanism(&self) -> ByToken {
            ByToken
        }

        fn lists(&self) -> (Principals, Option<Principals>) {
            (listed(), Some(Principals::default()))
        }

        fn principal(&self) -> Principal {
            "token:flow".parse().expect("is one")
        }

        fn proof(&self) -> Vec<u8> {
            self.0.clone().into_bytes()
        }

        fn for_another(&self) -> Option<Vec<u8>> {
            let mut claims = claims();
            claims["aud"] = "https://other.example".into();
            Some(token(&claims).into_bytes())
        }

        fn secrets(&self) -> Vec<String> {
            self.0.split('.').map(str::to_owned).collect()
        }

        fn show(&self, of: &mut ByToken, scene: &Scene<'_>, bytes: &[u8]) -> Result<Identity> {
            of.identify(scene, Hidden(bytes))
        }
    }

    #[test]
    fn only_who_has_a_token_of_a_listed_issuer_is_its_subject() {
        suite(&Flow(token(&claims())));
    }

    #[test]
    fn what_a_token_says_counts_only_as_it_says() {
        let principals = listed();
        let scene =
            Scene { world: &Fixed { wall_s: NOW_S }, instance: HERE, principals: &principals };
        let says = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            let text = token(&claims);
            ByToken.identify(&scene, Hidden(text.as_bytes())).map_err(|error| error.context)
        };
        let refused = |name: &str, value: Value, why: &str| {
            let said = says(name, value).expect_err(why);
            assert!(said.contains(why), "{said}");
        };
        assert!(says("aud", json!(["x", AUDIENCE])).is_ok());
        assert_eq!(says("exp", json!(NOW_S as f64 + 0.5)).expect("lasts").until_s, NOW_S);
        refused("exp", json!(NOW_S), "expired");
        refused("exp", Value::Null, "not signed");
        refused("nbf", json!(NOW_S + 61), "not good yet");
        refused("sub", json!("wf-8"), "wf-8: not in the list");
        refused("iss", json!("https://other.example"), "no issuer here");
        refused("scope", json!("openid"), "nothing of files");
        let long = "x".repeat(TOKEN_MAX + 1);
        assert!(ByToken.identify(&scene, Hidden(long.as_bytes())).is_err());
    }

    #[test]
    fn scopes_are_operations_at_paths() {
        let words = |scope: &str| -> Vec<(String, String)> {
            let each = places(scope).into_iter();
            each.map(|place| {
                let words: Vec<&str> = place.operations.words().collect();
                (words.join(","), String::from_utf8(place.below).expect("text"))
            })
            .collect()
        };
        let pair = |operations: &str, path: &str| (operations.to_owned(), path.to_owned());
        assert_eq!(
            words("storage.read:/ storage.modify:/out//x openid compute.read storage.create:/in"),
            [
                pair("read,list", ""),
                pair("write,create,remove,list", "out/x"),
                pair("create,list", "in")
            ]
        );
        assert_eq!(words("read:/d write:/d").len(), 2);
        for none in ["", "storage.read", "storage.read:", "storage.read:/../x", "admin:/", "read:x"]
        {
            assert_eq!(words(none), [], "{none}");
        }
        assert!(places("write:/").iter().all(|place| !place.operations.contain(Operations::ADMIN)));
    }
}
