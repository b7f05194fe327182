//! `fts_open` and its family, which read directories inside libc.
//!
//! Invariants: a walk of which no root lies here stays libc's. The working directory is never
//! changed: `fts_accpath` is the whole path, as with FTS_NOCHDIR. `fts_set` is libc's, which only
//! stores a word. A tree of ours is told by a root descriptor that no tree of libc's has.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_short, c_ushort, c_void};
use std::ptr;

use crate::entrance::is_ours;
use crate::metadata::{lstat, stat};
use crate::real::{alias, answer, errno, libc_call, set_errno};
use crate::scan::entries_of;

/// What `fts_rfd` is in a tree of ours.
const OURS: c_int = -0x7e44;

/// What the caller asks for.
mod option {
    use std::ffi::c_int;

    pub const FOLLOW_ROOTS: c_int = 0x1;
    pub const LOGICAL: c_int = 0x2;
    /// FTS_NOSTAT and FTS_PHYSICAL.
    pub const NO_STAT: c_int = 0x18;
    pub const SEE_DOT: c_int = 0x20;
    pub const ONE_DEVICE: c_int = 0x40;
    pub const KNOWN: c_int = 0xff;
    /// Children were asked for by name only.
    pub const NAMES_ONLY: c_int = 0x100;
}

/// What an entry is.
mod info {
    use std::ffi::c_ushort;

    pub const DIRECTORY: c_ushort = 1;
    pub const CYCLE: c_ushort = 2;
    pub const OTHER: c_ushort = 3;
    pub const UNREADABLE: c_ushort = 4;
    pub const DOT: c_ushort = 5;
    pub const AFTER: c_ushort = 6;
    pub const ERROR: c_ushort = 7;
    pub const FILE: c_ushort = 8;
    pub const BEGIN: c_ushort = 9;
    pub const NO_STAT: c_ushort = 10;
    pub const NOT_ASKED: c_ushort = 11;
    pub const LINK: c_ushort = 12;
    pub const DANGLING: c_ushort = 13;
}

/// What the caller wants done with an entry next.
mod order {
    use std::ffi::c_ushort;

    pub const AGAIN: c_ushort = 1;
    pub const FOLLOW: c_ushort = 2;
    pub const NONE: c_ushort = 3;
    pub const SKIP: c_ushort = 4;
}

type Compare = unsafe extern "C" fn(*const *const Entry, *const *const Entry) -> c_int;

/// The same for qsort.
type Order = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// glibc's `FTS`.
#[repr(C)]
pub struct Tree {
    current: *mut Entry,
    children: *mut Entry,
    array: *mut *mut Entry,
    device: libc::dev_t,
    path: *mut c_char,
    root: c_int,
    path_bytes: c_int,
    items: c_int,
    compare: Option<Compare>,
    options: c_int,
}

/// glibc's `FTSENT`; the name follows.
#[repr(C)]
pub struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    next: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    access_path: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    link: c_int,
    path_bytes: c_ushort,
    name_bytes: c_ushort,
    ino: libc::ino_t,
    device: libc::dev_t,
    links: libc::nlink_t,
    level: c_short,
    info: c_ushort,
    flags: c_ushort,
    order: c_ushort,
    stat: *mut libc::stat,
    name: [c_char; 1],
}

const NAME_AT: usize = std::mem::offset_of!(Entry, name);

impl Entry {
    /// A new entry; freed by [`Entry::free`] only.
    fn make(parent: *mut Entry, level: c_short, path: &CStr, name: &[u8]) -> *mut Entry {
        // SAFETY: all zero is a value of both structs; the name and its zero have room behind.
        unsafe {
            let entry: *mut Entry = libc::calloc(1, size_of::<Entry>() + name.len() + 1).cast();
            let stat: *mut libc::stat = libc::calloc(1, size_of::<libc::stat>()).cast();
            let copy = libc::strdup(path.as_ptr());
            if entry.is_null() || stat.is_null() || copy.is_null() {
                libc::free(entry.cast());
                libc::free(stat.cast());
                libc::free(copy.cast());
                return ptr::null_mut();
            }
            (*entry).parent = parent;
            (*entry).level = level;
            (*entry).path = copy;
            (*entry).access_path = copy;
            (*entry).path_bytes = path.to_bytes().len() as c_ushort;
            (*entry).order = order::NONE;
            (*entry).stat = stat;
            Self::set_name(entry, name);
            entry
        }
    }

