//! Links libgcc's unwinder into the preload library. As a shared library of its own it would be
//! loaded by every process, and ask the processor for its features as it starts: each question
//! costs microseconds in a virtual machine, more than all else the preload library does there.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let home = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // What the linker finds first for `-lgcc_s`, which the standard library asks for.
    fs::write(home.join("libgcc_s.so"), "INPUT(-lgcc_eh)\n")?;
    println!("cargo:rustc-cdylib-link-arg=-L{}", home.display());
    Ok(())
}
