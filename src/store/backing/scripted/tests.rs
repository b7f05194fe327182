//! What a scripted store promises beyond the suite for every backing: to a test's script.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change};
use terral_format::{Error, ErrorKind, Result};

use super::super::conformance;
use super::super::faulty::{Faults, Faulty};
use super::super::{Backing, Sink, Source};
use super::{Body, Operation, Scripted, Seen};

const INSTANCE: InstanceId = InstanceId(0xabc);
const NOW_NS: u64 = 1_700_000_000_000_000_000;

fn frozen() -> Scripted {
    Scripted::new(|| NOW_NS)
}

fn ticking() -> Scripted {
    let now_ns = AtomicU64::new(NOW_NS);
    Scripted::new(move || now_ns.fetch_add(1, Ordering::Relaxed))
}

fn body(seen: Option<Seen>) -> Option<Vec<u8>> {
    match seen?.body {
        Body::File(bytes) => Some(bytes),
        _ => None,
    }
}

fn attributes(backing: &dyn Backing) -> Result<Attributes> {
    let root = backing.stat(b"")?.attributes;
    Ok(Attributes { kind: terral_format::wire::message::Kind::File, mode: 0o644, ..root })
}

fn publish(backing: &dyn Backing, path: &[u8], bytes: &[u8]) -> Result<()> {
    let attributes = attributes(backing)?;
    let expect = backing.stat(path).ok().map(|found| found.fingerprint);
    let mut staged = backing.stage(Ino(5), INSTANCE)?;
    staged.truncate(0)?;
    staged.write(0, bytes)?;
    staged.publish(path, &attributes, bytes.len() as u64, expect, &mut |_| Ok(())).map(drop)
}

#[test]
fn a_scripted_store_conforms_whatever_its_clock_does_and_wrapped_too() {
    conformance::check(frozen);
    conformance::check(ticking);
    conformance::check_looks(ticking);
    conformance::check(|| ticking().observed(|_| Ok(())));
    conformance::check(|| Faulty::new(ticking(), Faults::default()));
}

#[test]
fn handles_share_the_store_and_what_a_dead_one_staged() {
    let store = ticking();
    let (one, other) = (store.clone(), store.observed(|_| Ok(())));
    publish(&one, b"file", b"bytes").expect("publish");
    assert_eq!(body(other.look(b"file")).as_deref(), Some(&b"bytes"[..]));
    let mut staged = one.stage(Ino(7), INSTANCE).expect("stage");
    staged.write(0, b"half").expect("write");
    drop((staged, one));
    assert_eq!(body(store.staged().remove(&(INSTANCE, Ino(7)))).as_deref(), Some(&b"half"[..]));
    let staged = other.stage(Ino(7), INSTANCE).expect("stage");
    assert_eq!(staged.resumed_bytes(), Some(4));
}

#[test]
fn somebody_else_is_found_out() {
    let store = ticking();
    let server = store.observed(|_| Ok(()));
    publish(&server, b"d/file", b"none").expect_err("no directory");
    let theirs = store.put(b"d/file", b"theirs").expect("put");
    assert_eq!(server.stat(b"d/file").expect("stat").fingerprint, theirs);
    let changed = store.overwrite(b"d/file", 2, b"EI").expect("overwrite");
    assert!(changed.is_as_long(theirs));
    let kind = server.update(b"d/file", theirs).err().map(|error| error.kind);
    assert_eq!(kind, Some(ErrorKind::Busy));
    let staged = server.stage(Ino(5), INSTANCE).expect("stage");
    let like = attributes(&server).expect("root");
    let done = staged.publish(b"d/file", &like, 0, Some(theirs), &mut |_| Ok(()));
    assert_eq!(done.expect("publish").conflict.as_deref(), Some(&b"d/file.theirs-1"[..]));
    assert_eq!(body(store.look(b"d/file.theirs-1")).as_deref(), Some(&b"thEIrs"[..]));
    store.remove(b"d").expect("remove");
    assert!(store.tree().is_empty());
}

#[test]
fn who_comes_between_the_announcement_and_the_name_is_kept() {
    let store = ticking();
    let mut coming = vec![&b"late"[..], b"later"];
    let staged = store.stage(Ino(5), INSTANCE).expect("stage");
    let like = attributes(&store).expect("root");
    let done = staged.publish(b"file", &like, 1, None, &mut |_| {
        coming.pop().map_or(Ok(()), |bytes| store.put(b"file", bytes).map(drop))
    });
    assert_eq!(done.expect("publish").conflict.as_deref(), Some(&b"file.theirs-2"[..]));
    let names = [&b"file"[..], b"file.theirs-1", b"file.theirs-2"];
    let bodies = names.map(|name| body(store.look(name)).expect("is there"));
    assert_eq!(bodies, [&b"\0"[..], b"later", b"late"]);
}

#[test]
fn an_open_file_outlives_its_name_and_then_is_gone() {
    let store = ticking();
    let before = store.put(b"file", b"bytes").expect("put");
    let mut update = store.update(b"file", before).expect("update");
    store.remove(b"file").expect("remove");
    update.write(5, b" more").expect("write");
    let mut buffer = [0; 20];
    assert_eq!(update.read(0, &mut buffer), Ok(10));
    let used = store.space().expect("space");
    drop(update);
    let freed = store.space().expect("space");
    assert!(freed.free_bytes > used.free_bytes && freed.free_files > used.free_files);
}

