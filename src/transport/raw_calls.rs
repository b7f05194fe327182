//! System calls that an object makes by instructions of its own, past the C library: found in its
//! file by disassembly, since the two bytes of `syscall` stand in much that is no instruction.
//!
//! A place counts if an instruction begins there when its function is decoded from its start, which
//! the unwind table tells, and its number may be one that concerns files. In code that the table
//! does not have, among it data between functions, the number must also stand right before it.
//! Invariant: whatever is in the file, looking ends with an answer. Not here: catching them.

use crate::decoder::decode;

/// Begins of names of objects whose own calls are not about files of programs: the C library and
/// what belongs to it, OpenMP's (futexes), the sanitizers', and this library.
const KNOWN: [&str; 15] = [
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-2.",
    "libpthread",
    "librt.so",
    "linux-vdso",
    "libgomp",
    "libasan",
    "libtsan",
    "liblsan",
    "libubsan",
    "libclang_rt.",
    "vgpreload_",
    "libterral_preload",
];

/// Calls that name no file: on memory as such, threads, time, signals and processes.
const HARMLESS: [u32; 28] = [
    12, 15, 24, 34, 35, 39, 60, 62, 96, 102, 104, 110, 158, 186, 200, 201, 202, 203, 204, 218, 228,
    229, 230, 231, 234, 273, 309, 318,
];

/// A system call is one of these; beyond, there are none.
const NUMBERS: u32 = 600;
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// So far before a place in code without unwind information decoding begins.
const BEFORE: usize = 4096;
/// Entries of a table that are believed.
const MOST_SEGMENTS: usize = 128;

const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
const PT_EH_FRAME: u64 = 0x6474_e550;
const EXECUTABLE: u64 = 1;
/// What this machine's programs begin with: 64 bits, little-endian; and the number of x86-64.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const MACHINE: u64 = 62;
/// Name of the note that Go's linker makes.
const GO: &[u8] = b"Go\0\0";
/// Relative to the table, of four bytes: the one encoding that linkers use.
const TABLE_ENCODING: u8 = 0x3b;

/// What an object does by itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RawCalls {
    /// The numbers of the calls, one for each place, where they are known.
    pub numbers: Vec<Option<u32>>,
    /// Whether it is Go's, which runs on stacks of its own.
    pub is_go: bool,
}

/// Whether an object of this file name is known, so that nobody need look into it.
pub fn is_known(name: &[u8]) -> bool {
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    KNOWN.iter().any(|begin| base.starts_with(begin.as_bytes()))
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let digits = bytes.get(at..at.checked_add(length)?)?;
    Some(digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}

fn signed(bytes: &[u8], at: usize) -> Option<i64> {
    number(bytes, at, 4).map(|found| i64::from((found as u32).cast_signed()))
}

/// One part of a file, and where it is loaded.
#[derive(Clone, Copy)]
struct Segment {
    kind: u64,
    flags: u64,
    offset: usize,
    address: u64,
    length: usize,
}

struct Object<'a> {
    file: &'a [u8],
    segments: Vec<Segment>,
}

impl<'a> Object<'a> {
    fn read(file: &'a [u8]) -> Option<Self> {
        if !file.starts_with(MAGIC) || number(file, 18, 2)? != MACHINE {
            return None;
        }
        let (table, size) = (number(file, 32, 8)? as usize, number(file, 54, 2)? as usize);
        let count = (number(file, 56, 2)? as usize).min(MOST_SEGMENTS);
        let segment = |index: usize| {
            let entry = file.get(table.checked_add(index * size)?..)?;
            Some(Segment {
                kind: number(entry, 0, 4)?,
                flags: number(entry, 4, 4)?,
                offset: number(entry, 8, 8)? as usize,
                address: number(entry, 16, 8)?,
                length: number(entry, 32, 8)? as usize,
            })
        };
        let segments = (0..count).map_while(segment).collect();
        Some(Object { file, segments })
    }

