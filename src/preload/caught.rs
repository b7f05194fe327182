//! System calls that objects make by instructions of their own (Rust's rustix, JITs): caught by
//! Syscall User Dispatch and served as if libc's `syscall` had been called.
//!
//! It makes each other call of the process slower, so it is switched on only where such an object
//! is loaded, at the start or by `dlopen`; a thread switches it on for itself. Invariants: SIGSYS
//! has our handler from then on, and stays unblocked (`masks`); what a handler's return would undo
//! is put into what it returns to. Where calls cannot be caught, the object is noted as unserved,
//! and `--strict` ends the program. Not here: which objects those are (`objects`), Go's.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::siginfo_t;
use terral_client::dispatch;

use crate::numbers::{Call, enter, served};
use crate::objects::{self, Found};
use crate::real::{errno, kernel, set_errno};
use crate::{heap, memory, settings, signals, unserved};

/// `si_code` of a caught call.
const SYS_USER_DISPATCH: c_int = 2;
/// `si_value` of the signal by which a thread is asked to switch it on for itself.
const ASK: usize = 0x7465_7272;
/// What COMMAND ends with under `--strict`, as a shell says of what it cannot execute.
const NOT_EXECUTABLE: c_int = 126;

static ON: AtomicBool = AtomicBool::new(false);
/// Something was loaded that nobody has looked at.
static LOADED: AtomicBool = AtomicBool::new(false);

/// What is to be caught.
#[derive(PartialEq, Eq)]
enum Catch {
    /// Calls of processes in which an object has such instructions.
    Found,
    /// Of all.
    All,
    /// None.
    Never,
}

fn wanted() -> Catch {
    // SAFETY: the environment is a null-terminated array of strings.
    let said = unsafe { settings::find(settings::environment(), b"TERRAL_CATCH") };
    match said.map(std::ffi::CStr::to_bytes) {
        Some(b"all") => Catch::All,
        Some(b"never") => Catch::Never,
        _ => Catch::Found,
    }
}

/// At the start of the process.
pub fn start() {
    if wanted() == Catch::All {
        if !begin() {
            give_up(&["all that is loaded".to_owned()], CANNOT);
        }
        return;
    }
    look();
}

/// To be called before an object is loaded.
pub fn will_load() {
    LOADED.store(true, Ordering::Relaxed);
}

/// To be called before what was loaded is used: by the first question for a name in it.
pub fn was_loaded() {
    if LOADED.load(Ordering::Relaxed) && settings::active() && !ON.load(Ordering::Relaxed) {
        LOADED.store(false, Ordering::Relaxed);
        let saved = errno();
        look();
        set_errno(saved);
    }
}

const CANNOT: &str = "makes system calls by itself, which this kernel cannot catch (Linux 5.11)";
const NEVER: &str = "makes system calls by itself, which are not caught (--catch=never)";
const GO: &str = "is Go's, which makes system calls by itself on stacks of its own";

fn look() {
    let _quiet = signals::quiet();
    let Found { raw, go } = objects::fresh();
    let named = |paths: &[Vec<u8>]| -> Vec<String> {
        paths.iter().map(|path| objects::shown(path)).collect()
    };
    if !go.is_empty() {
        give_up(&named(&go), GO);
    }
    if raw.is_empty() {
        return;
    }
    if wanted() == Catch::Never {
        give_up(&named(&raw), NEVER);
    } else if !go.is_empty() || !begin() {
        give_up(&named(&raw), CANNOT);
    }
}

/// Says which objects are not served.
fn give_up(names: &[String], why: &str) {
    for name in names {
        unserved::note(&format!("{name}: {why}"));
        if unserved::is_strict() {
            unserved::say(&format!("{name}: {why}: ended (--strict)"));
            let _: c_int = kernel!(SYS_exit_group, NOT_EXECUTABLE);
        }
    }
}

/// Switches it on in all threads.
fn begin() -> bool {
    if !dispatch::prepare() {
        return false;
    }
    if !ON.swap(true, Ordering::SeqCst) {
        // SAFETY: the function is there as long as the process.
        unsafe { heap::pthread_atfork(None, None, Some(in_this_thread)) };
        signals::catch_calls(caught);
        in_this_thread();
        ask_others();
    }
    true
}

/// Whether calls are caught.
pub fn is_on() -> bool {
    ON.load(Ordering::SeqCst)
}

/// In a new thread, or the only one of a new process.
pub extern "C" fn in_this_thread() {
    if ON.load(Ordering::SeqCst) {
        let saved = errno();
        dispatch::switch_on();
        set_errno(saved);
    }
}

