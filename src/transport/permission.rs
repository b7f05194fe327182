//! Whom threads and processes act as, as the kernel says.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use terral_format::wire::person::Person;

use crate::{kernel, proc_file};

/// Somebody that threads of this process act as, or did. There is one of each.
pub struct Acting {
    /// Who.
    pub person: Person,
    /// The how many-th of this process, from 0.
    pub number: u32,
    before: *const Acting,
}

// SAFETY: never changed and never freed once it is in the list.
unsafe impl Sync for Acting {}

/// All of them, the newest first.
static ALL: AtomicPtr<Acting> = AtomicPtr::new(std::ptr::null_mut());
/// Whom every thread acts as, until ids change.
static FIRST: AtomicPtr<Acting> = AtomicPtr::new(std::ptr::null_mut());
/// Whether those are the real ids.
static REAL: AtomicBool = AtomicBool::new(false);
/// How often ids of all threads have changed; 0 as long as none ever did.
static CHANGES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // Const and without a destructor: plain words of thread-local memory.
    static SEEN: Cell<(u32, *const Acting)> = const { Cell::new((0, std::ptr::null())) };
}

fn all() -> impl Iterator<Item = &'static Acting> {
    let mut at = ALL.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null, or one that was published and is never freed.
        let found = unsafe { at.as_ref() }?;
        at = found.before;
        Some(found)
    })
}

fn known(person: Person) -> &'static Acting {
    let mut fresh: Option<Box<Acting>> = None;
    loop {
        let newest = ALL.load(Ordering::Acquire);
        let wanted = fresh.as_ref().map_or(&person, |fresh| &fresh.person);
        if let Some(found) = all().find(|found| found.person == *wanted) {
            return found;
        }
        // SAFETY: as in `all`.
        let number = unsafe { newest.as_ref() }.map_or(0, |newest| newest.number + 1);
        let mut new = fresh.unwrap_or_else(|| {
            Box::new(Acting { person: person.clone(), number, before: std::ptr::null() })
        });
        (new.number, new.before) = (number, newest);
        let address = Box::into_raw(new);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match ALL.compare_exchange(newest, address, order.0, order.1) {
            // SAFETY: published just now, never freed.
            Ok(_) => return unsafe { &*address },
            // SAFETY: it was not published, and comes from a box.
            Err(_) => fresh = Some(unsafe { Box::from_raw(address) }),
        }
    }
}

/// Whom this thread acts as when it uses files.
#[inline]
pub fn acting() -> &'static Acting {
    let first = FIRST.load(Ordering::Acquire);
    if CHANGES.load(Ordering::Acquire) == 0
        // SAFETY: null, or one that was published and is never freed.
        && let Some(first) = unsafe { first.as_ref() }
    {
        return first;
    }
    acting_now()
}

#[cold]
fn acting_now() -> &'static Acting {
    let changes = CHANGES.load(Ordering::Acquire);
    let (seen, who) = SEEN.get();
    // SAFETY: null, or one that was published and is never freed.
    if let (true, Some(who)) = (seen == changes && changes != 0, unsafe { who.as_ref() }) {
        return who;
    }
    let who = known(of_thread());
    SEEN.set((changes, who));
    if changes == 0 {
        REAL.store(who.person == real(), Ordering::Release);
        FIRST.store(std::ptr::from_ref(who).cast_mut(), Ordering::Release);
    }
    who
}

/// Ids of this thread, or of `all`, may have changed just now.
pub fn ids_changed(all: bool) {
    if all || CHANGES.load(Ordering::Acquire) == 0 {
        CHANGES.fetch_add(1, Ordering::AcqRel);
    }
    SEEN.set((0, std::ptr::null()));
}

/// Does something as who started the process (its real ids), as access(2) does.
pub fn as_real<T>(call: impl FnOnce() -> T) -> T {
    if CHANGES.load(Ordering::Acquire) == 0 && REAL.load(Ordering::Acquire) {
        return call();
    }
    let who = real();
    as_person(who, call)
}

