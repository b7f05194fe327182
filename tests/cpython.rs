//! CPython's own tests of what it does with files, as Debian packages them, with their directory on
//! tmpfs and under `terral run`: each test has the same outcome, or is listed here with the reason.
//!
//! A listed test that no longer differs fails, too: the list is what docs/semantics.md says.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PYTHON: &str = "/usr/bin/python3.11";
const TESTS: &str = "/usr/lib/python3.11/test";

/// Tests that are skipped here and not on tmpfs, and why.
const SKIPPED_HERE: &[(&str, &str)] = &[
    ("test.test_shutil.TestCopy.test_copy2_xattr", TRUSTED),
    ("test.test_shutil.TestCopy.test_copyxattr", TRUSTED),
    ("test.test_shutil.TestCopy.test_copyxattr_symlinks", TRUSTED),
];

const TRUSTED: &str = "asks first whether root may set trusted.*, which is refused";

/// How a test ended: `passed`, `skipped`, `failed` or `unknown`.
type Outcomes = BTreeMap<String, &'static str>;

/// The outcomes in a report in JUnit's form.
fn outcomes(report: &Path) -> Outcomes {
    let text = fs::read_to_string(report).expect("a report");
    let mut found = Outcomes::new();
    for case in text.split("<testcase ").skip(1) {
        let (attributes, children) = case.split_once('>').expect("an element");
        // A test of which a part failed is left without a name.
        let name = attributes.strip_prefix("name=\"").and_then(|rest| rest.split('"').next());
        let outcome = if children.starts_with("<skipped") {
            "skipped"
        } else if children.starts_with("<failure") || children.starts_with("<error") {
            "failed"
        } else if attributes.ends_with('/') && attributes.contains("result=\"completed\"") {
            "passed"
        } else {
            "unknown"
        };
        found.insert(name.unwrap_or("failed in part").to_owned(), outcome);
    }
    found
}

/// Runs modules of the suite in both places and compares test by test.
fn same(modules: &[&str], tests: usize, opens: u64) {
    if !Path::new(TESTS).join("test_os.py").exists() || !Path::new(PYTHON).exists() {
        println!("skipped: libpython3.11-testsuite is not installed");
        return;
    }
    let list = modules.join(" ");
    // Through a pipe: children that become another user could not use a file under the prefix.
    let beside = beside::run(&format!(
        "mkdir t; cd t; export TMPDIR=$PWD
        {PYTHON} -m test --tempdir $PWD --junit-xml ../report -v {list} 2>&1 | cat > ../said"
    ));
    let [ours, reference] = [&beside.ours, &beside.reference].map(|directory| {
        let [report, said] = ["report", "said"].map(|name| directory.path().join(name));
        let found = (outcomes(&report), fs::read_to_string(&said).expect("it says something"));
        fs::remove_file(report).expect("removes");
        fs::remove_file(said).expect("removes");
        found
    });
    assert!(reference.0.len() >= tests, "{} tests of {list}", reference.0.len());
    let wrong = differences(modules, &ours.0, reference.0);
    assert!(wrong.is_empty(), "{}\n{wrong:#?}", ours.1);
    beside.assert_same();
    beside.assert_served(opens);
}

/// What differs and is not listed, or does not differ though it is.
fn differences(modules: &[&str], ours: &Outcomes, reference: Outcomes) -> Vec<String> {
    let mut expected = reference;
    let of_these =
        |name: &str| modules.iter().any(|module| name.starts_with(&format!("test.{module}.")));
    for (name, _) in SKIPPED_HERE.iter().filter(|(name, _)| of_these(name)) {
        *expected.get_mut(*name).unwrap_or_else(|| panic!("there is no {name}")) = "skipped";
    }
    let names = expected.keys().chain(ours.keys().filter(|name| !expected.contains_key(*name)));
    names
        .filter(|name| expected.get(*name) != ours.get(*name))
        .map(|name| format!("{name}: {:?}, not {:?}", ours.get(name), expected.get(name)))
        .collect()
}

#[test]
fn names_and_attributes() {
    let modules = ["test_glob", "test_os", "test_pathlib", "test_shutil", "test_tempfile"];
    same(&modules, 1000, 30_000);
}

#[test]
fn archives() {
    same(&["test_tarfile", "test_zipfile"], 800, 3000);
}

#[test]
fn files() {
    same(&["test_io"], 600, 3000);
}

#[test]
fn children() {
    same(&["test_subprocess"], 300, 1500);
}