    fn content(&self, segment: &Segment) -> &'a [u8] {
        let end = segment.offset.saturating_add(segment.length).min(self.file.len());
        self.file.get(segment.offset..end).unwrap_or_default()
    }

    fn of_kind(&self, kind: u64) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.kind == kind)
    }

    /// What is loaded from `address` on.
    fn at(&self, address: u64) -> Option<&'a [u8]> {
        self.of_kind(PT_LOAD).find_map(|segment| {
            let offset = usize::try_from(address.checked_sub(segment.address)?).ok()?;
            self.content(segment).get(offset..).filter(|rest| !rest.is_empty())
        })
    }

    fn is_go(&self) -> bool {
        self.of_kind(PT_NOTE).any(|note| {
            let content = self.content(note);
            content.get(12..16) == Some(GO) || content.windows(GO.len()).any(|name| name == GO)
        })
    }
}

/// The table of functions that unwinding uses, `.eh_frame_hdr`.
struct Functions<'a> {
    object: &'a Object<'a>,
    address: u64,
    /// Pairs of four bytes each, in order: where a function begins, and what describes it.
    table: &'a [u8],
}

impl<'a> Functions<'a> {
    fn of(object: &'a Object<'a>) -> Option<Self> {
        let segment = object.of_kind(PT_EH_FRAME).next()?;
        let bytes = object.content(segment);
        let count = number(bytes, 8, 4)? as usize;
        let plain = bytes.first() == Some(&1) && bytes.get(3) == Some(&TABLE_ENCODING);
        let rest = bytes.get(12..).filter(|_| plain)?;
        let table = &rest[..rest.len().min(count.saturating_mul(8))];
        Some(Functions { object, address: segment.address, table })
    }

    fn entry(&self, index: usize) -> Option<(u64, u64)> {
        let at = |word: usize| {
            let offset = signed(self.table, index * 8 + word * 4)?;
            Some(self.address.wrapping_add_signed(offset))
        };
        Some((at(0)?, at(1)?))
    }

    /// The function that begins last before or at `address`: from where to where.
    fn before(&self, address: u64) -> Option<(u64, u64)> {
        let (mut low, mut high) = (0, self.table.len() / 8);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle)?.0 <= address { low = middle + 1 } else { high = middle }
        }
        let (begin, described) = self.entry(low.checked_sub(1)?)?;
        Some((begin, self.end(begin, described).unwrap_or(u64::MAX)))
    }

    /// The end of a function, from its description, in the two encodings that there are.
    fn end(&self, begin: u64, described: u64) -> Option<u64> {
        let bytes = self.object.at(described)?;
        let place = described.wrapping_add(8);
        if place.wrapping_add_signed(signed(bytes, 8)?) == begin {
            return begin.checked_add(number(bytes, 12, 4)?);
        }
        let far = number(bytes, 8, 8)?;
        (place.wrapping_add(far) == begin).then(|| begin.checked_add(number(bytes, 16, 8)?))?
    }
}

/// Where an instruction enters the kernel, and with what number if it is known.
type Site = (usize, Option<u32>);

/// Those of some code, and whether all of it could be decoded.
fn calls_in(code: &[u8]) -> (Vec<Site>, bool) {
    let (mut found, mut targets, mut whole) = (Vec::new(), Vec::new(), true);
    // What eax has, and since where.
    let mut known: Option<(u32, usize)> = None;
    let mut at = 0;
    while at < code.len() {
        let Some(one) = decode(&code[at..]) else {
            (whole, known) = (false, None);
            at += 1;
            continue;
        };
        let next = at + one.length;
        if one.is_system_call() {
            found.push((at, known));
        }
        known = match (one.jump(), one.loaded()) {
            (Some(distance), _) => {
                let target = distance.map(|distance| next as i64 + i64::from(distance));
                targets.extend(target);
                None
            }
            (None, Some(number)) => Some((number, at)),
            (None, None) => known.filter(|_| one.keeps_eax()),
        };
        at = next;
    }
    // Who jumps between the two may have another number.
    let between = |since: usize, at: usize| {
        targets.iter().any(|target| (since as i64 + 1..=at as i64).contains(target))
    };
    let number = |(at, known): (usize, Option<(u32, usize)>)| {
        (at, known.filter(|(_, since)| !between(*since, at)).map(|(number, _)| number))
    };
    (found.into_iter().map(number).collect(), whole)
}

/// Bytes that are looked at together.
const STRIDE: usize = 64;

