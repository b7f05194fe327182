//! The instance: a directory in memory that outlives the server's process. Made at the first start,
//! taken over at every later one.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom};
use terral_format::disk::local::{Began, Local};
use terral_format::disk::migrate::Migrate;
use terral_format::disk::{Record, Transaction};
use terral_format::ids::{InstanceId, ROOT};
use terral_format::local::geometry::Geometry;
use terral_format::local::tables::Superblock;
use terral_format::local::{clock, deferred};
use terral_format::wire::capability::Key;
use terral_format::wire::message::{Attributes, Kind};
use terral_format::{Error, ErrorKind, Result};
use terral_store::arena::Segments;
use terral_store::backing::dir::Dir;
use terral_store::backing::{Backing, Source};
use terral_store::log::Log;
use terral_store::memory::Memory;
use terral_store::ram::Ram;
use terral_store::small::{PackedFile, Small};
use terral_store::spill::Spill;
use terral_transport::lock;
use terral_transport::nodes;
use terral_transport::process;
use terral_transport::region::Region;

use crate::core::machine::Machine;
use crate::core::state::{Parts, State};
use crate::core::world::World;
use crate::debts::policy::Usual;
use crate::recovery::{self, shared};
use crate::shell::host::{Clock, Host, make_directory};
use crate::shell::options::Options;
use crate::shell::region_file::region_file;
use crate::shell::spill_file;

/// The byte of the file `lock` that a server holds.
const SERVED: u8 = 0;

/// The file that says so of an instance which began as one user's among several.
pub const AMONG_USERS: &str = "among-users";

/// Programs of earlier versions do not know of the spill.
const KNOWS_SPILL: u16 = 5;

/// An instance this process serves.
pub struct Instance {
    /// Tables, for the superblock.
    pub tables: Arc<Region>,
    /// Headers, for the doorbell.
    pub headers: Arc<Region>,
    /// All that is known.
    pub state: State,
    /// Held while this process lives.
    pub lock: File,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::system(&error, path)
}

/// Makes the instance, or takes it over.
///
/// # Errors
/// [`ErrorKind::Busy`] if another server serves it, [`ErrorKind::Version`] if another version of
/// this program made it, [`ErrorKind::Corrupt`] if it is of an earlier boot or its log makes no
/// sense.
pub fn open(options: &Options) -> Result<Instance> {
    let directory = &options.instance;
    make_directory(directory, if is_lent(directory) { 0o711 } else { 0o700 })?;
    let lock = serve_alone(directory)?;
    let log_path = directory.join("log");
    if log_path.exists() {
        take_over(options, lock, &log_path)
    } else {
        make(options, lock, &log_path)
    }
}

/// Whether processes that were root's may use the instance as other users: nobody else can pass the
/// directory above it, and they keep this one open.
fn is_lent(directory: &Path) -> bool {
    let above = directory.parent().and_then(|above| std::fs::metadata(above).ok());
    let closed = |above: std::fs::Metadata| above.uid() == 0 && above.mode() & 0o077 == 0;
    process::user() == 0 && above.is_some_and(closed)
}

/// Opens what clients use of an instance to those of its clients that become other users.
pub fn lend(directory: &Path) -> Result<()> {
    let shared = [("open", 0o711), ("tables", 0o644), ("headers", 0o666), ("pages", 0o666)];
    let shared = shared.into_iter().chain([("socket", 0o666), (nodes::DIRECTORY, 0o1733)]);
    for (name, mode) in shared {
        let path = directory.join(name);
        if is_lent(directory) {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).map_err(failed(&path))?;
        }
    }
    Ok(())
}

fn serve_alone(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let mut how = OpenOptions::new();
    let how = how.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = how.open(&path).map_err(failed(&path))?;
    if lock::try_exclusive(&file, SERVED).map_err(failed(&path))? {
        return Ok(file);
    }
    let context = format!("{}: another server serves it", directory.display());
    Err(Error::new(ErrorKind::Busy, context))
}

/// Whether an instance began as one user's among several, each with a server of his own.
pub fn is_among_users(directory: &Path) -> bool {
    directory.join(AMONG_USERS).exists()
}

/// Whether a live server holds the instance.
pub fn is_served(directory: &Path) -> bool {
    let file = File::open(directory.join("lock"));
    file.is_ok_and(|file| lock::probe(file.as_fd(), SERVED).unwrap_or(false))
}

