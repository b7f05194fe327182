//! What a process is allowed holds at every request, every deferred change and every read and
//! write, not only when it comes: by what it has presented.
#![cfg(not(loom))]

mod files;
mod process;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use files::{WRITE, open};
use process::Bench;
use terral_client::{Caveat, Client, ErrorKind, Operations};

impl Bench {
    fn connect(&self) -> Client {
        Client::connect(&self.instance()).expect("connects")
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// Calls `act` until it is refused; gives how often it was not, the refusal, and when that came.
fn until_refused(mut act: impl FnMut(usize) -> Result<(), ErrorKind>) -> (usize, ErrorKind) {
    let begin = Instant::now();
    for done in 0.. {
        if let Err(kind) = act(done) {
            return (done, kind);
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it is never refused");
    }
    unreachable!("counts for ever")
}

#[test]
fn what_has_run_out_is_refused_everywhere_and_what_was_answered_before_stays() {
    let bench = Bench::new();
    let (brief, other) = (bench.connect(), bench.connect());
    let file = open(&brief, "held");
    file.write(&[1; 4096]).expect("writes");
    let until = now().as_secs() + 3;
    brief.narrow(Caveat::Until(until)).expect("narrows");

    // Both go on without the server; the one that writes is stopped by it, within a second.
    let (made, written) = std::thread::scope(|scope| {
        let creator = scope.spawn(|| {
            until_refused(|at| {
                let made = brief.open(format!("f{at}").as_bytes(), WRITE);
                std::thread::sleep(Duration::from_micros(200));
                made.map(|file| file.close()).map_err(|error| error.kind)
            })
        });
        let writer = scope.spawn(|| {
            let last = until_refused(|_| {
                file.write_at(&[2; 4096], 0).map(drop).map_err(|error| error.kind)
            });
            (last, now())
        });
        (creator.join().expect("joins"), writer.join().expect("joins"))
    });
    let ((writes, refusal), stopped) = written;
    assert!(stopped >= Duration::from_secs(until), "not before its time");
    let late = stopped - Duration::from_secs(until);
    assert!(late < Duration::from_secs(5), "recalled {late:?} after its end");
    assert_eq!((made.1, refusal), (ErrorKind::Unauthorized, ErrorKind::Unauthorized));
    assert!(made.0 > 10 && writes > 10, "{made:?} {writes}");

    for at in 0..made.0 {
        other.stat(format!("f{at}").as_bytes()).expect("what was answered is there");
    }
    assert_eq!(other.list(b"").expect("lists").len(), made.0 + 1);
    let refused = [
        brief.unlink(b"held"),
        brief.make_directory(b"d", 0o755),
        brief.truncate(b"held", 0),
        brief.rename(b"held", b"elsewhere", Default::default()),
        file.read_at(&mut [0; 16], 0).map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.expect_err("it has run out").kind, ErrorKind::Unauthorized);
    }
    assert_eq!(other.stat(b"held").expect("is there").size, 4096);
}

#[test]
fn a_narrowed_process_defers_nothing_that_it_may_not_do() {
    let mut bench = Bench::new();
    let (narrow, other) = (bench.connect(), bench.connect());
    for at in 0..8 {
        // Who has asked for something a few times may defer.
        narrow.open(format!("f{at}").as_bytes(), WRITE).expect("creates").close();
    }
    let file = open(&narrow, "f0");
    file.write(b"before").expect("writes");
    let looks = Operations::READ.and(Operations::LIST);
    narrow.narrow(Caveat::Only(looks)).expect("narrows");
    for _ in 0..2 {
        let refused = [
            narrow.unlink(b"f1"),
            narrow.open(b"new", WRITE).map(drop),
            file.write(b"after").map(drop),
            file.change(terral_client::Change { mode: Some(0), ..Default::default() }),
        ];
        for refused in refused {
            assert_eq!(refused.expect_err("may only look").kind, ErrorKind::Denied);
        }
        let mut bytes = [0; 6];
        assert_eq!(file.read_at(&mut bytes, 0).expect("may read"), 6);
        assert_eq!(&bytes, b"before");
        assert_eq!(other.list(b"").expect("lists").len(), 8);
        // What was presented outlives the server.
        bench.restart();
    }
    narrow.narrow(Caveat::Until(1)).expect_err("nothing is left of it");
}

#[test]
fn role() {
    process::play(64, &[]);
}
