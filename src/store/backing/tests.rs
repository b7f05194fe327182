//! What a directory promises beyond the suite for every backing, seen from beside it.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::TempDir;
use terral_format::ErrorKind;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change, Kind};

use super::beneath::{Place, open_by_walking};
use super::calls::Calls;
use super::dir::Dir;
use super::exclusive::Naming;
use super::faulty::{Faults, Faulty};
use super::links::{Purpose, exchange_by_renames, temporary};
use super::{NameSink, Published, Sink, Source, Staged, conformance};

const INSTANCE: InstanceId = InstanceId(0xabc);

fn directory() -> (TempDir, Dir) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let backing = Dir::open(directory.path()).expect("open");
    (directory, backing)
}

fn attributes(backing: &Dir, mode: u32) -> Attributes {
    let root = backing.stat(b"").expect("root").attributes;
    Attributes { kind: Kind::File, mode, modified_ns: 1_000_000_007, ..root }
}

fn staged(backing: &Dir, bytes: &[u8]) -> Box<dyn Staged> {
    let mut staged = backing.stage(Ino(5), INSTANCE).expect("stage");
    staged.truncate(0).expect("truncate");
    staged.write(0, bytes).expect("write");
    staged
}

fn put(backing: &Dir, path: &[u8], bytes: &[u8]) -> terral_format::Result<Published> {
    let attributes = attributes(backing, 0o644);
    staged(backing, bytes).publish(path, &attributes, bytes.len() as u64, None, &mut |_| Ok(()))
}

fn kind<T>(result: terral_format::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).expect("read")
}

#[test]
fn a_directory_and_a_faultless_wrapper_conform() {
    let home = tempfile::tempdir().expect("temporary directory");
    let count = AtomicU32::new(0);
    let make = || {
        let path = home.path().join(count.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&path).expect("create");
        Dir::open(&path).expect("open")
    };
    conformance::check(make);
    conformance::check_looks(make);
    conformance::check(|| Faulty::new(make(), Faults::default()));
}

