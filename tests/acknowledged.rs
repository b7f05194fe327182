//! A program that notes what it had been told was done, and one that looks whether it still is.
//! Not here: who runs and kills it.
#![allow(dead_code)] // Each test file uses its part.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::random::Random;

/// What the memory is bound to where [`work`] runs: less than a file without a name has.
pub const MEMORY: &str = "128M";
/// What such a file has, if it may.
const NAMELESS_MIB: u64 = 160;
/// The name it has at first.
const NAMELESS: &str = "u";

/// What a program does.
#[derive(Clone, Debug)]
pub enum Step {
    Append(String, u64),
    Replace(String, u64),
    /// As an append, at this length of the file, through a map.
    Store(String, u64, u64),
    Rename(String, String),
    Exchange(String, String),
    Remove(String),
    /// Writes a file, before and after it has lost its name, that does not fit into memory.
    Nameless(u64),
}

/// A file is a sequence of blocks, each known by its seed.
pub type Model = BTreeMap<String, Vec<u64>>;

fn block(seed: u64) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let length = if seed.is_multiple_of(7) { 3_000_000 } else { 100 + seed % 9_000 };
    (0..length).map(|_| random.below(251) as u8).collect()
}

impl Step {
    fn random(random: &mut Random, home: &Path) -> Step {
        let name = format!("f{}", random.below(9));
        let seed = random.below(1 << 40);
        match random.below(60) {
            0 => Step::Nameless(seed),
            1..7 => Step::Remove(name),
            7..13 => Step::Rename(name, format!("f{}", random.below(9))),
            13..17 => Step::Exchange(name, format!("f{}", random.below(9))),
            17..30 => Step::Replace(name, seed),
            30..36 => {
                let length = fs::metadata(home.join(&name)).map_or(0, |found| found.len());
                Step::Store(name, seed, length)
            }
            _ => Step::Append(name, seed),
        }
    }

    fn parse(text: &str) -> Step {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        match words[0] {
            "append" => Step::Append(words[1].into(), number(2)),
            "replace" => Step::Replace(words[1].into(), number(2)),
            "store" => Step::Store(words[1].into(), number(2), number(3)),
            "rename" => Step::Rename(words[1].into(), words[2].into()),
            "exchange" => Step::Exchange(words[1].into(), words[2].into()),
            "remove" => Step::Remove(words[1].into()),
            _ => Step::Nameless(number(1)),
        }
    }

    fn text(&self) -> String {
        match self {
            Step::Append(name, seed) => format!("append {name} {seed}"),
            Step::Replace(name, seed) => format!("replace {name} {seed}"),
            Step::Store(name, seed, at) => format!("store {name} {seed} {at}"),
            Step::Rename(name, to) => format!("rename {name} {to}"),
            Step::Exchange(name, to) => format!("exchange {name} {to}"),
            Step::Remove(name) => format!("remove {name}"),
            Step::Nameless(seed) => format!("nameless {seed}"),
        }
    }

    /// Does it to a model.
    pub fn apply(&self, model: &mut Model) {
        match self {
            Step::Append(name, seed) | Step::Store(name, seed, _) => {
                model.entry(name.clone()).or_default().push(*seed)
            }
            Step::Replace(name, seed) => drop(model.insert(name.clone(), vec![*seed])),
            Step::Rename(name, to) => {
                if let Some(file) = model.remove(name) {
                    model.insert(to.clone(), file);
                }
            }
            Step::Exchange(name, to) => {
                if name != to && model.contains_key(name) && model.contains_key(to) {
                    let (one, other) = (model.remove(name), model.remove(to));
                    model.extend(one.map(|one| (to.clone(), one)));
                    model.extend(other.map(|other| (name.clone(), other)));
                }
            }
            Step::Remove(name) => drop(model.remove(name)),
            Step::Nameless(_) => {}
        }
    }

