//! Capabilities that people hold: a program that was given less does less, whoever made less of it;
//! nobody makes more of it; and what is revoked ends, also for programs that run, and nothing else
//! does. With `terral` and real programs.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // Figures are said.

mod beside;
mod files;
mod process;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use beside::{built, on_path};
use files::{WRITE, open};
use process::Bench;
use terral_client::{
    Caveat, Client, ErrorKind, OpenHow, Operations, Revocation, access, read_capability,
};

/// To read what is there.
const READ: OpenHow = OpenHow { access: access::READ as u8, create: false, ..WRITE };

#[test]
fn role() {
    process::play(128, &[]);
}

/// A server, and a place for files with capabilities.
struct House {
    bench: Bench,
    home: tempfile::TempDir,
}

impl House {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("directory");
        House { bench: Bench::new(), home }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn connect(&self) -> Client {
        Client::connect(&self.bench.instance()).expect("connects")
    }

    /// `terral`, about this server.
    fn terral(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(built("terral"));
        command.args(arguments).current_dir(self.home.path()).stdin(Stdio::null());
        command.env("TERRAL_INSTANCE", self.bench.instance()).env_remove("TERRAL_CAPABILITY");
        command
    }

    /// What `terral` answers.
    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.terral(arguments).output().expect("terral");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// A new capability, in a file of this name.
    fn get(&self, name: &str, narrower: &[&str]) -> PathBuf {
        self.ask(&[&["cap", "get", "-o", name], narrower].concat());
        self.file(name)
    }

    /// A narrower one than is in that file.
    fn attenuate(&self, of: &str, name: &str, narrower: &[&str]) -> PathBuf {
        self.ask(&[&["cap", "attenuate", of, "-o", name], narrower].concat());
        self.file(name)
    }

    /// A shell script of a program that was given this.
    fn script(&self, capability: &Path, script: &str) -> Command {
        let instance = self.bench.instance();
        let instance = instance.to_str().expect("text");
        let mut command =
            self.terral(&["-q", "run", "--instance", instance, "--", "sh", "-c", script]);
        command.env_remove("TERRAL_INSTANCE").env("TERRAL_CAPABILITY", capability);
        command
    }

    fn run(&self, capability: &Path, script: &str) -> Output {
        self.script(capability, script).output().expect("runs")
    }

    /// A client of this process that was given this.
    fn holder(&self, capability: &Path) -> Result<Client, ErrorKind> {
        let held = read_capability(capability).expect("is a capability");
        Client::connect_with(&self.bench.instance(), Some(held)).map_err(|error| error.kind)
    }

    fn audit(&self) -> String {
        fs::read_to_string(self.bench.instance().join("audit")).unwrap_or_default()
    }
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Says of each command of a script whether it was refused, and for nothing but permissions.
fn refusals(commands: &[&str]) -> String {
    let one = |command: &&str| {
        format!(
            "if said=$( ( {command} ) 2>&1 ); then echo \"done: {command}\"; \
             else case \"$said\" in *'ermission denied'*) ;; \
             *) echo \"other: {command}: $said\";; esac; fi\n"
        )
    };
    commands.iter().map(one).collect()
}

#[test]
fn a_program_that_may_only_look_reads_and_changes_nothing() {
    let house = House::new();
    let owner = house.connect();
    open(&owner, "data").write(b"as it was\n").expect("writes");
    owner.make_directory(b"d", 0o755).expect("makes");
    open(&owner, "d/more").write(b"more\n").expect("writes");
    let reader = house.get("reader.cap", &["--allow", "read,list"]);

    let looks =
        house.run(&reader, "cat /terral/data /terral/d/more; ls /terral; wc -c </terral/data");
    assert!(looks.status.success(), "{}", text(&looks));
    assert_eq!(text(&looks), "as it was\nmore\nd\ndata\n10\n");
    let changes = refusals(&[
        "echo x > /terral/data",
        "echo x >> /terral/data",
        "echo x > /terral/new",
        "mkdir /terral/e",
        "rm -f /terral/data",
        "rmdir /terral/d",
        "mv /terral/data /terral/d/",
        "ln -s data /terral/link",
        "ln /terral/data /terral/hard",
        "chmod 600 /terral/data",
        "truncate -s 0 /terral/data",
        "touch /terral/data",
        "cd /terral/d && env -u TERRAL_CAPABILITY sh -c 'echo x > more'",
    ]);
    let tried = house.run(&reader, &changes);
    assert_eq!(text(&tried), "", "nothing but permissions refuses it");
    assert_eq!(house.run(&reader, "cat /terral/data").stdout, b"as it was\n");

    // So does the command line.
    let command = |arguments: &[&str]| {
        let mut command = house.terral(arguments);
        command.env("TERRAL_CAPABILITY", &reader).output().expect("terral")
    };
    assert_eq!(text(&command(&["cat", "data"])), "as it was\n");
    assert_eq!(text(&command(&["ls"])), "d/\ndata\n");
    fs::write(house.file("local"), "x").expect("writes");
    let refused: [&[&str]; 6] = [
        &["put", "local", "new"],
        &["rm", "data"],
        &["mkdir", "e"],
        &["cap", "get"],
        &["cap", "revoke", "--operations", "read"],
        &["stop"],
    ];
    for arguments in refused {
        let output = command(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output));
    }
    assert_eq!(owner.list(b"").expect("lists").len(), 2);
    assert!(house.audit().contains("\"what\":\"denied\""), "{}", house.audit());
}

