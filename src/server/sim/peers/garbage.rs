//! What another member may say that is none of what members say: frames of running servers and of
//! the golden files, with bits turned, parts cut out and put elsewhere, as a session gives them.
//! They are refused, or heard without harm: nothing panics, and what is said twice takes no more
//! memory than what is said once.
//!
//! Not here: the protocol of loans (`terral_partition`'s `explore/garbage`), and frames that are
//! torn on the way, which sessions find.

use std::time::Duration;

use terral_format::wire::far::{ANSWERS, QUESTIONS};
use terral_format::wire::remembered::Memory;
use terral_format::wire::roster::{Control, Said, Tag};
use terral_format::{Result, frame};

use super::tree::Tree;
use super::walks::act;
use super::{OF_MEMORY, OF_MOVES, Peers, far, linking, member, walk_all};
use crate::core::state::State;
use crate::far::desk::{Desk, Payload};
use crate::far::users;
use crate::members::control;
use crate::sharing::{carrying, moving, restoring, ruling};
use crate::sim::world::Virtual;

/// Questions and answers about files, and what is remembered of a dead member's directories.
const GOLDEN: [&[u8]; 2] = [
    include_bytes!("../../../../tests/golden/far-15.bin"),
    include_bytes!("../../../../tests/golden/remembered-1.bin"),
];
/// Frames that are heard for each that is kept of a walk.
const TIMES: u64 = 300;
/// The most that a frame may add to the tables: what it names.
const NAMED_MAX: usize = 8;

/// Frames as a session gives them, each with its kind first.
fn golden() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (bytes, is_far) in GOLDEN.into_iter().zip([true, false]) {
        let mut rest = bytes;
        while let Ok(one) = frame::read(rest) {
            // Bytes of the file that go with it.
            let more = match is_far && one.rest.starts_with(b"bytes") {
                true => 5,
                false => 0,
            };
            let whole = &rest[..rest.len() - one.rest.len() + more];
            all.push(match is_far {
                true => tagged(whole),
                false => [&[Tag::Memory as u8], one.payload].concat(),
            });
            rest = &one.rest[more..];
        }
        assert!(rest.is_empty(), "all of it is frames");
    }
    all
}

/// What is under way between servers of a walk, as a session would give it.
fn tagged(bytes: &[u8]) -> Vec<u8> {
    if let Some(bytes) = bytes.strip_prefix(OF_MOVES) {
        return bytes.to_vec();
    }
    if let Some(bytes) = bytes.strip_prefix(OF_MEMORY) {
        return bytes.to_vec();
    }
    let tag = match far::said(bytes) {
        Some(far::Said::Question) => Tag::Question,
        Some(far::Said::Answer) => Tag::Answer,
        None => Tag::Protocol,
    };
    [&[tag as u8], bytes].concat()
}

/// Something of two frames, with some bits turned.
fn spoiled(one: &[u8], other: &[u8], draw: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
    let mut below = |most: usize| draw(most.max(1) as u64) as usize;
    let cut = below(one.len() + 1);
    let mut bytes = match below(4) {
        0 => [&one[..cut], &other[cut.min(other.len())..]].concat(),
        1 => [&one[..cut], &[0xff; 5][..below(6)], &one[cut..]].concat(),
        2 => one[..cut].to_vec(),
        _ => one.to_vec(),
    };
    for _ in 0..below(4) {
        let (at, bit) = (below(bytes.len()), below(8));
        bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
    }
    bytes
}

/// The same, of what is inside of frames that say how long they are, and have a checksum.
fn garbled(one: &[u8], other: &[u8], draw: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
    let inside = |bytes: &[u8]| {
        let inner = frame::read(bytes.get(1..)?).ok()?;
        Some((inner.payload.to_vec(), inner.rest.to_vec()))
    };
    let version = match one.first() {
        Some(tag) if *tag == Tag::Question as u8 => QUESTIONS,
        Some(tag) if *tag == Tag::Answer as u8 => ANSWERS,
        _ => return spoiled(one, other, draw),
    };
    match (inside(one), inside(other)) {
        (Some((one_inside, rest)), Some((other_inside, _))) if draw(8) > 0 => {
            let mut bytes = vec![one[0]];
            frame::write(&mut bytes, version, &spoiled(&one_inside, &other_inside, draw));
            bytes.extend(rest);
            bytes
        }
        _ => spoiled(one, other, draw),
    }
}

