//! Whose memory an instance is: anybody may make a directory in `/dev/shm`, under another user's
//! number, too.
//!
//! Invariant: what is there by a user's number, and is not his alone, is served by nobody. Not
//! here: who makes it (`cli`), and what the server knows of who comes (`server`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use terral_format::{Error, ErrorKind, Result};

/// What directories of users begin with, before their numbers.
const HOMES: &str = "/dev/shm/terral-";
/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// Whether what is in this directory of somebody's instances is his.
///
/// # Errors
/// [`ErrorKind::Denied`] if somebody else made it, or may write there.
pub fn is_his(home: &Path) -> Result<()> {
    let number = home.to_str().and_then(|home| home.strip_prefix(HOMES));
    let Some(user) = number.and_then(|number| number.parse::<u32>().ok()) else { return Ok(()) };
    // What is not there nobody can use.
    let Ok(found) = std::fs::symlink_metadata(home) else { return Ok(()) };
    if found.is_dir() && found.uid() == user && found.mode() & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let owner = found.uid();
    let context = format!(
        "{}: not a directory of user {user} alone, but of user {owner}: nothing there is used",
        home.display()
    );
    Err(Error::new(ErrorKind::Denied, context))
}

/// The same of the directory where an instance is.
///
/// # Errors
/// Those of [`is_his`].
pub(crate) fn instance_is_his(instance: &Path) -> Result<()> {
    instance.parent().map_or(Ok(()), is_his)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{HOMES, instance_is_his};
    use crate::Client;

    #[test]
    fn what_somebody_else_made_under_a_users_number_is_not_used() {
        let home = format!("{HOMES}4000000001");
        let instance = Path::new(&home).join("default");
        fs::create_dir_all(&instance).expect("anybody may make one");
        let refused = instance_is_his(&instance);
        let met = Client::connect(&instance).map(drop);
        fs::remove_dir_all(&home).expect("ours");
        let said = refused.expect_err("it is ours").to_string();
        assert!(said.contains("nothing there is used"), "{said}");
        let said = met.expect_err("nobody is asked there").to_string();
        assert!(said.contains("nothing there is used"), "{said}");
        assert!(instance_is_his(&instance).is_ok(), "nothing is there");
        assert!(instance_is_his(Path::new("/elsewhere/default")).is_ok());
    }
}
