//! Root is killed at each step, and another one comes.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Barrier;

use tempfile::TempDir;
use terral_format::ErrorKind;

use super::super::Source;
use super::super::beneath::Root;
use super::super::calls::without;
use super::super::dir::Dir;
use super::super::given::{home_in, stage_in};
use super::super::sign::name_of;
use super::{BEGUN, Owner, is_empty};

const OWNER: Owner = (65534, 65533);
const STAGED: &str = ".terral-65534";

fn house() -> Option<(TempDir, Root)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives something to others");
        return None;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    set(home.path(), 0, 0o755);
    let root = root(home.path());
    Some((home, root))
}

fn root(path: &Path) -> Root {
    Root::of_one_by(path, without::FLAGS).expect("it is root's")
}

fn set(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), Some(owner)).expect("root may");
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("root may");
}

fn is(path: impl AsRef<Path>) -> (u32, u32) {
    let found = std::fs::symlink_metadata(path).expect("there");
    (found.uid(), found.mode() & 0o7777)
}

/// Makes what a root leaves that is killed after so many steps.
fn killed(path: &Path, steps: u32) {
    if steps > 0 {
        std::fs::create_dir(path).expect("made");
        set(path, if steps > 1 { OWNER.0 } else { 0 }, BEGUN);
    }
    if steps > 2 {
        set(path, OWNER.0, 0o700);
    }
}

#[test]
fn a_home_over_which_root_was_killed_is_finished_by_who_comes_next() {
    for steps in 0..=3 {
        let Some((home, root)) = house() else { return };
        let path = home.path().join("someone");
        killed(&path, steps);
        let dir = Dir::of_one(self::root(home.path()));
        let seen = dir.stat(b"someone").map(|found| found.attributes.uid);
        let listed = dir.list(b"").expect("root's").len();
        match steps {
            0 | 1 => {
                // Else it is root's to whoever looks.
                assert_eq!(seen.map_err(|error| error.kind), Err(ErrorKind::NotFound));
                assert_eq!(listed, 0);
            }
            _ => assert_eq!((seen, listed), (Ok(OWNER.0), 1)),
        }
        let before = path.exists().then(|| std::fs::metadata(&path).expect("there").ino());
        for fresh in 1..3 {
            home_in(&root, OWNER, "someone", fresh).expect("root may");
            assert_eq!(is(&path), (OWNER.0, 0o700), "after {steps}");
        }
        let now = std::fs::metadata(&path).expect("there");
        assert_eq!(
            (now.gid() == OWNER.1, before.is_none_or(|is| is == now.ino())),
            (steps < 2, true)
        );
        assert_eq!(std::fs::read_dir(home.path().join(".terral")).expect("there").count(), 0);
    }
}

#[test]
fn a_staging_directory_over_which_root_was_killed_is_finished_by_who_comes_next() {
    for (steps, signed) in [(0, false), (1, false), (1, true), (2, true), (3, true)] {
        let Some((home, root)) = house() else { return };
        let path = home.path().join(STAGED);
        killed(&path, steps);
        let sign = path.join(name_of(7));
        if signed {
            std::fs::write(&sign, "").expect("root may");
        }
        for fresh in 1..3 {
            stage_in(&root, OWNER, 7, fresh).expect("root may");
            assert_eq!(is(&path), (OWNER.0, 0o700), "after {steps}");
            assert!(sign.exists(), "after {steps}");
        }
        let dir = Dir::of_one(self::root(home.path()));
        assert!(dir.list(b"").expect("root's").is_empty());
    }
}

#[test]
fn what_has_the_name_and_is_no_such_directory_stays() {
    let Some((home, root)) = house() else { return };
    let path = |name: &str| home.path().join(name);
    for (name, owner, mode) in
        [("roots", 0, 0o700), ("full", 0, BEGUN), ("anothers", 1, BEGUN), ("his", OWNER.0, 0o755)]
    {
        std::fs::create_dir(path(name)).expect("made");
        if name == "full" {
            std::fs::write(path(name).join("f"), "").expect("written");
        }
        set(&path(name), owner, mode);
    }
    std::fs::write(path("file"), "root's").expect("written");
    set(&path("file"), 0, BEGUN);
    std::os::unix::fs::symlink("full", path("link")).expect("made");
    for name in ["roots", "full", "anothers", "his", "file", "link"] {
        let before = is(path(name));
        home_in(&root, OWNER, name, 1).expect("it stays");
        assert_eq!(is(path(name)), before, "{name}");
    }
    std::fs::create_dir(path(STAGED)).expect("made");
    stage_in(&root, OWNER, 7, 1).expect_err("it is root's");
    // What is full is shown: it is none that is being given.
    let dir = Dir::of_one(self::root(home.path()));
    assert_eq!(dir.stat(b"full").expect("root's").attributes.uid, 0);
}

#[test]
fn what_cannot_be_listed_does_not_count_as_empty() {
    let home = tempfile::tempdir().expect("temporary directory");
    let open = |path: &Path| std::fs::File::open(path).expect("ours");
    assert_eq!(is_empty(&open(home.path())), Ok(true));
    let path = home.path().join("f");
    std::fs::write(&path, "").expect("written");
    assert_eq!(is_empty(&open(home.path())), Ok(false));
    assert_eq!(is_empty(&open(&path)), Err(rustix::io::Errno::NOTDIR));
}

#[test]
fn roots_that_come_at_once_give_him_one_which_is_his_bits_and_all() {
    let Some((home, _)) = house() else { return };
    for turn in 0..100u64 {
        let (barrier, name) = (Barrier::new(4), format!("home-{turn}"));
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (path, barrier, name) = (home.path(), &barrier, &name);
                scope.spawn(move || {
                    let root = root(path);
                    barrier.wait();
                    home_in(&root, OWNER, name, turn << 8 | number).expect("root may");
                    stage_in(&root, OWNER, u128::from(turn), turn << 8 | number).expect("root may");
                });
            }
        });
        assert_eq!(is(home.path().join(name)), (OWNER.0, 0o700));
        let staged = home.path().join(STAGED);
        assert_eq!(is(&staged), (OWNER.0, 0o700));
        assert!(staged.join(name_of(u128::from(turn))).exists());
        std::fs::remove_dir_all(staged).expect("there");
    }
    assert_eq!(std::fs::read_dir(home.path().join(".terral")).expect("there").count(), 0);
}