    /// Gives an entry a name no longer than the one it was made with.
    unsafe fn set_name(entry: *mut Entry, name: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = entry.cast::<u8>().add(NAME_AT);
            ptr::copy(name.as_ptr(), at, name.len());
            *at.add(name.len()) = 0;
            (*entry).name_bytes = name.len() as c_ushort;
        }
    }

    unsafe fn name<'a>(entry: *const Entry) -> &'a [u8] {
        // SAFETY: every entry has its name and a zero behind it.
        unsafe { CStr::from_ptr(entry.cast::<c_char>().add(NAME_AT)) }.to_bytes()
    }

    /// Frees an entry, and gives the one after it.
    unsafe fn free(entry: *mut Entry) -> *mut Entry {
        // SAFETY: made by `make`, and freed once.
        unsafe {
            let next = (*entry).next;
            libc::free((*entry).stat.cast());
            libc::free((*entry).path.cast());
            libc::free(entry.cast());
            next
        }
    }

    unsafe fn free_all(mut entry: *mut Entry) {
        while !entry.is_null() {
            // SAFETY: a list of entries that nobody else has.
            entry = unsafe { Entry::free(entry) };
        }
    }
}

/// The entry above that is the same directory.
unsafe fn cycle_of(entry: &Entry) -> *mut Entry {
    let mut above = entry.parent;
    // SAFETY: the entries above live as long as this one.
    unsafe {
        while !above.is_null() && (*above).level >= 0 {
            if ((*above).ino, (*above).device) == (entry.ino, entry.device) {
                return above;
            }
            above = (*above).parent;
        }
    }
    ptr::null_mut()
}

impl Tree {
    fn has(&self, option: c_int) -> bool {
        self.options & option == option
    }

    /// Looks what an entry is.
    unsafe fn look(&self, entry: *mut Entry, follow: bool) -> c_ushort {
        // SAFETY: an entry of this tree, with path and struct.
        unsafe {
            let (path, found) = ((*entry).access_path, (*entry).stat);
            let follow = follow || self.has(option::LOGICAL);
            if follow && stat(path, found) == 0 {
                return Self::kind(entry);
            }
            if lstat(path, found) != 0 {
                (*entry).errno = errno();
                found.write(std::mem::zeroed());
                return info::NO_STAT;
            }
            if follow {
                set_errno(0);
                return info::DANGLING;
            }
            Self::kind(entry)
        }
    }

    unsafe fn kind(entry: *mut Entry) -> c_ushort {
        // SAFETY: an entry whose struct is filled.
        unsafe {
            let found = &*(*entry).stat;
            match found.st_mode & libc::S_IFMT {
                libc::S_IFDIR => {}
                libc::S_IFLNK => return info::LINK,
                libc::S_IFREG => return info::FILE,
                _ => return info::OTHER,
            }
            (*entry).device = found.st_dev;
            (*entry).ino = found.st_ino;
            (*entry).links = found.st_nlink;
            if matches!(Entry::name(entry), b"." | b"..") {
                return info::DOT;
            }
            (*entry).cycle = cycle_of(&*entry);
            if (*entry).cycle.is_null() { info::DIRECTORY } else { info::CYCLE }
        }
    }

    /// The same entries in the caller's order, as a list.
    unsafe fn ordered(&self, mut entries: Vec<*mut Entry>) -> *mut Entry {
        if let Some(compare) = self.compare {
            let (all, bytes) = (entries.as_mut_ptr(), size_of::<*mut Entry>());
            // SAFETY: the caller of fts_open promises a function that compares two entries by where
            // their addresses are, which is what qsort passes it.
            unsafe {
                let compare = std::mem::transmute::<Compare, Order>(compare);
                libc::qsort(all.cast(), entries.len(), bytes, Some(compare));
            }
        }
        let mut list = ptr::null_mut();
        for entry in entries.into_iter().rev() {
            // SAFETY: entries of this tree.
            unsafe { (*entry).next = list };
            list = entry;
        }
        list
    }

    /// What the current directory has; null if it has nothing, or cannot be read.
    unsafe fn build(&mut self, names_only: bool) -> Result<*mut Entry, c_int> {
        // SAFETY: the current entry is one of ours.
        unsafe {
            let above = self.current;
            let path = CStr::from_ptr((*above).path).to_bytes();
            let mut entries = Vec::new();
            for (name, kind) in entries_of(CStr::from_ptr((*above).access_path))? {
                if !self.has(option::SEE_DOT) && matches!(&name[..], b"." | b"..") {
                    continue;
                }
                let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                let whole = CString::new([path, slash, &name].concat()).unwrap_or_default();
                let entry = Entry::make(above, (*above).level + 1, &whole, &name);
                if entry.is_null() {
                    Entry::free_all(self.ordered(entries));
                    return Err(libc::ENOMEM);
                }
                let leaf = kind != libc::DT_DIR && kind != libc::DT_UNKNOWN;
                let asked = !(names_only || (self.has(option::NO_STAT) && leaf));
                (*entry).info = if asked { self.look(entry, false) } else { info::NOT_ASKED };
                entries.push(entry);
            }
            Ok(self.ordered(entries))
        }
    }

