//! What the drain has brought so far, whether the permanent store has said that it is safe there,
//! and what users should know of it.

use std::collections::VecDeque;
use std::time::Duration;

use terral_format::wire::message::Drain;

/// Conflicts kept for display.
const SHOWN_MAX: usize = 16;
/// Characters of a line that are shown: all of them must fit a reply.
const SHOWN_CHARACTERS: usize = 300;

/// All that.
#[derive(Default)]
pub struct Progress {
    sums: Drain,
    /// Something was brought that the store has not yet said is safe.
    unsynced: bool,
    /// Somebody waits for it to say so.
    sync_wanted: bool,
    /// It was said that the store takes no extended attributes.
    no_xattrs: bool,
    recent: VecDeque<String>,
}

impl Progress {
    /// Bytes were copied.
    pub fn copied(&mut self, bytes: u64) {
        self.sums.bytes += bytes;
    }

    /// Bytes were read back, and are what was copied.
    pub fn verified(&mut self, bytes: u64) {
        self.sums.verified_bytes += bytes;
    }

    /// A file is there as it is here.
    pub fn finished_file(&mut self) {
        self.sums.files += 1;
    }

    /// Copying took so long.
    pub fn took(&mut self, time: Duration) {
        self.sums.busy_ms += time.as_millis() as u64;
    }

    /// So many bytes are owed. Gives the most that ever were.
    pub fn owes(&mut self, bytes: u64) -> u64 {
        self.sums.peak_bytes = self.sums.peak_bytes.max(bytes);
        self.sums.peak_bytes
    }

    /// Something was brought, or came to be owed.
    pub fn unsettle(&mut self, brought: bool) {
        self.sums.settled = false;
        self.unsynced |= brought;
    }

    /// Nothing is owed: whether it is known that all is safe. Only a sync can say so if something
    /// was brought since the last one.
    pub fn settle(&mut self) -> bool {
        self.sums.settled = !self.unsynced;
        self.sums.settled
    }

    /// The store keeps what it had when it was asked; that was all, or there is `more` by now.
    pub fn synced(&mut self, more: bool) {
        self.sums.settled = !more;
        self.unsynced = more;
        self.sync_wanted &= more;
    }

    /// Nothing was owed, and all is safe.
    pub fn is_settled(&self) -> bool {
        self.sums.settled
    }

    /// Somebody waits until all is safe.
    pub fn want_sync(&mut self) {
        self.sync_wanted = true;
    }

    /// Whether anybody does.
    pub fn is_sync_wanted(&self) -> bool {
        self.sync_wanted
    }

    /// The store takes no extended attributes. Whether that is news.
    pub fn has_no_xattrs(&mut self) -> bool {
        !std::mem::replace(&mut self.no_xattrs, true)
    }

    /// Somebody else's version of a file was kept.
    pub fn conflict(&mut self, what: String) {
        self.recent.push_back(short(what));
        if self.recent.len() > SHOWN_MAX {
            self.recent.pop_front();
        }
    }

    /// For display, with what has failed.
    pub fn shown(&self, failures: impl Iterator<Item = String>) -> Drain {
        Drain {
            failures: failures.take(SHOWN_MAX).map(short).collect(),
            conflicts: self.recent.iter().cloned().collect(),
            ..self.sums.clone()
        }
    }
}

fn short(why: String) -> String {
    why.chars().take(SHOWN_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn what_was_brought_is_settled_once_it_is_safe_and_no_more_came() {
        let mut progress = Progress::default();
        assert!(progress.settle(), "nothing was brought");
        progress.unsettle(true);
        progress.want_sync();
        assert!(!progress.settle() && !progress.is_settled());
        progress.synced(true);
        assert!(!progress.is_settled() && progress.is_sync_wanted());
        progress.synced(false);
        assert!(progress.is_settled() && !progress.is_sync_wanted());
        progress.unsettle(false);
        assert!(!progress.is_settled() && progress.settle(), "it came, and is owed no more");
    }

    #[test]
    fn the_last_conflicts_are_shown_each_short() {
        let mut progress = Progress::default();
        (0..20).for_each(|number| progress.conflict(format!("{number}{}", "x".repeat(400))));
        let shown = progress.shown(std::iter::repeat_n("y".repeat(999), 99));
        assert_eq!((shown.conflicts.len(), shown.failures.len()), (16, 16));
        assert!(shown.conflicts[0].starts_with("4x") && shown.conflicts[0].len() == 300);
        assert!(shown.failures[0].len() == 300);
    }
}
