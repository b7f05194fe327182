//! Containers: who has logged in may at a path what its container says, and no way around leads
//! past that; what is denied ends for files that are open, and for nobody else; and a server that
//! is killed knows all of it. With `terral`, keys of OpenSSH, and real programs.
#![cfg(not(loom))]

mod beside;
mod files;
mod house;
mod keys;
mod process;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Output, Stdio};

use files::{WRITE, open};
use house::{House, text};
use keys::{private, public};
use serde_json::{Value, json};
use terral_client::transactions::Transaction;
use terral_client::{
    Change, Client, ErrorKind, OpenHow, RenameHow, access, authorize, read_credential,
};

/// To read what is there.
const READ: OpenHow = OpenHow { access: access::READ as u8, create: false, ..WRITE };
/// Who is listed, by the number of his key, and what his line says.
const PEOPLE: [(&str, &str); 4] = [
    ("alice", "all"),
    ("pilot", "read,list,write,create,remove"),
    ("eve", "read,list,write,create,remove"),
    ("bound", "all below=/results"),
];

#[test]
fn role() {
    process::play(128, &[]);
}

impl House {
    /// With files in `results`, `other` and the root.
    fn new() -> Self {
        let house = House::empty();
        let line = |(at, (name, may)): (usize, &(&str, &str))| {
            format!("{name} {may} key {}\n", public(at as u8 + 1))
        };
        let list: String = PEOPLE.iter().enumerate().map(line).collect();
        house.write("principals", &list);
        let house = house.started();
        for (at, (name, _)) in PEOPLE.iter().enumerate() {
            let key = format!("key{at}");
            house.write(&key, private(at as u8 + 1));
            house.ask(&["login", "-q", "--key", &key, "-o", name]);
        }
        let owner = house.owner();
        for path in ["results", "results/deep", "other"] {
            owner.make_directory(path.as_bytes(), 0o777).expect("makes");
        }
        for path in ["results/deep/data", "results/data", "other/f", "top"] {
            open(&owner, path).write(format!("{path}\n").as_bytes()).expect("writes");
        }
        house
    }

    /// A client that acts as somebody.
    fn acts(&self, who: &str) -> Client {
        let credential = read_credential(&self.file(who)).expect("is one");
        let issued = authorize(&self.instance(), &credential, false).expect("is good");
        Client::connect_with(&self.instance(), Some(issued)).expect("connects")
    }

    /// `terral container`, as the server's user.
    fn container(&self, arguments: &str) -> String {
        let words = arguments.split(' ');
        self.ask(&std::iter::once("container").chain(words).collect::<Vec<_>>())
    }

    /// The same as somebody else: what it says in one line as it is refused, or nothing.
    fn tries(&self, who: &str, arguments: &str) -> String {
        let words: Vec<&str> = std::iter::once("container").chain(arguments.split(' ')).collect();
        let mut command = self.terral(&words);
        let output = command.env("TERRAL_CREDENTIAL", self.file(who)).output().expect("terral");
        let said = text(&output);
        assert_eq!(output.status.success(), said.is_empty(), "{said}");
        assert!(said.lines().count() <= 1, "{said}");
        said
    }

    /// A shell script of a program that acts as somebody, or as the server's user.
    fn acting(&self, who: Option<&str>, script: &str) -> Output {
        self.run(who.map(|who| self.file(who)).as_deref(), script)
    }

    /// Which of these commands are refused to him for want of permission; nothing else is.
    fn refused(&self, who: &str, commands: &[&str]) -> Vec<String> {
        let one = |command: &&str| {
            format!(
                "if said=$( ( cd /terral; {command} ) 2>&1 ); then :; else case \"$said\" in \
                 *'ermission denied'*) echo \"{command}\";; *) echo \"other: {command}: $said\";; \
                 esac; fi\n"
            )
        };
        let script: String = commands.iter().map(one).collect();
        let said = text(&self.acting(Some(who), &script));
        said.lines().map(str::to_owned).collect()
    }

    fn all_refused(&self, who: &str, commands: &[&str]) {
        assert_eq!(self.refused(who, commands), commands, "{who}");
    }

    fn none_refused(&self, who: &str, commands: &[&str]) {
        assert_eq!(self.refused(who, commands), [""; 0], "{who}");
    }

    fn audited(&self, what: &str) -> Vec<Value> {
        self.audit().into_iter().filter(|line| line["what"] == what).collect()
    }
}