/// The process that serves the instance, or served it last and did not leave in order.
pub fn server_pid(directory: &Path) -> Option<u32> {
    let mut pid = [0; 8];
    let at = std::mem::offset_of!(Superblock, server_pid) as u64;
    File::open(directory.join("tables")).ok()?.read_exact_at(&mut pid, at).ok()?;
    u32::try_from(u64::from_ne_bytes(pid)).ok().filter(|pid| *pid != 0)
}

/// Whether the server that holds the instance was killed and the kernel is still taking it apart,
/// which takes a while for one that was preparing memory.
pub fn is_dying(directory: &Path) -> bool {
    is_served(directory) && server_pid(directory).is_some_and(|pid| !process::is_running(pid))
}

fn make(options: &Options, lock: File, log_path: &Path) -> Result<Instance> {
    let directory = &options.instance;
    let geometry = Geometry::for_memory(options.memory_bytes);
    let backing = options
        .backing
        .as_ref()
        .map(|path| std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec());
    let world = Clock;
    let began = Began {
        instance: InstanceId(world.random()?),
        boot: process::boot_id()?,
        geometry,
        backing,
        key: Key(world.secret()?),
    };
    for (name, bytes) in regions(&geometry) {
        region_file(&directory.join(name), Some(bytes))?;
    }
    let headers = directory.join("headers");
    let (from, bytes) = (geometry.deferred_at() as u64, (deferred::WORDS * 8) as u64);
    // Clients write there when no memory may be left.
    rustix::fs::fallocate(&region_file(&headers, None)?, FallocateFlags::empty(), from, bytes)
        .map_err(|e| failed(&headers)(e.into()))?;
    make_directory(&directory.join("open"), 0o700)?;
    make_directory(&directory.join("shadow"), 0o555)?;
    make_directory(&directory.join(nodes::DIRECTORY), 0o700)?;
    // What cannot be is refused before there is an instance.
    drop(spill_of(options, &began)?);
    if options.among_users {
        let path = directory.join(AMONG_USERS);
        File::create(&path).map_err(failed(&path))?;
    }
    let log = Log::create(log_path, &[Local::Began(began.clone()).into()])?;
    let instance = assemble(options, lock, log, began, &[])?;
    instance.state.names.show(instance.state.starts);
    Ok(instance)
}

/// The table of names is written anew from the log; what the dead server left in it may be half
/// done. First of all its epoch goes, so that no client believes what it sees meanwhile. Its memory
/// is kept: there may be no other.
fn clear_names(directory: &Path, geometry: &Geometry) -> Result<()> {
    let path = directory.join("tables");
    let tables = region_file(&path, None)?;
    tables.write_all_at(&[0; 8], geometry.names_at() as u64).map_err(failed(&path))?;
    let end = (geometry.names_at() + geometry.names().bytes()) as u64;
    let mut at = geometry.names_at() as u64;
    let zeros = vec![0; 1 << 20];
    while at < end {
        let from = match rustix::fs::seek(&tables, SeekFrom::Data(at)) {
            Ok(from) => from,
            // Nothing but a hole is left.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(failed(&path)(error.into())),
        };
        let hole = rustix::fs::seek(&tables, SeekFrom::Hole(from));
        let until = hole.map_err(|e| failed(&path)(e.into()))?.min(end);
        at = from;
        while at < until {
            let part = &zeros[..(until - at).min(zeros.len() as u64) as usize];
            tables.write_all_at(part, at).map_err(failed(&path))?;
            at += part.len() as u64;
        }
        at = at.max(until);
    }
    Ok(())
}

