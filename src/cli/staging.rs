//! What a run may leave though nothing is owed: its staging directory in the permanent directory,
//! and the directory of its instance, which the server removes. That it could not is said.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::report::{code, say};

/// What of ours is still there, and why; nothing if only others are at work there.
pub fn remains(directory: Option<&Path>, instance: &Path) -> Option<String> {
    let over = !instance.join("log").exists();
    let instance = || terral_server::remains(instance).filter(|_| over);
    directory.and_then(staged).or_else(instance)
}

/// The exit code of a run that owes nothing: COMMAND's, unless all is well but for what is left
/// where it does not belong, which is said.
pub fn code(directory: Option<&Path>, instance: &Path, command: u8) -> u8 {
    match remains(directory, instance) {
        Some(why) => {
            say(why);
            if command == 0 { code::FAILED } else { command }
        }
        None => command,
    }
}

/// Where the staging directory of a permanent directory may be.
pub fn homes(directory: &Path) -> [PathBuf; 2] {
    let user = rustix::process::geteuid().as_raw();
    [directory.join(".terral"), directory.join(format!(".terral-{user}"))]
}

fn staged(directory: &Path) -> Option<String> {
    let user = rustix::process::geteuid().as_raw();
    homes(directory).into_iter().find_map(|path| {
        let found = fs::symlink_metadata(&path).ok()?;
        if found.uid() != user {
            return None;
        }
        let shown = path.display();
        match fs::remove_dir(&path).map_err(|error| (error.kind(), error)) {
            Ok(()) | Err((ErrorKind::NotFound, _)) => None,
            Err((ErrorKind::DirectoryNotEmpty, _)) => {
                let foreign = foreign(&path)?;
                Some(format!("{shown} stays: it has {foreign} in it, which is not Terral's"))
            }
            // Who serves all users has made it for this one, and takes it away.
            Err((ErrorKind::PermissionDenied, _)) if is_others(directory, user) => None,
            Err((_, error)) => Some(format!("{shown} could not be removed: {error}")),
        }
    })
}

fn is_others(directory: &Path, user: u32) -> bool {
    fs::metadata(directory).is_ok_and(|found| found.uid() != user)
}

/// The first name in it that is not of a version on its way.
fn foreign(staging: &Path) -> Option<String> {
    let names = fs::read_dir(staging).ok()?.flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| !is_version(name))
}

/// 32 hexadecimal digits, a number, and for a note of where its copy is, `.at`.
fn is_version(name: &str) -> bool {
    let name = name.strip_suffix(".at").unwrap_or(name);
    name.split_once('-').is_some_and(|(instance, number)| {
        let digits =
            |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
        instance.len() == 32 && digits(instance, 16) && digits(number, 10)
    })
}

#[cfg(test)]
mod tests {
    use super::staged;

    #[test]
    fn only_what_is_nobodys_work_is_said() {
        let home = tempfile::tempdir().expect("directory");
        let staging = home.path().join(".terral");
        assert_eq!(staged(home.path()), None);
        std::fs::create_dir(&staging).expect("makes");
        let other = format!("{:032x}-17", 5);
        std::fs::write(staging.join(&other), "").expect("writes");
        std::fs::write(staging.join(format!("{other}.at")), "").expect("writes");
        assert_eq!(staged(home.path()), None);
        std::fs::write(staging.join("mine"), "").expect("writes");
        assert!(staged(home.path()).is_some_and(|why| why.contains("mine")));
        std::fs::remove_dir_all(&staging).expect("removes");
        std::fs::write(&staging, "").expect("writes");
        assert!(staged(home.path()).is_some());
    }
}
