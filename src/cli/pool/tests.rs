//! Who claims a pool, and is not answered. Not here: a real etcd (`tests/pool.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terral_client::{Error, ErrorKind};
use terral_registry::embedded::Embedded;
use terral_registry::registry::{Change, Guard, Lease, Registry, Revision, View};
use terral_server::Part;
use terral_server::records::{Keys, Machine, Role};

use super::Entrance;

/// A registry that does not answer one transaction, which it has done, or has not.
struct Silent {
    table: Embedded,
    does: bool,
    left: AtomicU64,
}

type Done<T> = Result<T, Error>;

impl Registry for Silent {
    fn describe(&self) -> String {
        "the registry".into()
    }

    fn below(&self, prefix: &str) -> Done<View> {
        self.table.below(prefix)
    }

    fn commit(&self, guards: &[Guard], changes: &[Change]) -> Done<Option<Revision>> {
        if self.left.swap(0, Ordering::SeqCst) == 0 {
            return self.table.commit(guards, changes);
        }
        if self.does {
            self.table.commit(guards, changes)?;
        }
        Err(Error::new(ErrorKind::Unanswered, "the registry"))
    }

    fn grant(&self, term: Duration) -> Done<Lease> {
        self.table.grant(term)
    }

    fn keep(&self, lease: Lease) -> Done<bool> {
        self.table.keep(lease)
    }

    fn end(&self, lease: Lease) -> Done<()> {
        self.table.end(lease)
    }
}

#[test]
fn who_claims_a_pool_and_is_not_answered_has_claimed_it_or_claims_it_again() {
    for does in [true, false] {
        let table = Embedded::new(Arc::new(|| Duration::ZERO));
        let home = tempfile::tempdir().expect("a directory");
        let machine = Machine { host: "a".into(), id: String::new(), boot: "b".into(), user: 0 };
        let mut entrance = Entrance {
            name: "p".into(),
            keys: Keys::of("p"),
            registry: Arc::new(Silent { table, does, left: AtomicU64::new(1) }),
            machine,
            instance: home.path().to_path_buf(),
            anew: false,
            role: Some(Role::Authority),
            view: View::default(),
        };
        let mut claims = || {
            entrance.look().expect("answers");
            entrance.claim().expect("nobody else claims it")
        };
        let first = claims();
        assert_eq!(first.is_some(), does, "what was done is seen");
        let entered = first.or_else(&mut claims).expect("claimed");
        assert!(matches!(entered.part, Part::Control { authority: true, .. }));
        assert_eq!(entered.pool.generation.number, 1, "once");
    }
}