fn kind<T>(done: terral_client::Result<T>) -> Result<(), ErrorKind> {
    done.map(drop).map_err(|error| error.kind)
}

const DENIED: Result<(), ErrorKind> = Err(ErrorKind::Denied);

#[test]
fn who_has_logged_in_may_what_the_innermost_container_says() {
    let house = House::new();
    house.container(
        "create results --at /terral/results --owner key:alice --allow key:pilot=read,list",
    );
    let reads = ["cat results/data", "ls results", "stat results/deep/data", "cat < results/data"];
    let changes = [
        "echo x > results/data",
        "echo x >> results/new",
        "mkdir results/d",
        "rm -f results/data",
        "chmod 600 results/data",
        "ln -s x results/link",
        "truncate -s 0 results/data",
        "touch results/data",
    ];
    house.none_refused("pilot", &reads);
    house.all_refused("pilot", &changes);
    house.all_refused("eve", &[&reads[..], &changes].concat());
    house.none_refused("eve", &["ls", "echo x > other/f", "mkdir mine", "rm other/f"]);
    house.none_refused("alice", &[&reads[..], &changes[..3], &["rm results/new"]].concat());
    let own = text(&house.acting(None, "cd /terral; echo own > results/own; cat results/own"));
    assert_eq!(own, "own\n", "the server's user is not asked");

    // One further in counts for itself, whoever owns the one around it.
    house.container("create in --at results/deep --owner key:eve --allow others=list");
    house.none_refused("eve", &["cat results/deep/data", "echo x > results/deep/x"]);
    house.none_refused("alice", &["stat results/deep", "cat results/data"]);
    house.all_refused("alice", &["cat results/deep/data", "rm -f results/deep/x"]);
    house.all_refused("eve", &["cat results/data", "ls results"]);
    house.container("rm in");
    house.none_refused("pilot", &["cat results/deep/data"]);
    house.all_refused("eve", &["cat results/deep/data"]);
    house.container("rm results");
    house.none_refused("eve", &["cat results/data", "rm results/data"]);
}

#[test]
fn the_runs_own_has_a_list_once_one_is_set() {
    let house = House::new();
    house.none_refused("pilot", &["echo x > other/new"]);
    house.container("set default --allow others=read,list --allow key:eve=list");
    house.none_refused("pilot", &["cat top"]);
    house.all_refused("pilot", &["echo x > other/more", "rm -f top"]);
    house.all_refused("eve", &["cat top"]);
    house.container("create results --at results --allow key:pilot=read,list,write,create");
    house.container("set default --deny others");
    house.all_refused("pilot", &["cat top", "ls other"]);
    house.none_refused("pilot", &["echo x > results/new", "cat results/data", "ls -d /terral"]);
    house.container("rm default");
    house.none_refused("pilot", &["cat top", "echo x > other/more"]);
}

#[test]
fn no_way_around_leads_past_a_container() {
    let house = House::new();
    house.container("create results --at results --owner key:alice --allow key:pilot=read,list");
    house.none_refused("eve", &["ln -s ../results/data other/link", "ln -s results way"]);
    house.all_refused(
        "eve",
        &[
            "cat other/../results/data",
            "cat ./other/.././results/deep/../data",
            "cat other/link",
            "cat way/data",
            "echo x > other/link",
            "ls way/",
            "ln results/data other/hard",
            "mv results/data other/",
            "mv -n results/data other/",
            "cp other/f results/",
            "mv other/f results/",
            "ln other/f results/hard",
            "mv results elsewhere",
            "rmdir results",
        ],
    );
    house.none_refused("pilot", &["cat way/data", "cat other/link"]);
    house.all_refused("pilot", &["ln results/data other/hard", "mv results/data other/"]);
    // What is in two of them is in both.
    house.none_refused("alice", &["ln results/data other/both"]);
    house.none_refused("eve", &["cat other/both"]);
    house.owner().make_directory(b"above", 0o777).expect("makes");
    house.owner().make_directory(b"above/place", 0o777).expect("makes");
    house.container("create place --at above/place");
    house.all_refused("eve", &["mv above below", "rm -rf above"]);

    let eve = house.acts("eve");
    let exchange = eve.rename(b"results/data", b"other/f", RenameHow::Exchange);
    assert_eq!(kind(exchange), DENIED);
    assert_eq!(kind(eve.rename(b"other/f", b"results/data", RenameHow::Exchange)), DENIED);
    assert_eq!(kind(eve.change(b"results/data", Change::default())), DENIED);
    assert_eq!(kind(eve.xattrs(b"results/data")), DENIED);
    let mut takes = Transaction::begin(&eve);
    takes.rename(b"results/data", b"other/taken", RenameHow::Replace);
    assert_eq!(kind(takes.commit()), DENIED);
    assert_eq!(house.owner().stat(b"results/data").expect("stays").size, 13);
}

