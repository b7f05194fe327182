//! Programs that get signals all the time: what they print and leave is what it is without.
//! `programs/signals.c` gets them from a timer, too, and its handler uses files.
#![cfg(not(loom))]

mod beside;
mod descendants;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use beside::{compiled, on_path, run, run_while};
use rustix::process::Signal;

/// Whether a process has a handler for `SIGUSR1`.
fn listens(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (Signal::USR1.as_raw() - 1) & 1 == 1)
}

/// Runs a script beside tmpfs; every process of it under `terral run` that listens for `SIGUSR1`
/// gets it again and again.
fn same_though_signals_come(script: &str, opens: u64) {
    let sent = AtomicU32::new(0);
    let send = |run: u32, over: &AtomicBool| {
        while !over.load(Ordering::SeqCst) {
            for pid in descendants::of(run).into_iter().skip(1).filter(|pid| listens(*pid)) {
                descendants::send(pid, Signal::USR1);
                sent.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_micros(700));
        }
    };
    let beside = run_while(script, send);
    beside.assert_same();
    beside.assert_served(opens);
    assert!(sent.load(Ordering::SeqCst) >= 5, "hardly a signal came");
}

#[test]
fn programs_see_their_own_handlers_and_each_signal_comes_once() {
    if on_path("gcc") {
        let home = tempfile::tempdir().expect("directory");
        let beside = run(&format!("{} .", compiled("handlers", home.path()).display()));
        assert_eq!(beside.text, "handlers as they should be\n");
        beside.assert_same();
        beside.assert_served(50);
    }
}

#[test]
fn reading_and_writing_with_handlers_that_use_files() {
    if !on_path("gcc") {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let (signals, counts) = (compiled("signals", home.path()), home.path().join("counts"));
    for how in ["restart", "interrupt"] {
        fs::write(&counts, "").expect("writes");
        let (signals, counts) = (signals.display(), counts.display());
        same_though_signals_come(&format!("{signals} . {how} {counts}"), 500);
        // Of tmpfs, then of the run: how many came, and how many handlers could use files.
        let text = fs::read_to_string(home.path().join("counts")).expect("counts");
        let last = text.lines().last().unwrap_or_default();
        let counts: Vec<u32> = last.split(' ').filter_map(|count| count.parse().ok()).collect();
        assert!(counts[0] >= 10 && counts[1] * 10 >= counts[0] * 9, "{text}");
    }
}

#[test]
fn tar() {
    if on_path("tar") {
        // tar tells its totals on SIGUSR1, on its standard error.
        let script = "mkdir t x; for i in $(seq 1500); do echo $i > t/f$i; done; seq 900000 > t/big
            tar --totals=SIGUSR1 -cf t.tar t 2> /dev/null && echo packed
            tar --totals=SIGUSR1 -xf t.tar -C x 2> /dev/null && diff -r t x/t && echo same
            rm t.tar";
        same_though_signals_come(script, 3000);
    }
}

#[test]
fn python() {
    if on_path("python3") {
        let script = "exec /usr/bin/python3 -c \"
import os, signal, shutil
def note(number, frame):
    with open('note', 'a') as f: f.write('signal')
    os.stat('note')
signal.signal(signal.SIGUSR1, note)
for i in range(400):
    os.makedirs('d/%d' % (i % 7), exist_ok=True)
    with open('d/%d/f%d' % (i % 7, i), 'w') as f: f.write('x' * i * 100)
    os.rename('d/%d/f%d' % (i % 7, i), 'd/n%d' % i)
    assert len(open('d/n%d' % i).read()) == i * 100
shutil.copytree('d', 'e'); print(sorted(os.listdir('e')) == sorted(os.listdir('d')))
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
open('note', 'a').close(); os.unlink('note')\"";
        same_though_signals_come(script, 800);
    }
}