    unsafe fn set_children(&mut self, children: *mut Entry) {
        // SAFETY: nobody else has the old ones.
        unsafe { Entry::free_all(std::mem::replace(&mut self.children, children)) };
    }

    /// Goes on to what is in the current directory. None: it is what comes next, read or not.
    unsafe fn descend(&mut self) -> Option<*mut Entry> {
        // SAFETY: the current entry is one of ours.
        unsafe {
            if self.has(option::NAMES_ONLY) {
                self.options &= !option::NAMES_ONLY;
                self.set_children(ptr::null_mut());
            }
            if self.children.is_null() {
                match self.build(false) {
                    Ok(children) if children.is_null() => (*self.current).info = info::AFTER,
                    Ok(children) => self.children = children,
                    Err(errno) => {
                        (*self.current).info = info::UNREADABLE;
                        (*self.current).errno = errno;
                    }
                }
            }
            let first = std::mem::replace(&mut self.children, ptr::null_mut());
            (!first.is_null()).then_some(first)
        }
    }

    /// A root is no longer called by its whole path once the walk comes to it.
    unsafe fn begin(&mut self, root: *mut Entry) {
        // SAFETY: an entry of this tree.
        unsafe {
            let name = Entry::name(root);
            if let Some(at) = name.iter().rposition(|byte| *byte == b'/')
                && (at > 0 || name.len() > 1)
            {
                Entry::set_name(root, &name[at + 1..]);
            }
            self.device = (*root).device;
        }
    }

    /// The entry after the current one, which goes: a sibling, or the directory above once more.
    unsafe fn leave(&mut self) -> *mut Entry {
        // SAFETY: entries of this tree; each is freed when the walk has left it.
        unsafe {
            loop {
                let gone = self.current;
                let (parent, level) = ((*gone).parent, (*gone).level);
                let next = Entry::free(gone);
                if next.is_null() {
                    if (*parent).level < 0 {
                        self.current = Entry::free(parent);
                        return self.current;
                    }
                    self.current = parent;
                    let failed = (*parent).errno != 0;
                    (*parent).info = if failed { info::ERROR } else { info::AFTER };
                    return parent;
                }
                self.current = next;
                if level <= 0 {
                    self.begin(next);
                    return next;
                }
                match std::mem::replace(&mut (*next).order, order::NONE) {
                    order::SKIP => {}
                    order::FOLLOW => {
                        (*next).info = self.look(next, true);
                        return next;
                    }
                    kept => {
                        (*next).order = kept;
                        return next;
                    }
                }
            }
        }
    }

    unsafe fn read(&mut self) -> *mut Entry {
        let entry = self.current;
        if entry.is_null() {
            return entry;
        }
        // SAFETY: the current entry is one of ours.
        unsafe {
            let order = std::mem::replace(&mut (*entry).order, order::NONE);
            let is_link = matches!((*entry).info, info::LINK | info::DANGLING);
            if order == order::AGAIN || (order == order::FOLLOW && is_link) {
                (*entry).info = self.look(entry, order == order::FOLLOW);
                return entry;
            }
            if (*entry).info == info::DIRECTORY {
                let elsewhere = self.has(option::ONE_DEVICE) && (*entry).device != self.device;
                if order == order::SKIP || elsewhere {
                    self.set_children(ptr::null_mut());
                    (*entry).info = info::AFTER;
                    return entry;
                }
                self.current = self.descend().unwrap_or(entry);
                return self.current;
            }
            self.leave()
        }
    }
}

