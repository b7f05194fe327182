//! What somebody does who speaks to a server by the tickets that he has, and not as `terral` does:
//! roles of `kerberos`, each in a process of its own, as a program has the tickets that its
//! environment names.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use terral_client::kerberos::{Asks, Seals};
use terral_client::{CHALLENGE_BYTES, Client, Credential, InstanceId, Proof, Sealed, Wish, sealed};
use terral_transport::kerberos::Answers;

use crate::process::KEYTAB;
use crate::realm::Realm;

/// Environment variable with the instance of another server that has the same keys.
pub const ANOTHER: &str = "TERRAL_TEST_ANOTHER";
/// Environment variable with when the tickets are over, seconds since 1970.
pub const END: &str = "TERRAL_TEST_END";
/// Who has tickets.
pub const ALICE: &str = "alice@TERRAL.TEST";

/// By the clock that tickets are by.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// What somebody says of himself, and the server of itself.
struct Said {
    challenge: [u8; CHALLENGE_BYTES],
    token: Vec<u8>,
    answer: Vec<u8>,
    seals: Seals,
}

impl Said {
    fn to(server: &Client) -> Said {
        let (asks, token) = asks();
        let challenge = server.challenge().expect("is given");
        let answer = server.negotiate(&challenge, &token).expect("is good");
        let seals = asks.finish(&answer).expect("it is the server");
        Said { challenge, token, answer, seals }
    }

    fn seal(&self, instance: InstanceId) -> Vec<u8> {
        let message = sealed(instance, &self.challenge, (&self.token, &self.answer));
        self.seals.seal(&message).expect("seals")
    }

    fn login(&self, server: &Client, seal: &[u8]) -> Result<Credential, String> {
        login(server, self.challenge, seal)
    }
}

fn asks() -> (Asks, Vec<u8>) {
    Asks::begin(&Realm::service().replacen('/', "@", 1)).expect("has a ticket")
}

fn login(server: &Client, challenge: [u8; 32], seal: &[u8]) -> Result<Credential, String> {
    let proof = Proof::Gss(Sealed { challenge, seal });
    server.login(proof, Wish::default()).map_err(|error| error.context)
}

fn server(instance: &Path) -> (Client, InstanceId) {
    let client = Client::observe_with(instance, None).expect("is there");
    let id = InstanceId(client.instance_id());
    (client, id)
}

#[track_caller]
fn refused<T>(done: Result<T, String>, why: &str) {
    let said = done.map(drop).expect_err(why);
    assert!(said.contains(why) && !said.contains('\n'), "{why}: {said}");
}

/// Shows again, elsewhere and to others what alice has shown.
pub fn repeats(instance: &Path) {
    let another = PathBuf::from(std::env::var_os(ANOTHER).expect("is said"));
    let ((here, id), (there, there_id)) = (server(instance), server(&another));
    let context = |error: terral_client::Error| error.context;
    let said = Said::to(&here);
    let again = here.negotiate(&said.challenge, &said.token).map_err(context);
    refused(again, "the challenge was not given here, or not just now, or was used before");
    for (server, of) in [(&here, "here"), (&there, "there")] {
        let challenge = server.challenge().expect("is given");
        let shown = server.negotiate(&challenge, &said.token).map_err(context);
        refused(shown, "it was shown before");
        assert!(!of.is_empty());
    }
    let foreign = there.challenge().expect("is given");
    refused(here.negotiate(&foreign, &asks().1).map_err(context), "the challenge was not given");
    let seal = said.seal(id);
    refused(said.login(&there, &seal), "no ticket was shown");
    refused(login(&here, foreign, &seal), "no ticket was shown");
    said.login(&here, &seal).expect("nothing of that has harmed it");
    refused(said.login(&here, &seal), "no ticket was shown");

    // Who stands between alice and a server sends on what the one says to the other.
    let said = Said::to(&there);
    refused(said.login(&there, &said.seal(id)), "said to another server");
    refused(said.login(&there, &said.seal(there_id)), "no ticket was shown");
    let said = Said::to(&there);
    refused(said.login(&there, &said.seals.seal(b"").expect("seals")), "something else");
    let (other, said) = (Said::to(&here), Said::to(&here));
    refused(said.login(&here, &other.seal(id)), "something else");
    // Who answers for a server without its key.
    refused(asks().0.finish(&said.answer).map_err(context), "has not proven that it is terral@");
    refused(asks().0.finish(b"").map_err(context), "has not proven that it is terral@");
    let long = vec![0x60; (16 << 10) + 1];
    let challenge = here.challenge().expect("is given");
    refused(here.negotiate(&challenge, &long).map_err(context), "too long");
}

/// Turns each bit of what alice shows, of what she is answered, and of what she seals.
pub fn damages(_: &Path) {
    let keytab = PathBuf::from(std::env::var_os(KEYTAB).expect("is said"));
    let answers = Answers::with(&keytab).expect("has keys");
    let (instance, challenge) = (InstanceId(7), [8; 32]);
    // What is shown differs by a byte or two in length from one time to the next.
    let turned = |bytes: &[u8], bit: usize| {
        let (mut bytes, bit) = (bytes.to_vec(), bit % (bytes.len() * 8));
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    // Whether she is let in; the server hears another token, she another answer, or the server
    // another seal.
    let lets_in = |part: usize, bit: usize| -> Option<()> {
        let (asks, token) = asks();
        let change =
            |at: usize, bytes: &[u8]| if at == part { turned(bytes, bit) } else { bytes.to_vec() };
        let heard = change(0, &token);
        let (answered, answer) = answers.answer("terral", &heard).ok()?;
        let seals = asks.finish(&change(1, &answer)).ok()?;
        let message = sealed(instance, &challenge, (&token, &change(1, &answer)));
        let seal = change(2, &seals.seal(&message).ok()?);
        let message = sealed(instance, &challenge, (&heard, &answer));
        assert_eq!(answered.name(), ALICE);
        answered.says(&message, &seal).ok().map(drop)
    };
    assert!(lets_in(3, 0).is_some(), "as it is");
    let (asks, token) = asks();
    let (_, answer) = answers.answer("terral", &token).expect("is good");
    let seal = asks.finish(&answer).expect("is the server").seal(b"x").expect("seals");
    for (part, length) in [token.len(), answer.len(), seal.len()].into_iter().enumerate() {
        assert!(length > 16, "{part}: {length}");
        for bit in 0..length * 8 {
            assert!(lets_in(part, bit).is_none(), "part {part}: bit {bit} turned");
        }
    }
    for length in [0, 1, token.len() / 2, token.len() - 1] {
        assert!(answers.answer("terral", &token[..length]).is_err(), "cut at {length}");
    }
}

/// Seals only when the ticket is over; or shows one late, to a server that would have it at once.
pub fn dawdles(instance: &Path) {
    let (client, id) = server(instance);
    let Some(end) = std::env::var_os(END) else {
        let (_, token) = asks();
        std::thread::sleep(Duration::from_secs(3));
        let challenge = client.challenge().expect("is given");
        let shown = client.negotiate(&challenge, &token).map_err(|error| error.context);
        return refused(shown, "the clocks of who logs in and of the server differ");
    };
    let end_s: u64 = end.to_str().and_then(|end| end.parse().ok()).expect("a number");
    let said = Said::to(&client);
    let seal = said.seal(id);
    while now_s() <= end_s {
        std::thread::sleep(Duration::from_millis(100));
    }
    refused(said.login(&client, &seal), "the ticket is over: run kinit");
}
