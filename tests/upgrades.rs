//! The memory that a killed server of an earlier version left, and of this one: this version takes
//! it over, or brings it, and nothing of it is lost.
//!
//! `tests/golden/instance-N.bin` is an instance of version N as its own program left it, made by
//! `UPDATE_GOLDEN=1 cargo test -p terral-tests --test upgrades`; see `instance_image`.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod instance_image;
mod launched;
mod left;
mod random;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use descendants::ended;
use instance_image::Image;
use launched::{said, terral};
use left::{Home, directory_of, is_left};

/// What the program did before it and its server were killed: nothing of it is in the permanent
/// directory yet.
const WORK: &str = "
    cd $TERRAL_DIR
    mv old new
    rmdir gone
    mv link moved
    mkdir -p made/deep
    echo small > made/deep/small
    ln made/deep/small hard
    ln -s made/deep/small soft
    mkfifo -m 620 pipe
    echo more > appended; echo and more >> appended
    head -c 3000000 /dev/zero | tr '\\0' x > made/large
    printf middle | dd of=made/large bs=1 seek=1500000 conv=notrunc 2> /dev/null
    : > empty; chmod 640 empty; touch -d @1000000000 empty
    echo nobody will miss this > removed; rm removed
    echo too long > cut; truncate -s 3 cut
    setfattr -n user.a -v value made/deep/small
    exec 3> open; echo half >&3
    [ -d new/below ]; [ ! -e old ]; [ ! -e gone ]";

/// What must be there, as `ls` of the shell has it.
const THERE: &str = "
    cd $TERRAL_DIR
    find . ! -name '.terral*' | sort
    cat made/deep/small hard soft appended open cut; echo
    stat -c '%n %s %a %h %Y' empty
    stat -c '%n %a' pipe
    stat -c '%h' hard
    cksum < made/large
    readlink soft moved
    getfattr -n user.a --only-values hard; echo";

const SAYS: &str = "\
.
./appended
./cut
./empty
./hard
./made
./made/deep
./made/deep/small
./made/large
./moved
./new
./new/below
./open
./pipe
./soft
small
small
small
more
and more
half
too
empty 0 640 1 1000000000
pipe 620
2
CKSUM 3000000
made/deep/small
nowhere
value
";

/// `cksum` of the large file.
const CKSUM: &str = "3064578966";

fn home() -> Home {
    let home = Home::new();
    let to = home.to();
    fs::create_dir_all(to.join("old/below")).expect("makes");
    fs::create_dir(to.join("gone")).expect("makes");
    symlink("nowhere", to.join("link")).expect("makes");
    home
}

fn golden(version: u16) -> PathBuf {
    let name = format!("instance-{version}.bin");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// Every version of which an instance is stored, this one last.
fn versions() -> Vec<u16> {
    (4..=terral_server::FORMAT).collect()
}

/// Lays out a stored instance for a directory as it was then; its name.
fn laid_out(version: u16, home: &Home, what: &str) -> String {
    let name = format!("golden-{version}-{what}-{}", std::process::id());
    let directory = directory_of(&name);
    let user = directory.parent().expect("of the user");
    if !user.exists() {
        fs::create_dir(user).expect("makes");
        fs::set_permissions(user, fs::Permissions::from_mode(0o700)).expect("sets");
    }
    Image::read(&golden(version)).lay_out(&directory, &home.to());
    name
}

/// What the shell says of the files, in this place.
fn shown(command: std::process::Child) -> String {
    let output = ended(command);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn in_directory(to: &Path) -> String {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", THERE]).env("TERRAL_DIR", to);
    let command = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    shown(command.spawn().expect("starts"))
}

fn expected() -> String {
    SAYS.replace("CKSUM", CKSUM)
}

#[test]
fn memory_of_this_version_is_stored() {
    let path = golden(terral_server::FORMAT);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let home = home();
        let left = home.leave(&["--memory", "128M", "--ready", "0"], WORK);
        Image::of(&directory_of(&left)).write(&path);
        let recover = terral().args(["recover", &left]).spawn().expect("starts");
        assert!(ended(recover).status.success());
        assert_eq!(in_directory(&home.to()), expected());
    }
    let stored = fs::metadata(&path).expect("one is stored: see above");
    assert!(stored.size() < 300 << 10, "{} bytes", stored.size());
}

#[test]
fn a_run_takes_over_what_a_server_of_any_version_left() {
    for version in versions() {
        let home = home();
        let left = laid_out(version, &home, "run");
        let mut command = terral();
        command.args(["run", "--json", "--to"]).arg(home.to()).args(["--", "sh", "-c", THERE]);
        let text = shown(command.spawn().expect("starts"));
        let (text, summary) = text.trim_end().rsplit_once('\n').expect("a summary");
        assert_eq!(format!("{text}\n"), expected(), "version {version}");
        let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
        let earlier = &summary["earlier"][0];
        assert_eq!(earlier["instance"], *left, "{summary}");
        assert_eq!(earlier["taken_over"], true, "{summary}");
        assert!(earlier["owed"].as_u64() > Some(10), "{summary}");
        assert_eq!(in_directory(&home.to()), expected(), "version {version}");
        assert!(!is_left(&left));
    }
}

#[test]
fn recover_brings_what_a_server_of_any_version_left() {
    for version in versions() {
        let home = home();
        let left = laid_out(version, &home, "recover");
        let output = ended(terral().args(["recover", &left]).spawn().expect("starts"));
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(in_directory(&home.to()), expected(), "version {version}");
        assert!(!is_left(&left));
    }
}
