//! `terral cap`: capabilities that people hold, narrow, hand on and revoke.
//!
//! Invariants: none is ever an argument or in a message; what is written to a file is its owner's
//! alone. Not here: what a capability is (`terral_format`), and what a server makes of it.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use terral_client::{
    CAPABILITY, CAPABILITY_TEXT_MAX, Capability, Caveat, Client, ContainerName, CredentialId,
    Operations, Principal, Revocation, authorize, credential_of_environment, of_environment,
};

use crate::instances::{Which, name_of, place};
use crate::members::Hosts;
use crate::report::{self, note};
use crate::shown::{add_name, tame_name};
use crate::units::{parse_duration, plural, time};

/// Gets, narrows, shows and revokes capabilities
#[derive(Args)]
#[command(after_help = "\
A capability is the right to do some operations for some time: read, write, create, remove, list,
admin. Whoever has its text may do that; a program that is started with TERRAL_CAPABILITY=FILE may
do no more. Who has one can narrow it, without asking, and hand it on; nobody can widen it.

Between programs of one user it guards against mistakes: they can reach each other's memory, and
one that drops TERRAL_CAPABILITY has its user's rights again.

Examples:
  terral cap get --allow read,list --for 2h -o reader.cap
  TERRAL_CAPABILITY=$PWD/reader.cap terral run --instance lab -- python3 look.py
  terral cap attenuate reader.cap --below /terral/results -o results.cap
  terral cap show results.cap
  terral cap revoke reader.cap          (and results.cap, which was made of it)
  terral cap revoke --operations write  (readers go on)")]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Gets one from the server
    Get(Get),
    /// Narrows one; no server is needed
    Attenuate(Attenuate),
    /// Shows what one is for; not what proves it
    Show(Show),
    /// Ends what capabilities allow, before their time
    Revoke(Revoke),
}

/// How one is narrowed.
#[derive(Args)]
struct Narrower {
    /// Only these, of read, write, create, remove, list and admin
    #[arg(long, value_name = "OPERATIONS", value_parser = operations)]
    allow: Option<Operations>,
    /// No longer than that: 30s, 10m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    lasting: Option<Duration>,
    /// Only this file or directory, and what is below; as programs see it, or relative to /terral
    #[arg(long, value_name = "PATH")]
    below: Option<PathBuf>,
}

