//! How long the commit of a transaction takes in one server: an object gets its name, and one of
//! another container says that it is there; beside the same as two calls, and on tmpfs.
//!
//! Invariants: each commit is of an object that was just made; it is timed from the begin of the
//! transaction to its answer, and what makes and removes objects is not. Memory is all they last
//! in: there is no permanent directory. Not here: commits over machines (`bench_far_commits`).

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use terral_client::Client;
use terral_client::objects::{Address, Container, Object, ObjectId, Value};
use terral_client::transactions::Transaction;

use crate::bench_figure::Effort;
use crate::bench_host::{Bed, Face, Host};
use crate::bench_report::{Bound, Fact, Spread};

/// Commits of a round.
const COMMITS: u64 = 2000;
/// The attribute that says which one is there.
const KEY: &[u8] = b"latest";
/// The directory of names.
const NAMES: &str = "committed";

/// How the two changes are made.
#[derive(Clone, Copy)]
enum Way {
    Commit,
    Calls,
    Tmpfs,
}

const WAYS: [Way; 3] = [Way::Commit, Way::Calls, Way::Tmpfs];

/// The two containers, the object that says what is there, and the same on tmpfs.
struct Both {
    client: Client,
    fields: Container,
    index: Container,
    latest: Object,
    tmpfs: PathBuf,
}

fn made(container: &Container, id: u64) -> Result<Address> {
    let object = container.create_object(ObjectId(id.into()))?;
    let address = object.address();
    object.close()?;
    Ok(address)
}

impl Both {
    fn new(host: &Host, bed: &Bed) -> Result<Self> {
        let client = bed.client.clone();
        client.make_directory(NAMES.as_bytes(), 0o755)?;
        let fields = Container::create(&client, b"fields", 0o755)?;
        let index = Container::create(&client, b"index", 0o755)?;
        let latest = index.create_object(ObjectId(1))?;
        let tmpfs = host.root(Face::Tmpfs).join(NAMES);
        std::fs::create_dir(&tmpfs).with_context(|| tmpfs.display().to_string())?;
        Ok(Both { client, fields, index, latest, tmpfs })
    }

    /// Nanoseconds of one.
    fn one(&self, way: Way, id: u64) -> Result<f64> {
        match way {
            Way::Tmpfs => self.on_tmpfs(id),
            Way::Commit | Way::Calls => {
                let address = made(&self.fields, id)?;
                let (name, value) = (format!("{NAMES}/{id}"), Value::Integer(id as i64));
                let took = match way {
                    Way::Commit => self.committed(address, name.as_bytes(), &value)?,
                    _ => self.called(address, name.as_bytes(), &value)?,
                };
                self.client.unlink(name.as_bytes())?;
                self.fields.remove_object(address)?;
                Ok(took)
            }
        }
    }

    fn committed(&self, address: Address, name: &[u8], value: &Value) -> Result<f64> {
        let begin = Instant::now();
        let mut transaction = Transaction::begin(&self.client);
        transaction.bind(&self.fields, address, name)?;
        transaction.set_attribute(&self.index, self.latest.address(), KEY, Some(value))?;
        transaction.commit()?;
        Ok(begin.elapsed().as_nanos() as f64)
    }

    fn called(&self, address: Address, name: &[u8], value: &Value) -> Result<f64> {
        let begin = Instant::now();
        self.fields.bind_object(address, name)?;
        self.latest.set_attribute(KEY, Some(value))?;
        Ok(begin.elapsed().as_nanos() as f64)
    }

    /// A second name of a new file, and a file that is replaced: what says which one is there.
    fn on_tmpfs(&self, id: u64) -> Result<f64> {
        let at = |name: &str| self.tmpfs.join(name);
        let (file, name, next) = (at("file"), at(&id.to_string()), at("next"));
        for path in [&file, &next] {
            std::fs::File::create(path).with_context(|| path.display().to_string())?;
        }
        let begin = Instant::now();
        std::fs::hard_link(&file, &name)?;
        std::fs::rename(&next, at("latest"))?;
        let took = begin.elapsed().as_nanos() as f64;
        std::fs::remove_file(&name)?;
        std::fs::remove_file(&file)?;
        Ok(took)
    }

    /// Microseconds of each of a round, sorted.
    fn round(&self, way: Way, first: u64) -> Result<Vec<f64>> {
        let all = (first..first + COMMITS).map(|id| Ok(self.one(way, id)? / 1e3));
        let mut all = all.collect::<Result<Vec<f64>>>()?;
        all.sort_by(f64::total_cmp);
        Ok(all)
    }
}

/// The value that so many of a hundred are no more than.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

fn shown(of: Spread) -> String {
    format!("{:.2} ({:.2}–{:.2})", of.median, of.min, of.max)
}

/// See the module.
pub fn one_server(host: &Host, effort: &Effort) -> Result<Vec<Fact>> {
    let bed = Bed::start(host, None)?;
    let both = Both::new(host, &bed)?;
    let (mut medians, mut late): ([Vec<f64>; 3], Vec<f64>) = Default::default();
    for round in 0..=effort.rounds {
        for turn in 0..WAYS.len() {
            let at = (round + turn) % WAYS.len();
            let first = ((round * WAYS.len() + at) as u64) * COMMITS + 1;
            let all = both.round(WAYS[at], first)?;
            // The first round makes what exists once.
            if round > 0 {
                medians[at].push(quantile(&all, 50));
                late.extend(matches!(WAYS[at], Way::Commit).then(|| quantile(&all, 99)));
            }
        }
    }
    std::fs::remove_dir_all(&both.tmpfs)?;
    let names = both.client.list(NAMES.as_bytes())?;
    ensure!(names.is_empty(), "{} names are left", names.len());
    let spreads = medians.map(|of| Spread::of(of.into_iter()));
    let [own, calls, tmpfs] = spreads.map(shown);
    let late = Spread::of(late.into_iter());
    let name = "commit: an object's name, and an attribute in another container";
    let fact = Fact::new(name, spreads[0].median, "µs", Some(Bound::Below(100.0)));
    Ok(vec![fact.note(format!(
        "{own}, 99 of 100 within {}; as two calls {calls}; link and rename on tmpfs {tmpfs} µs",
        shown(late)
    ))])
}
