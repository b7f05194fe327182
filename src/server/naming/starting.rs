//! Programs that are about to be executed: those whose process still has the copy open that it will
//! become. Not here: what follows from it (`executing`).

use terral_format::ids::Ino;

use crate::core::machine::Machine;

/// All of them, as far as this process of the server was told.
#[derive(Debug, Default)]
pub struct Starting(Vec<Copy>);

#[derive(Debug)]
struct Copy {
    ino: Ino,
    pid: u32,
    descriptor: u32,
}

impl Starting {
    /// The process `pid` has a copy of `ino` as this descriptor.
    pub(crate) fn add(&mut self, machine: &dyn Machine, ino: Ino, (pid, descriptor): (u32, u32)) {
        self.forget(machine);
        self.0.push(Copy { ino, pid, descriptor });
    }

    /// Whether somebody is about to execute `ino`.
    pub(crate) fn has(&mut self, machine: &dyn Machine, ino: Ino) -> bool {
        self.forget(machine);
        self.0.iter().any(|copy| copy.ino == ino)
    }

    /// Those that have been executed by now, or will never be, have closed it.
    fn forget(&mut self, machine: &dyn Machine) {
        let open = |copy: &Copy| machine.copy_of(copy.pid, copy.descriptor) == Some(copy.ino);
        self.0.retain(open);
    }
}
