//! Processes that nobody tells what to do any more, and in whose place another one goes on.
//!
//! Invariant: a number that was written down may be another process's by now: what is ended is
//! known by its command line. Not here: who is in charge of an instance (`claim`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process has a command line after so many milliseconds, or has none.
const BEGINS: u32 = 100;

/// Whether the command line of a process has these words, in this order.
fn has_words(pid: u32, words: &[&OsStr]) -> bool {
    let path = Path::new("/proc").join(pid.to_string()).join("cmdline");
    let read = || std::fs::read(&path).unwrap_or_default();
    let mut line = read();
    // One that has just begun to run a program has none for a moment (execve(2)).
    for _ in 0..BEGINS {
        if !line.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        line = read();
    }
    let mut said = line.split(|byte| *byte == 0);
    words.iter().all(|word| said.any(|is| is == word.as_bytes()))
}

/// Ends the process that has this number, if it has these words on its command line. Whether it is
/// that.
pub fn kill(pid: Option<u32>, words: &[&OsStr]) -> bool {
    let Some(pid) = pid else { return false };
    let handle = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It is the same process from here on, or gone.
    let handle = handle.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let handle = handle.filter(|_| has_words(pid, words));
    handle.is_some_and(|handle| pidfd_send_signal(&handle, Signal::KILL).is_ok())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::kill;

    #[test]
    fn only_what_has_the_words_is_ended() {
        let mut sleeps = Command::new("sleep").arg("60").spawn().expect("starts");
        let pid = Some(sleeps.id());
        for words in [&["60", "sleep"][..], &["sleep", "6"], &["serve"]] {
            let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
            assert!(!kill(pid, &words), "{words:?}");
        }
        assert!(sleeps.try_wait().expect("a child").is_none());
        assert!(!kill(None, &[]));
        assert!(kill(pid, &["sleep".as_ref(), "60".as_ref()]));
        sleeps.wait().expect("ends");
    }
}
