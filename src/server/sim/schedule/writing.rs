//! What is written, appended and read. Clients are stopped in the middle of a copy, and go on, or
//! die.

use terral_format::local::geometry::PAGE_BYTES;
use terral_format::wire::message::FileRef;

use super::super::model::{File, PIECE};
use super::super::writing::{Writing, Wrote};
use super::spilling::is_lost;
use super::{Disk, Schedule};

/// Most copies in the middle of which one client is stopped.
const FROZEN_MAX: usize = 3;

/// A copy on its way, and what it is to become.
pub(super) struct Copying {
    writing: Writing,
    file: File,
    piece: [u8; PIECE],
    /// Which of all.
    by: u64,
}

impl Copying {
    /// The page that begins with its piece.
    fn page(&self) -> u64 {
        self.writing.at.div_ceil(PAGE_BYTES as u64)
    }
}

impl Schedule {
    pub(super) fn is_copying(&self, at: usize, file: FileRef) -> bool {
        self.players[at].frozen.iter().any(|copying| copying.writing.file == file)
    }

    pub(super) fn piece(&self) -> [u8; PIECE] {
        let piece = self.sim.world.draw().to_le_bytes();
        std::array::from_fn(|at| piece[at % 8])
    }

    pub(super) fn write(&mut self, at: usize) {
        let Some((client, opened, file, true)) = self.handle(at) else { return };
        let writing = if self.weather.freezes && self.chance(3) == 0 {
            let piece = self.piece().map(|byte| byte | 1);
            (self.sim.appending(client, opened, &piece), piece)
        } else {
            return self.write_to(at, (client, opened, file), self.page());
        };
        self.begin_copy(at, writing, file);
    }

    /// To this page.
    pub(super) fn write_to(
        &mut self,
        at: usize,
        (client, opened, file): (usize, FileRef, File),
        page: u64,
    ) {
        let piece = self.piece();
        let writing = Writing::new(client, opened, page * PAGE_BYTES as u64, &piece);
        self.begin_copy(at, (writing, piece), file);
    }

    fn begin_copy(&mut self, at: usize, (writing, piece): (Writing, [u8; PIECE]), file: File) {
        self.copies += 1;
        let by = self.copies;
        self.copy(at, Copying { writing, file, piece, by });
    }

    pub(super) fn thaw(&mut self, at: usize) {
        let count = self.players[at].frozen.len() as u64;
        if count > 0 {
            let which = self.chance(count) as usize;
            let copying = self.players[at].frozen.swap_remove(which);
            self.tell(|| format!("{at}: goes on with {:?}", copying.by));
            self.copy(at, copying);
        }
    }

    fn copy(&mut self, at: usize, mut copying: Copying) {
        loop {
            let wrote = match self.sim.go_on_writing(&mut copying.writing) {
                Ok(wrote) => wrote,
                Err(error) => {
                    let lost = is_lost(&copying.file, None, &error);
                    return assert!(lost || self.excuses(&error), "{error:?}");
                }
            };
            let (page, by, piece) = (copying.page(), copying.by, copying.piece);
            let (mut content, appends) = (copying.file.borrow_mut(), copying.writing.is_append());
            match wrote {
                Wrote::Grown(to) if appends => {
                    content.grows(to, page, by);
                    content.shows(page, by, piece);
                }
                Wrote::Grown(to) => content.grows(to, page, by),
                Wrote::Holds if !appends => content.begins(page, by, piece),
                Wrote::Shown if !appends => content.shows(page, by, piece),
                Wrote::Over if !appends => content.counts(page, by),
                _ => {}
            }
            drop(content);
            if wrote == Wrote::Over {
                let file = copying.writing.file;
                self.tell(|| format!("{at}: {by} is written to {file:?}, page {page}"));
                return;
            }
            if self.weather.disk != Disk::None && self.chance(4) == 0 {
                self.sim.spill(1 + self.chance(4));
            }
            if !self.weather.freezes {
                continue;
            }
            match self.chance(60) {
                0..3 if self.players[at].frozen.len() < FROZEN_MAX => {
                    self.tell(|| format!("{at}: stopped in {:?}", copying.writing));
                    return self.players[at].frozen.push(copying);
                }
                3 if self.weather.kills => {
                    self.tell(|| format!("{at}: dies in {:?}", copying.writing));
                    return self.replace(at);
                }
                _ => {}
            }
        }
    }

    pub(super) fn read(&mut self, at: usize) {
        let Some((client, opened, file, _)) = self.handle(at) else { return };
        let page = self.page();
        let got = match self.sim.read(client, opened, page * PAGE_BYTES as u64, PIECE) {
            Ok(got) => got,
            Err(error) => {
                let lost = is_lost(&file, Some(page), &error);
                return assert!(lost || self.excuses(&error), "{error:?}");
            }
        };
        let content = file.borrow();
        let left = content.size.saturating_sub(page * PAGE_BYTES as u64) as usize;
        assert_eq!(got.len(), left.min(PIECE), "page {page} of {opened:?}");
        assert!(content.may_show(page, &got), "page {page} of {opened:?}: {got:?} {content:?}");
    }
}
