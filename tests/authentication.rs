//! Others than the server's user: who proves by a key or a token who he is does what his line in
//! the list of principals says, through real programs, and no more; who logs out has nothing; and
//! what is forged, used again, over, or for somebody else is refused, said in one line and written
//! down. With `terral`, keys of OpenSSH, and tokens as SciTokens and WLCG have them.
#![cfg(not(loom))]

mod beside;
mod files;
mod house;
mod keys;
mod process;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use ed25519_dalek::{Signer, SigningKey};
use files::{WRITE, open};
use house::{House, text};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use keys::{key, private, public};
use serde_json::{Value, json};
use terral_client::{
    Client, Credential, ErrorKind, Hidden, InstanceId, OpenHow, Operations, Proof, Signed, Wish,
    access, authorize, read_credential, signed,
};

/// To read what is there.
const READ: OpenHow = OpenHow { access: access::READ as u8, create: false, ..WRITE };
const ISSUER: &str = "https://tokens.example";
const AUDIENCE: &str = "https://store.example";

#[test]
fn role() {
    process::play(128, &[]);
}

fn pem(name: &str) -> Vec<u8> {
    fs::read(beside::program("tokens").join(name)).expect("is there")
}

impl House {
    /// The key of seed 1 may read below `in`, that of seed 2 everything; tokens of one issuer may
    /// what they say, but for `admin`.
    fn new() -> Self {
        let house = House::empty();
        fs::create_dir(house.file("keys")).expect("makes");
        for name in ["ec.pem", "rsa.pem"] {
            house.write(&format!("keys/{name}"), pem(name));
        }
        let keys = house.file("keys");
        let list = format!(
            "pilot read,list below=/in for=2h key {} pilot@login\nworker all key {}\n\
             issuer {ISSUER} audience={AUDIENCE} keys=\"{}\"\n\
             flow read,list,write,create,remove token {ISSUER} wf-7\n",
            public(1),
            public(2),
            keys.display()
        );
        house.write("principals", list.as_bytes());
        for seed in 1..=3 {
            house.write(&format!("key{seed}"), private(seed).as_bytes());
        }
        house.started()
    }

    /// Who only asks, and shows nothing.
    fn asks(&self) -> Client {
        Client::observe_with(&self.instance(), None).expect("is there")
    }

    /// What `terral` says as it refuses.
    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.terral(arguments).output().expect("terral");
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output));
        assert_eq!(text(&output).lines().count(), 1, "{}", text(&output));
        text(&output)
    }

    /// A client that acts by a credential.
    fn acts(&self, credential: &Credential) -> Result<Client, ErrorKind> {
        let issued = authorize(&self.instance(), credential, false).map_err(|error| error.kind)?;
        Client::connect_with(&self.instance(), Some(issued)).map_err(|error| error.kind)
    }

    /// Logs in by a key, having signed what `message` gives for the challenge.
    fn by_key(
        &self,
        own: &SigningKey,
        message: impl Fn(InstanceId, &[u8; 32]) -> Vec<u8>,
    ) -> Result<Credential, String> {
        let client = self.asks();
        let challenge = client.challenge().expect("is given");
        let bytes = message(InstanceId(client.instance_id()), &challenge);
        let signature = own.sign(&bytes).to_bytes();
        let key = own.verifying_key().to_bytes();
        let proof = Proof::Key(Signed { key, challenge, signature: &signature });
        client.login(proof, Wish::default()).map_err(|error| error.context)
    }

    fn by_token(&self, token: &str, below: Option<&[u8]>) -> Result<Credential, String> {
        let wish = Wish { below, lifetime_s: None };
        let proof = Proof::Token(Hidden(token.as_bytes()));
        self.asks().login(proof, wish).map_err(|error| error.context)
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// What a good token says.
fn claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "wf-7", "aud": AUDIENCE, "exp": now_s() + 600, "nbf": now_s() - 5,
        "scope": "storage.read:/in storage.modify:/in openid", "wlcg.ver": "1.0"
    })
}

fn token(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
    jsonwebtoken::encode(&Header::new(algorithm), claims, key).expect("encodes")
}

fn by_ec(claims: &Value) -> String {
    token(Algorithm::ES256, &EncodingKey::from_ec_pem(&pem("ec.key")).expect("a key"), claims)
}

