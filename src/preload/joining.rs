//! A run that spreads: where no server of it is, `terral join` starts one, for which the first call
//! of a program on files of the prefix waits.
//!
//! Invariants: once in a process; what it forks makes system calls only, until it is another
//! program, has none of its descriptors but the error output, and is seen neither by its own `wait`
//! nor by its handlers, which run meanwhile. Not here: what `terral join` does (`cli/join`).

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::real::{errno, kernel};
use crate::settings::{environment, instance, spread};
use crate::signals;

/// What `terral` is not to have of the program's environment: it is none of its programs.
const OURS: [&[u8]; 5] =
    [b"LD_PRELOAD=", b"TERRAL_INSTANCE=", b"TERRAL_PREFIX=", b"TERRAL_CWD=", b"TERRAL_STRICT="];
/// What begins the name of the file that is beside the instance meanwhile (`cli/join`).
const TURN: &[u8] = b".joining-";
/// It could not be executed.
const NOT_EXECUTED: c_int = 127;
/// A signal has ended it.
const KILLED: c_int = 128;

/// Nobody in this process has tried yet, or somebody has; else the process that tries.
static TRIES: AtomicI32 = AtomicI32::new(UNTRIED);
const UNTRIED: i32 = 0;
/// Whoever finds none may look once more.
const IS_THERE: i32 = -1;
/// Why was said.
const HAS_FAILED: i32 = -2;
static POLL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// A server may be there.
    There,
    /// None is, and why was said.
    Said,
    /// None is to be started.
    Not,
}

/// Whether somebody on this machine has begun to, and is not through, or has failed.
pub fn is_underway() -> bool {
    if spread().is_none() {
        return false;
    }
    let instance = instance().as_os_str().as_encoded_bytes();
    let slash = instance.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let turn = CString::new([&instance[..slash], TURN, &instance[slash..]].concat());
    turn.is_ok_and(|turn| {
        let found: c_int = kernel!(SYS_faccessat, libc::AT_FDCWD, turn.as_ptr(), libc::F_OK);
        found == 0
    })
}

/// Has a server here, if this run spreads and nobody in this process has tried. Who comes while
/// another thread does waits for that.
pub fn join() -> Joined {
    let Some((program, ticket)) = spread() else { return Joined::Not };
    let me: i32 = kernel!(SYS_getpid);
    loop {
        match TRIES.load(Ordering::Acquire) {
            // It may have come after this thread had looked.
            IS_THERE => return Joined::There,
            HAS_FAILED => return Joined::Said,
            who if who == me => pause(),
            // What the parent was doing at the fork, nobody does here.
            who => {
                let mine = TRIES.compare_exchange(who, me, Ordering::AcqRel, Ordering::Relaxed);
                if mine.is_ok() {
                    let joined = start(program, ticket);
                    let found = if joined == Joined::Said { HAS_FAILED } else { IS_THERE };
                    TRIES.store(found, Ordering::Release);
                    return joined;
                }
            }
        }
    }
}

/// A moment of a wait.
fn pause() {
    signals::hurry();
    let _: c_int = kernel!(SYS_nanosleep, &raw const POLL, ptr::null::<u8>());
}

/// Tells the terminal.
fn say(what: &str) {
    let line = format!("terral: {what}\n");
    let _: isize = kernel!(SYS_write, 2, line.as_ptr(), line.len());
}

fn start(program: &[u8], ticket: &[u8]) -> Joined {
    let shown = String::from_utf8_lossy(program);
    let instance = instance().as_os_str().as_encoded_bytes();
    let words = [program, b"join", instance, ticket].map(|word| CString::new(word).ok());
    let [Some(program), Some(join), Some(instance), Some(ticket)] = words else {
        return Joined::Not;
    };
    let words = [program.as_ptr(), join.as_ptr(), instance.as_ptr(), ticket.as_ptr(), ptr::null()];
    let environment = others();
    match run(&words, &environment) {
        Some(0) => Joined::There,
        Some(NOT_EXECUTED) => {
            say(&format!(
                "no server of this run is on this machine, and {shown} is not there to start one: \
                 it must be at that path, or name the machine with `terral run --hosts`, which \
                 sends it"
            ));
            Joined::Said
        }
        Some(KILLED) | None => Joined::Not,
        // It says why.
        Some(_) => Joined::Said,
    }
}

