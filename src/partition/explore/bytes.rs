//! What is on its way between two servers, and what outlives a process, is bytes: a machine knows
//! of another one, and of the one before it, nothing but what these say.

use terral_format::disk::partition::Record;
use terral_format::frame;
use terral_format::wire::body::Body;
use terral_format::wire::peers::Frame;

use crate::durable::Durable;

/// The bytes of a frame.
pub(super) fn written(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes).expect("what a machine sends can be written");
    bytes
}

/// A frame as it arrives.
pub(super) fn carried(frame: &Frame) -> Frame {
    Frame::read(&written(frame)).expect("what a machine sends can be read")
}

/// A record as it is read.
fn written_down(record: &Record) -> Record {
    let bytes = frame::encode(record).expect("a record can be written");
    assert!(bytes.len() < Body::MAX + 1024, "records are short: {record:?}");
    frame::decode(&bytes).expect("a record can be read")
}

/// A step leaves what its records say, but for what clients know, which is so of the process only.
pub(super) fn follows(before: &Durable, now: &Durable) {
    let (mut now, mut after) = (now.clone(), before.clone());
    let records = now.take_changes();
    records.iter().map(written_down).for_each(|record| after.apply(record));
    for durable in [&mut now, &mut after] {
        durable.borrower.clients_know_nothing();
    }
    assert!(after == now, "{records:?} lead to {after:?} and not to {now:?}");
}

/// What a process leaves to the one after it: records.
pub(super) fn kept(durable: &Durable) -> Durable {
    let records = durable.snapshot();
    let kept = Durable::replay(durable.me, durable.server, records.iter().map(written_down));
    assert!(kept == *durable, "{records:?} lead to {kept:?} and not to {durable:?}");
    kept
}
