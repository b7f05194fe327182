//! `terral man DIR`: the manual pages, one for each verb, from the same words as `--help`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};

/// Writes the manual pages into a directory
#[derive(Args)]
pub struct Arguments {
    /// An existing directory
    directory: PathBuf,
}

/// Writes them.
pub fn main(arguments: &Arguments, command: Command) -> Result<u8> {
    let directory = &arguments.directory;
    clap_mangen::generate_to(command, directory)
        .with_context(|| directory.display().to_string())?;
    Ok(0)
}
