//! Calls that make a thread, or the process, another user or member of other groups: libc's, which
//! change all threads, and the kernel's own, which change one (nptl(7)).
//!
//! Invariants: the kernel decides and says what the ids are; here it is only noted that they may
//! have changed, and made sure of what the server's user alone can reach. Not here: what ids allow.

use std::ffi::{c_char, c_int, c_long};

use libc::{gid_t, size_t, uid_t};
use terral_client::ids_changed;

use crate::real::{errno, libc_call, set_errno};
use crate::{connect, settings};

/// Leaves errno as it was. A server that cannot be reached is missed by calls on files.
fn prepare() {
    if settings::active() && !connect::inside() {
        let before = errno();
        let _ = connect::with(|client| client.prepare());
        set_errno(before);
    }
}

/// libc's functions of these names and arguments: what the kernel says is passed on.
macro_rules! changing {
    ($($name:literal $call:ident($($argument:ident: $type:ty),*) all $all:literal;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $call($($argument: $type),*) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            prepare();
            let told = libc_call!($name as Function, -1, $($argument),*);
            ids_changed($all);
            told
        }
    )*};
}

changing! {
    c"setuid" setuid(user: uid_t) all true;
    c"seteuid" seteuid(user: uid_t) all true;
    c"setreuid" setreuid(real: uid_t, effective: uid_t) all true;
    c"setresuid" setresuid(real: uid_t, effective: uid_t, saved: uid_t) all true;
    c"setgid" setgid(group: gid_t) all true;
    c"setegid" setegid(group: gid_t) all true;
    c"setregid" setregid(real: gid_t, effective: gid_t) all true;
    c"setresgid" setresgid(real: gid_t, effective: gid_t, saved: gid_t) all true;
    c"setgroups" setgroups(count: size_t, groups: *const gid_t) all true;
    c"initgroups" initgroups(user: *const c_char, group: gid_t) all true;
    c"setfsuid" setfsuid(user: uid_t) all false;
    c"setfsgid" setfsgid(group: gid_t) all false;
}

/// To be called around the kernel's call of this number, if a program makes it itself: it changes
/// the ids of this thread only. `None`: it changes none.
pub fn raw(number: c_long, first: c_long, call: impl FnOnce() -> c_long) -> Option<c_long> {
    let asks = matches!(number, libc::SYS_setfsuid | libc::SYS_setfsgid);
    let changes = asks
        || matches!(
            number,
            libc::SYS_setuid
                | libc::SYS_setreuid
                | libc::SYS_setresuid
                | libc::SYS_setgid
                | libc::SYS_setregid
                | libc::SYS_setresgid
                | libc::SYS_setgroups
        );
    // Nobody is -1: who sets that asks whom it is set to.
    if !changes || (asks && first as i32 == -1) {
        return None;
    }
    prepare();
    let told = call();
    ids_changed(false);
    Some(told)
}
