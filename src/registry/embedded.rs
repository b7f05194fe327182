//! The registry of this process: a table behind a lock, which goes with it.
//!
//! Invariant: leases run out by the clock that it was given, so a test or a simulation says when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terral_format::{Error, ErrorKind, Result};

use crate::registry::{Change, Entry, Guard, Lease, Registry, Revision, View, check};

/// Since any moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

struct Value {
    bytes: Vec<u8>,
    changed: Revision,
    lease: Option<Lease>,
}

#[derive(Default)]
struct Table {
    values: BTreeMap<String, Value>,
    /// Their term, and until when they are kept.
    leases: BTreeMap<Lease, (Duration, Duration)>,
    revision: u64,
    last_lease: u64,
}

/// See the module.
pub struct Embedded {
    table: Mutex<Table>,
    clock: Clock,
}

impl Embedded {
    /// With nothing in it.
    pub fn new(clock: Clock) -> Self {
        Embedded { table: Mutex::default(), clock }
    }

    /// The table as it is now: what has run out is not there.
    fn now(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (self.clock)();
        let over = table.leases.iter().filter(|(_, (_, until))| *until < now);
        let over: Vec<Lease> = over.map(|(lease, _)| *lease).collect();
        over.into_iter().for_each(|lease| table.end(lease));
        table
    }
}

impl Table {
    fn end(&mut self, lease: Lease) {
        if self.leases.remove(&lease).is_none() {
            return;
        }
        let before = self.values.len();
        self.values.retain(|_, value| value.lease != Some(lease));
        self.revision += u64::from(self.values.len() < before);
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Absent(key) => !self.values.contains_key(key),
            Guard::Unchanged(key, at) => {
                self.values.get(key).is_some_and(|value| value.changed == *at)
            }
        }
    }
}

impl Registry for Embedded {
    fn describe(&self) -> String {
        "this server's own".into()
    }

    fn below(&self, prefix: &str) -> Result<View> {
        let table = self.now();
        let below = table.values.range(prefix.to_owned()..);
        let below = below.take_while(|(key, _)| key.starts_with(prefix));
        let entries = below.map(|(key, value)| Entry {
            key: key.clone(),
            value: value.bytes.clone(),
            changed: value.changed,
        });
        Ok(View { entries: entries.collect(), revision: Revision(table.revision) })
    }

    fn commit(&self, guards: &[Guard], changes: &[Change]) -> Result<Option<Revision>> {
        check(guards, changes)?;
        let mut table = self.now();
        if !guards.iter().all(|guard| table.holds(guard)) {
            return Ok(None);
        }
        for change in changes {
            if let Change::Put { lease: Some(lease), .. } = change
                && !table.leases.contains_key(lease)
            {
                return Err(Error::new(ErrorKind::NotFound, "a lease that is over"));
            }
        }
        table.revision += u64::from(!changes.is_empty());
        let changed = Revision(table.revision);
        for change in changes.iter().cloned() {
            match change {
                Change::Put { key, value, lease } => {
                    table.values.insert(key, Value { bytes: value, changed, lease });
                }
                Change::Remove(key) => drop(table.values.remove(&key)),
            }
        }
        Ok(Some(changed))
    }

    fn grant(&self, term: Duration) -> Result<Lease> {
        let mut table = self.now();
        table.last_lease += 1;
        let lease = Lease(table.last_lease);
        let until = (self.clock)() + term;
        table.leases.insert(lease, (term, until));
        Ok(lease)
    }

    fn keep(&self, lease: Lease) -> Result<bool> {
        let now = (self.clock)();
        let mut table = self.now();
        let kept = table.leases.get_mut(&lease).map(|(term, until)| *until = now + *term);
        Ok(kept.is_some())
    }

    fn end(&self, lease: Lease) -> Result<()> {
        self.now().end(lease);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::Embedded;
    use crate::conformance;

    #[test]
    fn the_embedded_one_keeps_what_the_trait_promises() {
        let begin = Instant::now();
        let registry = Embedded::new(Arc::new(move || begin.elapsed()));
        conformance::all(&registry);
    }
}
