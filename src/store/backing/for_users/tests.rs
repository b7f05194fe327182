//! What keeps several processes of root's, on one permanent directory, out of each other's way.

use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, RenameFlags};
use rustix::io::Errno;
use terral_format::{ErrorKind, Result};

use super::super::given::stage_for;
use super::super::sign::name_of;
use super::{LEFT, check, check_for_users};

/// On a file system that refuses these flags: the kernel looks whether something is there.
fn on_one_without(path: &Path, refused: RenameFlags) -> Result<()> {
    check(path, 1, LEFT, |home, from, to, how| {
        let there = rustix::fs::accessat(home, to, Access::EXISTS, AtFlags::empty());
        match how {
            RenameFlags::NOREPLACE if there.is_ok() => Err(Errno::EXIST),
            how if refused.contains(how) => Err(Errno::INVAL),
            how => rustix::fs::renameat_with(home, from, home, to, how),
        }
    })
}

fn check_left(path: &Path, fresh: u64, left: Duration) -> Result<()> {
    check(path, fresh, left, |home, from, to, how| {
        rustix::fs::renameat_with(home, from, home, to, how)
    })
}

fn staged(path: &Path) -> Vec<String> {
    let all = std::fs::read_dir(path.join(".terral")).expect("there");
    all.map(|entry| entry.expect("there").file_name().into_string().expect("ours")).collect()
}

#[test]
fn a_file_system_that_gives_names_only_over_others_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    on_one_without(home.path(), RenameFlags::empty()).expect("it does all");
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    for refused in [RenameFlags::NOREPLACE, RenameFlags::EXCHANGE, both] {
        let error = on_one_without(home.path(), refused).expect_err("it does not");
        assert_eq!(error.kind, ErrorKind::Unsupported, "{refused:?}");
    }
    assert!(staged(home.path()).is_empty());
}

#[test]
fn who_starts_takes_away_what_was_left_and_nothing_that_another_is_making() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    check_for_users(home.path(), 1).expect("a file system of this machine");
    let making = ["for-65534.00", "for-one.00", "for-other.00"];
    for name in making {
        std::fs::create_dir(home.path().join(".terral").join(name)).expect("made");
    }
    std::fs::write(home.path().join(".terral/for-one.00/sign"), "").expect("written");
    check_for_users(home.path(), 2).expect("each has names of its own");
    let mut all = staged(home.path());
    all.sort();
    assert_eq!(all, making, "somebody is making them");
    // Root was killed over them.
    std::thread::sleep(Duration::from_millis(50));
    let none = Duration::from_millis(20);
    check_left(home.path(), 3, none).expect("a file system of this machine");
    assert!(staged(home.path()).is_empty());
}

#[test]
fn those_that_start_at_once_keep_nobody_from_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    std::thread::scope(|scope| {
        for root in 0..8u64 {
            let path = home.path();
            scope.spawn(move || {
                for turn in 0..50 {
                    check_for_users(path, root << 32 | turn).expect("it may");
                }
            });
        }
    });
}

/// Who gives a user something is as slow as that: another process of root's takes it for left.
#[test]
fn what_is_taken_away_while_it_is_given_is_given_all_the_same_and_whole() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    let (path, done) = (home.path(), std::sync::atomic::AtomicBool::new(false));
    let owner = (65534, 65534);
    std::thread::scope(|scope| {
        for root in 0..3u64 {
            let done = &done;
            scope.spawn(move || {
                let mut turn = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    turn += 1;
                    check_left(path, root << 32 | turn, Duration::ZERO).expect("it may");
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
        }
        let mut lost = Vec::new();
        for turn in 0..300 {
            let staged = stage_for(path, owner, 7, turn << 40);
            let sign = path.join(".terral-65534").join(name_of(7)).exists();
            lost.extend((staged.is_err() || !sign).then_some((turn, staged)));
            let _ = std::fs::remove_dir_all(path.join(".terral-65534"));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(lost.is_empty(), "{} of them: {:?}", lost.len(), lost.first());
    });
    check_left(path, 9, Duration::ZERO).expect("it may");
    assert!(staged(path).is_empty());
}
