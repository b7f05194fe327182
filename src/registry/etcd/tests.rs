//! Answers that no etcd gives: whoever is at its address may say anything, and ends nothing here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use terral_format::ErrorKind;

use super::{ANSWER_MAX, Etcd, PATIENCE};
use crate::login::Login;
use crate::registry::{Change, Guard, Lease, Registry, Revision};

/// One who answers each connection so. How often he was asked.
fn answered(by: impl Fn(&mut TcpStream) + Send + 'static) -> (Etcd, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let place = format!("etcd://{}", listener.local_addr().expect("its address"));
    let counts = Arc::new(AtomicUsize::new(0));
    let counted = counts.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, Ordering::SeqCst);
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked);
            by(&mut stream);
        }
    });
    (Etcd::new(place.parse().expect("a place"), Login::default()).expect("made"), counts)
}

/// One who says this to whatever is asked.
fn says(status: &str, body: &str) -> Etcd {
    let (length, body) = (body.len(), body.to_owned());
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    answered(move |stream| drop(stream.write_all(format!("{head}{body}").as_bytes()))).0
}

/// What comes of all that can be asked.
fn kinds(etcd: &Etcd) -> Vec<ErrorKind> {
    let guards = [Guard::Unchanged("/x".into(), Revision(1))];
    [
        etcd.below("/x").map(drop),
        etcd.commit(&guards, &[Change::put("/x", "1")]).map(drop),
        etcd.grant(Duration::from_secs(1)).map(drop),
        etcd.keep(Lease(1)).map(drop),
        etcd.end(Lease(1)),
    ]
    .into_iter()
    .map(|asked| asked.expect_err("no answer of etcd's").kind)
    .collect()
}

#[test]
fn what_is_no_answer_of_etcds_is_an_error() {
    for body in [
        "",
        "garbage",
        "[]",
        "null",
        "{}",
        "{\"header\":7}",
        "{\"header\":{\"revision\":12},\"result\":{\"TTL\":5},\"ID\":7}",
        "{\"header\":{\"revision\":\"-1\"},\"result\":{\"TTL\":\"-1\"},\"ID\":\"-1\"}",
        "{\"header\":{\"revision\":\"99999999999999999999\"},\"result\":\"x\"}",
        "\u{0}\u{1}\u{2}",
    ] {
        let kinds = kinds(&says("200 OK", body));
        assert!(kinds.iter().all(|kind| *kind == ErrorKind::Malformed), "{body}: {kinds:?}");
    }
}

#[test]
fn keys_that_nobody_asked_for_are_none() {
    let header = "\"header\":{\"revision\":\"9\"}";
    for (kvs, more) in [
        // "/y", and not below "/x".
        ("[{\"key\":\"L3k=\",\"mod_revision\":\"3\"}]", "false"),
        ("[{\"key\":\"L3g=\"}]", "false"),
        ("[{\"key\":\"*\",\"mod_revision\":\"3\"}]", "false"),
        ("[{\"key\":\"//8=\",\"mod_revision\":\"3\"}]", "false"),
        ("[{\"key\":\"L3g=\",\"mod_revision\":3}]", "false"),
        ("[{\"key\":\"L3g=\",\"mod_revision\":\"3\"}]", "true"),
        ("{}", "false"),
    ] {
        let etcd = says("200 OK", &format!("{{{header},\"kvs\":{kvs},\"more\":{more}}}"));
        assert_eq!(etcd.below("/x").expect_err("refused").kind, ErrorKind::Malformed, "{kvs}");
    }
    let good = "[{\"key\":\"L3g=\",\"mod_revision\":\"3\"}]";
    let etcd = says("200 OK", &format!("{{{header},\"kvs\":{good},\"unknown\":[]}}"));
    assert_eq!(etcd.below("/x").expect("as etcd says it").entries.len(), 1);
}

#[test]
fn failures_are_said_on_one_line_and_by_what_they_are() {
    let failure = |code| format!("{{\"error\":\"etcdserver: x\\u001b[2J\\ny\",\"code\":{code}}}");
    for (status, code, kind) in [
        ("503 Service Unavailable", 14, ErrorKind::Unreachable),
        ("504 Gateway Timeout", 4, ErrorKind::Unreachable),
        ("500 Internal Server Error", 2, ErrorKind::Unreachable),
        ("403 Forbidden", 7, ErrorKind::Denied),
        ("400 Bad Request", 3, ErrorKind::Invalid),
        ("404 Not Found", 12, ErrorKind::Malformed),
        ("302 Found", 0, ErrorKind::Malformed),
    ] {
        let error = says(status, &failure(code)).below("/").expect_err("failed");
        assert_eq!(error.kind, kind, "{status}");
        assert!(!error.context.contains(char::is_control), "{error}");
    }
    let long = says("503 Service Unavailable", &format!("{{\"error\":\"{}\"}}", "x".repeat(9999)));
    assert!(long.below("/").expect_err("failed").context.len() < 400);
}

#[test]
fn an_answer_that_never_ends_is_read_no_longer_than_is_said() {
    let (etcd, _) = answered(|stream| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut said = stream.write_all(head.as_bytes());
        while said.is_ok() {
            std::thread::sleep(Duration::from_millis(50));
            said = stream.write_all(b"1\r\n \r\n");
        }
    });
    let begin = Instant::now();
    assert_eq!(etcd.below("/").expect_err("too long").kind, ErrorKind::Unreachable);
    assert!(begin.elapsed() < PATIENCE * 2, "{:?}", begin.elapsed());
}

#[test]
fn an_answer_that_is_too_large_is_not_kept() {
    let (etcd, _) = answered(|stream| {
        let length = ANSWER_MAX * 1000;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let mut said = stream.write_all(head.as_bytes());
        while said.is_ok() {
            said = stream.write_all(&[b' '; 1 << 16]);
        }
    });
    etcd.below("/").expect_err("too large");
}

#[test]
fn who_is_cut_off_in_an_answer_has_none() {
    let (etcd, _) = answered(|stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"header\":{\"revision\":\"1\"}";
        let _ = stream.write_all(head.as_bytes());
    });
    let kinds = kinds(&etcd);
    let known = [ErrorKind::Unreachable, ErrorKind::Malformed];
    assert!(kinds.iter().all(|kind| known.contains(kind)), "{kinds:?}");
}

#[test]
fn what_may_have_been_done_is_not_asked_for_again() {
    let (etcd, asked) = answered(|_| ());
    let refused = etcd.commit(&[], &[Change::put("/x", "1")]).expect_err("no answer");
    assert_eq!(refused.kind, ErrorKind::Unreachable);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
