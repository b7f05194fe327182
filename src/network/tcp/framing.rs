//! How frames, and the word that somebody is there, lie in the stream of a session.
//!
//! Little-endian: length (4), kind (2), zero (2), checksum (8), payload. The checksum is XXH3-64
//! over the first eight bytes and the payload. Whatever else comes is [`Loss::Garbage`]; memory is
//! taken for no more than one frame.
//!
//! [`Loss::Garbage`]: crate::endpoint::Loss::Garbage

use terral_format::frame::Checksum;

use crate::endpoint::FRAME_BYTES;

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 16;
const FRAME: u16 = 1;
const BEAT: u16 = 2;

fn header(kind: u16, payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..6].copy_from_slice(&kind.to_le_bytes());
    let sum = checksum(&header, payload);
    header[8..].copy_from_slice(&sum.to_le_bytes());
    header
}

fn checksum(header: &[u8; HEADER_BYTES], payload: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.update(&header[..8]);
    sum.update(payload);
    sum.value()
}

/// What comes before a frame.
pub(super) fn frame_header(payload: &[u8]) -> [u8; HEADER_BYTES] {
    header(FRAME, payload)
}

/// The word that somebody is there.
pub(super) fn beat() -> [u8; HEADER_BYTES] {
    header(BEAT, &[])
}

/// Puts frames together from what has come.
#[derive(Default)]
pub(super) struct Assembler {
    header: [u8; HEADER_BYTES],
    /// How much of the header has come.
    have: usize,
    payload: Vec<u8>,
}

impl Assembler {
    /// Takes all of `bytes`, and hands on each frame that is whole. Nothing may come after it has
    /// said what is wrong.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        mut hand: impl FnMut(Box<[u8]>),
    ) -> Result<(), &'static str> {
        loop {
            bytes = self.take_header(bytes)?;
            if self.have < HEADER_BYTES {
                return Ok(());
            }
            let missing = self.length() - self.payload.len();
            let (now, rest) = bytes.split_at(missing.min(bytes.len()));
            self.payload.extend_from_slice(now);
            if now.len() < missing {
                return Ok(());
            }
            bytes = rest;
            if let Some(frame) = self.whole()? {
                hand(frame);
            }
        }
    }

    fn length(&self) -> usize {
        u32::from_le_bytes([self.header[0], self.header[1], self.header[2], self.header[3]])
            as usize
    }

    fn kind(&self) -> u16 {
        u16::from_le_bytes([self.header[4], self.header[5]])
    }

    /// Takes what belongs to the header, and looks at it before memory is taken for what it says.
    fn take_header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], &'static str> {
        if self.have == HEADER_BYTES {
            return Ok(bytes);
        }
        let (now, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES - self.have));
        self.header[self.have..self.have + now.len()].copy_from_slice(now);
        self.have += now.len();
        if self.have == HEADER_BYTES {
            let most = match self.kind() {
                FRAME => FRAME_BYTES,
                BEAT => 0,
                _ => return Err("a kind of frame that there is not"),
            };
            if self.length() > most {
                return Err("an absurd length");
            }
            self.payload.reserve_exact(self.length());
        }
        Ok(rest)
    }

    fn whole(&mut self) -> Result<Option<Box<[u8]>>, &'static str> {
        let payload = std::mem::take(&mut self.payload);
        if checksum(&self.header, &payload).to_le_bytes() != self.header[8..] {
            return Err("a checksum that does not fit");
        }
        self.have = 0;
        Ok((self.kind() == FRAME).then(|| payload.into_boxed_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Assembler, HEADER_BYTES, beat, frame_header, header};
    use crate::endpoint::FRAME_BYTES;
    use proptest::prelude::{any, prop, proptest};

    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        let one = |frame: &Vec<u8>| [&beat()[..], &frame_header(frame), frame].concat();
        frames.iter().flat_map(one).collect()
    }

    /// The frames that come out of these parts, and whether all of it is right.
    type Taken = (Vec<Box<[u8]>>, Result<(), &'static str>);

    fn taken(parts: &[&[u8]]) -> Taken {
        let (mut assembler, mut frames) = (Assembler::default(), Vec::new());
        let end = parts.iter().try_for_each(|part| assembler.take(part, |f| frames.push(f)));
        (frames, end)
    }

    #[test]
    fn no_memory_is_taken_for_what_is_absurd() {
        for (kind, length) in [(1, u32::MAX), (1, FRAME_BYTES as u32 + 1), (2, 1), (3, 0)] {
            let mut bad = header(kind, &[]);
            bad[..4].copy_from_slice(&length.to_le_bytes());
            let mut assembler = Assembler::default();
            assert!(assembler.take(&bad, |_| ()).is_err(), "{kind} {length}");
            assert_eq!(assembler.payload.capacity(), 0);
        }
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_they_are_cut(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            part in 1usize..200,
        ) {
            let stream = stream(&frames);
            let parts: Vec<&[u8]> = stream.chunks(part).collect();
            let (came, end) = taken(&parts);
            assert_eq!(end, Ok(()));
            assert!(came.iter().map(|frame| &frame[..]).eq(frames.iter().map(|frame| &frame[..])));
        }

        #[test]
        fn one_changed_byte_is_noticed(
            frame in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<usize>(),
            flip in 1u8..
        ) {
            let mut stream = stream(std::slice::from_ref(&frame));
            let at = at % stream.len();
            stream[at] ^= flip;
            // A length that has grown waits for more, which is wrong then.
            stream.extend_from_slice(&vec![0; FRAME_BYTES + HEADER_BYTES]);
            let (came, end) = taken(&[&stream]);
            assert!(end.is_err() && came.len() <= 1 && (came.is_empty() || at >= HEADER_BYTES));
        }

        #[test]
        fn garbage_is_no_frame(garbage in prop::collection::vec(any::<u8>(), 16..400)) {
            assert!(taken(&[&garbage]).0.is_empty());
        }
    }
}
