//! How a server is, and where the bytes of a file are. Not here: what is said of names
//! (`attributes`).

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Member};
use crate::wire::attributes::Attributes;
use crate::wire::placement::{Placement, Stripe};
use crate::wire::roster::{Consistency, Policy, Seat};

/// Bytes and names, used and free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Bytes of the memory tier.
    pub total_bytes: u64,
    /// Bytes not in use there.
    pub free_bytes: u64,
    /// Files that fit.
    pub total_files: u64,
    /// Files that still fit.
    pub free_files: u64,
}

/// Where a file's bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Safety {
    /// As `stat` says: `ino` is what `st_ino` does.
    pub attributes: Attributes,
    /// Who decides the file and says all this, where there are several machines.
    pub home: Option<Member>,
    /// Whether it has said so now. If it does not answer, attributes are as last heard of it, and
    /// the rest is as if nothing were safe.
    pub heard: bool,
    /// Bytes in that machine's memory.
    pub memory_bytes: u64,
    /// Bytes of those not yet in the backing.
    pub owed_bytes: u64,
    /// Whether the backing has the file, whole, under its name, as it is now.
    pub in_backing: bool,
    /// Whether somebody has it open for writing.
    pub open_for_writing: bool,
    /// What keeps the drain from finishing, if something does.
    pub failure: Option<String>,
    /// Which other machines have chunks of it, and how many bytes these are at most.
    pub parts: Vec<(Member, u64)>,
    /// Where its parts are to lie, if over several machines.
    pub stripe: Option<Stripe>,
    /// When others see what is written to it by who opens it now.
    pub consistency: Consistency,
    /// Bytes that were written on the machine that was asked and are not committed yet.
    pub uncommitted_bytes: u64,
}

/// Sums of what the sessions counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Client processes that connected.
    pub sessions: u64,
    /// Files opened or created.
    pub opens: u64,
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Nanoseconds in reads, over all processes.
    pub read_ns: u64,
    /// Nanoseconds in writes, over all processes.
    pub write_ns: u64,
    /// Nanoseconds in other calls, over all processes.
    pub other_ns: u64,
}

/// What the backing is still owed, and what it got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Files with unpaid debt.
    pub owed_files: u64,
    /// Bytes not yet copied.
    pub owed_bytes: u64,
    /// Name operations not yet done.
    pub owed_names: u64,
    /// Age of the oldest debt, milliseconds.
    pub oldest_ms: u64,
    /// Files published whole.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes read back and compared with what was sent.
    pub verified_bytes: u64,
    /// Milliseconds in which the drain was copying.
    pub busy_ms: u64,
    /// The most it ever owed, bytes.
    pub peak_bytes: u64,
    /// All debt is paid and the backing has said that it is safe there.
    pub settled: bool,
    /// What the drain could not do and still tries, at most 16: path and reason.
    pub failures: Vec<String>,
    /// Files somebody else changed in the backing meanwhile; both versions were kept.
    pub conflicts: Vec<String>,
}

/// A member of the partition, as this server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// Where it is, and whether it is in.
    pub seat: Seat,
    /// Whether the two can talk now; this server with itself always can.
    pub connected: bool,
    /// Of the control: whether it goes by what the control says now, as far as that is known.
    pub current: bool,
}

/// What a member says of itself to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The name of its machine.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Size of its memory tier.
    pub memory_bound_bytes: u64,
    /// Bytes in use there.
    pub memory_used_bytes: u64,
    /// Programs that use it.
    pub programs: u32,
    /// Files and directories of its own that others have, lent or shown.
    pub lent: u64,
    /// Those of others that it has.
    pub borrowed: u64,
    /// What it owes the permanent store; of conflicts and failures the first ones.
    pub drain: Drain,
}

/// What a member has answered to who asked all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAnswer {
    /// Who.
    pub member: Member,
    /// `None`: it has not answered soon enough, or there is no connection.
    pub status: Option<MemberStatus>,
}

/// What a server has sent to other members since it started last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Frames of all kinds. One is lost with its session.
    pub frames: u64,
    /// Those of them that ask, answer or tell something. The others keep leases and sessions, say
    /// what has come, and who is in.
    pub operations: u64,
    /// Bytes of all frames.
    pub bytes: u64,
}

/// A file whose bytes only a member had that was removed, by a name that is known here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFile {
    /// Its path.
    pub path: String,
    /// Whose it was.
    pub of: Member,
    /// How long it was when it was last seen here; if it was.
    pub size: Option<u64>,
    /// When it had been changed then.
    pub modified_ns: u64,
}

/// What went with members that were removed, as far as it is known here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// At most 1,000 of them.
    pub files: Vec<LostFile>,
    /// How many there are.
    pub count: u64,
    /// Directories that were put together anew, and who had them.
    pub restored: Vec<(String, Member)>,
}

/// The pool of whose partition a server is a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Where what its control decides is kept.
    pub registry: String,
    /// Which partition of the pool this is, counted from 1.
    pub generation: u64,
    /// For how long the registry has not answered this server, milliseconds, if it does not.
    pub away_ms: Option<u64>,
    /// Why, if so.
    pub why: Option<String>,
    /// Of the control: something that it has decided is not there yet.
    pub unkept: bool,
}

/// The partition that a server is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Which member it is.
    pub me: Member,
    /// Who says who is in.
    pub control: Member,
    /// Changes of who is in, so far.
    pub epoch: Epoch,
    /// All that there ever were, this one included.
    pub members: Vec<Other>,
    /// Whether what they say to each other is encrypted.
    pub encrypted: bool,
    /// What it has sent to them.
    pub sent: Sent,
    /// What went with those that were removed.
    pub losses: Losses,
    /// What holds for files by their paths.
    pub policies: Vec<Policy>,
    /// Who keeps bytes of new files, and where those of some paths are created.
    pub placement: Placement,
    /// Who is of the authority, and nothing else.
    pub authorities: Vec<Member>,
    /// For each user's server, which of them answers for it, if any does.
    pub answers: Vec<(Member, Member)>,
    /// Each user's server, and his number.
    pub users: Vec<(Member, u32)>,
    /// Of a pool: which.
    pub pool: Option<PoolStatus>,
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// How often it was started on this memory.
    pub starts: u64,
    /// Milliseconds since it started last.
    pub uptime_ms: u64,
    /// The permanent directory, if it has one.
    pub backing: Option<String>,
    /// Sessions of client processes now. Who only asks has none.
    pub sessions: u32,
    /// Files and directories it knows.
    pub files: u64,
    /// Open-file descriptions.
    pub open: u64,
    /// Bytes the arena may use.
    pub memory_bound_bytes: u64,
    /// Bytes of the arena that hold something.
    pub memory_used_bytes: u64,
    /// Bytes of the arena that are ready for the next writer.
    pub memory_warm_bytes: u64,
    /// What its clients did.
    pub totals: Totals,
    /// What the backing is owed.
    pub drain: Drain,
    /// What somebody should know: which process was refused further sessions, and the like.
    pub warnings: Vec<String>,
    /// The file for what does not fit in memory, if there is one.
    pub spill: Option<String>,
    /// Bytes of chunks that are there.
    pub spilled_bytes: u64,
    /// What it is part of, unless it is alone.
    pub partition: Option<Membership>,
}
