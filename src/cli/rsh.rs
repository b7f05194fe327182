//! `terral` as the remote shell of MPICH's `mpiexec`, called by a link of this name in the instance
//! (`launchers`): ssh, with the proxy that starts MPICH's programs in this run's environment.
//!
//! MPICH gives its environment to programs, but its proxy enters their directory, and looks for
//! them, before: in /terral neither is there without the library. Not here: when it is called.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::report::{code, say};

/// What the link is called.
pub const NAME: &str = "rsh";
const SHELL: &str = "ssh";
/// What MPICH has started.
const PROXY: &[u8] = b"hydra_pmi_proxy";
/// What that needs to be served.
const VARIABLES: [&str; 4] = ["LD_PRELOAD", "TERRAL_INSTANCE", "TERRAL_PREFIX", "TERRAL_SPREAD"];

/// Whether it was called so.
pub fn is_meant() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(NAME)))
}

/// Whether a shell leaves a byte as it is, wherever it is.
pub fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-:,+=@%".contains(&byte)
}

/// The words with the environment before the proxy; as they are if it would not survive shells.
fn served(words: Vec<OsString>, environment: &[(&str, OsString)]) -> Vec<OsString> {
    let holds = |word: &OsString| word.as_bytes().windows(PROXY.len()).any(|part| part == PROXY);
    let plain = environment.iter().all(|(_, value)| value.as_bytes().iter().all(|b| is_plain(*b)));
    let Some(at) = words.iter().position(holds).filter(|_| plain) else { return words };
    let mut all = words;
    let set = environment.iter().map(|(name, value)| {
        let mut word = OsString::from(format!("{name}="));
        word.push(value);
        word
    });
    all.splice(at..at, std::iter::once("env".into()).chain(set).collect::<Vec<_>>());
    all
}

/// Becomes ssh.
pub fn main() -> u8 {
    let found = VARIABLES.map(|name| Some((name, std::env::var_os(name)?)));
    let environment: Vec<_> = found.into_iter().flatten().collect();
    let words = served(std::env::args_os().skip(1).collect(), &environment);
    let error = Command::new(SHELL).args(words).exec();
    say(format_args!("{SHELL}: {error}"));
    code::NOT_FOUND
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::served;

    fn of(words: &[&str], library: &str) -> Vec<OsString> {
        let environment = [("LD_PRELOAD", OsString::from(library)), ("TERRAL_PREFIX", "/t".into())];
        served(words.iter().map(Into::into).collect(), &environment)
    }

    #[test]
    fn the_proxy_alone_is_started_with_the_environment_if_shells_leave_it_as_it_is() {
        let words = ["-x", "h1", "\"/usr/bin/hydra_pmi_proxy\"", "--proxy-id", "1"];
        let before = ["-x", "h1", "env", "LD_PRELOAD=/a:/b.so", "TERRAL_PREFIX=/t"];
        assert_eq!(of(&words, "/a:/b.so"), [&before[..], &words[2..]].concat());
        assert_eq!(of(&words, "/a b.so"), words);
        assert_eq!(of(&["h1", "hostname"], "/a.so"), ["h1", "hostname"]);
    }
}