/// The environment without what makes a program one of the run.
fn others() -> Vec<*const c_char> {
    let mut list = Vec::new();
    let mut at = environment();
    // SAFETY: the environment is a null-terminated array of strings.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = std::ffi::CStr::from_ptr(*at).to_bytes();
            if !OURS.iter().any(|name| entry.starts_with(name)) {
                list.push(*at);
            }
            at = at.add(1);
        }
    }
    // With no instance the library puts nothing back, where it is preloaded for all.
    list.push(c"TERRAL_INSTANCE=".as_ptr());
    list.push(ptr::null());
    list
}

/// As `fork`, with this signal at the child's end.
fn fork(signal: c_int) -> libc::pid_t {
    let none = ptr::null::<u8>();
    kernel!(SYS_clone, signal, none, none, none, 0)
}

/// Whether a child has ended, and how: its exit code, or that a signal has ended it.
fn ended(child: libc::pid_t, how: c_int) -> Ended {
    let (mut status, none): (c_int, _) = (0, ptr::null::<u8>());
    let found: libc::pid_t = kernel!(SYS_wait4, child, &raw mut status, how, none);
    match found {
        _ if found == child && libc::WIFEXITED(status) => Ended::Yes(libc::WEXITSTATUS(status)),
        _ if found == child => Ended::Yes(KILLED),
        0.. => Ended::No,
        _ if errno() == libc::EINTR => Ended::No,
        _ => Ended::Unknown,
    }
}

enum Ended {
    Yes(c_int),
    No,
    Unknown,
}

/// Runs a program, and waits for it; its exit code. A process between has no signal at its end, so
/// that neither handlers nor `wait` know it: who becomes another program has one again.
fn run(words: &[*const c_char], environment: &[*const c_char]) -> Option<c_int> {
    let child = fork(0);
    if child == 0 {
        stand_between(words, environment);
    }
    if child < 0 {
        return None;
    }
    loop {
        match ended(child, libc::__WALL | libc::WNOHANG) {
            Ended::Yes(code) => return Some(code),
            Ended::No => pause(),
            Ended::Unknown => return None,
        }
    }
}

/// The child: waits for one of its own, and ends as that.
fn stand_between(words: &[*const c_char], environment: &[*const c_char]) -> ! {
    let nothing: c_int = kernel!(SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR);
    for standard in [0, 1] {
        let _: c_int = kernel!(SYS_dup3, nothing, standard, 0);
    }
    let _: c_int = kernel!(SYS_close_range, 3u32, u32::MAX, 0u32);
    // What the program blocks and ignores is not meant for another.
    let usual = [0u64; 4];
    for signal in [libc::SIGCHLD, libc::SIGPIPE, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let before = ptr::null::<u64>();
        let _: c_int = kernel!(SYS_rt_sigaction, signal, usual.as_ptr(), before, size_of::<u64>());
    }
    let (to, mask, before) = (libc::SIG_SETMASK, usual.as_ptr(), ptr::null::<u64>());
    let _: c_int = kernel!(SYS_rt_sigprocmask, to, mask, before, size_of::<u64>());
    let child = fork(libc::SIGCHLD);
    if child == 0 {
        let _: c_int = kernel!(SYS_execve, words[0], words.as_ptr(), environment.as_ptr());
        exit(NOT_EXECUTED);
    }
    loop {
        match ended(child, 0) {
            Ended::Yes(code) => exit(code),
            Ended::No => {}
            Ended::Unknown => exit(KILLED),
        }
    }
}

fn exit(code: c_int) -> ! {
    loop {
        let _: c_int = kernel!(SYS_exit_group, code);
    }
}
