//! Signal handlers, which may use files: one that interrupts its own thread in a served call has to
//! wait until that call is over, and then runs as if the signal had come there.
//!
//! The kernel is given [`deliver`] in the place of each handler; programs are told of their own. A
//! signal that has to wait is kept with all that is known of it, and the thread goes on with all
//! others blocked, so that they wait in the kernel, in order; then it is sent once more. Faults do
//! not wait, nor does anything while a call waits long for the server: a handler that uses files
//! then is told EDEADLK. Those of a bad address that a call was given end that call with EFAULT.
//!
//! Invariants: nothing here allocates or takes a lock; while [`deliver`] decides, nothing comes
//! between. Not here: handlers installed by raw system calls that nobody catches.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use libc::{sighandler_t, siginfo_t};
use terral_client::fault;

use crate::real::{alias, kernel, libc_call, set_errno};
use crate::settings;

/// They come from what the thread is just doing.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// The C library's own.
const LIBC: [c_int; 2] = [32, 33];
/// Signals there are, and 0.
const SIGNALS: usize = 65;

/// What the program has asked for, by signal.
struct Asked {
    /// The handler's address, which has 47 bits, and of the flags those that the kernel does not
    /// get as they are. 0: no handler, or none that we know.
    handler: AtomicU64,
    /// What is blocked meanwhile.
    mask: AtomicU64,
}

static ASKED: [Asked; SIGNALS] =
    [const { Asked { handler: AtomicU64::new(0), mask: AtomicU64::new(0) } }; SIGNALS];
const WITH_INFO: u64 = 1 << 63;
const ONCE: u64 = 1 << 62;
const NOT_DEFERRED: u64 = 1 << 61;
/// Each flag's bit.
const FLAGS: [(c_int, u64); 3] =
    [(libc::SA_SIGINFO, WITH_INFO), (libc::SA_RESETHAND, ONCE), (libc::SA_NODEFER, NOT_DEFERRED)];
/// SIGSYS comes to `caught`.
static CAUGHT: AtomicBool = AtomicBool::new(false);
/// Signals that interrupt calls by `siginterrupt`, a bit each.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// What a thread is at.
struct Thread {
    /// Calls that it is in the middle of, one in the other.
    calls: Cell<u32>,
    /// A signal waits, and all others are blocked.
    waits: Cell<bool>,
    /// What was blocked before.
    blocked: Cell<u64>,
    /// What is known of the signal.
    known: Cell<MaybeUninit<siginfo_t>>,
    /// Of [`kept`], what the program has blocked.
    kept: Cell<u64>,
    /// How often a handler of the program was called, but for faults.
    handled: Cell<u32>,
}

thread_local! {
    // Const and without a destructor: plain thread-local memory, there from the thread's start.
    static THREAD: Thread = const {
        Thread {
            calls: Cell::new(0),
            waits: Cell::new(false),
            blocked: Cell::new(0),
            known: Cell::new(MaybeUninit::uninit()),
            kept: Cell::new(0),
            handled: Cell::new(0),
        }
    };
}

fn bit(signal: c_int) -> u64 {
    if (1..SIGNALS as c_int).contains(&signal) { 1 << (signal - 1) } else { 0 }
}

/// All that can be blocked for a while.
fn most() -> u64 {
    !FAULTS.iter().chain(&LIBC).fold(0, |kept, signal| kept | bit(*signal))
}

/// Signals that programs block without the kernel's having them blocked.
pub fn kept() -> u64 {
    fault::SIGNALS.iter().fold(bit(libc::SIGSYS), |kept, signal| kept | bit(*signal))
}

/// What the kernel may have blocked when a program asks for it.
pub fn blockable() -> u64 {
    !LIBC.iter().fold(kept(), |not, signal| not | bit(*signal))
}

/// Of [`kept`], what this thread has blocked.
pub fn kept_blocked() -> u64 {
    THREAD.with(|thread| thread.kept.get())
}

/// This thread has these blocked, of [`kept`].
pub fn keep_blocked(kept: u64) {
    THREAD.with(|thread| thread.kept.set(kept));
}

/// The kernel's part of a set.
pub fn mask_of(set: &mut libc::sigset_t) -> &mut u64 {
    // SAFETY: a set begins with the 64 bits that the kernel knows, in a word of its own.
    unsafe { &mut *ptr::from_mut(set).cast::<u64>() }
}

