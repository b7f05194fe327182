//! `terral login`, `logout` and `whoami`: as whom programs act, if not as their user.
//!
//! Invariants: no secret is an argument or in a message; a key that others can read is not used.
//! Not here: what a mechanism believes, which is the server's.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use ed25519_dalek::{Signer, SigningKey};
use serde_json::json;
use terral_client::kerberos::Asks;
use terral_client::{
    CREDENTIAL, Client, Credential, Hidden, InstanceId, Proof, Sealed, Signed, TOKEN_MAX, Wish,
    read_credential, read_secret, sealed, signed,
};

use crate::cap::write;
use crate::instances::{Which, name_of, place};
use crate::listing::SERVICE;
use crate::report::{self, note, say};
use crate::shown::{add_name, tame_name};
use crate::units::{parse_duration, time};

/// Longest file with a key, bytes.
const KEY_MAX: u64 = 64 << 10;

/// Proves to a server who one is, and gets a credential
#[derive(Args)]
#[command(after_help = "\
The server lists who is who (terral serve --principals FILE). Whoever has the credential acts for
its principal: a program that is started with TERRAL_CREDENTIAL=FILE may do what that one may, and
no more. Keys are those of OpenSSH, ssh-ed25519, without a passphrase; tokens are JWTs, RS256 or
ES256, with scopes as SciTokens or WLCG have them. Tickets are of Kerberos 5: the server has the key
of terral/HOST (terral serve --keytab FILE), and proves it before it is believed.

Examples:
  terral login --key ~/.ssh/id_pilot -o pilot.cred
  TERRAL_CREDENTIAL=$PWD/pilot.cred terral run --instance lab -- python3 look.py
  terral login --token $BEARER_TOKEN_FILE --below /terral/results --for 2h
  kinit alice && terral login --kerberos -o alice.cred
  terral logout pilot.cred")]
pub struct Login {
    #[command(flatten)]
    by: By,
    /// What the server is to prove that it is, to who has a ticket: SERVICE@HOST [default: terral@
    /// this machine]
    #[arg(long, value_name = "NAME", requires = "kerberos")]
    service: Option<String>,
    /// A file for the credential, which only its owner can read [default: terral/credential in
    /// $XDG_RUNTIME_DIR, or in ~/.config]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only for this place and what is below; as programs see it, or relative to /terral
    #[arg(long, value_name = "PATH")]
    below: Option<PathBuf>,
    /// No longer than that: 30s, 10m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    lasting: Option<Duration>,
    #[command(flatten)]
    which: Which,
}

/// By what one proves who one is.
#[derive(Args)]
#[group(id = "by", required = true, multiple = false)]
struct By {
    /// A private key: the file that ssh-keygen -t ed25519 made
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// A token in a file
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// The ticket of Kerberos that kinit got
    #[arg(long, visible_alias = "gss")]
    kerberos: bool,
}

/// Ends a credential, and all that was got by it, at once
#[derive(Args)]
#[command(after_help = "\
When it is over nobody begins anything any more by the credential, or by capabilities that were got
with it; what a program has mapped, it has.

Example:
  terral logout pilot.cred")]
pub struct Logout {
    /// The file with the credential, which is removed [default: what TERRAL_CREDENTIAL names, or
    /// where `terral login` puts it]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
}

/// Says as whom programs act, and what they may
#[derive(Args)]
#[command(after_help = "\
By TERRAL_CAPABILITY, else by TERRAL_CREDENTIAL, else as the user.

Example:
  TERRAL_CREDENTIAL=$PWD/pilot.cred terral whoami")]
pub struct Whoami {
    /// One object; a path that is no UTF-8 is in `below_bytes` as well
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: Which,
}

/// Where a credential is, if nothing else is said.
fn default_file() -> Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = named("XDG_RUNTIME_DIR").or_else(|| Some(named("HOME")?.join(".config")));
    let home = home.filter(|home| home.is_absolute()).context("where to: say -o FILE")?;
    Ok(home.join("terral/credential"))
}

fn key_of(path: &Path) -> Result<SigningKey> {
    let shown = path.display();
    let read = ssh_key::PrivateKey::from_openssh(read_secret(path, KEY_MAX)?);
    let Ok(key) = read else {
        bail!("{shown}: no private key of OpenSSH (ssh-keygen -t ed25519 makes one)");
    };
    if key.is_encrypted() {
        bail!("{shown}: it has a passphrase, which is not asked for: use a key without one");
    }
    let Some(pair) = key.key_data().ed25519() else {
        bail!("{shown}: a key of the kind {}: only ssh-ed25519 is read", key.algorithm());
    };
    Ok(SigningKey::from_bytes(&pair.private.to_bytes()))
}