/// Who inherits an open file asks for himself.
#[test]
fn a_file_that_was_inherited_open_is_refused_as_any() {
    let house = House::new();
    house.container("create results --at results --allow key:pilot=read,list");
    let script = |who: &str| {
        let credential = house.file(who);
        let credential = credential.display();
        let script = format!(
            "exec 3< /terral/results/data 4>> /terral/results/data 5< /terral/other/f
            TERRAL_CREDENTIAL={credential} sh -c 'cat <&3; echo x | cat >&4; cat <&5'"
        );
        text(&house.acting(None, &script))
    };
    let said = script("pilot");
    assert!(said.starts_with("results/data\n") && said.contains("other/f\n"), "{said}");
    assert_eq!(said.matches("ermission denied").count(), 1, "{said}");
    let said = script("eve");
    assert!(!said.contains("results/data\n") && said.contains("other/f\n"), "{said}");
    assert_eq!(said.matches("ermission denied").count(), 2, "{said}");
    assert_eq!(house.owner().stat(b"results/data").expect("stays").size, 13);
}

/// Writes to a file that it has open, again and again; says what comes of that when it changes.
const WRITER: &str = r#"
import os, sys, time
said, over = sys.argv[1:]
f, last = os.open("/terral/results/w", os.O_RDWR | os.O_CREAT), ""
said = open(said, "w")
while not os.path.exists(over):
    try: os.pwrite(f, b"x" * 100, 0); now = "wrote"
    except OSError as error: now = os.strerror(error.errno)
    if now != last: print(now, file=said, flush=True)
    last = now
    time.sleep(0.005)
"#;