fn set_mask(mask: u64) {
    let how = libc::SIG_SETMASK;
    let _: c_int =
        kernel!(SYS_rt_sigprocmask, how, &raw const mask, ptr::null_mut::<u64>(), 8usize);
}

/// Blocks all that can be blocked for a while; gives what was blocked, for [`unblock`].
pub fn block() -> u64 {
    let (all, mut before) = (most(), 0u64);
    let how = libc::SIG_BLOCK;
    let _: c_int =
        kernel!(SYS_rt_sigprocmask, how, &raw const all, &raw mut before, size_of::<u64>());
    before
}

/// Blocks again what was blocked before.
pub fn unblock(before: u64) {
    set_mask(before);
}

/// What the kernel calls, with all signals blocked that can be.
unsafe extern "C" fn deliver(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes where the thread was, and goes back there by it.
    let blocked = mask_of(unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_sigmask });
    let waits = THREAD.with(|thread| {
        // One that waits already has all others wait in the kernel.
        let waits = thread.calls.get() > 0 && !thread.waits.get();
        if waits {
            // SAFETY: the kernel passes what is known of the signal.
            thread.known.set(MaybeUninit::new(unsafe { *info }));
            thread.blocked.set(*blocked);
            thread.waits.set(true);
            *blocked |= most();
        }
        waits
    });
    let Some(asked) = ASKED.get(signal as usize).filter(|_| !waits) else { return };
    let found = asked.handler.load(Ordering::SeqCst);
    if found & ONCE != 0 {
        set_default(signal);
        forget(asked, found);
    }
    if address_of(found) == 0 {
        return;
    }
    let own = if found & NOT_DEFERRED != 0 { 0 } else { bit(signal) };
    set_mask(*blocked | (asked.mask.load(Ordering::SeqCst) & blockable()) | own);
    THREAD.with(|thread| thread.handled.set(thread.handled.get().wrapping_add(1)));
    // SAFETY: what the kernel passes.
    unsafe { run(found, signal, info, context) };
}

/// How often this thread has called a handler of the program: one may have waited until a call was
/// over, and not come while the thread slept.
pub fn handled() -> u32 {
    THREAD.with(|thread| thread.handled.get())
}

/// The address in a word of [`Asked`].
fn address_of(found: u64) -> usize {
    (found & !(WITH_INFO | ONCE | NOT_DEFERRED)) as usize
}

fn set_default(signal: c_int) {
    // SAFETY: all zero is the default action.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    real_action(signal, &default, ptr::null_mut());
}

/// A handler that is for one signal only, unless another thread has asked for something else.
fn forget(asked: &Asked, found: u64) {
    let order = (Ordering::SeqCst, Ordering::SeqCst);
    let _ = asked.handler.compare_exchange(found, 0, order.0, order.1);
}

/// Calls the program's handler.
unsafe fn run(found: u64, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Simple = unsafe extern "C" fn(c_int);
    type Informed = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    let handler = address_of(found);
    // SAFETY: the program gave this address as that of a handler of this kind.
    unsafe {
        if found & WITH_INFO != 0 {
            std::mem::transmute::<usize, Informed>(handler)(signal, info, context);
        } else {
            std::mem::transmute::<usize, Simple>(handler)(signal);
        }
    }
}

/// What the kernel calls for [`fault::SIGNALS`], with those blocked that the program has asked for.
unsafe extern "C" fn deliver_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel passes.
    unsafe {
        if !fault::recover(info, context) {
            pass_on(signal, info, context);
        }
    }
}

/// One of [`kept`] that is the program's, with those blocked that it has asked for.
///
/// # Safety
/// All are what the kernel has passed to the handler.
pub unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes what is known of the signal.
    let sent = unsafe { (*info).si_code } <= 0;
    let blocked = kept_blocked() & bit(signal) != 0;
    if blocked && sent {
        // It waits in the kernel, until the thread takes it.
        // SAFETY: the kernel passes where the thread was, and goes back there by it.
        *mask_of(unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_sigmask }) |= bit(signal);
        set_mask(!(bit(libc::SIGKILL) | bit(libc::SIGSTOP)));
        send(info);
        return;
    }
    let asked = &ASKED[signal as usize];
    let found = if blocked { 0 } else { asked.handler.load(Ordering::SeqCst) };
    if found & ONCE != 0 {
        forget(asked, found);
    }
    if signal == libc::SIGSYS {
        match address_of(found) {
            libc::SIG_DFL => {}
            libc::SIG_IGN => return,
            _ => {
                // The kernel was given no mask, so that what is caught changes none.
                // SAFETY: the kernel passes where the thread was.
                let blocked =
                    mask_of(unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_sigmask });
                set_mask(*blocked | (asked.mask.load(Ordering::SeqCst) & blockable()));
            }
        }
    }
    if address_of(found) != 0 {
        // SAFETY: as above.
        unsafe { run(found, signal, info, context) };
        return;
    }
    set_default(signal);
    // A fault comes again by itself; not so a system call that a filter has refused.
    if sent || signal == libc::SIGSYS {
        send(info);
    }
}

