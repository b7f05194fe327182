//! `ftw` and `nftw`, which read directories inside libc.
//!
//! Invariants: a walk that begins elsewhere stays libc's. Not here: `fts` (`trees`).

use std::ffi::{CStr, CString, c_char, c_int};

use crate::entrance::is_ours;
use crate::metadata::{access, lstat, stat};
use crate::real::{alias, answer, errno, libc_call};
use crate::resolve::{chdir, get_current_dir_name};
use crate::scan::entries_of;

/// glibc's `struct FTW`.
#[repr(C)]
struct Place {
    base: c_int,
    level: c_int,
}

type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Place) -> c_int;
type Plain = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;

const FILE: c_int = 0;
const DIRECTORY: c_int = 1;
const UNREADABLE: c_int = 2;
const NO_STAT: c_int = 3;
const LINK: c_int = 4;
const AFTER: c_int = 5;
const DANGLING: c_int = 6;

const PHYSICAL: c_int = 1;
const MOUNT: c_int = 2;
const CHANGE_DIRECTORY: c_int = 4;
const DEPTH: c_int = 8;
const ACTIONS: c_int = 16;

const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

/// What the caller's function is called as.
enum Function {
    Tree(Visit),
    Plain(Plain),
}

struct Walk {
    function: Function,
    flags: c_int,
    device: u64,
    /// Where the walk began, with a slash, if it changes the working directory.
    base: Vec<u8>,
    /// Device and number of the directories above, to see links that lead back.
    above: Vec<(u64, u64)>,
}

/// How to go on after an entry: with the next, without the rest of this directory, or not at all.
enum Next {
    Go,
    LeaveDirectory,
    End(c_int),
}

impl Walk {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// The path as this library looks for it, wherever the working directory is by now.
    fn whole(&self, path: &[u8]) -> CString {
        if self.base.is_empty() || path.starts_with(b"/") {
            return CString::new(path).unwrap_or_default();
        }
        CString::new([&self.base, path].concat()).unwrap_or_default()
    }

    fn call(&self, path: &CString, stat: &libc::stat, kind: c_int, level: c_int) -> c_int {
        let bytes = path.as_bytes();
        let slash = bytes.iter().rposition(|byte| *byte == b'/');
        let base = slash.filter(|at| at + 1 < bytes.len()).map_or(0, |at| at + 1);
        if self.has(CHANGE_DIRECTORY) {
            let parent = if base == 0 { &b"."[..] } else { &bytes[..base] };
            // SAFETY: the path has its zero.
            unsafe { chdir(self.whole(parent).as_ptr()) };
        }
        let mut place = Place { base: base as c_int, level };
        // SAFETY: the caller promises a function of this type; all arguments outlive the call.
        unsafe {
            match self.function {
                Function::Tree(visit) => visit(path.as_ptr(), stat, kind, &raw mut place),
                Function::Plain(visit) => visit(path.as_ptr(), stat, kind),
            }
        }
    }

    /// What the function's answer means; `skips` is whether there is a subtree to skip.
    fn follow(&self, answer: c_int) -> (Next, bool) {
        match answer {
            0 => (Next::Go, false),
            SKIP_SUBTREE if self.has(ACTIONS) => (Next::Go, true),
            SKIP_SIBLINGS if self.has(ACTIONS) => (Next::LeaveDirectory, true),
            other => (Next::End(other), true),
        }
    }

    fn kind(&self, path: &CString, stat_of: &mut libc::stat) -> Result<c_int, c_int> {
        let path = &self.whole(path.as_bytes());
        // SAFETY: the path has its zero, and the struct is ours to be filled.
        unsafe {
            let physical = self.has(PHYSICAL);
            let look = if physical { lstat } else { stat };
            if look(path.as_ptr(), stat_of) != 0 {
                if !physical && lstat(path.as_ptr(), stat_of) == 0 {
                    let link = stat_of.st_mode & libc::S_IFMT == libc::S_IFLNK;
                    return Ok(if link { DANGLING } else { NO_STAT });
                }
                let failure = errno();
                return if failure == libc::EACCES { Ok(NO_STAT) } else { Err(failure) };
            }
            Ok(match stat_of.st_mode & libc::S_IFMT {
                libc::S_IFLNK => LINK,
                libc::S_IFDIR if access(path.as_ptr(), libc::R_OK) != 0 => UNREADABLE,
                libc::S_IFDIR => DIRECTORY,
                _ => FILE,
            })
        }
    }

