//! What every backing must do, told through its trait alone. A failed promise panics.

use terral_format::ErrorKind;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change, Kind};

use super::{Backing, Published, STAGING};

mod attributes;

mod links;

mod renames;

mod versions;

const INSTANCE: InstanceId = InstanceId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
const OTHER: InstanceId = InstanceId(7);
const TIME_NS: u64 = 1_234_567_890_123_456_789;

/// Runs the whole suite; `make` gives a new, empty backing each time.
pub fn check<B: Backing>(make: impl Fn() -> B) {
    a_new_file_appears_whole_or_not_at_all(&make());
    a_replaced_file_stays_until_the_new_one_is_whole(&make());
    a_conflict_keeps_both(&make());
    publishing_the_same_bytes_again_is_no_conflict(&make());
    staging_resumes(&make());
    a_discarded_version_leaves_nothing(&make());
    an_update_touches_only_what_it_writes(&make());
    an_update_of_a_changed_file_is_refused(&make());
    an_update_of_a_file_that_was_replaced_meanwhile_does_not_count(&make());
    names_can_be_repeated(&make());
    links::symbolic_links_are_themselves(&make());
    links::any_target_can_be_linked_to(&make());
    fifos_are_names_without_bytes(&make());
    links::a_symbolic_link_is_a_version_like_any(&make());
    a_file_gets_further_names(&make());
    names_change_places(&make());
    attributes_are_kept(&make());
    hostile_names_are_refused(&make());
    any_name_of_255_bytes_works(&make());
    reads_are_short_only_at_the_end(&make());
    cleaning_spares_others(&make());
    versions::the_announcement_comes_before_the_name(&make());
    versions::a_version_that_is_refused_stays_staged(&make());
    versions::a_published_version_can_be_taken_back(&make());
    versions::a_version_with_another_name_is_left_as_it_is(&make());
    versions::what_is_new_in_a_version_reads_as_zeros(&make());
    versions::readers_see_an_update_at_once_and_dropped_it_stays(&make());
    versions::a_foreign_version_is_kept_once(&make());
    attributes::extended_attributes_belong_to_the_file(&make());
    attributes::a_change_is_of_the_file(&make());
    renames::a_rename_replaces_only_its_like(&make());
    let backing = make();
    backing.sync().expect("sync");
    let space = backing.space().expect("space");
    assert!(space.free_bytes <= space.total_bytes);
    assert!(!backing.describe().is_empty());
}

/// Attributes of a file of this process's user.
fn attributes(backing: &dyn Backing, mode: u32) -> Attributes {
    let root = backing.stat(b"").expect("root").attributes;
    let (accessed_ns, modified_ns) = (TIME_NS + 5, TIME_NS);
    Attributes { kind: Kind::File, mode, links: 1, size: 0, accessed_ns, modified_ns, ..root }
}

fn put(backing: &dyn Backing, path: &[u8], bytes: &[u8], expect: Option<Fingerprint>) -> Published {
    let mut staged = backing.stage(Ino(9), INSTANCE).expect("stage");
    staged.truncate(0).expect("truncate");
    staged.write(0, bytes).expect("write");
    let attributes = attributes(backing, 0o640);
    staged.publish(path, &attributes, bytes.len() as u64, expect, &mut |_| Ok(())).expect("publish")
}

fn bytes(backing: &dyn Backing, path: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let count = backing.read(path, 0, &mut buffer).expect("read");
    buffer.truncate(count);
    buffer
}

fn kind<T>(result: Result<T, terral_format::Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

fn names(backing: &dyn Backing, path: &[u8]) -> Vec<Vec<u8>> {
    let names = backing.list(path).expect("list");
    assert!(names.iter().all(|name| name.ino == Ino(0)));
    names.into_iter().map(|name| name.name).collect()
}

fn a_new_file_appears_whole_or_not_at_all(backing: &dyn Backing) {
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), None);
    staged.write(2, b"cdef and more").expect("write");
    staged.write(0, b"ab").expect("write");
    assert_eq!(kind(backing.stat(b"file")), Some(ErrorKind::NotFound));
    assert!(names(backing, b"").is_empty(), "staging shows");
    let mut half = [0; 3];
    assert_eq!(staged.read(1, &mut half), Ok(3));
    assert_eq!(&half, b"bcd");
    let done = staged
        .publish(b"file", &attributes(backing, 0o600), 6, None, &mut |_| Ok(()))
        .expect("publish");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!((done.fingerprint, done.conflict), (found.fingerprint, None));
    assert_eq!(bytes(backing, b"file"), b"abcdef");
    assert_eq!(names(backing, b""), [b"file".to_vec()]);
}

