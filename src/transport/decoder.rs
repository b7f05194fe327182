//! Instructions of x86-64: how long each is, and of those that lead to a system call what they do.
//!
//! The tables follow the opcode maps of the Intel SDM, volume 2, appendix A, and for XOP those of
//! the AMD manual, volume 6. Invariant: whatever the bytes are, decoding ends with an answer or
//! none, and reads no further than 15 bytes. Not here: what most instructions do, and APX.

/// The longest instruction.
const LONGEST: usize = 15;

/// Registers, as numbered in instructions.
const EAX: u8 = 0;

/// Where an opcode is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    One,
    TwoByte,
    /// 0f 38.
    Three8,
    /// 0f 3a.
    Three3a,
    /// By a VEX, EVEX or XOP prefix, whose instructions neither jump nor change general registers
    /// that matter here.
    Vector,
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Bytes it has.
    pub length: usize,
    map: Map,
    opcode: u8,
    modrm: u8,
    rex: u8,
    /// Its last bytes as a number, if it ends with one of 1 or 4 bytes.
    immediate: i32,
}

/// What the prefixes say.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand16: bool,
    address32: bool,
    repeat: u8,
    rex: u8,
}

impl Prefixes {
    fn wide(self) -> bool {
        self.rex & 8 != 0
    }

    /// Bytes of an immediate that is as wide as the operand, up to 4.
    fn operand(self) -> usize {
        if self.operand16 && !self.wide() { 2 } else { 4 }
    }
}

/// What follows an opcode: a ModRM byte or not, and how many bytes of immediates.
type Shape = (bool, usize);

const fn plain() -> Option<Shape> {
    Some((false, 0))
}

fn one_byte(opcode: u8, modrm: u8, prefixes: Prefixes) -> Option<Shape> {
    let operand = prefixes.operand();
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => Some((true, 0)),
            4 => Some((false, 1)),
            5 => Some((false, operand)),
            _ => None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => {
            plain()
        }
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 => plain(),
        0xf8..=0xfd => plain(),
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => Some((true, 0)),
        0x68 | 0xa9 => Some((false, operand)),
        0x69 | 0x81 | 0xc7 => Some((true, operand)),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => Some((false, 1)),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => Some((true, 1)),
        0xa0..=0xa3 => Some((false, if prefixes.address32 { 4 } else { 8 })),
        0xb8..=0xbf => Some((false, if prefixes.wide() { 8 } else { operand })),
        0xc2 | 0xca => Some((false, 2)),
        0xc8 => Some((false, 3)),
        0xe8 | 0xe9 => Some((false, 4)),
        // TEST has an immediate, its neighbours have none.
        0xf6 => Some((true, usize::from(modrm >> 3 & 7 < 2))),
        0xf7 => Some((true, if modrm >> 3 & 7 < 2 { operand } else { 0 })),
        _ => None,
    }
}

fn two_byte(opcode: u8, prefixes: Prefixes) -> Option<Shape> {
    match opcode {
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f | 0x7a | 0x7b => None,
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 => plain(),
        0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => plain(),
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => Some((true, 1)),
        // EXTRQ and INSERTQ.
        0x78 if prefixes.operand16 || prefixes.repeat == 0xf2 => Some((true, 2)),
        0x80..=0x8f => Some((false, 4)),
        _ => Some((true, 0)),
    }
}

/// An opcode of the map that a VEX, EVEX or XOP prefix names.
fn vector(map: u8, opcode: u8, is_vex: bool) -> Option<Shape> {
    match map {
        1 if opcode == 0x77 && is_vex => plain(),
        1 => {
            let immediate = matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6);
            Some((true, usize::from(immediate)))
        }
        2 | 5 | 6 | 9 => Some((true, 0)),
        3 | 8 => Some((true, 1)),
        10 => Some((true, 4)),
        _ => None,
    }
}

/// Bytes of a ModRM byte with all that belongs to it.
fn modrm_length(bytes: &[u8]) -> Option<usize> {
    let modrm = *bytes.first()?;
    let (way, register) = (modrm >> 6, modrm & 7);
    if way == 3 {
        return Some(1);
    }
    let (mut length, mut base) = (1, register);
    if register == 4 {
        base = *bytes.get(1)? & 7;
        length = 2;
    }
    Some(match way {
        1 => length + 1,
        2 => length + 4,
        _ if base == 5 => length + 4,
        _ => length,
    })
}