#[test]
fn who_has_a_listed_key_does_what_its_line_says_until_he_logs_out() {
    let house = House::new();
    let owner = house.owner();
    owner.make_directory(b"in", 0o755).expect("makes");
    open(&owner, "in/data").write(b"as it was\n").expect("writes");
    open(&owner, "top").write(b"top\n").expect("writes");
    house.ask(&["login", "--key", "key1", "-o", "pilot.cred"]);
    let file = house.file("pilot.cred");
    assert_eq!(fs::metadata(&file).expect("is there").permissions().mode() & 0o777, 0o600);

    let script = "cat /terral/in/data; echo x > /terral/in/data; rm -f /terral/in/data
        cat /terral/top; env -u TERRAL_CREDENTIAL sh -c 'echo x > /terral/in/new'";
    let said = text(&house.run(Some(&file), script));
    assert!(said.starts_with("as it was\n"), "{said}");
    assert_eq!(said.matches("ermission denied").count(), 4, "{said}");
    assert!(owner.stat(b"in/new").is_err() && owner.stat(b"in/data").is_ok());

    let mut whoami = house.terral(&["whoami", "--json"]);
    let whoami = whoami.env("TERRAL_CREDENTIAL", &file).output().expect("terral");
    let whoami: Value = serde_json::from_slice(&whoami.stdout).expect("one object");
    assert_eq!(
        (&whoami["principal"], &whoami["operations"], &whoami["below"]),
        (&json!("key:pilot"), &json!(["read", "list"]), &json!("in"))
    );
    let bare: Value = serde_json::from_str(&house.ask(&["whoami", "--json"])).expect("one object");
    assert_eq!((&bare["credential"], &bare["operations"][5]), (&Value::Null, &json!("admin")));

    let mut get = house.terral(&["cap", "get", "-o", "kept.cap", "--json"]);
    let kept = get.env("TERRAL_CREDENTIAL", &file).output().expect("terral");
    let kept: Value = serde_json::from_slice(&kept.stdout).expect("one object");
    assert_eq!((&kept["principal"], &kept["below"]), (&json!("key:pilot"), &json!("in")));
    assert_eq!(kept["credential"], whoami["credential"]);

    let credential = read_credential(&file).expect("is one");
    let acts = house.acts(&credential).expect("is good");
    let reads = acts.open(b"in/data", READ).expect("opens");
    reads.read_at(&mut [0; 4], 0).expect("reads");
    house.ask(&["logout", "pilot.cred"]);
    assert!(!file.exists());
    let refused = reads.read_at(&mut [0; 4], 0).expect_err("ended");
    assert_eq!(refused.kind, ErrorKind::Unauthorized);
    assert_eq!(house.acts(&credential).map(drop), Err(ErrorKind::Unauthorized));
    let mut cat = house.terral(&["cat", "in/data"]);
    let cat = cat.env("TERRAL_CAPABILITY", house.file("kept.cap")).output().expect("terral");
    assert!(!cat.status.success() && cat.stdout.is_empty(), "{}", text(&cat));
    owner.unlink(b"in/data").expect("others go on");
}

#[test]
fn a_server_that_is_started_again_knows_who_is_in_and_who_was_logged_out() {
    let house = House::new();
    open(&house.owner(), "data").write(b"x").expect("writes");
    let login = || house.by_key(&key(2), signed).expect("is listed");
    let (stays, gone, revoked) = (login(), login(), login());
    let runs = house.acts(&gone).expect("is good");
    assert_eq!(house.asks().logout(&gone), Ok(1));
    let house = house.started();
    house.acts(&stays).expect("goes on").unlink(b"data").expect("may do all");
    assert_eq!(runs.unlink(b"data").expect_err("ended").kind, ErrorKind::Unauthorized);
    assert_eq!(house.acts(&gone).map(drop), Err(ErrorKind::Unauthorized));
    assert!(house.asks().logout(&gone).is_err(), "and only once");
    house.acts(&revoked).expect("goes on");
    house.ask(&["cap", "revoke", "--principal", "key:worker"]);
    for one in [&stays, &revoked] {
        assert_eq!(house.acts(one).map(drop), Err(ErrorKind::Unauthorized));
    }
    let house = house.started();
    assert_eq!(house.acts(&stays).map(drop), Err(ErrorKind::Unauthorized));
    let again = house.by_key(&key(2), signed).expect("he may log in again");
    house.acts(&again).expect("is good");
}