    fn visit(&mut self, path: &CString, level: c_int) -> Result<Next, c_int> {
        // SAFETY: stat is plain data; all zero is a value of it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let kind = match self.kind(path, &mut stat) {
            Ok(kind) => kind,
            // It was removed meanwhile.
            Err(libc::ENOENT) if level > 0 => return Ok(Next::Go),
            Err(errno) => return Err(errno),
        };
        if self.has(MOUNT) && level > 0 && stat.st_dev != self.device {
            return Ok(Next::Go);
        }
        if kind != DIRECTORY {
            return Ok(self.follow(self.call(path, &stat, kind, level)).0);
        }
        let identity = (stat.st_dev, stat.st_ino);
        if self.above.contains(&identity) {
            return Ok(Next::Go);
        }
        if !self.has(DEPTH) {
            let (next, skips) = self.follow(self.call(path, &stat, DIRECTORY, level));
            if skips {
                return Ok(next);
            }
        }
        self.above.push(identity);
        let inside = self.children(path, level);
        self.above.pop();
        if let Next::End(answer) = inside? {
            return Ok(Next::End(answer));
        }
        if self.has(DEPTH) {
            return Ok(self.follow(self.call(path, &stat, AFTER, level)).0);
        }
        Ok(Next::Go)
    }

    fn children(&mut self, path: &CString, level: c_int) -> Result<Next, c_int> {
        for (name, _) in entries_of(&self.whole(path.as_bytes()))? {
            if matches!(&name[..], b"." | b"..") {
                continue;
            }
            let mut child = path.as_bytes().to_vec();
            if child.last() != Some(&b'/') {
                child.push(b'/');
            }
            child.extend_from_slice(&name);
            let child = CString::new(child).map_err(|_| libc::EINVAL)?;
            match self.visit(&child, level + 1)? {
                Next::Go => {}
                Next::LeaveDirectory => break,
                end => return Ok(end),
            }
        }
        Ok(Next::Go)
    }
}

/// Where the process stands, if it can be told.
fn here() -> Option<CString> {
    // SAFETY: what it gives is null, or a string for us to free.
    unsafe {
        let text = get_current_dir_name();
        if text.is_null() {
            return None;
        }
        let copy = CStr::from_ptr(text).to_owned();
        libc::free(text.cast());
        Some(copy)
    }
}

fn walk(path: &CStr, function: Function, flags: c_int) -> Result<c_int, c_int> {
    let changes = flags & CHANGE_DIRECTORY != 0;
    let home = if changes { Some(here().ok_or(libc::ENOENT)?) } else { None };
    let mut base = home.as_ref().map(|home| home.as_bytes().to_vec()).unwrap_or_default();
    if changes {
        base.push(b'/');
    }
    let mut walk = Walk { function, flags, device: 0, base, above: Vec::new() };
    // SAFETY: stat is plain data; all zero is a value of it; the path has its zero.
    unsafe {
        let mut start: libc::stat = std::mem::zeroed();
        if stat(path.as_ptr(), &raw mut start) == 0 {
            walk.device = start.st_dev;
        }
    }
    let mut bytes = path.to_bytes();
    while bytes.len() > 1 && bytes.ends_with(b"/") {
        bytes = &bytes[..bytes.len() - 1];
    }
    let visited = walk.visit(&CString::new(bytes).map_err(|_| libc::EINVAL)?, 0);
    if let Some(home) = home {
        // SAFETY: the path has its zero.
        unsafe { chdir(home.as_ptr()) };
    }
    Ok(match visited? {
        Next::End(answer) => answer,
        Next::Go | Next::LeaveDirectory => 0,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nftw(path: *const c_char, visit: Visit, room: c_int, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, Visit, c_int, c_int) -> c_int;
    // SAFETY: the caller promises the string.
    if !unsafe { is_ours(path) } {
        return libc_call!(c"nftw" as Function, -1, path, visit, room, flags);
    }
    // SAFETY: the caller promises the string.
    answer(walk(unsafe { CStr::from_ptr(path) }, self::Function::Tree(visit), flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftw(path: *const c_char, visit: Plain, room: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, Plain, c_int) -> c_int;
    // SAFETY: the caller promises the string.
    if !unsafe { is_ours(path) } {
        return libc_call!(c"ftw" as Function, -1, path, visit, room);
    }
    // SAFETY: the caller promises the string.
    answer(walk(unsafe { CStr::from_ptr(path) }, self::Function::Plain(visit), 0))
}

alias! {
    nftw64 = nftw as (path: *const c_char, visit: Visit, room: c_int, flags: c_int) -> c_int;
    ftw64 = ftw as (path: *const c_char, visit: Plain, room: c_int) -> c_int;
}
