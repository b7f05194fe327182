//! `terral doctor`: what this machine offers, and what to do about what is missing.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::checks::{self, Check, Verdict};
use crate::report::{self, code};

/// Says what this machine offers, and what to do about what is missing
#[derive(Args)]
#[command(after_help = "\
Ends with 1 if something must be mended first.

Examples:
  terral doctor
  terral doctor --to /data/results    (writes and removes 64 MiB there)")]
pub struct Arguments {
    /// A permanent directory to look at too, and to measure
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// A list of objects
    #[arg(long)]
    json: bool,
}

/// Looks and says.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let mut all = checks::machine();
    if let Some(directory) = &arguments.to {
        all.extend(checks::permanent(directory));
    }
    if arguments.json {
        report::json(&all)?;
    } else {
        let lines: Vec<String> = all.iter().map(line).collect();
        std::io::stdout().lock().write_all(lines.concat().as_bytes())?;
    }
    let fails = all.iter().any(|check| check.verdict == Verdict::Fail);
    Ok(if fails { code::FAILED } else { 0 })
}

fn line(check: &Check) -> String {
    let verdict = match check.verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    let mut line = format!("{verdict:<5} {:<11} {}\n", check.name, check.found);
    if let Some(advice) = &check.advice {
        line.push_str(&format!("{:<17} do: {advice}\n", ""));
    }
    line
}
