//! `rt_sigaction` by number, in the kernel's structures.
//!
//! Not here: what becomes of an action (`signals`).

use std::ffi::c_int;

use crate::real::Served;
use crate::{memory, signals};

/// As the kernel has an action.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The C library's own signals, which its function refuses.
const LIBC: std::ops::RangeInclusive<c_int> = 32..=33;

/// Serves the call, its structures wherever they are; `None`: it is the kernel's.
pub fn act(signal: c_int, new: usize, old: usize) -> Option<Served<c_int>> {
    (!LIBC.contains(&signal)).then(|| act_here(signal, new as *const Action, old as *mut Action))
}

fn act_here(signal: c_int, new: *const Action, old: *mut Action) -> Served<c_int> {
    let mut asked = None;
    if !new.is_null() {
        let new = memory::get(new)?;
        let mut action = signals::default_action();
        (action.sa_sigaction, action.sa_flags) = (new.handler, new.flags as c_int);
        *signals::mask_of(&mut action.sa_mask) = new.mask;
        asked = Some(action);
    }
    let mut before = signals::default_action();
    if signals::act(signal, asked.as_ref(), Some(&mut before)) != 0 {
        return Err(crate::real::errno());
    }
    if !old.is_null() {
        let (handler, flags) = (before.sa_sigaction, u64::from(before.sa_flags.cast_unsigned()));
        let mask = *signals::mask_of(&mut before.sa_mask);
        memory::put(Action { handler, flags, restorer: signals::returning(), mask }, old)?;
    }
    Ok(0)
}