unsafe fn open(roots: *const *const c_char, options: c_int, compare: Option<Compare>) -> *mut Tree {
    let options = options & option::KNOWN;
    // SAFETY: all zero is a value of the struct; the caller promises a list of strings, null last.
    unsafe {
        let mut tree: Box<Tree> = Box::new(std::mem::zeroed());
        (tree.root, tree.options, tree.compare) = (OURS, options, compare);
        let parent = Entry::make(ptr::null_mut(), -1, c"", b"");
        let first = Entry::make(parent, -1, c"", b"");
        if parent.is_null() || first.is_null() {
            return answer(Err(libc::ENOMEM));
        }
        let mut entries = Vec::new();
        for at in (0..).map(|at| *roots.add(at)).take_while(|root| !root.is_null()) {
            let path = CStr::from_ptr(at);
            if path.is_empty() {
                entries.extend([parent, first]);
                Entry::free_all(tree.ordered(entries));
                return answer(Err(libc::ENOENT));
            }
            let entry = Entry::make(parent, 0, path, path.to_bytes());
            if entry.is_null() {
                return answer(Err(libc::ENOMEM));
            }
            let found = tree.look(entry, tree.has(option::FOLLOW_ROOTS));
            (*entry).info = if found == info::DOT { info::DIRECTORY } else { found };
            entries.push(entry);
        }
        (*first).next = tree.ordered(entries);
        (*first).info = info::BEGIN;
        tree.current = first;
        Box::into_raw(tree)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fts_open(
    roots: *const *const c_char,
    options: c_int,
    compare: Option<Compare>,
) -> *mut Tree {
    type Function = unsafe extern "C" fn(*const *const c_char, c_int, Option<Compare>) -> *mut Tree;
    // SAFETY: the caller promises a list of strings, null last.
    let serve = unsafe {
        options & !option::KNOWN == 0
            && (0..).map(|at| *roots.add(at)).take_while(|r| !r.is_null()).any(|r| is_ours(r))
    };
    if !serve {
        return libc_call!(c"fts_open" as Function, ptr::null_mut(), roots, options, compare);
    }
    // SAFETY: the same contract.
    unsafe { open(roots, options, compare) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fts_read(tree: *mut Tree) -> *mut Entry {
    type Function = unsafe extern "C" fn(*mut Tree) -> *mut Entry;
    // SAFETY: the caller promises an open tree, ours or libc's, of the same layout.
    if unsafe { (*tree).root } != OURS {
        return libc_call!(c"fts_read" as Function, ptr::null_mut(), tree);
    }
    // SAFETY: it is ours.
    unsafe {
        let entry = (*tree).read();
        if entry.is_null() {
            set_errno(0);
        }
        entry
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fts_children(tree: *mut Tree, order: c_int) -> *mut Entry {
    type Function = unsafe extern "C" fn(*mut Tree, c_int) -> *mut Entry;
    // SAFETY: the caller promises an open tree, ours or libc's, of the same layout.
    if unsafe { (*tree).root } != OURS {
        return libc_call!(c"fts_children" as Function, ptr::null_mut(), tree, order);
    }
    // SAFETY: as above; the current entry is one of ours.
    unsafe {
        let tree = &mut *tree;
        if order != 0 && order != option::NAMES_ONLY {
            return answer(Err(libc::EINVAL));
        }
        set_errno(0);
        if tree.current.is_null() {
            return ptr::null_mut();
        }
        match (*tree.current).info {
            info::BEGIN => return (*tree.current).next,
            info::DIRECTORY => {}
            _ => return ptr::null_mut(),
        }
        tree.set_children(ptr::null_mut());
        // A list of names stays one, whatever is asked for after it, as in libc.
        tree.options |= order;
        match tree.build(order == option::NAMES_ONLY) {
            Ok(children) => tree.children = children,
            Err(errno) => set_errno(errno),
        }
        tree.children
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fts_close(tree: *mut Tree) -> c_int {
    type Function = unsafe extern "C" fn(*mut Tree) -> c_int;
    // SAFETY: the caller promises an open tree, ours or libc's, of the same layout.
    if unsafe { (*tree).root } != OURS {
        return libc_call!(c"fts_close" as Function, -1, tree);
    }
    // SAFETY: as above; what a tree still has is freed once, and the tree last.
    unsafe {
        let mut tree = Box::from_raw(tree);
        tree.set_children(ptr::null_mut());
        let mut entry = tree.current;
        while !entry.is_null() {
            let parent = (*entry).parent;
            Entry::free_all(entry);
            entry = parent;
        }
    }
    0
}

alias! {
    fts64_open = fts_open as (
        roots: *const *const c_char, options: c_int, compare: Option<Compare>
    ) -> *mut Tree;
    fts64_read = fts_read as (tree: *mut Tree) -> *mut Entry;
    fts64_children = fts_children as (tree: *mut Tree, order: c_int) -> *mut Entry;
    fts64_close = fts_close as (tree: *mut Tree) -> c_int;
}
