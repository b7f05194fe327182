//! The exec family: children keep the library and what it knows.
//!
//! Invariants: `LD_PRELOAD` and `TERRAL_*` are put back where a program scrubbed them, except for
//! set-user-id programs, which would ignore them, and where it says another instance. A program
//! under the prefix is copied into a memfd; a script is given to its interpreter by its own path.
//! Memory comes from `mmap`, as exec may be called where malloc may not. Not here: `posix_spawn`
//! (`spawn`).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use terral_client::{Kind, Seen};

use crate::hook::{Last, by_path};
use crate::path::{Name, link_of, standing_for};
use crate::real::{Served, answer, errno, kernel, set_errno};
use crate::state::Held;
use crate::{
    close, connect, cwd, locks, metadata, open, settings, sharing, signals, state, unserved,
};

type Strings = *const *const c_char;

const TEXT_BYTES: usize = 28 << 10;
const ARGUMENTS_MAX: usize = 1 << 20;

/// A child's environment, in memory of its own; unmapped when dropped.
pub struct Environment {
    list: Strings,
    bytes: usize,
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.bytes != 0 {
            let _: c_int = kernel!(SYS_munmap, self.list, self.bytes);
        }
    }
}

unsafe fn count(list: Strings) -> usize {
    if list.is_null() {
        return 0;
    }
    // SAFETY: the caller promises a null-terminated array.
    (0..ARGUMENTS_MAX).take_while(|at| unsafe { !(*list.add(*at)).is_null() }).count()
}

