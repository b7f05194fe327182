//! What went with machines that were removed, told to people; and what of it the permanent
//! directory has all the same.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use terral_client::{Losses, LostFile, Status};

use crate::units::count as count_of;

/// So many are told one by one; `--json` has more.
const TOLD: usize = 20;

/// Lines of a name and a text.
pub fn rows(losses: &Losses) -> Vec<(&'static str, String)> {
    let Losses { files, count, restored } = losses;
    let told = files.iter().take(TOLD);
    let mut rows: Vec<_> =
        told.map(|file| ("lost", format!("{}: only {} had it", file.path, file.of))).collect();
    let more = count.saturating_sub(rows.len() as u64);
    if more > 0 {
        rows.push(("lost", format!("and {} more (--json)", count_of(more))));
    }
    for (path, of) in restored.iter().take(TOLD) {
        let what = format!("{path}: put together without {of}: what only that had changed last in");
        rows.push(("restored", format!("{what} it is not known")));
    }
    if restored.len() > TOLD {
        rows.push(("restored", format!("and {} more: --json lists them", restored.len() - TOLD)));
    }
    rows
}

/// Files that the permanent directory has as they were last seen, or of which nobody has seen
/// anything, are not lost.
pub fn forget_arrived(status: &mut Status, directory: Option<&Path>) {
    let losses = status.partition.as_mut().map(|partition| &mut partition.losses);
    if let Some((losses, directory)) = losses.zip(directory) {
        forget_those(losses, directory);
    }
}

fn forget_those(losses: &mut Losses, directory: &Path) {
    let before = losses.files.len();
    losses.files.retain(|file| !has(directory, file));
    losses.count = losses.count.saturating_sub((before - losses.files.len()) as u64);
}

fn has(directory: &Path, file: &LostFile) -> bool {
    let found = std::fs::symlink_metadata(directory.join(file.path.trim_start_matches('/')));
    let modified = |found: &std::fs::Metadata| {
        i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec())
    };
    let is_it = |found: &std::fs::Metadata, size| {
        found.len() == size && modified(found) == i128::from(file.modified_ns)
    };
    found.is_ok_and(|found| found.is_file() && file.size.is_none_or(|size| is_it(&found, size)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use terral_client::{Losses, LostFile};
    use terral_server::Member;

    use super::{TOLD, forget_those, rows};

    fn file(path: &str, size: Option<u64>, modified_ns: u64) -> LostFile {
        LostFile { path: path.into(), of: Member::LEAST, size, modified_ns }
    }

    #[test]
    fn what_arrived_as_it_was_seen_or_unseen_is_not_lost() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), "abc").unwrap();
        let found = std::fs::metadata(place.path().join("a")).unwrap();
        let modified_ns = found.mtime() as u64 * 1_000_000_000 + found.mtime_nsec() as u64;
        let files = vec![
            file("/a", Some(3), modified_ns),
            file("/a", Some(4), modified_ns),
            file("/a", Some(3), modified_ns + 1),
            file("/b", None, 0),
            file("/b", Some(3), modified_ns),
            file("/a", None, 0),
        ];
        let mut losses = Losses { files: files.clone(), count: 7, restored: Vec::new() };
        forget_those(&mut losses, place.path());
        assert_eq!((&losses.files[..], losses.count), (&files[1..5], 5));
    }

    #[test]
    fn of_many_files_the_first_are_named() {
        let files: Vec<_> = (0..TOLD + 5).map(|at| file(&format!("/{at}"), None, 0)).collect();
        let losses = Losses { files, count: 2000, restored: Vec::new() };
        let rows = rows(&losses);
        assert_eq!(rows.len(), TOLD + 1);
        assert!(rows[0].1.contains("/0: only member 0 had it"), "{rows:?}");
        assert!(rows[TOLD].1.contains("1980") || rows[TOLD].1.contains("1,980"), "{rows:?}");
    }
}
