//! Where the file system takes no flags: what is replaced by what others make between a look and
//! the name, and what goes on where root was killed.

use std::cell::RefCell;
use std::fs::{OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags};
use tempfile::TempDir;
use terral_format::ids::{Ino, InstanceId};
use terral_format::{ErrorKind, Result};

use super::super::beneath::Root;
use super::super::calls::without;
use super::super::dir::Dir;
use super::super::given::stage_for;
use super::super::links::{Purpose, temporary};
use super::super::{BesideOthers, NameSink, Published, Sink, Source, conformance};
use super::{At, Calls};

const INSTANCE: InstanceId = InstanceId(7);
const USER: u32 = 65534;

thread_local! {
    /// What a user makes just before root's server gives a name.
    static COMES: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Others are as quick as they can be.
const QUICK: Calls = Calls { rename: quick_rename, link: quick_link, ..Calls::KERNEL };

/// NFS: what is removed and still open by that name has another one until it is closed.
const SILLY: Calls = Calls { unlink: silly_unlink, ..without::FLAGS };
/// What is to need no link.
const LINKLESS: Calls = Calls { link: |_, _| Err(rustix::io::Errno::IO), ..without::FLAGS };

fn comes() {
    if let Some(path) = COMES.take() {
        his(&path, "his");
    }
}

fn quick_rename(from: At<'_>, to: At<'_>, how: RenameFlags) -> rustix::io::Result<()> {
    (without::FLAGS.rename)(from, to, how)
}

fn quick_link(from: At<'_>, to: At<'_>) -> rustix::io::Result<()> {
    comes();
    rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())
}

fn silly_unlink(at: At<'_>) -> rustix::io::Result<()> {
    let opened = |fd: &str| std::fs::read_link(Path::new("/proc/self/fd").join(fd));
    let directory = opened(&at.0.as_raw_fd().to_string()).expect("it is open");
    let path = directory.join(std::ffi::OsStr::from_bytes(at.1));
    let mut all = std::fs::read_dir("/proc/self/fd").expect("there");
    let is_open = all.any(|fd| {
        let fd = fd.expect("there").file_name().into_string().expect("a number");
        opened(&fd).is_ok_and(|there| there == path)
    });
    if is_open {
        return rustix::fs::renameat(at.0, at.1, at.0, ".nfs1");
    }
    (Calls::KERNEL.unlink)(at)
}

fn his(path: &Path, bytes: &str) {
    std::fs::write(path, bytes).expect("written");
    chown(path, Some(USER), Some(USER)).expect("root may");
}

/// Root's handle of a directory with root's `all`, where others make names, and `own`.
fn house(calls: Calls) -> Option<(TempDir, Dir)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives something to others");
        return None;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    for (name, mode) in [("", 0o755), ("all", 0o1777), ("own", 0o755)] {
        let path = home.path().join(name);
        std::fs::create_dir_all(&path).expect("made");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
    }
    let dir = open(home.path(), calls);
    Some((home, dir))
}

fn open(path: &Path, calls: Calls) -> Dir {
    Dir::of_one(Root::of_one_by(path, calls).expect("it is root's"))
}

fn publish(dir: &Dir, path: &[u8], bytes: &[u8]) -> Result<Published> {
    publish_as(dir, path, bytes, || ())
}

fn publish_as(dir: &Dir, path: &[u8], bytes: &[u8], announced: impl Fn()) -> Result<Published> {
    let mut staged = dir.stage(Ino(9), INSTANCE)?;
    staged.write(0, bytes)?;
    let attributes = dir.stat(b"")?.attributes;
    let attributes = terral_format::wire::message::Attributes {
        kind: terral_format::wire::message::Kind::File,
        mode: 0o644,
        ..attributes
    };
    staged.publish(path, &attributes, bytes.len() as u64, None, &mut |_| {
        announced();
        Ok(())
    })
}

fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("there")
}

#[test]
fn a_store_without_the_flags_keeps_all_promises_where_all_is_roots() {
    let homes = RefCell::new(Vec::new());
    for calls in [without::FLAGS, without::NOREPLACE, without::EXCHANGE] {
        let make = || {
            let (home, dir) = house(calls).expect("only root is here");
            std::fs::remove_dir(home.path().join("all")).expect("empty");
            std::fs::remove_dir(home.path().join("own")).expect("empty");
            homes.borrow_mut().push(home);
            dir
        };
        if rustix::process::geteuid().is_root() {
            conformance::check(make);
            conformance::check_looks(make);
        }
    }
}

