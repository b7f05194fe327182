//! `terral txn`: transactions over several machines of which it is not known whether they come to
//! be.
//!
//! Not here: what a transaction is (`terral_client`), and what is in doubt (`terral_server`).

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use terral_client::{Client, InDoubt, MemberDoubts, TransactionId, Trouble};

use crate::instances::{Which, name_of};
use crate::members::Hosts;
use crate::report::{self, note};
use crate::shown::{add_name, tame_name};
use crate::units;

/// Shows, and resolves, transactions of which it is not known whether they come to be
#[derive(Args)]
#[command(after_help = "\
A transaction that sets attributes of other machines' files, or gives them names, is prepared there
before the machine of the program that asked for it decides. In between, a few milliseconds, it is
in doubt there. If that machine is lost in between, it stays so, and who wants these attributes gets
an error (EIO) that names it. Once the machine is removed from the run (terral fence), somebody may
say what is to be: all of it, or nothing. Nobody has to if the transaction was to be known to two
machines (terral_txn_copies): then the other one, its witness, does, unless that was removed, too;
and nobody has to for names alone: nobody waits for them.

Examples:
  terral txn list
  terral txn show 2-00c0ffee00c0ffee
  terral txn resolve 2-00c0ffee00c0ffee --abort")]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Lists what is in doubt, on all machines
    List(List),
    /// Shows one: what it sets, and where
    Show(Show),
    /// Says that one comes to be, or that it does not
    Resolve(Resolve),
}

#[derive(Args)]
#[command(after_help = "\
Example:
  terral txn list --json | jq -r '.transactions[] | select(.trouble == \"lost\") | .transaction'")]