/// Whether the faults of this process come to [`deliver_fault`], as far as they can.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Has faults come here, unless the program has installed handlers by means of its own.
#[inline]
pub fn watch_faults() {
    if !WATCHED.load(Ordering::Relaxed) {
        watch_faults_now();
    }
}

#[cold]
fn watch_faults_now() {
    WATCHED.store(true, Ordering::Relaxed);
    for signal in fault::SIGNALS {
        // SAFETY: all zero is a value of the struct.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        let known = real_action(signal, ptr::null(), &mut before) == 0;
        if known && before.sa_sigaction == libc::SIG_DFL {
            before.sa_flags = 0;
            real_action(signal, &for_fault(&before), ptr::null_mut());
        }
    }
}

/// Where the kernel's handlers return to: libc's instructions for that.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

/// Where a handler's return goes on, after [`catch_calls`].
pub fn returning() -> usize {
    RETURNING.load(Ordering::Relaxed)
}

/// From now on SIGSYS comes to `handler`, in whichever mask the thread is; what the program asks
/// for, [`pass_on`] does.
pub fn catch_calls(handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void)) {
    let (mut before, number) = (default_action(), libc::SIGSYS);
    real_action(number, ptr::null(), &mut before);
    keep_action(&ASKED[number as usize], &before);
    CAUGHT.store(true, Ordering::SeqCst);
    let mut ours = default_action();
    ours.sa_sigaction = handler as *const () as sighandler_t;
    // No alternate stack: it may be small, and the program's own has room for the call.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
    real_action(number, &ours, ptr::null_mut());
    // The kernel's structure: handler, flags, restorer, mask.
    let mut told = [0usize; 4];
    let none = ptr::null::<usize>();
    let _: c_int = kernel!(SYS_rt_sigaction, number, none, told.as_mut_ptr(), size_of::<u64>());
    RETURNING.store(told[2], Ordering::Relaxed);
    // It may have been blocked before this library saw masks.
    let (how, one) = (libc::SIG_UNBLOCK, bit(number));
    let _: c_int =
        kernel!(SYS_rt_sigprocmask, how, &raw const one, ptr::null_mut::<u64>(), size_of::<u64>());
}

/// The default.
pub fn default_action() -> libc::sigaction {
    // SAFETY: all zero is the default action, and an empty set.
    unsafe { std::mem::zeroed() }
}

/// Keeps what a program asks for of a signal whose handler is ours.
fn keep_action(asked: &Asked, action: &libc::sigaction) {
    let mut mask = action.sa_mask;
    asked.mask.store(*mask_of(&mut mask), Ordering::SeqCst);
    asked.handler.store(word_of(action), Ordering::SeqCst);
}

/// The word of [`Asked`] for an action.
fn word_of(action: &libc::sigaction) -> u64 {
    let flags = FLAGS.iter().filter(|(flag, _)| action.sa_flags & flag != 0);
    flags.fold(action.sa_sigaction as u64, |word, (_, bit)| word | bit)
}

/// `sigaction` of SIGSYS while calls are caught.
fn act_on_caught(new: Option<&libc::sigaction>, old: Option<&mut libc::sigaction>) {
    let asked = &ASKED[libc::SIGSYS as usize];
    let (word, mask) = (asked.handler.load(Ordering::SeqCst), asked.mask.load(Ordering::SeqCst));
    if let Some(new) = new {
        keep_action(asked, new);
    }
    if let Some(old) = old {
        *old = default_action();
        old.sa_sigaction = address_of(word) as sighandler_t;
        old.sa_flags =
            FLAGS.iter().filter(|(_, bit)| word & bit != 0).fold(0, |all, one| all | one.0);
        *mask_of(&mut old.sa_mask) = mask;
    }
}

