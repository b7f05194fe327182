//! The way to the kernel and to libc's own functions, and how an answer becomes a return value.
//!
//! Invariants: raw system calls set errno as libc does; addresses found by `dlsym` are cached in
//! atomics, so that no lock is ours. Not here: any decision.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A system call by name (`openat` is `SYS_openat`), its value as the function's return type.
macro_rules! kernel {
    ($call:ident $(, $argument:expr)* $(,)?) => {{
        #[allow(unused_unsafe, reason = "some callers are inside an unsafe block")]
        // SAFETY: the arguments are the caller's own, passed on to the call they were meant for.
        let value = unsafe { ::terral_client::kernel::enter()(::libc::$call $(, $argument)*) };
        value as _
    }};
}
pub(crate) use kernel;

/// Hooks under second names: `alias! { open64 = open(path: *const c_char, …) -> c_int; … }`.
macro_rules! alias {
    ($($name:ident = $to:path as ($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            // SAFETY: the same contract as the function it stands for.
            unsafe { $to($($argument),*) }
        }
    )*};
}
pub(crate) use alias;

/// What serving a call gave: a value or an errno.
pub type Served<T> = Result<T, c_int>;

/// Sets errno.
pub fn set_errno(errno: c_int) {
    // SAFETY: the address is this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// This thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the address is this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// What calls return: a number, −1 for a failure, or a pointer, null for one.
pub trait Answer {
    /// The value that stands for a failure.
    fn failure() -> Self;
    /// Whether it is that.
    fn is_failure(&self) -> bool;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Answer for $number {
            fn failure() -> Self {
                -1
            }

            fn is_failure(&self) -> bool {
                *self == -1
            }
        }
    )*};
}
numbers!(i32, i64, isize);

impl<T> Answer for *mut T {
    fn failure() -> Self {
        ptr::null_mut()
    }

    fn is_failure(&self) -> bool {
        self.is_null()
    }
}

/// A call's return value: its failure and errno if it was not served.
pub fn answer<T: Answer>(served: Served<T>) -> T {
    served.unwrap_or_else(|errno| {
        set_errno(errno);
        T::failure()
    })
}

/// The same for a call that answers 0.
pub fn done(served: Served<()>) -> c_int {
    answer(served.map(|()| 0))
}

/// The function called `name` after this library in the search order, null if there is none.
pub fn next(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cache.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name has its zero, and RTLD_NEXT is a valid handle.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found, Ordering::Release);
    found
}

/// libc's own function of this name and type, as an `Option`.
macro_rules! libc_function {
    ($name:literal as $type:ty) => {{
        static CACHE: ::std::sync::atomic::AtomicPtr<::std::ffi::c_void> =
            ::std::sync::atomic::AtomicPtr::new(::std::ptr::null_mut());
        let address = crate::real::next(&CACHE, $name);
        // SAFETY: the address is null, which is None, or that of the function with this signature.
        unsafe { ::std::mem::transmute::<*mut ::std::ffi::c_void, Option<$type>>(address) }
    }};
}
pub(crate) use libc_function;

/// Calls libc's own function; fails with ENOSYS if this libc has none.
macro_rules! libc_call {
    ($name:literal as $type:ty, $missing:expr $(, $argument:expr)* $(,)?) => {
        match crate::real::libc_function!($name as $type) {
            // SAFETY: the arguments are the caller's own, meant for this very function.
            Some(function) => unsafe { function($($argument),*) },
            None => {
                crate::real::set_errno(::libc::ENOSYS);
                $missing
            }
        }
    };
}
pub(crate) use libc_call;