#[test]
fn a_name_never_shows_half_of_a_version() {
    let (directory, backing) = directory();
    let name = directory.path().join("file");
    let versions: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100_000 + usize::from(n)]).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Ok(seen) = std::fs::read(&name) {
                    assert!(versions.contains(&seen), "{} bytes of no version", seen.len());
                }
            }
        });
        let mut expect = None;
        for bytes in &versions {
            let attributes = attributes(&backing, 0o644);
            let staged = staged(&backing, bytes);
            let size = bytes.len() as u64;
            let done = staged
                .publish(b"file", &attributes, size, expect, &mut |_| Ok(()))
                .expect("publish");
            expect = Some(done.fingerprint);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_somebody_else_put_there_is_kept_inode_and_all() {
    let (directory, backing) = directory();
    let name = directory.path().join("file");
    std::fs::write(&name, "theirs").expect("write");
    let inode = name.metadata().expect("stat").ino();
    let done = put(&backing, b"file", b"ours").expect("publish");
    assert_eq!(done.conflict.as_deref(), Some(&b"file.theirs-1"[..]));
    assert_eq!(read(&name), b"ours");
    let kept = directory.path().join("file.theirs-1");
    assert_eq!((read(&kept), kept.metadata().expect("stat").ino()), (b"theirs".to_vec(), inode));
}

#[test]
fn a_conflict_that_was_cut_short_is_not_kept_twice() {
    let (directory, backing) = directory();
    let name = directory.path().join("file");
    std::fs::write(&name, "theirs").expect("write");
    std::fs::hard_link(&name, directory.path().join("file.theirs-1")).expect("link");
    let done = put(&backing, b"file", b"ours").expect("publish");
    assert_eq!(done.conflict.as_deref(), Some(&b"file.theirs-1"[..]));
    assert!(!directory.path().join("file.theirs-2").exists());
}

/// A directory with links that lead out of it: to a directory with the file `secret`.
fn with_links_outside() -> (TempDir, Dir, TempDir) {
    let (directory, backing) = directory();
    let outside = tempfile::tempdir().expect("temporary directory");
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").expect("write");
    symlink(outside.path(), directory.path().join("absolute")).expect("link");
    let name = outside.path().file_name().expect("name").to_owned();
    symlink(Path::new("..").join(name), directory.path().join("relative")).expect("link");
    symlink(&secret, directory.path().join("file")).expect("link");
    (directory, backing, outside)
}

fn open(directory: &TempDir) -> OwnedFd {
    OwnedFd::from(std::fs::File::open(directory.path()).expect("open"))
}

/// What a change of a file or directory would change.
fn look(path: &Path) -> (u32, u32, i64, i64) {
    let metadata = path.metadata().expect("stat");
    (metadata.mode(), metadata.uid(), metadata.mtime(), metadata.ctime_nsec())
}

#[test]
fn a_link_out_of_the_directory_is_only_a_link() {
    let (directory, backing, outside) = with_links_outside();
    let before = [outside.path(), &outside.path().join("secret")].map(look);
    for path in [&b"absolute"[..], b"relative", b"file"] {
        let target = backing.read_link(path).expect("target");
        let found = backing.stat(path).expect("stat").attributes;
        assert_eq!((found.kind, found.size), (Kind::Symlink, target.len() as u64));
        assert_eq!(kind(backing.read(path, 0, &mut [0; 9])), Some(ErrorKind::Loop));
        assert_eq!(kind(backing.list(path)), Some(ErrorKind::NotDirectory));
        let change = Change { mode: Some(0o777), uid: Some(7), gid: Some(7), ..Change::default() };
        let change = Change { modified_ns: Some(77), ..change };
        if directory.path().metadata().expect("stat").uid() == 0 {
            backing.change(path, change).expect("change");
            assert_eq!(backing.stat(path).expect("stat").attributes.uid, 7);
        }
        let change = Change { uid: None, gid: None, ..change };
        backing.change(path, change).expect("change");
        assert_eq!(backing.stat(path).expect("stat").attributes.modified_ns, 77);
        let walked = open_by_walking(&open(&directory), path, OFlags::RDONLY);
        assert_eq!(walked.err(), Some(Errno::LOOP));
    }
    assert_eq!([outside.path(), &outside.path().join("secret")].map(look), before);
    assert_eq!(backing.list(b"").expect("list").len(), 3);
    for path in [&b"absolute"[..], b"relative", b"file"] {
        assert!(put(&backing, path, b"ours").expect("publish").conflict.is_some());
        assert_eq!(backing.stat(path).expect("stat").attributes.kind, Kind::File);
    }
    assert_eq!(read(outside.path().join("secret")), b"secret");
    assert_eq!(std::fs::read_dir(outside.path()).expect("list").count(), 1);
}

#[test]
fn no_path_goes_through_a_link() {
    let (directory, backing, outside) = with_links_outside();
    std::fs::create_dir(directory.path().join("d")).expect("create");
    std::fs::write(directory.path().join("d/secret"), "bytes").expect("write");
    symlink("d", directory.path().join("inside")).expect("link");
    put(&backing, b"ours", b"ours").expect("publish");
    let want = Some(ErrorKind::NotDirectory);
    for path in [&b"absolute/secret"[..], b"relative/secret", b"inside/secret", b"inside/new"] {
        assert_eq!(kind(backing.stat(path)), want);
        assert_eq!(kind(backing.list(path)), want);
        assert_eq!(kind(put(&backing, path, b"ours")), want);
        assert_eq!(kind(backing.make_directory(path, 0o700)), want);
        assert_eq!(kind(backing.make_link(path, b"x")), want);
        assert_eq!(kind(backing.read_link(path)), want);
        assert_eq!(kind(backing.unlink(path)), want);
        assert_eq!(kind(backing.change(path, Change::default())), want);
        assert_eq!(kind(backing.update(path, Fingerprint::default())), want);
        for (from, to) in [(path, &b"ours"[..]), (b"ours", path)] {
            assert_eq!(kind(backing.rename(from, to)), want);
            assert_eq!(kind(backing.link(from, to)), want);
            assert_eq!(kind(backing.exchange(from, to)), want);
        }
        assert!(backing.read(path, 0, &mut [0; 9]).is_err());
        let walked = open_by_walking(&open(&directory), path, OFlags::RDONLY);
        assert_eq!(walked.err(), Some(Errno::NOTDIR));
    }
    open_by_walking(&open(&directory), b"d/secret", OFlags::RDONLY).expect("no link");
    for path in [&b".."[..], b"d/../../x", b"d/.."] {
        let walked = open_by_walking(&open(&directory), path, OFlags::RDONLY);
        assert_eq!(walked.err(), Some(Errno::XDEV));
    }
    assert_eq!(read(directory.path().join("d/secret")), b"bytes");
    assert_eq!(std::fs::read_dir(outside.path()).expect("list").count(), 1);
}

#[test]
fn a_directory_that_turns_into_a_link_leads_nowhere() {
    let (directory, backing, outside) = with_links_outside();
    std::fs::create_dir(directory.path().join("d")).expect("create");
    std::fs::write(directory.path().join("d/secret"), "public").expect("write");
    let look = || [outside.path(), &outside.path().join("secret")].map(look);
    let before = look();
    std::thread::scope(|scope| {
        let turning = scope.spawn(|| {
            let (root, flags) = (open(&directory), rustix::fs::RenameFlags::EXCHANGE);
            for _ in 0..50_000 {
                rustix::fs::renameat_with(&root, "d", &root, "absolute", flags).expect("exchange");
            }
        });
        let root = open(&directory);
        while !turning.is_finished() {
            let mut buffer = [0; 6];
            if backing.read(b"d/secret", 0, &mut buffer).is_ok() {
                assert_ne!(&buffer, b"secret");
            }
            if let Ok(file) = open_by_walking(&root, b"d/secret", OFlags::RDONLY) {
                let metadata = std::fs::File::from(file).metadata().expect("stat");
                let secret = outside.path().join("secret").metadata().expect("stat");
                assert_ne!(metadata.ino(), secret.ino());
            }
            drop(backing.make_link(b"d/link", b"x"));
            drop(backing.link(b"d/secret", b"d/linked"));
            drop(backing.change(b"d", Change { mode: Some(0o711), ..Change::default() }));
            drop(put(&backing, b"d/new", b"ours"));
        }
    });
    assert_eq!(std::fs::read_dir(outside.path()).expect("list").count(), 1);
    assert_eq!(look(), before);
}

#[test]
fn a_link_over_a_name_that_was_cut_short_leaves_nothing() {
    let (directory, backing) = directory();
    put(&backing, b"file", b"bytes").expect("publish");
    put(&backing, b"other", b"other bytes").expect("publish");
    let (from, to) = places(&directory);
    let temporary = temporary(Purpose::Link, &from, &to);
    let temporary = std::str::from_utf8(&temporary).expect("name");
    std::fs::hard_link(directory.path().join("file"), directory.path().join(temporary))
        .expect("link");
    assert_eq!(backing.list(b"").expect("list").len(), 2, "it is hidden");
    backing.link(b"file", b"other").expect("link");
    assert_eq!(read(directory.path().join("other")), b"bytes");
    assert_eq!(backing.stat(b"file").expect("stat").attributes.links, 2);
}

/// The places `file` and `other`.
fn places(directory: &TempDir) -> (Place, Place) {
    let place = |name: &[u8]| {
        let (directory, within) = (open(directory), Vec::new());
        let naming = Naming { owner: None, calls: Calls::KERNEL };
        Place { directory, within, name: name.to_vec(), naming }
    };
    (place(b"file"), place(b"other"))
}

#[test]
fn an_exchange_by_renames_goes_on_where_it_was_cut_short() {
    for steps in 0..3 {
        let (directory, backing) = directory();
        let inside = |name: &str| directory.path().join(name);
        std::fs::write(inside("file"), "one").expect("write");
        std::fs::create_dir_all(inside("other/below")).expect("create");
        let (from, to) = places(&directory);
        let aside = temporary(Purpose::Exchange, &from, &to);
        let aside = inside(std::str::from_utf8(&aside).expect("name"));
        if steps > 0 {
            std::fs::rename(inside("file"), &aside).expect("rename");
        }
        if steps > 1 {
            std::fs::rename(inside("other"), inside("file")).expect("rename");
        }
        if steps == 0 {
            exchange_by_renames(&from, &to).expect("exchange");
        } else {
            assert_eq!(backing.list(b"").expect("list").len(), 1, "it is hidden");
            backing.exchange(b"file", b"other").expect("goes on");
        }
        assert_eq!(read(inside("other")), b"one");
        assert!(inside("file/below").is_dir());
        assert_eq!(std::fs::read_dir(directory.path()).expect("list").count(), 2);
        std::fs::remove_file(inside("other")).expect("remove");
        assert_eq!(exchange_by_renames(&from, &to), Err(Errno::NOENT));
        assert_eq!(exchange_by_renames(&to, &from), Err(Errno::NOENT));
        assert!(inside("file/below").is_dir());
    }
}

#[test]
fn an_exchange_by_renames_overwrites_nothing() {
    let (directory, backing) = directory();
    let inside = |name: &str| directory.path().join(name);
    std::fs::write(inside("file"), "one").expect("write");
    std::fs::write(inside("other"), "two").expect("write");
    let (from, to) = places(&directory);
    let aside = temporary(Purpose::Exchange, &from, &to);
    let aside = inside(std::str::from_utf8(&aside).expect("name"));
    std::fs::rename(inside("file"), &aside).expect("rename");
    std::fs::write(inside("file"), "theirs").expect("write");
    assert_eq!(exchange_by_renames(&from, &to), Err(Errno::EXIST));
    let kept = ["file", "other"].map(|name| read(inside(name)));
    assert_eq!((kept, read(&aside)), ([b"theirs".to_vec(), b"two".to_vec()], b"one".to_vec()));
    drop(backing);
}

#[test]
fn sockets_do_not_show() {
    let (directory, backing) = directory();
    let socket = directory.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(socket).expect("bind");
    assert_eq!(kind(backing.stat(b"socket")), Some(ErrorKind::Unsupported));
    assert!(backing.list(b"").expect("list").is_empty());
}

#[test]
fn a_fifo_does_not_hang_the_reader() {
    let (directory, backing) = directory();
    let name = directory.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, mode, 0).expect("pipe");
    assert_eq!(kind(backing.read(b"pipe", 0, &mut [0])), Some(ErrorKind::Unsupported));
    let done = put(&backing, b"pipe", b"ours").expect("publish");
    assert!(done.conflict.is_some());
}

