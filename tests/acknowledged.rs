//! A program that notes what it had been told was done, and one that looks whether it still is.
#![allow(dead_code)] // Each test file uses its part.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::random::Random;

/// What a program does.
#[derive(Clone, Debug)]
pub enum Step {
    Append(String, u64),
    Replace(String, u64),
    Rename(String, String),
    Remove(String),
}

/// A file is a sequence of blocks, each known by its seed.
pub type Model = BTreeMap<String, Vec<u64>>;

fn block(seed: u64) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let length = if seed.is_multiple_of(7) { 3_000_000 } else { 100 + seed % 9_000 };
    (0..length).map(|_| random.below(251) as u8).collect()
}

impl Step {
    fn random(random: &mut Random) -> Step {
        let name = format!("f{}", random.below(9));
        let seed = random.below(1 << 40);
        match random.below(8) {
            0 => Step::Remove(name),
            1 => Step::Rename(name, format!("f{}", random.below(9))),
            2 | 3 => Step::Replace(name, seed),
            _ => Step::Append(name, seed),
        }
    }

    fn parse(text: &str) -> Step {
        let words: Vec<&str> = text.split(' ').collect();
        let seed = || words[2].parse().expect("a seed");
        match words[0] {
            "append" => Step::Append(words[1].into(), seed()),
            "replace" => Step::Replace(words[1].into(), seed()),
            "rename" => Step::Rename(words[1].into(), words[2].into()),
            _ => Step::Remove(words[1].into()),
        }
    }

    fn text(&self) -> String {
        match self {
            Step::Append(name, seed) => format!("append {name} {seed}"),
            Step::Replace(name, seed) => format!("replace {name} {seed}"),
            Step::Rename(name, to) => format!("rename {name} {to}"),
            Step::Remove(name) => format!("remove {name}"),
        }
    }

    /// Does it to a model.
    pub fn apply(&self, model: &mut Model) {
        match self {
            Step::Append(name, seed) => model.entry(name.clone()).or_default().push(*seed),
            Step::Replace(name, seed) => drop(model.insert(name.clone(), vec![*seed])),
            Step::Rename(name, to) => {
                if let Some(file) = model.remove(name) {
                    model.insert(to.clone(), file);
                }
            }
            Step::Remove(name) => drop(model.remove(name)),
        }
    }

    fn take(&self, home: &Path) {
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
            Step::Rename(name, to) => drop(fs::rename(home.join(name), home.join(to))),
            Step::Remove(name) => drop(fs::remove_file(home.join(name))),
        }
    }
}

/// What a log of steps says: what was done, and the one that may have been.
pub struct Acknowledged {
    /// What was done.
    pub model: Model,
    /// What may have been.
    pub open: Option<Step>,
}

impl Acknowledged {
    /// What this log says.
    pub fn read(log: &Path) -> Acknowledged {
        let (mut model, mut open) = (Model::new(), None::<Step>);
        for line in fs::read_to_string(log).expect("a log").lines() {
            match line.split_once(' ') {
                Some(("begins", step)) => open = Some(Step::parse(step)),
                _ if line == "done" => open.take().expect("began").apply(&mut model),
                _ if line == "not" => open = None,
                _ => {}
            }
        }
        Acknowledged { model, open }
    }

    /// Asserts that all is there; whether the open step was done.
    pub fn verify(&self) -> Option<bool> {
        let home = PathBuf::from(std::env::var_os("TERRAL_DIR").expect("under terral run"));
        let before = differs(&self.model, &home);
        let Some(step) = &self.open else {
            assert_eq!(before, None);
            return None;
        };
        let mut model = self.model.clone();
        step.apply(&mut model);
        match (before, differs(&model, &home)) {
            (_, None) => Some(true),
            (None, _) => Some(false),
            (before, after) => {
                // To make a file and to append to it are two calls.
                let made = matches!(step, Step::Append(name, _) if {
                    let mut model = self.model.clone();
                    let new = model.insert(name.clone(), Vec::new()).is_none();
                    new && differs(&model, &home).is_none()
                });
                assert!(made, "{step:?}: without it: {before:?}; with it: {after:?}");
                step.take(&home);
                Some(true)
            }
        }
    }
}

/// The first thing that is not as it should be.
pub fn differs(model: &Model, home: &Path) -> Option<String> {
    let entries = fs::read_dir(home).expect("lists").map(|entry| entry.expect("entry"));
    let names = entries.map(|entry| entry.file_name().into_string().expect("ours"));
    let mut names: Vec<String> = names.filter(|name| name.starts_with('f')).collect();
    names.sort();
    if !names.iter().eq(model.keys()) {
        return Some(format!("names {names:?}, and not {:?}", model.keys()));
    }
    model.iter().find_map(|(name, seeds)| {
        let wanted: Vec<u8> = seeds.iter().flat_map(|seed| block(*seed)).collect();
        let found = fs::read(home.join(name)).expect("reads");
        let same = found.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        let (found, wanted) = (found.len(), wanted.len());
        let differ = same < wanted || found != wanted;
        differ.then(|| format!("{name}: {same} bytes as they should be, of {wanted}; has {found}"))
    })
}

/// Verifies, says so, and goes on for ever.
pub fn work(path: &Path) {
    let done = Acknowledged::read(path).verify();
    let mut log = OpenOptions::new().append(true).open(path).expect("a log");
    let mut say = |line: &str| log.write_all(format!("{line}\n").as_bytes()).expect("says");
    match done {
        Some(true) => say("done"),
        Some(false) => say("not"),
        None => {}
    }
    say("verified");
    let home = PathBuf::from(std::env::var_os("TERRAL_DIR").expect("under terral run"));
    let mut random = Random(u64::from(std::process::id()) << 20 | 1);
    loop {
        let step = Step::random(&mut random);
        say(&format!("begins {}", step.text()));
        step.take(&home);
        say("done");
    }
}
