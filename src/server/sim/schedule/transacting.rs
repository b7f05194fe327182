//! Transactions: some operations on names at once, of which all come to be or none.

use terral_format::frame;
use terral_format::wire::message::{RenameHow, Request};
use terral_format::wire::transactions::Operation;

use super::super::model::{BEGUN_WITH, Model};
use super::Schedule;

type Step = Operation<Vec<u8>>;

/// Most operations of one.
const STEPS: u64 = 6;

/// What an operation does, and whether it can be done.
fn done(model: &mut Model, step: &Step, user: u32) -> bool {
    match step {
        Operation::Rename { from, to, how: RenameHow::Exchange } => model.exchange(from, to),
        Operation::Rename { from, to, how } => {
            let free = *how == RenameHow::Replace || !model.0.contains_key(to);
            free && model.rename(from, to)
        }
        Operation::Link { from, to } => model.file(from).is_some_and(|file| model.link(&file, to)),
        Operation::Unlink(path) => model.unlink(path),
        Operation::MakeDirectory { path, .. } => model.make_directory(path, user),
        Operation::RemoveDirectory(path) => model.remove_directory(path),
        Operation::Exists(path) => model.0.contains_key(path),
        Operation::Missing(path) => !model.0.contains_key(path),
        Operation::SetXattr { .. } | Operation::Unchanged { .. } => false,
        Operation::Holds { .. } | Operation::Copies(_) => false,
    }
}

impl Schedule {
    pub(super) fn transact(&mut self, at: usize) {
        let mut after = self.model.clone();
        let count = 1 + self.chance(STEPS);
        // One that cannot be done fails all, so of most it is seen to that it can.
        let bold = self.chance(3) == 0;
        let mut steps = Vec::new();
        for _ in 0..count {
            let step = self.draw_step();
            let mut next = after.clone();
            let can = done(&mut next, &step, self.players[at].user);
            if can {
                after = next;
            }
            if can || bold {
                steps.push(step);
            }
        }
        // What takes a name that only a failing store knows is seen to by `check`, one at a time.
        let is_there = |path: &mut Vec<u8>| path == BEGUN_WITH;
        let begun = steps.iter_mut().flat_map(Step::paths_mut).flatten().any(is_there);
        if self.weather.faults && begun {
            return;
        }
        let encoded = frame::encode(&steps).expect("it is short");
        self.tell(|| format!("{at}: {steps:?}"));
        let user = self.players[at].user;
        self.check(at, Request::Transact(&encoded), |model| {
            let mut after = model.clone();
            let all = steps.iter().all(|step| done(&mut after, step, user));
            if all {
                *model = after;
            }
            all
        });
    }

    fn draw_step(&self) -> Step {
        let (path, other) = (self.any_path(), self.any_path());
        let (file, name) = (self.file_path(), self.file_path());
        match self.chance(12) {
            0..=2 => Operation::Rename { from: file, to: name, how: RenameHow::Replace },
            3 => Operation::Rename { from: path, to: other, how: RenameHow::Replace },
            4 => Operation::Rename { from: path, to: other, how: RenameHow::Keep },
            5 => Operation::Rename { from: path, to: other, how: RenameHow::Exchange },
            6 => Operation::Link { from: file, to: name },
            7 => Operation::Unlink(file),
            8 => Operation::MakeDirectory { path, mode: 0o755 },
            9 => Operation::RemoveDirectory(path),
            10 => Operation::Exists(path),
            _ => Operation::Missing(path),
        }
    }
}
