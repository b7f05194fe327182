//! Files that are executed: nobody writes into them meanwhile, and what somebody may write into is
//! not executed (ETXTBSY).
//!
//! Invariants: a file that may be running has `flag::EXECUTED`, and who opens such a file for
//! writing asks the server; whether it is running the kernel says, so nothing need be remembered of
//! a program that has ended, or through the death of a server. Not here: how the kernel is asked
//! (`terral_transport::program`), and the copies that programs run from (`preload`).

use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::local::names::flag;
use terral_format::local::tables::access;
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::shown;
use crate::core::state::State;

impl State {
    /// A process is about to execute a file, from a copy that it has as this descriptor; a script
    /// is only looked at.
    ///
    /// # Errors
    /// [`ErrorKind::TextBusy`] if somebody may write into it.
    pub fn execute(
        &mut self,
        session: SessionSlot,
        file: FileRef,
        copy: Option<u32>,
    ) -> Result<()> {
        let ino = self.open_file(file)?.ino;
        if self.is_written(ino) {
            self.close_dead_writers(ino)?;
            self.storage.settle_stores(file.slot);
        }
        if self.is_written(ino) {
            return Err(self.busy(ino));
        }
        let (Some(copy), Some(client)) = (copy, self.sessions.client(session)) else {
            return Ok(());
        };
        let pid = client.process.pid();
        self.starting.add(&*self.machine, ino, (pid, copy));
        self.names.update(ino, |inode| inode.flags |= flag::EXECUTED);
        Ok(())
    }

    /// Refuses to have a file written into while a program runs it.
    pub(crate) fn permit_writing(&mut self, ino: Ino) -> Result<()> {
        if !self.names.inode(ino).is_some_and(|inode| inode.is(flag::EXECUTED)) {
            return Ok(());
        }
        // First who is about to: then it runs, or does not.
        let starts = self.starting.has(&*self.machine, ino);
        if starts || self.machine.running().contains(&ino) {
            return Err(self.busy(ino));
        }
        self.names.update(ino, |inode| inode.flags &= !flag::EXECUTED);
        Ok(())
    }

    /// After another server has died: marks what programs run.
    pub(crate) fn find_running(&mut self) {
        for ino in self.machine.running() {
            self.names.update(ino, |inode| inode.flags |= flag::EXECUTED);
        }
    }

    /// Who died with a file open has it open no more, although that has not been heard of yet.
    fn close_dead_writers(&mut self, ino: Ino) -> Result<()> {
        let writes = |access: u8| u64::from(access) & access::WRITE != 0;
        let open = self.descriptions.iter().filter(|(_, o)| o.ino == ino && writes(o.access));
        let open: Vec<(DescriptionSlot, SessionSlot)> =
            open.map(|(slot, open)| (slot, open.session)).collect();
        for (_, session) in &open {
            let client = self.sessions.client(*session);
            if client.is_some_and(|client| !client.process.is_alive()) {
                self.end_session(*session)?;
            }
        }
        open.into_iter().try_for_each(|(slot, _)| self.close_if_unheld(slot, false))
    }

    fn busy(&self, ino: Ino) -> Error {
        let path = self.names.path(ino).unwrap_or_default();
        Error::new(ErrorKind::TextBusy, shown(&path))
    }
}
