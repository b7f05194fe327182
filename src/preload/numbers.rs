//! `syscall(2)`: system calls by number, each served as the function of its name.
//!
//! Invariants: what is served here is served as by the hook, errno among it; what has no hook and
//! can name one of our files is refused, so that the kernel does not answer for the directory that
//! stands there. Everything else goes to the kernel as it came. Not here: calls that are no calls
//! of libc at all (`caught`).

use std::ffi::{c_char, c_int, c_long, c_void};

use libc::{size_t, ssize_t};
use terral_client::kernel;

use crate::open::{self, open_at};
use crate::real::answer;
use crate::{actions, connect, ids, mapping, masks, memory, remap, settings, sharing, state};

// Functions by name, most of which are this library's own.
unsafe extern "C" {
    fn futimesat(dirfd: c_int, path: *const c_char, times: *const libc::timeval) -> c_int;
    fn getdents64(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    fn execveat(
        dirfd: c_int,
        path: *const c_char,
        arguments: *const *const c_char,
        environment: *const *const c_char,
        flags: c_int,
    ) -> c_int;
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int;
    fn name_to_handle_at(
        dirfd: c_int,
        path: *const c_char,
        handle: *mut c_void,
        mount: *mut c_int,
        flags: c_int,
    ) -> c_int;
}

/// A call's number and arguments.
pub struct Call {
    /// As the kernel numbers them.
    pub number: c_long,
    /// What stands in the six registers.
    pub arguments: [usize; 6],
}

/// The functions that stand for calls, and which arguments they take.
macro_rules! by_name {
    ($call:expr; $($number:ident => $function:path: $($at:literal)*;)*) => {
        match $call.number {
            $(libc::$number => {
                #[allow(clippy::cast_possible_wrap, reason = "registers have no sign")]
                let told = $function($($call.arguments[$at] as _),*);
                Some(told as c_long)
            })*
            _ => None,
        }
    };
}

/// Calls on descriptors whose function takes and gives what they do.
unsafe fn on_descriptors(call: &Call) -> Option<c_long> {
    // SAFETY: the caller promises what the call demands, and the function demands the same.
    unsafe {
        by_name!(call;
            SYS_read => libc::read: 0 1 2;
            SYS_write => libc::write: 0 1 2;
            SYS_close => libc::close: 0;
            SYS_fstat => libc::fstat: 0 1;
            SYS_lseek => libc::lseek: 0 1 2;
            SYS_pread64 => libc::pread: 0 1 2 3;
            SYS_pwrite64 => libc::pwrite: 0 1 2 3;
            SYS_readv => libc::readv: 0 1 2;
            SYS_writev => libc::writev: 0 1 2;
            SYS_preadv => libc::preadv: 0 1 2 3;
            SYS_pwritev => libc::pwritev: 0 1 2 3;
            SYS_preadv2 => libc::preadv2: 0 1 2 3 5;
            SYS_pwritev2 => libc::pwritev2: 0 1 2 3 5;
            SYS_dup => libc::dup: 0;
            SYS_dup2 => libc::dup2: 0 1;
            SYS_dup3 => libc::dup3: 0 1 2;
            SYS_close_range => libc::close_range: 0 1 2;
            SYS_flock => libc::flock: 0 1;
            SYS_fsync => libc::fsync: 0;
            SYS_fdatasync => libc::fdatasync: 0;
            SYS_syncfs => libc::syncfs: 0;
            SYS_sync_file_range => libc::sync_file_range: 0 1 2 3;
            SYS_readahead => libc::readahead: 0 1 2;
            SYS_ftruncate => libc::ftruncate: 0 1;
            SYS_fallocate => libc::fallocate: 0 1 2 3;
            SYS_getdents64 => getdents64: 0 1 2;
            SYS_fchdir => libc::fchdir: 0;
            SYS_fchmod => libc::fchmod: 0 1;
            SYS_fchown => libc::fchown: 0 1 2;
            SYS_fstatfs => libc::fstatfs: 0 1;
            SYS_fsetxattr => libc::fsetxattr: 0 1 2 3 4;
            SYS_fgetxattr => libc::fgetxattr: 0 1 2 3;
            SYS_flistxattr => libc::flistxattr: 0 1 2;
            SYS_fremovexattr => libc::fremovexattr: 0 1;
            SYS_copy_file_range => libc::copy_file_range: 0 1 2 3 4 5;
            SYS_sendfile => libc::sendfile: 0 1 2 3;
            SYS_splice => libc::splice: 0 1 2 3 4 5;
            SYS_tee => libc::tee: 0 1 2 3;
            SYS_poll => libc::poll: 0 1 2;
            SYS_epoll_ctl => libc::epoll_ctl: 0 1 2 3;
            SYS_sendto => libc::sendto: 0 1 2 3 4 5;
            SYS_sendmsg => libc::sendmsg: 0 1 2;
            SYS_sendmmsg => libc::sendmmsg: 0 1 2 3;
            SYS_setrlimit => libc::setrlimit: 0 1;
            SYS_prlimit64 => libc::prlimit: 0 1 2 3;
            SYS_recvfrom => libc::recvfrom: 0 1 2 3 4 5;
            SYS_recvmsg => libc::recvmsg: 0 1 2;
            SYS_recvmmsg => libc::recvmmsg: 0 1 2 3 4;
            SYS_accept => libc::accept: 0 1 2;
            SYS_accept4 => libc::accept4: 0 1 2 3;
            SYS_getsockname => libc::getsockname: 0 1 2;
            SYS_getpeername => libc::getpeername: 0 1 2;
        )
    }
}

/// Calls on names whose function takes and gives what they do.
unsafe fn on_names(call: &Call) -> Option<c_long> {
    // SAFETY: the caller promises what the call demands, and the function demands the same.
    unsafe {
        by_name!(call;
            SYS_creat => libc::creat: 0 1;
            SYS_stat => libc::stat: 0 1;
            SYS_lstat => libc::lstat: 0 1;
            SYS_newfstatat => libc::fstatat: 0 1 2 3;
            SYS_statx => libc::statx: 0 1 2 3 4;
            SYS_access => libc::access: 0 1;
            SYS_faccessat2 => libc::faccessat: 0 1 2 3;
            SYS_truncate => libc::truncate: 0 1;
            SYS_chdir => libc::chdir: 0;
            SYS_rename => libc::rename: 0 1;
            SYS_renameat => libc::renameat: 0 1 2 3;
            SYS_renameat2 => libc::renameat2: 0 1 2 3 4;
            SYS_mkdir => libc::mkdir: 0 1;
            SYS_mkdirat => libc::mkdirat: 0 1 2;
            SYS_mknod => libc::mknod: 0 1 2;
            SYS_mknodat => libc::mknodat: 0 1 2 3;
            SYS_rmdir => libc::rmdir: 0;
            SYS_link => libc::link: 0 1;
            SYS_linkat => libc::linkat: 0 1 2 3 4;
            SYS_unlink => libc::unlink: 0;
            SYS_unlinkat => libc::unlinkat: 0 1 2;
            SYS_symlink => libc::symlink: 0 1;
            SYS_symlinkat => libc::symlinkat: 0 1 2;
            SYS_readlink => libc::readlink: 0 1 2;
            SYS_readlinkat => libc::readlinkat: 0 1 2 3;
            SYS_chmod => libc::chmod: 0 1;
            SYS_chown => libc::chown: 0 1 2;
            SYS_lchown => libc::lchown: 0 1 2;
            SYS_fchownat => libc::fchownat: 0 1 2 3 4;
            SYS_umask => libc::umask: 0;
            SYS_utime => libc::utime: 0 1;
            SYS_utimes => libc::utimes: 0 1;
            SYS_futimesat => futimesat: 0 1 2;
            SYS_statfs => libc::statfs: 0 1;
            SYS_setxattr => libc::setxattr: 0 1 2 3 4;
            SYS_lsetxattr => libc::lsetxattr: 0 1 2 3 4;
            SYS_getxattr => libc::getxattr: 0 1 2 3;
            SYS_lgetxattr => libc::lgetxattr: 0 1 2 3;
            SYS_listxattr => libc::listxattr: 0 1 2;
            SYS_llistxattr => libc::llistxattr: 0 1 2;
            SYS_removexattr => libc::removexattr: 0 1;
            SYS_lremovexattr => libc::lremovexattr: 0 1;
            SYS_inotify_add_watch => inotify_add_watch: 0 1 2;
            SYS_name_to_handle_at => name_to_handle_at: 0 1 2 3 4;
            SYS_bind => libc::bind: 0 1 2;
            SYS_connect => libc::connect: 0 1 2;
            SYS_execve => libc::execve: 0 1 2;
            SYS_execveat => execveat: 0 1 2 3 4;
        )
    }
}

/// Flags that make a file, which only then has a mode.
const CREATING: c_int = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);
/// Those of `resolve` that there are.
const RESOLVE: u64 = 0x3f;

