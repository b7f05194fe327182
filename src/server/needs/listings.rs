//! Names of directories as the permanent store had them: several who look at a directory one after
//! the other, or page by page, have its names read once.
//!
//! Invariant: what is known of a directory is used only if the directory looks as it did before its
//! names were read, which is asked each time, and if it had not changed just before: two changes in
//! one tick of the store's clock look alike. A store whose directories do not show that they have
//! changed is taken at its word for [`KEPT_FOR`]. Not here: who asks (`asking`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use terral_format::Result;
use terral_format::wire::message::Name;
use terral_store::backing::{Listing, Source};

use crate::core::world::Tick;

/// Longer than a tick of any file system's clock (FAT's has two seconds), and than the clocks of
/// two machines are apart that are set by a server of time.
const TICK_NS: u64 = 2_000_000_000;
/// Machines that go through a tree at once are no farther apart, and whoever lists page by page
/// goes on within it.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Most names that are kept, some 64 bytes each, of several directories.
const NAMES_MAX: usize = 1 << 18;

/// What a directory had.
#[derive(Debug, Default)]
pub struct Listed {
    listing: Listing,
    /// When somebody wanted it.
    at: Tick,
    /// The directory had not changed for a while then.
    settled: bool,
}

impl Listed {
    /// Its names, in order.
    pub fn names(&self) -> &[Name] {
        &self.listing.names
    }
}

/// A directory whose names somebody wants.
#[derive(Clone, Default)]
pub struct Wanted {
    /// Where it is in the permanent store.
    pub path: Vec<u8>,
    /// What is known of it.
    pub known: Option<Arc<Listed>>,
    /// Now.
    pub at: Tick,
    /// The same, nanoseconds since 1970.
    pub at_ns: u64,
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Wanted {
    /// Its names, read if they may be others than is known.
    ///
    /// # Errors
    /// Those of the store.
    pub fn list(&self, source: &dyn Source) -> Result<Arc<Listed>> {
        let known = self.known.as_ref();
        let looks = known.map(|known| known.listing.looks);
        let (listing, same) = (source.list_unless(&self.path, looks)?, known.cloned());
        if let (None, Some(same)) = (&listing, same) {
            return Ok(same);
        }
        let listing = listing.unwrap_or_default();
        let settled = !listing.looks.has_seen(self.at_ns.saturating_sub(TICK_NS));
        Ok(Arc::new(Listed { listing, at: self.at, settled }))
    }
}

/// What is known of directories.
#[derive(Default)]
pub struct Listings {
    all: BTreeMap<Vec<u8>, Arc<Listed>>,
    /// The oldest first, also those that are known no more, or anew.
    order: VecDeque<(Tick, Vec<u8>)>,
    names: usize,
}

impl Listings {
    /// What is known of this one, now.
    pub fn known(&mut self, path: &[u8], now: Tick) -> Option<Arc<Listed>> {
        self.forget_old(now);
        self.all.get(path).filter(|listed| now.since(listed.at) < KEPT_FOR).cloned()
    }

    /// This is what it has.
    pub fn keep(&mut self, path: &[u8], listed: &Arc<Listed>, now: Tick) {
        if self.all.get(path).is_some_and(|known| Arc::ptr_eq(known, listed)) {
            return;
        }
        self.forget(path);
        if listed.settled {
            self.names += listed.names().len() + 1;
            self.order.push_back((listed.at, path.to_vec()));
            self.all.insert(path.to_vec(), listed.clone());
        }
        self.forget_old(now);
    }

    /// Those of these directories are others.
    pub fn spoil(&mut self, are: impl Fn(&[u8]) -> bool) {
        let paths: Vec<_> = self.all.keys().filter(|path| are(path)).cloned().collect();
        paths.iter().for_each(|path| self.forget(path));
    }

    fn forget(&mut self, path: &[u8]) {
        let listed = self.all.remove(path);
        self.names -= listed.map_or(0, |listed| listed.names().len() + 1);
    }