#[test]
fn what_others_make_as_root_gives_a_name_stays_theirs() {
    let Some((home, dir)) = house(QUICK) else { return };
    let theirs = home.path().join("all/f");
    COMES.set(Some(theirs.clone()));
    publish(&dir, b"all/f", b"root's").expect_err("it is his");
    assert_eq!(
        (text(&theirs), std::fs::metadata(&theirs).expect("there").uid()),
        ("his".into(), USER)
    );
    // And what has no name there gets it, once, whole.
    publish(&dir, b"all/g", b"root's").expect("free");
    let made = std::fs::metadata(home.path().join("all/g")).expect("there");
    assert_eq!((text(home.path().join("all/g")), made.nlink()), ("root's".into(), 1));
    publish(&dir, b"all/g", b"again").expect("root's");
    assert_eq!(text(home.path().join("all/g")), "again");
}

#[test]
fn where_others_make_names_nothing_is_moved_nor_exchanged_and_all_else_goes() {
    for (calls, files) in [(without::FLAGS, true), (without::LINKS, false)] {
        let Some((home, dir)) = house(calls) else { return };
        assert_eq!(dir.beside_others() == BesideOthers::Made, files);
        dir.make_directory(b"all/d", 0o755).expect("made");
        dir.make_link(b"all/l", b"there").expect("made");
        dir.make_fifo(b"all/p", 0o600).expect("made");
        let made = publish(&dir, b"all/f", b"1").map(drop).map_err(|error| error.kind);
        assert_eq!(made, if files { Ok(()) } else { Err(ErrorKind::Denied) });
        for name in ["all/f", "all/g", "own/f", "own/g"] {
            std::fs::write(home.path().join(name), name).expect("written");
        }
        for (from, to) in
            [(&b"own/f"[..], &b"all/new"[..]), (b"all/f", b"all/new"), (b"all/d", b"all/new")]
        {
            let error = dir.rename(from, to).expect_err("somebody may make it");
            assert!(
                error.kind == ErrorKind::Denied && error.to_string().contains("chmod go-w"),
                "{error}"
            );
        }
        for (from, to) in
            [(&b"own/f"[..], &b"all/f"[..]), (b"all/f", b"own/f"), (b"all/f", b"all/g")]
        {
            let error = dir.exchange(from, to).expect_err("somebody may make one");
            assert!(error.to_string().contains("chmod go-w"), "{error}");
            assert_eq!(text(home.path().join("all/f")), "all/f");
        }
        dir.exchange(b"own/f", b"own/g").expect("root's");
        assert_eq!(
            (text(home.path().join("own/f")), text(home.path().join("own/g"))),
            ("own/g".into(), "own/f".into())
        );
        dir.rename(b"own/f", b"all/g").expect("over root's");
        dir.rename(b"all/g", b"own/new").expect("to where nobody else is");
        dir.unlink(b"all/l").expect("root's");
        dir.remove_directory(b"all/d").expect("root's");
    }
}

#[test]
fn an_exchange_that_was_cut_short_goes_on_but_not_by_what_another_made() {
    let Some((home, dir)) = house(without::FLAGS) else { return };
    let root = Root::of_one(home.path()).expect("root's");
    let [one, other] =
        [&b"own/f"[..], b"own/g"].map(|path| root.place("test", path).expect("free"));
    let aside = String::from_utf8(temporary(Purpose::Exchange, &one, &other)).expect("ours");
    let own = home.path().join("own");
    std::fs::write(own.join("g"), "g").expect("written");
    his(&own.join(&aside), "his");
    let error = dir.exchange(b"own/f", b"own/g").expect_err("it is his");
    // Not EPERM, by which it would be given up: it is owed, and goes on.
    assert_eq!((error.errno, text(own.join("g"))), (13, "g".into()));
    assert!(error.to_string().contains(&aside), "{error}");
    std::fs::remove_file(own.join(&aside)).expect("there");
    dir.exchange(b"own/f", b"own/g").expect_err("one is missing");
    std::fs::write(own.join(&aside), "f").expect("written");
    dir.exchange(b"own/f", b"own/g").expect("it goes on");
    assert_eq!((text(own.join("f")), text(own.join("g"))), ("g".into(), "f".into()));
    assert!(!own.join(&aside).exists());
}

