//! Programs into which this library is not loaded: static ones, those of another C library, those
//! that get other rights as they start.
//!
//! Invariants: such a program is noted once in the instance's `unserved`, for the summary, and
//! named once to the terminal if it was given the prefix; under `--strict` it is not started. A
//! program that cannot be read is taken to be served. Not here: what runs below such a program,
//! which nobody sees; objects that are loaded and not served (`caught`), which are noted here, too.

use std::ffi::{CStr, CString, c_char, c_int};

use crate::path::{PATH_BYTES, link_of};
use crate::real::{Served, errno, kernel, set_errno};
use crate::{cwd, settings};

/// Enough of a program to see how it is loaded.
const HEAD_BYTES: usize = 4096;
/// Interpreters that are scripts themselves, as many as the kernel follows.
const SCRIPTS: usize = 5;
/// As much as is noted, at most.
const NOTES_BYTES: usize = 64 << 10;

const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;

/// The beginning of a program, and whether the kernel gives it other rights.
struct Head {
    bytes: [u8; HEAD_BYTES],
    length: usize,
    privileged: bool,
}

fn is_privileged(fd: c_int) -> bool {
    // SAFETY: stat is plain data, of which all zero is a value; the others take nothing.
    let (mut stat, user, group): (libc::stat, u32, u32) =
        unsafe { (std::mem::zeroed(), libc::geteuid(), libc::getegid()) };
    let found: c_int = kernel!(SYS_fstat, fd, &raw mut stat);
    let other = |bit: u32, theirs: bool| stat.st_mode & bit != 0 && theirs;
    let name = c"security.capability".as_ptr();
    let size: isize = kernel!(SYS_fgetxattr, fd, name, std::ptr::null_mut::<u8>(), 0usize);
    found == 0
        && (other(libc::S_ISUID, stat.st_uid != user)
            || other(libc::S_ISGID, stat.st_gid != group)
            || (size > 0 && user != 0))
}

fn read(path: &CStr) -> Option<Head> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let fd: c_int = kernel!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
    if fd < 0 {
        return None;
    }
    let mut head = Head { bytes: [0; HEAD_BYTES], length: 0, privileged: is_privileged(fd) };
    let length: isize = kernel!(SYS_read, fd, head.bytes.as_mut_ptr(), HEAD_BYTES);
    let _: c_int = kernel!(SYS_close, fd);
    head.length = usize::try_from(length).ok()?;
    Some(head)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let digits = bytes.get(at..at.checked_add(length)?)?;
    Some(digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}

/// What a program's headers say about how it is loaded.
fn why_of_elf(bytes: &[u8]) -> Option<&'static str> {
    if bytes.get(4) != Some(&2) {
        return Some("a program of 32 bits");
    }
    let (table, size) = (number(bytes, 32, 8)? as usize, number(bytes, 54, 2)? as usize);
    let mut interpreter: Option<&[u8]> = None;
    for index in 0..number(bytes, 56, 2)? as usize {
        let entry = bytes.get(table.checked_add(index * size)?..)?;
        let (start, length) = (number(entry, 8, 8)? as usize, number(entry, 32, 8)? as usize);
        let content = start.checked_add(length).and_then(|end| bytes.get(start..end));
        match number(entry, 0, 4)? {
            PT_INTERP => interpreter = Some(content.unwrap_or(b"ld-linux")),
            PT_NOTE if content.is_some_and(|note| settings::contains(note, b"\0Go\0\0")) => {
                return Some("a Go program");
            }
            _ => {}
        }
    }
    match interpreter {
        None => Some("a static program"),
        Some(name) if !settings::contains(name, b"ld-linux") => {
            Some("a program of another C library")
        }
        Some(_) => None,
    }
}

/// The interpreter of a script.
fn interpreter(bytes: &[u8]) -> Option<CString> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.trim_ascii().split(u8::is_ascii_whitespace).next()?;
    CString::new(name).ok()
}

/// Why a program cannot be served, if so, and which file that is.
fn why(path: &CStr) -> Option<(CString, &'static str)> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS {
        let head = read(&path)?;
        let bytes = &head.bytes[..head.length];
        if let Some(next) = interpreter(bytes) {
            path = next;
            continue;
        }
        let is_elf = bytes.starts_with(b"\x7fELF");
        let why = match is_elf && head.privileged {
            true => Some("a program with rights of its own (set-user-id)"),
            false => is_elf.then(|| why_of_elf(bytes)).flatten(),
        };
        return why.map(|why| (path, why));
    }
    None
}

/// Adds a line to the instance's list; whether it is new there.
pub fn note(line: &str) -> bool {
    let path = [settings::instance().as_os_str().as_encoded_bytes(), b"/unserved\0"].concat();
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    let fd: c_int = kernel!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
    if fd < 0 {
        return true;
    }
    let mut known = vec![0u8; NOTES_BYTES];
    let length: isize = kernel!(SYS_read, fd, known.as_mut_ptr(), known.len());
    let known = &known[..length.max(0) as usize];
    let fresh = !known.split(|byte| *byte == b'\n').any(|other| other == line.as_bytes());
    if fresh && known.len() + line.len() < NOTES_BYTES {
        let line = format!("{line}\n");
        let _: isize = kernel!(SYS_write, fd, line.as_ptr(), line.len());
    }
    let _: c_int = kernel!(SYS_close, fd);
    fresh
}

