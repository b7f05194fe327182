//! `posix_spawn` by fork and exec, for what libc's own cannot do since it works inside libc: run a
//! program under the prefix, or open or enter a path there on the child's behalf.
//!
//! Invariants: the parent returns when the child has become the program, or with the errno of what
//! failed. Not here: when this is needed is decided by `spawn`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::close::close_fd;
use crate::entrance::is_ours;
use crate::exec::{execve, execvpe};
use crate::open::open_at;
use crate::real::{errno, kernel};
use crate::resolve::{chdir, fchdir};
use crate::state;

type Strings = *const *const c_char;

/// What libc keeps in `posix_spawn_file_actions_t`, which its ABI fixes.
#[repr(C)]
struct Actions {
    allocated: c_int,
    used: c_int,
    list: *const Action,
}

/// One of them; which fields it has depends on the tag.
#[repr(C)]
struct Action {
    tag: c_int,
    fields: Fields,
}

#[repr(C)]
union Fields {
    numbers: [c_int; 2],
    open: Open,
    path: *const c_char,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Open {
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
}
const _: () = assert!(size_of::<Action>() == 32);

const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CHDIR: c_int = 3;
const FCHDIR: c_int = 4;
const CLOSE_FROM: c_int = 5;
const TERMINAL: c_int = 6;

/// The caller's list of actions, which may be null.
unsafe fn list<'a>(actions: *const c_void) -> &'a [Action] {
    let actions = actions.cast::<Actions>();
    // SAFETY: the caller of posix_spawn promises null or a struct that libc has made.
    unsafe {
        if actions.is_null() || (*actions).used <= 0 {
            return &[];
        }
        std::slice::from_raw_parts((*actions).list, (*actions).used as usize)
    }
}

/// Whether any of the actions is about the prefix.
///
/// # Safety
/// `actions` must be null or made by libc.
pub unsafe fn concern_us(actions: *const c_void) -> bool {
    // SAFETY: the caller's promise; each action has the fields that its tag says.
    unsafe {
        list(actions).iter().any(|action| match action.tag {
            OPEN => is_ours(action.fields.open.path),
            CHDIR => is_ours(action.fields.path),
            FCHDIR => state::managed(action.fields.numbers[0]).is_some(),
            _ => false,
        })
    }
}

/// How a child becomes the program.
#[derive(Clone, Copy)]
pub struct Program {
    /// Path, or a name to be searched for.
    pub file: *const c_char,
    /// Whether it is searched for.
    pub search: bool,
    /// Its arguments.
    pub arguments: Strings,
    /// Its environment.
    pub environment: Strings,
}

/// A child's way to tell its parent what failed. Its number gives way to what actions ask for.
struct Teller(c_int);

impl Teller {
    fn make_way(&mut self, wanted: c_int) {
        if wanted == self.0 {
            let moved: c_int = kernel!(SYS_fcntl, self.0, libc::F_DUPFD_CLOEXEC, self.0 + 1);
            self.0 = moved;
        }
    }