    /// Does it; `hand` is the program in C.
    fn take(&self, home: &Path, hand: &Path, lost_its_name: impl FnMut()) {
        match self {
            Step::Append(name, seed) => {
                let file = OpenOptions::new().append(true).create(true).open(home.join(name));
                let written = file.expect("opens").write(&block(*seed)).expect("writes");
                assert_eq!(written, block(*seed).len());
            }
            Step::Replace(name, seed) => {
                fs::write(home.join("new"), block(*seed)).expect("writes");
                fs::rename(home.join("new"), home.join(name)).expect("renames");
            }
            Step::Store(name, seed, at) => {
                by_hand(hand, home, &["store", name, &at.to_string()], &block(*seed));
            }
            Step::Rename(name, to) => drop(fs::rename(home.join(name), home.join(to))),
            Step::Exchange(name, to) => by_hand(hand, home, &["exchange", name, to], b""),
            Step::Remove(name) => drop(fs::remove_file(home.join(name))),
            Step::Nameless(seed) => nameless(&home.join(NAMELESS), *seed, lost_its_name),
        }
    }

    /// Whether the files are as this step may leave them when it is cut short, and would be as it
    /// leaves them when it is done again.
    fn is_begun(&self, model: &Model, home: &Path) -> bool {
        let mut model = model.clone();
        match self {
            // To make a file and to append to it are two calls.
            Step::Append(name, _) => {
                model.insert(name.clone(), Vec::new()).is_none() && differs(&model, home).is_none()
            }
            // The file is made, gets its length, and has any of the bytes that were stored.
            Step::Store(name, seed, at) => {
                model.entry(name.clone()).or_default();
                let stored = |found: Vec<u8>| {
                    let (before, after) = found.split_at_checked(*at as usize)?;
                    let wanted = block(*seed);
                    let whole = after.is_empty() || after.len() == wanted.len();
                    let mut pairs = after.iter().zip(&wanted);
                    let only = pairs.all(|(found, wanted)| *found == 0 || found == wanted);
                    (whole && only).then(|| before.to_vec())
                };
                differs_but(&model, home, |of, found| match of == name {
                    true => stored(found).unwrap_or_default(),
                    false => found,
                })
                .is_none()
            }
            _ => false,
        }
    }
}

/// Has the program in C do what is not in Rust's library.
fn by_hand(hand: &Path, home: &Path, arguments: &[&str], input: &[u8]) {
    let mut hand = Command::new(hand);
    hand.args(arguments).current_dir(home).stdin(Stdio::piped());
    let mut hand = hand.spawn().expect("starts");
    hand.stdin.take().expect("piped").write_all(input).expect("it reads");
    assert!(hand.wait().expect("ends").success(), "{arguments:?}");
}

/// A file that does not fit into memory, open and without a name, has what was written to it; or
/// it keeps its name and is as it was.
fn nameless(path: &Path, seed: u64, mut lost_its_name: impl FnMut()) {
    let mut how = OpenOptions::new();
    let mut file = how.read(true).write(true).create_new(true).open(path).expect("opens");
    let bytes = |at: u64| vec![(seed + at * 7) as u8; 1 << 20];
    let early = seed % NAMELESS_MIB;
    let fits = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::StorageFull => false,
        other => other.map(|()| true).expect("works"),
    };
    (0..early).for_each(|at| file.write_all(&bytes(at)).expect("is brought to the directory"));
    let removed = fits(fs::remove_file(path));
    let mut written = early;
    if removed {
        lost_its_name();
        while written < NAMELESS_MIB && fits(file.write_all(&bytes(written))) {
            written += 1;
        }
    }
    file.seek(SeekFrom::Start(0)).expect("seeks");
    let mut found = vec![0; 1 << 20];
    for at in 0..written {
        file.read_exact(&mut found).expect("reads");
        assert!(found == bytes(at), "MiB {at} of {written}, {early} of them with a name");
    }
    drop(file);
    if !removed {
        fs::remove_file(path).expect("nobody has it open");
    }
}

/// What a log of steps says: what was done, and the one that may have been.
pub struct Acknowledged {
    /// What was done.
    pub model: Model,
    /// What may have been.
    pub open: Option<Step>,
    /// A file without a name must not have one again.
    lost_its_name: bool,
    hand: PathBuf,
}

