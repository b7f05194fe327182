//! `terral doctor`: what this machine offers, and what to do about what is missing; or, for a
//! program, which of its calls on files Terral serves.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use crate::checks::{self, Check, Verdict};
use crate::checks_run;
use crate::checks_users;
use crate::coverage::{self, Coverage};
use crate::doctor_program;
use crate::report::{self, code, failure};
use crate::server::preload_library;

/// Says what this machine offers and what is missing, or what of a program can be served
#[derive(Args)]
#[command(after_help = "\
Ends with 1 if something must be mended first. Started as a program of a run, like
`mpiexec … terral doctor`, it says whether files are served there, and if not, why.

With PROGRAM: reads which functions of the C library it and its libraries ask for, without starting
it, and says which of those that reach files are served, and which fall through to the kernel; and
which of them make system calls by themselves, and whether those are caught. Ends with 0 if all are
served, 1 if some fall through or none can be seen (static and Go programs, set-user-id ones); 125
to 127 as `terral run`, if that would not start it.

Examples:
  terral doctor
  terral run --to /data/results -- srun terral doctor
  terral doctor --to /data/results    (writes and removes 64 MiB there)
  terral doctor -- lmp -in melt.in")]
pub struct Arguments {
    /// A permanent directory to look at too, and to measure
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// JSON: a list of objects, for a program one object
    #[arg(long)]
    json: bool,
    /// A program or library to look at instead; its arguments are ignored
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", conflicts_with = "to")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

/// Looks and says.
pub fn main(arguments: &Arguments) -> Result<u8> {
    if let Some(name) = arguments.program.first() {
        let library =
            preload_library().map_err(|error| failure(code::NOT_STARTED, format!("{error:#}")))?;
        return program(&coverage::look(name, &library)?, arguments.json);
    }
    let mut all = checks::machine();
    all.extend(checks_run::run());
    if let Some(directory) = &arguments.to {
        all.extend(checks::permanent(directory));
        all.extend(checks_users::users(directory));
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

fn program(found: &Coverage, json: bool) -> Result<u8> {
    if json {
        report::json(found)?;
    } else {
        let text = doctor_program::text(found);
        std::io::stdout().lock().write_all(text.as_bytes())?;
    }
    Ok(doctor_program::code(found))
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