#[test]
fn a_directory_that_vanished_is_an_error_and_works_when_back() {
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("store");
    std::fs::create_dir(&path).expect("create");
    let backing = Dir::open(&path).expect("open");
    let attributes = attributes(&backing, 0o644);
    let half = staged(&backing, b"half");
    std::fs::remove_dir_all(&path).expect("remove");
    let want = Some(ErrorKind::Backing);
    assert_eq!(kind(backing.stat(b"file")), want);
    assert_eq!(kind(backing.unlink(b"file")), want);
    assert_eq!(kind(backing.list(b"")), want);
    assert_eq!(kind(backing.sync()), want);
    assert_eq!(kind(backing.stage(Ino(5), INSTANCE)), want);
    assert_eq!(kind(half.publish(b"file", &attributes, 4, None, &mut |_| Ok(()))), want);
    assert!(Dir::open(&path).is_err());
    let half = {
        std::fs::create_dir(&path).expect("create");
        let half = staged(&backing, b"half");
        std::fs::rename(&path, home.path().join("aside")).expect("rename");
        std::fs::create_dir(&path).expect("create");
        half
    };
    assert_eq!(backing.stage(Ino(5), INSTANCE).expect("stage").resumed_bytes(), None);
    let done = half.publish(b"file", &attributes, 4, None, &mut |_| Ok(()));
    assert_eq!(done.expect("publish").conflict, None);
    assert_eq!(read(path.join("file")), b"half", "not the empty one that was staged since");
    std::fs::remove_file(path.join("file")).expect("remove");
    put(&backing, b"file", b"whole").expect("publish");
    assert_eq!(read(path.join("file")), b"whole");
}