/// Places in `code` where the bytes of the instruction stand.
fn places(code: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    for start in (0..code.len()).step_by(STRIDE) {
        let window = &code[start..code.len().min(start + STRIDE + 1)];
        let hit = |pair: (&u8, &u8)| (*pair.0 == SYSTEM_CALL[0]) & (*pair.1 == SYSTEM_CALL[1]);
        // Without an early end, so that it becomes a few vector instructions.
        let any = window.iter().zip(&window[1..]).fold(false, |any, pair| any | hit(pair));
        if any {
            let pairs = window.iter().zip(&window[1..]).enumerate();
            found.extend(pairs.filter(|(_, pair)| hit(*pair)).map(|(at, _)| start + at));
        }
    }
    found
}

fn can_concern_files(number: Option<u32>) -> bool {
    number.is_none_or(|number| number < NUMBERS && !HARMLESS.contains(&number))
}

/// The calls of one executable segment.
fn look_into(
    segment: &Segment,
    code: &[u8],
    functions: Option<&Functions<'_>>,
) -> Vec<Option<u32>> {
    let mut numbers = Vec::new();
    // The function that was decoded last, and its calls.
    let (mut decoded, mut calls, mut whole) = (0..0, Vec::new(), true);
    for place in places(code) {
        let address = segment.address + place as u64;
        let function = functions.and_then(|functions| functions.before(address));
        let offset = |address: u64| (address.saturating_sub(segment.address)) as usize;
        match function {
            Some((begin, end)) if begin <= address && address < end => {
                let range = offset(begin)..offset(end).min(code.len());
                if decoded != range {
                    (calls, whole) = calls_in(&code[range.clone()]);
                    decoded = range;
                }
                let call = calls.iter().find(|(at, _)| decoded.start + at == place);
                let call = call.map(|(_, number)| *number);
                numbers.extend(call.or_else(|| (!whole).then_some(None)));
            }
            other => {
                let from =
                    other.map_or(0, |(_, end)| offset(end)).max(place.saturating_sub(BEFORE));
                let (calls, _) = calls_in(&code[from..place + SYSTEM_CALL.len()]);
                let call = calls.iter().find(|(at, _)| from + at == place);
                numbers.extend(call.filter(|(_, number)| number.is_some()).map(|call| call.1));
            }
        }
    }
    numbers.retain(|number| can_concern_files(*number));
    numbers
}

/// Looks into the file of an object; `None` if it is none for this processor.
pub fn look(file: &[u8]) -> Option<RawCalls> {
    let object = Object::read(file)?;
    let functions = Functions::of(&object);
    let code = object.of_kind(PT_LOAD).filter(|segment| segment.flags & EXECUTABLE != 0);
    let numbers =
        code.flat_map(|segment| look_into(segment, object.content(segment), functions.as_ref()));
    Some(RawCalls { numbers: numbers.collect(), is_go: object.is_go() })
}

#[cfg(test)]
mod tests {
    use super::{calls_in, look, places};

    #[test]
    fn a_number_is_known_if_nothing_comes_between() {
        // mov eax, 332; xor edx, edx; syscall
        let plain = [0xb8, 0x4c, 1, 0, 0, 0x31, 0xd2, 0x0f, 0x05];
        assert_eq!(calls_in(&plain), (vec![(7, Some(332))], true));
        // The same, and a jump to the xor.
        let jumped = [&plain[..], &[0xeb, 0xfa]].concat();
        assert_eq!(calls_in(&jumped), (vec![(7, None)], true));
        // A call between.
        let called = [0xb8, 0x4c, 1, 0, 0, 0xe8, 0, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(calls_in(&called), (vec![(10, None)], true));
        // The bytes in an immediate: mov ecx, 0x050f.
        let hidden = [0xb9, 0x0f, 0x05, 0, 0, 0xc3];
        assert_eq!((calls_in(&hidden).0, places(&hidden)), (vec![], vec![1]));
    }

    #[test]
    fn nonsense_ends_with_an_answer() {
        let whole = std::fs::read("/proc/self/exe").expect("own program");
        assert!(look(b"#!/bin/sh\n").is_none());
        for length in (0..whole.len().min(1 << 20)).step_by(9973) {
            let _ = look(&whole[..length]);
        }
        let mut bent = whole[..whole.len().min(1 << 16)].to_vec();
        for at in (0..2048).step_by(3) {
            bent[at] ^= 0xff;
            let _ = look(&bent);
            bent[at] ^= 0xff;
        }
    }
}
