//! Whatever comes over a connection: bytes that nobody has written, frames that are cut off, turned
//! over, or put together from others. They are refused, or they are frames, which a machine in any
//! state hears without harm to itself. What they do to others: `malice`.

use terral_format::frame::{self, HEADER_BYTES};
use terral_format::ids::{Member, ServerId, Thing};
use terral_format::moment::Moment;
use terral_format::wire::peers::{FRAME_MAX, Frame, Holding, Message, PEERS};

use crate::effect::{Effect, Input, Local};
use crate::machine::Machine;

use super::bounds::TERMS;
use super::bytes::{carried, written};
use super::chance::Chance;
use super::server::{SERVERS, member};
use super::walks::{MUCH, likely};
use super::world::World;

/// How much is tried.
const TIMES: usize = 100_000;
/// Walks whose states and frames it is made of.
const WALKS: u64 = 12;
/// Steps of each.
const STEPS: usize = 600;
/// Of so many steps, one state is kept.
const APART: usize = 20;
/// Memory that a frame takes, at most, for each byte of it.
const MEMORY_PER_BYTE: usize = 48;

/// Any thing may be in use.
struct Any;

impl Local for Any {
    fn in_use(&self, thing: Thing) -> bool {
        matches!(thing, Thing::File(_))
    }
}

/// States of machines, and bytes of frames that were on their way.
#[derive(Default)]
struct Real {
    machines: Vec<(Machine, Moment)>,
    frames: Vec<Vec<u8>>,
}

impl Real {
    fn of_walks() -> Real {
        let mut real = Real::default();
        for seed in 0..WALKS {
            let mut chance = Chance::new(seed);
            let mut world = World::new(MUCH);
            for step in 0..STEPS {
                let Some((step_now, halts)) = likely(&world, &mut chance) else { break };
                world = world.after(step_now, halts).expect("walks break nothing");
                if step % APART == 0 {
                    real.keep(&world);
                }
            }
        }
        real
    }

    fn keep(&mut self, world: &World) {
        for at in 0..SERVERS {
            let machine = world.server(at).machine().cloned();
            self.machines.extend(machine.map(|machine| (machine, world.clock(at))));
            let frames = (0..SERVERS).flat_map(|to| world.wire(at, to));
            self.frames.extend(frames.map(written));
        }
    }
}

/// Turns one to three bits over.
fn turn(bytes: &mut [u8], chance: &mut Chance) {
    if !bytes.is_empty() {
        for _ in 0..=chance.below(3) {
            bytes[chance.below(bytes.len())] ^= 1 << chance.below(8);
        }
    }
}

/// A payload in the place of a real one, in a frame whose header is right.
fn forged(real: &Real, chance: &mut Chance) -> Vec<u8> {
    let one = &real.frames[chance.below(real.frames.len())][HEADER_BYTES..];
    let other = &real.frames[chance.below(real.frames.len())][HEADER_BYTES..];
    let cut = chance.below(one.len() + 1);
    let mut payload = match chance.below(3) {
        0 => one.to_vec(),
        1 => [&one[..cut], &other[cut.min(other.len())..]].concat(),
        _ => [&one[..cut], &[0xff; 5][..chance.below(6)], &one[cut..]].concat(),
    };
    turn(&mut payload, chance);
    let mut bytes = Vec::new();
    frame::write(&mut bytes, PEERS, &payload);
    bytes
}

/// Bytes that nobody sends, and whether they are for certain no frame.
fn garbage(real: &Real, chance: &mut Chance) -> (Vec<u8>, bool) {
    let mut bytes = real.frames[chance.below(real.frames.len())].clone();
    match chance.below(8) {
        0 => ((0..chance.below(300)).map(|_| chance.below(256) as u8).collect(), true),
        1 => {
            bytes.truncate(chance.below(bytes.len()));
            (bytes, true)
        }
        2 => {
            let at = chance.below(bytes.len());
            bytes[at] ^= 1 << chance.below(8);
            (bytes, true)
        }
        _ => (forged(real, chance), false),
    }
}

/// What a frame takes of memory.
fn memory(frame: &Frame) -> usize {
    let inside = |message: &Message| match message {
        Message::Holds { held, .. } => held.capacity() * size_of::<(Thing, Holding)>(),
        _ => 0,
    };
    let bodies = frame::encode(frame).expect("it was read").len();
    let messages = frame.messages.capacity() * size_of::<Message>();
    messages + bodies + frame.messages.iter().map(inside).sum::<usize>()
}

/// Has a machine hear it, as said by who may say something now, if `as_member` is one.
fn hear(machine: &mut Machine, now: Moment, mut frame: Frame, as_member: Option<Member>) {
    if let Some(from) = as_member {
        let durable = machine.durable();
        let server = durable.table.server(from).unwrap_or(ServerId(0));
        let taken = durable.channels.get(&from).map_or(0, |channel| channel.taken());
        frame = Frame { from, server, epoch: durable.table.epoch, before: taken, ..frame };
    }
    let mut effects = machine.handle(now, &Any, Input::Frame(frame));
    effects.extend(machine.handle(now + TERMS.patience, &Any, Input::Tick));
    for at in 0..SERVERS {
        effects.extend(machine.handle(now + TERMS.patience, &Any, Input::Connected(member(at))));
    }
    for effect in effects {
        if let Effect::Send { frame, .. } = effect {
            assert_eq!(carried(&frame), frame, "what it sends then can be read");
        }
    }
    let later = now + TERMS.patience + TERMS.lease;
    let _ = Machine::start(machine.durable().clone(), TERMS, later, &Any);
}

#[test]
#[allow(clippy::print_stdout)] // How much of it was read.
fn whatever_the_bytes_are_they_are_refused_or_heard_without_harm() {
    let (real, mut chance) = (Real::of_walks(), Chance::new(1));
    let (mut read, mut heard) = (0, 0);
    for time in 0..TIMES {
        let (bytes, is_none) = garbage(&real, &mut chance);
        let Ok(frame) = Frame::read(&bytes) else { continue };
        assert!(!is_none, "time {time}: {bytes:?} is read as {frame:?}");
        assert!(memory(&frame) <= bytes.len() * MEMORY_PER_BYTE, "time {time}: {frame:?}");
        read += 1;
        let (machine, now) = &real.machines[chance.below(real.machines.len())];
        let as_member = (chance.below(4) > 0).then(|| member(chance.below(SERVERS)));
        heard += usize::from(as_member.is_some());
        hear(&mut machine.clone(), *now, frame, as_member);
    }
    let states = real.machines.len();
    println!(
        "{read} of {TIMES} read, {heard} heard, {states} states, {} frames",
        real.frames.len()
    );
    assert!(read > TIMES / 20 && heard > TIMES / 40 && states > 300, "{read}, {heard}, {states}");
}

#[test]
fn the_longest_frame_takes_no_more_memory_than_is_said() {
    let holds = Message::Holds { removed: member(0), held: Vec::new(), more: false };
    let frame = super::hostile::frame(member(1), 1, vec![holds; FRAME_MAX / 4 - 30]);
    let bytes = written(&frame);
    let read = Frame::read(&bytes).expect("a frame");
    assert!(bytes.len() > FRAME_MAX - 200 && bytes.len() < FRAME_MAX + HEADER_BYTES);
    assert!(memory(&read) <= bytes.len() * MEMORY_PER_BYTE, "{} of {}", memory(&read), bytes.len());
}
