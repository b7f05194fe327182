//! What the kernel of this machine says: the clock, random numbers, processes, and what they share
//! with the server through the instance's directory. Not here: the regions and the log, which are
//! made and taken over as the server starts (`instance`).

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use terral_format::ids::{DescriptionSlot, Ino, InstanceId, PageNumber, SessionSlot};
use terral_format::local::geometry::{DESCRIPTIONS_PER_DIRECTORY, SEGMENT_PAGES};
use terral_format::local::names::Inode;
use terral_format::local::tables::MAGIC;
use terral_format::wire::message::Kind;
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_store::arena::Segments;
use terral_transport::permission::Reach;
use terral_transport::region::Region;
use terral_transport::requests::Session;
use terral_transport::{boottime, lock, maps, nodes, process, program};

use crate::core::machine::{Machine, Process};
use crate::core::world::{Tick, World};

/// Whoever reaches the directory of FIFOs and sockets was let in by the permission bits of the
/// inode.
const ALL: u32 = 0o666;

/// The kernel's clocks and random numbers.
#[derive(Default)]
pub struct Clock;

impl World for Clock {
    fn now(&self) -> Tick {
        // Servers that follow each other go by the same.
        Tick(boottime::now_ns())
    }

    fn wall_ns(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    }

    fn random(&self) -> Result<u128> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::new(ErrorKind::System, format!("random bytes: {error}")))?;
        Ok(u128::from_le_bytes(bytes))
    }

    fn give_way(&self) {
        std::thread::yield_now();
    }
}

impl Process for process::Process {
    fn pid(&self) -> u32 {
        process::Process::pid(self)
    }

    fn is_alive(&self) -> bool {
        process::Process::is_alive(self)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// Where what was granted, denied and revoked is written down.
const AUDIT: &str = "audit";
/// So long that may get.
const AUDIT_BYTES: u64 = 16 << 20;

/// This machine, as the processes of one instance share it.
pub struct Host {
    directory: PathBuf,
    instance: InstanceId,
    segments: Arc<Segments>,
    user: u32,
    group: u32,
    /// Programs of its user's that become another one are not let in.
    serves_one: bool,
    /// Lock directories that are open for probing, by number: 64 descriptions each.
    lock_directories: Mutex<Vec<Option<File>>>,
}

/// The directory whose descriptors stand for a description.
fn lock_directory(instance: &Path, description: DescriptionSlot) -> PathBuf {
    instance.join("open").join((description.0 / DESCRIPTIONS_PER_DIRECTORY).to_string())
}

/// The file of a session's page.
pub fn session_path(instance: &Path, session: SessionSlot) -> PathBuf {
    instance.join(format!("session-{session}"))
}

/// Makes a directory with exactly `mode`, unless it is there.
pub fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let failed = |e: &std::io::Error| Error::system(e, path.display().to_string());
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).map_err(|e| failed(&e))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|e| failed(&e))
}

/// Makes the page of a new session, and its file, which the client gets.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if memory is full, and what else the file system says.
pub fn make_page(instance: &Path, session: SessionSlot) -> Result<(Session, File)> {
    let path = session_path(instance, session);
    let failed = |e: &std::io::Error| Error::system(e, path.display().to_string());
    let _ = fs::remove_file(&path);
    let mut how = OpenOptions::new();
    let how = how.read(true).write(true).create_new(true).mode(0o600);
    let file = how.open(&path).map_err(|e| failed(&e))?;
    // Both sides store there, whatever memory is left.
    let made = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, Session::BYTES as u64);
    if let Err(error) = made {
        let _ = fs::remove_file(&path);
        return Err(failed(&error.into()));
    }
    let page = Session::new(Region::map(&file, Session::BYTES, true)?);
    page.page().magic.store(MAGIC, Ordering::SeqCst);
    page.page().session.store(session.0.into(), Ordering::SeqCst);
    Ok((page, file))
}

/// Changes an object by `change`, which is given a name that leads nowhere else: programs that are
/// not of this user may have put anything into the directory.
fn change_object(
    object: &Path,
    kind: Kind,
    change: impl Fn(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits().cast_signed();
    let held = File::options().read(true).custom_flags(flags).open(object)?;
    let found = held.metadata()?.file_type();
    if if kind == Kind::Fifo { found.is_fifo() } else { found.is_socket() } {
        return change(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd())));
    }
    Err(Errno::EXIST.into())
}

impl Host {
    /// As the instance in `directory` sees it.
    pub fn new(directory: PathBuf, instance: InstanceId, segments: Arc<Segments>) -> Self {
        let (user, group) = (process::user(), process::group());
        let lock_directories = Mutex::default();
        let serves_one = false;
        Host { directory, instance, segments, user, group, serves_one, lock_directories }
    }

    /// Each of several users has a server of his own: nobody else's programs use this one, nor
    /// those of its user's that become another.
    pub fn serves_one(&mut self, does: bool) {
        self.serves_one = does;
    }

    fn object(&self, ino: Ino) -> PathBuf {
        self.directory.join(nodes::DIRECTORY).join(nodes::name(self.instance, ino))
    }
}