#[test]
fn what_is_denied_ends_for_files_that_are_open_and_for_nobody_else() {
    let house = House::new();
    house.container("create results --at results --allow others=read,list,write,create");
    let [pilot, eve] = ["pilot", "eve"].map(|who| house.acts(who));
    let both = [&pilot, &eve].map(|one| one.open(b"results/data", WRITE).expect("opens"));
    let [own, elsewhere] = [&house.owner(), &pilot].map(|one| open(one, "other/f"));
    let ours = open(&house.owner(), "results/data");
    let use_all = |pilots: Result<(), ErrorKind>| {
        let mut byte = [0];
        assert_eq!(kind(both[0].write_at(b"p", 1)), pilots);
        assert_eq!(kind(both[0].append(b"p")), pilots);
        assert_eq!(kind(both[0].read_at(&mut byte, 0)), pilots);
        both[1].write_at(b"e", 0).expect("others go on");
        both[1].read_at(&mut byte, 0).expect("others go on");
        for file in [&own, &ours] {
            file.write_at(b"o", 2).expect("the server's user goes on");
        }
        elsewhere.write_at(b"p", 3).expect("and so does he elsewhere");
    };
    use_all(Ok(()));
    house.write("writer.py", WRITER);
    let (said, over) = (house.file("said"), house.file("over"));
    let lines = || fs::read_to_string(&said).unwrap_or_default();
    let until = |line: &str| {
        let begin = std::time::Instant::now();
        while !lines().ends_with(line) {
            assert!(begin.elapsed().as_secs() < 60, "{line}: {}", lines());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    std::thread::scope(|threads| {
        let script = format!(
            "python3 {} {} {}",
            house.file("writer.py").display(),
            said.display(),
            over.display()
        );
        let house = &house;
        let runs = threads.spawn(move || house.acting(Some("pilot"), &script));
        until("wrote\n");
        house.container("set results --deny key:pilot");
        use_all(DENIED);
        until("wrote\nPermission denied\n");
        // What he may again he may with what he has open.
        house.container("set results --allow key:pilot=read,list,write");
        use_all(Ok(()));
        until("wrote\nPermission denied\nwrote\n");
        house.container("set results --allow key:pilot=read,list");
        until("wrote\nPermission denied\nwrote\nPermission denied\n");
        both[0].read_at(&mut [0], 0).expect("that he may still");
        assert_eq!(kind(both[0].write_at(b"p", 1)), DENIED);
        fs::write(&over, "").expect("writes");
        let output = runs.join().expect("runs");
        assert!(output.status.success(), "{}", text(&output));
    });
}

/// Says of each call on a file that it has open, once that is denied, which were not refused for
/// want of permission.
const CALLS: &str = r#"
import errno, mmap, os, sys, time
os.chdir("/terral")
f, top = os.open("results/data", os.O_RDWR), os.open("/terral", os.O_RDONLY)
own, itself = os.open("other/own", os.O_RDWR | os.O_CREAT), None
os.read(f, 1)
itself = f"/proc/self/fd/{f}"
print("open", flush=True)
sys.stdin.readline()
def child(act):
    pid = os.fork()
    if pid: return os.waitpid(pid, 0)[1] and act()
    try: act(); os._exit(0)
    except OSError: os._exit(1)
calls = {
    "read": lambda: os.read(f, 1), "pread": lambda: os.pread(f, 1, 0),
    "write": lambda: os.write(f, b"x"), "pwritev": lambda: os.pwritev(f, [b"x"], 0),
    "dup": lambda: os.pread(os.dup(f), 1, 0), "fork": lambda: child(lambda: os.pread(f, 1, 0)),
    "mmap": lambda: mmap.mmap(f, 4), "truncate": lambda: os.ftruncate(f, 1),
    "allocate": lambda: os.posix_fallocate(f, 0, 99), "chmod": lambda: os.fchmod(f, 0o600),
    "copy": lambda: os.copy_file_range(f, own, 4, 0, 0), "sync": lambda: os.fsync(f),
    "send": lambda: os.sendfile(own, f, 0, 4), "again": lambda: os.open(itself, os.O_RDONLY),
    "link": lambda: os.link(itself, "other/linked", follow_symlinks=True),
    "xattr": lambda: os.setxattr(f, "user.a", b"b"), "utime": lambda: os.utime(f, ns=(1, 1)),
    "at": lambda: os.open("results/data", os.O_RDONLY, dir_fd=top),
    "stat at": lambda: os.stat("results/data", dir_fd=top),
    "nameless": lambda: os.open("results", os.O_TMPFILE | os.O_RDWR),
    "path": lambda: os.open("results/data", os.O_PATH),
}
for name, call in calls.items():
    try: call(); print("done:", name)
    except OSError as error:
        if error.errno != errno.EACCES: print("other:", name, error)
print("over")
"#;

#[test]
fn no_call_on_a_file_that_is_open_does_what_was_denied() {
    let house = House::new();
    house.container("create results --at results --allow others=read,list,write,create,remove");
    house.write("calls.py", CALLS);
    let (instance, program) = (house.instance(), house.file("calls.py"));
    let (instance, program) = (instance.to_str().expect("text"), program.to_str().expect("text"));
    let mut command =
        house.terral(&["-q", "run", "--instance", instance, "--", "python3", program]);
    command.env_remove("TERRAL_INSTANCE").env("TERRAL_CREDENTIAL", house.file("pilot"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut first = [0; 5];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("it has it open");
    assert_eq!(&first, b"open\n");
    house.container("set results --deny key:pilot");
    child.stdin.take().expect("piped").write_all(b"go\n").expect("it waits");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(text(&output), "over\n");
    let stays = house.owner().stat(b"results/data").expect("stays");
    assert_eq!((stays.size, stays.mode & 0o777), (13, 0o644));
}

#[test]
fn a_server_that_is_killed_knows_the_containers() {
    let house = House::new();
    house.container("create results --at results --owner key:alice --allow others=read,list,write");
    house.container("create gone --at other");
    let pilot = house.acts("pilot");
    let file = pilot.open(b"results/data", OpenHow { create: false, ..WRITE }).expect("opens");
    file.write_at(b"x", 0).expect("writes");
    house.container("set results --deny key:pilot");
    house.container("rm gone");
    house.container("set default --allow others=read,list");
    let before = house.container("list --json");
    let house = house.started();
    assert_eq!(house.container("list --json"), before);
    assert_eq!(kind(file.write_at(b"x", 0)), DENIED);
    assert_eq!(kind(pilot.open(b"results/data", READ)), DENIED);
    house.none_refused("eve", &["cat results/data", "cat other/f"]);
    house.all_refused("eve", &["echo x > other/f", "rm -f results/data"]);
    house.none_refused("alice", &["rm results/data"]);
    house.container("set results --allow key:pilot=list");
    let house = house.started();
    house.none_refused("pilot", &["stat results"]);
    house.all_refused("pilot", &["cat results/deep/data"]);
}

#[test]
fn only_its_owner_and_the_servers_user_change_a_container() {
    let house = House::new();
    house.container("create results --at results --owner key:alice");
    let pilots = house.tries("pilot", "set results --allow key:pilot=read");
    assert!(pilots.contains("ermission denied"), "he may not admin: {pilots}");
    let bounds = house.tries("bound", "set results --allow key:bound=read");
    assert!(bounds.contains("one place"), "{bounds}");
    assert_eq!(house.tries("alice", "set results --allow key:pilot=read,list"), "");
    assert_eq!(house.tries("alice", "create mine --at mine"), "");
    house.container("create theirs --at other --owner key:eve");
    for change in ["set theirs --allow key:alice=read", "rm theirs", "create x --at other/x"] {
        let said = house.tries("alice", change);
        assert!(said.contains("theirs: its owner (key:eve)"), "{said}");
    }
    let said = house.tries("alice", "set default --allow key:alice=read");
    assert!(said.contains("default: its owner"), "{said}");
    let said = house.tries("alice", "create x --at results");
    assert!(said.contains("the place of results"), "{said}");
    let shown: Value = serde_json::from_str(&house.container("show results --json")).expect("one");
    let expected = json!({
        "name": "results", "place": "results", "owner": "key:alice",
        "entries": { "key:pilot": ["read", "list"] }, "quota": null
    });
    assert_eq!(shown, expected);
    let list = house.container("list");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("default  /") && lines[0].ends_with("as his line says"), "{list}");
    assert!(lines[1].starts_with("mine     /mine     key:alice  nobody else"), "{list}");
    assert!(lines[2].ends_with("key:alice  key:pilot=read,list"), "{list}");
    assert_eq!(house.tries("alice", "rm mine"), "");
    let output = house.terral(&["container", "show", "mine"]).output().expect("terral");
    assert!(!output.status.success() && text(&output).contains("mine"), "{}", text(&output));
}

#[test]
fn what_a_container_refuses_and_who_changes_one_is_written_down() {
    let house = House::new();
    house.container("create results --at results --owner key:alice --allow key:pilot=read,list");
    house.all_refused("pilot", &["rm -f results/data", "echo x > results/data"]);
    house.container("rm results");
    let denied = house.audited("denied");
    let named: Vec<_> =
        denied.iter().map(|line| (&line["container"], &line["principal"])).collect();
    assert!(!named.is_empty());
    assert!(named.iter().all(|one| *one == (&json!("results"), &json!("key:pilot"))), "{named:?}");
    assert!(denied.iter().any(|line| line["operations"] == json!(["remove"])), "{denied:?}");
    let changes = house.audited("container");
    let is: Vec<_> = changes.iter().map(|line| (&line["container"], &line["is"])).collect();
    assert_eq!(is, [(&json!("results"), &json!(true)), (&json!("results"), &json!(false))]);
    assert_eq!(changes[0]["owner"], "key:alice");
    assert_eq!(changes[0]["entries"], json!({ "key:pilot": ["read", "list"] }));
}

/// What the server's user hands on is his: no list is asked.
#[test]
fn a_capability_for_a_container_is_for_its_place() {
    let house = House::new();
    house.container("create results --at results --owner key:alice");
    house.ask(&["cap", "get", "--container", "results", "--allow", "read,list", "-o", "c.cap"]);
    let holds = |capability: &Path, path: &str| {
        let mut command = house.terral(&["cat", path]);
        text(&command.env("TERRAL_CAPABILITY", capability).output().expect("terral"))
    };
    let capability = house.file("c.cap");
    assert_eq!(holds(&capability, "results/data"), "results/data\n");
    assert!(holds(&capability, "top").contains("ermission denied"));
    let shown: Value =
        serde_json::from_str(&house.ask(&["cap", "show", "--json", "c.cap"])).expect("one");
    assert_eq!(shown["below"], "results");
}
