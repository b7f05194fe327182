//! The registry that etcd keeps does what each registry does: the one suite, on a real etcd, which
//! is killed and stopped. Not here: pools of servers (`pool`), and answers that no etcd gives
//! (`registry`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod etcd_server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_server::EtcdServer;
use rustix::process::Signal;
use terral_format::{Error, ErrorKind};
use terral_registry::conformance;
use terral_registry::etcd::{Etcd, PATIENCE};
use terral_registry::login::Login;
use terral_registry::registry::{Change, Registry, View};

fn registry(url: &str, login: Login) -> Etcd {
    Etcd::new(url.parse().expect("a place"), login).expect("a registry")
}

/// What it answers once it does.
fn in_time(registry: &Etcd) -> View {
    let begin = Instant::now();
    loop {
        match registry.below("/") {
            Ok(view) => return view,
            Err(error) => assert!(begin.elapsed().as_secs() < 60, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn etcd_keeps_what_the_trait_promises() {
    let Some(server) = EtcdServer::here() else { return };
    let registry = registry(&server.url(), Login::default());
    in_time(&registry);
    conformance::all(&registry);
}

#[test]
fn what_etcd_has_said_is_there_after_it_was_killed() {
    let Some(mut server) = EtcdServer::here() else { return };
    let registry = registry(&server.url(), Login::default());
    in_time(&registry);
    let at = registry.commit(&[], &[Change::put("/x", "1")]).expect("done").expect("no guard");
    server.kill();
    assert_eq!(registry.below("/").expect_err("away").kind, ErrorKind::Unreachable);
    let refused = registry.commit(&[], &[Change::put("/x", "2")]).expect_err("away");
    assert!(refused.kind == ErrorKind::Unreachable && refused.context.contains(server.address()));
    server.start();
    let view = in_time(&registry);
    assert_eq!(view.entries.len(), 1);
    assert_eq!((view.entries[0].value.as_slice(), view.entries[0].changed), (&b"1"[..], at));
}

#[test]
fn an_etcd_that_stands_still_is_waited_for_no_longer_than_is_said() {
    let Some(server) = EtcdServer::here() else { return };
    let registry = registry(&server.url(), Login::default());
    in_time(&registry);
    server.signal(Signal::STOP);
    let begin = Instant::now();
    assert_eq!(registry.below("/").expect_err("stopped").kind, ErrorKind::Unreachable);
    assert!(begin.elapsed() < PATIENCE + Duration::from_secs(2), "{:?}", begin.elapsed());
    server.signal(Signal::CONT);
    in_time(&registry);
}

#[test]
fn of_several_members_one_that_answers_will_do() {
    let Some(server) = EtcdServer::here() else { return };
    // Nobody listens at the first.
    let registry = registry(&format!("etcd://127.0.0.1:1,{}", server.address()), Login::default());
    in_time(&registry);
    registry.commit(&[], &[Change::put("/x", "1")]).expect("done").expect("no guard");
}

/// What one says to etcd by its own program's gateway, as its administrator.
fn administer(server: &EtcdServer, path: &str, body: &str) {
    let url = format!("http://{}{path}", server.address());
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--data", body, &url]);
    let output = curl.output().expect("curl");
    assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn who_has_a_password_uses_what_his_role_may_and_nobody_else_does() {
    let Some(server) = EtcdServer::here() else { return };
    in_time(&registry(&server.url(), Login::default()));
    for (path, body) in [
        ("/v3/auth/user/add", r#"{"name":"root","password":"r"}"#),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/user/add", r#"{"name":"pool","password":"secret word"}"#),
        ("/v3/auth/role/add", r#"{"name":"pool"}"#),
        // Base64 of "/p/" and "/p0".
        (
            "/v3/auth/role/grant",
            r#"{"name":"pool","perm":{"permType":"READWRITE","key":"L3Av","range_end":"L3Aw"}}"#,
        ),
        ("/v3/auth/user/grant", r#"{"user":"pool","role":"pool"}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        administer(&server, path, body);
    }
    let nobody = registry(&server.url(), Login::default()).below("/p/").expect_err("refused");
    assert!(nobody.kind == ErrorKind::Denied && nobody.context.contains("--control-login"));
    let user = |password: &str| {
        let user = Some(("pool".to_owned(), password.to_owned()));
        registry(&server.url(), Login { user, ..Login::default() })
    };
    let wrong: Error = user("another").below("/p/").expect_err("refused");
    assert!(!wrong.context.contains("another"), "{wrong}");
    let known = user("secret word");
    known.commit(&[], &[Change::put("/p/x", "1")]).expect("may").expect("no guard");
    assert_eq!(known.below("/p/").expect("may").entries.len(), 1);
    let elsewhere = known.commit(&[], &[Change::put("/q", "1")]).expect_err("may not");
    assert_eq!(elsewhere.kind, ErrorKind::Denied);
}

#[test]
fn with_tls_etcd_is_known_by_its_certificate_and_so_is_who_asks() {
    if !etcd_server::is_installed() {
        return;
    }
    let place = tempfile::tempdir().expect("directory");
    let file = |name: &str| place.path().join(name).display().to_string();
    let openssl = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).current_dir(place.path());
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(
        "new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
        for ca in ca other; do $new -x509 -keyout $ca.key -out $ca.pem -subj /CN=$ca -days 9; done
        for who in etcd pool; do
            $new -keyout $who.key -out $who.csr -subj /CN=$who
            printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' > ext
            openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 \
                -extfile ext -out $who.pem
        done",
    );
    let words = ["--cert-file", &file("etcd.pem"), "--key-file", &file("etcd.key")];
    let clients = ["--client-cert-auth", "--trusted-ca-file", &file("ca.pem")];
    let words: Vec<String> = words.iter().chain(&clients).map(|word| (*word).to_owned()).collect();
    let Some(server) = EtcdServer::with(&words) else { return };
    let url = format!("etcds://{}", server.address());
    let login = |text: &str| {
        let path = place.path().join("login");
        fs::write(&path, text).expect("writes");
        for secret in ["login", "pool.key"] {
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(place.path().join(secret), mode).expect("sets");
        }
        registry(&url, Login::read(&path).expect("a login"))
    };
    let known = login("ca ca.pem\ncertificate pool.pem\nkey pool.key\n");
    in_time(&known);
    conformance::all(&known);
    for refused in ["ca other.pem\ncertificate pool.pem\nkey pool.key\n", "ca ca.pem\n"] {
        login(refused).below("/").expect_err("one of the two is not known");
    }
}