#[test]
fn publishing_resumes_in_another_process() {
    let (directory, backing) = directory();
    drop(staged(&backing, b"half"));
    drop(backing);
    let backing = Dir::open(directory.path()).expect("open");
    let mut staged = backing.stage(Ino(5), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(4));
    staged.write(4, b" whole").expect("write");
    staged
        .publish(b"file", &attributes(&backing, 0o644), 10, None, &mut |_| Ok(()))
        .expect("publish");
    assert_eq!(read(directory.path().join("file")), b"half whole");
    backing.clean(INSTANCE).expect("clean");
    assert_eq!(std::fs::read_dir(directory.path()).expect("list").count(), 1);
}

#[test]
fn an_update_keeps_hard_links() {
    let (directory, backing) = directory();
    let fingerprint = put(&backing, b"file", b"bytes").expect("publish").fingerprint;
    let link = directory.path().join("link");
    std::fs::hard_link(directory.path().join("file"), &link).expect("link");
    assert_eq!(kind(backing.update(b"file", fingerprint)), Some(ErrorKind::Busy));
    let found = backing.stat(b"file").expect("stat");
    let mut update = backing.update(b"file", found.fingerprint).expect("update");
    update.write(0, b"B").expect("write");
    update.finish(&found.attributes).expect("finish");
    assert_eq!(read(&link), b"Bytes");
    assert_eq!(link.metadata().expect("stat").nlink(), 2);
}

