//! One file of one chunk, and what several do to it, as loom explores it. Not here: the protocol
//! itself (`terral_tests::model`), and what it promises.
#![allow(dead_code)] // Each test file uses its part.

use loom::sync::Arc;
use loom::thread::spawn;
use terral_tests::model::{Flaw, Machine};

/// Explores `scenario` on a machine of `page_cells` cells a page and a file of `content`.
pub fn explore(
    flaw: Flaw,
    page_cells: usize,
    content: &'static [u64],
    scenario: impl Fn(Arc<Machine>) + Sync + Send + 'static,
) {
    explore_to(5, flaw, page_cells, content, scenario);
}

/// The same up to so many preemptions: with three threads at work, five take hours.
pub fn explore_to(
    preemptions: usize,
    flaw: Flaw,
    page_cells: usize,
    content: &'static [u64],
    scenario: impl Fn(Arc<Machine>) + Sync + Send + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 50_000;
    model.check(move || scenario(Arc::new(Machine::new(flaw, page_cells, content))));
}

/// A thread of the model. The first thread only sets up, joins and judges: loom explores what it
/// does between spawn and join less than it does the spawned.
pub fn run<T: 'static>(
    machine: &Arc<Machine>,
    part: impl FnOnce(&Machine) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let machine = Arc::clone(machine);
    spawn(move || part(&machine))
}
