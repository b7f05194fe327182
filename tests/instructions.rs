//! The decoder of instructions and what is found with it, beside binutils' disassembler, over whole
//! programs and libraries of this machine. Not here: what is caught (`bypass`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use terral_transport::decoder::decode;
use terral_transport::raw_calls;

/// Programs and libraries with much in them: vector instructions, code in assembly, big data.
const FILES: [&str; 6] = [
    "/usr/bin/git",
    "/usr/bin/bash",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libm.so.6",
    "/usr/lib/x86_64-linux-gnu/libgomp.so.1",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
];

/// A line `  addr:\tbytes\tinstruction`.
fn parsed(line: &str) -> Option<(Vec<u8>, &str)> {
    let mut parts = line.split('\t');
    parts.next()?.trim().strip_suffix(':')?;
    let bytes = parts.next()?.split_ascii_whitespace();
    let bytes = bytes.map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    Some((bytes, parts.next()?.trim()))
}

/// What binutils takes together or apart, and data that is no instruction.
fn is_taken_otherwise(bytes: &[u8], text: &str) -> bool {
    let is_prefix = |word: &str| {
        const PREFIXES: &str = "data16 addr32 cs ds es ss fs gs repz repnz lock";
        word.starts_with("rex") || PREFIXES.split(' ').any(|prefix| prefix == word)
    };
    // One without an instruction behind it, and FWAIT with the one that it belongs to.
    text.split_ascii_whitespace().all(is_prefix)
        || ["(bad)", ".byte"].iter().any(|data| text.contains(data))
        || bytes[0] == 0x9b
}

/// Compares each line; gives how many there were, and the addresses' count of `syscall`.
fn compare(file: &str) -> (u64, u64) {
    let mut disassembler = Command::new("objdump");
    disassembler.args(["-d", "-w", "-M", "intel64", file]).stdout(Stdio::piped());
    let mut disassembler = disassembler.spawn().expect("objdump");
    let lines = BufReader::new(disassembler.stdout.take().expect("piped")).lines();
    let (mut compared, mut different, mut calls) = (0, Vec::new(), 0);
    for line in lines {
        let line = line.expect("text");
        let Some((bytes, text)) = parsed(&line) else { continue };
        if is_taken_otherwise(&bytes, text) {
            continue;
        }
        compared += 1;
        calls += u64::from(text == "syscall");
        if decode(&bytes).map(|one| one.length) != Some(bytes.len()) {
            different.push(line);
        }
    }
    assert!(disassembler.wait().expect("ends").success());
    assert!(different.is_empty(), "{file}: {} of {compared}: {:#?}", different.len(), {
        different.truncate(20);
        different
    });
    (compared, calls)
}

fn has_objdump() -> bool {
    let there = Path::new("/usr/bin/objdump").exists();
    if !there {
        println!("skipped: objdump is not installed");
    }
    there && cfg!(target_arch = "x86_64")
}

#[test]
fn each_instruction_is_as_long_as_binutils_says() {
    if !has_objdump() {
        return;
    }
    let there: Vec<&str> = FILES.into_iter().filter(|file| Path::new(file).exists()).collect();
    let compared: u64 = there.iter().map(|file| compare(file).0).sum();
    assert!(compared > 500_000, "{compared} instructions of {there:?}");
}

/// The numbers of an object's own calls.
fn numbers(file: &str) -> Vec<Option<u32>> {
    raw_calls::look(&std::fs::read(file).expect("reads")).expect("an object").numbers
}

#[test]
fn bytes_that_are_no_instruction_are_none() {
    let git = std::fs::read("/usr/bin/git").unwrap_or_default();
    if git.is_empty() || !cfg!(target_arch = "x86_64") {
        println!("skipped: git is not installed");
        return;
    }
    let places = git.windows(2).filter(|pair| pair == &[0x0f, 0x05]).count();
    assert!(places > 0, "the bytes stand somewhere in git");
    assert_eq!(numbers("/usr/bin/git"), []);
    // Tables in the midst of its code.
    assert_eq!(numbers("/usr/lib/x86_64-linux-gnu/libcrypto.so.3"), []);
    assert_eq!(numbers("/usr/bin/bash"), []);
}

#[test]
fn instructions_are_found_with_their_numbers() {
    if !has_objdump() {
        return;
    }
    // `syscall` itself, and all that libc does.
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    let (_, calls) = compare(libc);
    let found: Vec<Option<u32>> = numbers(libc);
    let known: BTreeSet<u32> = found.iter().flatten().copied().collect();
    for number in [0, 1, 3, 9, 257, 262, 332] {
        assert!(known.contains(&number), "{number} of {known:?}");
    }
    assert!(found.contains(&None), "the number is an argument of `syscall`");
    let (found, calls) = (found.len() as u64, calls);
    assert!(found <= calls && found > calls / 2, "{found} of {calls}, of which some are harmless");
}