impl Acknowledged {
    /// What this log says; the program `hand` is beside it.
    pub fn read(log: &Path) -> Acknowledged {
        let (mut model, mut open, mut lost_its_name) = (Model::new(), None::<Step>, true);
        for line in fs::read_to_string(log).expect("a log").lines() {
            match line.split_once(' ') {
                Some(("begins", step)) => open = Some(Step::parse(step)),
                _ if line == "done" => open.take().expect("began").apply(&mut model),
                _ if line == "not" => open = None,
                _ => {}
            }
            lost_its_name = line == "nameless" || !matches!(open, Some(Step::Nameless(_)));
        }
        Acknowledged { model, open, lost_its_name, hand: hand_of(log) }
    }

    /// How often a log says that each kind of step was begun.
    pub fn steps(log: &Path) -> String {
        let text = fs::read_to_string(log).expect("a log");
        let kinds = ["append", "replace", "store", "rename", "exchange", "remove", "nameless"];
        let begun = |kind: &str| text.matches(&format!("begins {kind} ")).count();
        let all = kinds.map(|kind| format!("{kind} {}", begun(kind))).join(", ");
        format!("{all}, {} of them without a name", text.matches("\nnameless\n").count())
    }

    /// Asserts that all is there; whether the open step was done. One that was begun is done.
    pub fn verify(&self, home: &Path) -> Option<bool> {
        let nameless = fs::remove_file(home.join(NAMELESS));
        assert!(nameless.is_err() || !self.lost_its_name, "what was removed is there");
        let before = differs(&self.model, home);
        let Some(step) = &self.open else {
            assert_eq!(before, None);
            return None;
        };
        let mut model = self.model.clone();
        step.apply(&mut model);
        match (before, differs(&model, home)) {
            (_, None) => Some(true),
            (None, _) => Some(false),
            (before, after) => {
                let begun = step.is_begun(&self.model, home);
                assert!(begun, "{step:?}: without it: {before:?}; with it: {after:?}");
                step.take(home, &self.hand, || ());
                assert_eq!(differs(&model, home), None);
                Some(true)
            }
        }
    }
}

/// The first thing that is not as it should be.
pub fn differs(model: &Model, home: &Path) -> Option<String> {
    differs_but(model, home, |_, found| found)
}

/// As [`differs`], of files as `seen` makes them.
fn differs_but(
    model: &Model,
    home: &Path,
    seen: impl Fn(&str, Vec<u8>) -> Vec<u8>,
) -> Option<String> {
    let entries = fs::read_dir(home).expect("lists").map(|entry| entry.expect("entry"));
    let names = entries.map(|entry| entry.file_name().into_string().expect("ours"));
    let mut names: Vec<String> = names.filter(|name| name.starts_with('f')).collect();
    names.sort();
    if !names.iter().eq(model.keys()) {
        return Some(format!("names {names:?}, and not {:?}", model.keys()));
    }
    model.iter().find_map(|(name, seeds)| {
        let wanted: Vec<u8> = seeds.iter().flat_map(|seed| block(*seed)).collect();
        let found = seen(name, fs::read(home.join(name)).expect("reads"));
        let same = found.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        let (found, wanted) = (found.len(), wanted.len());
        let differ = same < wanted || found != wanted;
        differ.then(|| format!("{name}: {same} bytes as they should be, of {wanted}; has {found}"))
    })
}

/// Verifies, says so, and goes on for ever.
pub fn work(path: &Path) {
    let home = home();
    let done = Acknowledged::read(path).verify(&home);
    let log = OpenOptions::new().append(true).open(path).expect("a log");
    let say = |line: &str| (&log).write_all(format!("{line}\n").as_bytes()).expect("says");
    match done {
        Some(true) => say("done"),
        Some(false) => say("not"),
        None => {}
    }
    say("verified");
    let mut random = Random::new("work");
    random.0 ^= u64::from(std::process::id()) << 20;
    loop {
        let step = Step::random(&mut random, &home);
        say(&format!("begins {}", step.text()));
        step.take(&home, &hand_of(path), || say("nameless"));
        say("done");
    }
}

/// The program in C, which is beside the log.
fn hand_of(log: &Path) -> PathBuf {
    log.with_file_name("hand")
}

/// Where the files are.
pub fn home() -> PathBuf {
    std::env::var_os("TERRAL_DIR").expect("under terral run").into()
}
