//! A machine whose cores compute: one endless loop for each, at normal priority, beside what is
//! measured.
//!
//! Invariant: the loops end with this process, however it ends (their standard input does).

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// What else the machine does meanwhile, and how figures say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Nothing.
    Quiet,
    /// An endless loop on each core.
    Busy,
}

impl Load {
    /// Both, in the order in which they are shown.
    pub const ALL: [Load; 2] = [Load::Quiet, Load::Busy];

    /// The end of a figure's name.
    pub fn suffix(self) -> &'static str {
        if self == Load::Busy { ", busy" } else { "" }
    }

    /// Begins it; it ends when what is given is dropped.
    pub fn begin(self) -> Result<Loops> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut loops = Loops(Vec::new());
        for _ in 0..if self == Load::Busy { cores } else { 0 } {
            let program = std::env::current_exe().context("terral: own path")?;
            let mut command = Command::new(program);
            command.args(["bench-worker", "--spin"]).stdin(Stdio::piped());
            loops.0.push(command.spawn().context("starting an endless loop")?);
        }
        Ok(loops)
    }
}

/// The loops.
pub struct Loops(Vec<Child>);

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