#[test]
fn an_observer_hears_what_is_done_and_may_delay_it() {
    let now_ns = Arc::new(AtomicU64::new(NOW_NS));
    let (clock, delayed) = (now_ns.clone(), now_ns.clone());
    let store = Scripted::new(move || clock.load(Ordering::Relaxed));
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = heard.clone();
    let server = store.observed(move |call| {
        delayed.fetch_add(call.bytes as u64 * 50, Ordering::Relaxed);
        hears.lock().expect("lock").push((call.operation, call.path.to_vec(), call.bytes));
        Ok(())
    });
    let mut staged = server.stage(Ino(5), INSTANCE).expect("stage");
    staged.write(0, &[7; 1000]).expect("write");
    drop(staged);
    let staged = store.staged().remove(&(INSTANCE, Ino(5))).expect("staged");
    assert_eq!(staged.found.attributes.modified_ns, NOW_NS + 50_000);
    let path = format!(".terral/{:032x}-5", INSTANCE.0).into_bytes();
    let want = [(Operation::Stage, path.clone(), 0), (Operation::Write, path, 1000)];
    assert_eq!(*heard.lock().expect("lock"), want);
}

#[test]
fn every_change_and_nothing_else_shows_in_the_fingerprint() {
    let store = ticking();
    store.put(b"file", b"bytes").expect("put");
    let steps: [(bool, Step); 10] = [
        (true, |b| b.change(b"file", Change { mode: Some(0o644), ..Change::default() }).map(drop)),
        (false, |b| b.change(b"file", Change::default()).map(drop)),
        (true, |b| b.set_xattr(b"file", b"user.x", Some(b"1")).map(drop)),
        (false, |b| b.set_xattr(b"file", b"user.none", None).map(drop)),
        (true, |b| b.link(b"file", b"second").map(drop)),
        (false, |b| b.rename(b"second", b"file").map(drop)),
        (true, |b| b.unlink(b"second")),
        (true, |b| b.rename(b"file", b"moved").and_then(|_| b.rename(b"moved", b"file")).map(drop)),
        (true, |b| {
            b.make_fifo(b"fifo", 0o600)
                .and_then(|()| b.exchange(b"fifo", b"file"))
                .and_then(|()| b.exchange(b"fifo", b"file"))
        }),
        (false, |b| b.read(b"file", 0, &mut [0; 9]).map(drop)),
    ];
    for (number, (changes, step)) in steps.into_iter().enumerate() {
        let before = store.stat(b"file").expect("stat").fingerprint;
        step(&store).expect("step");
        let after = store.stat(b"file").expect("stat").fingerprint;
        assert_eq!(before != after, changes, "step {number}");
    }
}

type Step = fn(&dyn Backing) -> Result<()>;

/// A little of everything. Each step may be done again when it failed.
fn script() -> Vec<Step> {
    vec![
        |b| b.make_directory(b"d", 0o755),
        |b| publish(b, b"d/file", b"first"),
        |b| b.make_link(b"link", b"d/file"),
        |b| b.make_fifo(b"fifo", 0o600),
        |b| b.link(b"d/file", b"second").map(drop),
        |b| {
            let found = b.stat(b"second")?;
            let mut update = b.resume_update(b"second", found.fingerprint)?;
            update.write(3, b"more")?;
            update.truncate(6)?;
            update.finish(&found.attributes).map(drop)
        },
        |b| b.set_xattr(b"second", b"user.x", Some(b"value")).map(drop),
        |b| b.exchange(b"fifo", b"d/file"),
        |b| publish(b, b"d", b"a file where a directory was"),
        |b| b.keep_theirs(b"second", &[], b"d").map(drop),
        |b| b.change(b"d", Change { mode: Some(0o600), ..Change::default() }).map(drop),
        |b| b.rename(b"d", b"renamed").map(drop),
        |b| b.set_aside(b"link").map(drop),
        |b| b.take_back(b"renamed", Ino(5), INSTANCE),
        |b| {
            b.stage(Ino(6), INSTANCE)?.discard();
            b.stage(Ino(7), INSTANCE).map(drop)
        },
        |b| b.unlink(b"fifo"),
        |b| b.remove_directory(b"none"),
        |b| b.clean(INSTANCE),
        |b| b.sync(),
    ]
}

#[test]
fn a_call_that_the_observer_fails_does_nothing_and_can_be_made_again() {
    let reference = frozen();
    script().into_iter().for_each(|step| step(&reference).expect("without faults"));
    let names: Vec<Vec<u8>> = reference.tree().into_keys().collect();
    let want = ["d.theirs-1", "d.theirs-1/file", "link.theirs-1", "second", "second.theirs-1"];
    assert_eq!(names, want.map(|name| name.as_bytes().to_vec()));
    let mut failing = 1;
    loop {
        let store = frozen();
        let count = AtomicU64::new(0);
        let (look, then) = (store.clone(), Arc::new(std::sync::Mutex::new(None)));
        let before = then.clone();
        let server = store.observed(move |call| {
            if count.fetch_add(1, Ordering::Relaxed) + 1 != failing {
                return Ok(());
            }
            *before.lock().expect("lock") = Some((look.tree(), look.staged()));
            Err(Error::new(ErrorKind::Backing, format!("injected: {call:?}")))
        });
        for step in script() {
            if step(&server).is_err() {
                let before = then.lock().expect("lock").clone().expect("only where it is injected");
                assert_eq!((store.tree(), store.staged()), before, "call {failing}");
                step(&server).expect("again");
            }
        }
        assert_eq!((store.tree(), store.staged()), (reference.tree(), reference.staged()));
        if then.lock().expect("lock").is_none() {
            break;
        }
        failing += 1;
    }
    assert!(failing > 30, "the script made only {failing} calls");
}
