//! A SQLite database in WAL mode that two processes write at a time, a transaction a row. Both wait
//! for each other as SQLite does it: they sleep for milliseconds.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::bench_figure::Effort;
use crate::bench_host::{Face, Host};
use crate::bench_report::Fact;
use crate::bench_session::Session;

const LEAST: f64 = 0.8;
const TABLE: &str = "pragma journal_mode=wal; create table rows(who, at, text);\n";
const ROW: &str = "a line of text as long as those of a log are, give or take a few words";

/// What one of them says to SQLite.
fn writer(who: u64, rows: u64) -> String {
    let mut script =
        String::from(".output /dev/null\n.timeout 60000\npragma synchronous=normal;\n");
    for at in 0..rows {
        let _ = writeln!(
            script,
            "begin immediate; insert into rows values({who}, {at}, '{ROW}'); commit;"
        );
    }
    script
}

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let session = Session::new(host, &["sqlite3", "sh", "rm"])?;
    let rows = effort.names;
    let scripts = [0, 1].map(|who| host.aside(&format!("sqlite-{who}")));
    for (who, path) in (0..).zip(&scripts) {
        std::fs::write(path, writer(who, rows)).with_context(|| path.display().to_string())?;
    }
    let both = scripts.map(|path| format!("sqlite3 \"$0\" < {} & ", path.display())).concat();
    // A writer that fails makes the count wrong, and so the insert fail.
    let count = format!(
        "create temp table found(rows check(rows = {})); \
         insert into found select count(*) from rows;",
        2 * rows
    );
    let path = |face: Face| session.path(face, "rows.db").display().to_string();
    let times = session.rounds(effort, |face| {
        let table = format!(".output /dev/null\n{TABLE}");
        let file = host.aside("sqlite-table");
        std::fs::write(&file, table).with_context(|| file.display().to_string())?;
        let begin = format!("sqlite3 \"$0\" < {}", file.display());
        session.run_in(face, "sh", &["-c", &begin, &path(face)])?;
        let took = session.run_in(face, "sh", &["-c", &format!("{both}wait"), &path(face)])?;
        session.run_in(face, "sqlite3", &[&path(face), &count])?;
        if face.is_terral() {
            session.check("rows.db")?;
        }
        session.run_in(face, "rm", &["-f", &path(face)])?;
        Ok(took)
    })?;
    let name = format!("SQLite WAL, 2 writers, {rows} transactions each");
    Ok(vec![times.quicker(&name, LEAST)])
}
