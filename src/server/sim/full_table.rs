//! A table of names in which there is no place left: who makes something is told so, all that was
//! made is there, also after the server's death, and what is removed makes room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terral_format::ErrorKind;
use terral_format::ids::Ino;
use terral_format::local::names::index_of;
use terral_format::wire::message::{Request, Target};

use super::Sim;
use super::deferring::{Progress, Wish};

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
        let mut sim = Sim::with_inodes(seed, None, INODES);
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