fn a_replaced_file_stays_until_the_new_one_is_whole(backing: &dyn Backing) {
    let old = put(backing, b"file", b"old", None).fingerprint;
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"brand new").expect("write");
    assert_eq!(bytes(backing, b"file"), b"old");
    let attributes = attributes(backing, 0o600);
    let done =
        staged.publish(b"file", &attributes, 9, Some(old), &mut |_| Ok(())).expect("publish");
    assert_eq!(done.conflict, None);
    assert_eq!(bytes(backing, b"file"), b"brand new");
    let missing = backing.stage(Ino(2), INSTANCE).expect("stage");
    let refused = missing.publish(b"none/file", &attributes, 0, None, &mut |_| Ok(()));
    assert_eq!(kind(refused), Some(ErrorKind::NotFound));
    backing.make_directory(b"directory", 0o755).expect("make");
    backing.make_directory(b"directory/below", 0o755).expect("make");
    let done = put(backing, b"directory", b"ours", None);
    assert_eq!(done.conflict.as_deref(), Some(&b"directory.theirs-1"[..]));
    assert_eq!(bytes(backing, b"directory"), b"ours");
    backing.stat(b"directory.theirs-1/below").expect("is kept");
    assert_eq!(backing.set_aside(b"directory").as_deref(), Ok(&b"directory.theirs-2"[..]));
}

fn a_conflict_keeps_both(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("make");
    let ours = put(backing, b"d/file", b"first", None).fingerprint;
    put(backing, b"d/file", b"theirs", Some(ours));
    let done = put(backing, b"d/file", b"second", Some(ours));
    assert_eq!(done.conflict.as_deref(), Some(&b"d/file.theirs-1"[..]));
    assert_eq!(bytes(backing, b"d/file"), b"second");
    assert_eq!(bytes(backing, b"d/file.theirs-1"), b"theirs");
    let done = put(backing, b"d/file", b"third", None);
    assert_eq!(done.conflict.as_deref(), Some(&b"d/file.theirs-2"[..]));
    assert_eq!(bytes(backing, b"d/file.theirs-1"), b"theirs");
    assert_eq!(bytes(backing, b"d/file.theirs-2"), b"second");
    assert_eq!(done.fingerprint, backing.stat(b"d/file").expect("stat").fingerprint);
    backing.unlink(b"d/file").expect("unlink");
    let done = put(backing, b"d/file", b"fourth", Some(done.fingerprint));
    assert_eq!(done.conflict, None, "nothing is there to be kept");
    let long = [b'x'; 255];
    put(backing, &long, b"theirs", None);
    let kept = put(backing, &long, b"ours", None).conflict.expect("conflict");
    assert_eq!((kept.len(), bytes(backing, &kept)), (255, b"theirs".to_vec()));
}

fn publishing_the_same_bytes_again_is_no_conflict(backing: &dyn Backing) {
    put(backing, b"file", b"bytes", None);
    assert_eq!(put(backing, b"file", b"bytes", None).conflict, None);
    assert_eq!(names(backing, b""), [b"file".to_vec()]);
}

fn staging_resumes(backing: &dyn Backing) {
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"half").expect("write");
    drop(staged);
    let other = backing.stage(Ino(3), INSTANCE).expect("stage");
    assert_eq!(other.resumed_bytes(), None);
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(4));
    staged.write(4, b" whole").expect("write");
    let read_only = attributes(backing, 0o400);
    let refused = staged.publish(b"none/file", &read_only, 10, None, &mut |_| Ok(()));
    assert_eq!(kind(refused), Some(ErrorKind::NotFound));
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(10));
    staged.publish(b"file", &read_only, 10, None, &mut |_| Ok(())).expect("publish");
    assert_eq!(bytes(backing, b"file"), b"half whole");
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), None, "a published version is not staged any more");
}