/// Where one goes.
#[derive(Args)]
struct Output {
    /// A file, which only its owner can read; without it, standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// One object, as of `show`; with `text`, unless that went to a file
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  terral cap get --allow read,list --for 2h --below /terral/results -o reader.cap
  terral cap get --allow read,list --container results -o reader.cap")]
struct Get {
    #[command(flatten)]
    narrower: Narrower,
    /// Only the place of this container, with what is below (terral container list)
    #[arg(long, value_name = "NAME", value_parser = ContainerName::new)]
    container: Option<ContainerName>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  terral cap attenuate reader.cap --for 10m -o brief.cap
  terral cap attenuate --allow read <reader.cap | ssh login 'umask 077; cat >reader.cap'")]
struct Attenuate {
    /// The file that it is in; `-`, as without, is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    narrower: Narrower,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  terral cap show --json reader.cap | jq .operations")]
struct Show {
    /// The file that it is in; `-`, as without, is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// One object; a path that is no UTF-8 is in `below_bytes` as well
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
When it is over nobody begins anything any more that was revoked; what a program has mapped, it has.
Who is issued a capability afterwards, as a program is that begins without one, may do it again.
Over several machines it ends on all. One that does not answer is named, and the exit status is 1:
what was handed out is over there within 5.1 s, its own programs go on until it hears of it.

Examples:
  terral cap revoke reader.cap
  terral cap revoke --serial 4f0c9b1a2d3e5f60
  terral cap revoke --operations write,create,remove
  terral cap revoke --principal 1000
  terral cap revoke --principal key:pilot
  terral cap revoke --credential 83ca4105fcc7835f")]
struct Revoke {
    /// The file that it is in; `-` is standard input. All that were made of it end with it
    #[arg(value_name = "FILE", required_unless_present = "revoked")]
    file: Option<PathBuf>,
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    which: Which,
    /// One object: how many programs may do less now
    #[arg(long)]
    json: bool,
}

/// What is revoked, if it is not that of a file.
#[derive(Args)]
#[group(id = "revoked", multiple = false, conflicts_with = "file")]
struct Named {
    /// The one with this serial, as `show` says it, and all that were made of it
    #[arg(long, value_parser = serial)]
    serial: Option<u64>,
    /// These operations, of all that were issued so far
    #[arg(long, value_parser = operations)]
    operations: Option<Operations>,
    /// All that were issued so far to this user, by number, or to key:NAME, token:NAME or gss:NAME,
    /// whose credentials end with them
    #[arg(long, value_name = "WHO")]
    principal: Option<Principal>,
    /// This credential, as `whoami` and `audit` name it, and all that were got by it
    #[arg(long, value_name = "ID", value_parser = serial)]
    credential: Option<u64>,
}

/// Operations by their words, with commas between.
pub fn operations(said: &str) -> Result<Operations, String> {
    let one = |word| {
        let known = "it is read, write, create, remove, list or admin";
        Operations::of_word(word).ok_or_else(|| format!("{word:?}: {known}"))
    };
    said.split(',').try_fold(Operations(0), |all, word| one(word.trim()).map(|one| all.and(one)))
}

fn serial(said: &str) -> Result<u64, String> {
    let digits = said.len() <= 16 && said.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(said, 16).ok().filter(|_| digits);
    number.ok_or_else(|| "it is up to 16 hexadecimal digits, as `terral cap show` says it".into())
}

/// Does it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    match &arguments.what {
        What::Get(arguments) => get(arguments)?,
        What::Attenuate(arguments) => attenuate(arguments)?,
        What::Show(Show { file, json }) => show(&read(file.as_deref())?, *json)?,
        What::Revoke(arguments) => return revoke(arguments),
    }
    Ok(0)
}

fn get(arguments: &Get) -> Result<()> {
    if of_environment()?.is_some() {
        bail!("{CAPABILITY} is set: narrow that one (`terral cap attenuate`), or unset it");
    }
    let path = arguments.which.served()?;
    let whole = match credential_of_environment()? {
        Some(credential) => authorize(&path, &credential, true)?,
        None => Client::observe_with(&path, None)?.capability()?,
    };
    let whole = match &arguments.container {
        Some(name) if !name.is_default() => {
            let asks = Client::observe_with(&path, Some(whole.clone()))?;
            whole.attenuate(Caveat::Below(asks.container(name)?.place))?
        }
        _ => whole,
    };
    let narrower = narrowed(whole, &arguments.narrower)?;
    give(&narrower, &arguments.output)
}

fn attenuate(arguments: &Attenuate) -> Result<()> {
    let Narrower { allow, lasting, below } = &arguments.narrower;
    if allow.is_none() && lasting.is_none() && below.is_none() {
        bail!("nothing to narrow: say --allow, --for or --below");
    }
    let narrower = narrowed(read(arguments.file.as_deref())?, &arguments.narrower)?;
    give(&narrower, &arguments.output)
}

fn narrowed(whole: Capability, narrower: &Narrower) -> Result<Capability> {
    let below = narrower.below.as_deref().map(place).transpose()?;
    if narrower.lasting.is_some_and(|lasting| lasting < Duration::from_secs(1)) {
        bail!("--for: less than a second");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let until_s = narrower.lasting.map(|lasting| now.saturating_add(lasting).as_secs());
    let caveats = [
        narrower.allow.map(Caveat::Only),
        until_s.map(Caveat::Until),
        below.filter(|path| !path.is_empty()).map(Caveat::Below),
    ];
    let mut caveats = caveats.into_iter().flatten();
    let narrower = caveats.try_fold(whole, |wider, caveat| wider.attenuate(caveat))?;
    if narrower.scope().rights.operations == Operations(0) {
        bail!("nothing would be left of it (`terral cap show` says what it is for)");
    }
    Ok(narrower)
}

fn read(file: Option<&Path>) -> Result<Capability> {
    let mut text = String::new();
    match file.filter(|file| *file != Path::new("-")) {
        None => std::io::stdin().lock().take(CAPABILITY_TEXT_MAX).read_to_string(&mut text)?,
        Some(path) => {
            let file = fs::File::open(path).with_context(|| path.display().to_string())?;
            let read = file.take(CAPABILITY_TEXT_MAX).read_to_string(&mut text);
            read.with_context(|| path.display().to_string())?
        }
    };
    let shown = file.map_or("standard input".into(), |path| path.display().to_string());
    Capability::of(&text).with_context(|| shown)
}

/// Writes it where it shall go.
fn give(capability: &Capability, output: &Output) -> Result<()> {
    let text = capability.text()? + "\n";
    if let Some(path) = &output.output {
        write(path, &text).with_context(|| path.display().to_string())?;
    }
    match (output.json, &output.output) {
        (true, None) => {
            let mut object = described(capability);
            object["text"] = json!(text.trim_end());
            report::json(&object)
        }
        (true, Some(_)) => report::json(&described(capability)),
        (false, None) => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
        (false, Some(_)) => Ok(()),
    }
}

/// A new file in place of what is there, so that nobody has it open.
pub fn write(path: &Path, text: &str) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut how = OpenOptions::new();
    how.write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

fn described(capability: &Capability) -> Value {
    let (scope, grant) = (capability.scope(), &capability.grant);
    let principal = match grant.principal {
        Principal::User(user) => json!(user),
        named => json!(named.to_string()),
    };
    let object = json!({
        "container": grant.container.0,
        "operations": scope.rights.operations.words().collect::<Vec<_>>(),
        "until_s": scope.rights.expires_s,
        "principal": principal,
        "serial": format!("{:016x}", grant.serial),
        "credential": scope.credential.map(|id| id.to_string()),
        "below": null,
    });
    match scope.below {
        Some(below) => add_name(object, "below", &below),
        None => object,
    }
}

fn show(capability: &Capability, as_json: bool) -> Result<()> {
    if as_json {
        return report::json(&described(capability));
    }
    let (scope, grant) = (capability.scope(), &capability.grant);
    let principal = grant.principal;
    let words: Vec<&str> = scope.rights.operations.words().collect();
    let words = if words.is_empty() { "nothing".into() } else { words.join(", ") };
    let until = time(scope.rights.expires_s.saturating_mul(1_000_000_000));
    let below = scope.below.map_or("/".into(), |below| format!("/{}", tame_name(&below)));
    let text = format!(
        "serial      {:016x}\ncontainer   {}\nprincipal   {principal}\noperations  {words}\n\
         until       {until} UTC\npath        {below}\n",
        grant.serial, grant.container.0
    );
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

fn revoke(arguments: &Revoke) -> Result<u8> {
    let Named { serial, operations, principal, credential } = &arguments.named;
    let what = match (serial, operations, principal, credential) {
        (Some(serial), ..) => Revocation::Serial(*serial),
        (_, Some(operations), ..) => Revocation::Operations(*operations),
        (_, _, Some(user), _) => Revocation::Principal(*user),
        (.., Some(credential)) => Revocation::Credential(CredentialId(*credential)),
        _ => Revocation::Serial(read(arguments.file.as_deref())?.grant.serial),
    };
    let client = arguments.which.observe()?;
    let (sessions, deaf) = client.revoke(what)?;
    let hosts = Hosts::of(client.instance());
    let deaf: Vec<String> = deaf.into_iter().map(|member| hosts.name(member)).collect();
    if arguments.json {
        let name = name_of(client.instance());
        let object = json!({ "instance": name, "sessions": sessions, "silent": deaf });
        return report::json(&object).map(|()| u8::from(!deaf.is_empty()));
    }
    let programs = plural(sessions.into(), "program that runs", "programs that run");
    note(format_args!("revoked: {programs} may do less now"));
    for name in &deaf {
        note(format_args!(
            "{name}: does not answer: what was handed out is good there no more, and its own \
             programs go on until it does"
        ));
    }
    Ok(u8::from(!deaf.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::{Operations, operations, serial};

    #[test]
    fn operations_are_said_by_their_words() {
        let two = Operations::READ.and(Operations::LIST);
        assert_eq!((operations("read,list"), operations("read, list")), (Ok(two), Ok(two)));
        for none in ["", "read,", "all", "READ"] {
            assert!(operations(none).is_err(), "{none}");
        }
    }

    #[test]
    fn a_serial_is_said_by_its_digits() {
        assert_eq!((serial("0a"), serial("ffffffffffffffff")), (Ok(10), Ok(u64::MAX)));
        for none in ["", "+1", "0x1", "10000000000000000"] {
            assert!(serial(none).is_err(), "{none}");
        }
    }
}
