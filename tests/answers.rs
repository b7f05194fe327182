//! The random operations of `programs/differential.c`, what they answer on tmpfs, and how that
//! differs from what they answer elsewhere.
#![allow(dead_code)] // Each test file uses its part.
#![allow(clippy::print_stdout)] // Seeds are said.

use std::fmt;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Families of calls that are compared.
pub const COMPARED: &[&str] = &[
    "all_flags",
    "atime",
    "changes",
    "closed_at_exec",
    "copy_file_range",
    "create_to_read",
    "dotdot",
    "empty_vectors",
    "empty_writes",
    "exchange",
    "exec_directories",
    "fallocate",
    "fallocate_times",
    "fdopen_append",
    "flock",
    "freopen",
    "holes",
    "links",
    "locks",
    "map_directory",
    "mkdir_dot",
    "moved",
    "nodes",
    "noreplace_same",
    "o_path",
    "ofd_locks",
    "path_of_link",
    "poll",
    "poll_path",
    "posix_fallocate",
    "renameat2",
    "sendfile",
    "set_id",
    "shared_maps",
    "special_links",
    "special_nodes",
    "symlinks",
    "tmpfile",
    "tmpfile_link",
    "truncate_directory",
    "truncate_empty",
    "walks",
    "xattrs",
];

/// Reruns for finding a shorter sequence.
const RERUNS: u32 = 30;
/// Where the root is, so that what leads up from it stays where nothing else is.
pub const ABOVE: &str = "one/two";

/// How processes take turns; the program's `--mode`.
#[derive(Clone, Copy, PartialEq)]
pub enum Mode {
    Sequence,
    Apart,
    Race,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sequence => "sequence",
            Mode::Apart => "apart",
            Mode::Race => "race",
        }
    }
}

pub struct Case<'a> {
    pub program: &'a Path,
    pub mode: Mode,
    /// Families of calls.
    pub features: Vec<&'static str>,
    pub seed: u64,
    pub count: u64,
    pub processes: u32,
    /// Each process gets a signal that often; 0: never.
    pub pester_us: u32,
}

/// What a case says, of these operations only if they are named, then what is wrong with its run.
pub type Served<'s> = &'s dyn Fn(&Case<'_>, Option<&Path>) -> Vec<String>;

pub struct Difference {
    /// Lines before it, as Terral gave them.
    before: Vec<String>,
    expected: String,
    got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.before {
            writeln!(f, "      {line}")?;
        }
        writeln!(f, "tmpfs {}\nhere  {}", self.expected, self.got)
    }
}

impl Difference {
    /// What was called: two differences with the same are taken for one.
    pub fn call(&self) -> String {
        self.expected.split_whitespace().nth(2).unwrap_or_default().to_owned()
    }

    /// The number of the operation, of those a sequence can leave out.
    pub fn number(&self) -> Option<u64> {
        let at = |line: &String| line.split(' ').next().and_then(|word| word.parse().ok());
        at(&self.expected).or_else(|| self.before.iter().rev().find_map(at))
    }
}

pub fn on_tmpfs() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("terral-test-").tempdir_in("/dev/shm").expect("directory")
}

pub fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let all = fs::read_dir(folder).expect("lists").map(|entry| entry.expect("entry").path());
    let named = |path: &PathBuf| {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        name.starts_with("differential") && name.ends_with(".c")
    };
    all.filter(named).collect()
}

pub fn compile(into: &Path) -> PathBuf {
    let program = into.join("differential");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).args(sources());
    assert!(cc.status().expect("cc runs").success(), "differential.c does not compile");
    program
}

impl<'a> Case<'a> {
    pub fn new(program: &'a Path, mode: Mode, seed: u64, count: u64, processes: u32) -> Self {
        let features = COMPARED.to_vec();
        Case { program, mode, features, seed, count, processes, pester_us: 0 }
    }

    pub fn arguments(&self, output: &Path, keep: Option<&Path>) -> Vec<String> {
        let mut arguments: Vec<String> = vec!["--mode".into(), self.mode.name().into()];
        arguments.extend(["--features".into(), self.features.join(",")]);
        arguments.extend(["--seed".into(), self.seed.to_string()]);
        arguments.extend(["--count".into(), self.count.to_string()]);
        arguments.extend(["--processes".into(), self.processes.to_string()]);
        arguments.extend(["--pester".into(), self.pester_us.to_string()]);
        arguments.extend(["--output".into(), output.display().to_string()]);
        if let Some(keep) = keep {
            arguments.extend(["--keep".into(), keep.display().to_string()]);
        }
        arguments
    }