/// The instruction that `code` begins with; `None` if there is none that is known.
pub fn decode(code: &[u8]) -> Option<Instruction> {
    let code = &code[..code.len().min(LONGEST)];
    let (mut at, mut prefixes) = (0, Prefixes::default());
    loop {
        match *code.get(at)? {
            0x66 => prefixes.operand16 = true,
            0x67 => prefixes.address32 = true,
            repeat @ (0xf2 | 0xf3) => prefixes.repeat = repeat,
            0xf0 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            rex @ 0x40..=0x4f => {
                prefixes.rex = rex;
                at += 1;
                match *code.get(at)? {
                    // One that other prefixes follow says nothing.
                    0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e => {}
                    0x64 | 0x65 | 0x40..=0x4f => {}
                    _ => break,
                }
                prefixes.rex = 0;
                continue;
            }
            _ => break,
        }
        at += 1;
    }
    let (map, opcode, shape) = opcode(code, &mut at, prefixes)?;
    let modrm = code.get(at).copied().unwrap_or(0);
    let operands = match shape.0 {
        // Control and debug registers, in which no memory is meant.
        true if map == Map::TwoByte && matches!(opcode, 0x20..=0x23) => 1,
        true => modrm_length(code.get(at..)?)?,
        false => 0,
    };
    let length = at + operands + shape.1;
    let last = code.get(at + operands..length)?;
    let immediate = match *last {
        [one] => i32::from(one.cast_signed()),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
        _ => 0,
    };
    let modrm = if shape.0 { modrm } else { 0 };
    Some(Instruction { length, map, opcode, modrm, rex: prefixes.rex, immediate })
}

/// Goes past the opcode at `at`.
fn opcode(code: &[u8], at: &mut usize, prefixes: Prefixes) -> Option<(Map, u8, Shape)> {
    let byte = |at: usize| code.get(at).copied();
    let first = byte(*at)?;
    let second = byte(*at + 1);
    let (length, map, opcode, shape) = match first {
        0x0f => match second? {
            0x38 => (3, Map::Three8, byte(*at + 2)?, (true, 0)),
            0x3a => (3, Map::Three3a, byte(*at + 2)?, (true, 1)),
            second => (2, Map::TwoByte, second, two_byte(second, prefixes)?),
        },
        0xc5 => {
            let opcode = byte(*at + 2)?;
            (3, Map::Vector, opcode, vector(1, opcode, true)?)
        }
        0xc4 => {
            let (map, opcode) = (second? & 31, byte(*at + 3)?);
            (4, Map::Vector, opcode, vector(Some(map).filter(|map| *map < 4)?, opcode, true)?)
        }
        0x62 => {
            let (map, opcode) = (second? & 7, byte(*at + 4)?);
            (5, Map::Vector, opcode, vector(map, opcode, false)?)
        }
        // XOP, where POP would have an operand that it cannot have.
        0x8f if second? & 31 >= 8 => {
            let (map, opcode) = (second? & 31, byte(*at + 3)?);
            (4, Map::Vector, opcode, vector(map, opcode, false)?)
        }
        first => (1, Map::One, first, one_byte(first, second.unwrap_or(0), prefixes)?),
    };
    *at += length;
    Some((map, opcode, shape))
}

impl Instruction {
    /// Whether it enters the kernel.
    pub fn is_system_call(&self) -> bool {
        self.map == Map::TwoByte && self.opcode == 0x05
    }

    /// Where a jump leads, relative to its end; other ways to go on elsewhere lead to `None` in it.
    pub fn jump(&self) -> Option<Option<i32>> {
        match (self.map, self.opcode) {
            (Map::One, 0x70..=0x7f | 0xe0..=0xe3 | 0xe9 | 0xeb) | (Map::TwoByte, 0x80..=0x8f) => {
                Some(Some(self.immediate))
            }
            (Map::One, 0xe8 | 0xc2 | 0xc3 | 0xca..=0xcf) => Some(None),
            (Map::One, 0xff) if matches!(self.modrm >> 3 & 7, 2..=5) => Some(None),
            (Map::TwoByte, 0x05 | 0x07 | 0x0b | 0x34 | 0x35) => Some(None),
            _ => None,
        }
    }

