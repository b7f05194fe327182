//! How frames, and the word that somebody is there, lie in the stream of a session.
//!
//! Little-endian: length (4), kind (4), sum (4), payload. Where there is no encryption the sum is
//! CRC-32 (ISO-HDLC) over the first eight bytes and the payload; TLS has verified all of that, so
//! that the sum is zero there. Whatever else comes is [`Loss::Garbage`]; memory is taken for no
//! more than one frame.
//!
//! [`Loss::Garbage`]: crate::endpoint::Loss::Garbage

use crc32fast::Hasher;

use crate::endpoint::FRAME_BYTES;

use super::greeting::Encryption;

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 12;
/// Of these the sum is taken, too.
const SUMMED_BYTES: usize = 8;
const FRAME: u32 = 1;
const BEAT: u32 = 2;
/// A frame of so many bytes is put where it will be given out as it is read: less is copied in
/// less time than it takes to ask the system once more.
const LONG_BYTES: usize = 32 << 10;

type Header = [u8; HEADER_BYTES];

fn header(encryption: Encryption, kind: u32, parts: &[&[u8]]) -> Header {
    let mut header = [0; HEADER_BYTES];
    let length: usize = parts.iter().map(|part| part.len()).sum();
    header[..4].copy_from_slice(&(length as u32).to_le_bytes());
    header[4..8].copy_from_slice(&kind.to_le_bytes());
    let mut sum = Sum::of(encryption, &header);
    parts.iter().for_each(|part| sum.add(part));
    header[SUMMED_BYTES..].copy_from_slice(&sum.value());
    header
}

/// What comes before a frame that lies in these parts.
pub(super) fn frame_header(encryption: Encryption, parts: &[&[u8]]) -> Header {
    header(encryption, FRAME, parts)
}

/// The word that somebody is there.
pub(super) fn beat(encryption: Encryption) -> Header {
    header(encryption, BEAT, &[])
}

/// The sum of a frame; none where TLS has verified what comes.
#[derive(Default)]
struct Sum(Option<Hasher>);

impl Sum {
    /// What begins with this.
    fn of(encryption: Encryption, header: &Header) -> Self {
        let mut sum = Sum((encryption == Encryption::None).then(Hasher::new));
        sum.add(&header[..SUMMED_BYTES]);
        sum
    }

    fn add(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.update(bytes);
        }
    }

    fn value(self) -> [u8; 4] {
        self.0.map_or(0, Hasher::finalize).to_le_bytes()
    }
}

/// Puts frames together from what has come.
pub(super) struct Assembler {
    encryption: Encryption,
    header: Header,
    /// How much of the header has come.
    have: usize,
    payload: Vec<u8>,
    /// Of what has come of the payload, too: taken while the processor still has it at hand.
    sum: Sum,
}