/// Numbers of this process's threads.
fn threads() -> Vec<c_int> {
    let (path, flags) = (c"/proc/self/task".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    let fd: c_int = kernel!(SYS_openat, libc::AT_FDCWD, path, flags, 0);
    let mut found = Vec::new();
    let mut room = [0u64; 256];
    loop {
        let size = size_of_val(&room);
        let length: isize = kernel!(SYS_getdents64, fd, room.as_mut_ptr(), size);
        if length <= 0 {
            break;
        }
        let mut at = 0;
        while at < length as usize {
            // SAFETY: the kernel has put an entry there, with a name that ends with a zero.
            let (size, name) = unsafe {
                let entry = room.as_ptr().cast::<u8>().add(at).cast::<libc::dirent64>();
                ((*entry).d_reclen, std::ffi::CStr::from_ptr((&raw const (*entry).d_name).cast()))
            };
            found.extend(name.to_str().ok().and_then(|name| name.parse::<c_int>().ok()));
            at += usize::from(size);
        }
    }
    let _: c_int = kernel!(SYS_close, fd);
    found
}

/// What the kernel tells of a signal that was sent with a value.
#[repr(C)]
struct Sent {
    signal: c_int,
    errno: c_int,
    code: c_int,
    pid: c_int,
    uid: u32,
    value: usize,
    rest: [u64; 12],
}

/// Has the threads that are there already switch it on.
fn ask_others() {
    let (me, process): (c_int, c_int) = (kernel!(SYS_gettid), kernel!(SYS_getpid));
    let code = libc::SI_QUEUE;
    let (signal, pid) = (libc::SIGSYS, process);
    let sent = Sent { signal, errno: 0, code, pid, uid: 0, value: ASK, rest: [0; 12] };
    for thread in threads().into_iter().filter(|thread| *thread != me) {
        let _: c_int =
            kernel!(SYS_rt_tgsigqueueinfo, process, thread, libc::SIGSYS, &raw const sent);
    }
}

/// What the kernel tells of a system call that was caught.
#[repr(C)]
struct Caught {
    signal: c_int,
    errno: c_int,
    code: c_int,
    address: *mut c_void,
    number: c_int,
    architecture: u32,
}

const X86_64: u32 = 0xc000_003e;

/// The handler of SIGSYS.
unsafe extern "C" fn caught(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own structures, of which each code has its fields.
    let (code, told, sent) =
        unsafe { ((*info).si_code, &*info.cast::<Caught>(), &*info.cast::<Sent>()) };
    if code == libc::SI_QUEUE && sent.value == ASK && sent.pid == std::process::id() as c_int {
        in_this_thread();
        return;
    }
    if code != SYS_USER_DISPATCH {
        // SAFETY: what the kernel passes.
        unsafe { signals::pass_on(signal, info, context) };
        return;
    }
    let saved = errno();
    // SAFETY: the kernel passes where the thread was, and goes back there by it.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let answer = match told.architecture {
        // SAFETY: the caller of the call promises what it demands.
        X86_64 => unsafe { answer(told.number.into(), context) },
        _ => Some(-c_long::from(libc::ENOSYS)),
    };
    if let Some(answer) = answer {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = answer;
    }
    // What is blocked now, the call itself may have changed.
    let mask = (&raw mut context.uc_sigmask).cast::<u64>();
    let _: c_int = kernel!(SYS_rt_sigprocmask, 0, std::ptr::null::<u64>(), mask, size_of::<u64>());
    set_errno(saved);
}

/// A call's answer as the kernel gives it; `None`: the thread goes on elsewhere.
unsafe fn answer(number: c_long, context: &mut libc::ucontext_t) -> Option<c_long> {
    let registers = &mut context.uc_mcontext.gregs;
    let of = |register: c_int| registers[register as usize] as usize;
    let arguments = [
        of(libc::REG_RDI),
        of(libc::REG_RSI),
        of(libc::REG_RDX),
        of(libc::REG_R10),
        of(libc::REG_R8),
        of(libc::REG_R9),
    ];
    let [one, two, ..] = arguments;
    let call = Call { number, arguments };
    // SAFETY: the caller's promise.
    let told = unsafe {
        match number {
            libc::SYS_rt_sigreturn => {
                // By libc's own instructions, on the stack as it is.
                registers[libc::REG_RIP as usize] = signals::returning() as i64;
                return None;
            }
            libc::SYS_sigaltstack => {
                let told = enter(&call);
                let none = std::ptr::null::<libc::stack_t>();
                let _: c_int = kernel!(SYS_sigaltstack, none, &raw mut context.uc_stack);
                told
            }
            libc::SYS_clone if two != 0 => return go_on_uncaught(context),
            libc::SYS_clone3 if shares_memory(one) => return go_on_uncaught(context),
            _ => served(&call).unwrap_or_else(|| enter(&call)),
        }
    };
    Some(if told == -1 { -c_long::from(errno()) } else { told })
}

/// Whether a child of `clone3` runs in this memory, or on another stack.
fn shares_memory(arguments: usize) -> bool {
    // Flags first, the stack sixth.
    let told = memory::get(arguments as *const [u64; 6]);
    told.is_ok_and(|told| told[0] & libc::CLONE_VM as u64 != 0 || told[5] != 0)
}

/// A child on another stack begins behind the instruction, so it is that one which has to make it;
/// from then on neither is caught.
fn go_on_uncaught(context: &mut libc::ucontext_t) -> Option<c_long> {
    crate::sharing::all();
    dispatch::switch_off();
    context.uc_mcontext.gregs[libc::REG_RIP as usize] -= 2;
    None
}
