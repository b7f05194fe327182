//! Who claims a pool, and is not answered. Not here: a real etcd (`tests/pool.rs`).

use std::path::Path;
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
        let registry = Arc::new(Silent { table, does, left: AtomicU64::new(1) });
        let mut entrance = entrance("a", registry, home.path());
        entrance.role = Some(Role::Authority);
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

/// A way into one pool, from a machine of this name with an instance of its own.
fn entrance(host: &str, registry: Arc<dyn Registry>, home: &Path) -> Entrance {
    let (id, boot) = (host.to_owned(), "b".into());
    let machine = Machine { host: host.into(), id, boot, user: 0, users: false };
    Entrance {
        name: "p".into(),
        keys: Keys::of("p"),
        registry,
        machine,
        instance: home.to_path_buf(),
        anew: true,
        role: None,
        view: View::default(),
    }
}

#[test]
fn what_a_server_left_is_nothing_to_go_on_with_once_the_pool_has_begun_anew() {
    let registry: Arc<dyn Registry> = Arc::new(Embedded::new(Arc::new(|| Duration::ZERO)));
    let homes = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let at = |host: &str, of: usize| entrance(host, registry.clone(), homes[of].path());
    let (mut first, mut second) = (at("a", 0), at("b", 1));
    first.look().expect("answers");
    first.claim().expect("nobody has it").expect("claimed");
    first.look().expect("answers");
    assert_eq!(first.is_over_for(true).expect("reads"), None, "it has the pool");
    let before = first.view.clone();
    let gone = Change::Remove(first.keys.control());
    registry.commit(&[], &[gone]).expect("writes").expect("done");
    second.look().expect("answers");
    second.claim().expect("anew").expect("claimed");
    first.look().expect("answers");
    let why = first.is_over_for(true).expect("reads").expect("it is another partition");
    assert!(why.contains("has begun anew (on b)") && why.contains("terral recover"), "{why}");
    assert_eq!(first.is_over_for(false).expect("reads"), None, "nothing is left");
    second.view = before;
    assert_eq!(second.is_over_for(true).expect("reads"), None, "etcd is older than that");
}
