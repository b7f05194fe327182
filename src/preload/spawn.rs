//! `posix_spawn`, `vfork`, and the exec functions with a list of arguments.
//!
//! Invariants: `vfork` is `fork`: a child that runs in its parent's memory would edit the tables of
//! both. Not here: what a child's environment holds (`exec`), and spawning a program or acting on
//! files under the prefix (`launch`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::entrance::is_ours;
use crate::exec::{Environment, changes_rights, execve, execvpe};
use crate::launch::{Program, concern_us, launch, search_meets_prefix};
use crate::real::libc_call;
use crate::{settings, sharing, unserved};

type Text = *const c_char;
type Strings = *const Text;
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Strings,
    Strings,
) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: fork promises more than vfork does.
    unsafe { libc::fork() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    child: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    sharing::all();
    // SAFETY: the caller promises strings, arrays and structs.
    unsafe {
        if settings::active() && (is_ours(path) || concern_us(actions)) {
            let program = Program { file: path, search: false, arguments, environment };
            return launch(child, program, actions, attributes.cast());
        }
    }
    // SAFETY: as above.
    if let Err(errno) = unsafe { unserved::check(path, arguments) } {
        return errno;
    }
    let ours = settings::active() && !changes_rights(path);
    // SAFETY: the caller promises the array.
    let built = ours.then(|| unsafe { Environment::of_child(environment) });
    let list = built.as_ref().map_or(environment, Environment::list);
    let missing = libc::ENOSYS;
    libc_call!(c"posix_spawn" as Spawn, missing, child, path, actions, attributes, arguments, list)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    child: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    sharing::all();
    if !settings::active() {
        let missing = libc::ENOSYS;
        return libc_call!(
            c"posix_spawnp" as Spawn,
            missing,
            child,
            file,
            actions,
            attributes,
            arguments,
            environment
        );
    }
    // SAFETY: the caller promises strings, arrays and structs.
    unsafe {
        if CStr::from_ptr(file).to_bytes().contains(&b'/') {
            return posix_spawn(child, file, actions, attributes, arguments, environment);
        }
        let search = settings::find(settings::environment(), b"PATH");
        if search.is_some_and(search_meets_prefix) || concern_us(actions) {
            let program = Program { file, search: true, arguments, environment };
            return launch(child, program, actions, attributes.cast());
        }
    }
    // SAFETY: the caller promises string and arrays.
    if let Err(errno) = unsafe { unserved::check_named(file, arguments) } {
        return errno;
    }
    // SAFETY: the caller promises the array.
    let built = unsafe { Environment::of_child(environment) };
    let list = built.list();
    let missing = libc::ENOSYS;
    libc_call!(c"posix_spawnp" as Spawn, missing, child, file, actions, attributes, arguments, list)
}

/// Arguments that the functions below can take; who passes more gets E2BIG.
const LISTED_MAX: usize = 48;

/// The arguments up to the null, with it, and the place of the null.
fn listed(all: &[Text; LISTED_MAX]) -> Option<([Text; LISTED_MAX], usize)> {
    let end = all.iter().position(|argument| argument.is_null())?;
    let mut list = [ptr::null(); LISTED_MAX];
    list[..end].copy_from_slice(&all[..end]);
    Some((list, end))
}

fn too_many() -> c_int {
    crate::real::answer(Err(libc::E2BIG))
}

/// A variadic function as one of many fixed arguments: those nobody passed are whatever the
/// caller's stack holds there, and are not looked at.
macro_rules! listing {
    ($($name:ident($first:ident, $list:ident, $end:ident, $all:ident) $run:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $name(
            $first: Text,
            a0: Text, a1: Text, a2: Text, a3: Text, a4: Text, a5: Text, a6: Text, a7: Text,
            a8: Text, a9: Text, a10: Text, a11: Text, a12: Text, a13: Text, a14: Text, a15: Text,
            a16: Text, a17: Text, a18: Text, a19: Text, a20: Text, a21: Text, a22: Text, a23: Text,
            a24: Text, a25: Text, a26: Text, a27: Text, a28: Text, a29: Text, a30: Text, a31: Text,
            a32: Text, a33: Text, a34: Text, a35: Text, a36: Text, a37: Text, a38: Text, a39: Text,
            a40: Text, a41: Text, a42: Text, a43: Text, a44: Text, a45: Text, a46: Text, a47: Text,
        ) -> c_int {
            let $all = [
                a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17,
                a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33,
                a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47,
            ];
            let Some(($list, $end)) = listed(&$all) else { return too_many() };
            $run
        }
    )*};
}

listing! {
    execl(path, list, _end, all) {
        // SAFETY: the list ends with a null, and its strings are the caller's.
        unsafe { execve(path, list.as_ptr(), settings::environment()) }
    }
    execlp(file, list, _end, all) {
        // SAFETY: as above.
        unsafe { execvpe(file, list.as_ptr(), settings::environment()) }
    }
    execle(path, list, end, all) {
        let Some(environment) = all.get(end + 1) else { return too_many() };
        // SAFETY: as above; the environment follows the null.
        unsafe { execve(path, list.as_ptr(), environment.cast()) }
    }
}