/// Writes `parts` and a zero at the front of `room`, and gives the string and the rest.
fn write<'a>(room: &'a mut [u8], parts: &[&[u8]]) -> Option<(*const c_char, &'a mut [u8])> {
    let mut end = 0;
    for part in parts.iter().copied().chain([&b"\0"[..]]) {
        room.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    let (text, rest) = room.split_at_mut(end);
    Some((text.as_ptr().cast(), rest))
}

/// The last only where the run spreads.
const OURS: [&[u8]; 5] =
    [b"LD_PRELOAD=", b"TERRAL_INSTANCE=", b"TERRAL_PREFIX=", b"TERRAL_CWD=", b"TERRAL_SPREAD="];

impl Environment {
    /// The environment a child of this process gets if its parent says `given`.
    ///
    /// # Safety
    /// `given` must be null or a null-terminated array of strings that outlive the answer.
    pub unsafe fn of_child(given: Strings) -> Environment {
        let untouched = Environment { list: given, bytes: 0 };
        // SAFETY: the caller's promise.
        if !settings::active() || unsafe { is_of_another(given) } {
            return untouched;
        }
        // SAFETY: the caller's promise.
        let entries = unsafe { count(given) };
        let list_bytes = (entries + OURS.len() + 3) * size_of::<*const c_char>();
        let bytes = list_bytes + TEXT_BYTES;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let mapped: isize = kernel!(SYS_mmap, ptr::null::<u8>(), bytes, rights, flags, -1, 0usize);
        if mapped == -1 {
            return untouched;
        }
        let list = mapped as *mut *const c_char;
        let built = Environment { list: list.cast_const(), bytes };
        // SAFETY: fresh memory of that size; the list and the text do not overlap; entries are
        // strings by the caller's promise.
        unsafe {
            let text = list.cast::<u8>().add(list_bytes);
            let text = std::slice::from_raw_parts_mut(text, TEXT_BYTES);
            let Some((held, text)) = carried(given, text) else { return untouched };
            let Some((ours, kept)) = our_entries(given, text) else { return untouched };
            let mut at = 0;
            let others = (0..entries).map(|from| *given.add(from)).filter(|entry| {
                let entry = CStr::from_ptr(*entry).to_bytes();
                !OURS[..kept].iter().any(|name| entry.starts_with(name))
            });
            for entry in others.chain(ours.into_iter().take(kept)).chain(held.into_iter().flatten())
            {
                *list.add(at) = entry;
                at += 1;
            }
            *list.add(at) = ptr::null();
        }
        built
    }

    /// The array.
    pub fn list(&self) -> Strings {
        self.list
    }
}

/// Whether a child shall belong to another instance, or, with an empty name, to none: `terral run`
/// under `terral run` says so of its command and of its server.
unsafe fn is_of_another(given: Strings) -> bool {
    // SAFETY: the caller promises an environment array, or null.
    let said = unsafe { settings::find(given, b"TERRAL_INSTANCE") };
    said.is_some_and(|said| said.to_bytes() != settings::instance().as_os_str().as_encoded_bytes())
}

/// Entries for what this process may do at most.
type Carried = [Option<*const c_char>; 2];

/// What says what a child may do, where this process may do less than its user and `given` says
/// nothing of it; and the rest of the room.
unsafe fn carried(given: Strings, mut text: &mut [u8]) -> Option<(Carried, &mut [u8])> {
    let mut entries = [None; 2];
    let paths = [settings::capability(), settings::credential()];
    for (at, (name, path)) in settings::HELD.into_iter().zip(paths).enumerate() {
        // SAFETY: the caller promises an environment array.
        let said = unsafe { settings::find(given, name) };
        if !path.is_empty() && said.is_none() {
            let (entry, rest) = write(text, &[name, b"=", path])?;
            (entries[at], text) = (Some(entry), rest);
        }
    }
    Some((entries, text))
}

/// The entries of [`OURS`], in that order, and how many of them there are.
unsafe fn our_entries(given: Strings, text: &mut [u8]) -> Option<([*const c_char; 5], usize)> {
    // SAFETY: the caller promises an environment array.
    let preloaded = unsafe { settings::find(given, b"LD_PRELOAD") };
    let preloaded = preloaded.map(CStr::to_bytes).unwrap_or(b"");
    let library = settings::library_path();
    let instance = settings::instance().as_os_str().as_encoded_bytes();
    let there = library.is_empty() || settings::contains(preloaded, library);
    let (preload, text) = match (there, preloaded.is_empty()) {
        (true, _) => write(text, &[OURS[0], preloaded])?,
        (false, true) => write(text, &[OURS[0], library])?,
        (false, false) => write(text, &[OURS[0], library, b":", preloaded])?,
    };
    let (instance, text) = write(text, &[OURS[1], instance])?;
    let (prefix, text) = write(text, &[OURS[2], settings::prefix()])?;
    cwd::refresh();
    let (directory, text) = write(text, &[OURS[3], cwd::text()])?;
    let Some((program, ticket)) = settings::spread() else {
        return Some(([preload, instance, prefix, directory, ptr::null()], OURS.len() - 1));
    };
    let (spread, _) = write(text, &[OURS[4], program, b":", ticket])?;
    Some(([preload, instance, prefix, directory, spread], OURS.len()))
}

/// Whether the kernel would give this program other rights than this process has.
pub fn changes_rights(path: *const c_char) -> bool {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let found: c_int = kernel!(SYS_newfstatat, libc::AT_FDCWD, path, &raw mut stat, 0);
    found == 0 && stat.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0
}

/// Copies a managed file into a memfd, and gives that; nobody may write into the file from before
/// it is copied. ENOEXEC for a script, with its first line.
fn copy_program(fd: c_int, given: &[u8], line: &mut [u8; 256]) -> Served<c_int> {
    let held = state::managed(fd).ok_or(libc::EBADF)?;
    let first = crate::data::read_at(&held, &mut line[..255], 0)?;
    line[first as usize] = 0;
    if line.starts_with(b"#!") {
        connect::serve(|| held.file.execute(None))?;
        return Err(libc::ENOEXEC);
    }
    let told = |memory: c_int| connect::serve(|| held.file.execute(Some(memory as u32)));
    // Who executes a descriptor says no name.
    let path = given.starts_with(b"/proc/").then(|| held.path().unwrap_or_default());
    let name = held.file.name_of_copy(path.as_deref().unwrap_or(given));
    copy_after(&held, &name, told)
}

/// Copies a managed file into a memfd, which an exec closes, and gives that.
pub fn copy_into_memory(fd: c_int) -> Served<c_int> {
    let held = state::managed(fd).ok_or(libc::EBADF)?;
    copy_after(&held, c"terral-library", |_| Ok(()))
}

/// Copies into a memfd of this name once that has been told of.
fn copy_after(
    held: &state::Held,
    name: &CStr,
    tell: impl FnOnce(c_int) -> Served<()>,
) -> Served<c_int> {
    let memory: c_int = kernel!(SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC);
    if memory < 0 {
        return Err(errno());
    }
    tell(memory).and_then(|()| fill(memory, held)).map(|()| memory).inspect_err(|_| {
        let _: c_int = kernel!(SYS_close, memory);
    })
}

fn fill(memory: c_int, held: &state::Held) -> Served<()> {
    let mut buffer = [0u8; 16 << 10];
    let mut offset = 0;
    loop {
        let count = crate::data::read_at(held, &mut buffer, offset)?;
        if count == 0 {
            return Ok(());
        }
        let written: isize = kernel!(SYS_write, memory, buffer.as_ptr(), count);
        if written != count {
            return Err(libc::ENOMEM);
        }
        offset += count as i64;
    }
}

/// Runs a program under the prefix.
///
/// `given` is what a script is told to be called.
unsafe fn run_name(
    name: &Name<'_>,
    given: &[u8],
    arguments: Strings,
    environment: Strings,
) -> Served<c_int> {
    may_run(metadata::of_name(name, Last::Followed)?)?;
    let fd = open::open_name(name, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    // SAFETY: the arrays are the caller's.
    let failure = unsafe { run_open(fd, given, arguments, environment) };
    close::close_fd(fd);
    failure
}

/// EACCES for what is no file, or not this thread's to run.
fn may_run(found: Seen) -> Served<()> {
    if found.kind != Kind::File {
        return Err(libc::EACCES);
    }
    metadata::may(&found, libc::X_OK).map(drop)
}

/// Runs what a descriptor stands for, which may be one of a path only.
unsafe fn run_descriptor(
    held: &Held,
    given: &[u8],
    arguments: Strings,
    environment: Strings,
) -> Served<c_int> {
    may_run(metadata::of_file(held)?)?;
    let fd = open::open_again(held, libc::O_RDONLY | libc::O_CLOEXEC)?;
    // SAFETY: the arrays are the caller's.
    let failure = unsafe { run_open(fd, given, arguments, environment) };
    close::close_fd(fd);
    failure
}

/// Runs a program that is open.
unsafe fn run_open(
    fd: c_int,
    given: &[u8],
    arguments: Strings,
    environment: Strings,
) -> Served<c_int> {
    let mut line = [0u8; 256];
    match copy_program(fd, given, &mut line) {
        Ok(memory) => {
            let path = state::managed(fd).and_then(|held| held.path().ok());
            let shown = path.map(|path| settings::below_prefix(&path));
            let shown = Some(shown.as_deref().unwrap_or(given));
            // SAFETY: the arrays are the caller's.
            let served = unsafe { unserved::check_at(memory, c"".as_ptr(), shown, arguments) };
            if let Err(errno) = served {
                let _: c_int = kernel!(SYS_close, memory);
                return Err(errno);
            }
            // SAFETY: as above.
            let environment = unsafe { Environment::of_child(environment) };
            let flags = libc::AT_EMPTY_PATH;
            let list = environment.list();
            // SAFETY: the path is a string.
            unsafe { locks::release_for_exec(memory, c"".as_ptr(), flags) };
            let loud = signals::loud();
            let _: c_int = kernel!(SYS_execveat, memory, c"".as_ptr(), arguments, list, flags);
            let failure = errno();
            drop(loud);
            let _: c_int = kernel!(SYS_close, memory);
            Err(failure)
        }
        // SAFETY: the arrays are the caller's.
        Err(libc::ENOEXEC) if line.starts_with(b"#!") => unsafe {
            run_script(given, &mut line, arguments, environment)
        },
        Err(errno) => Err(errno),
    }
}

/// Runs `#! interpreter argument` with the script's own path.
unsafe fn run_script(
    given: &[u8],
    line: &mut [u8; 256],
    arguments: Strings,
    environment: Strings,
) -> Served<c_int> {
    let end = line.iter().position(|byte| matches!(byte, b'\n' | 0)).unwrap_or(255);
    line[end] = 0;
    let text = line[2..end].trim_ascii();
    let split = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let mut words = [0u8; 256 + 4096 + 8];
    let (interpreter, rest) = write(&mut words, &[&text[..split]]).ok_or(libc::ENOEXEC)?;
    let argument = text[split..].trim_ascii();
    let (argument_text, rest) = write(rest, &[argument]).ok_or(libc::ENOEXEC)?;
    let (script, _) = write(rest, &[given]).ok_or(libc::ENAMETOOLONG)?;
    let mut list = Vec::new();
    list.push(interpreter);
    if !argument.is_empty() {
        list.push(argument_text);
    }
    list.push(script);
    // SAFETY: the array is the caller's, null-terminated.
    unsafe { list.extend((1..count(arguments)).map(|at| *arguments.add(at))) };
    list.push(ptr::null());
    let _loud = signals::loud();
    // SAFETY: every string lives until exec succeeds or fails.
    unsafe { execve(interpreter, list.as_ptr(), environment) };
    Err(errno())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    sharing::all();
    // SAFETY: the caller promises the strings and arrays.
    unsafe {
        if let Some((_, held)) = standing_for(path) {
            let given = CStr::from_ptr(path).to_bytes();
            return answer(run_descriptor(&held, given, arguments, environment));
        }
        by_path!(
            libc::AT_FDCWD,
            path,
            Last::Followed,
            |_at, path| if let Err(errno) = unserved::check(path, arguments) {
                answer(Err(errno))
            } else if settings::active() && !changes_rights(path) {
                let environment = Environment::of_child(environment);
                locks::release_for_exec(libc::AT_FDCWD, path, 0);
                kernel!(SYS_execve, path, arguments, environment.list())
            } else {
                locks::release_for_exec(libc::AT_FDCWD, path, 0);
                kernel!(SYS_execve, path, arguments, environment)
            },
            |name| run_name(&name, CStr::from_ptr(path).to_bytes(), arguments, environment)
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the same contract.
    unsafe { execve(path, arguments, settings::environment()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    dirfd: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    sharing::all();
    // SAFETY: the caller promises the strings and arrays.
    unsafe {
        let itself = flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && *path == 0;
        if itself && let Some(held) = state::managed(dirfd) {
            let mut link = [0u8; 32];
            let given = CStr::from_ptr(link_of(dirfd, &mut link).unwrap_or(path)).to_bytes();
            return answer(run_descriptor(&held, given, arguments, environment));
        }
        if let Err(errno) = unserved::check_at(dirfd, path, None, arguments) {
            return answer(Err(errno));
        }
        if itself {
            let environment = Environment::of_child(environment);
            locks::release_for_exec(dirfd, path, flags);
            return kernel!(SYS_execveat, dirfd, path, arguments, environment.list(), flags);
        }
        by_path!(
            dirfd,
            path,
            Last::by(flags),
            |dirfd, path| {
                let environment = Environment::of_child(environment);
                locks::release_for_exec(dirfd, path, flags);
                kernel!(SYS_execveat, dirfd, path, arguments, environment.list(), flags)
            },
            |name| run_name(&name, name.absolute, arguments, environment)
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the same contract.
    unsafe { execveat(fd, c"".as_ptr(), arguments, environment, libc::AT_EMPTY_PATH) }
}

/// A program without a format the kernel knows is a shell script.
unsafe fn run_by_shell(path: *const c_char, arguments: Strings, environment: Strings) {
    let mut list = vec![c"/bin/sh".as_ptr(), path];
    // SAFETY: the array is the caller's, null-terminated.
    unsafe {
        list.extend((1..count(arguments)).map(|at| *arguments.add(at)));
        list.push(ptr::null());
        execve(c"/bin/sh".as_ptr(), list.as_ptr(), environment);
    }
}

/// Tries `directory/file`; whether the search is over.
unsafe fn run_in(directory: &[u8], file: &CStr, arguments: Strings, environment: Strings) -> bool {
    let mut space = [0u8; 4096 + 256];
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    let Some((path, _)) = write(&mut space, &[directory, slash, file.to_bytes()]) else {
        return false;
    };
    // SAFETY: the strings live until exec succeeds or fails.
    unsafe {
        execve(path, arguments, environment);
        if errno() == libc::ENOEXEC {
            run_by_shell(path, arguments, environment);
        }
    }
    !matches!(errno(), libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ESTALE | libc::ENODEV)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller promises strings and arrays.
    unsafe {
        let name = CStr::from_ptr(file);
        if name.is_empty() {
            return answer(Err(libc::ENOENT));
        }
        if name.to_bytes().contains(&b'/') {
            execve(file, arguments, environment);
            if errno() == libc::ENOEXEC {
                run_by_shell(file, arguments, environment);
            }
            return -1;
        }
        let search = settings::find(settings::environment(), b"PATH");
        let search = search.map(CStr::to_bytes).unwrap_or(b"/bin:/usr/bin");
        let mut refused = false;
        for directory in search.split(|byte| *byte == b':') {
            if run_in(directory, name, arguments, environment) {
                return -1;
            }
            refused |= errno() == libc::EACCES;
        }
        if refused {
            set_errno(libc::EACCES);
        }
    }
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the same contract.
    unsafe { execvpe(file, arguments, settings::environment()) }
}