/// What a server takes of memory for what it knows.
fn known(state: &State) -> usize {
    let places = state.members.iter().flat_map(|members| members.foreign()).count();
    state.names.inodes().count() + places + state.names.resting().len() + state.warnings.len()
}

/// A server hears a frame, as the shell around it does.
fn hears(state: &mut State, desk: &mut Desk, from: usize, bytes: &[u8]) -> Result<()> {
    let (with, now) = (member(from), state.world.now());
    let me = state.members.as_ref().map(|members| members.me()).expect("a member");
    let control = state.members.as_ref().map(|members| members.control()).expect("it has one");
    match Said::read(bytes)? {
        Said::Question(question) => {
            let begin = bytes.len() - question.len();
            let question = users::admit(state, with, Payload::new(bytes.into(), begin))?;
            desk.hear((me, with), question, now).map(drop)
        }
        Said::Answer(answer) => linking::answered(state, with, answer),
        Said::Memory(bytes) => {
            restoring::heard(state, with, Memory::of(bytes)?)?;
            carrying::resume(state)
        }
        Said::Control(Control::Moving(said)) => {
            moving::heard(state, with, said)?;
            carrying::resume(state)
        }
        Said::Control(Control::Roster(rule)) if control == with => {
            ruling::heard(state, *rule)?;
            carrying::resume(state)
        }
        Said::Control(Control::Here(addresses)) if control == me => {
            control::is_at(state, with, addresses)?;
            carrying::resume(state)
        }
        Said::Control(_) | Said::Protocol(_) | Said::Part(_) => Ok(()),
    }
}

/// Gives how many frames were heard, of how many kinds, and how many were refused.
fn walk(seed: u64) -> [u64; 3] {
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let brings = draw(2) == 0;
    let mut peers = if brings { Peers::with_dir(seed, 3) } else { Peers::new(seed, 3) };
    let (mut tree, mut real) = (Tree::default(), golden());
    for _ in 0..60 {
        act(&mut peers, &mut tree, &mut draw);
        real.extend(peers.links.values().flatten().map(|bytes| tagged(bytes)));
    }
    let control = peers.sims[0].with(|server| {
        let state = server.lock();
        let mut rule = ruling::said(&state).expect("a member");
        rule.roster.version += 1;
        let addresses = vec![([127, 0, 0, 1], 7).into()];
        [Control::Roster(Box::new(rule)), Control::Here(addresses)]
    });
    let control = control.expect("it lives").map(|said| said.frame().expect("our own frame"));
    real.extend(control);
    let [mut heard, mut refused] = [0; 2];
    let mut kinds = std::collections::BTreeSet::new();
    let mut desks: Vec<Desk> = (0..3).map(|at| Desk::new(at + 1)).collect();
    for time in 0..TIMES {
        let [one, other] = [(); 2].map(|()| draw(real.len() as u64) as usize);
        let bytes = garbled(&real[one], &real[other], &mut draw);
        let at = draw(3) as usize;
        let from = (at + 1 + draw(2) as usize) % 3;
        let mut hear = |peers: &mut Peers| {
            let desk = &mut desks[at];
            let done = peers.sims[at].with(|server| {
                let mut state = server.lock();
                let before = known(&state);
                let done = hears(&mut state, desk, from, &bytes).is_ok();
                (done, known(&state).saturating_sub(before))
            });
            // What it says then is none of ours.
            peers.collect(at);
            peers.links.clear();
            done.expect("it lives")
        };
        let (is_heard, more) = hear(&mut peers);
        assert!(more <= NAMED_MAX + bytes.len(), "time {time}: {more} more for {bytes:?}");
        let (_, again) = hear(&mut peers);
        assert_eq!(again, 0, "time {time}: it grows with each {bytes:?}");
        (heard, refused) = (heard + u64::from(is_heard), refused + u64::from(!is_heard));
        if is_heard {
            kinds.insert(bytes[0]);
        }
        if time % 16 == 0 {
            peers.pass(Duration::from_millis(draw(2000)));
        }
    }
    [heard, kinds.len() as u64, refused]
}

#[test]
fn whatever_another_member_says_is_refused_or_heard_without_harm() {
    let [heard, kinds, refused] = walk_all(20, walk);
    eprintln!("{heard} frames heard, {refused} refused");
    assert!(heard > 100 && refused > 100 && kinds >= 20 * 3, "{heard} {refused} {kinds}");
}