fn a_discarded_version_leaves_nothing(backing: &dyn Backing) {
    let mut staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    staged.write(0, b"half").expect("write");
    staged.discard();
    assert_eq!(backing.stage(Ino(2), INSTANCE).expect("stage").resumed_bytes(), None);
}

fn an_update_touches_only_what_it_writes(backing: &dyn Backing) {
    let before = put(backing, b"file", b"0123456789", None).fingerprint;
    let mut update = backing.update(b"file", before).expect("update");
    update.write(2, b"ab").expect("write");
    update.truncate(8).expect("truncate");
    let mut buffer = [0; 20];
    assert_eq!(update.read(1, &mut buffer), Ok(7));
    let after = update.finish(&attributes(backing, 0o600)).expect("finish");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!((after, after.inode), (found.fingerprint, before.inode));
    assert_eq!((found.attributes.mode, found.attributes.modified_ns), (0o600, TIME_NS));
    assert_eq!(bytes(backing, b"file"), b"01ab4567");
}

fn an_update_of_a_file_that_was_replaced_meanwhile_does_not_count(backing: &dyn Backing) {
    let before = put(backing, b"file", b"0123456789", None).fingerprint;
    let mut update = backing.update(b"file", before).expect("update");
    update.write(2, b"ab").expect("write");
    let (_, replacing) = (put(backing, b"other", b"theirs", None), attributes(backing, 0o600));
    backing.rename(b"other", b"file").expect("rename");
    assert_eq!(kind(update.finish(&replacing)), Some(ErrorKind::Busy));
    assert_eq!(bytes(backing, b"file"), b"theirs");
    let now = backing.stat(b"file").expect("stat").fingerprint;
    let update = backing.update(b"file", now).expect("update");
    backing.unlink(b"file").expect("unlink");
    assert_eq!(kind(update.finish(&replacing)), Some(ErrorKind::NotFound));
}

fn an_update_of_a_changed_file_is_refused(backing: &dyn Backing) {
    let before = put(backing, b"file", b"0123456789", None).fingerprint;
    let mut update = backing.update(b"file", before).expect("update");
    update.write(10, b"interrupted").expect("write");
    drop(update);
    assert_eq!(kind(backing.update(b"file", before)), Some(ErrorKind::Busy));
    backing.resume_update(b"file", before).expect("the same inode");
    put(backing, b"file", b"another file", None);
    assert_eq!(kind(backing.resume_update(b"file", before)), Some(ErrorKind::Busy));
    assert_eq!(kind(backing.update(b"none", before)), Some(ErrorKind::NotFound));
}

fn names_can_be_repeated(backing: &dyn Backing) {
    for _ in 0..2 {
        backing.make_directory(b"a", 0o1777).expect("make");
        backing.make_directory(b"a/b", 0o700).expect("make");
    }
    assert_eq!(backing.stat(b"a").expect("stat").attributes.mode, 0o1777);
    put(backing, b"a/b/file", b"bytes", None);
    assert_eq!(kind(backing.make_directory(b"a/b/file", 0o700)), Some(ErrorKind::Exists));
    assert_eq!(kind(backing.list(b"a/b/file")), Some(ErrorKind::NotDirectory));
    assert_eq!(kind(backing.stat(b"a/b/file/x")), Some(ErrorKind::NotDirectory));
    let was = backing.stat(b"a/b/file").expect("stat").fingerprint;
    let touched = backing.rename(b"a/b/file", b"a/moved").expect("rename");
    let now = backing.stat(b"a/moved").expect("stat").fingerprint;
    assert_eq!((touched.before, touched.after), (was, now));
    assert_eq!(kind(backing.rename(b"a/b/file", b"a/moved")), Some(ErrorKind::NotFound));
    assert_eq!(kind(backing.remove_directory(b"a")), Some(ErrorKind::NotEmpty));
    let found = backing.list(b"a").expect("list");
    let kinds: Vec<_> = found.iter().map(|name| (&name.name[..], name.kind)).collect();
    assert_eq!(kinds, [(&b"b"[..], Kind::Directory), (b"moved", Kind::File)]);
    for _ in 0..2 {
        backing.unlink(b"a/moved").expect("unlink");
        backing.remove_directory(b"a/b").expect("remove");
        backing.remove_directory(b"a").expect("remove");
    }
    backing.unlink(b"a/b/none").expect("missing parents are no error either");
    assert!(names(backing, b"").is_empty());
}