/// Whether a program is given the prefix: in its arguments, or as its working directory.
unsafe fn is_given_prefix(arguments: *const *const c_char) -> bool {
    if cwd::is_managed() {
        return true;
    }
    // SAFETY: the caller promises null or a null-terminated array of strings.
    let all = (0..).map_while(|at| unsafe {
        (!arguments.is_null() && !(*arguments.add(at)).is_null())
            .then(|| CStr::from_ptr(*arguments.add(at)))
    });
    all.into_iter().any(|argument| settings::contains(argument.to_bytes(), settings::prefix()))
}

/// Tells the terminal.
pub fn say(what: &str) {
    let line = format!("terral: {what}\n");
    let _: isize = kernel!(SYS_write, 2, line.as_ptr(), line.len());
}

/// Whether what cannot be served is not to run.
pub fn is_strict() -> bool {
    // SAFETY: the environment is a null-terminated array of strings.
    unsafe { settings::find(settings::environment(), b"TERRAL_STRICT") }.is_some()
}

/// To be asked before a program is started; EACCES if that is refused.
///
/// # Safety
/// `path` must be a string, and `arguments` null or a null-terminated array of strings.
pub unsafe fn check(path: *const c_char, arguments: *const *const c_char) -> Served<()> {
    if !settings::active() || path.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { judge(CStr::from_ptr(path), None, arguments) }
}

/// The same for a program that is started by descriptors: at `path` below `dirfd`, or `dirfd`
/// itself if that is empty. `shown` is what it is called, if that is known.
///
/// # Safety
/// As for [`check`].
pub unsafe fn check_at(
    dirfd: c_int,
    path: *const c_char,
    shown: Option<&[u8]>,
    arguments: *const *const c_char,
) -> Served<()> {
    if !settings::active() || path.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let below = unsafe { CStr::from_ptr(path) }.to_bytes();
    if below.starts_with(b"/") || (dirfd == libc::AT_FDCWD && !below.is_empty()) {
        // SAFETY: the caller's promise.
        return unsafe { check(path, arguments) };
    }
    let mut space = [0u8; 32];
    let Some(link) = link_of(dirfd, &mut space) else { return Ok(()) };
    // SAFETY: it was just written there, with its zero.
    let link = unsafe { CStr::from_ptr(link) };
    let joined = |start: &[u8]| {
        let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
        CString::new([start, slash, below].concat()).ok()
    };
    let mut name = [0u8; PATH_BYTES];
    let length: isize =
        kernel!(SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), name.as_mut_ptr(), name.len());
    let name = shown
        .map_or_else(|| joined(&name[..length.max(0) as usize]), |shown| CString::new(shown).ok());
    let Some(read) = joined(link.to_bytes()) else { return Ok(()) };
    // SAFETY: the caller's promise.
    unsafe { judge(&read, name, arguments) }
}

/// The same for a name that is searched for in `PATH`.
///
/// # Safety
/// As for [`check`].
pub unsafe fn check_named(name: *const c_char, arguments: *const *const c_char) -> Served<()> {
    // SAFETY: the caller's promise; the environment is a null-terminated array of strings.
    let (name, search) =
        unsafe { (CStr::from_ptr(name), settings::find(settings::environment(), b"PATH")) };
    let search = search.map_or(&b"/bin:/usr/bin"[..], CStr::to_bytes);
    let places = search.split(|byte| *byte == b':');
    let mut paths = places.filter_map(|directory| {
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        CString::new([directory, slash, name.to_bytes()].concat()).ok()
    });
    let runs = |path: &CString| {
        let may: c_int = kernel!(SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::X_OK);
        may == 0
    };
    let before = errno();
    let found = paths.find(runs);
    set_errno(before);
    // SAFETY: the path has its zero, and the caller promises the arguments.
    found.map_or(Ok(()), |path| unsafe { check(path.as_ptr(), arguments) })
}

/// What is to be said of the program at `path`, if it is not `shown` as something else.
unsafe fn judge(
    path: &CStr,
    shown: Option<CString>,
    arguments: *const *const c_char,
) -> Served<()> {
    let Some((file, why)) = why(path) else { return Ok(()) };
    let file = if file.as_c_str() == path { shown.unwrap_or(file) } else { file };
    let file = file.to_string_lossy();
    let fresh = note(&format!("{file}: {why}"));
    if is_strict() {
        say(&format!("{file}: {why}, which Terral cannot serve: not started (--strict)"));
        return Err(libc::EACCES);
    }
    // SAFETY: the caller's promise.
    if fresh && unsafe { is_given_prefix(arguments) } {
        let prefix = String::from_utf8_lossy(settings::prefix());
        say(&format!("{file}: {why}, which Terral cannot serve: it does not see {prefix}"));
    }
    Ok(())
}
