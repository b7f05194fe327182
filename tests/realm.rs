//! A realm of Kerberos for tests: Debian's KDC on the loopback interface, with its own ports, keys
//! and files, which are gone when it is dropped.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The realm of most tests, and one that those trust with nothing.
pub const REALM: &str = "TERRAL.TEST";
pub const OTHER: &str = "OTHER.TEST";
/// What all people say to prove who they are.
const PASSWORD: &str = "not much of a secret";
/// It comes up, and each of its programs ends, within this time.
const LONG: Duration = Duration::from_secs(60);

/// Its KDC, and where its files are.
pub struct Realm {
    home: tempfile::TempDir,
    address: SocketAddr,
    kdc: Option<Child>,
}

fn has_all() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/sbin".into());
    let missing = |program: &&str| !places.iter().any(|place| place.join(program).exists());
    let needed = ["krb5kdc", "kadmin.local", "kdb5_util", "kinit", "kvno"];
    let missing: Vec<&str> = needed.into_iter().filter(missing).collect();
    if !missing.is_empty() {
        println!("skipped: {} of Kerberos: not installed", missing.join(", "));
    }
    missing.is_empty()
}

/// One that no other test has: an address of the loopback interface for each process, and a port
/// for each realm in it.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_088);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low.max(1));
    let free = |port: &u16| TcpListener::bind((host, *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed)).take(1000);
    (host, ports.find(free).expect("a free port")).into()
}

fn good(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
}

impl Realm {
    /// One with alice and bob, and `terral` on this machine and elsewhere; and another, with
    /// another alice. `None`, and a word about it, where there is no Kerberos.
    pub fn new() -> Option<Self> {
        if !has_all() {
            return None;
        }
        let home = tempfile::tempdir().expect("directory");
        let mut realm = Realm { home, address: own_address(), kdc: None };
        realm.configure(300);
        for name in [REALM, OTHER] {
            let words = ["-r", name, "create", "-s", "-P", PASSWORD];
            good(&realm.command("kdb5_util").args(words).output().expect("runs"), "kdb5_util");
            realm.add(name, &["alice", "bob"], &[&Realm::service(), "terral/elsewhere", "host/x"]);
        }
        let mut kdc = realm.command("krb5kdc");
        kdc.args(["-n", "-r", REALM, "-r", OTHER, "-P"]).arg(realm.file("pid"));
        let log = fs::File::create(realm.file("kdc.says")).expect("makes");
        kdc.stdout(log.try_clone().expect("one more")).stderr(log);
        realm.kdc = Some(kdc.spawn().expect("starts"));
        let begin = Instant::now();
        while TcpStream::connect(realm.address).is_err() {
            assert!(begin.elapsed() < LONG, "the KDC does not come up");
            sleep(Duration::from_millis(5));
        }
        Some(realm)
    }

    /// As what a server on this machine is known.
    pub fn service() -> String {
        let host = rustix::system::uname();
        format!("terral/{}", host.nodename().to_str().expect("text").to_lowercase())
    }

    /// A file of the realm's.
    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Clocks may differ by so much.
    pub fn configure(&self, clocks_s: u32) {
        let (home, kdc) = (self.home.path().display(), self.address);
        let client = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n\
             \x20dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n\
             \x20qualify_shortname = \"\"\n udp_preference_limit = 1\n clockskew = {clocks_s}\n\
             [realms]\n {REALM} = {{\n  kdc = {kdc}\n }}\n {OTHER} = {{\n  \
             kdc = {kdc}\n }}\n"
        );
        let nobody = format!("[libdefaults]\n default_realm = {REALM}\n clockskew = {clocks_s}\n");
        let own = |realm: &str| {
            format!(
                " {realm} = {{\n  database_name = {home}/{realm}.db\n  \
                 key_stash_file = {home}/{realm}.stash\n  max_life = 1d\n }}\n"
            )
        };
        let server = format!(
            "[kdcdefaults]\n kdc_listen = {kdc}\n kdc_tcp_listen = {kdc}\n\
             [realms]\n{}{}[logging]\n kdc = FILE:{home}/kdc.log\n",
            own(REALM),
            own(OTHER)
        );
        fs::write(self.file("krb5.conf"), client).expect("writes");
        fs::write(self.file("server.conf"), nobody).expect("writes");
        fs::write(self.file("kdc.conf"), server).expect("writes");
    }

    /// What a program needs to be of this realm, with the tickets of somebody.
    pub fn environment(&self, who: &str) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("KRB5_CONFIG", self.file("krb5.conf")),
            ("KRB5_KDC_PROFILE", self.file("kdc.conf")),
            ("KRB5CCNAME", self.file(&format!("tickets-{}", who.replace('/', "-")))),
            ("KRB5RCACHEDIR", self.home.path().into()),
        ]
    }

    /// What a server needs: it is told nothing of where the realm is, nor to leave DNS alone.
    pub fn of_server(&self) -> [(&'static str, PathBuf); 2] {
        [("KRB5_CONFIG", self.file("server.conf")), ("KRB5RCACHEDIR", self.home.path().into())]
    }

    fn command(&self, program: &str) -> Command {
        let sbin = Path::new("/usr/sbin").join(program);
        let mut command = Command::new(if sbin.exists() { sbin } else { program.into() });
        command.envs(self.environment("nobody")).stdin(Stdio::null());
        command.env("LC_ALL", "C");
        command
    }

    fn administrate(&self, realm: &str, query: &str) {
        let done = self.command("kadmin.local").args(["-r", realm, "-q", query]).output();
        good(&done.expect("runs"), query);
    }

    fn add(&self, realm: &str, people: &[&str], services: &[&str]) {
        for one in people {
            self.administrate(realm, &format!("addprinc -pw \"{PASSWORD}\" {one}@{realm}"));
        }
        for one in services {
            self.administrate(realm, &format!("addprinc -randkey {one}@{realm}"));
        }
    }

    /// Writes the keys of services, `terral/HOST@REALM`, to a file that only its owner can read.
    pub fn keytab(&self, name: &str, services: &[&str]) -> PathBuf {
        let file = self.file(name);
        for service in services {
            let realm = service.rsplit_once('@').expect("with its realm").1;
            self.administrate(realm, &format!("ktadd -k {} -norandkey {service}", file.display()));
        }
        file
    }

    /// Somebody, `alice@REALM`, says who he is, and has a ticket for so long.
    pub fn kinit(&self, who: &str, lasting: &str) {
        let mut kinit = self.command("kinit");
        kinit.args(["-l", lasting, who]).envs(self.environment(who)).stdin(Stdio::piped());
        kinit.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut kinit = kinit.spawn().expect("starts");
        let mut asks = kinit.stdin.take().expect("a pipe");
        writeln!(asks, "{PASSWORD}").expect("is asked for it");
        drop(asks);
        good(&kinit.wait_with_output().expect("ends"), "kinit");
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        if let Some(kdc) = &mut self.kdc {
            let _ = kdc.kill();
            let _ = kdc.wait();
        }
    }
}