#[test]
fn a_signature_is_good_once_here_and_by_a_listed_key_only() {
    let (house, other) = (House::new(), House::new());
    let refused = |done: Result<Credential, String>, why: &str| {
        let said = done.map(drop).expect_err(why);
        assert!(said.contains(why) && !said.contains('\n'), "{said}");
    };
    let (own, stranger) = (key(1), key(9));
    refused(house.by_key(&stranger, signed), "not in the list");
    refused(house.by_key(&own, |_, challenge| signed(InstanceId(7), challenge)), "another server");
    refused(house.by_key(&own, |_, challenge| challenge.to_vec()), "not its own");
    refused(house.by_key(&own, |id, _| signed(id, &[0; 32])), "not its own");

    // Used again, or never given out, or given out by another server.
    let client = house.asks();
    let challenge = client.challenge().expect("is given");
    let signature = own.sign(&signed(InstanceId(client.instance_id()), &challenge)).to_bytes();
    let key = own.verifying_key().to_bytes();
    let proof = Proof::Key(Signed { key, challenge, signature: &signature });
    let login =
        |client: &Client| client.login(proof, Wish::default()).map_err(|error| error.context);
    let credential = login(&client).expect("is good");
    refused(login(&client), "not asked for");
    refused(login(&other.asks()), "not asked for");

    // Another's, somebody else's, a bit less.
    let kind = |credential: &Credential| house.acts(credential).map(drop);
    assert_eq!(other.acts(&credential).map(drop), Err(ErrorKind::Unauthorized));
    let mut forged = credential.clone();
    forged.secret.0[31] ^= 1;
    assert_eq!(kind(&forged), Err(ErrorKind::Unauthorized));
    assert!(house.asks().logout(&forged).is_err());
    let mut forged = credential.clone();
    forged.id.0 ^= 1;
    assert_eq!(kind(&forged), Err(ErrorKind::Unauthorized));
    assert_eq!(kind(&credential), Ok(()), "nothing else is harmed");

    let brief = client.challenge().expect("is given");
    let signature = own.sign(&signed(InstanceId(client.instance_id()), &brief)).to_bytes();
    let proof = Proof::Key(Signed { key, challenge: brief, signature: &signature });
    let brief = client.login(proof, Wish { below: None, lifetime_s: Some(1) }).expect("is good");
    while now_s() < brief.expires_s() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(kind(&brief), Err(ErrorKind::Unauthorized), "its time is over");
}

#[test]
fn a_token_is_good_for_what_it_says_and_its_line_allows() {
    let house = House::new();
    let owner = house.owner();
    owner.make_directory(b"in", 0o755).expect("makes");
    let good = by_ec(&claims());
    house.write("token", format!("{good}\n").as_bytes());
    house.ask(&["login", "--token", "token", "-o", "flow.cred"]);
    let said = house.run(Some(&house.file("flow.cred")), "echo 1 > /terral/in/a; cat /terral/in/a");
    assert_eq!(text(&said), "1\n");
    let said = house.run(Some(&house.file("flow.cred")), "echo 1 > /terral/b");
    assert!(text(&said).contains("ermission denied"), "{}", text(&said));
    let credential = read_credential(&house.file("flow.cred")).expect("is one");
    assert!(credential.expires_s() <= now_s() + 600, "no longer than the token");

    let rsa = EncodingKey::from_rsa_pem(&pem("rsa.key")).expect("a key");
    house.by_token(&token(Algorithm::RS256, &rsa, &claims()), None).expect("is good");
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        claims
    };
    let several = by_ec(&with("scope", json!("storage.read:/ storage.modify:/in")));
    assert!(house.by_token(&several, None).expect_err("which").contains("say which place"));
    let everywhere = house.by_token(&several, Some(b"")).expect("is good");
    let looks = house.acts(&everywhere).expect("is good");
    assert_eq!(looks.unlink(b"in/a").expect_err("it reads").kind, ErrorKind::Denied);
    let below = house.by_token(&several, Some(b"in")).expect("is good");
    house.acts(&below).expect("is good").unlink(b"in/a").expect("it modifies");

    let refused = |token: &str, why: &str| {
        let said = house.by_token(token, None).map(drop).expect_err(why);
        assert!(said.contains(why) && !said.contains('\n'), "{said}");
        assert!(!said.contains(&token[token.len() - 20..]), "no secret: {said}");
    };
    refused(&by_ec(&with("exp", json!(now_s() - 1))), "expired");
    refused(&by_ec(&with("nbf", json!(now_s() + 900))), "not good yet");
    refused(&by_ec(&with("aud", json!(["https://other.example"]))), "another audience");
    refused(&by_ec(&with("iss", json!("https://evil.example"))), "no issuer here");
    refused(&by_ec(&with("sub", json!("wf-8"))), "not in the list");
    refused(&by_ec(&with("scope", json!("openid profile"))), "says nothing of files");
    let mut endless = claims();
    endless.as_object_mut().expect("an object").remove("exp");
    refused(&by_ec(&endless), "not signed");
    // Who knows the public key must not be able to sign by it.
    for public in [pem("rsa.pem"), pem("ec.pem")] {
        let confused = token(Algorithm::HS256, &EncodingKey::from_secret(&public), &claims());
        refused(&confused, "only RS256 and ES256");
    }
    let parts: Vec<&str> = good.split('.').collect();
    // {"alg":"none"}
    refused(&format!("eyJhbGciOiJub25lIn0.{}.", parts[1]), "no token of a kind");
    let header = token(Algorithm::RS256, &rsa, &claims());
    let header = header.split('.').next().expect("a header");
    refused(&format!("{header}.{}.{}", parts[1], parts[2]), "not signed");
    let other = by_ec(&with("sub", json!("wf-9")));
    let body = other.split('.').nth(1).expect("a body");
    refused(&format!("{}.{body}.{}", parts[0], parts[2]), "not signed");
    refused(&format!("{}.{}", parts[0], parts[1]), "token:");
    refused("x.y.z                    ", "no token of a kind");
    house.acts(&below).expect("nothing else is harmed");
}