#[test]
fn the_c_library_may_do_no_more() {
    if !on_path("python3") {
        return;
    }
    let house = House::new();
    open(&house.connect(), "data").write(b"as it was").expect("writes");
    let reader = house.get("reader.cap", &["--allow", "read,list"]);
    let script = "
import ctypes, errno, os, sys
lib = ctypes.CDLL(sys.argv[1], use_errno=True)
lib.terral_connect.restype = ctypes.c_void_p
lib.terral_open.restype = ctypes.c_void_p
lib.terral_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
lib.terral_unlink.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
terral = lib.terral_connect(None)
assert terral, os.strerror(ctypes.get_errno())
assert lib.terral_open(terral, b'data', os.O_RDONLY, 0)
for flags in os.O_WRONLY, os.O_RDWR | os.O_CREAT:
    assert not lib.terral_open(terral, b'data', flags, 0o600)
    assert ctypes.get_errno() == errno.EACCES, ctypes.get_errno()
assert lib.terral_unlink(terral, b'data') == -1 and ctypes.get_errno() == errno.EACCES
";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(built("libterral.so")).env("TERRAL_CAPABILITY", &reader);
    let output = python.env("TERRAL_INSTANCE", house.bench.instance()).output().expect("python3");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn what_is_for_one_place_reaches_nothing_else() {
    let house = House::new();
    let owner = house.connect();
    for directory in [&b"a"[..], b"a/in", b"a/inside", b"out"] {
        owner.make_directory(directory, 0o755).expect("makes");
    }
    for path in ["a/in/file", "a/inside/file", "a/file", "out/file", "top"] {
        open(&owner, path).write(path.as_bytes()).expect("writes");
    }
    owner.make_link(b"a/in/way", b"../file").expect("makes");
    let place = house.get("place.cap", &["--below", "/terral/a/in"]);
    // Often enough that who may would do it without asking.
    let within = "set -e; cd /terral/a/in; cat file; echo; ls
        for i in 1 2 3 4 5 6 7 8; do echo $i > n$i; cat n$i > m$i; done; cat m*
        mkdir d; mv n1 d/; rm n2; ln m3 d/hard; ln -s ../m4 d/soft; cat d/soft; chmod 600 m1
        echo more >> file; cat file; rm -r d; stat -c %F /terral /terral/a";
    let output = house.run(&place, within);
    let expected =
        "a/in/file\nfile\nway\n1\n2\n3\n4\n5\n6\n7\n8\n4\na/in/filemore\ndirectory\ndirectory\n";
    assert_eq!(text(&output), expected);

    let out = refusals(&[
        "cat /terral/a/file",
        "cat /terral/a/inside/file",
        "cat /terral/a/in/way",
        "cat /terral/a/in/../file",
        "ls /terral",
        "ls /terral/a",
        "stat /terral/top",
        "stat /terral/a/inside",
        "echo x > /terral/top",
        "echo x > /terral/a/in/way",
        "echo x > /terral/a/new",
        "mkdir /terral/a/e",
        "rm -f /terral/out/file",
        "mv /terral/a/in/file /terral/a/",
        "mv /terral/a/file /terral/a/in/",
        "ln /terral/a/file /terral/a/in/hard",
        "mv /terral/a/in /terral/a/other",
        "rmdir /terral/a/in",
        "ln -s /terral/top /terral/a/in/up; cat /terral/a/in/up",
    ]);
    assert_eq!(text(&house.run(&place, &out)), "", "nothing but permissions refuses it");
    assert_eq!(owner.stat(b"top").expect("is there").size, 3);

    // Once more within the process: files that are open before go on, as do those of the owner.
    let held = house.holder(&place).expect("connects");
    let file = open(&held, "a/in/file");
    file.write_at(b"A", 0).expect("writes");
    owner.unlink(b"a/in/file").expect("removes");
    file.write_at(&[7; 3 << 20], 0).expect("what it has open is its own");
    for path in [&b"top"[..], b"a/file", b"a/inside/file", b"a"] {
        let refused = held.open(path, READ).map(drop).expect_err("it is elsewhere");
        assert_eq!(refused.kind, ErrorKind::Denied, "{path:?}");
    }
    let apart = house.attenuate("place.cap", "apart.cap", &["--below", "a/in/d"]);
    assert!(house.ask(&["cap", "show", apart.to_str().expect("text")]).contains("/a/in/d"));
    let nothing = house.terral(&["cap", "attenuate", "place.cap", "--below", "out"]);
    let nothing = { nothing }.output().expect("terral");
    assert!(!nothing.status.success() && text(&nothing).contains("nothing would be left"));
}

#[test]
fn nobody_makes_more_of_one() {
    let house = House::new();
    let owner = house.connect();
    open(&owner, "data").write(b"x").expect("writes");
    let reader = house.get("reader.cap", &["--allow", "read,list", "--for", "1h"]);
    assert_eq!(fs::metadata(&reader).expect("is there").permissions().mode() & 0o777, 0o600);

    // Narrowing it does not widen it.
    let more = house.terral(&["cap", "attenuate", "reader.cap", "--allow", "write"]).output();
    assert!(!more.expect("terral").status.success());
    let more = ["--allow", "read,write,admin", "--for", "9h", "--json"];
    let more: serde_json::Value = serde_json::from_str(&{
        let mut command = house.terral(&["cap", "attenuate", "-"]);
        command.args(more).stdin(fs::File::open(&reader).expect("opens"));
        String::from_utf8(command.output().expect("terral").stdout).expect("text")
    })
    .expect("one object");
    let shown: serde_json::Value =
        serde_json::from_str(&house.ask(&["cap", "show", "--json", "reader.cap"])).expect("JSON");
    assert_eq!(
        (&more["operations"][0], more["operations"].as_array().map(Vec::len)),
        (&"read".into(), Some(1))
    );
    assert_eq!((&more["until_s"], &more["serial"]), (&shown["until_s"], &shown["serial"]));
    let secret = fs::read_to_string(&reader).expect("reads");
    assert!(
        !house.ask(&["cap", "show", "reader.cap"]).contains(&secret.trim()[secret.len() - 65..])
    );

    // Neither does writing over it.
    let good = read_capability(&reader).expect("is one");
    let mut widened = good.clone();
    widened.caveats.clear();
    let mut longer = good.clone();
    longer.caveats.pop();
    let mut forged = good.clone();
    forged.grant.expires_s += 1;
    let mut other = good.clone();
    other.caveats[0] = Caveat::Only(Operations::ALL);
    for bad in [widened, longer, forged, other] {
        let file = house.file("bad.cap");
        fs::write(&file, bad.text().expect("text")).expect("writes");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changes");
        assert_eq!(house.holder(&file).map(drop), Err(ErrorKind::Unauthorized));
        let output = house.run(&file, "cat /terral/data");
        assert!(!output.status.success() && output.stdout.is_empty(), "{}", text(&output));
    }
    assert!(house.audit().contains("\"what\":\"refused\""), "{}", house.audit());
    let other = House::new();
    assert_eq!(other.holder(&reader).map(drop), Err(ErrorKind::Unauthorized), "of another server");
}

#[test]
fn a_program_whose_capability_cannot_be_read_does_nothing() {
    let house = House::new();
    open(&house.connect(), "data").write(b"x").expect("writes");
    let reader = house.get("reader.cap", &["--allow", "read,list"]);
    let text_of = fs::read_to_string(&reader).expect("reads");
    let open_to_all = house.file("open.cap");
    fs::write(&open_to_all, &text_of).expect("writes");
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o644)).expect("changes");
    let cut = house.file("cut.cap");
    let mut how = fs::OpenOptions::new();
    let how = std::os::unix::fs::OpenOptionsExt::mode(how.write(true).create(true), 0o600);
    how.open(&cut).expect("opens").write_all(&text_of.as_bytes()[..90]).expect("writes");
    for bad in [open_to_all, cut, house.file("none.cap")] {
        let output = house.run(&bad, "cat /terral/data; echo x > /terral/new");
        let said = text(&output);
        assert!(said.contains("TERRAL_CAPABILITY") && output.stdout.is_empty(), "{said}");
        assert!(!said.contains(&text_of[60..90]), "no secret is said: {said}");
    }
    assert_eq!(house.connect().list(b"").expect("lists").len(), 1);
}