#[test]
fn the_staging_directory_is_no_door() {
    let (directory, backing) = directory();
    let outside = tempfile::tempdir().expect("temporary directory");
    symlink(outside.path(), directory.path().join(".terral")).expect("link");
    drop(backing.stage(Ino(5), INSTANCE).expect("another one"));
    backing.clean(INSTANCE).expect("clean");
    assert_eq!(std::fs::read_dir(outside.path()).expect("list").count(), 0);
    std::fs::remove_file(directory.path().join(".terral")).expect("remove");
    let half = staged(&backing, b"half");
    drop(half);
    let name = format!(".terral/{:032x}-5", INSTANCE.0);
    std::fs::remove_file(directory.path().join(&name)).expect("remove");
    std::fs::write(outside.path().join("secret"), "secret").expect("write");
    symlink(outside.path().join("secret"), directory.path().join(&name)).expect("link");
    put(&backing, b"file", b"bytes").expect("publish");
    assert_eq!(read(outside.path().join("secret")), b"secret");
}

#[test]
fn the_umask_takes_nothing_off() {
    let (directory, backing) = directory();
    backing.make_directory(b"open", 0o2777).expect("make");
    let name = directory.path().join("open");
    assert_eq!(name.metadata().expect("stat").permissions().mode() & 0o7777, 0o2777);
    std::fs::create_dir(directory.path().join("plain")).expect("create");
    backing.make_directory(b"plain", 0o700).expect("exists");
}

#[test]
fn a_copy_left_on_another_file_system_is_hidden_and_cleaned() {
    let (directory, backing) = directory();
    drop(staged(&backing, b"half"));
    std::fs::create_dir(directory.path().join("far")).expect("create");
    let copy = format!(".terral-{:032x}-5", INSTANCE.0);
    let note = directory.path().join(format!(".terral/{:032x}-5.at", INSTANCE.0));
    std::fs::write(directory.path().join("far").join(&copy), "half").expect("write");
    std::fs::write(&note, format!("far/{copy}")).expect("write");
    let liar = directory.path().join(format!(".terral/{:032x}-6.at", INSTANCE.0));
    std::fs::write(&liar, "precious").expect("write");
    std::fs::write(directory.path().join("precious"), "precious").expect("write");
    assert!(backing.list(b"far").expect("list").is_empty());
    backing.clean(INSTANCE).expect("clean");
    assert_eq!(std::fs::read_dir(directory.path().join("far")).expect("list").count(), 0);
    assert_eq!(read(directory.path().join("precious")), b"precious");
    assert!(!directory.path().join(".terral").exists());
}

