//! Logging in by a ticket of Kerberos: who has one does what his line in the list says, and no
//! more; what is over, for somebody else, shown again, damaged or sealed for another server is
//! refused, said in one line and written down. With Debian's KDC, its `kinit`, and `terral`.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod files;
mod house;
mod process;
mod realm;
mod tickets;

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use beside::built;
use files::open;
use house::{begin, text};
use process::{Home, KEYTAB, PRINCIPALS};
use realm::{OTHER, REALM, Realm};
use serde_json::{Value, json};
use terral_client::{Client, Credential, read_credential};
use tickets::{ALICE, ANOTHER, END, damages, dawdles, now_s, repeats};

#[test]
fn role() {
    let roles: &[process::Role] =
        &[("repeats", repeats), ("damages", damages), ("dawdles", dawdles)];
    process::play(128, roles);
}

/// A realm, a server of it that lists principals, and a place for files.
struct House {
    realm: Realm,
    house: house::House,
}

impl Deref for House {
    type Target = house::House;

    fn deref(&self) -> &house::House {
        &self.house
    }
}

fn of_realm(service: &str, realm: &str) -> String {
    format!("{service}@{realm}")
}

impl House {
    /// Alice may read below `in`; the server has keys of both realms, and one of another service.
    fn new() -> Option<Self> {
        let realm = Realm::new()?;
        let own = Realm::service();
        let keys = [of_realm(&own, REALM), of_realm(&own, OTHER), of_realm("host/x", REALM)];
        realm.keytab("keytab", &keys.each_ref().map(String::as_str));
        let house = House { realm, house: house::House::empty() };
        house.lists(&format!("alice read,list below=/in gss {ALICE}\n"));
        Some(house.started())
    }

    fn lists(&self, list: &str) {
        self.write("principals", list.as_bytes());
    }

    fn started(self) -> Self {
        let command = self.server(&self.instance());
        House { house: self.house.started_by(command), ..self }
    }

    /// The command of a server that has the keytab.
    fn server(&self, instance: &Path) -> Command {
        let mut command = process::command("server", instance);
        command.env(PRINCIPALS, self.file("principals")).env(KEYTAB, self.realm.file("keytab"));
        command.envs(self.realm.of_server());
        command
    }

    /// `terral`, with the tickets of somebody.
    fn terral_of(&self, who: &str, arguments: &[&str]) -> Command {
        let mut command = self.terral(arguments);
        command.envs(self.realm.environment(who));
        command
    }

    fn login(&self, who: &str, more: &[&str]) -> Output {
        let words = [&["login", "--kerberos", "-o", "cred"], more].concat();
        let _ = fs::remove_file(self.file("cred"));
        self.terral_of(who, &words).output().expect("terral")
    }