    fn tell(&self, failure: c_int) {
        let _: isize = kernel!(SYS_write, self.0, &raw const failure, size_of::<c_int>());
    }
}

fn checked(answer: c_int) -> Result<(), c_int> {
    if answer == -1 { Err(errno()) } else { Ok(()) }
}

fn open_as(open: &Open) -> Result<(), c_int> {
    close_fd(open.fd);
    let fresh = open_at(libc::AT_FDCWD, open.path, open.flags, open.mode);
    checked(fresh)?;
    if fresh != open.fd {
        // SAFETY: dup2 takes any numbers.
        checked(unsafe { libc::dup2(fresh, open.fd) })?;
        close_fd(fresh);
    }
    Ok(())
}

fn copy(from: c_int, to: c_int) -> Result<(), c_int> {
    if from != to {
        // SAFETY: dup2 takes any numbers.
        return checked(unsafe { libc::dup2(from, to) });
    }
    let flags: c_int = kernel!(SYS_fcntl, from, libc::F_GETFD);
    checked(flags)?;
    checked(kernel!(SYS_fcntl, from, libc::F_SETFD, flags & !libc::FD_CLOEXEC))
}

unsafe fn act(action: &Action, teller: &mut Teller) -> Result<(), c_int> {
    // SAFETY: each action has the fields that its tag says, and its path is a string.
    unsafe {
        let [one, other] = action.fields.numbers;
        match action.tag {
            CLOSE => {
                teller.make_way(one);
                close_fd(one);
                Ok(())
            }
            DUP2 => {
                teller.make_way(other);
                copy(one, other)
            }
            OPEN => {
                teller.make_way(one);
                open_as(&action.fields.open)
            }
            CHDIR => checked(chdir(action.fields.path)),
            FCHDIR => checked(fchdir(one)),
            CLOSE_FROM => {
                let teller = teller.0 as c_uint;
                let first = one.max(0) as c_uint;
                if first < teller {
                    libc::close_range(first, teller - 1, 0);
                }
                checked(libc::close_range(first.max(teller + 1), c_uint::MAX, 0))
            }
            TERMINAL => checked(libc::tcsetpgrp(one, libc::getpgrp())),
            _ => Err(libc::ENOTSUP),
        }
    }
}

/// Signals, session, group, ids, and scheduling, as the attributes say.
unsafe fn take_attributes(attributes: *const libc::posix_spawnattr_t) -> Result<(), c_int> {
    if attributes.is_null() {
        return Ok(());
    }
    // SAFETY: the caller of posix_spawn promises attributes that libc has made; the structs are
    // plain data.
    unsafe {
        let mut flags = 0;
        libc::posix_spawnattr_getflags(attributes, &raw mut flags);
        let has = |flag: c_int| c_int::from(flags) & flag != 0;
        if has(libc::POSIX_SPAWN_SETSIGDEF) {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::posix_spawnattr_getsigdefault(attributes, &raw mut signals);
            for signal in (1..=64).filter(|signal| libc::sigismember(&signals, *signal) == 1) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        let mut parameters: libc::sched_param = std::mem::zeroed();
        libc::posix_spawnattr_getschedparam(attributes, &raw mut parameters);
        if has(libc::POSIX_SPAWN_SETSCHEDULER) {
            let mut policy = 0;
            libc::posix_spawnattr_getschedpolicy(attributes, &raw mut policy);
            checked(libc::sched_setscheduler(0, policy, &raw const parameters))?;
        } else if has(libc::POSIX_SPAWN_SETSCHEDPARAM) {
            checked(libc::sched_setparam(0, &raw const parameters))?;
        }
        if has(c_int::from(libc::POSIX_SPAWN_SETSID)) {
            checked(libc::setsid())?;
        }
        if has(libc::POSIX_SPAWN_SETPGROUP) {
            let mut group = 0;
            libc::posix_spawnattr_getpgroup(attributes, &raw mut group);
            checked(libc::setpgid(0, group))?;
        }
        if has(libc::POSIX_SPAWN_RESETIDS) {
            checked(libc::setegid(libc::getgid()))?;
            checked(libc::seteuid(libc::getuid()))?;
        }
    }
    Ok(())
}

/// The signals that the program starts with blocked.
unsafe fn mask(attributes: *const libc::posix_spawnattr_t, before: &mut libc::sigset_t) {
    // SAFETY: as for `take_attributes`.
    unsafe {
        let mut flags = 0;
        if !attributes.is_null() {
            libc::posix_spawnattr_getflags(attributes, &raw mut flags);
        }
        if c_int::from(flags) & libc::POSIX_SPAWN_SETSIGMASK != 0 {
            libc::posix_spawnattr_getsigmask(attributes, before);
        }
        libc::sigprocmask(libc::SIG_SETMASK, before, std::ptr::null_mut());
    }
}

/// What the child does; gives the errno of what failed.
unsafe fn become_program(
    program: Program,
    actions: *const c_void,
    attributes: *const libc::posix_spawnattr_t,
    before: &mut libc::sigset_t,
    teller: &mut Teller,
) -> Result<(), c_int> {
    // SAFETY: the caller of posix_spawn promises all of these.
    unsafe {
        take_attributes(attributes)?;
        list(actions).iter().try_for_each(|action| act(action, teller))?;
        mask(attributes, before);
        if program.search {
            execvpe(program.file, program.arguments, program.environment);
        } else {
            execve(program.file, program.arguments, program.environment);
        }
    }
    Err(errno())
}

/// Starts `program` in a child; 0 or an errno, as `posix_spawn`.
///
/// # Safety
/// As for `posix_spawn`.
pub unsafe fn launch(
    child: *mut libc::pid_t,
    program: Program,
    actions: *const c_void,
    attributes: *const libc::posix_spawnattr_t,
) -> c_int {
    let mut ends = [-1; 2];
    if checked(kernel!(SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC)).is_err() {
        return errno();
    }
    // SAFETY: signal sets are plain data; the caller promises the rest.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let pid = libc::fork();
        if pid == 0 {
            let mut teller = Teller(ends[1]);
            let became = become_program(program, actions, attributes, &mut before, &mut teller);
            teller.tell(became.err().unwrap_or(libc::ENOSYS));
            libc::_exit(127);
        }
        let forked = if pid < 0 { errno() } else { 0 };
        libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        let _: c_int = kernel!(SYS_close, ends[1]);
        let mut failure = forked;
        if forked == 0 {
            failure = told(ends[0]);
        }
        let _: c_int = kernel!(SYS_close, ends[0]);
        if forked == 0 && failure != 0 {
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        if failure == 0 && !child.is_null() {
            *child = pid;
        }
        failure
    }
}

/// The errno a child tells of; 0 once it has become the program.
fn told(end: c_int) -> c_int {
    let mut failure: c_int = 0;
    loop {
        let count: isize = kernel!(SYS_read, end, &raw mut failure, size_of::<c_int>());
        if count >= 0 || errno() != libc::EINTR {
            return failure;
        }
    }
}

/// Whether a search of `PATH` may meet the prefix.
pub fn search_meets_prefix(search: &CStr) -> bool {
    let mut space = [0u8; 4096];
    search.to_bytes().split(|byte| *byte == b':').any(|directory| {
        let Some(room) = space.get_mut(..directory.len() + 1) else { return false };
        room[..directory.len()].copy_from_slice(directory);
        room[directory.len()] = 0;
        // SAFETY: both have their zero.
        unsafe { is_ours(if directory.is_empty() { c".".as_ptr() } else { space.as_ptr().cast() }) }
    })
}
