//! What is in a permanent directory, and when all is.
#![allow(dead_code)] // Each test file uses its part.

use std::path::Path;
use std::time::{Duration, Instant};

use terral_client::{Client, Drain};

/// Nothing takes so long to arrive.
const LONG: Duration = Duration::from_secs(60);

/// Has all brought, and waits until it is there.
pub fn settle(client: &Client) -> Drain {
    client.flush().expect("flushes");
    let begin = Instant::now();
    loop {
        let drain = client.status().expect("status").drain;
        if drain.settled {
            return drain;
        }
        assert!(begin.elapsed() < LONG, "the drain stands still: {drain:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Names in a directory, in order, but for Terral's own.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("reads").file_name();
    let mut names: Vec<_> = entries.map(name).filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name != ".terral");
    names.sort();
    names
}
