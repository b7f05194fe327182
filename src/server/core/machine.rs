//! The machine as the server sees it: client processes, and what the kernel and clients share with
//! it beside tables and chunks. Through [`Machine`], so that a simulation can stand for it; what
//! asks the kernel is `host`.

use std::os::fd::BorrowedFd;

use terral_format::Result;
use terral_format::ids::{DescriptionSlot, Ino, PageNumber, SessionSlot};
use terral_format::local::names::Inode;
use terral_format::wire::person::Person;
use terral_transport::requests::Session;

/// A process that a number cannot come to mean another one of.
pub trait Process: Send {
    /// Its number.
    fn pid(&self) -> u32;

    /// Whether it has not ended yet.
    fn is_alive(&self) -> bool;

    /// What becomes readable when it ends, if anybody can wait for that.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// What a server asks its machine.
pub trait Machine: Send + Sync {
    /// The user this server acts as, for ever.
    fn user(&self) -> u32;

    /// The number of this process.
    fn pid(&self) -> u32;

    /// What this machine is called.
    fn name(&self) -> String;

    /// The group this server acts as, for ever.
    fn group(&self) -> u32;

    /// Whether this machine protects files from getting names from others (proc(5),
    /// `protected_hardlinks`).
    fn protects_links(&self) -> bool;

    // Processes.

    /// The process `pid`, if it is still the one that started at `ticks`; else one that has ended.
    /// `None`: neither can be had.
    fn process(&self, pid: u32, ticks: u64) -> Option<Box<dyn Process>>;

    /// When the process `pid` started, in clock ticks since boot, if it lives.
    fn started_ticks(&self, pid: u32) -> Option<u64>;

    /// `4711 (python3)`: a process as people know it.
    fn shown(&self, pid: u32) -> String;

    /// Whether the kernel would let a process act as somebody.
    fn may_act(&self, pid: u32, person: &Person) -> bool;

    /// The file of which a process has a copy open as this descriptor, about to execute it.
    fn copy_of(&self, pid: u32, descriptor: u32) -> Option<Ino>;

    /// The files that processes run now.
    fn running(&self) -> Vec<Ino>;

    // What they share with the server.

    /// The page of a session that began under another server.
    ///
    /// # Errors
    /// If there is none.
    fn page(&self, session: SessionSlot) -> Result<Session>;

    /// A session's page is not needed any more.
    fn remove_page(&self, session: SessionSlot);

    /// Whether a process has a session's page mapped, as far as can be told: a program that was
    /// replaced by another (execve(2)) has nothing mapped any more.
    fn has_page(&self, pid: u32, session: SessionSlot) -> bool;

    /// Whether anybody has the chunk at `page` mapped.
    fn is_mapped(&self, page: PageNumber) -> bool;

    /// Whether anybody has it mapped and can store there.
    fn is_stored_to(&self, page: PageNumber) -> bool;

    /// Makes it possible to ask [`Machine::is_held`] of a description, and to hold it.
    ///
    /// # Errors
    /// What the file system says.
    fn make_holdable(&self, description: DescriptionSlot) -> Result<()>;

    /// Whether any kernel descriptor of this description is left, in any process, if it was shared.
    ///
    /// # Errors
    /// What the kernel says.
    fn is_held(&self, description: DescriptionSlot) -> Result<bool>;

    /// Makes the kernel's object of a FIFO, if it is not there, fit to be opened.
    ///
    /// # Errors
    /// What the file system says.
    fn make_fifo(&self, ino: Ino) -> Result<()>;

    /// Writes down a line of what was granted, denied and revoked.
    fn audit(&self, line: &str);

    /// A FIFO or socket has lost its last name: so has the kernel's object. Who still has it open
    /// finds its owner and mode there from now on.
    fn remove_node(&self, inode: &Inode);
}
