//! `make -j2` of a C project: sixty sources with a shared header, an archive, a program.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::bench_figure::Effort;
use crate::bench_host::{Face, Host};
use crate::bench_report::Fact;
use crate::bench_session::Session;
use crate::machine;

const SOURCES: usize = 60;
/// Functions in each.
const FUNCTIONS: usize = 12;
const MOST: f64 = 1.15;
const MOST_AT_FIRST: f64 = 1.3;

const MAKEFILE: &str = "\
OBJECTS = $(patsubst %.c,%.o,$(wildcard part*.c))
program: main.o libparts.a
\tgcc -o $@ main.o -L. -lparts
libparts.a: $(OBJECTS)
\tar rc $@ $(OBJECTS)
%.o: %.c parts.h
\tgcc -O1 -MMD -c -o $@ $<
";

fn source(part: usize) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <string.h>\n#include \"parts.h\"\n");
    for at in 0..FUNCTIONS {
        let _ = write!(
            text,
            "static double step{at}(const double *from, int count) {{\n\
             \x20   double sum = {at};\n\
             \x20   for (int i = 0; i < count; i++) sum += from[i] * (i % {part} + {at} + 1);\n\
             \x20   return sum;\n}}\n",
            part = part + 2
        );
    }
    let calls: Vec<String> = (0..FUNCTIONS).map(|at| format!("step{at}(from, count)")).collect();
    let _ = writeln!(text, "double part{part}(const double *from, int count) {{");
    let _ = writeln!(text, "    return {};\n}}", calls.join(" + "));
    text
}

/// Writes the project into an existing directory.
fn project(root: &Path) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    };
    let (mut header, mut sum) = (String::from("#pragma once\n"), String::from("0"));
    for part in 0..SOURCES {
        write(&format!("part{part}.c"), &source(part))?;
        let _ = writeln!(header, "double part{part}(const double *from, int count);");
        let _ = write!(sum, " + part{part}(from, 3)");
    }
    write("parts.h", &header)?;
    let main = format!(
        "#include \"parts.h\"\nint main(void) {{\n    double from[3] = {{1, 2, 3}};\n    \
         return {sum} > 0 ? 0 : 1;\n}}\n"
    );
    write("main.c", &main)?;
    write("Makefile", MAKEFILE)
}

/// Copies the project, makes it, and removes it; seconds that `make` took.
fn made_once(session: &Session<'_>, face: Face, project: &str) -> Result<f64> {
    let target = session.path(face, "project").display().to_string();
    session.run_in(face, "cp", &["-r", project, &target])?;
    let took = session.run_in(face, "make", &["-s", "-j2", "-C", &target])?;
    if face.is_terral() {
        session.check("project/program")?;
    }
    session.run_in(face, "rm", &["-r", &target])?;
    Ok(took)
}

/// Measures it: with a server that has run for a while, and in the first seconds of others, while
/// they make memory ready.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let session = Session::new(host, &["make", "gcc", "ar", "cp", "rm"])?;
    let made = host.aside("project");
    std::fs::create_dir(&made).with_context(|| made.display().to_string())?;
    project(&made)?;
    let made = made.display().to_string();
    let stays = session.rounds(effort, |face| made_once(&session, face, &made))?;
    let memory = machine::memory_bound(None)?;
    let begins = session.rounds(effort, |face| match face.is_terral() {
        true => made_once(&Session::with_memory(host, memory)?, face, &made),
        false => made_once(&session, face, &made),
    })?;
    let name = format!("make -j2 of {SOURCES} C sources");
    Ok(vec![
        stays.longer(&name, MOST),
        begins.longer(&format!("{name}, while memory is made ready"), MOST_AT_FIRST),
    ])
}