    /// Those that are too old, and too many; the last one stays, however large it is.
    fn forget_old(&mut self, now: Tick) {
        while let Some((at, _)) = self.order.front()
            && (now.since(*at) >= KEPT_FOR || self.names > NAMES_MAX && self.order.len() > 1)
            && let Some((at, path)) = self.order.pop_front()
        {
            if self.all.get(&path).is_some_and(|listed| listed.at == at) {
                self.forget(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use terral_store::backing::scripted::{Operation, Scripted};

    use super::{KEPT_FOR, Listings, NAMES_MAX, TICK_NS, Tick, Wanted};

    const BEGIN_NS: u64 = 1_800_000_000_000_000_000;
    const PATH: &[u8] = b"d";

    /// A store that has a directory with a file, whose clock stands still; a server's handle, and
    /// how often it lists.
    fn store() -> (Scripted, Scripted, Arc<AtomicUsize>) {
        let dir = Scripted::new(|| BEGIN_NS);
        dir.put(b"d/one", b"").expect("made");
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = lists.clone();
        let handle = dir.observed(move |call| {
            counted.fetch_add(usize::from(call.operation == Operation::List), Ordering::SeqCst);
            Ok(())
        });
        (dir, handle, lists)
    }

    /// Somebody lists it so long after it was made. How many names that were.
    fn list(listings: &mut Listings, handle: &Scripted, after_ns: u64) -> usize {
        let (at, known) = (Tick(after_ns), listings.known(PATH, Tick(after_ns)));
        let wanted = Wanted { path: PATH.into(), known, at, at_ns: BEGIN_NS + after_ns };
        let listed = wanted.list(handle).expect("listed");
        listings.keep(PATH, &listed, at);
        listed.names().len()
    }

    #[test]
    fn a_directory_that_looks_as_before_is_read_once_for_a_while() {
        let (_, handle, lists) = store();
        let mut listings = Listings::default();
        let later = 2 * TICK_NS;
        for after in [0, 1, later] {
            assert_eq!(list(&mut listings, &handle, later + after), 1);
        }
        assert_eq!(lists.load(Ordering::SeqCst), 1);
        let over = later + KEPT_FOR.as_nanos() as u64;
        assert_eq!(list(&mut listings, &handle, over), 1);
        assert_eq!(lists.load(Ordering::SeqCst), 2);
        listings.spoil(|path| path == PATH);
        assert_eq!(list(&mut listings, &handle, over), 1);
        assert_eq!((lists.load(Ordering::SeqCst), listings.names), (3, 2));
    }

    #[test]
    fn one_that_has_changed_just_now_is_read_each_time() {
        let (dir, handle, _) = store();
        let mut listings = Listings::default();
        for (at, name) in [&b"d/two"[..], b"d/three", b"d/four"].into_iter().enumerate() {
            assert_eq!(list(&mut listings, &handle, TICK_NS), 1 + at);
            // Within the same tick of the store's clock: it looks as before.
            dir.put(name, b"").expect("made");
        }
        assert_eq!((list(&mut listings, &handle, TICK_NS), listings.names), (4, 0));
    }

    #[test]
    fn so_many_names_are_kept_and_no_more_but_of_one_directory() {
        let (dir, handle, _) = store();
        let mut listings = Listings::default();
        let wanted = |path: &[u8], at| Wanted {
            path: path.into(),
            known: None,
            at: Tick(at),
            at_ns: BEGIN_NS + 2 * TICK_NS,
        };
        let one = wanted(PATH, 1).list(&handle).expect("listed");
        listings.keep(PATH, &one, Tick(1));
        (0..NAMES_MAX).for_each(|number| {
            dir.put(format!("large/{number}").as_bytes(), b"").map(drop).expect("made");
        });
        let large = wanted(b"large", 2).list(&handle).expect("listed");
        listings.keep(b"large", &large, Tick(2));
        assert!(listings.known(b"large", Tick(2)).is_some());
        assert!(listings.known(PATH, Tick(2)).is_none());
        assert_eq!((listings.names, listings.order.len()), (NAMES_MAX + 1, 1));
    }
}
