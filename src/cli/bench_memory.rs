//! Memory per closed file, its name and its data included.
//!
//! What grows is counted, not what is there: the server's own heap, the tables and the log, and the
//! part of the arena that holds data.

use anyhow::Result;

use crate::bench_figure::{Effort, writing};
use crate::bench_host::{Bed, Face, Host, Team};
use crate::bench_report::{Bound, Fact};
use crate::bench_worker::{Pass, Work};
use crate::machine;
use crate::units::count;

/// Bytes in a file, files of them among `Effort::kept_names`, and what one may take.
const KINDS: [(u64, u64, &str, f64); 2] =
    [(0, 10, "empty", 256.0), (100, 1, "of 100 bytes", 512.0)];
/// What a small file takes of the arena if it gets a page of its own.
const PAGE_BYTES: u64 = 4096;

/// What the server uses, bytes.
struct Use {
    heap: u64,
    tables: u64,
    arena: u64,
}

impl Use {
    fn now(bed: &Bed) -> Result<Self> {
        Ok(Use {
            heap: bed.status_bytes("RssAnon")?,
            tables: bed.tables_bytes()?,
            arena: bed.client.status()?.memory_used_bytes,
        })
    }
}

/// Measures it.
pub fn measure(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    // Enough for a page each, where there is as much: else what fits decides.
    let wanted = effort.kept_names * PAGE_BYTES + (1 << 30);
    let memory = wanted.min(machine::memory_bound(None)?).max(host.arena_bytes);
    let bed = Bed::with_memory(host, None, memory, None)?;
    let mut team = Team::start(host, Face::Preload, Some(&bed), 1)?;
    // The first names pay for pages that exist once.
    team.alone(&Pass { count: 100, ..writing(Work::CreateMany, 0) }, "first")?;
    let mut facts = Vec::new();
    for (bytes, share, what, most) in KINDS {
        let files = effort.kept_names / share;
        let before = Use::now(&bed)?;
        let pass = Pass { count: files, ..writing(Work::CreateMany, bytes) };
        team.alone(&pass, &format!("kept-{bytes}"))?;
        let after = Use::now(&bed)?;
        let per = |before: u64, after: u64| after.saturating_sub(before) as f64 / files as f64;
        let heap = per(before.heap, after.heap);
        let tables = per(before.tables, after.tables);
        let arena = per(before.arena, after.arena);
        let name = format!("memory per closed file, {what}");
        let all = heap + tables + arena;
        facts.push(Fact::new(&name, all, "bytes", Some(Bound::AtMost(most))).note(format!(
            "{heap:.0} of the heap, {tables:.0} of tables and log, {arena:.0} of the arena; \
             {} files",
            count(files)
        )));
    }
    Ok(facts)
}