/// What the kernel is told of a fault's `action`.
fn for_fault(action: &libc::sigaction) -> libc::sigaction {
    let mut ours = *action;
    if ours.sa_sigaction == libc::SIG_DFL {
        // A stack that is full has no room for a handler.
        ours.sa_flags = libc::SA_ONSTACK | libc::SA_NODEFER;
        *mask_of(&mut ours.sa_mask) = 0;
    }
    ours.sa_sigaction = deliver_fault as *const () as sighandler_t;
    ours.sa_flags = ours.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
    ours
}

/// As long as this is there, handlers of this thread wait.
pub struct Quiet(());

/// Lets them wait: the thread is about to do what a handler must not meet half done, allocating
/// memory among it.
#[inline]
pub fn quiet() -> Quiet {
    THREAD.with(|thread| thread.calls.set(thread.calls.get() + 1));
    compiler_fence(Ordering::SeqCst);
    Quiet(())
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        end_quiet();
    }
}

/// The end of a [`quiet`] whose [`Quiet`] was forgotten.
#[inline]
pub fn end_quiet() {
    compiler_fence(Ordering::SeqCst);
    let over = THREAD.with(|thread| {
        // Less than one, if a handler has left the outer ones by a jump.
        thread.calls.set(thread.calls.get().saturating_sub(1));
        compiler_fence(Ordering::SeqCst);
        thread.calls.get() == 0 && thread.waits.get()
    });
    if over {
        send_again();
    }
}

/// As long as this is there, nothing waits in this thread.
pub struct Loud(u32);

/// Has come what waits: the thread is about to become another program, which goes on with what is
/// blocked, and knows nothing of what waits.
pub fn loud() -> Loud {
    let calls = THREAD.with(|thread| thread.calls.replace(0));
    compiler_fence(Ordering::SeqCst);
    if THREAD.with(|thread| thread.waits.get()) {
        send_again();
    }
    Loud(calls)
}

impl Drop for Loud {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.calls.set(self.0));
        compiler_fence(Ordering::SeqCst);
    }
}

/// Sends a signal to this thread once more.
fn send(info: *const siginfo_t) {
    // SAFETY: the callers pass what is known of one.
    let (process, signal) = (std::process::id(), unsafe { (*info).si_signo });
    let me: c_int = kernel!(SYS_gettid);
    let sent: c_int = kernel!(SYS_rt_tgsigqueueinfo, process, me, signal, info);
    if sent != 0 {
        // Too many are on their way: without what was known of it.
        let _: c_int = kernel!(SYS_tgkill, process, me, signal);
    }
}

/// What had to wait comes now.
#[cold]
fn send_again() {
    THREAD.with(|thread| {
        // SAFETY: one that waits was written.
        let info = unsafe { thread.known.replace(MaybeUninit::uninit()).assume_init() };
        send(&raw const info);
        thread.waits.set(false);
        compiler_fence(Ordering::SeqCst);
        // Before the thread's other signals, which are the process's.
        set_mask(thread.blocked.get());
    });
}

/// A call waits long for the server: its thread's handlers run now.
pub fn hurry() {
    if THREAD.with(|thread| thread.waits.get()) {
        drop(loud());
    }
}

// What programs call.

fn real_action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    type Action =
        unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    libc_call!(c"sigaction" as Action, -1, signal, new, old)
}

/// What the program asked for, from what the kernel has.
fn told(mut action: libc::sigaction, (handler, mask): (u64, u64)) -> libc::sigaction {
    let ours = [deliver as *const (), deliver_fault as *const ()];
    if ours.contains(&(action.sa_sigaction as *const ())) && handler == 0 {
        // SAFETY: all zero is the default action.
        return unsafe { std::mem::zeroed() };
    }
    if ours.contains(&(action.sa_sigaction as *const ())) {
        action.sa_sigaction = address_of(handler) as sighandler_t;
        for (flag, bit) in FLAGS {
            action.sa_flags &= !flag;
            action.sa_flags |= if handler & bit != 0 { flag } else { 0 };
        }
        *mask_of(&mut action.sa_mask) = mask;
    }
    action
}

