//! How tests open files: for reading and writing, made if they are not there.
#![allow(dead_code)] // Each test file uses its part.

use terral_client::{Client, File, OpenHow, access};

/// Read and write, create.
pub const WRITE: OpenHow = OpenHow {
    access: (access::READ | access::WRITE) as u8,
    create: true,
    exclusive: false,
    truncate: false,
    directory: false,
    unnamed: false,
    mode: 0o644,
    token: 0,
    on: None,
};

/// Opens or makes a file.
pub fn open(client: &Client, path: &str) -> File {
    client.open(path.as_bytes(), WRITE).expect("opens")
}
