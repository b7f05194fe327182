//! The files of an instance that a killed server left, as one small file: of each its name, mode,
//! length, and what of it is not zeros. So the memory of an earlier version can be kept, and a
//! server of this one be tried on it.
//!
//! Not here: what lies in the files, but for what an instance says of this machine and this boot,
//! without which no server takes it.

use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use serde::{Deserialize, Serialize};
use terral_format::frame;

/// The same byte so often is said once, and zeros not at all.
const GAP: usize = 32;
/// What makes sense only on the machine and for the programs that were there.
const LEFT_OUT: [&str; 5] = ["lock", "to", "origin", "socket", "server-says"];

/// A boot's id, as it lies in the log.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A file or directory.
#[derive(Serialize, Deserialize)]
struct Item {
    name: String,
    mode: u32,
    /// `None`: a directory.
    bytes: Option<u64>,
    pieces: Vec<(u64, Piece)>,
}

#[derive(Serialize, Deserialize)]
enum Piece {
    Bytes(Vec<u8>),
    /// One byte again and again.
    Same(u8, u64),
}

/// An instance that was left.
#[derive(Serialize, Deserialize)]
pub struct Image {
    boot: Vec<u8>,
    to: Vec<u8>,
    items: Vec<Item>,
}

fn this_boot() -> Vec<u8> {
    fs::read_to_string(BOOT_ID).expect("a boot").trim().into()
}

/// Puts one text of a log's record in another's place; both are short.
fn replace(payload: &mut Vec<u8>, [old, new]: [&[u8]; 2]) {
    let text = |bytes: &[u8]| {
        assert!(bytes.len() < 128, "its length takes one byte");
        [&[bytes.len() as u8], bytes].concat()
    };
    let (old, new) = (text(old), text(new));
    let at = payload.windows(old.len()).position(|part| part == old).expect("what is to go");
    payload.splice(at..at + old.len(), new);
}

impl Image {
    /// Of what lies in this directory.
    pub fn of(instance: &Path) -> Image {
        let to = fs::read(instance.join("to")).expect("is for a directory");
        let mut image = Image { boot: this_boot(), to, items: Vec::new() };
        image.add(instance, "");
        image.items.sort_by(|a, b| a.name.cmp(&b.name));
        image
    }

    fn add(&mut self, instance: &Path, below: &str) {
        for entry in fs::read_dir(instance.join(below)).expect("lists").flatten() {
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            let found = entry.metadata().expect("is there");
            let mode = found.permissions().mode() & 0o7777;
            if found.is_dir() {
                self.items.push(Item { name: name.clone(), mode, bytes: None, pieces: Vec::new() });
                self.add(instance, &format!("{name}/"));
            } else if found.is_file() && !LEFT_OUT.contains(&name.as_str()) {
                let file = File::open(entry.path()).expect("opens");
                let bytes = Some(found.len());
                self.items.push(Item { name, mode, bytes, pieces: pieces(&file, found.len()) });
            }
        }
    }

    /// Reads a stored one.
    pub fn read(path: &Path) -> Image {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        frame::decode(&bytes).expect("an image")
    }

    /// Stores it.
    pub fn write(&self, path: &Path) {
        fs::write(path, frame::encode(self).expect("encodes")).expect("writes");
    }

    /// Lays it out in a directory, as if its server had died just now, with this permanent
    /// directory.
    pub fn lay_out(&self, instance: &Path, to: &Path) {
        fs::create_dir_all(instance).expect("makes");
        fs::set_permissions(instance, Permissions::from_mode(0o700)).expect("sets");
        for item in &self.items {
            let path = instance.join(&item.name);
            let Some(bytes) = item.bytes else {
                fs::create_dir(&path).expect("makes");
                continue;
            };
            let file = File::create(&path).expect("makes");
            file.set_len(bytes).expect("grows");
            for (at, piece) in &item.pieces {
                file.write_all_at(&piece.bytes(), *at).expect("writes");
            }
        }
        // Some directories are not to be written to.
        for item in &self.items {
            let mode = Permissions::from_mode(item.mode);
            fs::set_permissions(instance.join(&item.name), mode).expect("sets");
        }
        fs::write(instance.join("lock"), b"").expect("writes");
        let to = to.as_os_str().as_bytes();
        fs::write(instance.join("to"), to).expect("writes");
        let log = instance.join("log");
        let bytes = fs::read(&log).expect("reads");
        fs::write(log, self.moved(&bytes, to)).expect("writes");
    }

    /// A log, of which the first record says in which boot its memory lives, and for which
    /// directory.
    fn moved(&self, log: &[u8], to: &[u8]) -> Vec<u8> {
        let frame = frame::read(log).expect("a frame");
        let mut payload = frame.payload.to_vec();
        replace(&mut payload, [&self.boot, &this_boot()]);
        replace(&mut payload, [&self.to, to]);
        let mut moved = Vec::new();
        frame::write(&mut moved, frame.version, &payload);
        [&moved, frame.rest].concat()
    }
}

impl Piece {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Piece::Bytes(bytes) => bytes.clone(),
            Piece::Same(byte, count) => vec![*byte; *count as usize],
        }
    }
}

/// What of a file is not zeros.
fn pieces(file: &File, length: u64) -> Vec<(u64, Piece)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Ok(from) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(from)).expect("a hole, or the end").min(length);
        let mut content = vec![0; (at - from) as usize];
        file.read_exact_at(&mut content, from).expect("reads");
        add_pieces(&content, from, &mut found);
    }
    found
}

fn add_pieces(content: &[u8], from: u64, found: &mut Vec<(u64, Piece)>) {
    let (mut at, mut begun) = (0, 0);
    let mut piece = |at: usize, piece: Piece| found.push((from + at as u64, piece));
    while at < content.len() {
        let same = content[at..].iter().take_while(|byte| **byte == content[at]).count();
        if same >= GAP {
            if begun < at {
                piece(begun, Piece::Bytes(content[begun..at].to_vec()));
            }
            if content[at] != 0 {
                piece(at, Piece::Same(content[at], same as u64));
            }
            begun = at + same;
        }
        at += same;
    }
    if begun < content.len() {
        piece(begun, Piece::Bytes(content[begun..].to_vec()));
    }
}