/// Logs in.
pub fn login(arguments: &Login) -> Result<u8> {
    let Login { by, service, output, below, lasting, which } = arguments;
    let client = Client::observe_with(&which.served()?, None)?;
    let below = below.as_deref().map(place).transpose()?;
    let wish = Wish { below: below.as_deref(), lifetime_s: lasting.map(|time| time.as_secs()) };
    let credential = match (&by.key, &by.token) {
        (Some(file), _) => by_key(&client, &key_of(file)?, wish)?,
        (None, Some(file)) => {
            let token = read_secret(file, TOKEN_MAX as u64)?;
            client.login(Proof::Token(Hidden(token.trim().as_bytes())), wish)?
        }
        (None, None) if by.kerberos => by_kerberos(&client, service.as_deref(), wish)?,
        (None, None) => bail!("say --key FILE, --token FILE or --kerberos"),
    };
    let file = match output {
        Some(file) => file.clone(),
        None => {
            let file = default_file()?;
            let above = file.parent().unwrap_or(Path::new("/"));
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(above);
            made.with_context(|| above.display().to_string())?;
            file
        }
    };
    let kept = write(&file, &(credential.text()? + "\n"));
    kept.with_context(|| file.display().to_string()).inspect_err(|_| {
        // Nobody has it then.
        let _ = client.logout(&credential);
    })?;
    let until = time(credential.expires_s().saturating_mul(1_000_000_000));
    let (principal, shown) = (credential.principal, file.display());
    note(format_args!("{principal} until {until} UTC; use it: {CREDENTIAL}={shown}"));
    Ok(0)
}

fn by_key(client: &Client, key: &SigningKey, wish: Wish<'_>) -> Result<Credential> {
    let challenge = client.challenge()?;
    let message = signed(InstanceId(client.instance_id()), &challenge);
    let signature = key.sign(&message).to_bytes();
    let key = key.verifying_key().to_bytes();
    let proof = Proof::Key(Signed { key, challenge, signature: &signature });
    Ok(client.login(proof, wish)?)
}

/// The service of this machine, as its realm names it.
fn own_service() -> Result<String> {
    let host = rustix::system::uname();
    let host = host.nodename().to_str().ok().filter(|host| !host.is_empty());
    Ok(format!("{SERVICE}@{}", host.context("this machine has no name: say --service NAME@HOST")?))
}

fn by_kerberos(client: &Client, service: Option<&str>, wish: Wish<'_>) -> Result<Credential> {
    let service = service.map_or_else(own_service, |said| Ok(said.to_owned()))?;
    // What is said here is of Kerberos, and of no capability.
    let of_kerberos = |error: terral_client::Error| anyhow::Error::msg(error.context);
    let (asks, token) = Asks::begin(&service).map_err(of_kerberos)?;
    let challenge = client.challenge()?;
    let answer = client.negotiate(&challenge, &token)?;
    let message = sealed(InstanceId(client.instance_id()), &challenge, (&token, &answer));
    let seals = asks.finish(&answer).and_then(|seals| seals.seal(&message));
    let seal = seals.map_err(of_kerberos)?;
    Ok(client.login(Proof::Gss(Sealed { challenge, seal: &seal }), wish)?)
}

/// Logs out.
pub fn logout(arguments: &Logout) -> Result<u8> {
    let named = std::env::var_os(CREDENTIAL).filter(|path| !path.is_empty()).map(PathBuf::from);
    let file = arguments.file.clone().or(named).map_or_else(default_file, Ok)?;
    let credential = read_credential(&file)?;
    let client = Client::observe_with(&arguments.which.served()?, None)?;
    client.logout(&credential)?;
    if let Err(error) = fs::remove_file(&file) {
        say(format_args!("{}: {error}; what is in it is good for nothing", file.display()));
    }
    note(format_args!(
        "{} has logged out: what was got by it is good no more",
        credential.principal
    ));
    Ok(0)
}

/// Says who.
pub fn whoami(arguments: &Whoami) -> Result<u8> {
    let client = arguments.which.observe()?;
    let whom = client.whom()?;
    let credential = whom.credential.map(|id| id.to_string());
    let words: Vec<&str> = whom.operations.words().collect();
    if arguments.json {
        let object = json!({
            "instance": name_of(client.instance()),
            "principal": whom.principal.to_string(),
            "operations": words,
            "until_s": whom.expires_s,
            "credential": credential,
            "below": null,
        });
        report::json(&match whom.below {
            Some(below) => add_name(object, "below", &below),
            None => object,
        })?;
        return Ok(0);
    }
    let until = time(whom.expires_s.saturating_mul(1_000_000_000));
    let below = whom.below.map_or("/".into(), |below| format!("/{}", tame_name(&below)));
    let text = format!(
        "principal   {}\noperations  {}\nuntil       {until} UTC\npath        {below}\n\
         credential  {}\n",
        whom.principal,
        words.join(", "),
        credential.as_deref().unwrap_or("none: the kernel's word"),
    );
    std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes())?;
    Ok(0)
}