#[test]
fn what_is_written_down_says_who_and_no_secret_and_who_fails_again_waits() {
    let house = House::new();
    house.ask(&["login", "--key", "key1", "-o", "one.cred"]);
    let secret = fs::read_to_string(house.file("one.cred")).expect("reads");
    let said = house.refuses(&["login", "--key", "key3", "-o", "none.cred"]);
    assert!(said.contains("SHA256:") && !house.file("none.cred").exists(), "{said}");
    house.ask(&["logout", "one.cred"]);
    let what: Vec<Value> = house.audit().iter().map(|line| line["what"].clone()).collect();
    assert_eq!(what, ["login", "login_failed", "logout"]);
    let audit = house.audit();
    assert_eq!(audit[0]["principal"], "key:pilot");
    assert_eq!(audit[0]["credential"], audit[2]["credential"]);
    let written = fs::read_to_string(house.instance().join("audit")).expect("reads");
    let log = fs::read(house.instance().join("log")).expect("reads");
    let own = Credential::of(&secret).expect("is one").secret.0;
    assert!(!log.windows(32).any(|bytes| bytes == own), "the log has no secret");
    assert!(!written.contains(&secret.trim()[60..100]));

    let stranger = key(9);
    let tried = (0..40).take_while(|_| {
        let refused = house.by_key(&stranger, signed).expect_err("is not listed");
        !refused.contains("too many")
    });
    assert_eq!(tried.count(), 8);
    house.by_key(&key(2), signed).expect("others go on");
    assert_eq!(house.audit().len(), 3 + 8 + 1);
}

#[test]
fn what_cannot_be_used_is_said() {
    let house = House::new();
    fs::set_permissions(house.file("key1"), fs::Permissions::from_mode(0o644)).expect("changes");
    let said = house.refuses(&["login", "--key", "key1", "-o", "x"]);
    assert!(said.contains("others can read it"), "{said}");
    let said = house.refuses(&["login", "--key", "principals", "-o", "x"]);
    assert!(said.contains("no private key of OpenSSH"), "{said}");
    let said = house.refuses(&["logout", "none"]);
    assert!(said.contains("none"), "{said}");
    let cut = house.write("cut.cred", b"terral-credential-1:00ff");
    let said = text(&house.run(Some(&cut), "cat /terral/x"));
    assert!(said.contains("TERRAL_CREDENTIAL") && !said.contains("00ff"), "{said}");
    fs::set_permissions(house.file("principals"), fs::Permissions::from_mode(0o666)).expect("sets");
    let said = house.refuses(&["login", "--key", "key2", "-o", "x"]);
    assert!(said.contains("others can write it"), "{said}");
    let list = house.write("principals", b"pilot raed key x\n");
    let list = list.to_str().expect("text");
    let said = house.refuses(&["login", "--key", "key2", "-o", "x"]);
    assert!(said.contains("line 1") && said.contains("\"raed\""), "{said}");
    let to = house.file("to");
    let to = to.to_str().expect("text");
    let serve = ["serve", "--name", "authn-none", "--to", to, "--principals", list];
    assert!(house.refuses(&serve).contains("line 1"));
    let plain = process::Bench::new();
    let client = Client::observe_with(&plain.instance(), None).expect("is there");
    let refused = client.login(Proof::Token(Hidden(b"x")), Wish::default()).expect_err("none");
    assert!(refused.context.contains("--principals"), "{refused}");
    assert!(client.whom().expect("the user").operations.contain(Operations::ALL));
}
