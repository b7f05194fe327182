//! What an ELF file says about itself: how it is started, which libraries it needs, what it asks
//! others for and what it offers them.
//!
//! Invariant: whatever is in the file, reading it ends with an answer or an error. Not here:
//! finding the libraries, and judging.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

/// Who makes the note that has a build's id.
const GNU: &[u8] = b"GNU";

/// The first bytes of every ELF file.
pub const MAGIC: &[u8] = b"\x7fELF";

/// Sections that only Go's linker makes.
const GO_SECTIONS: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];
/// Offsets, in the header, of the class, the byte order and the two bytes of the machine.
const CLASS: usize = 4;
const ORDER: usize = 5;
const MACHINE: usize = 18;
/// Enough of a file to see what it is for.
const HEAD_BYTES: u64 = 20;

/// Which processors and programs a file is for: class, byte order and machine.
pub type Kind = [u8; 4];

/// What a file says.
#[derive(Debug, Default)]
pub struct Elf {
    /// What it is for.
    pub kind: Kind,
    /// The program that loads it, `PT_INTERP`.
    pub interpreter: Option<String>,
    /// Whether it is a program rather than a library.
    pub is_program: bool,
    /// Whether Go's linker made it.
    pub is_go: bool,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// `DT_NEEDED`, in order.
    pub needed: Vec<String>,
    /// `DT_RPATH`, `DT_RUNPATH`, as they stand there.
    pub rpath: Option<String>,
    /// See `rpath`.
    pub runpath: Option<String>,
    /// Names of undefined dynamic symbols, without versions.
    pub imports: Vec<String>,
    /// Names of defined dynamic symbols, without versions.
    pub exports: Vec<String>,
}

/// What a file is for; none if it is no ELF file.
pub fn kind_of(path: &Path) -> Option<Kind> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    kind(&head)
}

/// What the linker has called this build of a program or library, if it has.
pub fn build_id(path: &Path) -> Option<Vec<u8>> {
    noted_id(&ReadCache::new(File::open(path).ok()?))
}

fn noted_id<'data>(bytes: impl ReadRef<'data>) -> Option<Vec<u8>> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, bytes).ok()? {
        let Some(mut notes) = segment.notes(endian, bytes).ok()? else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

fn kind(bytes: &[u8]) -> Option<Kind> {
    let at = |offset: usize| bytes.get(offset).copied();
    bytes.starts_with(MAGIC).then_some(())?;
    Some([at(CLASS)?, at(ORDER)?, at(MACHINE)?, at(MACHINE + 1)?])
}

impl Elf {
    /// Reads a file of 64 bits.
    ///
    /// # Errors
    /// If it cannot be read, is none or makes no sense.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        // Only what is looked at is read: programs with debugging information are large.
        Elf::parse(&ReadCache::new(file)).with_context(|| path.display().to_string())
    }

    fn parse<'data>(bytes: impl ReadRef<'data>) -> Result<Self> {
        let head = bytes.read_bytes_at(0, HEAD_BYTES).unwrap_or_default();
        let Some(kind) = kind(head) else { bail!("not an ELF file") };
        let header = FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        let mut elf = Elf { kind, ..Elf::default() };
        for segment in header.program_headers(endian, bytes)? {
            if let Some(path) = segment.interpreter(endian, bytes)? {
                elf.interpreter = Some(text(path));
            }
        }
        let sections = header.sections(endian, bytes)?;
        elf.is_go = sections.iter().any(|section| {
            sections.section_name(endian, section).is_ok_and(|name| GO_SECTIONS.contains(&name))
        });
        let mut is_pie = false;
        if let Some((entries, link)) = sections.dynamic(endian, bytes)? {
            let strings = sections.strings(endian, bytes, link)?;
            for entry in entries {
                let string = || {
                    let found = entry.val32(endian).and_then(|at| strings.get(at).ok());
                    found.map(text).context("a name outside its table")
                };
                match entry.tag32(endian) {
                    Some(elf::DT_NULL) => break,
                    Some(elf::DT_NEEDED) => elf.needed.push(string()?),
                    Some(elf::DT_SONAME) => elf.soname = Some(string()?),
                    Some(elf::DT_RPATH) => elf.rpath = Some(string()?),
                    Some(elf::DT_RUNPATH) => elf.runpath = Some(string()?),
                    Some(elf::DT_FLAGS_1) => {
                        is_pie = entry.val32(endian).is_some_and(|set| set & elf::DF_1_PIE != 0);
                    }
                    _ => {}
                }
            }
        } else if sections.is_empty() && elf.interpreter.is_some() {
            bail!("has no section table, so that its imports cannot be read");
        }
        elf.is_program =
            elf.interpreter.is_some() || is_pie || header.e_type(endian) == elf::ET_EXEC;
        let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM)?;
        for symbol in symbols.iter() {
            let name = symbol.name(endian, symbols.strings())?;
            if name.is_empty() || symbol.st_bind() == elf::STB_LOCAL {
                continue;
            }
            let side =
                if symbol.is_undefined(endian) { &mut elf.imports } else { &mut elf.exports };
            side.push(text(name));
        }
        Ok(elf)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Elf, kind_of, noted_id};

    #[test]
    fn cat_says_what_it_needs() {
        let cat = Elf::read(Path::new("/bin/cat")).unwrap();
        assert!(cat.is_program && !cat.is_go);
        assert!(cat.interpreter.unwrap().contains("ld-linux"));
        assert!(cat.needed.iter().any(|name| name == "libc.so.6"), "{:?}", cat.needed);
        assert!(cat.imports.iter().any(|name| name == "read"), "{:?}", cat.imports);
        assert_eq!(Some(cat.kind), kind_of(Path::new("/proc/self/exe")));
    }

    #[test]
    fn nonsense_is_an_error() {
        let whole = std::fs::read("/bin/cat").unwrap();
        assert!(Elf::parse(&b"#!/bin/sh\n"[..]).is_err());
        for length in (0..whole.len()).step_by(997) {
            // A file that was cut off: an error or an answer, and an end.
            let _ = (Elf::parse(&whole[..length]), noted_id(&whole[..length]));
        }
        for at in 0..4096 {
            let mut bent = whole.clone();
            bent[at] ^= 0xff;
            let _ = (Elf::parse(&bent[..]), noted_id(&bent[..]));
        }
    }
}
