//! The ticket of a run that spreads: with it a process of this user on another machine reaches the
//! run's launcher. A file that only the user can read, in the staging directory of the permanent
//! directory, which all machines see.
//!
//! Invariants: it is good for one run, as long as that lets servers in; its secret is proven and
//! never sent, and is neither in an environment nor among arguments. What a killed launcher leaves
//! of it goes with the instance. Not here: who asks for it (`join`), and who answers (`door`).

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use terral_network::tcp::Ticket as Secret;

use crate::staging;

/// Longest one.
const BYTES_MAX: u64 = 16 << 10;
/// A server of files may say so long that what another machine has made there is not there.
const SEEN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// What a machine needs to come.
#[derive(Serialize, Deserialize)]
pub struct Ticket {
    /// Where the launcher may be reached.
    pub addresses: Vec<SocketAddr>,
    secret: [u8; 32],
}

impl Ticket {
    /// A new one, for who listens there.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(addresses: Vec<SocketAddr>) -> Result<Ticket> {
        Ok(Ticket { addresses, secret: Secret::new()?.0 })
    }

    /// What both sides prove to have.
    pub fn secret(&self) -> Secret {
        Secret(self.secret)
    }

    /// Leaves it in the staging directory of this permanent directory, as one of this instance's
    /// files. Where that is.
    ///
    /// # Errors
    /// If it cannot be made there.
    pub fn leave(&self, directory: &Path, instance: u128) -> Result<PathBuf> {
        let mut failed = None;
        for home in staging::homes(directory) {
            // No version of a file has this number.
            let path = home.join(format!("{instance:032x}-0"));
            match self.write(&home, &path) {
                Ok(()) => return Ok(path),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| anyhow::anyhow!("{}: no .terral", directory.display())))
    }

    fn write(&self, home: &Path, path: &Path) -> Result<()> {
        let shown = || path.display().to_string();
        let found = fs::symlink_metadata(home).with_context(|| home.display().to_string())?;
        let mut how = File::options();
        let how = how.write(true).create_new(true).mode(0o600);
        let mut file = how.open(path).with_context(shown)?;
        // A server of files may take us for somebody else; but for the same one each time.
        let made = file.metadata().with_context(shown)?;
        let ours = made.uid() == found.uid() && found.is_dir() && found.mode() & 0o022 == 0;
        let written = if !ours {
            Err(anyhow::anyhow!("not in a directory of yours alone"))
        } else if made.mode() & 0o077 != 0 {
            Err(anyhow::anyhow!("this file system cannot keep others from reading it (0600)"))
        } else {
            serde_json::to_writer(&file, self).map_err(anyhow::Error::from)
        };
        let written = written.and_then(|()| Ok(file.flush().and_then(|()| file.sync_all())?));
        written.with_context(shown).inspect_err(|_| drop(fs::remove_file(path)))
    }

    /// The one at this path.
    ///
    /// # Errors
    /// If there is none, or somebody else might have read it.
    pub fn read(path: &Path) -> Result<Ticket> {
        let shown = path.display();
        let begin = Instant::now();
        let file = loop {
            let flags = OFlags::NOFOLLOW.bits() as i32;
            match File::options().read(true).custom_flags(flags).open(path) {
                Err(error) if error.kind() == ErrorKind::NotFound && begin.elapsed() < SEEN => {
                    std::thread::sleep(POLL);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                    "{shown} is not there: the run is over, or this machine does not see the \
                     permanent directory, which must be at the same path on all machines"
                ),
                opened => break opened.with_context(|| shown.to_string())?,
            }
        };
        let mode = file.metadata().with_context(|| shown.to_string())?.mode();
        ensure!(mode & 0o077 == 0, "{shown}: not yours alone (0600): it is no ticket");
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.with_context(|| shown.to_string())?;
        serde_json::from_str(&text).ok().with_context(|| format!("{shown}: it is no ticket"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::Ticket;

    #[test]
    fn a_ticket_is_read_as_it_was_left_and_what_others_can_read_is_none() {
        let directory = tempfile::tempdir().expect("directory");
        let ticket = Ticket::new(vec![([10, 0, 0, 1], 7).into()]).expect("random bytes");
        assert!(ticket.leave(directory.path(), 5).is_err(), "nobody stages there");
        fs::create_dir(directory.path().join(".terral")).expect("makes");
        let path = ticket.leave(directory.path(), 5).expect("leaves");
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        let read = Ticket::read(&path).expect("reads");
        assert_eq!((read.addresses, read.secret), (ticket.addresses, ticket.secret));
        let why = || Ticket::read(&path).err().expect("is refused").to_string();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("sets");
        assert!(why().contains("not yours alone"), "{}", why());
        fs::write(&path, "{\"addresses\":[]}").expect("writes");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("sets");
        assert!(why().contains("it is no ticket"), "{}", why());
        fs::remove_file(&path).expect("removes");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("links");
        assert!(Ticket::read(&path).is_err());
    }
}
