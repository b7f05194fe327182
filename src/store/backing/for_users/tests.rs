//! What keeps several processes of root's, on one permanent directory, out of each other's way.

use std::cell::Cell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use terral_format::Result;

use super::super::calls::without;
use super::super::dir::Dir;
use super::super::given::stage_for;
use super::super::sign::name_of;
use super::super::{Sink, Source};
use super::{BesideOthers, Calls, LEFT, Lacks, Root, beside_others, check_for_users, try_out};

fn check_left(path: &Path, fresh: u64, left: Duration) -> Result<Lacks> {
    try_out(&Root::of_one(path)?, fresh, Some(left))
}

fn staged(path: &Path) -> Vec<String> {
    let all = std::fs::read_dir(path.join(".terral")).expect("there");
    all.map(|entry| entry.expect("there").file_name().into_string().expect("ours")).collect()
}

#[test]
fn what_a_file_system_lacks_is_found_and_what_follows_is_said() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    let lacks = |keeping, exchanging, linking| Lacks { keeping, exchanging, linking };
    for (calls, lacks, beside, said) in [
        (Calls::KERNEL, lacks(false, false, false), BesideOthers::All, "all that is needed"),
        (without::NOREPLACE, lacks(true, false, false), BesideOthers::Made, "RENAME_NOREPLACE: "),
        (without::EXCHANGE, lacks(false, true, false), BesideOthers::Made, "RENAME_EXCHANGE: "),
        (without::FLAGS, lacks(true, true, false), BesideOthers::Made, "CE and RENAME_EX"),
        (without::LINKS, lacks(true, true, true), BesideOthers::NoFiles, "nor files made"),
    ] {
        let root = Root::of_one_by(home.path(), calls).expect("root's");
        let found = try_out(&root, 1, Some(LEFT)).expect("it is tried");
        assert_eq!((found, beside_others(&root)), (lacks, Ok(beside)));
        let text = found.to_string();
        assert!(text.contains(said) && !text.contains('\n'), "{text}");
    }
    assert!(staged(home.path()).is_empty());
}

thread_local! {
    static FULL: Cell<bool> = const { Cell::new(true) };
}

#[test]
fn a_full_file_system_lacks_nothing_by_that_and_is_tried_again() {
    const FILLED: Calls = Calls {
        rename: |from, to, how| match FULL.get() {
            true => Err(Errno::NOSPC),
            false => (without::FLAGS.rename)(from, to, how),
        },
        ..Calls::KERNEL
    };
    const BROKEN: Calls = Calls { link: |_, _| Err(Errno::IO), ..Calls::KERNEL };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    for (calls, errno) in [(FILLED, Errno::NOSPC), (BROKEN, Errno::IO)] {
        let root = Root::of_one_by(home.path(), calls).expect("root's");
        let error = try_out(&root, 1, Some(LEFT)).expect_err("nobody knows");
        assert_eq!(error.errno, errno.raw_os_error());
    }
    let dir = Dir::of_one(Root::of_one_by(home.path(), FILLED).expect("root's"));
    assert_eq!(dir.beside_others(), BesideOthers::All);
    dir.sync().expect("ours");
    assert_eq!(dir.beside_others(), BesideOthers::All);
    FULL.set(false);
    dir.sync().expect("ours");
    assert_eq!(dir.beside_others(), BesideOthers::Made);
}

/// As over NFS: root is `nobody` there, or gives nothing away.
#[test]
fn who_may_not_make_or_give_there_is_told_how_to_mend_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path();
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("ours");
    let root = Root::of_one(path).expect("root's");
    let user = rustix::process::Uid::from_raw(65534);
    std::thread::scope(|threads| {
        let tried = threads.spawn(|| {
            rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
            try_out(&root, 1, Some(LEFT)).map(drop)
        });
        let error = tried.join().expect("does not panic").expect_err("he may not write there");
        assert!(error.to_string().contains("no_root_squash"), "{error}");
    });
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