/// Whether what is to be opened is below the prefix.
fn is_ours(dirfd: usize, path: usize) -> bool {
    // SAFETY: the caller of the call promises a string or null.
    state::is_ours(dirfd as c_int) || unsafe { crate::entrance::is_ours(path as *const c_char) }
}

/// `struct open_how` of `openat2`.
unsafe fn open_as(call: &Call) -> Option<c_long> {
    let [dirfd, path, how, bytes, ..] = call.arguments;
    let known = size_of::<libc::open_how>();
    // Longer ones, of a later Linux, are the kernel's to judge; it has no such path then.
    let asked = memory::get(how as *const libc::open_how).ok().filter(|_| bytes == known)?;
    let all = open::OPEN as u32 as u64;
    let makes = asked.flags & CREATING as u64 != 0;
    let mode = if makes { 0o7777 } else { 0 };
    let only_path = asked.flags & libc::O_PATH as u64 != 0;
    if asked.flags & !all != 0
        || asked.resolve & !RESOLVE != 0
        || asked.mode & !mode != 0
        || (only_path && asked.flags & !(open::FOR_PATH as u64) != 0)
    {
        // What Linux refuses whatever the path is, and a later one may know: it has no such path.
        return is_ours(dirfd, path).then(|| answer::<isize>(Err(libc::EINVAL)) as c_long);
    }
    let (flags, mode) = (asked.flags as c_int, asked.mode as u32);
    let magic = libc::RESOLVE_NO_MAGICLINKS;
    if asked.resolve & !magic != 0 {
        // As where Linux has no such call: programs then go step by step.
        return is_ours(dirfd, path).then(|| answer::<isize>(Err(libc::ENOSYS)) as c_long);
    }
    Some(open_at(dirfd as c_int, path as *const c_char, flags, mode).into())
}

