//! How a user has a server of his own, where root serves all users of this machine (`terral serve
//! --users`): he knocks, and it is there.
//!
//! Invariant: only root is believed. Not here: who lets him in (`users`).

use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::report::{code, failure, note};
use crate::words::hear;

/// Where the doors are, by the names of instances.
pub const DOORS: &str = "/run/terral";
/// A server is there in this time, or not at all.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(5);
/// One that is started again is there in this time, or is asked for anew.
const COMING: Duration = Duration::from_secs(5);
/// Who is to come again does so after this.
const AGAIN: Duration = Duration::from_millis(50);

/// What is said to who knocks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// His server runs, or is about to again.
    Serves,
    /// It is being started, or was just now: he is to come again.
    Starting,
    /// It does not; this is why.
    Refused(String),
}

/// The door of an instance.
pub fn door_of(name: &str) -> PathBuf {
    Path::new(DOORS).join(name)
}

/// Whether root has put it there: who else may write where it is could take his place.
fn is_roots(path: &Path) -> bool {
    let above = std::fs::symlink_metadata(DOORS);
    let shut = above.is_ok_and(|found| found.uid() == 0 && found.mode() & 0o022 == 0);
    shut && std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() == 0)
}

/// Whether root serves all users by this name, and this one is not root.
pub fn is_open(name: &str) -> bool {
    !rustix::process::geteuid().is_root() && is_roots(&door_of(name))
}

/// Has this user's server of an instance run, if root serves all users by that name.
///
/// # Errors
/// If root's server does not have one run; says why.
pub fn come_in(instance: &Path, name: &str) -> Result<()> {
    if name.contains('/') || !is_open(name) {
        return Ok(());
    }
    let begin = Instant::now();
    if let Some(home) = instance.parent()
        && terral_client::is_his(home).is_err()
    {
        // Somebody else has put it there: root, who starts his server, puts it aside.
        return knocks(instance, name, begin);
    }
    if is_served(instance, begin) {
        greets(name);
        // Another one is in its place, perhaps.
        if is_served(instance, begin) {
            return Ok(());
        }
    }
    knocks(instance, name, begin)
}

/// Whether it is, and goes on.
fn is_served(instance: &Path, begin: Instant) -> bool {
    while terral_server::is_dying(instance) && begin.elapsed() < PATIENCE {
        std::thread::sleep(POLL);
    }
    terral_server::is_served(instance)
}

/// A server of his is there, which may have been started for others, as his account says he is:
/// root's hears that he has come, and has one run as he is. Without an answer he goes on after a
/// while.
fn greets(name: &str) {
    let begin = Instant::now();
    while begin.elapsed() < COMING {
        match knock(name, COMING) {
            // Too many are at the door.
            Ok(None | Some(Reply::Starting)) => std::thread::sleep(AGAIN),
            Ok(Some(Reply::Refused(why))) => return note(format_args!("{name}: {why}")),
            Ok(Some(Reply::Serves)) | Err(_) => return,
        }
    }
}

/// Knocks until it is there.
fn knocks(instance: &Path, name: &str, begin: Instant) -> Result<()> {
    let not_let_in = |why: &str| {
        failure(code::NOT_STARTED, format!("{name}: root's server has none run for you: {why}"))
    };
    let mut serves = false;
    while begin.elapsed() < PATIENCE {
        match knock(name, PATIENCE).map_err(|why| not_let_in(&why))? {
            // Too many are at the door.
            None | Some(Reply::Starting) => std::thread::sleep(AGAIN),
            Some(Reply::Refused(why)) => return Err(not_let_in(&why)),
            Some(Reply::Serves) => {
                // One that was killed is started again; or who does that is gone, too.
                serves = true;
                let since = Instant::now();
                while since.elapsed() < COMING {
                    if terral_server::is_served(instance) && !terral_server::is_dying(instance) {
                        note(format_args!("{name}: a server of your own runs, beside root's"));
                        return Ok(());
                    }
                    std::thread::sleep(POLL);
                }
            }
        }
    }
    Err(not_let_in(if serves { "it does not come up again" } else { "it does not come" }))
}

/// Asks for it; why nobody is there. None: he was not answered.
fn knock(name: &str, patience: Duration) -> std::result::Result<Option<Reply>, String> {
    let nobody = |_| "nobody is at the door: `terral serve --users` is gone".to_owned();
    let stream = UnixStream::connect(door_of(name)).map_err(nobody)?;
    stream.set_read_timeout(Some(patience)).map_err(|error| error.to_string())?;
    Ok(hear(&mut BufReader::new(stream)))
}