/// Root was killed when its file had both names.
#[test]
fn a_version_that_was_named_and_not_taken_from_where_it_grew_is_one_version() {
    let Some((home, dir)) = house(without::FLAGS) else { return };
    let (name, staged) = (home.path().join("all/f"), home.path().join(".terral"));
    let both = || {
        publish(&dir, b"all/f", b"one").expect("free");
        let label = format!("{:032x}-{}", INSTANCE.0, Ino(9));
        std::fs::hard_link(&name, staged.join(label)).expect("ours");
    };
    both();
    dir.take_back(b"all/f", Ino(9), INSTANCE).expect("ours");
    assert!(!name.exists(), "it has that name no more");
    let mut again = dir.stage(Ino(9), INSTANCE).expect("staged");
    assert_eq!(again.resumed_bytes(), Some(3));
    again.truncate(0).expect("ours");
    again.discard();
    both();
    dir.stage(Ino(9), INSTANCE).expect("staged").discard();
    assert_eq!((text(&name), std::fs::metadata(&name).expect("there").nlink()), ("one".into(), 1));
    assert_eq!(std::fs::read_dir(staged).expect("there").count(), 0);
}

/// Else each rewrite of it takes it for somebody else's.
#[test]
fn a_version_that_was_linked_looks_as_said_after_all_of_it_is_closed() {
    let Some((home, dir)) = house(SILLY) else { return };
    let staged = home.path().join(".terral");
    // The second time a link is made whose answer is lost.
    for (name, lost) in [("all/f", false), ("all/g", true)] {
        let path = home.path().join(name);
        let label = staged.join(format!("{:032x}-{}", INSTANCE.0, Ino(9)));
        let link = || {
            if lost && !path.exists() {
                std::fs::hard_link(&label, &path).expect("ours");
            }
        };
        let published = publish_as(&dir, name.as_bytes(), b"1", link).expect("free");
        // All of it is closed.
        let _ = std::fs::remove_file(staged.join(".nfs1"));
        let found = dir.stat(name.as_bytes()).expect("there");
        assert_eq!((found.fingerprint, found.attributes.links), (published.fingerprint, 1));
        assert_eq!(published.conflict, None);
        assert_eq!(std::fs::read_dir(&staged).expect("there").count(), 0);
    }
}

#[test]
fn in_a_users_own_directory_names_are_given_by_rename_whoever_may_write_there() {
    let Some((home, _)) = house(LINKLESS) else { return };
    let path = home.path();
    stage_for(path, (USER, USER), 7, 1).expect("root may");
    let own = path.join("his");
    std::fs::create_dir(&own).expect("made");
    chown(&own, Some(USER), Some(USER)).expect("root may");
    std::fs::set_permissions(&own, Permissions::from_mode(0o775)).expect("root may");
    let user = rustix::process::Uid::from_raw(USER);
    std::thread::scope(|threads| {
        let published = threads.spawn(|| {
            rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
            let dir = open(path, LINKLESS);
            publish(&dir, b"his/f", b"1")?;
            dir.set_aside(b"his/f")
        });
        let aside = published.join().expect("does not panic").expect("no link is made");
        assert_eq!(aside, b"his/f.theirs-1");
    });
}

#[test]
fn a_link_takes_no_temporary_name_that_another_made() {
    let Some((home, dir)) = house(Calls::KERNEL) else { return };
    for name in ["f", "g"] {
        std::fs::write(home.path().join("all").join(name), name).expect("written");
    }
    let root = Root::of_one(home.path()).expect("root's");
    let [one, other] =
        [&b"all/f"[..], b"all/g"].map(|path| root.place("test", path).expect("ours"));
    let aside = String::from_utf8(temporary(Purpose::Link, &one, &other)).expect("ours");
    let theirs = home.path().join("all").join(aside);
    his(&theirs, "his");
    assert_eq!(dir.link(b"all/f", b"all/g").map_err(|error| error.kind), Err(ErrorKind::Denied));
    assert_eq!(text(&theirs), "his");
    std::fs::remove_file(&theirs).expect("there");
    dir.link(b"all/f", b"all/g").expect("root's");
    assert_eq!(text(home.path().join("all/g")), "f");
    OpenOptions::new().write(true).open(home.path().join("all/f")).expect("there");
}