/// `sigaction`.
pub fn act(
    signal: c_int,
    new: Option<&libc::sigaction>,
    old: Option<&mut libc::sigaction>,
) -> c_int {
    // SAFETY: all zero is a value of the struct.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    if signal == libc::SIGSYS && CAUGHT.load(Ordering::SeqCst) {
        act_on_caught(new, old);
        return 0;
    }
    let asked = usize::try_from(signal).ok().and_then(|signal| ASKED.get(signal));
    let fault = fault::SIGNALS.contains(&signal);
    let ours = settings::active() && (fault || !FAULTS.contains(&signal));
    let Some(asked) = asked.filter(|_| ours) else {
        let new = new.map_or(ptr::null(), ptr::from_ref);
        return real_action(signal, new, old.map_or(ptr::null_mut(), ptr::from_mut));
    };
    let put = |(handler, mask)| {
        asked.mask.store(mask, Ordering::SeqCst);
        asked.handler.store(handler, Ordering::SeqCst);
    };
    let was = (asked.handler.load(Ordering::SeqCst), asked.mask.load(Ordering::SeqCst));
    let done = match new {
        None => real_action(signal, ptr::null(), &mut before),
        Some(new) if fault && new.sa_sigaction == libc::SIG_DFL => {
            put((0, 0));
            real_action(signal, &for_fault(new), &mut before)
        }
        Some(new) if [libc::SIG_DFL, libc::SIG_IGN].contains(&new.sa_sigaction) => {
            real_action(signal, new, &mut before)
        }
        Some(new) => {
            let mut ours = *new;
            let handler = word_of(new);
            let mut mask = *mask_of(&mut ours.sa_mask);
            if fault {
                ours = for_fault(new);
            } else {
                ours.sa_sigaction = deliver as *const () as sighandler_t;
                ours.sa_flags &= !(libc::SA_RESETHAND | libc::SA_NODEFER);
                ours.sa_flags |= libc::SA_SIGINFO;
                mask = std::mem::replace(mask_of(&mut ours.sa_mask), most());
            }
            // Before: it may come at once.
            put((handler, mask));
            let done = real_action(signal, &ours, &mut before);
            if done != 0 {
                put(was);
            }
            done
        }
    };
    if let (Some(old), 0) = (old, done) {
        *old = told(before, was);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's own arguments, each null or what it should be.
    act(signal, unsafe { new.as_ref() }, unsafe { old.as_mut() })
}

/// Installs a handler with these flags; gives the one before.
fn install(signal: c_int, handler: sighandler_t, flags: c_int, masked: bool) -> sighandler_t {
    // SAFETY: all zero is a value of the struct, and an empty set.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    (new.sa_sigaction, new.sa_flags) = (handler, flags);
    // SAFETY: the set is there; a signal that is none is refused.
    if masked && unsafe { libc::sigaddset(&mut new.sa_mask, signal) } != 0 {
        return libc::SIG_ERR;
    }
    if handler == libc::SIG_ERR {
        set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    if act(signal, Some(&new), Some(&mut old)) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let interrupts = INTERRUPTS.load(Ordering::SeqCst) & bit(signal) != 0;
    install(signal, handler, if interrupts { 0 } else { libc::SA_RESTART }, true)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, false)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: all zero is a value of the struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    if act(signal, None, Some(&mut action)) != 0 {
        return -1;
    }
    if interrupts != 0 {
        INTERRUPTS.fetch_or(bit(signal), Ordering::SeqCst);
        action.sa_flags &= !libc::SA_RESTART;
    } else {
        INTERRUPTS.fetch_and(!bit(signal), Ordering::SeqCst);
        action.sa_flags |= libc::SA_RESTART;
    }
    act(signal, Some(&action), None)
}

/// `SIG_HOLD` of the C library: not a handler, but to block the signal.
const SIG_HOLD: sighandler_t = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: all zero is an empty set, and a value of the struct.
    let (mut one, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    let mut old = libc::SIG_ERR;
    if handler != SIG_HOLD {
        old = install(signal, handler, 0, false);
        if old == libc::SIG_ERR {
            return old;
        }
    }
    // SAFETY: both sets are there; a signal that is none is refused.
    unsafe {
        let changed = libc::sigaddset(&mut one, signal) == 0
            && libc::pthread_sigmask(how, &one, &mut before) == 0;
        if !changed {
            return libc::SIG_ERR;
        }
        if libc::sigismember(&before, signal) == 1 {
            return SIG_HOLD;
        }
        if handler == SIG_HOLD {
            let mut action: libc::sigaction = std::mem::zeroed();
            old = match act(signal, None, Some(&mut action)) {
                0 => action.sa_sigaction,
                _ => libc::SIG_ERR,
            };
        }
    }
    old
}

alias! {
    __sigaction = sigaction as (
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int;
    bsd_signal = signal as (number: c_int, handler: sighandler_t) -> sighandler_t;
    ssignal = signal as (number: c_int, handler: sighandler_t) -> sighandler_t;
    __sysv_signal = sysv_signal as (number: c_int, handler: sighandler_t) -> sighandler_t;
}