fn fifos_are_names_without_bytes(backing: &dyn Backing) {
    put(backing, b"file", b"bytes", None);
    for _ in 0..2 {
        backing.make_fifo(b"fifo", 0o4626).expect("make, twice");
    }
    assert_eq!(kind(backing.make_fifo(b"file", 0o600)), Some(ErrorKind::Exists));
    assert_eq!(kind(backing.make_fifo(b"none/fifo", 0o600)), Some(ErrorKind::NotFound));
    let found = backing.stat(b"fifo").expect("stat").attributes;
    assert_eq!((found.kind, found.mode, found.size), (Kind::Fifo, 0o4626, 0));
    assert_eq!(backing.list(b"").expect("list")[0].kind, Kind::Fifo);
    assert_eq!(kind(backing.read(b"fifo", 0, &mut [0])), Some(ErrorKind::Unsupported));
    let change = Change { mode: Some(0o600), modified_ns: Some(77), ..Change::default() };
    backing.change(b"fifo", change).expect("change");
    backing.link(b"fifo", b"second").expect("link");
    backing.rename(b"fifo", b"moved").expect("rename");
    let found = backing.stat(b"moved").expect("stat").attributes;
    assert_eq!((found.mode, found.modified_ns, found.links), (0o600, 77, 2));
    let done = put(backing, b"moved", b"ours", None);
    assert_eq!(done.conflict.as_deref(), Some(&b"moved.theirs-1"[..]));
    backing.unlink(b"second").expect("unlink");
    assert_eq!(backing.stat(b"moved.theirs-1").expect("kept").attributes.kind, Kind::Fifo);
}

fn a_file_gets_further_names(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("make");
    let was = put(backing, b"file", b"bytes", None).fingerprint;
    put(backing, b"d/other", b"other bytes", None);
    backing.make_link(b"symbolic", b"d").expect("make");
    let mut remembered = was;
    for to in [&b"d/new"[..], b"d/other", b"symbolic"] {
        let touched = backing.link(b"file", to).expect("link");
        let now = backing.stat(to).expect("stat").fingerprint;
        assert_eq!((touched.before, touched.after), (remembered, now));
        assert_eq!((now.inode, bytes(backing, to)), (was.inode, b"bytes".to_vec()));
        let again = backing.link(b"file", to).expect("again");
        assert_eq!((again.before, again.after), (now, now), "nothing changes");
        remembered = now;
    }
    assert_eq!(backing.stat(b"file").expect("stat").attributes.links, 4);
    assert_eq!(names(backing, b"d"), [b"new".to_vec(), b"other".to_vec()]);
    assert_eq!(names(backing, b""), [&b"d"[..], b"file", b"symbolic"]);
    backing.link(b"file", b"file").expect("to itself");
    let directory = Some(ErrorKind::IsDirectory);
    assert_eq!(kind(backing.link(b"file", b"d")), directory);
    assert_eq!(kind(backing.link(b"d", b"new")), directory);
    let none = Some(ErrorKind::NotFound);
    assert_eq!(kind(backing.link(b"none", b"file")), none);
    assert_eq!(kind(backing.link(b"file", b"none/new")), none);
    backing.make_link(b"dangling", b"none").expect("make");
    backing.link(b"dangling", b"also").expect("link");
    assert_eq!(backing.read_link(b"also"), Ok(b"none".to_vec()));
    backing.remove_directory(b"d").expect_err("has names");
    for name in [&b"d/new"[..], b"d/other"] {
        backing.unlink(name).expect("unlink");
    }
    backing.remove_directory(b"d").expect("nothing hidden is left in it");
}