#[test]
fn one_dies_at_its_time() {
    let house = House::new();
    open(&house.connect(), "data").write(b"x").expect("writes");
    let brief = house.get("brief.cap", &["--for", "3s"]);
    let held = house.holder(&brief).expect("lasts");
    let file = held.open(b"data", WRITE).expect("opens");
    let begin = Instant::now();
    let refused = loop {
        if let Err(error) = file.write_at(b"y", 0) {
            break error.kind;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "it never ends");
    };
    assert_eq!(refused, ErrorKind::Unauthorized);
    assert!(begin.elapsed() > Duration::from_secs(1), "not before its time");
    assert_eq!(house.holder(&brief).map(drop), Err(ErrorKind::Unauthorized));
}

#[test]
fn one_outlives_the_server_and_what_was_revoked_stays_so() {
    let mut house = House::new();
    open(&house.connect(), "data").write(b"x").expect("writes");
    let kept = house.get("kept.cap", &["--allow", "read,list"]);
    let gone = house.get("gone.cap", &[]);
    let older = house.get("older.cap", &[]);
    let runs = house.holder(&gone).expect("is good");
    house.ask(&["cap", "revoke", "gone.cap"]);
    house.ask(&["cap", "revoke", "--operations", "write,remove"]);
    for _ in 0..2 {
        assert_eq!(runs.stat(b"data").map(|seen| seen.size), Ok(1), "names are in shared memory");
        assert_eq!(runs.unlink(b"data").expect_err("revoked").kind, ErrorKind::Unauthorized);
        assert_eq!(house.holder(&gone).map(drop), Err(ErrorKind::Unauthorized));
        house.holder(&kept).expect("goes on").open(b"data", READ).expect("reads");
        let older = house.holder(&older).expect("reads still");
        assert_eq!(older.unlink(b"data").expect_err("revoked").kind, ErrorKind::Denied);
        assert_eq!(
            older.open(b"data", WRITE).map(drop).expect_err("revoked").kind,
            ErrorKind::Denied
        );
        older.open(b"data", READ).expect("reads");
        // Killed, and started again.
        house.bench.restart();
    }
    house.connect().unlink(b"data").expect("what is issued afterwards is good");
}

