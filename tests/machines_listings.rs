//! How often machines that look at a tree at once have DIR list its directories: each once, and
//! again when somebody has changed it there.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use beside::on_path;
use launched::said;
use namespaces::Machines;

const DIRECTORIES: usize = 50;
const FILES: usize = 5000;
/// Names of one directory, which are told in several messages.
const MANY: usize = 15_000;

/// All machines go through the tree at once, while the calls of each server's threads are noted;
/// then somebody else makes a file there.
const LOOKS: &str = r#"
for at in h0 h1 h2 h3; do
    pid=$(pid_of $at)
    strace -f -ff -y -e trace=getdents64 -o $NOTES/of.$at -p $pid 2> $NOTES/said.$at &
    traces="$traces $!"
done
for at in h0 h1 h2 h3; do until grep -q attached $NOTES/said.$at; do sleep 0.1; done; done
for at in h0 h1 h2 h3; do
    on $at "find /terral/tree -type f | wc -l" & looks="$looks $!"
done
wait $looks
kill $traces; wait $traces
touch $TO/tree/d7/more
for at in h0 h1 h2 h3; do on $at "ls /terral/tree/d7 | wc -l"; done
"#;

fn fill(path: &Path, files: usize) {
    fs::create_dir_all(path).expect("makes");
    for file in 0..files {
        fs::write(path.join(format!("a-name-of-thirty-bytes-or-so-{file:05}")), "")
            .expect("writes");
    }
}

/// After this a directory that has changed may be known.
const CALM: Duration = Duration::from_millis(2500);

/// How often each directory was listed, by what was noted of threads.
fn listed(notes: &Path) -> BTreeMap<String, usize> {
    let mut listed = BTreeMap::new();
    for note in fs::read_dir(notes).expect("lists").map(|note| note.expect("is one").path()) {
        let noted = fs::read_to_string(note).expect("reads");
        // The last call of a listing gives nothing.
        let ends = noted.lines().filter(|line| line.ends_with(" = 0"));
        for path in ends.filter_map(|line| line.split(['<', '>']).nth(1)) {
            *listed.entry(path.to_owned()).or_default() += 1;
        }
    }
    listed
}

#[test]
fn each_directory_of_a_tree_that_four_machines_list_at_once_is_listed_once_in_dir() {
    let Some(machines) = Machines::new(4) else { return };
    if !on_path("strace") {
        return;
    }
    let (to, notes) = (machines.home().join("to"), machines.home().join("notes"));
    fs::create_dir(&notes).expect("makes");
    for directory in 0..DIRECTORIES {
        fill(&to.join(format!("tree/d{directory}")), FILES / DIRECTORIES);
    }
    fill(&to.join("tree/large"), MANY);
    // What has changed two seconds ago or less is read anew each time.
    std::thread::sleep(CALM);
    let mut command = machines.begin(&["--to", &to.display().to_string()], LOOKS);
    let output = command.env("NOTES", &notes).env("TO", &to).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    let (all, more) = (FILES + MANY, FILES / DIRECTORIES + 1);
    assert_eq!(text, format!("{}{}", format!("{all}\n").repeat(4), format!("{more}\n").repeat(4)));
    let tree = to.join("tree").display().to_string();
    let mut listed = listed(&notes);
    listed.retain(|path, _| path.starts_with(&tree));
    assert_eq!((listed.len(), listed.values().max()), (DIRECTORIES + 2, Some(&1)), "{listed:?}");
}
