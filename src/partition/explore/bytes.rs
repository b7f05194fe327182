//! What is on its way between two servers is bytes: a machine knows of another one nothing but what
//! these say.

use terral_format::wire::peers::Frame;

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