#[test]
fn what_was_made_of_one_dies_with_it() {
    let house = House::new();
    let owner = house.connect();
    open(&owner, "data").write(b"x").expect("writes");
    house.get("parent.cap", &[]);
    let child = house.attenuate("parent.cap", "child.cap", &["--for", "1h"]);
    let grandchild = house.attenuate("child.cap", "grandchild.cap", &["--below", "data"]);
    let holders = [&child, &grandchild].map(|file| house.holder(file).expect("is good"));
    let files = holders.each_ref().map(|held| held.open(b"data", READ).expect("reads"));
    let sessions = house.ask(&["cap", "revoke", "--json", "parent.cap"]);
    assert!(sessions.contains("\"sessions\":2"), "{sessions}");
    for (held, file) in holders.iter().zip(&files) {
        let reads = file.read_at(&mut [0; 1], 0);
        assert_eq!(reads.expect_err("revoked").kind, ErrorKind::Unauthorized);
        let opens = held.open(b"data", READ).map(drop);
        assert_eq!(opens.expect_err("revoked").kind, ErrorKind::Unauthorized);
    }
    for dead in [&child, &grandchild] {
        let output = house.run(dead, "cat /terral/data");
        assert!(!output.status.success() && output.stdout.is_empty(), "{}", text(&output));
    }
    owner.unlink(b"data").expect("others go on");
}