#[test]
fn another_file_system_below_the_root_is_published_to() {
    let (directory, backing) = directory();
    let far = directory.path().join("far");
    std::fs::create_dir(&far).expect("create");
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "terral-test"]).arg(&far).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: mounting a tmpfs needs root");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let done = put(&backing, b"far/file", b"bytes").expect("publish");
        assert_eq!(done.fingerprint, backing.stat(b"far/file").expect("stat").fingerprint);
        let done = put(&backing, b"far/file", b"others").expect("publish");
        assert_eq!(done.conflict.as_deref(), Some(&b"far/file.theirs-1"[..]));
        backing.rename(b"far/file", b"near").expect("rename");
        backing.make_link(b"far/link", b"none").expect("make");
        backing.rename(b"far/link", b"link").expect("rename");
        assert_eq!(backing.read_link(b"link"), Ok(b"none".to_vec()));
        assert_eq!(kind(backing.link(b"near", b"far/file")), Some(ErrorKind::CrossDevice));
        let exchanged = backing.exchange(b"near", b"far/file.theirs-1");
        assert_eq!(kind(exchanged), Some(ErrorKind::CrossDevice));
        backing.make_directory(b"far/d", 0o700).expect("make");
        assert_eq!(kind(backing.rename(b"far/d", b"d")), Some(ErrorKind::CrossDevice));
        assert_eq!(read(directory.path().join("near")), b"others");
        let names = std::fs::read_dir(&far).expect("list");
        let mut names: Vec<_> = names.map(|name| name.expect("name").file_name()).collect();
        names.sort();
        let names: Vec<_> = names.iter().map(|name| name.as_bytes()).collect();
        assert_eq!(names, [&b"d"[..], b"file.theirs-1"]);
        // A store on that file system, which is taken away: what is below it is not the store.
        let store = Dir::open(&far).expect("open");
        store.stat(b"file.theirs-1").expect("stat");
        drop(std::process::Command::new("umount").arg(&far).status());
        assert_eq!(kind(store.stat(b"file.theirs-1")), Some(ErrorKind::Backing));
        assert_eq!(kind(store.stage(Ino(1), INSTANCE)), Some(ErrorKind::Backing));
    });
    let again =
        std::process::Command::new("umount").arg(&far).stderr(std::process::Stdio::null()).status();
    drop(again);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn faults_come_and_go() {
    let (_directory, inner) = directory();
    let like = attributes(&inner, 0o644);
    let faults = Faults::default();
    let backing = Faulty::new(inner, faults.clone());
    let mut staged = backing.stage(Ino(5), INSTANCE).expect("stage");
    faults.space(6);
    staged.write(0, b"1234").expect("fits");
    let error = staged.write(4, b"5678").expect_err("full");
    assert_eq!((error.kind, error.to_errno()), (ErrorKind::NoSpace, 28));
    let mut buffer = [0; 9];
    assert_eq!(staged.read(0, &mut buffer), Ok(6));
    faults.clear();
    faults.fail_nth(2);
    staged.write(4, b"5678").expect("first");
    let error = staged.write(4, b"5678").expect_err("second");
    assert_eq!((error.kind, error.to_errno()), (ErrorKind::Backing, 5));
    staged.write(4, b"5678").expect("third");
    faults.gate().store(true, Ordering::SeqCst);
    assert!(backing.stat(b"").is_err() && staged.truncate(3).is_err());
    assert!(staged.publish(b"file", &like, 8, None, &mut |_| Ok(())).is_err());
    faults.clear();
    let staged = backing.stage(Ino(5), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(8));
    staged.publish(b"file", &like, 8, None, &mut |_| Ok(())).expect("publish");
    assert_eq!(faults.operations(), 12);
}