fn names_change_places(backing: &dyn Backing) {
    backing.make_directory(b"d", 0o755).expect("make");
    backing.make_directory(b"d/e", 0o755).expect("make");
    put(backing, b"d/e/file", b"inner", None);
    put(backing, b"file", b"outer", None);
    backing.make_link(b"d/link", b"file").expect("make");
    backing.exchange(b"file", b"d/e/file").expect("files");
    assert_eq!(bytes(backing, b"d/e/file"), b"outer");
    backing.exchange(b"d/e/file", b"file").expect("done twice it is undone");
    backing.exchange(b"file", b"d/e").expect("a file and a directory");
    assert_eq!(bytes(backing, b"d/e"), b"outer");
    assert_eq!(bytes(backing, b"file/file"), b"inner");
    backing.exchange(b"d/link", b"file").expect("a link and a directory");
    assert_eq!(backing.read_link(b"file"), Ok(b"file".to_vec()));
    assert_eq!(bytes(backing, b"d/link/file"), b"inner");
    backing.exchange(b"file", b"file").expect("with itself");
    let none = Some(ErrorKind::NotFound);
    for missing in [&b"none"[..], b"none/x"] {
        assert_eq!(kind(backing.exchange(missing, b"file")), none);
        assert_eq!(kind(backing.exchange(b"file", missing)), none);
    }
    for (outer, inner) in [(&b"d"[..], &b"d/link"[..]), (b"d", b"d/link/file")] {
        assert_eq!(kind(backing.exchange(outer, inner)), Some(ErrorKind::Invalid));
        assert_eq!(kind(backing.exchange(inner, outer)), Some(ErrorKind::Invalid));
    }
    assert_eq!(names(backing, b""), [b"d".to_vec(), b"file".to_vec()]);
    assert_eq!(names(backing, b"d"), [b"e".to_vec(), b"link".to_vec()]);
}

fn attributes_are_kept(backing: &dyn Backing) {
    put(backing, b"file", b"12345", None);
    let found = backing.stat(b"file").expect("stat");
    let got = found.attributes;
    assert_eq!((got.ino, got.kind, got.mode, got.size), (Ino(0), Kind::File, 0o640, 5));
    assert_eq!((got.modified_ns, got.accessed_ns), (TIME_NS, TIME_NS + 5));
    assert_eq!(got.changed_ns, found.fingerprint.changed_ns);
    let mode = Change { mode: Some(0o444), ..Change::default() };
    let touched = backing.change(b"file", mode).expect("change");
    assert_eq!(touched.before, found.fingerprint);
    let times = Change { modified_ns: Some(77), ..Change::default() };
    let touched = backing.change(b"file", times).expect("change");
    let found = backing.stat(b"file").expect("stat");
    assert_eq!(touched.after, found.fingerprint);
    assert_eq!((found.attributes.mode, found.attributes.modified_ns), (0o444, 77));
    assert_eq!(found.attributes.accessed_ns, TIME_NS + 5);
    assert_eq!(kind(backing.change(b"none", mode)), Some(ErrorKind::NotFound));
    let mut update = backing.update(b"file", found.fingerprint).expect("update, read-only or not");
    update.write(0, b"x").expect("write");
    update.finish(&Attributes { mode: 0o444, ..got }).expect("finish");
    assert_eq!(backing.stat(b"file").expect("stat").attributes.mode, 0o444);
}

