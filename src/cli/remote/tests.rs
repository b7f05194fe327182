//! What a machine says is heard without waiting for ever, and one that cannot be begun leaves no
//! process.

use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::{LAST, Machine, SAID_MOST, taken};
use crate::supply::Supply;
use crate::words::Report;

#[test]
fn who_says_something_all_the_time_keeps_nobody_hearing() {
    let (says, said) = mpsc::sync_channel(SAID_MOST);
    let says_on = std::thread::spawn(move || while says.send(Report::Ahead).is_ok() {});
    for gone in [false, true] {
        let begin = Instant::now();
        let (all, ended) = taken(&said, gone);
        assert!(all.len() <= SAID_MOST + 1 && !ended, "{}", all.len());
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
    drop(said);
    says_on.join().expect("ends");
}

#[test]
fn who_is_gone_is_not_waited_for_while_others_have_its_pipe() {
    let (says, said) = mpsc::sync_channel(SAID_MOST);
    says.send(Report::Serves).expect("there is room");
    let begin = Instant::now();
    let (all, ended) = taken(&said, true);
    assert_eq!((all.len(), ended), (1, false));
    assert!((LAST..LAST * 20).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    // What it has said before is heard, and then that nothing more comes.
    says.send(Report::Ahead).expect("there is room");
    drop(says);
    let (all, ended) = taken(&said, true);
    assert_eq!((all.len(), ended), (1, true));
}

#[test]
fn what_cannot_be_begun_leaves_no_process() {
    let own = std::env::current_exe().expect("this program");
    let supply = Arc::new(Supply::new(&own).expect("it is read"));
    let children = || {
        let path =
            format!("/proc/self/task/{}/children", rustix::thread::gettid().as_raw_nonzero());
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let before = children();
    let mut command = Command::new("sleep");
    command.arg("60");
    let begun = Machine::begun_by(command, ("host", "name", true), &supply, "no invitation".into());
    assert!(begun.is_err());
    assert_eq!(children(), before);
}