fn take_over(options: &Options, lock: File, log_path: &Path) -> Result<Instance> {
    let directory = &options.instance;
    let (log, transactions) = Log::open(log_path)?;
    let corrupt = |why: &str| {
        let context = format!("{}: {why}", log_path.display());
        Err(Error::new(ErrorKind::Corrupt, context))
    };
    let first = transactions.first().and_then(|first| first.first());
    let Some(Record::Local(Local::Began(began))) = first else {
        return corrupt("does not begin with an instance");
    };
    if began.boot != process::boot_id()? {
        return corrupt("is of an earlier boot of this machine; what was only in memory is lost");
    }
    if !began.geometry.is_sane() {
        return corrupt("geometry out of bounds");
    }
    if options.among_users && !is_among_users(directory) {
        let context =
            "it served one user, and has what that one could read: `terral recover` first";
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let mut began = began.clone();
    let rewritten = moved(&mut began, options) || log.oldest() < Transaction::VERSION;
    clear_names(directory, &began.geometry)?;
    let mut instance = assemble(options, lock, log, began, &transactions)?;
    recovery::adopt(&mut instance.state)?;
    if rewritten {
        instance.state.rewrite_log();
    }
    instance.state.names.show(instance.state.starts);
    Ok(instance)
}

/// Whoever starts the server may know by what path the permanent directory is reached now.
fn moved(began: &mut Began, options: &Options) -> bool {
    let (Some(old), Some(new)) = (&began.backing, &options.backing) else { return false };
    let new = new.as_os_str().as_encoded_bytes();
    let moved = old != new;
    if moved {
        began.backing = Some(new.to_vec());
    }
    moved
}

fn regions(geometry: &Geometry) -> [(&'static str, usize); 3] {
    [
        ("tables", geometry.tables_bytes()),
        ("headers", geometry.headers_bytes()),
        ("pages", geometry.pages_bytes()),
    ]
}

fn assemble(
    options: &Options,
    lock: File,
    log: Log,
    began: Began,
    transactions: &[Vec<Record>],
) -> Result<Instance> {
    let directory = &options.instance;
    let mut mapped = Vec::new();
    for (name, bytes) in regions(&began.geometry) {
        let path = directory.join(name);
        mapped.push(Arc::new(Region::map(&region_file(&path, None)?, bytes, true)?));
    }
    let Ok(mapped) = <[Arc<Region>; 3]>::try_from(mapped) else {
        return Err(Error::new(ErrorKind::Malformed, "regions"));
    };
    let segments = Arc::new(Segments::new(directory.clone(), began.geometry.segments));
    let among_users = is_among_users(directory);
    let mut machine = Host::new(directory.clone(), began.instance, segments.clone());
    machine.serves_one(among_users);
    let world = Arc::new(Clock);
    let offset = &mapped[0].view::<Superblock>(0).clock_offset;
    let now = clock::time_ns(offset, world.wall_ns());
    let (backing, root) = backing_of((&began, among_users), &machine, now)?;
    // Programs of that time may still be there, and do not know of spilled chunks.
    let spill = if log.oldest() < KNOWS_SPILL { None } else { spill_of(options, &began)? };
    let memory = Memory::new(began.geometry, shared(&mapped), segments).with_spill(spill);
    let state = recovery::replay(
        Parts {
            seed: world.random()? as u64,
            world,
            machine: Arc::new(machine),
            began,
            log: Box::new(log),
            ram: Ram::new(Arc::new(memory)),
            small: Small::new(Box::new(PackedFile::open(&directory.join("small"))?)),
            backing,
            policy: Box::new(Usual),
            root,
        },
        transactions,
        mapped[0].view(0),
    )?;
    let [tables, headers, _] = mapped;
    Ok(Instance { tables, headers, state, lock })
}

fn spill_of(options: &Options, began: &Began) -> Result<Option<Spill>> {
    let store = began.backing.as_deref().map(|path| Path::new(OsStr::from_bytes(path)));
    spill_file::open(&options.instance, began.instance, (options.spill.as_deref(), store))
}

type Store = Option<Arc<dyn Backing>>;

fn backing_of(
    (began, among_users): (&Began, bool),
    machine: &Host,
    now: u64,
) -> Result<(Store, Attributes)> {
    let mut root = Attributes {
        ino: ROOT,
        kind: Kind::Directory,
        mode: 0o755,
        links: 2,
        uid: machine.user(),
        gid: machine.group(),
        size: 4096,
        accessed_ns: now,
        modified_ns: now,
        changed_ns: now,
    };
    let Some(path) = &began.backing else { return Ok((None, root)) };
    let path = PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path));
    let backing = if among_users { Dir::open_among_users(&path) } else { Dir::open(&path) }?;
    // A permanent store that is away at a restart must not keep the memory from being served.
    if let Ok(found) = backing.stat(b"") {
        root = Attributes { ino: ROOT, ..found.attributes };
    }
    Ok((Some(Arc::new(backing)), root))
}
