//! The command line that starts `terral host` on another machine, for whatever shell is the user's
//! there: it executes the `terral` at this one's path if that is the same build; else what an
//! earlier run has sent; else it asks for both files on standard output, takes them from standard
//! input, and executes what came.
//!
//! Invariants: nothing is executed in a directory in which somebody else can have put it; nothing
//! follows on standard input before what was asked for has been taken, so that no program there
//! can read too far; in the script there is neither `'`, `!`, a line's end nor a backslash but
//! before `"`, since csh and fish read those in quotes, too. Not here: what becomes of what came
//! (`ahead`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::ahead::ELSEWHERE;
use crate::instances;
use crate::rsh::is_plain;
use crate::server::LIBRARY;
use crate::supply::Supply;

/// In pieces, which become one line. `same` runs the first with nothing to read: an old one would.
const SCRIPT: [&str; 21] = [
    // Program and library here, all builds, this one, what is not whole, processor, user.
    "p=$1 l=$2 h=$3 i=$4 t=$3/new-$5 m=$6 u=$7 f=$8; shift 8",
    "same() { \"$1\" same \"$i\" \"$2\" </dev/null >/dev/null 2>&1; }",
    "same \"$p\" \"$l\" && exec \"$p\" \"$@\" --library \"$l\"",
    "no() { echo \"{\\\"failed\\\":\\\"$*\\\"}\"; exit 1; }",
    "[ \"$(id -u)\" = \"$u\" ] || no \"your user id is $(id -u) there, and must be $u as here\"",
    "[ \"$(uname -m)\" = \"$m\" ] || no \"a machine of kind $(uname -m), and this one is $m\"",
    "(umask 077; mkdir \"$h\") 2>/dev/null; [ -d \"$h\" ] || no \"$h cannot be made there: $f\"",
    // Mode, links, user, group.
    "of() { set -- $(ls -ldn \"$1\" 2>/dev/null); echo \"$1 $3\"; }",
    "case $(of \"$h\") in drwx------*\" $u\") ;; *) no \"$h there: not a directory of yours alone \
     (0700): remove it, or $f\";; esac",
    "case $(of \"${h%/*}/.\") in d????-??-*\" 0\"|d????-??-*\" $u\"|d????????[tT]*\" 0\"|\
     d????????[tT]*\" $u\") ;; *) no \"${h%/*} there: what is in it can be replaced: $f\";; esac",
    "same \"$h/$i/terral\" \"$h/$i/LIBRARY\" && exec \"$h/$i/terral\" \"$@\" --library \
     \"$h/$i/LIBRARY\"",
    "mkdir \"$t\" 2>/dev/null || no \"$h there: nothing can be made in it (full?): $f\"",
    "trap \"rm -rf $t\" EXIT; trap \"exit 1\" HUP INT TERM PIPE",
    "{ echo : >\"$t/try\" && chmod 700 \"$t/try\"; } 2>/dev/null || no \"$h there is full: $f\"",
    "\"$t/try\" 2>/dev/null || no \"$h there: programs cannot be executed in it (noexec?): $f\"",
    "take() { echo \"{\\\"wants\\\":\\\"$1\\\"}\"; read n s || exit 1; \
     head -c \"$n\" 2>/dev/null >\"$2\"; k=$(($(wc -c <\"$2\"))); \
     [ $k -eq \"$n\" ] || no \"$h there: full after $k of $n bytes of terral: $f\"; }",
    "take program \"$t/terral\"; a=$s; take library \"$t/LIBRARY\"; chmod 700 \"$t/terral\"",
    "w=$(\"$t/terral\" --version 2>&1 </dev/null) || no \"terral does not run there: $(echo \"$w\" \
     | tail -n 1 | tr -cd \"[:alnum:] ._/:()-\"): build it on the machine of the oldest system\"",
    "rm \"$t/try\"",
    "exec \"$t/terral\" arrived \"$t\" \"$h\" \"$i\" \"$a\" \"$s\" \"$@\"",
    "exit 1",
];

/// One word of a command line that a shell reads.
fn quoted(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(|byte| is_plain(*byte)) {
        return bytes.to_vec();
    }
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\'').collect();
    [b"'", parts.join(&b"'\\''"[..]).as_slice(), b"'"].concat()
}

/// These words as one command line.
pub fn command_line(words: &[OsString]) -> OsString {
    let words: Vec<Vec<u8>> = words.iter().map(|word| quoted(word)).collect();
    OsString::from_vec(words.join(&b' '))
}

fn script() -> String {
    SCRIPT.join("; ").replace("LIBRARY", LIBRARY)
}

/// The command line that has `terral` there run with these words.
pub fn line(supply: &Supply, words: &[OsString]) -> OsString {
    let (build, ahead) = (&supply.build, &supply.ahead);
    let user = rustix::process::geteuid().as_raw().to_string();
    let kind = rustix::system::uname().machine().to_string_lossy().into_owned();
    let mut all: Vec<OsString> = ["sh", "-c"].map(Into::into).into();
    all.extend([script().into(), "sh".into()]);
    all.extend([build.program.clone().into(), build.library.clone().into()]);
    all.extend([ahead.home.clone().into(), ahead.id.clone().into()]);
    all.extend([instances::fresh_name().into(), kind.into(), user.into(), ELSEWHERE.into()]);
    all.extend_from_slice(words);
    command_line(&all)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::{quoted, script};

    #[test]
    fn a_word_stays_one_for_a_shell() {
        assert_eq!(quoted("/usr/bin/terral".as_ref()), b"/usr/bin/terral");
        let words: [&[u8]; 7] = [b"", b"a b", b"it's", b"$HOME", b"a;b", b"*", b"\xff'\xfe"];
        for word in words {
            let word = OsString::from_vec(word.to_vec());
            let line = [b"printf %s ".to_vec(), quoted(&word)].concat();
            let mut shell = std::process::Command::new("sh");
            let said = shell.arg("-c").arg(OsString::from_vec(line)).output();
            assert_eq!(said.expect("a shell").stdout, word.into_vec());
        }
    }

    #[test]
    fn the_script_is_one_word_for_every_shell() {
        let script = script();
        let strange = |letter: char| "'!".contains(letter) || letter.is_control();
        assert!(!script.contains(strange), "{script}");
        assert!(!script.replace("\\\"", "").contains('\\'), "{script}");
        let parsed = std::process::Command::new("sh").args(["-n", "-c", &script]).output();
        let parsed = parsed.expect("a shell");
        assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    }
}