    /// What the program says on tmpfs.
    pub fn reference(&self, keep: Option<&Path>) -> Vec<String> {
        let home = on_tmpfs();
        let output = home.path().join("said");
        let mut command = Command::new(self.program);
        // Alone in a directory, as it is under the prefix: `..` may be listed.
        let root = home.path().join("root");
        fs::DirBuilder::new().mode(0o700).create(&root).expect("directory");
        fs::DirBuilder::new().mode(0o700).recursive(true).create(root.join(ABOVE)).expect("them");
        command.args(self.arguments(&output, keep)).arg("--root").arg(root.join(ABOVE).join("w"));
        let status = command.status().expect("runs");
        assert!(status.success(), "without Terral: {status:?}");
        lines(&fs::read(&output).expect("output"))
    }

    /// A line if the tree in DIR is not the one that programs saw at the end.
    pub fn not_arrived(&self, to: &Path, said: &mut Vec<String>) {
        let mut command = Command::new(self.program);
        command.args(["--mode", "tree", "--features", &self.features.join(","), "--root"]);
        let listed = command.arg(to.join(ABOVE).join("w")).output().expect("runs");
        // What a link says is the same in both places, also where programs saw the root.
        let root = format!(" -> /terral/{ABOVE}/w");
        let here = |line: String| line.replace(&root, " -> @");
        let arrived: Vec<String> = lines(&listed.stdout).into_iter().map(here).collect();
        let is_tree = |line: &&String| line.starts_with("tree ");
        let seen: Vec<&String> = said.iter().filter(is_tree).collect();
        let (seen, arrived) = (seen.into_iter(), arrived.iter().filter(is_tree));
        if let Some((seen, arrived)) = first_difference(seen, arrived) {
            said.push(format!("DIR has <{arrived}>, programs saw <{seen}>"));
        }
    }

    fn difference(&self, served: Served<'_>, keep: Option<&[u64]>) -> Option<Difference> {
        let home = on_tmpfs();
        let file = keep.map(|numbers| {
            let file = home.path().join("keep");
            let text: Vec<String> = numbers.iter().map(u64::to_string).collect();
            fs::write(&file, text.join("\n")).expect("writes");
            file
        });
        let (theirs, ours) = (self.reference(file.as_deref()), served(self, file.as_deref()));
        let (expected, got) = first_difference(theirs.iter(), ours.iter())?;
        let same = theirs.iter().zip(&ours).take_while(|(one, other)| one == other).count();
        Some(Difference { before: ours[..same].to_vec(), expected, got })
    }

    /// The shortest sequence found that differs in the same call.
    fn shrink(&self, served: Served<'_>, mut found: Difference) -> Difference {
        let last = found.number().unwrap_or(self.count - 1).min(self.count - 1);
        let mut kept: Vec<u64> = (0..=last).collect();
        let (mut reruns, mut part) = (RERUNS, kept.len().div_ceil(2));
        while reruns > 0 && part > 0 {
            let mut at = 0;
            while at < kept.len() && reruns > 0 {
                let end = (at + part).min(kept.len());
                let trial: Vec<u64> = kept[..at].iter().chain(&kept[end..]).copied().collect();
                reruns -= 1;
                match self.difference(served, Some(&trial)) {
                    Some(other) if other.call() == found.call() => {
                        (kept, found) = (trial, other);
                    }
                    _ => at = end,
                }
            }
            part /= 2;
        }
        found
    }

    /// Whether there is a difference.
    pub fn differs(&self, served: Served<'_>) -> bool {
        self.difference(served, None).is_some()
    }

    /// Fails with the shortest sequence that shows a difference.
    pub fn hold(&self, served: Served<'_>) {
        let Some(found) = self.difference(served, None) else { return };
        let found = if self.mode == Mode::Sequence { self.shrink(served, found) } else { found };
        let (mode, seed) = (self.mode.name(), self.seed);
        let many = found.before.len().saturating_sub(60);
        let found = Difference { before: found.before[many..].to_vec(), ..found };
        panic!("{mode} of seed {seed}: not the answers of tmpfs\n{found}");
    }
}

pub fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

pub fn first_difference<'a>(
    mut one: impl Iterator<Item = &'a String>,
    mut other: impl Iterator<Item = &'a String>,
) -> Option<(String, String)> {
    let text = |line: Option<&String>| line.map_or("<nothing more>", |line| line).to_owned();
    loop {
        match (one.next(), other.next()) {
            (None, None) => return None,
            (left, right) if left == right => {}
            (left, right) => return Some((text(left), text(right))),
        }
    }
}

pub fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

pub fn seed() -> u64 {
    let seed = number_from("TERRAL_TEST_SEED").unwrap_or(561_713_566);
    println!("TERRAL_TEST_SEED={seed}");
    seed
}

pub fn operations() -> u64 {
    number_from("TERRAL_TEST_OPERATIONS").unwrap_or(100_000)
}