    /// What it puts into eax, if that is a number known here.
    pub fn loaded(&self) -> Option<u32> {
        let itself = self.modrm == 0xc0 && self.rex & 5 == 0;
        match (self.map, self.opcode) {
            (Map::One, 0xb8) if self.rex & 9 == 0 => Some(self.immediate.cast_unsigned()),
            (Map::One, 0xc7) if self.modrm == 0xc0 && self.rex & 1 == 0 => {
                Some(self.immediate.cast_unsigned())
            }
            (Map::One, 0x31 | 0x33) if itself => Some(0),
            _ => None,
        }
    }

    /// Whether eax surely has what it had: of few kinds, those which prepare arguments.
    pub fn keeps_eax(&self) -> bool {
        let register = self.modrm >> 3 & 7 | (self.rex & 4) << 1;
        let operand = self.modrm & 7 | (self.rex & 1) << 3;
        let is_memory = self.modrm >> 6 != 3;
        match (self.map, self.opcode) {
            // Into a register, by number or from wherever.
            (Map::One, 0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x63 | 0x8b | 0x8d) => register != EAX,
            (Map::One, 0xb9..=0xbf | 0x58..=0x5f) => self.opcode & 7 | (self.rex & 1) << 3 != EAX,
            (Map::One, 0x50..=0x57 | 0x38 | 0x39 | 0x3a | 0x3b | 0x84 | 0x85) => true,
            (
                Map::One,
                0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x88 | 0x89 | 0x81 | 0x83 | 0xc6 | 0xc7,
            ) => is_memory || operand != EAX,
            (Map::TwoByte, 0xb6 | 0xb7 | 0xbe | 0xbf) => register != EAX,
            (Map::TwoByte, 0x10..=0x1f | 0x28 | 0x29 | 0x57 | 0x6f | 0x7f | 0xef) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn instructions_end_where_the_next_begins() {
        for (bytes, length) in [
            (&[0x0f, 0x05][..], 2),
            (&[0xb8, 0x4c, 0x01, 0, 0], 5),
            (&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8], 10),
            (&[0x66, 0xb8, 1, 0], 4),
            (&[0x48, 0x8b, 0x84, 0x24, 1, 2, 3, 4], 8),
            (&[0x8b, 0x05, 1, 2, 3, 4], 6),
            (&[0x8b, 0x04, 0x25, 1, 2, 3, 4], 7),
            (&[0xf6, 0x05, 1, 2, 3, 4, 5], 7),
            (&[0xf7, 0xd8], 2),
            (&[0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0], 8),
            (&[0xf3, 0x0f, 0x1e, 0xfa], 4),
            (&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 10),
            (&[0xc5, 0xf8, 0x77], 3),
            (&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1], 6),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x44, 0x24, 1], 8),
            (&[0x66, 0x0f, 0x3a, 0x0f, 0xc1, 8], 6),
        ] {
            assert_eq!(decode(bytes).map(|one| one.length), Some(length), "{bytes:02x?}");
            assert!(decode(&bytes[..bytes.len() - 1]).is_none(), "{bytes:02x?}, cut off");
        }
        assert!(decode(&[0x06]).is_none() && decode(&[0x66; 20]).is_none());
    }

    #[test]
    fn what_is_put_into_eax_is_known() {
        let loaded = |bytes: &[u8]| decode(bytes).and_then(|one| one.loaded());
        assert_eq!(loaded(&[0xb8, 0x4c, 1, 0, 0]), Some(332));
        assert_eq!(loaded(&[0x48, 0xc7, 0xc0, 0xca, 0, 0, 0]), Some(202));
        assert_eq!(loaded(&[0x31, 0xc0]), Some(0));
        // r8d, and edi.
        assert_eq!(loaded(&[0x41, 0xb8, 0x4c, 1, 0, 0]), None);
        assert_eq!(loaded(&[0xbf, 0x4c, 1, 0, 0]), None);
        let keeps = |bytes: &[u8]| decode(bytes).expect("one").keeps_eax();
        assert!(keeps(&[0xbf, 1, 0, 0, 0]) && keeps(&[0x44, 0x89, 0xc7]));
        assert!(!keeps(&[0x44, 0x89, 0xc0]) && !keeps(&[0x8b, 0x07]) && !keeps(&[0xf7, 0xd8]));
    }
}