impl Machine for Host {
    fn user(&self) -> u32 {
        self.user
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn name(&self) -> String {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim_end().to_owned()
    }

    fn group(&self) -> u32 {
        self.group
    }

    fn protects_links(&self) -> bool {
        static PROTECTS: OnceLock<bool> = OnceLock::new();
        let read = || fs::read("/proc/sys/fs/protected_hardlinks");
        *PROTECTS.get_or_init(|| read().is_ok_and(|text| text.starts_with(b"1")))
    }

    fn process(&self, pid: u32, ticks: u64) -> Option<Box<dyn Process>> {
        let found = process::Process::reopen(pid, ticks).or_else(|| process::Process::gone(pid));
        Some(Box::new(found?))
    }

    fn started_ticks(&self, pid: u32) -> Option<u64> {
        let ticks = process::started_ticks(pid).ok()?;
        let lives = process::Process::open(pid).is_ok_and(|process| process.is_alive());
        lives.then_some(ticks)
    }

    fn shown(&self, pid: u32) -> String {
        process::shown(pid)
    }

    fn may_act(&self, pid: u32, person: &Person) -> bool {
        let is_let_in = !self.serves_one || person.user == self.user;
        is_let_in && Reach::of(pid).is_some_and(|reach| reach.includes(person))
    }

    fn copy_of(&self, pid: u32, descriptor: u32) -> Option<Ino> {
        program::has_copy(self.instance, pid, descriptor)
    }

    fn running(&self) -> Vec<Ino> {
        program::running(self.instance).collect()
    }

    fn page(&self, session: SessionSlot) -> Result<Session> {
        let path = session_path(&self.directory, session);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|e| Error::system(&e, path.display().to_string()))?;
        Ok(Session::new(Region::map(&file, Session::BYTES, true)?))
    }

    fn remove_page(&self, session: SessionSlot) {
        let _ = fs::remove_file(session_path(&self.directory, session));
    }

    fn has_page(&self, pid: u32, session: SessionSlot) -> bool {
        process::has_mapped(pid, &session_path(&self.directory, session))
    }

    fn is_mapped(&self, page: PageNumber) -> bool {
        let segment = self.segments.file(page.0 / SEGMENT_PAGES);
        segment.map_or(true, |segment| maps::is_mapped(&segment, page))
    }

    fn is_stored_to(&self, page: PageNumber) -> bool {
        let segment = self.segments.file(page.0 / SEGMENT_PAGES);
        segment.map_or(true, |segment| maps::is_stored_to(&segment, page))
    }

    fn make_holdable(&self, description: DescriptionSlot) -> Result<()> {
        make_directory(&lock_directory(&self.directory, description), 0o555)
    }

    fn is_held(&self, description: DescriptionSlot) -> Result<bool> {
        let failed = |e: &std::io::Error| {
            let path = lock_directory(&self.directory, description);
            Error::system(e, path.display().to_string())
        };
        let number = (description.0 / DESCRIPTIONS_PER_DIRECTORY) as usize;
        let mut open = self.lock_directories.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() <= number {
            open.resize_with(number + 1, || None);
        }
        let directory = match &mut open[number] {
            Some(known) => known,
            place => {
                let path = lock_directory(&self.directory, description);
                place.insert(File::open(path).map_err(|e| failed(&e))?)
            }
        };
        let byte = (description.0 % DESCRIPTIONS_PER_DIRECTORY) as u8;
        lock::probe(directory.as_fd(), byte).map_err(|e| failed(&e))
    }

    fn make_fifo(&self, ino: Ino) -> Result<()> {
        let object = self.object(ino);
        let failed = |error: std::io::Error| Error::system(&error, object.display().to_string());
        match rustix::fs::mknodat(CWD, &object, FileType::Fifo, Mode::from_raw_mode(ALL), 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        // Whoever made it may have been killed before this.
        let open = |name: &Path| fs::set_permissions(name, Permissions::from_mode(ALL));
        change_object(&object, Kind::Fifo, open).map_err(failed)
    }

    fn audit(&self, line: &str) {
        let path = self.directory.join(AUDIT);
        let mut how = OpenOptions::new();
        let file = how.create(true).append(true).mode(0o600).open(path);
        let short = |file: &File| file.metadata().is_ok_and(|found| found.len() < AUDIT_BYTES);
        if let Some(mut file) = file.ok().filter(short) {
            // Where memory is full a line is missing.
            let _ = file.write_all(line.as_bytes());
        }
    }

    fn remove_node(&self, inode: &Inode) {
        let object = self.object(inode.ino);
        // There may be none; what stays goes with the instance.
        let _ = change_object(&object, inode.kind, |name| {
            let _ = chown(name, Some(inode.uid), Some(inode.gid));
            fs::set_permissions(name, Permissions::from_mode(inode.mode.into()))
        });
        let _ = fs::remove_file(&object);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::Arc;

    use super::{Host, Machine, Person, Segments, process};
    use crate::authority::authn::permit_acting;
    use terral_format::ids::InstanceId;

    #[test]
    fn only_what_the_kernel_lets_a_process_be_is_believed() {
        let segments = Arc::new(Segments::new("/nowhere".into(), 0));
        let host = Host::new("/nowhere".into(), InstanceId(0), segments);
        let own = terral_transport::permission::acting().person.clone();
        let this = process::Process::open(std::process::id()).expect("this process");
        assert!(permit_acting(&host, &this, &own).is_ok());
        let other = Person { user: 65534, group: 65534, groups: Vec::new() };
        assert_eq!(permit_acting(&host, &this, &other).is_ok(), host.user() == 0);
        if host.user() != 0 {
            return;
        }
        let mut command = Command::new("sleep");
        let mut child = command.arg("60").uid(65534).gid(65534).spawn().expect("sleep");
        let process = process::Process::open(child.id()).expect("the child");
        let ask = |person| permit_acting(&host, &process, person);
        let told = [ask(&other), ask(&own)];
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert!(told[0].is_ok() && told[1].is_err(), "{told:?}");
        assert!(ask(&other).is_err(), "nobody is there any more");
        assert_eq!(host.started_ticks(child.id()), None);
    }
}
