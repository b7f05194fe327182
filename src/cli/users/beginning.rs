//! How it begins to serve all users: what is looked at before, root's server, and the door.
//!
//! Invariant: where it cannot begin, what is there stays as it is, and one that waits for its pool
//! ends at a signal. Not here: what it does then (`users`), and how a pool is entered (`pool`).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use terral_client::Client;

use super::{Door, House};
use crate::claim::{self, Claim, Purpose};
use crate::instances::{self, PREFIX};
use crate::machine;
use crate::orphans;
use crate::pool;
use crate::report::note;
use crate::search::{Place, Wanted};
use crate::serve::{Arguments, permanent_directory};
use crate::server::{self, Part, Server, Start};
use crate::signals::Signals;
use crate::supply::Supply;
use crate::takeover;
use crate::units::bytes;

/// Whether Linux lets nobody give names to files that he may not write.
const PROTECTED: &str = "/proc/sys/fs/protected_hardlinks";
/// A user's server has that part of root's bound, unless told otherwise.
const SHARE: u64 = 8;

/// What is to be served.
pub(super) struct Found {
    instance: PathBuf,
    target: PathBuf,
    /// What DIR cannot do.
    lacks: terral_server::Lacks,
    /// If it is of a pool.
    entrance: Option<pool::Entrance>,
}

/// Looks at all that can be wrong before anything is changed; waits for etcd.
pub(super) fn found(arguments: &Arguments) -> Result<Found> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "--users needs root, as each user's server is his process; without it `terral serve` \
             serves you alone"
        );
    }
    let wanted = arguments.name.as_deref().unwrap_or(Path::new(instances::DEFAULT));
    ensure!(!wanted.is_absolute(), "--users: --name is a name, by which users find it");
    let instance = instances::locate(wanted.as_os_str());
    ensure!(
        arguments.partition.interface.is_none() || arguments.pool.pool.is_some(),
        "--interface is for one of several servers: with --users, of those of a --pool"
    );
    let needed = "--users needs --to DIR, where files of all of them are to arrive";
    let target = permanent_directory(arguments.to.as_deref().context(needed)?)?;
    let lacks =
        terral_server::check_for_users(&target, RandomState::new().build_hasher().finish())?;
    is_roots_way(&target)?;
    ensure!(
        std::fs::read_to_string(PROTECTED).is_ok_and(|does| does.trim() != "0"),
        "{PROTECTED} is 0: users could give files of root's further names in DIR"
    );
    let entrance = arguments.pool.way(&instance, true)?;
    Ok(Found { instance, target, lacks, entrance })
}

pub(super) fn begin(
    arguments: &Arguments,
    found: Found,
    signals: &Signals,
) -> Result<(House, Server, Door, Claim)> {
    let Found { instance: wanted, target, lacks, entrance } = found;
    let name = instances::name_of(&wanted);
    let stale = pool::is_stale(entrance.as_ref(), &wanted)?;
    entrance.iter().try_for_each(pool::Entrance::is_by_one_name)?;
    // Where no other one can begin, the one that is there stays.
    if !arguments.fresh && instances::target(&wanted).is_none_or(|its| its == target) {
        end_orphan(&wanted);
    }
    entrance.iter().try_for_each(pool::Entrance::is_alone_here)?;
    let wanted = Wanted {
        target: &target,
        prefix: Path::new(PREFIX),
        memory: arguments.memory,
        instance: Some(wanted),
        beside: arguments.name.is_some(),
        purpose: Purpose::Stay,
        several: true,
        stale,
        fresh: arguments.fresh,
        limit: arguments.wait_timeout,
    };
    let Place { instance, memory_bytes, claim } = takeover::find(&wanted, signals)?.0;
    let supply = Arc::new(Supply::new(&server::preload_library()?)?);
    let server = start_roots(arguments, (&instance, &target), memory_bytes, signals)?;
    let bound = Client::observe(&instance)?.status()?.memory_bound_bytes;
    let memory = arguments.user_memory.unwrap_or((bound / SHARE).max(machine::LEAST_BYTES));
    let door = Door::open(&name)?;
    let shown = target.display();
    note(format_args!(
        "{name}: serving {shown} for all users of this machine, with up to {} for root and {} each",
        bytes(bound),
        bytes(memory)
    ));
    if lacks != terral_server::Lacks::default() {
        note(format_args!("{shown}: {lacks}"));
    }
    note(format_args!("they use it: terral run --instance {name} -- COMMAND…"));
    let (seats, places, hosts, partition) = Default::default();
    let (lives, answering, over) = Default::default();
    let interface = arguments.partition.interface.clone();
    let house = House {
        instance,
        name,
        target,
        memory,
        supply,
        seats,
        places,
        hosts,
        interface,
        of_pool: arguments.pool.pool.is_some(),
        partition,
        lives,
        answering,
        over,
    };
    Ok((house, server, door, claim))
}

/// Root's server whose `terral serve` was killed is ended: another one goes on at once with what it
/// has.
fn end_orphan(instance: &Path) {
    let is_orphan = terral_server::is_served(instance) && !terral_server::is_claimed(instance);
    if !is_orphan || !terral_server::is_among_users(instance) {
        return;
    }
    let words = ["serve".as_ref(), "--instance-directory".as_ref(), instance.as_os_str()];
    if orphans::kill(terral_server::server_pid(instance), &words) {
        claim::outwait_dying(instance);
    }
}

/// Root's own server.
fn start_roots(
    arguments: &Arguments,
    (instance, target): (&Path, &Path),
    memory_bytes: u64,
    signals: &Signals,
) -> Result<Server> {
    let words = arguments.pool.words()?;
    let part = match words.is_empty() {
        true => Part::First {
            listen: ([127, 0, 0, 1], 0).into(),
            interface: None,
            // Whoever takes the port of a server that is gone hears and changes nothing.
            encrypted: true,
        },
        false => Part::OfPool { words, interface: arguments.partition.interface.clone() },
    };
    let start = Start {
        instance: instance.into(),
        target: Some(target.into()),
        memory_bytes,
        spill: None,
        ready_bytes: arguments.ready,
        // Root's server is for root.
        principals: None,
        part: Some(part),
        ends_with_us: true,
        among_users: true,
    };
    let server = Server::start_unless(start, || signals.count() > 0);
    server.inspect_err(|_| server::remove_unused(instance))
}

/// Whether nobody but root can put something else in the place of what is at a path.
fn is_roots_way(target: &Path) -> Result<()> {
    for above in target.ancestors() {
        let found =
            std::fs::symlink_metadata(above).with_context(|| above.display().to_string())?;
        let is_sticky = found.mode() & 0o1000 != 0;
        let is = found.uid() == 0 && (found.mode() & 0o022 == 0 || is_sticky && above != target);
        ensure!(is, "--to {}: others than root can write in {}", target.display(), above.display());
    }
    Ok(())
}
