//! Tables in which there is no place left: who makes or opens something is told so, all that was
//! made is there, also after the server's death, and what is removed or closed makes room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terral_format::ErrorKind;
use terral_format::ids::Ino;
use terral_format::local::geometry::Geometry;
use terral_format::local::names::index_of;
use terral_format::wire::message::{Request, Target};
use terral_store::backing::scripted::Body;

use super::client::CREATE;
use super::deferring::{Progress, Wish};
use super::{GEOMETRY, Sim};

const INODES: u32 = 1500;

/// Makes a directory without waiting, or else by asking. False: there is no place for it.
fn makes(sim: &mut Sim, client: usize, path: &[u8]) -> bool {
    if let Some(mut begun) = sim.begin(client, Wish::MakeDirectory(path.into())) {
        loop {
            match sim.go_on(&mut begun) {
                Progress::Going | Progress::Happened => {}
                Progress::Over => return true,
                Progress::Refused => break,
            }
        }
    }
    match sim.ask(client, Request::MakeDirectory { path, mode: 0o700 }) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::TooMany, "{error}");
            false
        }
    }
}

fn name(number: usize) -> Vec<u8> {
    format!("d/{number}").into_bytes()
}

fn exists(sim: &mut Sim, client: usize, path: &[u8]) -> bool {
    sim.ask(client, Request::Stat(Target::Path(path))).is_ok()
}

#[test]
fn what_finds_no_place_is_refused_and_what_was_made_stays() {
    for seed in 0..6 {
        let mut sim = Sim::with_geometry(seed, None, None, Geometry { inodes: INODES, ..GEOMETRY });
        let clients = [sim.connect(), sim.connect()];
        clients.iter().for_each(|client| sim.fetch(*client).expect("there is room"));
        assert!(makes(&mut sim, clients[0], b"d"));
        let mut made = 0;
        while makes(&mut sim, clients[made % 2], &name(made)) {
            made += 1;
            if made % 7 == seed as usize % 7 {
                sim.pass(Duration::from_millis(20));
            }
        }
        assert!(made > 1400 && made < INODES as usize, "{made}");
        for client in clients {
            let mut numbers = sim.clients[client].page.page().inos();
            let beyond =
                |number: &AtomicU64| index_of(Ino(number.load(Ordering::SeqCst))) >= INODES;
            assert!(!numbers.any(beyond), "numbers in hand for which there is no place");
        }
        sim.kill();
        for number in 0..made {
            assert!(exists(&mut sim, clients[0], &name(number)), "seed {seed}: {number}");
        }
        sim.ask(clients[1], Request::RemoveDirectory(&name(0))).expect("that needs no place");
        assert!(makes(&mut sim, clients[0], b"d/another"));
        sim.finish();
    }
}

#[test]
fn an_open_that_finds_no_place_is_refused_until_a_closed_file_has_arrived() {
    const FILES: u32 = 100;
    let mut sim = Sim::with_geometry(1, None, None, Geometry { files: FILES, ..GEOMETRY });
    let client = sim.connect();
    let mut open = Vec::new();
    let refusal = loop {
        match sim.open(client, format!("f{}", open.len()).as_bytes(), CREATE) {
            Ok(opened) => open.push(opened),
            Err(error) => break error,
        }
    };
    assert_eq!(refusal.kind, ErrorKind::TooMany, "{refusal}");
    assert!(open.len() > FILES as usize - 5 && open.len() <= FILES as usize, "{}", open.len());
    let first = open.remove(0);
    sim.write(client, first.file, 0, b"stays").expect("that needs no place");
    sim.close(client, first).expect("nor does that");
    sim.pass(Duration::from_secs(30));
    let arrived = sim.dir.look(b"f0").map(|seen| seen.body);
    assert_eq!(arrived, Some(Body::File(b"stays".to_vec())));
    sim.open(client, b"another", CREATE).expect("there is room again");
    sim.finish();
}