/// Calls whose function takes or gives something else.
unsafe fn bent(call: &Call) -> Option<c_long> {
    let [one, two, three, four, ..] = call.arguments;
    let path = two as *const c_char;
    // SAFETY: the caller promises what the call demands.
    unsafe {
        let told: c_int = match call.number {
            libc::SYS_open => {
                open_at(libc::AT_FDCWD, one as *const c_char, two as c_int, three as u32)
            }
            libc::SYS_openat => open_at(one as c_int, path, three as c_int, four as u32),
            libc::SYS_openat2 => return open_as(call),
            libc::SYS_fcntl => libc::fcntl(one as c_int, two as c_int, three),
            libc::SYS_ioctl => libc::ioctl(one as c_int, two as _, three),
            libc::SYS_faccessat => libc::faccessat(one as c_int, path, three as c_int, 0),
            libc::SYS_fchmodat => libc::fchmodat(one as c_int, path, three as u32, 0),
            libc::SYS_fchmodat2 => libc::fchmodat(one as c_int, path, three as u32, four as c_int),
            libc::SYS_utimensat if two == 0 && four as c_int == 0 => {
                libc::futimens(one as c_int, three as *const _)
            }
            libc::SYS_utimensat => {
                libc::utimensat(one as c_int, path, three as *const _, four as c_int)
            }
            libc::SYS_fadvise64 => {
                let advice = four as c_int;
                let failed = libc::posix_fadvise(one as c_int, two as _, three as _, advice);
                answer(if failed == 0 { Ok(0) } else { Err(failed) })
            }
            libc::SYS_mmap => {
                let [.., fd, at] = call.arguments;
                let (how, fd) = ((three as c_int, four as c_int), fd as c_int);
                let mapped = mapping::map(one as *mut c_void, two, how.0, how.1, fd, at as _);
                return Some(mapped as c_long);
            }
            libc::SYS_mremap => {
                let (flags, to) = (four as c_int, call.arguments[4] as *mut c_void);
                return Some(remap::remap(one as *mut c_void, two, three, flags, to) as c_long);
            }
            libc::SYS_rt_sigprocmask if four == size_of::<u64>() => {
                match masks::set(one as c_int, two as *const _, three as *mut _) {
                    0 => 0,
                    errno => answer(Err(errno)),
                }
            }
            libc::SYS_rt_sigaction if four == size_of::<u64>() => {
                answer(actions::act(one as c_int, two, three)?)
            }
            libc::SYS_getcwd if one != 0 => {
                let found = libc::getcwd(one as *mut c_char, two);
                if found.is_null() { -1 } else { libc::strlen(found) as c_int + 1 }
            }
            _ => return None,
        };
        Some(told.into())
    }
}

