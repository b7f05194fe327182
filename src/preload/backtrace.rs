//! `backtrace_symbols_fd` into a file of ours: written into memory first, since libc itself writes.
//!
//! Not here: `backtrace` and `backtrace_symbols`, which write nothing.

use std::ffi::{c_int, c_void};

use crate::data;
use crate::hook::by_open_fd;
use crate::real::{Served, kernel, libc_call};
use crate::state::Held;

type Function = unsafe extern "C" fn(*const *mut c_void, c_int, c_int);

fn real(frames: *const *mut c_void, count: c_int, fd: c_int) {
    libc_call!(c"backtrace_symbols_fd" as Function, (), frames, count, fd);
}

/// Copies what is in `memory` behind what was written.
fn copy(memory: c_int, held: &Held) -> Served<()> {
    let mut piece = [0u8; 1024];
    let mut at = 0i64;
    loop {
        let length: isize = kernel!(SYS_pread64, memory, piece.as_mut_ptr(), piece.len(), at);
        let Some(text) = usize::try_from(length).ok().and_then(|length| piece.get(..length)) else {
            return Ok(());
        };
        if text.is_empty() {
            return Ok(());
        }
        at += data::write_here(held, text)? as i64;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn backtrace_symbols_fd(frames: *const *mut c_void, count: c_int, fd: c_int) {
    let _: c_int = by_open_fd!(
        fd,
        {
            real(frames, count, fd);
            0
        },
        |held| {
            let name = c"terral-backtrace".as_ptr();
            let memory: c_int = kernel!(SYS_memfd_create, name, libc::MFD_CLOEXEC);
            real(frames, count, memory);
            let copied = copy(memory, &held);
            let _: c_int = kernel!(SYS_close, memory);
            copied.map(|()| 0)
        }
    );
}
