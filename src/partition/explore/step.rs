//! What can happen next.

/// One step. Servers and things by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A client wants to change or look at a thing: by itself if it may, else by its server.
    Begin { server: usize, thing: usize, changes: bool },
    /// A request that can go on runs.
    Run { server: usize, request: u8 },
    /// The clients of a server have left a thing.
    Leave { server: usize, thing: usize },
    /// The first change for another member that could not be made is tried again.
    Again { server: usize },
    /// Who was changing a thing on a server does no more.
    Rest { server: usize, thing: usize },
    /// A server gives a thing back unasked.
    GiveBack { server: usize, thing: usize },
    /// The first frame on its way arrives.
    Deliver { from: usize, to: usize },
    /// The first frame on its way arrives, and will again.
    Double { from: usize, to: usize },
    /// The second frame on its way overtakes the first.
    Swap { from: usize, to: usize },
    /// A session breaks, with what is on its way in both directions, and another one begins.
    Cut { one: usize, other: usize },
    /// A session breaks, and another one begins; what was on its way arrives all the same.
    Part { one: usize, other: usize },
    /// Time passes, in nanoseconds.
    Pass { ns: u64 },
    /// A server notices.
    Tick { server: usize },
    /// A server's process dies.
    Crash { server: usize },
    /// Another one takes its place.
    Restart { server: usize },
    /// A machine is lost.
    Die { server: usize },
    /// The control removes a member.
    Remove { server: usize },
    /// A server hears of that.
    Tell { server: usize },
}

impl Step {
    /// The server whose machine takes the step, if it is one's.
    pub(crate) fn server(self) -> Option<usize> {
        match self {
            Step::Begin { server, .. }
            | Step::Run { server, .. }
            | Step::Leave { server, .. }
            | Step::Again { server }
            | Step::Rest { server, .. }
            | Step::GiveBack { server, .. }
            | Step::Tick { server }
            | Step::Tell { server } => Some(server),
            Step::Deliver { to, .. } => Some(to),
            _ => None,
        }
    }
}