/// Processes that are forked by number. A child that borrows this memory would change our tables.
fn forked(call: &Call) -> Option<c_long> {
    let [flags, stack, ..] = call.arguments;
    let borrowed = (libc::CLONE_VFORK | libc::CLONE_VM) as usize;
    let plain = match call.number {
        libc::SYS_fork | libc::SYS_vfork => true,
        libc::SYS_clone => flags & !borrowed == libc::SIGCHLD as usize && stack == 0,
        libc::SYS_clone3 => false,
        _ => return None,
    };
    if plain {
        // SAFETY: fork takes nothing.
        return Some(unsafe { libc::fork() }.into());
    }
    sharing::all();
    None
}

const SYS_CACHESTAT: c_long = 451;
/// The first call that is not yet looked at here: later ones are refused on our descriptors.
const LATER: c_long = 463;

/// Whether a call without a hook would have the kernel answer for what stands in our file's place.
fn is_refused(call: &Call) -> bool {
    let on_ours = || state::is_ours(call.arguments[0] as c_int);
    match call.number {
        // What is asked for through rings is not seen; programs then ask without.
        libc::SYS_io_uring_setup => true,
        libc::SYS_getdents | SYS_CACHESTAT | libc::SYS_quotactl_fd => on_ours(),
        libc::SYS_open_tree => on_ours(),
        later => later >= LATER && on_ours(),
    }
}

/// Has the kernel do a call.
///
/// # Safety
/// As for the call.
pub unsafe fn enter(call: &Call) -> c_long {
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: the caller's promise.
    unsafe { kernel::enter()(call.number, a, b, c, d, e, f) }
}

/// Serves a call, with errno as the hooks set it; `None`: it is the kernel's.
///
/// # Safety
/// As for the call.
pub unsafe fn served(call: &Call) -> Option<c_long> {
    if !settings::active() || connect::inside() {
        return None;
    }
    // SAFETY: the caller's promise.
    let told = unsafe { on_descriptors(call).or_else(|| on_names(call)).or_else(|| bent(call)) };
    let told = told.or_else(|| forked(call));
    // SAFETY: as above.
    let told = told
        .or_else(|| ids::raw(call.number, call.arguments[0] as c_long, || unsafe { enter(call) }));
    told.or_else(|| is_refused(call).then(|| answer::<isize>(Err(libc::ENOSYS)) as c_long))
}

/// Calls that are not about files, and many: at once to the kernel.
fn is_other(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_futex | libc::SYS_gettid | libc::SYS_getrandom | libc::SYS_sched_yield
    )
}

// `syscall` is variadic; handing on what nobody passed is harmless.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller promises what the call demands.
    unsafe {
        let call = Call { number, arguments: [a, b, c, d, e, f] };
        if !is_other(number)
            && let Some(told) = served(&call)
        {
            return told;
        }
        enter(&call)
    }
}
