//! Names and attributes as clients see them in shared memory, hard and symbolic links, exchanges,
//! files without a name: across clients, deaths of the server, and in the permanent directory.
#![cfg(not(loom))]

mod files;
mod mount;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use files::{WRITE, open};
use mount::Mount;
use terral_client::{Client, ErrorKind, Followed, Kind, OpenHow, RenameHow};

struct Bench {
    _home: tempfile::TempDir,
    target: tempfile::TempDir,
    instance: PathBuf,
    server: process::Process,
    client: Client,
}

impl Bench {
    fn new() -> Self {
        Bench::to(tempfile::tempdir().expect("directory"))
    }

    fn to(target: tempfile::TempDir) -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let instance = home.path().join("instance");
        let server = process::start_server(&instance, Some(target.path()));
        let client = Client::connect(&instance).expect("connects");
        Bench { _home: home, target, instance, server, client }
    }

    fn restart(&mut self) {
        self.server.kill();
        self.server = process::start_server(&self.instance, Some(self.target.path()));
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let how = OpenHow { exclusive: false, truncate: true, ..WRITE };
        let file = self.client.open(name.as_bytes(), how).expect("opens");
        file.write(bytes).expect("writes");
        file.close();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let how = OpenHow { access: 1, ..OpenHow::default() };
        let file = self.client.open(name.as_bytes(), how).expect("opens");
        let mut bytes = vec![0; file.size() as usize];
        file.read_at(&mut bytes, 0).expect("reads");
        file.close();
        bytes
    }

    fn links(&self, name: &str) -> (u64, u32) {
        let found = self.client.stat(name.as_bytes()).expect("stat");
        (found.ino.0, found.links)
    }

    /// All is in the directory.
    fn drained(&self) {
        self.client.flush().expect("flushes");
        let begin = Instant::now();
        loop {
            let drain = self.client.status().expect("status").drain;
            if drain.settled && drain.owed_files == 0 && drain.owed_names == 0 {
                assert_eq!(drain.conflicts, Vec::<String>::new());
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "stands still: {drain:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many names the directory has.
    fn count(&self) -> usize {
        let names = fs::read_dir(self.target.path()).expect("lists");
        names.filter(|name| name.as_ref().expect("entry").file_name() != ".terral").count()
    }

    fn there(&self, name: &str) -> PathBuf {
        self.target.path().join(name)
    }

    /// What `change` does the directory hears of only afterwards, all at once.
    fn at_once(&self, change: impl FnOnce(&Self)) {
        let away = self.target.path().with_extension("away");
        fs::rename(self.target.path(), &away).expect("moves");
        change(self);
        fs::rename(&away, self.target.path()).expect("moves back");
        self.drained();
    }

    fn append(&self, name: &str, bytes: &[u8]) {
        let how = OpenHow { access: 2, ..OpenHow::default() };
        let file = self.client.open(name.as_bytes(), how).expect("opens");
        file.append(bytes).expect("appends");
        file.close();
    }

    fn rename(&self, from: &str, to: &str, how: RenameHow) {
        self.client.rename(from.as_bytes(), to.as_bytes(), how).expect("renames");
    }

    fn link(&self, from: &str, to: &str) {
        self.client.link(from.as_bytes(), to.as_bytes()).expect("links");
    }

    fn unlink(&self, name: &str) {
        self.client.unlink(name.as_bytes()).expect("unlinks");
    }

    /// The directory has these files and no others.
    fn holds(&self, files: &[(&str, &str)]) {
        for (name, bytes) in files {
            assert_eq!(fs::read(self.there(name)).expect("reads"), bytes.as_bytes(), "{name}");
            assert_eq!(self.read(name), bytes.as_bytes(), "{name}");
        }
        assert_eq!(self.count(), files.len());
        assert_eq!(self.client.list(b"").expect("lists").len(), files.len());
    }
}

fn kind(error: terral_client::Error) -> ErrorKind {
    error.kind
}

#[test]
fn role() {
    process::play(128, &[]);
}

#[test]
fn a_file_with_two_names_is_one_file_here_and_in_the_directory() {
    let mut bench = Bench::new();
    bench.write("one", b"first");
    bench.client.link(b"one", b"two").expect("links");
    assert_eq!(bench.links("one"), bench.links("two"));
    assert_eq!(bench.links("two").1, 2);
    bench.write("two", b"second");
    assert_eq!(bench.read("one"), b"second");
    bench.drained();
    let ino = |name: &str| fs::metadata(bench.there(name)).expect("is there").ino();
    assert_eq!(ino("one"), ino("two"));
    assert_eq!(fs::read(bench.there("one")).expect("reads"), b"second");

    // A third one made when the file is there already, and the first one gone.
    bench.client.make_directory(b"d", 0o755).expect("makes");
    bench.client.link(b"two", b"d/three").expect("links");
    bench.client.unlink(b"one").expect("unlinks");
    bench.restart();
    assert_eq!(bench.links("two"), bench.links("d/three"));
    assert_eq!(bench.links("two").1, 2);
    assert_eq!(bench.client.stat(b"one").map_err(kind).err(), Some(ErrorKind::NotFound));
    let file = open(&bench.client, "two");
    file.write_at(b"S", 0).expect("writes");
    file.close();
    bench.drained();
    assert!(!bench.there("one").exists());
    assert_eq!(fs::read(bench.there("d/three")).expect("reads"), b"Second");
    assert_eq!(fs::metadata(bench.there("two")).expect("is there").nlink(), 2);
    assert_eq!(bench.client.link(b"d", b"e").map_err(kind), Err(ErrorKind::Unauthorized));
    assert_eq!(bench.client.link(b"two", b"d").map_err(kind), Err(ErrorKind::Exists));
}

#[test]
fn a_file_rewritten_whole_keeps_its_names_together() {
    let bench = Bench::new();
    bench.write("a", b"old");
    bench.drained();
    bench.client.link(b"a", b"b").expect("links");
    bench.drained();
    bench.write("b", b"entirely new");
    bench.client.rename(b"b", b"c", RenameHow::Replace).expect("renames");
    bench.drained();
    for name in ["a", "c"] {
        assert_eq!(fs::read(bench.there(name)).expect("reads"), b"entirely new", "{name}");
        assert_eq!(fs::metadata(bench.there(name)).expect("is there").nlink(), 2);
    }
    assert!(!bench.there("b").exists());
    bench.client.unlink(b"a").expect("unlinks");
    bench.client.unlink(b"c").expect("unlinks");
    bench.drained();
    assert_eq!(bench.count(), 0);
}

#[test]
fn symbolic_links_are_links_here_and_in_the_directory() {
    let mut bench = Bench::new();
    fs::create_dir(bench.there("real")).expect("makes");
    fs::write(bench.there("real/file"), "bytes").expect("writes");
    std::os::unix::fs::symlink("real", bench.there("old")).expect("links");
    let client = &bench.client;
    assert_eq!(client.stat(b"old").expect("stat").kind, Kind::Symlink);
    assert_eq!(client.read_link(b"old").expect("reads"), b"real");
    assert_eq!(client.stat_through(b"old/file").expect("stat").size, 5);
    let listed = client.through(b"old", true, |path| client.list(path)).expect("lists");
    assert_eq!(listed.len(), 1);
    assert_eq!(client.stat(b"old/file").map_err(kind).err(), Some(ErrorKind::Link));
    let here = |path: &str| Followed::Here(path.as_bytes().to_vec());
    let follow = |path: &str, last| client.follow(path.as_bytes(), last).map_err(kind);
    assert_eq!(follow("old/file", true), Ok(here("real/file")));
    client.make_link(b"real/up", b"../old/./file").expect("links");
    assert_eq!(follow("old/up", true), Ok(here("real/file")));
    assert_eq!(follow("old/up", false), Ok(here("real/up")));
    assert_eq!(follow("old/../none", true), Ok(here("none")));
    assert_eq!(follow("none/../old", true), Err(ErrorKind::NotFound));
    client.make_link(b"loop", b"loop").expect("links");
    assert_eq!(follow("loop", true), Err(ErrorKind::Loop));
    client.make_link(b"out", b"/etc/./hosts").expect("links");
    assert_eq!(follow("out", true), Ok(Followed::Outside(b"/etc/./hosts".to_vec())));
    client.make_link(b"above", b"real/../../x").expect("links");
    assert_eq!(follow("above", true), Ok(Followed::Outside(b"../x".to_vec())));
    let long = vec![b'x'; 4096];
    assert_eq!(client.make_link(b"l", &long).map_err(kind), Err(ErrorKind::NameTooLong));
    assert_eq!(client.read_link(b"real/file").map_err(kind), Err(ErrorKind::Invalid));
    client.rename(b"out", b"moved", RenameHow::Replace).expect("renames");
    client.unlink(b"old").expect("unlinks");
    bench.restart();
    assert_eq!(bench.client.read_link(b"moved").expect("reads"), b"/etc/./hosts");
    bench.drained();
    let says = |name: &str| fs::read_link(bench.there(name)).expect("a link");
    assert_eq!(says("moved"), Path::new("/etc/./hosts"));
    assert_eq!(says("real/up"), Path::new("../old/./file"));
    assert!(fs::symlink_metadata(bench.there("old")).is_err());
    assert!(bench.there("real/file").exists());
}

#[test]
fn two_names_change_places_in_one_step() {
    let mut bench = Bench::new();
    bench.write("a", b"a, long published");
    bench.client.make_directory(b"d", 0o755).expect("makes");
    bench.write("d/b", b"b");
    bench.drained();
    bench.client.rename(b"a", b"d", RenameHow::Exchange).expect("exchanges");
    assert_eq!(bench.read("a/b"), b"b");
    assert_eq!(bench.client.stat(b"d").expect("stat").kind, Kind::File);
    bench.write("new", b"not yet there");
    bench.client.rename(b"new", b"d", RenameHow::Exchange).expect("exchanges");
    bench.restart();
    let missing = bench.client.rename(b"a", b"none", RenameHow::Exchange);
    assert_eq!(missing.map_err(kind), Err(ErrorKind::NotFound));
    let below = bench.client.rename(b"a", b"a/b", RenameHow::Exchange);
    assert_eq!(below.map_err(kind), Err(ErrorKind::Invalid));
    let kept = bench.client.rename(b"new", b"new", RenameHow::Keep);
    assert_eq!(kept.map_err(kind), Err(ErrorKind::Exists));
    bench.drained();
    let read = |name: &str| fs::read(bench.there(name)).expect("reads");
    assert_eq!(read("d"), b"not yet there");
    assert_eq!(read("new"), b"a, long published");
    assert_eq!(read("a/b"), b"b");
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let bench = Bench::new();
    let how = OpenHow { access: 3, unnamed: true, mode: 0o600, ..OpenHow::default() };
    let file = bench.client.open(b"", how).expect("opens");
    file.write(b"made in secret").expect("writes");
    assert_eq!(file.attributes().expect("stat").links, 0);
    assert_eq!(bench.client.list(b"").expect("lists"), []);
    file.link(b"shown").expect("links");
    assert_eq!(file.attributes().expect("stat").links, 1);
    file.close();
    let lost = bench.client.open(b"", how).expect("opens");
    lost.write(&[1; 100_000]).expect("writes");
    lost.close();
    bench.drained();
    assert_eq!(fs::read(bench.there("shown")).expect("reads"), b"made in secret");
    assert_eq!(bench.count(), 1);
    assert_eq!(bench.client.status().expect("status").files, 2);
}

#[test]
fn what_is_renamed_over_again_and_again_is_no_conflict() {
    let bench = Bench::new();
    for round in 0..400u32 {
        bench.write("version", &round.to_le_bytes());
        bench.client.rename(b"version", b"target", RenameHow::Replace).expect("renames");
        if round.is_multiple_of(10) {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    bench.drained();
    assert_eq!(fs::read(bench.there("target")).expect("reads"), 399u32.to_le_bytes());
    assert_eq!(bench.count(), 1);
}

#[test]
fn a_file_that_took_anothers_place_and_left_it_again_holds_up_nothing() {
    let bench = Bench::new();
    let rename = |from: &str, to: &str| {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        bench.client.rename(from, to, RenameHow::Replace).expect("renames");
    };
    bench.write("first", b"first");
    bench.drained();
    let away = bench.target.path().with_extension("away");
    fs::rename(bench.target.path(), &away).expect("moves");
    rename("first", "place");
    bench.write("second", b"second");
    rename("second", "place");
    rename("place", "last");
    fs::rename(&away, bench.target.path()).expect("moves");
    bench.drained();
    assert_eq!(fs::read(bench.there("last")).expect("reads"), b"second");
    assert_eq!(bench.count(), 1);
}

#[test]
fn the_time_of_the_last_write_arrives_also_if_an_older_change_comes_after_it() {
    let Some(disk) = Mount::tmpfs(64) else { return };
    let bench = Bench::to(tempfile::tempdir_in(disk.path()).expect("directory"));
    bench.write("file", b"begun");
    bench.drained();
    // Names stand still until there is room for another one.
    let space = rustix::fs::statvfs(disk.path()).expect("space");
    disk.remount(&format!("nr_inodes={}", space.f_files - space.f_ffree));
    bench.client.make_directory(b"sub", 0o755).expect("makes");
    let change = terral_client::Change { modified_ns: Some(1 << 60), ..Default::default() };
    bench.client.change(b"file", change).expect("changes");
    bench.append("file", b" and ended");
    bench.client.flush().expect("flushes");
    let begin = Instant::now();
    while fs::read(bench.there("file")).expect("reads") != b"begun and ended" {
        assert!(begin.elapsed() < Duration::from_secs(60), "the bytes do not arrive");
        std::thread::sleep(Duration::from_millis(5));
    }
    disk.remount("nr_inodes=10000");
    bench.drained();
    let written = bench.client.stat(b"file").expect("stat").modified_ns;
    let there = fs::metadata(bench.there("file")).expect("stat");
    assert_eq!(there.mtime() as u64 * 1_000_000_000 + there.mtime_nsec() as u64, written);
}

#[test]
fn changes_renames_and_appends_of_many_files_all_arrive() {
    let bench = Bench::new();
    for number in 0..60 {
        bench.write(&format!("a{number}"), b"begun");
    }
    bench.drained();
    for number in 0..60 {
        let [a, b, c] = ["a", "b", "c"].map(|letter| format!("{letter}{number}").into_bytes());
        let change = terral_client::Change { mode: Some(0o640), ..Default::default() };
        bench.client.change(&a, change).expect("changes");
        bench.client.rename(&a, &b, RenameHow::Replace).expect("renames");
        bench.append(&format!("b{number}"), b" and ended");
        bench.client.rename(&b, &c, RenameHow::Replace).expect("renames");
    }
    bench.drained();
    for number in 0..60 {
        let there = bench.there(&format!("c{number}"));
        assert_eq!(fs::read(&there).expect("reads"), b"begun and ended");
        assert_eq!(fs::metadata(&there).expect("stat").mode() & 0o777, 0o640);
    }
}

#[test]
fn what_was_exchanged_is_no_conflict_when_it_changes() {
    let bench = Bench::new();
    bench.write("a", b"a");
    bench.write("b", b"b");
    bench.drained();
    bench.rename("a", "b", RenameHow::Exchange);
    bench.drained();
    bench.append("a", b"+");
    bench.append("b", b"+");
    bench.drained();
    bench.holds(&[("a", "b+"), ("b", "a+")]);
    bench.at_once(|bench| {
        bench.rename("a", "b", RenameHow::Exchange);
        bench.write("new", b"new");
        bench.rename("new", "b", RenameHow::Replace);
    });
    bench.holds(&[("a", "a+"), ("b", "new")]);
}

#[test]
fn a_changed_file_is_found_where_the_directory_has_it_while_its_links_are_owed() {
    let bench = Bench::new();
    bench.write("a", b"begun");
    bench.drained();
    bench.at_once(|bench| {
        bench.append("a", b" and ended");
        bench.link("a", "b");
        bench.unlink("a");
        bench.rename("b", "c", RenameHow::Replace);
        bench.link("c", "d");
    });
    bench.holds(&[("c", "begun and ended"), ("d", "begun and ended")]);
}

#[test]
fn a_file_that_starts_anew_holds_up_no_name() {
    let bench = Bench::new();
    bench.write("a", b"old");
    bench.write("b", b"old, too");
    bench.drained();
    bench.at_once(|bench| {
        bench.rename("a", "c", RenameHow::Replace);
        bench.write("c", b"new");
        bench.rename("c", "d", RenameHow::Replace);
        bench.link("b", "e");
        bench.unlink("b");
        bench.write("e", b"new, too");
        bench.rename("e", "f", RenameHow::Replace);
    });
    bench.holds(&[("d", "new"), ("f", "new, too")]);
}

#[test]
fn what_a_name_of_a_new_file_replaced_does_not_come_back() {
    let bench = Bench::new();
    bench.write("old", b"old");
    bench.write("older", b"older");
    bench.drained();
    bench.at_once(|bench| {
        bench.write("new", b"new");
        bench.link("new", "other");
        bench.rename("other", "old", RenameHow::Replace);
        bench.unlink("old");
        bench.link("new", "other");
        bench.rename("other", "older", RenameHow::Replace);
        bench.rename("older", "last", RenameHow::Replace);
    });
    bench.holds(&[("new", "new"), ("last", "new")]);
}

#[test]
fn a_file_that_starts_anew_and_what_it_replaced_keep_apart() {
    let bench = Bench::new();
    bench.write("a", b"a");
    bench.write("b", b"b");
    bench.write("c", b"c");
    bench.drained();
    bench.at_once(|bench| {
        // Its first name is the one under which the directory has the old bytes.
        bench.write("a", b"A");
        bench.link("a", "x");
        bench.unlink("a");
        bench.write("a", b"again");
        bench.write("b", b"B");
        bench.rename("b", "c", RenameHow::Exchange);
        bench.rename("b", "a", RenameHow::Exchange);
    });
    bench.holds(&[("a", "c"), ("b", "again"), ("c", "B"), ("x", "A")]);
}

#[test]
fn a_directory_takes_the_place_of_a_file_that_starts_anew() {
    let bench = Bench::new();
    bench.client.make_directory(b"d", 0o755).expect("makes");
    bench.write("d/in", b"in");
    bench.write("f", b"old");
    bench.drained();
    bench.at_once(|bench| {
        bench.write("f", b"new");
        bench.rename("d", "f", RenameHow::Exchange);
    });
    assert_eq!(fs::read(bench.there("d")).expect("reads"), b"new");
    assert_eq!(fs::read(bench.there("f/in")).expect("reads"), b"in");
    assert_eq!(bench.count(), 2);
}

#[test]
fn what_somebody_took_from_the_directory_comes_back_when_it_changes() {
    let bench = Bench::new();
    bench.write("a", b"begun");
    bench.drained();
    fs::remove_file(bench.there("a")).expect("removes");
    bench.append("a", b" and ended");
    bench.rename("a", "b", RenameHow::Replace);
    bench.drained();
    bench.holds(&[("b", "begun and ended")]);
}

#[test]
fn small_files_are_the_same_after_they_were_packed_and_after_a_restart() {
    let mut bench = Bench::new();
    let mut model = BTreeMap::new();
    for number in 0..300usize {
        let (name, bytes) = (format!("f{number}"), vec![number as u8; number * 7 % 1500]);
        bench.write(&name, &bytes);
        model.insert(name, bytes);
    }
    bench.drained();
    // They keep their memory for a moment, as they may be opened again.
    let used = || bench.client.status().expect("status").memory_used_bytes;
    let packed = (0..1200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        used() < 150 * 4096
    });
    assert!(packed, "{} bytes of pages for files of which most are small", used());
    for number in (0..300usize).step_by(3) {
        let name = format!("f{number}");
        let file = open(&bench.client, &name);
        file.write_at(b"!", 0).expect("writes");
        file.close();
        let bytes = model.get_mut(&name).expect("known");
        if bytes.is_empty() { bytes.push(b'!') } else { bytes[0] = b'!' }
    }
    bench.restart();
    for (name, bytes) in &model {
        assert_eq!(bench.read(name), *bytes, "{name}");
    }
    bench.drained();
    for (name, bytes) in &model {
        assert_eq!(fs::read(bench.there(name)).expect("reads"), *bytes, "{name}");
    }
}