/// Does something as somebody else; whether this process may, who is asked for it says.
pub fn as_person<T>(who: Person, call: impl FnOnce() -> T) -> T {
    if who == acting().person {
        return call();
    }
    let _ = CHANGES.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    SEEN.set((CHANGES.load(Ordering::Acquire), known(who)));
    let done = call();
    SEEN.set((0, std::ptr::null()));
    done
}

fn real() -> Person {
    // SAFETY: these always succeed.
    unsafe { Person { user: libc::getuid(), group: libc::getgid(), groups: groups() } }
}

fn of_thread() -> Person {
    // No id is −1, so nothing is set, and the answer is what it is (setfsuid(2)).
    let none = -1i64;
    // SAFETY: no memory is passed.
    let ids = unsafe {
        [kernel::enter()(libc::SYS_setfsuid, none), kernel::enter()(libc::SYS_setfsgid, none)]
    };
    Person { user: ids[0] as u32, group: ids[1] as u32, groups: groups() }
}

fn groups() -> Vec<u32> {
    // SAFETY: without room, getgroups only counts.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; count.max(0) as usize];
    // SAFETY: there is room for as many as it is told.
    let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
    groups.truncate(count.max(0) as usize);
    groups
}

/// Whom the kernel would let a process act as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Reach {
    /// Of process `pid`, from its real, effective, saved and file-system ids; `None` if it cannot
    /// be told.
    pub fn of(pid: u32) -> Option<Self> {
        Reach::read(&proc_file::read(&format!("/proc/{pid}/status")).ok()?)
    }

    fn read(status: &str) -> Option<Self> {
        let numbers = |name: &str| -> Option<Vec<u32>> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().map(|word| word.parse().ok()).collect()
        };
        let users = numbers("Uid:").filter(|users| users.len() == 4)?;
        let groups = [numbers("Gid:")?, numbers("Groups:")?].concat();
        Some(Reach { users, groups })
    }

    /// Whether that includes acting as `person`: root may as anybody.
    pub fn includes(&self, person: &Person) -> bool {
        let is_in = |group: &u32| self.groups.contains(group);
        self.users.contains(&0)
            || (self.users.contains(&person.user)
                && is_in(&person.group)
                && person.groups.iter().all(is_in))
    }
}

#[cfg(test)]
mod tests {
    use super::{Person, Reach, acting, ids_changed};

    #[test]
    fn one_may_act_as_oneself_and_root_as_anybody() {
        let status =
            |uid: &str| format!("Name:\tx\nUid:\t{uid}\nGid:\t5\t5\t6\t5\nGroups:\t8 9 \n");
        let user = Reach::read(&status("7\t7\t7\t7")).expect("a status");
        let person = |user, group, groups: &[u32]| Person { user, group, groups: groups.into() };
        assert!(user.includes(&person(7, 5, &[8])) && user.includes(&person(7, 6, &[9, 8])));
        assert!(!user.includes(&person(0, 5, &[])) && !user.includes(&person(7, 0, &[])));
        assert!(!user.includes(&person(7, 5, &[8, 10])));
        let saved = Reach::read(&status("7\t7\t0\t7")).expect("a status");
        assert!(saved.includes(&person(1, 2, &[3])) && saved.includes(&Person::default()));
        assert_eq!(Reach::read("Uid:\t7\t7\nGid:\t1\nGroups:\t\n"), None);
        let own = Reach::of(std::process::id()).expect("this process");
        assert!(own.includes(&acting().person));
    }

    #[test]
    fn the_same_ids_are_the_same_person_before_and_after_a_change() {
        let before = acting();
        ids_changed(true);
        assert!(std::ptr::eq(before, acting()));
        ids_changed(false);
        assert!(std::ptr::eq(before, acting()));
    }
}