fn hostile_names_are_refused(backing: &dyn Backing) {
    let long = [b'x'; 256];
    let staging = [STAGING, b"/x"].concat();
    let deep = vec![b"abc".as_slice(); 1100].join(&b'/');
    for (path, want) in [
        (&b".."[..], ErrorKind::Invalid),
        (b"../x", ErrorKind::Invalid),
        (b"a/../../x", ErrorKind::Invalid),
        (b"/etc/passwd", ErrorKind::Invalid),
        (b"a//b", ErrorKind::Invalid),
        (b"a/", ErrorKind::Invalid),
        (b".", ErrorKind::Invalid),
        (b"a\0b", ErrorKind::Invalid),
        (&long, ErrorKind::NameTooLong),
        (&deep, ErrorKind::NameTooLong),
        (STAGING, ErrorKind::Denied),
        (&staging, ErrorKind::Denied),
    ] {
        let want = Some(want);
        assert_eq!(kind(backing.stat(path)), want);
        assert_eq!(kind(backing.list(path)), want);
        assert_eq!(kind(backing.read(path, 0, &mut [0])), want);
        assert_eq!(kind(backing.make_directory(path, 0o700)), want);
        assert_eq!(kind(backing.remove_directory(path)), want);
        assert_eq!(kind(backing.unlink(path)), want);
        assert_eq!(kind(backing.read_link(path)), want);
        assert_eq!(kind(backing.make_link(path, b"x")), want);
        assert_eq!(kind(backing.change(path, Change::default())), want);
        assert_eq!(kind(backing.update(path, Fingerprint::default())), want);
        put(backing, b"file", b"x", None);
        assert_eq!(kind(backing.rename(b"file", path)), want);
        assert_eq!(kind(backing.rename(path, b"file")), want);
        assert_eq!(kind(backing.link(b"file", path)), want);
        assert_eq!(kind(backing.link(path, b"file")), want);
        assert_eq!(kind(backing.exchange(b"file", path)), want);
        assert_eq!(kind(backing.exchange(path, b"file")), want);
        let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
        assert_eq!(
            kind(staged.publish(path, &attributes(backing, 0o600), 0, None, &mut |_| Ok(()))),
            want
        );
    }
    let staged = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert!(staged.publish(b"", &attributes(backing, 0o600), 0, None, &mut |_| Ok(())).is_err());
    assert!(backing.unlink(b"").is_err() && backing.remove_directory(b"").is_err());
    assert!(backing.rename(b"", b"x").is_err() && backing.rename(b"file", b"").is_err());
    assert!(backing.link(b"", b"x").is_err() && backing.link(b"file", b"").is_err());
    assert!(backing.exchange(b"", b"file").is_err() && backing.exchange(b"file", b"").is_err());
    assert!(backing.make_link(b"", b"x").is_err());
    assert_eq!(kind(backing.read_link(b"")), Some(ErrorKind::Invalid));
    assert_eq!(kind(backing.read(b"", 0, &mut [0])), Some(ErrorKind::IsDirectory));
    assert_eq!(names(backing, b""), [b"file".to_vec()]);
}

fn any_name_of_255_bytes_works(backing: &dyn Backing) {
    let mut name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    name.push(b'\n');
    assert_eq!(name.len(), 255);
    backing.make_directory(&name, 0o700).expect("make");
    let path = [&name[..], &name[..]].join(&b'/');
    put(backing, &path, b"bytes", None);
    assert_eq!(bytes(backing, &path), b"bytes");
    assert_eq!(names(backing, &name), [name.clone()]);
    let missing = [&name[..], b"none"].join(&b'/');
    let error = backing.stat(&missing).expect_err("missing");
    assert!(!error.to_string().contains('\n'), "a message is one line");
}

fn reads_are_short_only_at_the_end(backing: &dyn Backing) {
    let content: Vec<u8> = (0..40_000_u32).map(|index| (index % 251) as u8).collect();
    put(backing, b"file", &content, None);
    let mut buffer = vec![0; 30_000];
    assert_eq!(backing.read(b"file", 5_000, &mut buffer), Ok(30_000));
    assert_eq!(buffer, content[5_000..35_000]);
    assert_eq!(backing.read(b"file", 35_000, &mut buffer), Ok(5_000));
    assert_eq!(backing.read(b"file", 40_000, &mut buffer), Ok(0));
    assert_eq!(backing.read(b"file", 1 << 40, &mut buffer), Ok(0));
}

fn cleaning_spares_others(backing: &dyn Backing) {
    backing.clean(INSTANCE).expect("nothing to clean");
    for instance in [INSTANCE, OTHER] {
        let mut staged = backing.stage(Ino(2), instance).expect("stage");
        staged.write(0, b"half").expect("write");
    }
    backing.clean(INSTANCE).expect("clean");
    let ours = backing.stage(Ino(2), INSTANCE).expect("stage");
    assert_eq!(ours.resumed_bytes(), None);
    let others = backing.stage(Ino(2), OTHER).expect("stage");
    assert_eq!(others.resumed_bytes(), Some(4));
}