impl Assembler {
    pub(super) fn new(encryption: Encryption) -> Self {
        let (header, payload, sum) = Default::default();
        Assembler { encryption, header, have: 0, payload, sum }
    }

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
            if missing > 0 && bytes.is_empty() {
                return Ok(());
            }
            self.take_memory();
            let (now, rest) = bytes.split_at(missing.min(bytes.len()));
            self.payload.extend_from_slice(now);
            self.sum.add(now);
            if now.len() < missing {
                return Ok(());
            }
            bytes = rest;
            if let Some(frame) = self.whole()? {
                hand(frame);
            }
        }
    }

    /// Whether what comes next is likely to be of a long frame: one has come, or is coming.
    pub(super) fn is_long(&self) -> bool {
        self.length() >= LONG_BYTES
    }

    /// Has the rest of a long frame that is coming read by `read` straight to where it will be
    /// given out, and what follows it up to the end of the next header; as [`Assembler::take`]
    /// takes what has come. None if no such frame is coming.
    pub(super) fn read_rest<T>(
        &mut self,
        read: impl FnOnce(&mut Vec<u8>) -> T,
        hand: impl FnMut(Box<[u8]>),
    ) -> Option<(T, Result<(), &'static str>)> {
        if self.have < HEADER_BYTES || !self.is_long() {
            return None;
        }
        self.take_memory();
        let (before, length) = (self.payload.len(), self.length());
        let came = read(&mut self.payload);
        let end = length.min(self.payload.len());
        self.sum.add(&self.payload[before..end]);
        let next = self.payload.split_off(end);
        Some((came, self.take(&next, hand)))
    }

    /// Takes memory for the frame that is coming, when something of it has: by then the one before
    /// may have been given back, and what was used just now is still in the processor's caches.
    fn take_memory(&mut self) {
        if self.payload.capacity() == 0 {
            // With room for the next header, where that is read with it.
            let more = if self.is_long() { HEADER_BYTES } else { 0 };
            self.payload.reserve_exact(self.length() + more);
        }
    }

    fn length(&self) -> usize {
        u32::from_le_bytes([self.header[0], self.header[1], self.header[2], self.header[3]])
            as usize
    }

    fn kind(&self) -> u32 {
        u32::from_le_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
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
            self.sum = Sum::of(self.encryption, &self.header);
        }
        Ok(rest)
    }

    fn whole(&mut self) -> Result<Option<Box<[u8]>>, &'static str> {
        let payload = std::mem::take(&mut self.payload);
        if std::mem::take(&mut self.sum).value() != self.header[SUMMED_BYTES..] {
            return Err("a checksum that does not fit");
        }
        self.have = 0;
        Ok((self.kind() == FRAME).then(|| payload.into_boxed_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Assembler, FRAME, HEADER_BYTES, LONG_BYTES, beat, frame_header, header};
    use crate::endpoint::FRAME_BYTES;
    use crate::tcp::Encryption;
    use proptest::prelude::{any, prop, proptest};

    const BOTH: [Encryption; 2] = [Encryption::Tls, Encryption::None];

    fn stream(encryption: Encryption, frames: &[Vec<u8>]) -> Vec<u8> {
        let one = |frame: &Vec<u8>| {
            let parts = frame.split_at(frame.len() / 3);
            let header = frame_header(encryption, &[parts.0, &[], parts.1]);
            [&beat(encryption)[..], &header, frame].concat()
        };
        frames.iter().flat_map(one).collect()
    }

    /// The frames that come out of these parts, and whether all of it is right.
    type Taken = (Vec<Box<[u8]>>, Result<(), &'static str>);

    fn taken(encryption: Encryption, parts: &[&[u8]]) -> Taken {
        let (mut assembler, mut frames) = (Assembler::new(encryption), Vec::new());
        let end = parts.iter().try_for_each(|part| assembler.take(part, |f| frames.push(f)));
        (frames, end)
    }

    /// As [`taken`], but that long frames are read to where they will be given out.
    fn read(encryption: Encryption, mut stream: &[u8], part: usize) -> Taken {
        let (mut assembler, mut frames) = (Assembler::new(encryption), Vec::new());
        while !stream.is_empty() {
            let mut hand = |frame| frames.push(frame);
            let mut next = |most: usize| {
                let (now, rest) = stream.split_at(most.min(part).min(stream.len()));
                stream = rest;
                now
            };
            let into = |into: &mut Vec<u8>| into.extend(next(into.capacity() - into.len()));
            let end = match assembler.read_rest(into, &mut hand) {
                Some(((), end)) => end,
                None => assembler.take(next(usize::MAX), hand),
            };
            if end.is_err() {
                return (frames, end);
            }
        }
        (frames, Ok(()))
    }

    /// The value that all who implement it give as an example.
    #[test]
    fn the_sum_is_the_crc_that_others_know() {
        let mut sum = super::Sum(Some(crc32fast::Hasher::new()));
        sum.add(b"1234");
        sum.add(b"56789");
        assert_eq!(u32::from_le_bytes(sum.value()), 0xcbf4_3926);
        assert_eq!(frame_header(Encryption::Tls, &[b"123456789"])[8..], [0; 4]);
    }

    #[test]
    fn no_memory_is_taken_for_what_is_absurd() {
        for (kind, length) in [(1, u32::MAX), (1, FRAME_BYTES as u32 + 1), (2, 1), (3, 0)] {
            let mut bad = header(Encryption::Tls, kind, &[]);
            bad[..4].copy_from_slice(&length.to_le_bytes());
            let mut assembler = Assembler::new(Encryption::Tls);
            assert!(assembler.take(&bad, |_| ()).is_err(), "{kind} {length}");
            assert_eq!(assembler.payload.capacity(), 0);
        }
    }

    #[test]
    fn a_long_frame_is_given_out_where_it_was_read() {
        let frame = vec![5; LONG_BYTES];
        let header = frame_header(Encryption::None, &[&frame]);
        let (mut assembler, mut came) = (Assembler::new(Encryption::None), None);
        assert!(assembler.read_rest(|_| (), |_| ()).is_none(), "nothing is coming");
        assert_eq!(assembler.take(&header, |_| ()), Ok(()));
        assert_eq!(assembler.payload.capacity(), 0, "nothing of it has come");
        let read = |into: &mut Vec<u8>| {
            into.extend([&frame[..], &header].concat());
            into.as_ptr()
        };
        let (at, end) = assembler.read_rest(read, |frame| came = Some(frame)).expect("it comes");
        let came = came.expect("it is whole");
        assert_eq!(end, Ok(()));
        assert!(came[..] == frame && came.as_ptr() == at, "it was not moved");
        assert_eq!((assembler.have, assembler.kind()), (HEADER_BYTES, FRAME), "the next one");
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_they_are_cut(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            part in 1usize..200,
        ) {
            for encryption in BOTH {
                let stream = stream(encryption, &frames);
                let parts: Vec<&[u8]> = stream.chunks(part).collect();
                let (came, end) = taken(encryption, &parts);
                assert_eq!(end, Ok(()));
                let sent = frames.iter().map(|frame| &frame[..]);
                assert!(came.iter().map(|frame| &frame[..]).eq(sent));
            }
        }

        #[test]
        fn long_frames_come_out_as_they_went_in_however_they_are_read(
            lengths in prop::collection::vec(0..2 * LONG_BYTES, 1..6),
            part in 1..3 * LONG_BYTES,
        ) {
            let frame = |bytes: &usize| (0..*bytes).map(|at| (at * 7 + bytes) as u8).collect();
            let frames: Vec<Vec<u8>> = lengths.iter().map(frame).collect();
            let (came, end) = read(Encryption::None, &stream(Encryption::None, &frames), part);
            assert_eq!(end, Ok(()));
            assert!(came.iter().map(|frame| &frame[..]).eq(frames.iter().map(|frame| &frame[..])));
        }

        #[test]
        fn one_changed_byte_is_noticed(
            bytes in prop::sample::select(vec![0, 1, 7, 200, LONG_BYTES, LONG_BYTES + 99]),
            at in any::<usize>(),
            flip in 1u8..
        ) {
            let frame: Vec<u8> = (0..bytes).map(|at| (at * 13) as u8).collect();
            let mut stream = stream(Encryption::None, std::slice::from_ref(&frame));
            let at = at % stream.len();
            stream[at] ^= flip;
            // A length that has grown waits for more, which is wrong then.
            stream.extend_from_slice(&vec![0; FRAME_BYTES + HEADER_BYTES]);
            let ways = [taken(Encryption::None, &[&stream]), read(Encryption::None, &stream, 5000)];
            for (came, end) in ways {
                assert!(end.is_err() && came.len() <= 1 && (came.is_empty() || at >= HEADER_BYTES));
            }
        }

        /// Of a sum where there is none, too: one day it might mean something else.
        #[test]
        fn a_changed_header_is_noticed_where_there_is_no_sum(at in 4..HEADER_BYTES, flip in 1u8..) {
            let mut stream = stream(Encryption::Tls, &[vec![5; 100]]);
            stream[HEADER_BYTES + at] ^= flip;
            let (came, end) = taken(Encryption::Tls, &[&stream]);
            assert!(end.is_err() && came.is_empty());
        }

        #[test]
        fn garbage_is_no_frame(garbage in prop::collection::vec(any::<u8>(), 16..400)) {
            assert!(taken(Encryption::None, &[&garbage]).0.is_empty());
        }
    }
}
