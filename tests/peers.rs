//! The table beside what users have today, `demo/peers.py`: what is made of figures, and what is
//! said of mistakes. Nothing is measured here, and no other product is needed.
#![cfg(not(loom))]

mod beside;
mod launched;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use launched::said;
use serde_json::{Value, json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The program with these arguments; none where there is no Python.
fn peers(arguments: &[&str]) -> Option<Output> {
    if !beside::on_path("python3") {
        return None;
    }
    let mut command = Command::new("python3");
    command.arg(repository().join("demo/peers.py")).args(arguments);
    Some(command.output().expect("python3 starts"))
}

/// Figures of two rounds: of each product, of one case.
fn figures() -> Value {
    let of = |values: [f64; 2]| json!({ "creates": values });
    json!({
        "machine": {
            "processor": "P", "cores": 2, "kernel": "6.1", "time": "now", "load": [0.1, 2.5]
        },
        "rounds": 2, "size": 256, "creates": 1000, "stats": 2000,
        "figures": {
            "Terral": of([6000.0, 9000.0]), "sshfs": of([100.0, 8000.0]),
            "NFS-Ganesha": of([12_000.0, 10_000.0])
        },
        "failed": { "GlusterFS": "GlusterFS: it is not here" }
    })
}

#[test]
fn its_help_has_examples() {
    let Some(output) = peers(&["--help"]) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("examples:\n"), "{text}{}", said(&output));
}

#[test]
fn its_table_stands_between_the_marks_of_a_page_whose_rest_stays() {
    let home = tempfile::tempdir().expect("directory");
    let (from, page) = (home.path().join("figures"), home.path().join("page"));
    fs::write(&from, figures().to_string()).expect("writes");
    fs::write(&page, "# A\n\n<!-- peers -->\nof yesterday\n<!-- peers -->\n\n## B\n")
        .expect("writes");
    let mut before = String::new();
    for _ in 0..2 {
        let arguments = ["--from", from.to_str().expect("UTF-8"), "--markdown"];
        let arguments = [&arguments[..], &[page.to_str().expect("UTF-8")]].concat();
        let Some(output) = peers(&arguments) else { return };
        assert_eq!(output.status.code(), Some(1), "a product failed: {}", said(&output));
        let text = fs::read_to_string(&page).expect("reads");
        assert!(text.starts_with("# A\n\n<!-- peers -->\n"), "{text}");
        assert!(
            text.ends_with("\n<!-- peers -->\n\n## B\n") && !text.contains("yesterday"),
            "{text}"
        );
        // Of both rounds: 6000 to 12000, and 9000 to 10000.
        let row = "| creates in one directory by all four, together, a second | \
                   7,500 (6,000–9,000) | 4,050 (100–8,000) | – | 11,000 (10,000–12,000) | \
                   **0.7** NFS-Ganesha |\n";
        assert!(text.contains(row), "{text}");
        let behind = "*creates in one directory by all four* (0.7 of NFS-Ganesha).";
        assert!(text.contains(&format!("\n**Terral** is behind in: {behind}\n")), "{text}");
        assert!(text.contains("\nNot measured: GlusterFS: it is not here\n"), "{text}");
        assert!(before.is_empty() || before == text, "the second time is as the first");
        before = text;
    }
}

#[test]
fn a_mistake_is_one_line_and_changes_nothing() {
    let home = tempfile::tempdir().expect("directory");
    let (from, page) = (home.path().join("figures"), home.path().join("page"));
    fs::write(&from, figures().to_string()).expect("writes");
    fs::write(&page, "no marks\n").expect("writes");
    let (from, page) = (from.to_str().expect("UTF-8"), page.to_str().expect("UTF-8"));
    for (arguments, why) in [
        (&["--from", from, "--markdown", page][..], "has not two lines <!-- peers -->"),
        (&["--from", page], "is not what --json writes"),
        (&["--from", "/nowhere/figures"], "No such file or directory"),
        (&["--only", "afs"], "--only afs: there are Terral; "),
        (&["--terral", "/nowhere/terral"], "/nowhere/terral: not there"),
    ] {
        let Some(output) = peers(arguments) else { return };
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("peers: ") && said.lines().count() == 1, "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(fs::read_to_string(page).expect("reads"), "no marks\n");
}

#[test]
fn the_page_of_benchmarks_has_its_marks() {
    let page = repository().join("docs/benchmarks.md");
    let text = fs::read_to_string(page).expect("reads");
    assert_eq!(text.lines().filter(|line| *line == "<!-- peers -->").count(), 2);
}