struct List {
    #[command(flatten)]
    which: Which,
    /// One object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  terral txn show 2-00c0ffee00c0ffee")]
struct Show {
    /// Which, as it is listed
    transaction: TransactionId,
    #[command(flatten)]
    which: Which,
    /// One object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
The machine that decides it was removed before (terral fence). What its own memory had of it is lost
with it: names that the transaction made there are not made now. --commit sets what the other
machines have prepared; --abort leaves it as it was. Neither is undone. It is asked before, unless
--yes.

Example:
  terral txn resolve 2-00c0ffee00c0ffee --abort")]
struct Resolve {
    /// Which, as it is listed
    transaction: TransactionId,
    /// It comes to be
    #[arg(long, conflicts_with = "abort", required_unless_present = "abort")]
    commit: bool,
    /// It does not
    #[arg(long)]
    abort: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    which: Which,
    /// One object
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    match &arguments.what {
        What::List(List { which, json }) => shows(&which.observe()?, None, *json),
        What::Show(Show { transaction, which, json }) => {
            shows(&which.observe()?, Some(*transaction), *json)
        }
        What::Resolve(arguments) => resolve(arguments),
    }
}

/// Those that have not said anything, by name.
fn silent(all: &[MemberDoubts], hosts: &Hosts) -> Vec<String> {
    let silent = all.iter().filter(|one| one.doubts.is_none());
    silent.map(|one| hosts.name(one.member)).collect()
}

fn flat(all: &[MemberDoubts]) -> impl Iterator<Item = (&MemberDoubts, &InDoubt)> {
    all.iter().flat_map(|one| one.doubts.iter().flatten().map(move |doubt| (one, doubt)))
}

/// One of them, or all. Those who have not answered are named, and the exit status is 1.
fn shows(client: &Client, only: Option<TransactionId>, as_json: bool) -> Result<u8> {
    let mut all = client.doubts()?;
    for one in &mut all {
        let doubts = one.doubts.iter_mut();
        doubts.for_each(|doubts| doubts.retain(|doubt| only.is_none_or(|only| doubt.of == only)));
    }
    let hosts = Hosts::of(client.instance());
    let silent = silent(&all, &hosts);
    if let Some(only) = only.filter(|_| silent.is_empty() && flat(&all).next().is_none()) {
        bail!("{only}: no such transaction is in doubt (terral txn list)");
    }
    if as_json {
        said(client, (&all, &silent), None)?;
    } else {
        let text: String = flat(&all).map(|(one, doubt)| row(&hosts, one, doubt)).collect();
        std::io::stdout().lock().write_all(text.as_bytes())?;
        silent.iter().for_each(|name| note(format_args!("{name}: does not answer")));
    }
    Ok(u8::from(!silent.is_empty()))
}

fn row(hosts: &Hosts, one: &MemberDoubts, doubt: &InDoubt) -> String {
    let (by, at) = (hosts.name(doubt.of.by), hosts.name(one.member));
    let (since, what) = (units::time(doubt.since_s * 1_000_000_000), changed(doubt));
    let why = match doubt.trouble {
        None => "is being decided by",
        Some(Trouble::Silent) => "waits for",
        Some(Trouble::Lost) => "is to be resolved: removed was",
        Some(Trouble::Witness) => "waits for the witness; decided by",
    };
    let witness = doubt.witness.map(|witness| format!(", witness {}", hosts.name(witness)));
    let witness = witness.unwrap_or_default();
    format!(
        "{}  {why} {by}{witness}  since {since}  on {at}: {} of /{}\n",
        doubt.of,
        what,
        tame_name(&doubt.path)
    )
}

/// What it changes of a file.
fn changed(doubt: &InDoubt) -> String {
    let mut all: Vec<String> = doubt.names.iter().map(|name| tame_name(name)).collect();
    if doubt.gets > 0 {
        all.push(format!("{} further names", doubt.gets));
    }
    all.join(",")
}

fn described((one, doubt): (&MemberDoubts, &InDoubt)) -> Value {
    let names: Vec<String> = doubt.names.iter().map(|name| tame_name(name)).collect();
    let object = json!({
        "transaction": doubt.of.to_string(),
        "decided_by": doubt.of.by.number(),
        "witness": doubt.witness.map(|witness| witness.number()),
        "member": one.member.number(),
        "path": null,
        "attributes": names,
        "names_gained": doubt.gets,
        "since_s": doubt.since_s,
        "trouble": match doubt.trouble {
            None => None,
            Some(Trouble::Silent) => Some("silent"),
            Some(Trouble::Lost) => Some("lost"),
            Some(Trouble::Witness) => Some("witness"),
        },
    });
    add_name(object, "path", &doubt.path)
}

fn said(
    client: &Client,
    (all, silent): (&[MemberDoubts], &[String]),
    is: Option<bool>,
) -> Result<()> {
    let transactions: Vec<Value> = flat(all).map(described).collect();
    let mut object = json!({
        "instance": name_of(client.instance()), "transactions": transactions, "silent": silent,
    });
    if let (Some(fields), Some(is)) = (object.as_object_mut(), is) {
        fields.insert("commit".into(), is.into());
    }
    report::json(&object)
}

/// Whether somebody at the terminal says so.
fn is_sure(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("it cannot be asked here whether that is meant: say --yes");
    }
    std::io::stderr().lock().write_all(format!("{question} [y/N] ").as_bytes())?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn resolve(arguments: &Resolve) -> Result<u8> {
    let Resolve { transaction, commit, yes, which, json, .. } = arguments;
    let client = which.observe()?;
    let hosts = Hosts::of(client.instance());
    let does = if *commit { "set what was prepared" } else { "leave all as it was" };
    if !yes {
        let before = client.doubts()?;
        let text: String = flat(&before)
            .filter(|(_, doubt)| doubt.of == *transaction)
            .map(|(one, doubt)| row(&hosts, one, doubt))
            .collect();
        std::io::stderr().lock().write_all(text.as_bytes())?;
        if !is_sure(&format!("{transaction}: {does}, for good?"))? {
            return Ok(1);
        }
    }
    let all = client.resolve(*transaction, *commit)?;
    let silent = silent(&all, &hosts);
    let count = flat(&all).count() as u64;
    if count == 0 && silent.is_empty() {
        bail!("{transaction}: no such transaction is in doubt (terral txn list)");
    }
    if *json {
        said(&client, (&all, &silent), Some(*commit))?;
    } else {
        let how = if *commit { "comes to be" } else { "does not come to be" };
        note(format_args!("{transaction} {how}: {}", units::plural(count, "file", "files")));
        for name in &silent {
            note(format_args!("{name}: does not answer: say it again when it does"));
        }
    }
    Ok(u8::from(!silent.is_empty()))
}