    /// What `terral login` says as it refuses.
    fn refuses(&self, who: &str, more: &[&str], why: &str) {
        let output = self.login(who, more);
        let said = text(&output);
        assert!(!output.status.success() && !self.file("cred").exists(), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{why}: {said}");
    }

    fn logs_in(&self, who: &str, more: &[&str]) -> Credential {
        let output = self.login(who, more);
        assert!(output.status.success(), "{}", text(&output));
        read_credential(&self.file("cred")).expect("is one")
    }

    /// This program, with the tickets of alice, plays a role.
    fn plays(&self, role: &str, more: &[(&str, PathBuf)]) {
        let mut command = process::command(role, &self.instance());
        command.envs(self.realm.environment(ALICE)).env(KEYTAB, self.realm.file("keytab"));
        command.envs(more.iter().map(|(name, value)| (name, value)));
        let output = command.output().expect("starts");
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn who_has_a_ticket_does_what_his_line_says_until_it_is_over() {
    let Some(house) = House::new() else { return };
    house.realm.kinit(ALICE, "30m");
    let owner = Client::connect_with(&house.instance(), None).expect("connects");
    owner.make_directory(b"in", 0o755).expect("makes");
    open(&owner, "in/data").write(b"as it was\n").expect("writes");
    open(&owner, "top").write(b"top\n").expect("writes");
    let begin_s = now_s();
    let credential = house.logs_in(ALICE, &[]);
    assert_eq!(credential.principal.to_string(), "gss:alice");
    let lasts = credential.expires_s() - begin_s;
    assert!((1500..=1800).contains(&lasts), "as long as the ticket: {lasts}");

    let instance = house.instance();
    let script = "cat /terral/in/data; echo x > /terral/in/data; cat /terral/top";
    let run =
        ["-q", "run", "--instance", instance.to_str().expect("text"), "--", "sh", "-c", script];
    let mut run = house.terral_of(ALICE, &run);
    run.env_remove("TERRAL_INSTANCE").env("TERRAL_CREDENTIAL", house.file("cred"));
    let said = text(&run.output().expect("runs"));
    assert!(said.starts_with("as it was\n"), "{said}");
    assert_eq!(said.matches("ermission denied").count(), 2, "{said}");
    let mut whoami = house.terral_of(ALICE, &["whoami", "--json"]);
    let whoami = whoami.env("TERRAL_CREDENTIAL", house.file("cred")).output().expect("terral");
    let whoami: Value = serde_json::from_slice(&whoami.stdout).expect("one object");
    assert_eq!(
        (&whoami["principal"], &whoami["operations"], &whoami["below"]),
        (&json!("gss:alice"), &json!(["read", "list"]), &json!("in"))
    );
    let logout = house.terral_of(ALICE, &["logout", "cred"]).output().expect("terral");
    assert!(logout.status.success(), "{}", text(&logout));
    let brief = house.logs_in(ALICE, &["--for", "10m"]);
    assert!(brief.expires_s() <= now_s() + 600);
    let audit = house.audit().into_iter();
    let what: Vec<Value> = audit.map(|line| line["what"].clone()).collect();
    assert_eq!(what, ["login", "denied", "denied", "logout", "login"]);
    assert_eq!(house.audit()[0]["principal"], "gss:alice");
    let revoke = ["cap", "revoke", "--principal", "gss:alice"];
    let revoke = house.terral_of(ALICE, &revoke).output().expect("terral");
    assert!(revoke.status.success(), "{}", text(&revoke));
    let mut cat = house.terral_of(ALICE, &["cat", "in/data"]);
    let cat = cat.env("TERRAL_CREDENTIAL", house.file("cred")).output().expect("terral");
    assert!(!cat.status.success() && cat.stdout.is_empty(), "{}", text(&cat));
}

#[test]
fn only_who_is_listed_and_speaks_to_this_service_is_let_in() {
    let Some(house) = House::new() else { return };
    let (bob, stranger) = (of_realm("bob", REALM), of_realm("alice", OTHER));
    house.refuses(ALICE, &[], "Kerberos: no ticket: run kinit (No Kerberos credentials");
    assert!(!text(&house.login(ALICE, &[])).contains("capability"), "there is none");
    for who in [ALICE, &bob, &stranger] {
        house.realm.kinit(who, "1h");
    }
    house.refuses(&bob, &[], "bob@TERRAL.TEST: not in the list of principals");
    house.refuses(&stranger, &[], "alice@OTHER.TEST: not in the list of principals");
    house.refuses(ALICE, &["--service", "host@x"], "the ticket is for host/x@TERRAL.TEST");
    house.refuses(ALICE, &["--service", "terral@elsewhere"], "has no key for what the ticket");
    house.refuses(ALICE, &["--service", "terral@nowhere"], "knows no service terral@nowhere");
    let failed = |line: &Value| line["what"] == "login_failed" && line["by"] == "gss";
    assert_eq!(house.audit().iter().filter(|line| failed(line)).count(), 4);
    house.logs_in(ALICE, &[]);

    house.lists("guests list gss *@OTHER.TEST\nbob all gss bob@TERRAL.TEST\n");
    assert_eq!(house.logs_in(&stranger, &[]).principal.to_string(), "gss:guests");
    assert_eq!(house.logs_in(&bob, &[]).principal.to_string(), "gss:bob");
    house.refuses(ALICE, &[], "not in the list");
    let tries = (0..20).take_while(|_| !text(&house.login(ALICE, &[])).contains("too many"));
    assert_eq!(tries.count(), 7, "and one before");
    house.logs_in(&bob, &[]);
}

#[test]
fn a_ticket_that_is_over_is_refused_and_so_are_clocks_that_differ() {
    let Some(house) = House::new() else { return };
    house.realm.kinit(ALICE, "10s");
    let end_s = now_s() + 10;
    assert!(house.logs_in(ALICE, &[]).expires_s() <= end_s);
    house.plays("dawdles", &[(END, end_s.to_string().into())]);
    house.refuses(ALICE, &[], "the ticket is over: run kinit");
    house.realm.kinit(ALICE, "1h");
    house.logs_in(ALICE, &[]);
    house.realm.configure(1);
    house.plays("dawdles", &[]);
    house.realm.configure(300);
    house.logs_in(ALICE, &[]);
}

#[test]
fn a_ticket_is_good_once_and_for_the_server_that_it_was_shown_to() {
    let Some(house) = House::new() else { return };
    house.realm.kinit(ALICE, "1h");
    let another = Home::new();
    let _server = begin(house.server(&another.instance()), &another.instance());
    house.plays("repeats", &[(ANOTHER, another.instance())]);
}

#[test]
fn whatever_bit_is_turned_nobody_is_let_in() {
    let Some(house) = House::new() else { return };
    house.realm.kinit(ALICE, "1h");
    house.plays("damages", &[]);
}

/// The same, with what it says to sockets in a file.
fn traced(command: &Command, calls: &Path) -> Command {
    let mut traced = Command::new("strace");
    // It is what is started here, and strace a child of it.
    traced.args(["-D", "-f", "-q", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o"]);
    traced.arg(calls).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    if let Some(place) = command.get_current_dir() {
        traced.current_dir(place);
    }
    traced.stdin(Stdio::null());
    traced
}

/// What was said to sockets, by who has ended.
fn said_by(calls: &Path) -> String {
    let begin = std::time::Instant::now();
    loop {
        let said = fs::read_to_string(calls).unwrap_or_default();
        if said.lines().last().is_some_and(|line| line.contains("+++")) {
            return said;
        }
        assert!(begin.elapsed().as_secs() < 60, "strace does not end: {said}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_asks_neither_the_realm_nor_a_name_service() {
    let Some(house) = House::new() else { return };
    if !beside::on_path("strace") {
        return;
    }
    house.realm.kinit(ALICE, "1h");
    let (another, calls) = (Home::new(), house.file("calls"));
    let server = begin(traced(&house.server(&another.instance()), &calls), &another.instance());
    let login = house.terral_of(ALICE, &["login", "--kerberos", "-o", "cred"]);
    let asks = house.file("asks");
    let login = traced(&login, &asks).env("TERRAL_INSTANCE", another.instance()).output();
    let login = login.expect("strace");
    assert!(login.status.success(), "{}", text(&login));
    assert!(said_by(&asks).contains("AF_INET"), "who logs in asks the realm");
    drop(server);
    let said = said_by(&calls);
    assert!(!said.contains("AF_INET"), "{said}");
}

#[test]
fn what_cannot_be_used_is_said() {
    let Some(house) = House::new() else { return };
    house.realm.kinit(ALICE, "1h");
    let (to, list, keytab) =
        (house.file("to"), house.file("principals"), house.realm.file("keytab"));
    let [to, list, keys] = [&to, &list, &keytab].map(|path| path.to_str().expect("text"));
    let serves = |keys: &str, why: &str| {
        let words =
            ["serve", "--name", "gss-none", "--to", to, "--principals", list, "--keytab", keys];
        let output = house.terral_of(ALICE, &words).output().expect("terral");
        let said = text(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(why) && said.trim().lines().count() == 1, "{why}: {said}");
    };
    house.write("empty", b"");
    house.write("noise", b"no keytab at all, and long enough for one");
    let [none, empty, noise] = ["none", "empty", "noise"].map(|name| house.file(name));
    serves(none.to_str().expect("text"), "No such file");
    serves(house.path().to_str().expect("text"), "no file");
    serves(empty.to_str().expect("text"), "no keytab with a key");
    serves(noise.to_str().expect("text"), "no keytab with a key");
    fs::set_permissions(&keytab, fs::Permissions::from_mode(0o644)).expect("changes");
    serves(keys, "others can read it");
    house.refuses(ALICE, &[], "others can read it");
    fs::set_permissions(&keytab, fs::Permissions::from_mode(0o600)).expect("changes");
    house.logs_in(ALICE, &[]);

    let plain = process::Bench::new();
    let mut login = house.terral_of(ALICE, &["login", "--kerberos", "-o", "cred2"]);
    let login = login.env("TERRAL_INSTANCE", plain.instance()).output().expect("terral");
    assert!(
        text(&login).contains("terral serve --principals FILE --keytab FILE"),
        "{}",
        text(&login)
    );
}

#[test]
fn a_run_has_keys_as_a_server_that_stays_has() {
    let Some(house) = House::new() else { return };
    house.realm.kinit(ALICE, "1h");
    let [to, list, keys] = [house.file("to"), house.file("principals"), house.realm.file("keytab")];
    let [to, list, keys] = [&to, &list, &keys].map(|path| path.to_str().expect("text"));
    let script = "$TERRAL login --kerberos -o own.cred && \
                  TERRAL_CREDENTIAL=$PWD/own.cred $TERRAL whoami";
    let host = Realm::service();
    let service = host.replacen('/', "@", 1);
    let mut run = house
        .terral_of(ALICE, &["-q", "run", "--to", to, "--memory", "128M", "--principals", list]);
    run.args(["--keytab", keys, "--service", &service, "--", "sh", "-c", script]);
    run.env_remove("TERRAL_INSTANCE").env("TERRAL", built("terral"));
    let said = text(&run.output().expect("runs"));
    assert!(said.contains("principal   gss:alice"), "{said}");
}