#[test]
fn revoked_writing_leaves_readers_alone_and_loses_nothing_that_was_answered() {
    let house = House::new();
    let owner = house.connect();
    open(&owner, "data").write(&[1; 4096]).expect("writes");
    let writer = house.get("writer.cap", &[]);
    let reader = house.get("reader.cap", &["--allow", "read,list"]);
    let reads = "i=0; while [ ! -e /terral/over ]; do cat /terral/data >/dev/null || exit 3
        i=$((i+1)); done; echo $i > READS; exit 0"
        .replace("READS", house.file("reads").to_str().expect("text"));
    let mut reading = house.script(&reader, &reads).spawn().expect("runs");

    let held = house.holder(&writer).expect("is good");
    let stopped = std::thread::scope(|scope| {
        let creator = scope.spawn(|| {
            let mut made = 0;
            while held.open(format!("f{made}").as_bytes(), WRITE).map(|file| file.close()).is_ok() {
                made += 1;
                std::thread::sleep(Duration::from_micros(100));
            }
            made
        });
        let changer = scope.spawn(|| {
            let file = held.open(b"data", WRITE).expect("opens");
            let last = loop {
                if let Err(error) = file.write_at(&[2; 4096], 0) {
                    break error.kind;
                }
            };
            let mut bytes = [0; 1];
            (last, file.read_at(&mut bytes, 0).expect("reading goes on"))
        });
        std::thread::sleep(Duration::from_millis(500));
        house.ask(&["cap", "revoke", "--operations", "write,create,remove"]);
        (creator.join().expect("joins"), changer.join().expect("joins"))
    });
    let (made, last) = stopped;
    assert_eq!(last, (ErrorKind::Denied, 1));
    assert!(made > 10, "{made}");
    let fresh = house.connect();
    for at in 0..made {
        fresh.stat(format!("f{at}").as_bytes()).expect("what was answered is there");
    }
    assert_eq!(fresh.list(b"").expect("lists").len(), made + 1);
    // Whoever is issued one afterwards may write.
    let again = || fs::read_to_string(house.file("reads"));
    assert!(again().is_err() && reading.try_wait().expect("asks").is_none(), "readers go on");
    open(&fresh, "over").close();
    assert!(reading.wait().expect("ends").success());
    assert!(again().expect("was written").trim().parse::<u32>().expect("a number") > 0);
    assert_eq!(owner.unlink(b"data").expect_err("its own, too").kind, ErrorKind::Denied);
}

#[test]
fn what_is_written_down_says_who_and_no_secret() {
    let house = House::new();
    let file = house.get("one.cap", &[]);
    house.ask(&["cap", "revoke", "one.cap"]);
    house.ask(&["cap", "revoke", "--principal", "4294967294"]);
    let (audit, secret) = (house.audit(), fs::read_to_string(&file).expect("reads"));
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("one object")).collect();
    let what: Vec<_> = lines.iter().map(|line| line["what"].as_str().expect("text")).collect();
    assert_eq!(what, ["granted", "revoked", "revoked"], "{audit}");
    let shown = house.ask(&["cap", "show", "--json", "one.cap"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((&lines[0]["serial"], &lines[1]["serial"]), (&shown["serial"], &shown["serial"]));
    assert!(lines.iter().all(|line| line["pid"].as_u64().is_some_and(|pid| pid > 0)));
    let digits = secret.trim().strip_prefix("terral-cap-1:").expect("a capability");
    let parts = digits.as_bytes().chunks(24).skip(2).map(|part| String::from_utf8_lossy(part));
    parts.for_each(|part| assert!(!audit.contains(&*part), "{audit}"));
    let mode = fs::metadata(house.bench.instance().join("audit")).expect("is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
}

#[test]
fn a_thousand_that_were_presented_end_together() {
    let house = House::new();
    open(&house.connect(), "data").write(b"x").expect("writes");
    let parent = house.get("parent.cap", &["--allow", "read,list"]);
    let serial = read_capability(&parent).expect("is one").grant.serial;
    let other = house.connect();
    let holders: Vec<Client> = (0..20).map(|_| house.holder(&parent).expect("is good")).collect();
    let until = u64::from(u32::MAX);
    for (at, held) in holders.iter().enumerate() {
        (0..49).for_each(|more| {
            held.narrow(Caveat::Until(until - more - at as u64 * 50)).expect("narrows");
        });
        held.stat(b"data").expect("looks");
    }
    let begin = Instant::now();
    let revoked = other.revoke(Revocation::Serial(serial)).expect("revokes");
    assert_eq!(revoked, (20, vec![]));
    let answered = begin.elapsed();
    let refused = holders.iter().filter(|held| held.open(b"data", READ).is_err()).count();
    let last = begin.elapsed();
    println!("1,000 presented: revoked in {answered:?}, the last refusal after {last:?}");
    assert_eq!(refused, 20);
    other.open(b"data", READ).expect("others go on");
}
