//! Update ids of a file that programs of three machines have open: they count in it, and each count
//! counts once, whoever is killed; a plain write on any machine makes a write on condition fail.

use terral_format::ErrorKind;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{Reply, Request};
use terral_format::wire::updates::Update;

use super::Peers;
use super::bytes::Open;
use super::locks::WRITE;
use crate::sim::updating::{next_call, records};

type Done = std::result::Result<u64, ErrorKind>;

fn say(peers: &mut Peers, open: Open, (what, records): (Update, &[u8])) -> Done {
    let asked = FarFile::Update { of: open.handle(), what, records };
    match peers.ask(open.at, Request::Far(asked)) {
        Ok(Reply::Updated(id)) => Ok(id),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.kind),
    }
}

fn look(peers: &mut Peers, open: Open) -> u64 {
    say(peers, open, (Update::Look, &[])).expect("it has one")
}

fn write(peers: &mut Peers, open: Open, seen: u64, writes: &[(u64, &[u8])]) -> Done {
    let what = Update::Write { seen, strips: true, token: 0, call: next_call() };
    say(peers, open, (what, &records(writes)))
}

/// The same file, born on the first of three, open on all.
fn opened(seed: u64) -> (Peers, [Open; 3]) {
    let mut peers = Peers::new(seed, 3);
    peers.create(0, b"a").expect("made");
    let open = [0, 1, 2].map(|at| peers.open(at, b"a", WRITE).expect("opened"));
    peers.write(open[0], Some(0), &[0; 16]).expect("written");
    (peers, open)
}

fn counted(peers: &mut Peers, open: Open) -> u64 {
    let read = peers.read(open, 0, 8).expect("read");
    u64::from_le_bytes(read.try_into().expect("eight"))
}

#[test]
fn each_count_counts_once_whoever_is_killed() {
    for (moment, whose) in (0..14).flat_map(|moment| [(moment, 0), (moment, 1), (moment, 2)]) {
        let (mut peers, open) = opened(moment + 1);
        for turn in 0..9u64 {
            let mine = open[turn as usize % 3];
            // Another one counts in between now and then.
            let id = look(&mut peers, mine);
            let count = counted(&mut peers, mine);
            match whose {
                0 => peers.sims[0].kill_at(moment as i64),
                1 => peers.sims[0].kill_at_bytes(moment as i64),
                _ => peers.sims[mine.at].kill_at(moment as i64),
            }
            let (at, more) = (8, [turn as u8; 8]);
            let mut done =
                write(&mut peers, mine, id, &[(0, &(count + 1).to_le_bytes()), (at, &more)]);
            while let Err(kind) = done {
                assert_eq!(kind, ErrorKind::Changed);
                let id = look(&mut peers, mine);
                assert_eq!(counted(&mut peers, mine), turn, "at {moment} of {whose}");
                let next = (turn + 1).to_le_bytes();
                done = write(&mut peers, mine, id, &[(0, &next), (at, &more)]);
            }
            let other = open[(turn as usize + 1) % 3];
            assert_eq!(counted(&mut peers, other), turn + 1, "at {moment} of {whose}");
            assert_eq!(peers.read(other, 8, 8).expect("read"), more);
            let late = write(&mut peers, other, id, &[(0, &[99; 8])]);
            assert_eq!(late, Err(ErrorKind::Changed), "at {moment} of {whose}");
        }
    }
}

#[test]
fn a_plain_write_of_any_machine_makes_it_fail_also_into_what_it_has_alone() {
    for (by, lent) in (0..3).flat_map(|by| [(by, false), (by, true)]) {
        let (mut peers, open) = opened(by as u64 + 20);
        if lent && by > 0 {
            // Its second chunk is this machine's alone, until somebody looks.
            let asked = FarFile::Borrow { of: open[by].handle(), first: 1, count: 1 };
            let reply = peers.ask(by, Request::Far(asked)).expect("answered");
            assert!(matches!(reply, Reply::Lent(_)), "it is lent");
        }
        for mine in open {
            let id = look(&mut peers, mine);
            peers.write(open[by], Some(12), &[by as u8; 4]).expect("written");
            let done = write(&mut peers, mine, id, &[(0, &[7; 8])]);
            assert_eq!(done, Err(ErrorKind::Changed), "{by}, {}", mine.at);
            let id = look(&mut peers, mine);
            assert_eq!(look(&mut peers, open[by]), id, "nothing has changed");
            write(&mut peers, mine, id, &[(0, &[8; 8])]).expect("nothing has changed");
            let read = peers.read(open[by], 0, 16).expect("read");
            assert_eq!((&read[..8], &read[12..]), (&[8; 8][..], &[by as u8; 4][..]));
        }
    }
}
